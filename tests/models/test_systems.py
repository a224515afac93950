"""Test the parts of each system, their interface, and systems with a temporal model."""

import numpy as np
import pytest

pytest.importorskip("flax", reason="needs the vision extra (flax)")

import jax
import jax.numpy as jnp
import tiny  # noqa: F401 (registers a small backbone)
from flax import nnx

from models.backbones.images import normalize
from models.systems import SYSTEMS, ComposedSystem, HeadSpec, build_system, probabilities
from models.systems.build import Precomputed

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize(
    ("name", "heads"),
    [
        ("toolnet", {"tools": (4096, 7)}),
        ("phasenet", {"phases": (4096, 7)}),
        ("endonet", {"tools": (4096, 7), "phases": (4103, 7)}),
        ("swinnet", {"tools": (1024, 7), "phases": (1024, 7)}),
    ],
)
def test_systems_are_the_published_ones(name, heads):
    system = nnx.eval_shape(lambda: build_system(name, rngs=nnx.Rngs(0)))
    assert {track: system.heads[track].kernel.shape for track in system.heads} == heads
    assert set(SYSTEMS[name].heads) == set(heads)
    logits = nnx.eval_shape(lambda s: s(jnp.zeros((2, 224, 224, 3), jnp.uint8), key=jax.random.key(0)), system)
    assert {track: x.shape for track, x in logits.items()} == {track: (2, 7) for track in heads}


def test_the_phases_of_endonet_depend_on_its_tools():
    system = build_system("endonet", backbone="tiny", rngs=nnx.Rngs(0))
    features = jnp.ones((3, system.backbone.width))
    before = system.decide(features)
    system.heads["tools"].bias.set_value(system.heads["tools"].bias[...] + 1)
    after = system.decide(features)
    assert np.abs(after["phases"] - before["phases"]).max() > 1e-4


def test_probabilities():
    answer = probabilities({"phases": jnp.array([[1.0, 2.0]]), "tools": jnp.array([[0.0, 2.0]])})
    np.testing.assert_allclose(answer["phases"].sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(answer["tools"], [[0.5, 1 / (1 + np.exp(-2))]], rtol=1e-6)


def test_bytes_and_floats_are_the_same_image():
    images = np.random.default_rng(0).integers(0, 256, (1, 4, 4, 3)).astype(np.uint8)
    spread = ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    want = (images / 255 - spread[0]) / np.array(spread[1])
    np.testing.assert_allclose(normalize(jnp.asarray(images), *spread), want, atol=1e-5)
    np.testing.assert_allclose(normalize(jnp.asarray(images / 255, jnp.float32), *spread), want, atol=1e-5)


class RunningMean(nnx.Module):
    """A causal temporal model without parameters: the mean of all features so far."""

    width = 128

    def __call__(self, features, mask=None, *, key=None):
        return jnp.cumsum(features, 1) / jnp.arange(1, features.shape[1] + 1)[:, None]


def test_other_integer_dtypes_are_refused():
    system = build_system("toolnet", backbone="small", tools=2, rngs=nnx.Rngs(0))
    system.eval()
    with pytest.raises(ValueError, match="the images have dtype int32"):
        system(jnp.zeros((1, 16, 16, 3), jnp.int32))


@pytest.mark.parametrize("name", ["toolnet", "fcn", "frcnn"])
def test_an_empty_batch_has_empty_logits(name):
    """An empty batch has empty logits, for systems on pooled features, on maps and on boxes."""
    system = build_system(name, backbone="resnet18", tools=2, size=(64, 64), rngs=nnx.Rngs(0))
    system.eval()
    answer = nnx.eval_shape(lambda system: system(jnp.zeros((0, 64, 64, 3), jnp.uint8)), system)
    assert answer["tools"].shape == (0, 2)


def test_a_temporal_model_sees_sequences_of_features():
    system = build_system("endonet", backbone="tiny", temporal=RunningMean(), rngs=nnx.Rngs(0))
    system.eval()
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 16, 16, 3)).astype(np.uint8)
    changed = images.copy()
    changed[:, 3:] = 0
    run = jax.jit(lambda images: system(images))
    a, b = run(images), run(changed)
    assert a["phases"].shape == a["tools"].shape == (2, 5, 7)
    # Tools depend on the frame itself, phases on all frames until then.
    np.testing.assert_allclose(a["phases"][:, :3], b["phases"][:, :3], atol=1e-6)
    assert np.abs(a["phases"][:, 4] - b["phases"][:, 4]).max() > 1e-6
    frames = run(images.reshape(-1, 1, 16, 16, 3))["tools"].reshape(2, 5, 7)
    np.testing.assert_allclose(a["tools"], frames, atol=1e-5)


def test_every_stage_is_trained():
    """The loss of a system in stages is the sum over stages of the criterion and of the weighted smoothing loss."""
    from models.settings import Loss
    from models.temporal import smoothing_loss
    from models.training.losses import Criterion

    options = {"width": 4, "layers": 2, "stages": 3, "smoothness": 0.5, "dropout": 0.0}
    system = build_system(
        "mstcn", backbone=Precomputed(6), phases=3, tools=2, temporal_options=options, rngs=nnx.Rngs(0)
    )
    rng = np.random.default_rng(0)
    batch = {"features": rng.normal(size=(2, 9, 6)).astype(np.float32), "mask": np.arange(9) < [[9], [5]]}
    batch |= {"phases": rng.integers(-1, 3, (2, 9)), "tools": rng.integers(-1, 2, (2, 9, 2))}
    criterion = Criterion(Loss(tools=0.3))
    value, terms = system.training_loss(batch, criterion, key=None)
    stages = system.temporal.every_stage(batch["features"], batch["mask"])
    losses = [criterion.frames(stage, batch)[0] for stage in stages]
    changes = [smoothing_loss(stage, batch["mask"]) for stage in stages]
    assert len(stages) == 3 and set(terms) == {"phases", "tools", "smoothness"}
    np.testing.assert_allclose(terms["smoothness"], 0.5 * sum(changes), rtol=1e-5)
    np.testing.assert_allclose(value, sum(losses) + 0.5 * sum(changes), rtol=1e-5)
    np.testing.assert_allclose(terms["phases"] + 0.3 * terms["tools"], losses[-1], rtol=1e-5)
    decided = system.decide(batch["features"], batch["mask"])
    jax.tree.map(np.testing.assert_array_equal, decided, stages[-1])
    without = build_system("tecno", backbone=Precomputed(6), temporal_options={"layers": 1}, rngs=nnx.Rngs(0))
    assert without.temporal.smoothness == 0


def test_stages_replace_plain_heads_only():
    system = build_system("toolnet_l", backbone=Precomputed(6), temporal="mstcn", tools=2, rngs=nnx.Rngs(0))
    system.eval()
    assert set(system.decide(jnp.zeros((1, 4, 6)))) == {"tools"}
    for name in ("endonet_l", "swinnet_a"):
        with pytest.raises(ValueError, match=f"{name} has heads of its own. Fix: set system to mstcn"):
            build_system(name, backbone=Precomputed(6), temporal="tecno", rngs=nnx.Rngs(0))


def test_systems_can_be_composed_of_any_parts():
    from models.backbones import build

    backbone = build("tiny", rngs=nnx.Rngs(0))
    heads = {"phases": HeadSpec(), "tools": HeadSpec(also=("phases",))}
    system = ComposedSystem(backbone, {"phases": 3, "tools": 2}, heads, rngs=nnx.Rngs(1))
    assert system.heads["tools"].kernel.shape == (128 + 3, 2)
    with pytest.raises(TypeError, match="decides each frame alone and has no state"):
        system.run(jnp.zeros((1, 1, 128)), None, None)
    with pytest.raises(ValueError, match="endonet"):
        build_system("endnet", rngs=nnx.Rngs(0))

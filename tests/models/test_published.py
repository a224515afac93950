"""Test ConvNeXt and ViT against torchvision, timm and transformers, and weights as they are published."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flax", reason="needs the vision extra (flax)")

import jax
from flax import nnx
from published_cases import CASES, SIZES, images_for, weights_for

from models.backbones import BACKBONES, build
from models.backbones.bicubic import cubic_weights, resize_grid
from models.backbones.convnext import ConvNeXt
from models.backbones.vit import ViT
from models.weights import WeightsError, export_state, load_state


@pytest.fixture(scope="module")
def reference():
    with np.load(Path(__file__).with_name("published_reference.npz")) as arrays:
        return dict(arrays)


def network(case, **more):
    options = {**CASES[case], **more}
    net = (ConvNeXt if "widths" in options else ViT)(rngs=nnx.Rngs(0), **options)
    net.eval()
    return net


def published(reference, case):
    """The state dict of a case under its library's names."""
    rows = [str(row).split(" ") for row in reference[f"{case}/names"]]
    shapes = {name: tuple(map(int, filter(None, shape))) for name, *shape in rows}
    return {name: weights_for(name, shape) for name, shape in shapes.items()}


def features(net, images):
    graph, state = nnx.split(net)
    return np.asarray(jax.jit(lambda s, x: nnx.merge(graph, s)(x).pooled)(state, images))


# One ConvNeXt of each version and one ViT of each kind always; the others differ in names only.
OFTEN = {"timm/convnextv2", "torchvision/convnext", "transformers/dinov2", "timm/swiglu", "transformers/dinov3"}


@pytest.mark.parametrize(
    "case", [case if case in OFTEN else pytest.param(case, marks=pytest.mark.thorough) for case in CASES]
)
def test_features_are_those_of_the_library(reference, case):
    net = network(case)
    notices = load_state(net, published(reference, case))
    assert all("left out" in notice or "names of" in notice for notice in notices)
    np.testing.assert_allclose(features(net, images_for(case)), reference[f"{case}/features"], atol=1e-4, rtol=1e-4)


def loads(net, state):
    """Return the notices of a state dict that fits, and check that it gives the same weights as `net` has."""
    other = network("transformers/dinov2")
    notices = load_state(other, state)
    for name, value in export_state(net).items():
        np.testing.assert_array_equal(export_state(other)[name], value, err_msg=name)
    return notices


def test_prefixes_and_other_networks_of_a_checkpoint():
    net = network("transformers/dinov2")
    state = export_state(net)
    for prefix in ("module.", "backbone.", "model.encoder.", "teacher.backbone.", "state_dict.module.student."):
        assert loads(net, {prefix + name: value for name, value in state.items()}) == []
    both = {f"student.backbone.{name}": 0 * value for name, value in state.items()}
    both |= {f"teacher.backbone.{name}": value for name, value in state.items()}
    both |= {"teacher.dino_head.last_layer.weight": np.ones((2, 3), np.float32)}
    (notice,) = loads(net, both)
    assert notice.startswith(f"left out {len(state) + 1}: student.backbone.")
    (notice,) = loads(net, state | {"mask_token": np.ones((1, 32), np.float32)})
    assert notice == "left out 1: mask_token"
    chunks = {name.replace("blocks.", "blocks.0."): value for name, value in state.items()}
    assert loads(net, chunks) == ["names of DINO or timm ViT"]


def test_weights_of_another_network_are_refused_with_names_of_both_sides():
    net = network("transformers/dinov2")
    state = export_state(net)
    deeper = state | {"blocks.2.norm1.weight": np.ones(32, np.float32)}
    with pytest.raises(WeightsError, match=r"unexpected \(1\): blocks\.2\.norm1\.weight"):
        load_state(net, deeper)
    unknown = {f"tower.part{n}.w": np.ones(2, np.float32) for n in range(9)}
    with pytest.raises(WeightsError) as caught:
        load_state(net, unknown)
    missing, unexpected = str(caught.value).splitlines()[1:3]
    assert "missing (" in missing and missing.count(", ") == 5 and missing.endswith("...")
    assert unexpected == "  unexpected (9): " + ", ".join(sorted(unknown)[:5]) + ", ..."


def test_positions_are_resized_when_loaded():
    small, large = network("transformers/dinov2"), network("transformers/dinov2", grid=6)
    notices = load_state(large, export_state(small))
    assert notices == ["resized positions from 4x4 to 6x6"]
    grid = np.asarray(small.pos_embed[...])[0, 1:].reshape(4, 4, -1)
    want = np.asarray(resize_grid(grid, 6, 6)).reshape(36, -1)
    np.testing.assert_allclose(np.asarray(large.pos_embed[...])[0, 1:], want, atol=1e-6)


def test_cubic_weights_interpolate():
    """Weights sum to one, reproduce a line inside, and are the identity if the size stays."""
    np.testing.assert_allclose(cubic_weights(5, 5), np.eye(5), atol=1e-6)
    weights = cubic_weights(8, 16)
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)
    np.testing.assert_allclose((weights @ np.arange(8))[4:12], ((np.arange(16) + 0.5) / 2 - 0.5)[4:12], atol=0.05)


@pytest.mark.parametrize("case", ["timm/convnextv2", "transformers/dinov3"])
def test_training_reaches_every_parameter(case):
    net = network(case, remat=True)
    net.train()
    graph, params, rest = nnx.split(net, nnx.Param, ...)
    images = images_for(case)

    def loss(params):
        net = nnx.merge(graph, params, rest)
        return (net(images, key=jax.random.key(0)).pooled ** 3).sum()

    grads = jax.jit(jax.grad(loss))(params)
    for path, grad in jax.tree_util.tree_leaves_with_path(grads):
        assert np.isfinite(grad).all(), path
        # A head's keys have no bias that matters without rotation; GRN begins as the identity.
        assert (np.asarray(grad) != 0).any(), path


@pytest.mark.parametrize("case", ["transformers/dinov2", "transformers/dinov3"])
def test_a_token_more_for_the_fused_attention_changes_nothing(case, monkeypatch):
    """cuDNN's attention takes even numbers of tokens; here the plain form takes its place, with the same arguments."""
    images, attend, forms = images_for(case), jax.nn.dot_product_attention, []

    def recorded(*arrays, implementation, **options):
        forms.append((implementation, arrays[0].shape[1] % 2))
        return attend(*arrays, implementation="xla", **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", recorded)
    outputs = {}
    for flash in (False, True):
        graph, params = nnx.split(network(case, flash=flash, registers=3))

        def features(params, graph=graph):
            return (nnx.merge(graph, params)(images).pooled ** 2).sum()

        outputs[flash] = jax.jit(jax.value_and_grad(features))(params)
    assert set(forms) == {("xla", 1), ("cudnn", 0)}
    for plain, fused in zip(*map(jax.tree.leaves, (outputs[False], outputs[True])), strict=True):
        np.testing.assert_allclose(fused, plain, rtol=1e-3, atol=1e-4 * np.abs(plain).max())


@pytest.mark.thorough
def test_shapes_of_published_sizes():
    """Parameters of the published networks, counted without allocating them."""
    counts = {}
    for name in ("convnext_tiny", "convnextv2_base", "dinov2_small", "dinov3_large"):
        state = nnx.eval_shape(lambda name=name: nnx.state(build(name, rngs=nnx.Rngs(0)), nnx.Param))
        counts[name] = sum(int(np.prod(x.shape)) for x in jax.tree.leaves(state))
    # Counted in timm 1.0.31 and transformers 5.24, without classifiers and mask tokens.
    assert counts == {
        "convnext_tiny": 27_820_128,
        "convnextv2_base": 87_692_800,
        "dinov2_small": 22_056_192,
        # DINOv3 has no bias of keys; ours, of 1,024 numbers in each of 24 blocks, is loaded as zeros.
        "dinov3_large": 303_128_576 + 24 * 1024,
    }


def test_names_of_earlier_versions_of_transformers():
    """Published files keep the names of transformers before its version 5."""
    for case, mlp in (
        ("transformers/vit", {"mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense"}),
        ("transformers/dinov2_swiglu", {"mlp.w12": "mlp.weights_in", "mlp.w3": "mlp.weights_out"}),
    ):
        net, other = network(case), network(case)
        old = {}
        for name, value in export_state(net).items():
            new = name
            for ours, theirs in {
                "blocks.": "dinov2.encoder.layer.",
                "attn.proj": "attention.output.dense",
                "ls1.gamma": "layer_scale1.lambda1",
                "ls2.gamma": "layer_scale2.lambda1",
                "cls_token": "dinov2.embeddings.cls_token",
                "pos_embed": "dinov2.embeddings.position_embeddings",
                "patch_embed.proj": "dinov2.embeddings.patch_embeddings.projection",
                **mlp,
            }.items():
                new = new.replace(ours, theirs)
            new = f"dinov2.layernorm{new.removeprefix('norm')}" if new.startswith("norm.") else new
            if "attn.qkv" in new:
                for piece, word in zip(np.split(value, 3), ("query", "key", "value"), strict=True):
                    old[new.replace("attn.qkv", f"attention.attention.{word}")] = piece
            else:
                old[new] = value
        load_state(other, old)
        for name, value in export_state(net).items():
            np.testing.assert_array_equal(export_state(other)[name], value, err_msg=name)


def test_every_size_is_registered():
    sizes = {f"{kind}_{size}" for kind in ("vit", "dinov2", "dinov3") for size in ("small", "base", "large")}
    assert sizes | {"convnext_large", "convnextv2_large"} <= set(BACKBONES)
    assert set(SIZES) <= set(CASES)

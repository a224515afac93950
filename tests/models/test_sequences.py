"""Test systems trained on sequences: on features of a frozen backbone, on clips, and through the HMM."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import dataclasses
import shutil

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

import jax
import jax.numpy as jnp
from flax import nnx
from tiny import boxed_frames, frames, settings

import hmmjax
from hmmjax.io import save_params
from models.data.cache import read_cache, write_cache
from models.predict import main as predict_main
from models.settings import read_config
from models.systems import SYSTEMS, HeadSpec, build_system, make_system
from models.train import main as train_main
from models.training.feeds import Sequences, labels_of
from models.training.losses import HMMLoss
from models.training.recognizer import Recognizer, cached_features, predict_cached
from models.training.run import read_metrics
from models.training.step import data_mesh, init_state, make_optimizer, make_program

pytestmark = pytest.mark.thorough
SMALL = {"lstm": "{width: 8}", "lapformer": "{width: 8, heads: 2, layers: 1}"}
SMALL |= {"map_attention": SMALL["lapformer"], "conv_lstm": "{}"}
SETTINGS = ["backbone=micro", "size=[16,24]", "dtype=float32", "optimizer.backbone_scale=1", "batch=2"]
SMALL |= {
    "bilstm": "{width: 8}",
    "mstcn": "{width: 8, layers: 2, stages: 2, dropout: 0.1}",
    "tecno": "{width: 8, layers: 2}",
}
SMALL["asformer"] = "{width: 8, layers: 2, decoders: 1, dropout: 0.1}"
SMALL["last"] = "{width: 8, heads: 2, layers: 1, phase_band: 20, tool_band: 3}"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A trained frame-wise run, whose backbone all other runs use."""
    folder = tmp_path_factory.mktemp("frames")
    train_main(["--quiet", *settings(folder, backbone="micro", epochs=1)])
    return folder


def words(base, folder, name, **more):
    temporal = SYSTEMS[name].temporal or "lstm"
    frozen = {"frozen": base / "run", "temporal_options": SMALL[temporal], "batch": 2, "epochs": 6}
    return settings(base, **({"system": name, "run": folder / "run", "backbone": "micro"} | frozen | more))


def losses(folder, name="train/loss"):
    return [line[name] for line in read_metrics(folder) if name in line]


#: One system per combination of parts; the others differ in their default backbone only, which only slow tests train.
#: Faster R-CNN learns from boxes and has its own tests.
MADE = {
    (repr(spec.heads), spec.temporal, repr(spec.penalties), spec.maps): name
    for name, spec in reversed(SYSTEMS.items())
    if not spec.boxes
}


@pytest.mark.parametrize("name", MADE.values())
def test_every_system_trains(name):
    """A few updates on one batch, of frames or of sequences, reduce the loss."""
    cache, spec = frames(), SYSTEMS[name]
    config = read_config(None, [*SETTINGS, f"system={name}", f"temporal_options={SMALL.get(spec.temporal, '{}')}"])
    batch = {"phases": cache.table.phases, "tools": cache.table.tools}
    features = cache.images.reshape(40, 4, 5, 4, 7, 3).mean((2, 4)).reshape(40, 48) / 100 - 1
    if name == "toolnet":
        # The path from images to features is the same for all systems, and slow to compile.
        batch["images"] = cache.images
    else:
        batch["features"] = features.astype(np.float32)
    if spec.temporal:
        batch = {key: x.reshape(2, 20, *x.shape[1:]) for key, x in batch.items()} | {"mask": np.ones((2, 20), bool)}
    read = {"width": 48, "cells": (4, 4, 3) if spec.maps else None} if "features" in batch else {}
    system = make_system(config, 3, 2, **read)
    optimizer = make_optimizer(config.optimizer, lambda step: 0.003)
    program = make_program(system, optimizer, lambda step: 0.003, config, None, data_mesh())
    state = init_state(system, optimizer)
    curve = []
    for _ in range(12):
        state, metrics = program.train(state, batch)
        curve.append(float(metrics["loss"]))
    assert set(metrics) == {"loss", "gradient", "learning_rate"} | {
        f"loss/{part}"
        for part in (*spec.heads, *spec.penalties, *(["smoothness"] if spec.temporal in ("mstcn", "asformer") else []))
    }
    assert np.isfinite(curve).all() and np.mean(curve[-4:]) < np.mean(curve[:4])


def test_the_papers_table_is_complete():
    """There are six families, each frame by frame, with a recurrent memory and with attention: which, is a matter."""
    attention = {"toolnet": "lapformer", "phasenet": "lapformer", "endonet": "last", "swinnet": "last"}
    attention |= {"fcn": "map_attention", "frcnn": "lapformer"}
    for family, kind in attention.items():
        plain, memory, attending = (SYSTEMS[family + end] for end in ("", "_l", "_a"))
        assert plain.temporal is None and memory.frames == attending.frames == family
        assert memory.temporal == ("conv_lstm" if family == "fcn" else "lstm")
        assert attending.temporal == kind
        assert plain.heads.keys() == memory.heads.keys() == attending.heads.keys()
    # EndoNet_A is LAST on a ResNet50: its attention sees time for tools too.
    assert SYSTEMS["endonet_a"].backbone == "resnet50" and SYSTEMS["endonet_a"].penalties == {"vae": 100.0}
    assert all(head.temporal and not head.also for head in SYSTEMS["endonet_a"].heads.values())
    # MTRCNet's tools are read from the frame alone, by one layer, and its LSTM is rectified in MTRCNet-CL only.
    assert SYSTEMS["endonet_l"].heads["tools"] == HeadSpec(temporal=False)
    assert SYSTEMS["endonet_cl"].heads["tools"] == HeadSpec(temporal=False, hidden=512)
    rectified = {
        name: nnx.eval_shape(lambda n=name: build_system(n, rngs=nnx.Rngs(0))).temporal.relu
        for name in ("endonet_l", "endonet_cl", "phasenet_l", "toolnet_l")
    }
    assert rectified == {"endonet_l": False, "endonet_cl": True, "phasenet_l": False, "toolnet_l": False}
    # EndoNet and MTRCNet sum the losses of tools, LAST averages them.
    summed = {name for name, spec in SYSTEMS.items() if spec.tool_reduction == "sum"}
    rivals = {"bilstm", "mstcn", "tecno", "asformer"}
    assert summed == {"toolnet", "endonet", "endonet_l", "endonet_cl"} | rivals


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A function that returns the folder of a family's frame-wise run, trained on first use."""
    folder = tmp_path_factory.mktemp("plain")
    write_cache(boxed_frames(), folder / "cache")
    backbones = {"fcn": "gridded", "frcnn": "divided"}
    few = {"detection.candidates": 40, "detection.proposals": 12, "detection.anchors": 24, "detection.regions": 12}

    def train(family):
        run = folder / family
        if not run.exists():
            more = {"system": family, "backbone": backbones.get(family, "micro"), "run": run, "epochs": 1} | few
            train_main(["--quiet", *settings(folder, **more)])
        return run

    return train


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_every_named_system_from_training_to_prediction(plain, tmp_path, name):
    spec = SYSTEMS[name]
    run = plain(spec.frames or name)
    cache = run.parent / "cache"
    if spec.frames is not None:
        more = {"system": name, "frozen": run, "batch": 2, "epochs": 2, "temporal_options": SMALL[spec.temporal]}
        run = tmp_path / "run"
        train_main(["--quiet", *settings(cache.parent, **more, run=run)])
        assert np.isfinite(losses(run)).all()
    outputs = []
    for batch in ("7", "40"):
        out = tmp_path / f"{batch}.npz"
        predict_main([str(run), str(cache), "--out", str(out), "--batch", batch])
        with np.load(out) as predicted:
            outputs.append({f"{track}_{v}": predicted[f"{track}_{v}"] for track in spec.heads for v in ("01", "02")})
    for key, value in outputs[0].items():
        assert value.shape == (20, 3 if key.startswith("phases") else 2) and (value >= 0).all() and (value <= 1).all()
        np.testing.assert_allclose(value, outputs[1][key], atol=1e-5)


@pytest.mark.slow
def test_fcn_l_trains_with_its_backbone(tmp_path):
    more = {"system": "fcn_l", "backbone": "gridded", "clip": 4, "batch": 2, "epochs": 4}
    train_main(["--quiet", *settings(tmp_path, **more, **{"optimizer.learning_rate": 0.02})])
    curve = losses(tmp_path / "run")
    assert len(curve) == 20 and np.mean(curve[-5:]) < np.mean(curve[:5])
    predict_main([str(tmp_path / "run"), str(tmp_path / "cache"), "--out", str(tmp_path / "out.npz")])


def test_a_run_on_a_frozen_backbone_needs_no_other_folder(base, tmp_path):
    # The remains of a failed attempt are not mistaken for the frozen run.
    (tmp_path / "run" / "frozen").mkdir(parents=True)
    (tmp_path / "run" / "frozen" / "classes.json").write_text("{}")
    train_main(["--quiet", *words(base, tmp_path, "toolnet_l")])
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    out = tmp_path / "out.npz"
    predict_main([str(tmp_path / "elsewhere"), str(base / "cache"), "--out", str(out), "--batch", "16"])
    recognizer = Recognizer(tmp_path / "elsewhere")
    want = recognizer.decide(recognizer.features(frames().images[20:]))["tools"]
    with np.load(out) as predicted:
        np.testing.assert_allclose(predicted["tools_02"], want, atol=1e-5)


def test_cached_features_belong_to_their_images(base, tmp_path):
    """Two sources with equal first and last images, as videos that begin and end in black, are distinguished."""
    source = read_cache(base / "cache")
    images = np.array(source.images)
    images[5:35] = 255 - images[5:35]
    run = shutil.copytree(base / "run", tmp_path / "run", ignore=shutil.ignore_patterns("features"))
    first, second = (cached_features(run, x) for x in (source, dataclasses.replace(source, images=images)))
    np.testing.assert_array_equal(first[:5], second[:5])
    assert (first[5:35] != second[5:35]).any(1).all()
    recognizer = Recognizer(run)
    np.testing.assert_allclose(second, recognizer.features(images), rtol=1e-3, atol=1e-6)


def test_features_are_kept_only_where_a_later_stage_reads_them(base, tmp_path, capsys):
    """A system of single frames predicts from images; features of others are in half precision, and announced."""
    run = shutil.copytree(base / "run", tmp_path / "run", ignore=shutil.ignore_patterns("features"))
    source = read_cache(base / "cache")
    predicted = predict_cached(run, source, ("val", "train"), ["tools"])
    assert not (run / "features").exists() and "GB" not in capsys.readouterr().err
    np.testing.assert_allclose(
        predicted["video02"]["tools"], Recognizer(run)(source.images[20:])["tools"], rtol=1e-5, atol=1e-6
    )
    kept = cached_features(run, source)
    assert kept.dtype == np.float16 and "writing features of 40 frames, 6.4e-07 GB" in capsys.readouterr().err


def test_resuming_on_a_frozen_backbone_is_bit_equal(base, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train_main(["--quiet", *words(base, tmp_path, "phasenet_l", run=whole)])
    train_main(["--quiet", *words(base, tmp_path, "phasenet_l", run=parts), "stop_after=3"])
    train_main(["--quiet", "--resume", str(parts)])
    assert read_metrics(whole) == read_metrics(parts) and len(losses(whole)) == 6
    assert len(list((base / "run" / "features").glob("*.npy"))) == 1


def test_a_backbone_trains_with_its_lstm(base, tmp_path):
    more = {"frozen": "null", "clip": 4, "epochs": 2, "optimizer.learning_rate": 0.02}
    train_main(["--quiet", *words(base, tmp_path, "endonet_l", **more)])
    curve = losses(tmp_path / "run")
    # 40 frames per epoch, in clips of 4, 2 per update.
    assert len(curve) == 10 and np.mean(curve[5:]) < np.mean(curve[:5])
    before, after = (Recognizer(base / "run"), Recognizer(tmp_path / "run"))
    images = frames().images[:2]
    assert np.abs(before.features(images) - after.features(images)).max() > 1e-3


def test_settings_that_do_not_go_together(base, tmp_path):
    for more, message in (
        ({"frozen": "null"}, "set frozen"),
        ({"system": "endonet", "frozen": "null", "clip": 2, "temporal_options": "{}"}, "decides each frame alone"),
        ({"frozen": "null", "clip": 99}, "no video has the 99 frames"),
        ({"system": "fcn_l"}, "set frozen to a run of fcn"),
    ):
        with pytest.raises(SystemExit, match=message):
            train_main(["--quiet", *words(base, tmp_path, "toolnet_l", **more)])


def test_sequences_have_the_labels_of_their_part_only(base):
    table = frames().table
    sequences = Sequences.of(table, "val", lambda rows: rows[:, None].astype(np.float32), step=16)
    assert sequences.rows.shape == (2, 32)
    batch = sequences.batch(np.array([1, -1]))
    assert batch["mask"].sum() == 20 and not batch["mask"][1].any()
    np.testing.assert_array_equal(batch["features"][0, :20, 0], np.arange(20, 40))
    val = table.parts[20:] == "val"
    np.testing.assert_array_equal(batch["phases"][0, :20], np.where(val, table.phases[20:], -1))
    assert (batch["phases"][0, 20:] == -1).all() and (batch["tools"][1] == -1).all()


def test_weights_travel_with_labels(tmp_path):
    cache = frames()
    rng = np.random.default_rng(0)
    weighted = dataclasses.replace(
        cache.table,
        phase_weights=rng.random(40).astype(np.float32),
        tool_weights=rng.random((40, 2)).astype(np.float32),
    )
    write_cache(dataclasses.replace(cache, table=weighted), tmp_path / "cache")
    table = read_cache(tmp_path / "cache").table
    rows = np.array([[3, 5], [7, -1]])
    labels = labels_of(table, rows, None)
    np.testing.assert_array_equal(labels["tool_weights"], weighted.tool_weights[rows])
    assert labels["phases"][1, 1] == -1
    assert read_cache_without_weights(tmp_path) is None


def read_cache_without_weights(folder):
    write_cache(frames(), folder / "plain")
    return read_cache(folder / "plain").table.phase_weights


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.npz"
    params = hmmjax.init_params(3, 2, emissions="probability")
    save_params(path, params, phase_names=("Red", "Green", "Blue"), tool_names=("Lamp", "None"), fps=1.0)
    return path


def test_the_hmm_loss_is_the_conditional_likelihood_of_the_labels(model_file):
    rng = np.random.default_rng(0)
    logits = {"phases": rng.normal(size=(2, 6, 3)), "tools": rng.normal(size=(2, 6, 2))}
    logits = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), logits)
    labels = {"phases": rng.integers(0, 3, (2, 6)), "tools": rng.integers(0, 2, (2, 6, 2))}
    mask = np.ones((2, 6), bool)
    mask[1, 4:] = False
    loss = HMMLoss(model_file)
    obs = hmmjax.Observations(jax.nn.softmax(logits["phases"]), jax.nn.sigmoid(logits["tools"]))
    joint = hmmjax.log_likelihood(loss.params, obs, mask, hmmjax.Labels(**labels))
    free = hmmjax.log_likelihood(loss.params, obs, mask)
    value, grads = jax.jit(jax.value_and_grad(lambda logits: loss(logits, labels, mask)))(logits)
    np.testing.assert_allclose(value, np.sum(free - joint) / 10, rtol=1e-4)
    # A small step along the gradient reduces the loss as the gradient predicts.
    step = jax.tree.map(lambda x, g: x - 0.01 * g, logits, grads)
    slope = sum(float((g**2).sum()) for g in grads.values())
    np.testing.assert_allclose(value - loss(step, labels, mask), 0.01 * slope, rtol=0.05)
    unlabeled = {"phases": np.full((2, 6), -1), "tools": np.full((2, 6, 2), -1)}
    np.testing.assert_allclose(loss(logits, unlabeled, mask), 0, atol=1e-6)


def test_training_through_the_hmm(base, tmp_path, model_file):
    more = {"loss.hmm": 1.0, "loss.phases": 0, "loss.tools": 0, "loss.hmm_model": model_file, "epochs": 4}
    train_main(["--quiet", *words(base, tmp_path, "swinnet_l", **more)])
    curve = losses(tmp_path / "run", "train/loss/hmm")
    assert curve[-1] < curve[0]
    confusion = tmp_path / "confusion.npz"
    save_params(confusion, hmmjax.init_params(3, 2, emissions="confusion"))
    with pytest.raises(ValueError, match="no gradient"):
        HMMLoss(confusion)

"""Faster R-CNN and FCN: losses without boxes, best detections, causality, and complete training runs."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import dataclasses

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn", "scipy"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

import jax
import jax.numpy as jnp
from flax import nnx
from tiny import boxed_frames, frames, settings

from models.backbones.maps import MapHead
from models.backbones.resnet import ResNet
from models.data.cache import load_images, open_source, write_cache
from models.data.frames import pack, read_packed
from models.data.simsurg import simulated_frames
from models.detect import Locator, box_scores
from models.detect import main as detect_main
from models.detection.faster_rcnn import build_faster_rcnn, log_odds
from models.predict import main as predict_main
from models.settings import Config, Detection, read_config
from models.systems import build_system, make_system
from models.temporal import ConvLSTM
from models.train import main as train_main
from models.training.recognizer import Recognizer
from models.training.run import read_metrics

pytestmark = pytest.mark.thorough
SMALL = Detection(
    sizes=(0.4, 0.8), ratios=(1.0, 2.0), width=16, candidates=40, proposals=12, anchors=24, regions=12, bins=4
)


@pytest.fixture(scope="module")
def detector():
    """Return a small Faster R-CNN for three tools, and images with two boxes, one (at the border) and none."""
    model = build_faster_rcnn(backbone="divided", tools=3, config=SMALL, rngs=nnx.Rngs(0))
    images = np.random.default_rng(0).integers(0, 256, (3, 26, 38, 3)).astype(np.uint8)
    boxes = np.zeros((3, 2, 4), np.float32)
    boxes[0] = [[0.1, 0.2, 0.5, 0.9], [0.4, 0.0, 0.9, 0.6]]
    boxes[1, 0] = [0.7, 0.6, 1.0, 1.0]
    tools = np.array([[0, 2], [1, -1], [-1, -1]], np.int32)
    return model, images, boxes, tools


@pytest.fixture(scope="module")
def gradient(detector):
    """Return the jitted loss and gradient: (boxes, tools) to (terms, squared norm of the gradient by module)."""
    model, images, _, _ = detector
    model.train()
    graph, params, rest = nnx.split(model, nnx.Param, ...)

    @jax.jit
    def run(params, rest, boxes, tools):
        def loss(params):
            return nnx.merge(graph, params, rest, copy=True).loss(images, boxes, tools, jax.random.key(3))

        (_, parts), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return parts, {name: sum((x**2).sum() for x in jax.tree.leaves(part)) for name, part in grads.items()}

    return lambda boxes, tools: run(params, rest, boxes, tools)


def test_a_batch_with_boxes_has_gradients_everywhere(detector, gradient):
    _, _, boxes, tools = detector
    parts, norms = gradient(boxes, tools)
    assert set(parts) == {"objectness", "proposals", "classes", "boxes"}
    assert all(0 < float(x) < 10 for x in parts.values())
    assert set(norms) == {"backbone", "look", "objectness", "shift", "classify", "refine"}
    assert all(0 < float(x) < np.inf for x in norms.values())


def test_a_batch_without_any_box(detector, gradient):
    _, _, boxes, tools = detector
    for there in (boxes, np.zeros_like(boxes), np.full_like(boxes, np.nan)):
        parts, norms = gradient(there, np.full_like(tools, -1))
        assert float(parts["proposals"]) == float(parts["boxes"]) == 0
        assert float(parts["objectness"]) > 0 and float(parts["classes"]) > 0
        assert all(np.isfinite(float(x)) for x in norms.values())
        assert float(norms["shift"]) == float(norms["refine"]) == 0


def test_padding_is_ignored(detector, gradient):
    _, _, boxes, tools = detector
    junk = np.where(tools[..., None] < 0, np.float32([0.2, 0.2, 0.8, 0.8]), boxes)
    for a, b in zip(jax.tree.leaves(gradient(boxes, tools)), jax.tree.leaves(gradient(junk, tools)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def outputs(detector):
    """Return detections and frame scores of the images in one batch, and of each alone."""
    model, images, _, _ = detector
    model.eval()
    graph, state = nnx.split(model)

    @jax.jit
    def run(state, images):
        model = nnx.merge(graph, state)
        model.config = dataclasses.replace(SMALL, min_score=0.0, detections=36)
        return model.detect(images), model(images)["tools"]

    return run(state, images), [run(state, np.stack([image] * 3)) for image in images]


def test_a_frames_score_is_its_best_detection(outputs):
    (found, logits), _ = outputs
    chance = np.asarray(jax.nn.sigmoid(logits))
    for frame in range(3):
        for tool in range(3):
            mine = np.asarray(found.tools[frame]) == tool
            np.testing.assert_allclose(np.asarray(found.scores[frame])[mine].max(), chance[frame, tool], rtol=1e-5)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    real = np.asarray(found.tools) >= 0
    boxes = np.asarray(found.boxes)[real]
    assert (boxes >= 0).all() and (boxes <= 1).all() and (boxes[:, 2:] > boxes[:, :2]).all()


def test_outputs_do_not_depend_on_the_batch(outputs):
    together, alone = outputs
    for row, other in enumerate(alone):
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(other), strict=True):
            np.testing.assert_array_equal(np.asarray(a)[row], np.asarray(b)[0])


def test_log_odds():
    logits = np.random.default_rng(1).normal(size=(5, 4)) * 5
    chance = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(jax.nn.sigmoid(log_odds(jnp.asarray(logits, jnp.float32))), chance[:, 1:], rtol=1e-4)


def test_trunk_and_top_equal_the_backbone():
    backbone = ResNet((1, 0, 0, 1), False, rngs=nnx.Rngs(0))
    backbone.eval()
    images = jnp.asarray(np.random.default_rng(3).normal(size=(1, 9, 12, 3)), jnp.float32)
    maps = backbone.trunk(images)
    assert backbone.stride == 4 and maps.shape == (1, 3, 3, 64)
    np.testing.assert_allclose(backbone.top(maps), backbone(images).pooled, atol=1e-6)


@pytest.mark.parametrize(("backbone", "bins", "channels"), [("resnet50", 14, 1024), ("vgg16", 7, 512)])
def test_the_published_networks(backbone, bins, channels):
    model = nnx.eval_shape(lambda: build_faster_rcnn(backbone=backbone, rngs=nnx.Rngs(0)))
    assert model.backbone.bins == bins and model.look.kernel.shape == (3, 3, channels, 512)
    assert model.classify.kernel.shape == (model.backbone.width, 8)
    assert model.refine.kernel.shape == (model.backbone.width, 28)
    model.eval()
    found = nnx.eval_shape(lambda m: m.detect(jnp.zeros((2, 200, 300, 3), jnp.uint8)), model)
    assert found.boxes.shape == (2, 20, 4)
    maps = nnx.eval_shape(lambda m: m.backbone.trunk(jnp.zeros((2, 200, 300, 3))), model)
    assert maps.shape == (2, 13 if backbone == "resnet50" else 12, 19 if backbone == "resnet50" else 18, channels)


def test_parts_that_do_not_fit_are_rejected():
    with pytest.raises(ValueError, match="cannot be divided"):
        nnx.eval_shape(lambda: build_faster_rcnn(backbone="swin_t", rngs=nnx.Rngs(0)))
    with pytest.raises(ValueError, match="choose a ResNet"):
        build_system("fcn", backbone="swin_t", rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="set frozen to a run of frcnn"):
        build_system("frcnn_l", rngs=nnx.Rngs(0))
    for temporal, read in (("lstm", {}), (None, {"width": 8})):
        with pytest.raises(ValueError, match="choose frcnn_l or frcnn_a"):
            make_system(Config(system="frcnn", temporal=temporal), 3, 2, **read)
    with pytest.raises(ValueError, match="set frozen to a run of fcn"):
        make_system(Config(system="fcn_l"), 3, 2, width=48)
    with pytest.raises(ValueError, match="use a system of maps"):
        make_system(Config(system="toolnet_l", temporal="conv_lstm"), 3, 2, width=48)
    with pytest.raises(ValueError, match=r"overlap is 0\.0: give a number"):
        read_config(None, ["detection.overlap=0"])
    assert read_config(None, ["detection.sizes=[0.5, 1]"]).detection.sizes == (0.5, 1.0)


def test_fcn_is_the_published_network():
    model = nnx.eval_shape(lambda: build_system("fcn", size=(480, 854), rngs=nnx.Rngs(0)))
    maps = nnx.eval_shape(lambda m: m.maps(m.outputs(m.features(jnp.zeros((1, 480, 854, 3), jnp.uint8)))), model)
    assert maps.shape == (1, 60, 107, 7)
    recurrent = nnx.eval_shape(lambda: build_system("fcn_l", size=(480, 854), rngs=nnx.Rngs(0)))
    assert recurrent.temporal.of_state.kernel.shape == (3, 3, 512, 4 * 512)
    # Any temporal model may follow, and the head then reads its output.
    other = nnx.eval_shape(lambda: build_system("fcn", backbone="gridded", temporal="lstm", rngs=nnx.Rngs(0)))
    assert other.temporal.enter.kernel.shape == (96, 2048) and other.heads["tools"].kernel.shape == (512, 7)


def test_maps_are_pooled():
    head = MapHead((2, 3, 4), 2, 0.6, rngs=nnx.Rngs(0))
    features = np.random.default_rng(4).normal(size=(5, 2, 3, 4)).astype(np.float32)
    maps = features @ np.asarray(head.localize.kernel[...])
    np.testing.assert_allclose(head.maps(features.reshape(5, -1)), maps, atol=1e-6)
    cells = maps.reshape(5, 6, 2)
    np.testing.assert_allclose(head(features.reshape(5, -1)), cells.max(1) + 0.6 * cells.min(1), atol=1e-6)


@pytest.mark.parametrize("normalize", [True, False])
def test_conv_lstm_equals_its_equations(normalize):
    """Also with gates and cell of unit length, and an output normalized over frames and cells, as published."""
    model = ConvLSTM(60, cells=(3, 4, 5), normalize=normalize, rngs=nnx.Rngs(0))
    maps = np.random.default_rng(2).normal(size=(7, 3, 4, 5)).astype(np.float32)
    mask = np.arange(7)[None] < 6  # the last frame is padding
    output = np.asarray(model(maps.reshape(1, 7, 60), mask))[0, :6].reshape(6, 3, 4, 5)
    into, kernel = (np.asarray(layer.kernel[...], float) for layer in (model.of_input, model.of_state))

    def convolve(x, kernel):
        padded = np.pad(x.astype(float), ((1, 1), (1, 1), (0, 0)))
        return sum(padded[i : i + 3, j : j + 4] @ kernel[i, j] for i in range(3) for j in range(3))

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def scale(x):
        return x / np.linalg.norm(x) if normalize else x

    hidden, cell, want = np.zeros((3, 4, 5)), np.zeros((3, 4, 5)), []
    for t in range(6):
        gates = convolve(maps[t], into) + convolve(hidden, kernel)
        write, forget, candidate, show = (scale(x) for x in np.split(gates, 4, -1))
        cell = scale(sigmoid(forget + 1) * cell + sigmoid(write) * np.tanh(candidate))
        hidden = sigmoid(show) * np.tanh(cell)
        want.append(hidden)
    want = np.stack(want)
    if normalize:
        mean, var = want.mean((0, 1, 2)), want.var((0, 1, 2))
        np.testing.assert_allclose(model.norm.mean[...], 0.1 * mean, atol=1e-6)
        want = (want - mean) / np.sqrt(var + 1e-5)
    np.testing.assert_allclose(output, maps[:6] + want, atol=2e-4)


def detection_settings(folder, **more):
    write_cache(boxed_frames(), folder / "cache")
    sizes = {f"detection.{name}": value for name, value in dataclasses.asdict(SMALL).items()}
    words = {name: list(value) if isinstance(value, tuple) else value for name, value in sizes.items()}
    learn = {"optimizer.learning_rate": 0.003, "augment.scale": 0.9, "augment.aspect": 1.0}
    return settings(folder, **words, **learn, **more)


def best_of(scores, table, rows):
    """Return the first tool's predicted probabilities at some rows."""
    with np.load(scores) as predicted:
        found = {
            (f"video{v}", frame): value
            for v in ("01", "02")
            for frame, value in zip(predicted[f"frames_{v}"], predicted[f"tools_{v}"][:, 0], strict=True)
        }
    return [found[table.videos[row], table.frames[row]] for row in rows]


def test_faster_rcnn_learns_and_finds(tmp_path, capsys):
    words = detection_settings(tmp_path, system="frcnn", backbone="divided", epochs=8, eval_every=8)
    train_main(["--quiet", *words])
    lines = read_metrics(tmp_path / "run")
    losses = [line["train/loss"] for line in lines if "train/loss" in line]
    assert np.mean(losses[-3:]) < 0.6 * losses[0]
    assert {"train/loss/objectness", "train/loss/boxes"} <= set(lines[0]) and "val/AP/Lamp" in lines[-1]
    run, cache = str(tmp_path / "run"), str(tmp_path / "cache")
    out = tmp_path / "boxes.npz"
    detect_main([run, cache, "--out", str(out), "--batch", "16", "--part", "val"])
    assert "mean box AP at IoU 0.5" in capsys.readouterr().out
    table = open_source(cache).table
    with np.load(out) as found:
        arrays = dict(found)
    assert arrays["boxes_01"].shape[1:] == (20, 4) and arrays["box_tools_01"].dtype == np.int32
    rows = np.flatnonzero(table.parts == "val")
    assert (arrays["frames_01"] == table.frames[rows[table.videos[rows] == "video01"]]).all()
    scores = tmp_path / "scores.npz"
    predict_main([run, cache, "--out", str(scores), "--batch", "16", "--part", "val"])
    with np.load(scores) as predicted:
        # Boxes of low probability are not in the output; the score of a frame has no threshold.
        best = np.where(arrays["box_tools_02"] == 0, arrays["box_scores_02"], 0).max(1)
        shown = best > 0
        np.testing.assert_allclose(predicted["tools_02"][shown, 0], best[shown], rtol=1e-5)
        assert shown.any() and (predicted["tools_02"][~shown, 0] < 0.01).all()
    # The features for temporal models contain the best detections of a frame.
    features = Recognizer(run).features(open_source(cache).images[rows])
    assert features.shape == (len(rows), 5 * 2 + 64)
    np.testing.assert_allclose(1 / (1 + np.exp(-features[:, 0])), best_of(scores, table, rows), rtol=1e-3)
    lamp = features[:, 2:6]
    assert (lamp[:, 2:] >= lamp[:, :2]).all() and (lamp >= 0).all() and (lamp <= 1).all()
    more = {"system": "frcnn_l", "frozen": run, "temporal_options": "{width: 8}", "batch": 2, "epochs": 2}
    train_main(["--quiet", *settings(tmp_path, **more, run=tmp_path / "lstm")])
    assert all(np.isfinite(line["train/loss"]) for line in read_metrics(tmp_path / "lstm") if "train/loss" in line)
    # A frame without detections is an error.
    with pytest.raises(ValueError, match="missing from the detections"):
        box_scores(arrays, table)


def test_fcn_learns_from_frames_alone(tmp_path, capsys):
    words = settings(tmp_path, system="fcn", backbone="gridded", epochs=6, **{"optimizer.learning_rate": 0.02})
    train_main(["--quiet", *words])
    losses = [line["train/loss"] for line in read_metrics(tmp_path / "run") if "train/loss" in line]
    assert np.isfinite(losses).all() and np.mean(losses[-3:]) < np.mean(losses[:3])
    out = tmp_path / "boxes.npz"
    detect_main([str(tmp_path / "run"), str(tmp_path / "cache"), "--out", str(out), "--batch", "16"])
    assert "box AP" not in capsys.readouterr().out  # this cache has no boxes
    with np.load(out) as found:
        assert found["boxes_02"].shape == (20, 20, 4) and not any("maps" in name for name in found)
        judged = box_scores(found, boxed_frames().table)
    assert judged.boxes[0] > 0 and 0 <= judged.all_points[0] <= 1 and np.isnan(judged.all_points[1])
    with pytest.raises(SystemExit, match="frames have no boxes"):
        train_main(["--quiet", *settings(tmp_path, system="frcnn", backbone="divided", run=tmp_path / "other")])
    with pytest.raises(SystemExit, match="does not localize tools"):
        (tmp_path / "else").mkdir()
        (tmp_path / "else" / "config.yaml").write_text("{system: fcn_l, temporal: lstm}\n")
        detect_main([str(tmp_path / "else"), "x", "--out", str(tmp_path / "y.npz")])


def test_fcn_l_remembers_a_video(tmp_path):
    train_main(["--quiet", *settings(tmp_path, system="fcn", backbone="gridded", epochs=1)])
    more = {"frozen": tmp_path / "run", "batch": 2, "epochs": 2, "run": tmp_path / "l", "optimizer.learning_rate": 0.05}
    train_main(["--quiet", *settings(tmp_path, system="fcn_l", **more)])
    recognizer, images = Recognizer(tmp_path / "l"), frames().images[:20]
    assert recognizer.cells == (4, 4, 6)

    def stream(images, batch, network=recognizer):
        return network.predict(enumerate(images), batch)

    # Streaming in batches of any size gives the same result as a whole video.
    whole = recognizer.decide(recognizer.features(images))["tools"]
    for batch in (3, 20):
        np.testing.assert_allclose(stream(images, batch)["tools"], whole, atol=1e-5)
    a, b = stream(images, 3)["tools"], stream(np.concatenate([images[:7], 255 - images[7:]]), 3)["tools"]
    np.testing.assert_array_equal(a[:7], b[:7])
    assert np.abs(a[7:] - b[7:]).max(1).min() > 1e-6
    # A frame depends on the past of its own video, and not on another video.
    late = stream(images[7:], 3)["tools"]
    assert np.abs(late[0] - a[7]).max() > 1e-6
    np.testing.assert_array_equal(stream(images, 3)["tools"], a)
    # The pooled maps are the output, and boxes are computed from the maps.
    found = stream(images, 3, Locator(tmp_path / "l"))
    assert found["boxes"].shape == (20, 20, 4) and found["maps"].shape == (20, 4, 4, 2)
    cells = found["maps"].reshape(20, 16, 2)
    np.testing.assert_allclose(jax.nn.sigmoid(cells.max(1) + 0.6 * cells.min(1)), a, atol=1e-5)


def test_boxes_travel_with_their_frames(tmp_path):
    source = boxed_frames()
    packed = pack(source, [3, 5, 8])
    packed.save(tmp_path / "packed.npz")
    table = read_packed(tmp_path / "packed.npz").table
    np.testing.assert_array_equal(table.boxes, source.table.boxes[[3, 5, 8]])
    np.testing.assert_array_equal(table.box_tools, source.table.box_tools[[3, 5, 8]])
    without = pack(frames(), [0])
    without.save(tmp_path / "without.npz")
    assert read_packed(tmp_path / "without.npz").table.boxes is None


def test_simulated_frames_have_boxes():
    source = simulated_frames({"train": 1}, 3, minutes=1.0, size=(48, 64))
    table = source.table
    assert table.boxes.shape == (*table.box_tools.shape, 4) and len(table.boxes) == len(source)
    real = table.box_tools >= 0
    boxes = table.boxes[real]
    assert (boxes[:, 2:] > boxes[:, :2]).all() and (boxes >= 0).all() and (boxes <= 1).all()
    present = np.zeros_like(table.tools)
    np.put_along_axis(present, np.maximum(table.box_tools, 0), 1, 1)
    shown = np.array([np.isin(np.arange(7), tools[there]) for tools, there in zip(table.box_tools, real, strict=True)])
    assert (table.tools[shown] == 1).all() and shown.sum() > 0.8 * table.tools.sum()
    assert load_images(source).table.boxes is table.boxes

"""Test training runs from the command line, resumed bit for bit, and on two devices; settings, losses, augmentation."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

import jax
import jax.numpy as jnp
from flax import nnx
from tiny import frames, settings

import hmmjax.io
from models.predict import main as predict_main
from models.settings import Augment, Config, Loss, Optimizer, read_config, write_config
from models.train import main as train_main
from models.training.augment import Span, interpolation, resample, resize
from models.training.augment import augment as augment_eagerly
from models.training.checkpoint import Checkpoints
from models.training.losses import Criterion, class_weights, phase_loss, tool_loss
from models.training.run import commit, read_metrics
from models.training.step import make_optimizer, schedule


def checkpoint(run, which="last"):
    """Return the step and the arrays, by path, of a saved checkpoint."""
    import orbax.checkpoint as ocp

    manager = ocp.CheckpointManager(Path(run).resolve() / "checkpoints" / which)
    step = manager.latest_step()
    items = {name: ocp.args.StandardRestore() for name in ("model", "optimizer")}
    kept = manager.restore(step, args=ocp.args.Composite(**items))
    manager.close()
    return step, {**kept["model"], **kept["optimizer"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A complete run of 3 epochs of 3 updates, and the words of its command line."""
    folder = tmp_path_factory.mktemp("training")
    words = settings(folder)
    train_main(["--quiet", *words])
    return folder, words


@pytest.mark.thorough
def test_a_run_writes_all_files(run, capsys):
    folder, words = run
    names = {path.name for path in (folder / "run").iterdir()}
    assert names == {"checkpoints", "classes.json", "config.yaml", "environment.json", "metrics.jsonl", "parts.json"}
    lines = read_metrics(folder / "run")
    train = [line["train/loss"] for line in lines if "train/loss" in line]
    assert len(train) == 9 and train[-1] < train[0]
    assert [line["step"] for line in lines if "val/score" in line] == [3, 6, 9]
    assert {"val/mAP", "val/AP/Lamp", "val/accuracy", "val/loss"} <= set(lines[-1])
    environment = json.loads((folder / "run" / "environment.json").read_text())
    assert environment["versions"]["jax"] == jax.__version__ and environment["devices"]
    with pytest.raises(SystemExit, match="already holds a run"):
        train_main(["--quiet", *words])


@pytest.mark.thorough
@pytest.mark.parametrize("stop", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_resuming_is_bit_equal(run, tmp_path, stop):
    folder, words = run
    words = [*words, f"run={tmp_path / 'run'}"]
    train_main(["--quiet", *words, f"stop_after={stop}", "save_every=1"])
    assert checkpoint(tmp_path / "run")[0] == stop
    train_main(["--quiet", "--resume", str(tmp_path / "run")])
    for which in ("last", "best"):
        (step, whole), (again, parts) = checkpoint(folder / "run", which), checkpoint(tmp_path / "run", which)
        assert step == again and whole.keys() == parts.keys()
        for name in whole:
            np.testing.assert_array_equal(whole[name], parts[name], err_msg=name)
    assert read_metrics(folder / "run") == read_metrics(tmp_path / "run")


def test_predictions_are_read_by_hmmjax(run, tmp_path):
    folder, _ = run
    run_folder = str(folder / "run")
    cache = frames()
    out = tmp_path / "predictions.npz"
    predict_main([run_folder, str(folder / "cache"), "--out", str(out), "--batch", "16"])
    tracks = {(track.video, track.track): track for track in hmmjax.io.read(str(out))}
    assert set(tracks) == {(video, track) for video in ("video01", "video02") for track in ("phases", "tools")}
    phases = tracks["video02", "phases"]
    assert phases.names == ("Red", "Green", "Blue") and phases.fps == 25
    np.testing.assert_array_equal(phases.frames, cache.table.frames[20:])
    np.testing.assert_allclose(phases.values.sum(1), 1, atol=1e-5)
    # Image files give the same predictions as the cache with the same images.
    from PIL import Image

    folder = tmp_path / "video02"
    folder.mkdir()
    for number, image in zip(cache.table.frames[20:], cache.images[20:], strict=True):
        Image.fromarray(image).save(folder / f"{number}.png")
    again = tmp_path / "again.npz"
    words = [run_folder, str(folder), "--out", str(again), "--batch", "16", "--size", "20", "28"]
    with pytest.raises(SystemExit, match="--naming"):
        predict_main(words)
    predict_main([*words, "--naming", "frame"])
    with np.load(out) as a, np.load(again) as b:
        for key in ("phases_02", "tools_02", "frames_02"):
            np.testing.assert_allclose(a[key], b[key], atol=1e-6)
    with pytest.raises(SystemExit, match="exists already"):
        predict_main([*words, "--naming", "frame"])


@pytest.mark.thorough
def test_a_batch_in_parts_is_the_batch(tmp_path):
    """Without randomness and batch statistics, accumulation gives the same losses, gradients and validations."""
    still = {f"augment.{name}": value for name, value in dataclasses.asdict(NOTHING).items()} | {
        "augment.flip": "false"
    }
    curves = []
    for parts in (1, 4):
        train_main(
            ["--quiet", *settings(tmp_path, run=tmp_path / str(parts), backbone="micro", accumulate=parts, **still)]
        )
        lines = read_metrics(tmp_path / str(parts))
        curves.append([[line.get(name, 0) for name in ("train/loss", "train/gradient", "val/loss")] for line in lines])
    np.testing.assert_allclose(*curves, rtol=1e-5)
    assert np.ptp(np.array(curves[0])[:3, 0]) > 1e-4


@pytest.mark.slow
def test_two_devices_train_as_one(tmp_path):
    words = settings(tmp_path, epochs=2, accumulate=2)
    train_main(["--quiet", *words])
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), env.get("PYTHONPATH", "")])
    command = [sys.executable, str(Path(__file__).with_name("tiny.py")), "--quiet", *words, f"run={tmp_path / 'two'}"]
    subprocess.run(command, check=True, env=env)
    assert len(json.loads((tmp_path / "two" / "environment.json").read_text())["devices"]) == 2
    one, two = (
        [line["train/loss"] for line in read_metrics(tmp_path / run) if "train/loss" in line] for run in ("run", "two")
    )
    assert len(one) == 6
    np.testing.assert_allclose(one, two, rtol=1e-4)


@pytest.mark.thorough
def test_event_files(tmp_path):
    pytest.importorskip("tensorboardX")
    train_main(["--quiet", *settings(tmp_path, epochs=1, tensorboard="true", patience=1)])
    (events,) = (tmp_path / "run").glob("events.out.tfevents.*")
    assert b"train/loss" in events.read_bytes()


@pytest.mark.thorough
def test_early_stopping_and_nothing_to_resume(tmp_path):
    # With a learning rate of zero, no validation is better than the first.
    words = settings(tmp_path, epochs=9, patience=2, monitor="loss")
    train_main(["--quiet", *words, "optimizer.learning_rate=0", "optimizer.weight_decay=0", "augment.scale=1"])
    lines = read_metrics(tmp_path / "run")
    assert lines[-1]["step"] < 27
    with pytest.raises(SystemExit):
        train_main(["--quiet", "--resume", str(tmp_path / "nothing")])


def test_config_files_and_settings(tmp_path):
    config = read_config(
        None, ["optimizer.learning_rate=1e-4", "size=[10, 20]", "data.load=[1,2]", "options={remat: true}"]
    )
    assert config.optimizer.learning_rate == 1e-4 and config.size == (10, 20) and config.options == {"remat": True}
    write_config(config, tmp_path / "a.yaml")
    assert read_config(tmp_path / "a.yaml") == config
    (tmp_path / "b.py").write_text("from models.settings import Config\nconfig = Config(seed=3)\n")
    assert read_config(tmp_path / "b.py", ["epochs=1"]) == Config(seed=3, epochs=1)
    (tmp_path / "old.py").write_text("from models.training.config import Config\nconfig = Config(seed=4)\n")
    with pytest.warns(DeprecationWarning, match=r"import from models\.settings"):
        assert read_config(tmp_path / "old.py") == Config(seed=4)
    for words, message in (
        (["optimizer.lerning_rate=1"], "optimizer.learning_rate meant"),
        (["epochs=many"], "epochs cannot be 'many'"),
        (["epochs"], "write key=value"),
        (["dtype=float8"], "bfloat16"),
        (["batch=10", "accumulate=3"], "equal parts"),
        (["data=3"], "settings by name"),
    ):
        with pytest.raises(ValueError, match=message):
            read_config(None, words)


@pytest.mark.parametrize(
    "word",
    [
        *(f"{name}=0" for name in ("epochs", "batch", "eval_batch", "eval_every", "log_every", "clip", "accumulate")),
        *("patience=-1", "save_every=-1", "stop_after=-1", "seed=-1", "seed=4294967296", "size=[0,10]", "std=[1,0,1]"),
        *("mean=[.nan,0,0]", "data.workers=-1", "data.load=[0,1]", "optimizer.learning_rate=.nan", "optimizer.clip=-1"),
        *("optimizer.warmup_epochs=-1", "augment.scale=0", "augment.scale=2", "augment.aspect=0.5", "augment.hue=9"),
        *("augment.brightness=-1", "augment.erase=2", "loss.phases=-1", "loss.smoothing=1", "detection.sizes=[]"),
        *("detection.ratios=[1,-1]", "detection.bins=0", "detection.min_score=7", "detection.overlap=.nan"),
    ],
)
def test_settings_have_bounds(word):
    """Settings that would divide by zero, learn nothing or give NaN are refused by name."""
    with pytest.raises(ValueError, match=rf"^{word.partition('=')[0]} is .*: give "):
        read_config(None, [word])


def test_configurations_that_cannot_be_read(tmp_path):
    """Files and words that are not settings are refused, and settings that would be ignored."""
    for name, text, message in (
        ("bad.yaml", "a: [1", r"bad\.yaml is not valid YAML"),
        ("tab.yaml", "\tx: 1", r"tab\.yaml is not valid YAML"),
        ("none.py", "x = 1", r"none\.py does not set config"),
        ("list.yaml", "- 1", "the configuration takes settings by name"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=message):
            read_config(tmp_path / name, ["epochs=3"])
    for words, message in (
        (["size=[1,"], "not valid YAML"),
        (["optimizer=3", "optimizer.clip=3"], "optimizer takes settings by name"),
        (["data.train.x=1"], "data.train cannot be"),
        (["frozen=runs/a", "clip=4"], "not both"),
    ):
        with pytest.raises(ValueError, match=message):
            read_config(None, words)


def test_recipes_are_read():
    recipes = sorted((Path(__file__).parents[2] / "models" / "recipes").glob("*.yaml"))
    assert recipes
    for recipe in recipes:
        read_config(recipe)


NOTHING = Augment(1.0, 1.0, False, 0.0, 0.0, 0.0, 0.0, 0.0)


augment = jax.jit(augment_eagerly, static_argnums=(2, 3))


@pytest.mark.thorough
def test_augmentation():
    images = np.random.default_rng(0).integers(0, 256, (8, 12, 16, 3)).astype(np.uint8)
    key = jax.random.key(0)
    np.testing.assert_allclose(augment(images, key, NOTHING, (12, 16)), images / 255, atol=1e-5)
    np.testing.assert_allclose(resize(jnp.asarray(images), (12, 16)), images / 255, atol=1e-6)
    mirrored = np.asarray(augment(images, key, dataclasses.replace(NOTHING, flip=True), (12, 16)))
    same = [np.allclose(a, b / 255, atol=1e-5) for a, b in zip(mirrored, images, strict=True)]
    other = [np.allclose(a, b[:, ::-1] / 255, atol=1e-5) for a, b in zip(mirrored, images, strict=True)]
    assert all(np.logical_xor(same, other)) and any(same) and any(other)
    # Hue rotates colors around gray and preserves the luma.
    luma = np.array([0.299, 0.587, 0.114])
    soft = (images // 4 + 96).astype(np.uint8)
    hue = np.asarray(augment(soft, key, dataclasses.replace(NOTHING, hue=0.02), (12, 16)))
    assert np.abs(hue - soft / 255).max() > 0.01
    np.testing.assert_allclose(hue @ luma, soft / 255 @ luma, atol=2e-3)
    erased = np.asarray(augment(images, key, dataclasses.replace(NOTHING, erase=1.0), (12, 16)))
    changed = (np.abs(erased - images / 255) > 1e-3).any(-1).mean((1, 2))
    assert (changed > 0).all() and (changed < 0.5).all()
    everything = augment(images, key, Augment(scale=0.3, erase=0.5), (9, 11))
    assert everything.shape == (8, 9, 11, 3) and everything.min() >= 0 and everything.max() <= 1
    assert np.abs(everything - augment(images, jax.random.key(1), Augment(scale=0.3, erase=0.5), (9, 11))).max() > 0.1


def test_resampling_is_jaxs_resize():
    images = np.random.default_rng(0).random((2, 12, 16, 3)).astype(np.float32)
    whole = Span(jnp.zeros(2), jnp.ones(2), jnp.zeros(2, bool))
    for size in ((6, 9), (20, 40)):
        want = jax.image.resize(images, (2, *size, 3), "linear", antialias=True)
        got = jax.jit(resample, static_argnums=3)(images, whole, whole, size)
        np.testing.assert_allclose(got, want, atol=1e-5)
    half = Span(jnp.full(2, 0.5), jnp.full(2, 0.5), jnp.array([False, True]))
    rows = interpolation(half, 8, 4)
    np.testing.assert_allclose(rows[0], np.eye(8)[4:], atol=1e-6)
    np.testing.assert_allclose(rows[1], np.eye(8)[:3:-1], atol=1e-6)


def test_losses():
    logits, labels = jnp.array([[2.0, 0.0], [0.0, 1.0], [5.0, 5.0]]), jnp.array([0, 0, -1])
    each = -np.log([np.e**2 / (np.e**2 + 1), 1 / (1 + np.e)])
    np.testing.assert_allclose(phase_loss(logits, labels), each.mean(), rtol=1e-6)
    both = jnp.array([0, 1, -1])
    weighted = (3 * each[0] - np.log(np.e / (1 + np.e))) / 4
    np.testing.assert_allclose(phase_loss(logits, both, np.array([3.0, 1.0])), weighted, rtol=1e-6)
    tools = jnp.array([[1, -1], [0, -1], [-1, -1]])
    each = np.log1p(np.exp([-2.0, 0.0]))
    np.testing.assert_allclose(tool_loss(logits, tools), each.mean(), rtol=1e-6)
    np.testing.assert_allclose(tool_loss(logits, tools, np.array([3.0, 1.0])), (3 * each[0] + each[1]) / 2, rtol=1e-6)
    # A system may sum over the tools of a frame instead, so that they weigh more against phases.
    several = jnp.array([[1, 0], [0, -1], [-1, -1]])
    summed = each.sum() + np.log(2)
    np.testing.assert_allclose(tool_loss(logits, several), summed / 3, rtol=1e-6)
    np.testing.assert_allclose(tool_loss(logits, several, reduction="sum"), summed / 2, rtol=1e-6)
    trust = jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(tool_loss(logits, several, trust=trust, reduction="sum"), 1.5 * each.mean(), rtol=1e-6)
    with pytest.raises(ValueError, match="choose mean or sum"):
        tool_loss(logits, several, reduction="max")
    # Logits of unlabeled frames do not matter, even NaN.
    for measure, known in ((phase_loss, labels), (tool_loss, tools)):
        junk = jnp.where(jnp.expand_dims(known, range(known.ndim, 2)) >= 0, logits, jnp.nan)
        (value, grad), (again, same) = (jax.value_and_grad(measure)(x, known) for x in (logits, junk))
        assert value == again
        np.testing.assert_array_equal(grad, same)
    assert phase_loss(logits, jnp.full(3, -1)) == 0 and tool_loss(logits, jnp.full((3, 2), -1)) == 0
    total, terms = Criterion(Loss(phases=2.0)).frames({"phases": logits}, {"phases": labels})
    np.testing.assert_allclose(total, 2 * terms["phases"])
    # The system's reduction, unless the settings name another; and weights of phases alone.
    for criterion, parts in (
        (Criterion(Loss(), tool_reduction="sum"), 2),
        (Criterion(Loss(tool_reduction="mean"), tool_reduction="sum"), 3),
        (Criterion(Loss(), {"phases": np.array([3.0, 1.0])}, tool_reduction="sum"), 2),
    ):
        both_tracks = {"phases": logits, "tools": logits}, {"phases": both, "tools": several}
        terms = criterion.frames(*both_tracks)[1]
        np.testing.assert_allclose(terms["tools"], summed / parts, rtol=1e-6)
    np.testing.assert_allclose(terms["phases"], weighted, rtol=1e-6)
    weights = class_weights(np.array([0, 0, 0, 1, 1, 2, -1]), np.array([[1, 0], [1, 0], [0, 0], [-1, 1]]), 4)
    np.testing.assert_allclose(weights["phases"], [2 / 3, 1, 2, 1], rtol=1e-6)
    np.testing.assert_allclose(weights["tools"], [(2 / 3 + 1 / 4) / 2 / (2 / 3), (2 / 3 + 1 / 4) / 2 * 4], rtol=1e-6)


def test_learning_rates():
    rate = schedule(Optimizer(learning_rate=1.0, warmup_epochs=1, final_scale=0.1), 100, 10)
    np.testing.assert_allclose([rate(0), rate(5), rate(10), rate(100)], [0, 0.5, 1, 0.1], atol=1e-6)
    optimizer = make_optimizer(Optimizer(name="adam", clip=0.0, backbone_scale=0.1), lambda step: 1.0)
    params = nnx.State({"backbone": {"w": nnx.Param(jnp.ones(3))}, "heads": {"w": nnx.Param(jnp.ones(3))}})
    updates, _ = optimizer.update(jax.tree.map(jnp.ones_like, params), optimizer.init(params), params)
    np.testing.assert_allclose(updates["backbone"]["w"][...], -0.1, rtol=1e-4)
    np.testing.assert_allclose(updates["heads"]["w"][...], -1.0, rtol=1e-4)


def test_only_kernels_decay():
    """Not biases, normalization, tables of positions and other matrices that no input is multiplied by."""
    from models.backbones import build
    from models.temporal import SequenceVAE

    network = nnx.eval_shape(lambda: build("swin_t", rngs=nnx.Rngs(0)))
    network.penalty = nnx.eval_shape(lambda: SequenceVAE(3, {"phases": 3, "tools": 2}, rngs=nnx.Rngs(0)))
    params = jax.tree.map(lambda x: jnp.ones(x.shape), nnx.state(network, nnx.Param))
    optimizer = make_optimizer(Optimizer(clip=0.0, weight_decay=0.1), lambda step: 1.0)
    still = jax.tree.map(jnp.zeros_like, params)
    updates, _ = jax.jit(optimizer.update)(still, optimizer.init(params), params)
    decayed = {
        tuple(getattr(entry, "key", None) for entry in path): bool((np.asarray(x) != 0).any())
        for path, x in jax.tree_util.tree_leaves_with_path(updates)
    }
    assert {path for path, moved in decayed.items() if moved} == {path for path in decayed if "kernel" in path}
    assert any("relative_position_bias_table" in path for path in decayed) and any("look" in path for path in decayed)


def test_the_commit_is_a_hash(tmp_path, monkeypatch):
    """A folder that is no repository, or one without commits, has none unless the environment states it."""
    monkeypatch.delenv("HMMJAX_COMMIT", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit(tmp_path) is None
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert commit(tmp_path) is None
    monkeypatch.setenv("HMMJAX_COMMIT", "abc")
    assert commit(tmp_path) == "abc"
    (tmp_path / "file").write_text("1")
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    for words in (["add", "file"], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    found = commit(tmp_path)
    assert found is not None and len(found) == 40 and set(found) <= set("0123456789abcdef")
    (tmp_path / "file").write_text("2")
    assert commit(tmp_path) == found + "+"


def test_a_missing_checkpoint_is_named(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(FileNotFoundError, match="train the run first"):
        checkpoints.restore_model("best", nnx.Linear(1, 1, rngs=nnx.Rngs(0)))
    checkpoints.close()

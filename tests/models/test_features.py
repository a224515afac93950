"""Test runs on precomputed features: files, their join with labels, training, prediction and a stabilized table."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import json

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

import hmmjax.io
from hmmjax.io import FormatError
from hmmjax.simulate import simulate_surgeries
from models.data.feature_files import Layout, find_features, is_features, read_features
from models.data.features import join_features
from models.data.labels import read_labels
from models.data.simsurg import write_annotations
from models.predict import main as predict_main
from models.train import main as train_main

WIDTH = 6


def features_of(surgery, rng):
    """Noisy features (n, 6) that depend on the phase and the first tools of each second."""
    means = np.random.default_rng(5).normal(size=(8, WIDTH))
    signal = means[surgery.phases] + 2 * np.pad(surgery.tools, ((0, 0), (0, 0)))[:, :WIDTH]
    return (signal + 0.5 * rng.normal(size=signal.shape)).astype(np.float32)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Annotations of four simulated surgeries in Cholec80's layout, a manifest of them, and features in a folder."""
    root = tmp_path_factory.mktemp("own")
    surgeries = simulate_surgeries(4, seed=1, minutes=0.7)
    for kind in ("phase_annotations", "tool_annotations", "features"):
        (root / kind).mkdir()
    rng, rows = np.random.default_rng(0), []
    for n, surgery in enumerate(surgeries, 1):
        name = f"video{n:02d}"
        write_annotations(root, name, surgery)
        np.save(root / "features" / f"{name}.npy", features_of(surgery, rng).astype(np.float16))
        files = f"phases: phase_annotations/{name}-phase.txt, tools: tool_annotations/{name}-tool.txt"
        rows.append(f"  - {{id: {name}, {files}, part: {('train', 'train', 'val', 'test')[n - 1]}}}")
    text = "phases: cholec80\ntools: cholec80\nvideos:\n" + "\n".join(rows) + "\n"
    (root / "manifest.yaml").write_text(text)
    return root, surgeries


def words(root, run, **more):
    settings = {
        "run": run,
        "system": "phasenet_a",
        "features": root / "features",
        "data.train": root / "manifest.yaml",
        "data.val": root / "manifest.yaml",
        "batch": 2,
        "epochs": 2,
        "tensorboard": "false",
        "temporal_options": "{width: 8, heads: 2, layers: 1}",
    } | more
    return [f"{key}={value}" for key, value in settings.items()]


def h5(path, **arrays):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            file[name] = value


def tensors(path, **arrays):
    pytest.importorskip("safetensors.numpy").save_file(arrays, path)


@pytest.mark.parametrize("kind", ["npy", "npz", "h5", "safetensors"])
def test_every_kind_of_file_gives_rows_and_frames(tmp_path, kind):
    values = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float16)
    frames = np.array([0, 25, 50, 75, 130])
    path = tmp_path / f"video07.{kind}"
    if kind == "npy":
        np.save(path, values)
        np.save(tmp_path / "video07.frames.npy", frames)
    else:
        {"npz": np.savez, "h5": h5, "safetensors": tensors}[kind](path, features=values, frames=frames)
    assert is_features(tmp_path) and find_features(tmp_path) == {"video07": path}
    found = read_features(path, Layout())
    np.testing.assert_array_equal(found.values, values)
    np.testing.assert_array_equal(found.frames, frames)
    assert found.video == "video07" and found.fps == 25


def test_frames_follow_from_the_rate(tmp_path):
    np.save(tmp_path / "a1.npy", np.ones((4, 2), np.float32))
    assert read_features(tmp_path / "a1.npy", Layout(rate=5)).frames.tolist() == [0, 5, 10, 15]
    assert read_features(tmp_path / "a1.npy", Layout(rate=0.5, fps=30)).frames.tolist() == [0, 60, 120, 180]
    # One video per folder of MS-TCN: channels first, and a batch axis of one.
    np.save(tmp_path / "a2.npy", np.ones((1, 2, 4), np.float32))
    found = read_features(tmp_path / "a2.npy", Layout(channels_first=True))
    assert found.values.shape == (4, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nothing", "not a readable file of features"),
        (np.ones((2, 3), np.int64), r"int64 \(2, 3\), expected floating-point"),
        (np.ones(3, np.float32), r"float32 \(3,\), expected floating-point"),
        (np.zeros((0, 3), np.float32), "expected floating-point"),
    ],
)
def test_other_contents_are_named(tmp_path, content, message):
    path = tmp_path / "video01.npy"
    path.write_bytes(content) if isinstance(content, bytes) else np.save(path, content)
    with pytest.raises(FormatError, match=message):
        read_features(path, Layout())


def test_folders_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(FormatError, match="no files of features"):
        find_features(tmp_path)
    (tmp_path / "video01.pkl").touch()
    with pytest.raises(FormatError, match="pickles, which can run code"):
        find_features(tmp_path)
    for name in ("video01.npy", "1.npy"):
        np.save(tmp_path / name, np.ones((2, 2), np.float32))
    with pytest.raises(FormatError, match="belongs to the same video as"):
        find_features(tmp_path)


@pytest.fixture
def changed(data, tmp_path):
    """A function that joins the features with one video's values changed, and returns its table's frames."""
    root, _ = data
    folder = tmp_path / "features"
    folder.mkdir()
    for path in (root / "features").iterdir():
        np.save(folder / path.name, np.load(path))

    def join(change, slack=0, video="video02"):
        np.save(folder / f"{video}.npy", change(np.load(root / "features" / f"{video}.npy")))
        table = read_labels(str(root / "manifest.yaml"), None, folder, Layout())
        return table, join_features(folder, table, "train", Layout(), slack=slack)

    return join


def test_features_are_joined_with_their_labels(data, changed):
    root, surgeries = data
    table, rows = changed(lambda x: x)
    assert rows.width == WIDTH and len(rows) == len(table) == sum(map(len, surgeries))
    chosen = np.flatnonzero(table.parts == "train")[::7]
    want = [np.load(root / "features" / f"{table.videos[r]}.npy")[table.frames[r] // 25] for r in chosen]
    np.testing.assert_array_equal(rows[chosen], np.float32(want))
    with pytest.raises(ValueError, match="no features"):
        rows[np.flatnonzero(table.parts == "test")]


def test_a_length_that_is_off_is_named_and_tolerated_only_on_request(changed, capsys):
    message = r"video02: \d+ rows for \d+ labeled frames, 2 without features, from frame \d+.*data\.slack"
    with pytest.raises(FormatError, match=message):
        changed(lambda x: x[:-2])
    with pytest.raises(FormatError, match=r"video02: .* 3 surplus after frame"):
        changed(lambda x: np.concatenate([x, x[:3]]), slack=2)
    table, rows = changed(lambda x: x[:-2], slack=2)
    assert len(rows) == len(table) - 2 and "2 without features" in capsys.readouterr().err
    assert np.isfinite(rows[np.flatnonzero(rows.table.parts == "train")]).all()


def test_swapped_axes_widths_gaps_and_missing_videos_are_named(data, changed, tmp_path):
    with pytest.raises(FormatError, match=r"rows are channels.*channels_first"):
        changed(lambda x: x.T)
    with pytest.raises(FormatError, match=r"rows of 5 numbers, but video01.npy has 6"):
        changed(lambda x: x[:, :5])
    changed(lambda x: x)
    np.save(tmp_path / "features" / "video02.frames.npy", 25 * np.r_[:10, 11 : 1 + len(data[1][1])])
    with pytest.raises(FormatError, match=r"1 without features, from frame 250, 1 surplus"):
        changed(lambda x: x, slack=5)
    (tmp_path / "features" / "video01.npy").unlink()
    with pytest.raises(FormatError, match="no features of 1 of 2 videos: video01"):
        changed(lambda x: x)


def test_numbers_that_are_not_finite_are_refused(changed):
    table, rows = changed(lambda x: np.where(np.arange(len(x))[:, None] == 3, np.nan, x))
    with pytest.raises(FormatError, match=r"video02.npy.*not finite"):
        rows[np.flatnonzero(table.parts == "train")]


def test_settings_of_images_do_not_go_with_features(data, tmp_path, capsys):
    root, _ = data
    for more, message in (
        ({"backbone": "resnet18"}, "backbone=resnet18 cannot be combined with features"),
        ({"clip": 4}, "clip=4 cannot be combined"),
    ):
        with pytest.raises(SystemExit):
            train_main(["--quiet", *words(root, tmp_path / "run", **more)])
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit, match="no such folder"):
        train_main(["--quiet", *words(root, tmp_path / "run", features=tmp_path / "none")])
    with pytest.raises(SystemExit, match=r"data\.split is for runs on features"):
        train_main(["--quiet", *words(root, tmp_path / "run", features="null", **{"data.split": "32/8/40"})])


def test_from_own_features_to_a_stabilized_table(data, tmp_path):
    """Train, stop, resume and predict without images or a backbone; the predictions become a table."""
    from typer.testing import CliRunner

    from hmmjax.cli import app

    root, _ = data
    run, out = tmp_path / "run", tmp_path / "predictions.npz"
    train_main(["--quiet", *words(root, run), "stop_after=1", "save_every=1"])
    train_main(["--quiet", "--resume", str(run)])
    assert json.loads((run / "features.json").read_text()) == {"width": WIDTH}
    predict_main([str(run), str(root / "features"), "--out", str(out), "--quiet"])
    with np.load(out) as predicted:
        assert {f"phases_{n:02d}" for n in range(1, 5)} <= set(predicted)
        np.testing.assert_allclose(predicted["phases_04"].sum(1), 1, atol=1e-4)
    np.save(tmp_path / "video04.npy", np.ones((9, WIDTH + 1), np.float32))
    with pytest.raises(SystemExit, match=f"{WIDTH + 1} channels, but the run was trained on {WIDTH}"):
        predict_main([str(run), str(tmp_path / "video04.npy"), "--out", str(tmp_path / "b.npz"), "--quiet"])
    with pytest.raises(SystemExit, match="reads precomputed features"):
        predict_main([str(run), str(root / "manifest.yaml"), "--out", str(tmp_path / "b.npz"), "--quiet"])
    # Errors are not learned from the two videos that the network was trained on, unless that is asked for.
    assert {track.video: track.part for track in hmmjax.io.read(str(out))} == {
        "video01": "train",
        "video02": "train",
        "video03": "val",
        "video04": "test",
    }
    arguments = ["stabilize", str(out), "--annotations", str(root / "phase_annotations"), "--no-pictures", "--out"]
    answer = CliRunner().invoke(app, [*arguments, str(tmp_path / "r")])
    assert answer.exit_code and "trained on 2 of the annotated videos (video01, video02)" in answer.output
    answer = CliRunner().invoke(app, [*arguments, str(tmp_path / "r"), "--videos", "3-4"])
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "r" / "table.csv").exists()
    answer = CliRunner().invoke(app, [*arguments, str(tmp_path / "all"), "--training-videos", "--dry-run"])
    assert answer.exit_code == 0, answer.output


def test_extraction_continues_and_names_what_it_cannot_read(tmp_path, monkeypatch, capsys):
    """Two videos of a cache; the features are those of the network, and a second run adds what is missing."""
    from tiny import frames

    import models.encoders
    from models.data.cache import write_cache
    from models.extract import main as extract_main

    source = frames()
    write_cache(source, tmp_path / "cache")
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    out = tmp_path / "features"
    words = ["micro", str(tmp_path / "cache"), "--size", "16", "24", "--batch", "7", "--quiet", "--out", str(out)]
    with pytest.raises(SystemExit, match="has no weights"):
        extract_main(words)
    words += ["--random"]
    with pytest.raises(SystemExit):
        extract_main([*words, str(tmp_path / "broken.mp4")])
    shown = capsys.readouterr()
    assert "features of 2 video(s), 8 channels" in shown.out and "broken.mp4" in shown.err
    found = read_features(out / "video02.npy", Layout())
    assert found.values.dtype == np.float16 and found.values.shape == (20, 8)
    np.testing.assert_array_equal(found.frames, source.table.frames[20:])
    encoder = models.encoders.encoder_of_backbone("micro", None, size=(16, 24))
    np.testing.assert_allclose(found.values, encoder.compute(source.images[20:]), atol=2e-2)
    # A killed run leaves no file; the next one writes it, and none of the others.
    (out / "video02.npy").unlink()
    before = (out / "video01.npy").stat().st_mtime_ns
    extract_main([*words, "--workers", "3"])
    assert "1 video(s), 8 channels, 1 were there" in capsys.readouterr().out
    assert before == (out / "video01.npy").stat().st_mtime_ns
    assert (np.load(out / "video02.npy") == found.values).all()
    with pytest.raises(SystemExit, match="features with other size"):
        extract_main([*words, "--size", "16", "28"])


def test_one_of_several_videos_is_damaged(tmp_path, monkeypatch, capsys):
    """Videos are read at the same time; the others are complete, and nothing is left of the damaged one."""
    from tiny import frames

    from models.data.cache import write_cache
    from models.extract import main as extract_main
    from models.inputs import Clip

    write_cache(frames(), tmp_path / "cache")
    out = tmp_path / "features"
    batches = Clip.batches

    def broken(clip, length):
        for number, piece in enumerate(batches(clip, length)):
            if clip.video == "video01" and number == 1:
                raise FormatError("damaged near frame 9")
            yield piece

    monkeypatch.setattr(Clip, "batches", broken)
    words = ["micro", str(tmp_path / "cache"), "--random", "--batch", "7", "--quiet", "--out", str(out)]
    with pytest.raises(SystemExit):
        extract_main([*words, "--size", "16", "24", "--workers", "2"])
    assert "video01: damaged near frame 9" in capsys.readouterr().err
    assert sorted(path.name for path in out.iterdir()) == ["features.json", "video02.frames.npy", "video02.npy"]
    # An error that is not the file's ends the command, and leaves no file either.
    monkeypatch.setattr(Clip, "batches", lambda clip, length: 1 / 0)
    (out / "video02.npy").unlink()
    with pytest.raises(ZeroDivisionError):
        extract_main([*words, "--size", "16", "24", "--workers", "2"])
    assert sorted(path.name for path in out.iterdir()) == ["features.json", "video02.frames.npy"]


def test_normalization_is_that_of_the_weights(tmp_path, capsys):
    from flax import nnx
    from tiny import frames

    from models.backbones import build
    from models.backbones.images import IMAGENET_MEAN, IMAGENET_STD
    from models.data.cache import write_cache
    from models.encoders import encoder_of_backbone, published_normalization
    from models.extract import main as extract_main
    from models.weights import export_state, save_state

    weights = tmp_path / "model.safetensors"
    save_state(weights, export_state(build("micro", rngs=nnx.Rngs(1), dtype=np.float32)))
    assert published_normalization(weights) == published_normalization(None) == (IMAGENET_MEAN, IMAGENET_STD)
    # As timm and as transformers state it.
    (tmp_path / "config.json").write_text('{"pretrained_cfg": {"mean": [0.5, 0.4, 0.3], "std": [0.5, 0.5, 0.2]}}')
    assert published_normalization(weights) == ((0.5, 0.4, 0.3), (0.5, 0.5, 0.2))
    described = tmp_path / "preprocessor_config.json"
    described.write_text('{"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 1]}')
    assert published_normalization(weights) == ((0.1, 0.2, 0.3), (1, 1, 1))
    images = frames().images
    stated = encoder_of_backbone("micro", str(weights), size=(16, 24))
    given = encoder_of_backbone("micro", str(weights), size=(16, 24), mean=(0.1, 0.2, 0.3), std=(1, 1, 1))
    other = encoder_of_backbone("micro", str(weights), size=(16, 24), mean=(0.5,) * 3, std=(0.5,) * 3)
    np.testing.assert_array_equal(stated.compute(images), given.compute(images))
    assert np.abs(np.asarray(stated.compute(images)) - np.asarray(other.compute(images))).max() > 0.1
    for text in (
        '{"image_mean": [1, 2], "image_std": [1, 1]}',
        '{"image_mean": [1, 2, 3], "image_std": [0, 1, 1]}',
        "[",
    ):
        described.write_text(text)
        with pytest.raises(FormatError, match="preprocessor_config"):
            published_normalization(weights)
    described.unlink()
    # A folder keeps to one normalization.
    write_cache(frames(), tmp_path / "cache")
    words = ["micro", str(tmp_path / "cache"), "--pretrained", str(weights), "--size", "16", "24", "--quiet"]
    extract_main([*words, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="features with other mean"):
        extract_main([*words, "--mean", "0.5", "0.5", "0.5", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="leave --pretrained, --options, --mean and --std out"):
        extract_main(["run", str(tmp_path / "cache"), "--mean", "1", "1", "1", "--out", str(tmp_path / "o")])

"""Read NPZ and NPY files; damaged files raise FormatError and never return wrapped numbers."""

import pickle
import zipfile

import numpy as np
import pytest
from files import fails

from hmmjax import io
from hmmjax.io import FormatError

P = io.CHOLEC80_PHASES


def test_npz_keys_names_and_logits(tmp_path):
    logits = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    np.savez(tmp_path / "a.npz", logits_71=logits, stages_71=logits, phase_names=np.array(P))
    (track,) = io.read(tmp_path / "a.npz")
    assert (track.video, track.track, track.layout.kind) == ("video71", "phases", "logits")
    np.testing.assert_allclose(track.values, np.exp(logits) / np.exp(logits).sum(1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(track.frames, [0, 25, 50, 75, 100])
    notices = " ".join(track.notices)
    assert "stages_71" in notices and "no frame numbers" in notices and "logits" in notices


def test_npz_with_own_frames_and_fps(tmp_path):
    np.savez(tmp_path / "a.npz", tools_1=np.zeros((3, 2)), frames_1=[0, 1, 4], fps=1.0, tool_names=["Hook", "Clipper"])
    (track,) = io.read(tmp_path / "a.npz")
    assert track.fps == 1 and track.names == ("Hook", "Clipper")
    np.testing.assert_array_equal(track.frames, [0, 1, 4])
    fails("stores fps 1, but 25 was declared", tmp_path / "a.npz", fps=25)


def test_npy_one_array_per_video(tmp_path):
    np.save(tmp_path / "video09-tool.npy", np.full((4, 7), 0.25))
    (track,) = io.read(tmp_path, tool_names="cholec80")
    assert (track.video, track.track) == ("video09", "tools")
    np.save(tmp_path / "video10.npy", np.full((4, 7), 0.25))
    fails("phases or tools", tmp_path / "video10.npy")


@pytest.mark.parametrize("name", ["patient-a", "patient b", "case.x", "a+b", "video03"])
def test_any_name_survives_an_npz(tmp_path, name):
    frames = np.array([100, 200, 300])
    np.savez(tmp_path / "p.npz", **{f"phases_{name}": [0, 1, 1], f"frames_{name}": frames, f"truth_phases_{name}": [0]})
    (found,) = io.read(tmp_path / "p.npz")
    assert found.video == io.video_id(name) and found.frames.tolist() == frames.tolist() and not found.notices


def test_frames_are_found_by_video_and_strays_are_named(tmp_path):
    np.savez(tmp_path / "p.npz", phases_01=[0, 1], frames_1=[100, 200], frames_7=[0, 25])
    (found,) = io.read(tmp_path / "p.npz")
    assert found.frames.tolist() == [100, 200]
    assert found.notices[-1].endswith("ignored frame numbers without predictions: frames_7")


def test_arrays_that_say_nothing_of_predictions_are_not_read(tmp_path, monkeypatch):
    """A small file may declare gigabytes in an array that is not needed."""
    np.savez(tmp_path / "p.npz", phases_01=[0, 1], features_01=np.zeros((4, 4)))
    read = np.lib.npyio.NpzFile.__getitem__
    asked = []
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", lambda self, key: asked.append(key) or read(self, key))
    (found,) = io.read(tmp_path / "p.npz")
    assert asked == ["phases_01"] and "features_01" in found.notices[-1]


def test_large_and_small_logits_do_not_overflow(tmp_path):
    np.savez(tmp_path / "a.npz", phases_1=np.array([[1e4, -1e4]]), tools_1=np.array([[1e4, -1e4]]))
    phases, tools = io.read(tmp_path / "a.npz", kind="logits")
    np.testing.assert_array_equal(phases.values, [[1, 0]])
    np.testing.assert_array_equal(tools.values, [[1, 0]])


def test_rounding_beyond_one_is_clipped(tmp_path):
    np.savez(tmp_path / "a.npz", tools_1=np.array([[1 + 1e-6, -1e-6]]))
    np.testing.assert_array_equal(io.read(tmp_path / "a.npz")[0].values, [[1, 0]])
    np.savez(tmp_path / "b.npz", tools_1=np.array([[1 + 1e-4]]))
    fails("not a probability", tmp_path / "b.npz")


def test_bad_arrays(tmp_path):
    good = tmp_path / "a.npz"
    np.savez(good, phases_1=np.zeros(500, int))
    (tmp_path / "cut.npz").write_bytes(good.read_bytes()[:-200])
    fails("damaged or truncated", tmp_path / "cut.npz")
    (tmp_path / "empty.npz").write_bytes(b"")
    fails(".", tmp_path / "empty.npz")
    cases = {
        "none of the arrays holds": {"weights": np.zeros(3)},
        "inf is not a number": {"tools_1": np.array([[np.inf]])},
        "all predicted tools of video01 are missing": {"tools_1": np.array([[np.nan]])},
        "label 3 is out": {"tools_1": np.array([[3]])},
        "no frames": {"phases_1": np.zeros(0, int)},
        "frame 0 comes after": {"phases_1": np.zeros(2, int), "frames_1": np.array([5, 0])},
        "needs 2 whole numbers": {"phases_1": np.zeros(2, int), "frames_1": np.array([5])},
        "2 columns, but there are 3": {
            "tools_1": np.zeros((1, 2)),
            "tool_names": np.array(["a", "b", "c"]),
        },
        "expected numbers of shape": {"tools_1": np.array(["x"])},
        "were already read": {"tools_1": np.zeros((1, 1)), "tools_01": np.zeros((1, 1))},
        "holds phases or tools": {"logits_1": np.zeros((1, 7))},
    }
    for i, (cause, arrays) in enumerate(cases.items()):
        np.savez(tmp_path / f"bad{i}.npz", **arrays)
        assert fails(cause, tmp_path / f"bad{i}.npz").file.startswith(str(tmp_path / f"bad{i}.npz"))


def test_what_is_no_array_is_named(tmp_path):
    np.savez(tmp_path / "p.npz", phases_01=[0, 1])
    with zipfile.ZipFile(tmp_path / "p.npz", "a") as archive:
        archive.writestr("phases_02", b"notes")
    fails("phases_02 is not an array", tmp_path / "p.npz")


def _npy(path, shape):
    header = repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 64)


@pytest.mark.parametrize("shape", [(2**40, 7), (2**63, 7)])
def test_headers_that_promise_too_much(tmp_path, shape):
    _npy(tmp_path / "video01.npy", shape)
    with pytest.raises(FormatError, match=r"video01\.npy"):
        io.read([tmp_path / "video01.npy"], track="phases")


def test_any_damaged_byte_is_a_format_error_or_still_reads(tmp_path):
    good = tmp_path / "good.npz"
    np.savez(good, phases_01=np.arange(20) % 7, tools_01=np.zeros((20, 7), int))
    data, rng = good.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        bad = bytearray(data)
        for at in rng.integers(0, len(bad), 3):
            bad[at] = rng.integers(256)
        path = tmp_path / "bad.npz"
        path.write_bytes(bad)
        try:
            io.read([path], phase_names="cholec80")
        except FormatError as error:
            refused += "bad.npz" in str(error)
    assert refused > 100


@pytest.mark.parametrize("labels", [np.array([0, 2**40 + 1]), np.array([0.0, 3e12]), np.array([0, 10**9])])
def test_labels_beyond_reason_are_refused_not_wrapped(tmp_path, labels):
    np.savez(tmp_path / "p.npz", phases_01=labels)
    with pytest.raises(FormatError, match="out of range"):
        io.read([tmp_path / "p.npz"])


@pytest.mark.parametrize("fps", ["fast", np.ones(3), 0.0, np.inf, -1.0])
def test_rates_that_are_none(tmp_path, fps):
    np.savez(tmp_path / "p.npz", phases_01=np.arange(4), fps=fps)
    with pytest.raises(FormatError, match="fps"):
        io.read([tmp_path / "p.npz"])


@pytest.mark.parametrize("names", [np.array([b"\xff\xfe"]), np.array(["a", "A"])])
def test_names_that_are_none(tmp_path, names):
    np.savez(tmp_path / "p.npz", phases_01=np.zeros(4, int), phase_names=names)
    with pytest.raises(FormatError, match="phase_names"):
        io.read([tmp_path / "p.npz"])


def test_the_part_of_a_video_in_training_is_read(tmp_path):
    arrays = {"phases_01": np.zeros(3, int), "phases_02": np.zeros(3, int), "part_01": np.array("train")}
    np.savez(tmp_path / "a.npz", **arrays)
    tracks = io.read(tmp_path / "a.npz")
    assert [(track.video, track.part) for track in tracks] == [("video01", "train"), ("video02", None)]
    assert "part_01" not in " ".join(notice for track in tracks for notice in track.notices)
    np.savez(tmp_path / "b.npz", **arrays | {"part_01": np.zeros(2)})
    fails(r"part_01 is float64 \(2,\)", tmp_path / "b.npz")


@pytest.mark.parametrize("word", ["train", "training", "Train", "TRAIN", "train set", "training_videos", "trainval"])
@pytest.mark.parametrize(("key", "part"), [("phases_41", "video41"), ("phases_video41", "41"), ("phases_41", "041")])
def test_spellings_of_training_videos(tmp_path, word, key, part):
    np.savez(tmp_path / "a.npz", **{key: np.zeros(3, int), f"part_{part}": np.array(word)})
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({key: np.zeros(3, int), f"part_{part}": word}))
    for name in ("a.npz", "a.pkl"):
        (track,) = io.read(tmp_path / name)
        assert (track.video, track.part) == ("video41", "train")


def test_parts_that_protect_nothing_are_told(tmp_path):
    values = {"phases_41": np.zeros(3, int), "phases_42": np.zeros(3, int)}
    path = tmp_path / "a.npz"
    np.savez(path, **values, part_99="train")
    fails(r"part_99 belongs to no video of the file \(video41, video42\)", path)
    np.savez(path, **values, part_41="train", part_041="test")
    fails("part_41 is 'train', but part_041 is 'test'", path)
    np.savez(path, **values, part_41="Validation", part_42="learned")
    tracks = io.read(path)
    assert [track.part for track in tracks] == ["val", "learned"]
    (notice,) = {n for t in tracks for n in t.notices if "known part" in n}
    assert "part_42: 'learned' is not a known part" in notice and "part_41" not in notice

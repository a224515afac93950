"""Find files, check options, and read the real files."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from files import fails, put

from hmmjax import io

P = io.CHOLEC80_PHASES


def test_kind_per_track(tmp_path):
    put(tmp_path, "video1-phase.txt", f"Frame\tPhase\n0\t{P[0]}\n")
    put(tmp_path, "video1-tool.txt", "Frame\tHook\n0\t-3.5\n")
    _, tools = io.read(tmp_path, kind={"tools": "logits"})
    assert 0.02 < tools.values[0, 0] < 0.04
    fails("a single column of phases holds labels", tmp_path, kind="logits")


def test_missing_paths_and_options(tmp_path):
    fails("does not exist", tmp_path / "nowhere.txt")
    fails("no txt, csv, tsv, npz, npy", tmp_path)
    put(tmp_path, "video1.txt", "0\t1\n")
    fails("given twice", [tmp_path, tmp_path / "video1.txt"])
    for bad in ({"track": "x"}, {"kind": "x"}, {"header": "x"}, {"fps": 0}, {"step": 0}, {"phase_names": "cholec81"}):
        fails(".", tmp_path, **bad)
    fails("twice", tmp_path, phase_names=["Hook Up", "hook_up"])


def test_pickles_are_refused_unread(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    (tmp_path / "a.pkl").write_bytes(pickle.dumps(Bomb()))
    np.save(tmp_path / "b.npy", np.array([Bomb()]), allow_pickle=True)
    np.savez(tmp_path / "c.npz", phases_1=np.array([Bomb()]))
    for name in ("a.pkl", "b.npy", "c.npz"):
        assert "np.savez" in fails(".", tmp_path / name).fix
    (tmp_path / "d.npy").write_bytes(pickle.dumps(Bomb()))
    fails(".", tmp_path / "d.npy")
    assert not (tmp_path / "exploded").exists()


def test_passed_over_files_are_reported(tmp_path):
    put(tmp_path, "video1.txt", "0\t1\n")
    put(tmp_path, "video1-timestamp.txt", "junk")
    put(tmp_path, "old.pkl", "")
    (track,) = io.read(tmp_path)
    assert "old.pkl" in track.notices[0] and "timestamp" in track.notices[0]


def test_hidden_files_are_passed_over(tmp_path):
    put(tmp_path, "video01-phase.txt", "Frame\tPhase\n0\tPreparation\n")
    put(tmp_path, "._video01-phase.txt", "\x00\x05\x16\x07")
    put(tmp_path, ".phases.npz.abc.npz", "half")
    (found,) = io.read(tmp_path)
    assert found.video == "video01" and not found.notices


@pytest.mark.parametrize(
    ("step", "rows", "options", "doubted"),
    [(1, 2000, {}, True), (25, 2000, {}, False), (1, 20_000, {}, False), (1, 2000, {"fps": 1}, False)],
)
def test_rows_numbered_in_seconds_are_noticed(tmp_path, step, rows, options, doubted):
    lines = [f"{i * step}\tPreparation" for i in range(rows)]
    (tmp_path / "video01-phase.txt").write_text("Frame\tPhase\n" + "\n".join(lines) + "\n")
    (track,) = io.read(tmp_path, phase_names="cholec80", **options)
    assert any("with fps=1" in notice for notice in track.notices) == doubted


def test_real_tmrnet_and_labels(data_dir):
    tracks = io.read(data_dir / "tmrnet/pred-phase", phase_names="cholec80")
    assert [t.video for t in tracks] == [f"video{i}" for i in range(41, 61)]
    assert all((t.values[:9] == 0).all() for t in tracks)
    labels = io.read_annotations(data_dir / "cholec80/labels_1fps.npz")
    assert sum(len(t.frames) for t in labels if t.track == "tools") == 184_498
    truth = {t.video: t for t in labels if t.track == "phases"}
    for track in io.read_annotations(data_dir / "tmrnet/gt-phase", phase_names="cholec80"):
        # The txt has one frame more than the tool-aligned NPZ: only a join on frames finds zero mismatches.
        values, _ = io.label_rows(track, truth[track.video].frames, 25)
        np.testing.assert_array_equal(values, truth[track.video].values)

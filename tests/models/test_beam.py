"""Collections through Apache Beam: the results of the commands, restarts, damaged videos, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip(
    "apache_beam",
    reason="needs apache-beam, whose version of beartype is another one: `make beam` installs and runs it",
)

from typer.testing import CliRunner

import hmmjax
from hmmjax import io
from hmmjax.cli import app
from models.beam.__main__ import main

ROOT = Path(__file__).parents[2]
PHASES, TOOLS = ("Alpha", "Beta", "Gamma"), ("Knife", "Fork")
NAMES = ("--phase-names", ",".join(PHASES), "--tool-names", ",".join(TOOLS))
IDS = tuple(f"video{n:02d}" for n in range(1, 7))
#: apache-beam reads the times of its files with a function that Python 3.12 deprecates, among others.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A model, and a folder with the phases and tools of six videos in two files each."""
    folder = tmp_path_factory.mktemp("collection")
    rng = np.random.default_rng(2)
    truth, said = [], []
    for video in IDS:
        phases = np.repeat(np.arange(3), rng.integers(15, 60, 3))
        tools = np.stack([phases == 1, (np.arange(len(phases)) // 9) % 2], 1).astype(int)
        wrong = np.where(rng.random(len(phases)) < 0.15, rng.integers(0, 3, len(phases)), phases)
        shown = np.where(rng.random(tools.shape) < 0.1, 1 - tools, tools)
        truth.append((phases, tools))
        said.append((wrong, shown))
        frames = 25 * np.arange(len(phases))
        (folder / "said").mkdir(exist_ok=True)
        rows = [f"{f}\t{PHASES[p]}" for f, p in zip(frames, wrong, strict=True)]
        (folder / "said" / f"{video}-phase.txt").write_text("\n".join(["Frame\tPhase", *rows]) + "\n")
        rows = ["\t".join(map(str, (f, *row))) for f, row in zip(frames, shown, strict=True)]
        (folder / "said" / f"{video}-tool.txt").write_text("\n".join(["\t".join(("Frame", *TOOLS)), *rows]) + "\n")
    labels, obs = (hmmjax.Labels(*map(list, zip(*x, strict=True))) for x in (truth, said))
    params = hmmjax.estimate(labels, hmmjax.Observations(obs.phases, obs.tools), priors=hmmjax.stabilize.PRIORS)
    io.save_params(folder / "model.npz", params, phase_names=PHASES, tool_names=TOOLS, fps=1.0)
    return folder


def beam(world, out, *more, collection="said", code=0):
    words = ["stabilize", world / "model.npz", world / collection, "--out", out, *more]
    try:
        main([str(word) for word in words])
    except SystemExit as error:
        assert error.code == code, error
        return
    assert not code


def lines(out, name="videos.jsonl"):
    return [json.loads(line) for line in (out / name).read_text().splitlines()]


def test_results_are_those_of_the_command_bit_for_bit(world, tmp_path, capsys):
    words = ["stabilize", world / "said", "--model", world / "model.npz", *NAMES]
    answer = CliRunner().invoke(app, [str(w) for w in (*words, "--out", tmp_path / "one", "--no-pictures")])
    assert answer.exit_code == 0, answer.output
    beam(world, tmp_path / "many")
    assert "6 video(s) written, 0 were there, 0 failed" in capsys.readouterr().out
    found = {}
    for video in IDS:
        with np.load(tmp_path / "many" / f"{video}.npz") as arrays:
            found |= dict(arrays)
    with np.load(tmp_path / "one" / "stabilized.npz") as arrays:
        expected = dict(arrays)
    assert set(found) == set(expected)
    for name in set(expected) - {"notices"}:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    assert [x["video"] for x in lines(tmp_path / "many")] == list(IDS) and not lines(
        tmp_path / "many", "failures.jsonl"
    )
    # The folder of results is read like any other.
    assert {track.video for track in io.read(tmp_path / "many")} == set(IDS)


def test_finished_videos_are_kept_until_their_input_or_the_options_change(world, tmp_path, capsys):
    out = tmp_path / "out"
    (tmp_path / "list.csv").write_text("video,path\n" + "".join(f"{v},said/{v}.npz\n" for v in IDS[:3]))
    (tmp_path / "said").mkdir()
    (tmp_path / "model.npz").write_bytes((world / "model.npz").read_bytes())

    def put(video, seed):
        scores = np.random.default_rng(seed).dirichlet(np.ones(3), 40)
        arrays = {"phases_7": scores, "tools_7": np.zeros((40, 2), int), "frames_7": 25 * np.arange(40), "fps": 25.0}
        arrays |= {"phase_names": np.array(PHASES), "tool_names": np.array(TOOLS)}
        io.save_npz(tmp_path / "said" / f"{video}.npz", arrays, force=True)

    def status(*more):
        beam(tmp_path, out, *more, collection="list.csv")
        return [x["status"] for x in lines(out)]

    for seed, video in enumerate(IDS[:3]):
        put(video, seed)
    assert status() == ["written"] * 3
    with np.load(out / "video02.npz") as arrays:
        assert "phases_02" in arrays  # the list's name, not the file's
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("*.npz")}
    assert status() == ["kept"] * 3
    put("video02", 77)
    (out / "video03.npz").unlink()
    assert status() == ["kept", "written", "written"]
    assert (out / "video01.npz").stat().st_mtime_ns == before["video01.npz"]
    (out / ".records" / "video01.json").write_text("{")
    assert status() == ["written", "kept", "kept"]
    assert status("--threshold", "0.4") == ["written"] * 3
    model = io.load_params(tmp_path / "model.npz")
    names = {"phase_names": model.phase_names, "tool_names": model.tool_names}
    io.save_params(tmp_path / "model.npz", model.params, **names, fps=1.0, metadata={"other": 1}, force=True)
    assert status("--threshold", "0.4") == ["written"] * 3
    assert not list(out.glob(".*.npz*"))


def test_notices_reach_the_user(world, tmp_path, capsys):
    """Of videos that an earlier run finished, too."""
    one = io.load_params(world / "model.npz")
    names = {"phase_names": one.phase_names, "tool_names": one.tool_names}
    mixture = hmmjax.Ensemble((one.params, one.params))
    io.save_params(tmp_path / "model.npz", mixture, **names, fps=1.0)
    (tmp_path / "said").symlink_to(world / "said")
    for _ in range(2):
        beam(tmp_path, tmp_path / "out")
        shown = capsys.readouterr().err
        assert "note, 6 video(s): the given model mixes models for whole videos" in shown
        assert "--online-model model_online.npz" in shown
    assert all(len(line["notices"]) for line in lines(tmp_path / "out"))


def test_a_damaged_video_does_not_stop_the_others(world, tmp_path, capsys):
    said, out = tmp_path / "said", tmp_path / "out"
    said.mkdir()
    for video in IDS:
        for kind in ("phase", "tool"):
            (said / f"{video}-{kind}.txt").write_bytes((world / "said" / f"{video}-{kind}.txt").read_bytes())
    (said / "video03-tool.txt").write_bytes(b"\x00\x01 no table")
    (tmp_path / "model.npz").write_bytes((world / "model.npz").read_bytes())
    beam(tmp_path, out, code=1)
    shown = capsys.readouterr()
    assert "5 video(s) written, 0 were there, 1 failed" in shown.out and "error: video03: " in shown.err
    (failure,) = lines(out, "failures.jsonl")
    assert failure["video"] == "video03" and str(said / "video03-tool.txt") in failure["files"]
    assert "video03-tool.txt" in failure["error"] and not (out / "video03.npz").exists()
    (said / "video03-tool.txt").write_bytes((world / "said" / "video03-tool.txt").read_bytes())
    beam(tmp_path, out)
    assert "1 video(s) written, 5 were there, 0 failed" in capsys.readouterr().out
    assert not lines(out, "failures.jsonl")


def test_results_of_another_model_do_not_stay(world, tmp_path, capsys):
    """In a folder of results that is inside that of the inputs; a file that cannot be read now keeps its results."""
    said = tmp_path / "said"
    said.mkdir()
    for video in IDS[:3]:
        for kind in ("phase", "tool"):
            (said / f"{video}-{kind}.txt").write_bytes((world / "said" / f"{video}-{kind}.txt").read_bytes())
    (tmp_path / "model.npz").write_bytes((world / "model.npz").read_bytes())
    out = said / "out"
    beam(tmp_path, out)
    (out / "beam-temp-videos").mkdir()
    whole = (said / "video02-phase.txt").read_bytes()
    (said / "video02-phase.txt").write_bytes(b"")
    (said / "video03-phase.txt").unlink()
    (said / "video03-tool.txt").unlink()
    beam(tmp_path, out, "--threshold", "0.4", code=1)
    shown = capsys.readouterr()
    assert "1 video(s) written, 0 were there, 1 failed" in shown.out
    assert "also holds 1 video(s) that are not in" in shown.err and "video03" in shown.err
    assert sorted(path.name for path in out.glob("*.npz")) == ["video01.npz", "video03.npz"]
    assert not list(out.glob("beam-temp-*"))
    (said / "video02-phase.txt").write_bytes(whole)
    beam(tmp_path, out, "--threshold", "0.4")
    assert "1 video(s) written, 1 were there, 0 failed" in capsys.readouterr().out


KILLED = """
import os, sys
from apache_beam.io.filesystems import FileSystems
from models.beam.__main__ import main

rename, count = FileSystems.rename, 0

def die(*arguments):
    global count
    count += 1
    if count == 3:  # the second video's file is written and not yet in place
        os._exit(9)
    rename(*arguments)

FileSystems.rename = staticmethod(die)
main(sys.argv[1:])
"""


def test_a_killed_run_continues(world, tmp_path, capsys):
    """Killed while a file is written: the videos before it are kept, and the results are those of one run."""
    out = tmp_path / "out"
    words = ["stabilize", world / "model.npz", world / "said", "--out", out]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    command = [sys.executable, "-W", "ignore", "-c", KILLED, *map(str, words)]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode == 9
    finished = {path.stem for path in (out / ".records").glob("video*.json")}
    assert len(finished) == 1 and [path.stem for path in out.glob("video*.npz")] == list(finished)
    assert len(list(out.glob(".video*.npz.*"))) == 1
    beam(world, out)
    assert {x["video"] for x in lines(out) if x["status"] == "kept"} == finished
    assert not list(out.glob(".video*"))
    beam(world, tmp_path / "whole")
    for video in IDS:
        with np.load(out / f"{video}.npz") as one, np.load(tmp_path / "whole" / f"{video}.npz") as other:
            for name in other:
                np.testing.assert_array_equal(one[name], other[name])


def test_results_of_another_encoder_are_not_mixed_in(tmp_path):
    from models.beam import pipeline

    pipeline._require_same(b"one", str(tmp_path), "features.json")
    (tmp_path / "features.json").write_bytes(b"one")
    pipeline._require_same(b"one", str(tmp_path), "features.json")
    with pytest.raises(io.FormatError, match=r"made differently: one, now other\. Fix: choose another --out"):
        pipeline._require_same(b"other", str(tmp_path), "features.json")


def test_options_of_beam_are_passed_through(world, tmp_path, monkeypatch):
    from models.beam import pipeline

    seen = []
    real = pipeline.PipelineOptions
    monkeypatch.setattr(pipeline, "PipelineOptions", lambda words: seen.append(words) or real(words))
    beam(world, tmp_path / "out", "--", "--direct_num_workers=2", "--direct_running_mode=multi_threading")
    assert seen == [["--runner=DirectRunner", "--direct_num_workers=2", "--direct_running_mode=multi_threading"]]
    assert len(lines(tmp_path / "out")) == len(IDS)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "video,path\nvideo01,x.npz\n1,y.npz\n", r"1 video\(s\) are listed twice: video01"),
        ("a.csv", "video,other\nvideo01,x.npz\n", "video01 has no file. Fix: give it in one of the columns path"),
        ("a.xml", "<a/>", "neither a folder nor a list of videos"),
        ("empty", None, "no files of videos here"),
    ],
)
def test_collections_that_cannot_be_read_are_refused(world, tmp_path, name, text, message):
    (tmp_path / name).mkdir() if text is None else (tmp_path / name).write_text(text)
    with pytest.raises(SystemExit, match=message):
        main(["stabilize", str(world / "model.npz"), str(tmp_path / name), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match=r"model\.npz: cannot be read"):
        main(["stabilize", str(tmp_path / "model.npz"), str(world / "said"), "--out", str(tmp_path / "out")])

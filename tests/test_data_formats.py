"""Every layout that `hmmjax data formats` lists is read with the options that it names."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import run
from files import fails, put

from hmmjax import io
from hmmjax.data.formats import FORMATS

#: Frames of each phase or tool in the examples, and their counter, by hand.
COUNTS = {
    "Cholec80, phases": [3, 1],
    "Cholec80, tools": [2, 0, 2],
    "M2CAI16-workflow": [2, 2],
    "M2CAI16-tool": [2, 0, 2],
    "CholecT50": [1, 1],
    "CholecT45": [2, 0, 2],
    "AutoLaparo": [2, 2],
    "PitVis": [2, 1],
    "CATARACTS, tools": [0, 2, 1],
    "CATARACTS, steps": [2, 0, 0, 2],
    "TeCNO": [2, 1],
    "MS-TCN": [2, 1],
    "HeiChole, phases": [2, 2],
    "HeiChole, instruments": [3, 0, 2],
    "Cataract-101": [500, 900, 1],
    "MultiBypass140": [2, 1],
    "JIGSAWS": [205, 108, 150],
    "segments": [4105, 19745],
    "timecodes": [4100, 19750, 1],
    "ELAN, tab-delimited text": [4105, 19745],
    "BORIS": [4105],
    "Label Studio": [4105],
    "CVAT for images": [2],
}


def example(layout, folder):
    """Write the example of a layout and return its path."""
    path = folder / layout.file
    if path.suffix == ".pkl":
        subprocess.run([sys.executable, "-c", layout.lines], cwd=folder, check=True)
    else:
        path.write_text(layout.lines)
    return path


@pytest.mark.parametrize("layout", FORMATS, ids=lambda f: f.name)
def test_a_layout_is_read_as_its_command_says(layout, tmp_path):
    path, read = example(layout, tmp_path), layout.arguments
    track = io.read_annotations(path, **read)[0]
    known = np.maximum(track.values, 0) if track.track == "tools" else np.eye(60)[track.values[track.values >= 0]]
    counts = known.sum(0)
    wanted = COUNTS[layout.name]
    assert counts[: len(wanted)].tolist() == wanted and not counts[len(wanted) :].any()


@pytest.mark.parametrize("layout", FORMATS, ids=lambda f: f.name)
def test_commands_take_a_layout_for_predictions_and_annotations(layout, tmp_path, monkeypatch):
    """Rows of both, as the options place them, meet: every label is right."""
    path, options = example(layout, tmp_path), shlex.split(" ".join(layout.options))
    monkeypatch.chdir(tmp_path)
    command = shlex.split(layout.command)
    assert command[:2] == ["hmmjax", "explore"] and "Nothing was written" in run(*command[1:], "--dry-run").stdout
    kind = () if layout.name != "TeCNO" else ("--kind", "logits")
    dense = ("--row-step", "1") if io.read_annotations(path, **layout.arguments)[0].layout.format == "segments" else ()
    table = json.loads(run("evaluate", path, "--truth", path, *options, *kind, *dense, "--json").stdout)["table"]
    scores = {r["figure"]: r["value"] for r in table if r["figure"] in ("phase accuracy, pooled", "tool F1, macro")}
    assert scores and set(scores.values()) == {1.0}


def test_a_folder_of_pitvis_has_names_next_to_its_annotations(tmp_path):
    layout = next(f for f in FORMATS if f.name == "PitVis")
    for i in (1, 2):
        put(tmp_path, f"annotations_{i:02d}.csv", layout.lines)
    put(tmp_path, "map_steps.csv", "int_step,str_step\n1,nasal_corridor_creation \n")
    steps, tools, *_ = io.read_annotations(tmp_path)
    assert steps.fps == 1 and steps.values.tolist() == [-1, 0, 0, 1] and steps.names[1] == "anterior_sphenoidotomy"
    assert "map_steps.csv" in steps.notices[0] and not any("first_index" in n for n in steps.notices)
    ring, suction = (tools.names.index(name) for name in ("ring_curette", "suction"))
    assert tools.values[:, [ring, suction]].tolist() == [[-1, -1], [0, 0], [1, 1], [0, 1]]
    fails("counts seconds, but 25 frames", tmp_path, fps=25)
    put(tmp_path, "bad/annotations_01.csv", layout.lines.replace("1,2,1,13,16", "1,2,15,13,16"))
    assert fails("label 15 is out of range .1 to 14", tmp_path / "bad").line == 4
    put(tmp_path, "bad/annotations_01.csv", layout.lines.replace("1,2,1,13,16", "1,2,1,19,16"))
    assert fails("instrument 19 is out of range", tmp_path / "bad").line == 4
    # Predictions are written as the challenge wants them.
    (written,) = io.write([steps], tmp_path / "out", like=[steps])
    assert written.read_text().splitlines() == ["int_time,int_step", "0,-1", "1,1", "2,1", "3,2"]


def test_cholect50_has_cholec80s_phases_and_its_own_rate(tmp_path):
    layout = next(f for f in FORMATS if f.name == "CholecT50")
    path = put(tmp_path, layout.file, layout.lines)
    phases, tools = io.read_annotations(path)
    assert phases.names == io.CHOLEC80_PHASES[:2] and phases.fps == 1 and phases.video == "video01"
    assert tools.names == ("grasper", "bipolar", "hook") and tools.values.tolist() == [[1, 0, 0], [0, 0, 1]]
    fails("stores fps 1, but 25 was declared", path, fps=25)
    fails("unknown tool 'hook'", path, tool_names="Grasper,Bipolar,Clipper")
    fails("3 in frame 1 is no category", put(tmp_path, "bad.json", layout.lines.replace("[60, 2,", "[60, 3,")))
    fails("frame 1 has no 15 numbers", put(tmp_path, "bad.json", layout.lines.replace("[60, 2,", "[2,")))


def test_mstcn_annotations_have_a_name_per_line(tmp_path):
    put(tmp_path, "groundTruth/video41.txt", "Preparation\nPreparation\nCalotTriangleDissection\n")
    (found,) = io.read_annotations(tmp_path / "groundTruth")
    assert found.values.tolist() == [0, 0, 1] and found.frames.tolist() == [0, 25, 50]
    assert "no frame numbers" in found.notices[0]
    put(tmp_path, "predictions/video41", "### Frame level recognition: ###\n0 0 1\n")
    (found,) = io.read(tmp_path / "predictions", phase_names="cholec80")
    assert found.values.tolist() == [0, 0, 1] and found.video == "video41"
    fails("unknown phase 'Lunch'", put(tmp_path, "a/video1", "### Frame level recognition: ###\nLunch\n"))
    fails("no labels follow", put(tmp_path, "b/video1", "### Recognized sequence: ###\nPreparation\n"))


def test_the_page_shows_them():
    page = Path("docs/how-to/layouts.md").read_text()
    for layout in FORMATS:
        assert f"## {layout.name}\n" in page and f"```text\n{layout.lines}```" in page and layout.command in page
        note = layout.note[:1].upper() + layout.note[1:]
        assert not note or f"\n{note}.\n" in page


def test_the_command_lists_them():
    text = run("data", "formats").stdout
    assert all(f.name in text and f.command in text for f in FORMATS)
    assert [f["name"] for f in json.loads(run("data", "formats", "--json").stdout)] == [f.name for f in FORMATS]


def test_whole_seconds_are_read_as_the_page_says(tmp_path):
    rows = "Preparation,0,164\n"
    fails("does not tell its unit", put(tmp_path, "video01.csv", f"label,start,end\n{rows}"))
    for unit, frames in (("seconds", 4100), ("ms", 5), ("frame", 165)):
        (found,) = io.read_annotations(put(tmp_path, "video01.csv", f"label,start_{unit},end_{unit}\n{rows}"))
        assert len(found.frames) == frames

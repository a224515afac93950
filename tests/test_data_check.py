"""`hmmjax data check FOLDER`: every layout is recognized, counted and checked."""

import json

import numpy as np
import pytest
from commands import run
from files import put
from test_data_formats import example

from hmmjax.data.check import VIDEOS, check_folder
from hmmjax.data.formats import FORMATS
from hmmjax.data.recognize import recognize


@pytest.mark.parametrize("layout", FORMATS, ids=lambda f: f.name)
def test_every_layout_is_recognized_and_read(layout, tmp_path):
    path = example(layout, tmp_path)
    assert recognize(str(path)) == layout
    (found,) = check_folder(tmp_path)
    count = 2 if layout.name == "Cataract-101" else 1
    assert (found.layout, len(found.videos), found.problems) == (layout.name, count, ())
    assert found.expected == VIDEOS.get(layout.name) and found.complete == (found.expected is None)
    wanted = f"{count} of {found.expected} videos present" if found.expected else "1 video(s)"
    assert found.summary.startswith(f"{layout.name}: {wanted}, ")


def test_a_folder_says_first_what_is_there(tmp_path):
    """AutoLaparo: three of 21 videos, one with a gap, one with a label that the data set does not have."""
    rows = [(i, 1 + i // 60) for i in range(1, 300)]
    for video, own in ((1, rows), (2, rows[:100] + rows[140:]), (3, [*rows, (300, 8)])):
        put(tmp_path, f"label_{video:02d}.txt", "Frame\tPhase\n" + "".join(f"{i}\t{p}\n" for i, p in own))
    lines = run("data", "check", tmp_path, code=1).stdout.splitlines()
    assert lines[0].startswith("AutoLaparo: 2 of 21 videos present, 5.0 minutes; phases: 558 rows, 5 of 7 occur")
    assert "label_03.txt, line 301: phase label 8 is out of range (1 to 7" in lines[1]
    assert "label_02.txt: no rows between frames 100 and 141; others are 1 frames apart" in lines[2]
    assert lines[3:] == ["2 problems"]
    answer = json.loads(run("data", "check", tmp_path, "--json", code=1).stdout)["layouts"]
    assert [(c["layout"], len(c["videos"]), c["complete"]) for c in answer] == [("AutoLaparo", 2, False)]


def test_subfolders_and_lengths(tmp_path):
    """CholecT45 keeps each track in its own folder; phases and tools of one video should last equally long."""
    put(tmp_path, "phase/video01-phase.txt", "Frame\tPhase\n" + "".join(f"{25 * i}\tPreparation\n" for i in range(90)))
    head = "Frame\tGrasper\tBipolar\tHook\tScissors\tClipper\tIrrigator\tSpecimenBag\n"
    put(tmp_path, "tool/video01-tool.txt", head + "".join(f"{25 * i}\t1\t0\t0\t0\t0\t0\t0\n" for i in range(60)))
    phases, tools = check_folder(tmp_path)
    assert {phases.layout, tools.layout} == {"Cholec80, phases", "Cholec80, tools"}
    triplets = {"fps": 1, "categories": {"instrument": {"0": "hook"}, "phase": {"0": "preparation"}}}
    row = [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    triplets["annotations"] = {str(i): [row] for i in range(5)}
    put(tmp_path, "t/VID01.json", json.dumps(triplets))
    (found,) = check_folder(tmp_path / "t")
    assert not found.problems and "phases: 5 rows, 1 of 1 occur; tools: 5 rows, 1 of 1 occur" in found.summary


def test_other_files_are_read_as_what_they_are(tmp_path):
    np.savez(tmp_path / "labels.npz", phases_01=np.array([1, 2, 5]), tools_01=np.array([[1, 0], [1, -1], [1, 0]]))
    put(tmp_path, "video02.txt", "0\t1\n25\t2\n")
    (found,) = check_folder(tmp_path)
    assert found.summary.startswith("tables and arrays: 2 video(s)") and "labels 1 to 5" in found.summary
    assert "tools: 3 rows, 1 of 2 occur, 1 rows unknown" in found.summary and found.complete
    (tmp_path / "x.txt").write_bytes("0\tPréparation\n".encode("latin-1"))
    assert "In Windows-1252 (Latin-1) the line reads" in check_folder(tmp_path)[-1].problems[0]
    rows = "label,start,end\nSetup,0,1.5\n"
    put(tmp_path, "s/video03.csv", rows)
    assert "unknown phase 'Setup'" in run("data", "check", tmp_path / "s", code=1).stdout
    assert "no problems" in run("data", "check", tmp_path / "s", "--phase-names", "Setup,Rest").stdout


def test_what_explore_doubts_is_doubted_here(tmp_path):
    """Frame numbers that count seconds, indices from 1 and drop-frame timecodes: the same notes, from one place."""
    names = ("Preparation", "ClippingCutting")
    for v in (1, 2):
        rows = "".join(f"{i}\t{names[i // (40 + v)]}\n" for i in range(80))
        put(tmp_path, f"seconds/video{v:02d}.txt", f"Frame\tPhase\n{rows}")
        rows = "".join(f"{25 * i}\t{i // (40 + v) + v}\n" for i in range(80))
        put(tmp_path, f"indices/video{v:02d}.txt", rows)
    text = "start,end,label\n00:00:01;00,00:00:02;00,Preparation\n"
    put(tmp_path, "timecodes/video01.csv", text)
    for folder, fix in (("seconds", "--fps 1"), ("indices", "--first-index 1"), ("timecodes", "--fps 29.97")):
        told = " ".join(run("explore", tmp_path / folder, "--out", tmp_path / "out", "--dry-run").stderr.split())
        answer = run("data", "check", tmp_path / folder).stdout.splitlines()
        (note,) = (line for line in answer if line.startswith("note: "))
        assert answer[-1] == "no problems, 1 note" and " ".join(note.split()[1:]) in told
        assert fix in note or folder == "timecodes"
        if folder != "timecodes":
            option = fix.split()
            assert run("data", "check", tmp_path / folder, *option).stdout.splitlines()[-1] == "no problems"
    run("explore", tmp_path / "seconds", "--out", tmp_path / "out")
    page = (tmp_path / "out" / "explore.html").read_text()
    assert "--fps 1" in page and "fps=1" not in page
    put(tmp_path, "second/video02.txt", "0\t1\n25\t2\n")  # one video need not have the first phase
    put(tmp_path, "second/video01.txt", "0\t0\n25\t1\n")
    assert run("data", "check", tmp_path / "second").stdout.splitlines()[-1] == "no problems"


def test_predictions_are_checked_and_files_are_called_cholec80_only_if_they_are(tmp_path):
    head = "Frame,Grasper,Bipolar,Hook,Scissors,Clipper,Irrigator,SpecimenBag\n"
    path = put(tmp_path, "scores.csv", head + "".join(f"{25 * i},.9,.1,.2,.1,.1,.1,.1\n" for i in range(60)))
    assert "--kind probabilities" in run("data", "check", path, code=1).stdout
    lines = run("data", "check", path, "--kind", "probabilities").stdout.splitlines()
    assert lines == ["predictions: 1 video(s), 1.0 minutes; tools: 60 rows, 1 of 7 occur", "no problems"]
    put(tmp_path, "own/case01.csv", head + "0,1,0,0,0,0,0,0\n25,1,0,0,0,0,0,0\n")
    assert run("data", "check", tmp_path / "own").stdout.startswith("tables and arrays: 1 video(s)")
    put(tmp_path, "a/label_01.txt", "Frame\tPhase\n1\t1\n2\t1\n3\t2\n")
    text = run("data", "check", tmp_path / "a", code=1).stdout
    assert "read with --phase-names autolaparo --fps 1 --first-index 1" in text
    told = run("data", "check", "--help").stdout
    assert "May be left out" not in told and "--first-index" in told
    assert "one too many" in run("data", "check", "cholec80", ".", "x", code=2).stderr

"""What is declared for predictions applies to annotations; wrong rates and numbering from 1 are noticed."""

import json

import numpy as np
import pytest
from commands import run
from files import put, track

from hmmjax import io
from hmmjax.cli.options import rate

NAMES = ("Preparation", "Dissection", "Packaging")


def write(folder, shift=0, count=90, wrong=0):
    """AutoLaparo's layout: seconds and indices that both start at 1."""
    for v in (1, 2):
        states = np.repeat([1, 2, 3], count // 3)
        states[:wrong] = 3
        rows = "".join(f"{i + 1 + shift}\t{p}\n" for i, p in enumerate(states))
        put(folder, f"video{v:02d}.txt", "Frame\tPhase\n" + rows)
    return folder


def accuracy(*options, code=0):
    result = run("evaluate", *options, "--phase-names", ",".join(NAMES), "--json", code=code)
    return result if code else io_table(result.stdout)


def io_table(text):
    (row,) = [r for r in json.loads(text)["table"] if r["figure"] == "phase accuracy, pooled"]
    return row["value"], row["frames"]


def test_options_carry_over_to_annotations(tmp_path):
    predictions, labels = write(tmp_path / "p", wrong=9), write(tmp_path / "t")
    options = (predictions, "--truth", labels, "--fps", 1, "--first-index", 1)
    assert accuracy(*options) == (pytest.approx(0.9), 180)
    # An option of their own takes precedence, and a wrong one is named with both times.
    error = accuracy(*options, "--annotations-fps", 25, code=2).stderr
    assert "predictions end at 91 s" in error and "annotations at 4 s" in error and "--annotations-fps" in error
    error = accuracy(*options, "--annotations-first-index", 0, code=2).stderr
    assert "seem to be numbered from 1" in error and "--first-index 1" in error


def test_numbering_from_1_is_suspected(tmp_path):
    labels = write(tmp_path / "t")
    with pytest.raises(io.FormatError, match=r"label 3 is out of range \(0 to 2\).*numbered from 1.*first_index=1"):
        io.read_annotations(labels, phase_names=NAMES, fps=1)
    tracks = io.read_annotations(labels, fps=1)
    assert "no phase has the index 0" in tracks[0].notices[0] and "first_index=1" in tracks[0].notices[0]
    tracks = io.read_annotations(labels, phase_names=NAMES, fps=1, first_index=1)
    assert not any("index" in notice for notice in tracks[0].notices)
    np.testing.assert_array_equal(np.unique(tracks[0].values), [0, 1, 2])


def test_results_are_numbered_like_their_files(tmp_path):
    source = write(tmp_path / "p")
    tracks = io.read(source, phase_names=NAMES, fps=1, first_index=1, shift=-1)
    assert tracks[0].frames[0] == 0
    files = io.write(tracks, tmp_path / "out", like=tracks)
    for file in files:
        assert file.read_text() == (source / file.name).read_text()


def test_a_shift_that_makes_frames_negative_is_refused(tmp_path):
    with pytest.raises(io.FormatError, match="frame 1 would be -1"):
        io.read_annotations(write(tmp_path / "t"), shift=-2)


def _pair(end, fps=25.0, name="video01"):
    return track("phases", np.zeros(end, int), frames=np.arange(end), fps=fps, video=name)


def test_partial_annotations_are_a_notice_and_not_an_error():
    predicted = [_pair(4000, name=f"video0{v}") for v in (1, 2)]
    known = [_pair(n, name=f"video0{v}") for v, n in ((1, 900), (2, 2500))]
    *_, index = io.to_batch(io.join(predicted), known)
    assert any("and 1 more: if the annotations are not partial" in n for n in index.notices)
    with pytest.raises(io.FormatError, match=r"end at 160 s .*annotations at 133 s .*30 frames per second"):
        io.to_batch(io.join(predicted), [_pair(4000, 30.0, f"video0{v}") for v in (1, 2)])


def test_rates_may_be_ratios():
    assert rate("30000/1001") == pytest.approx(29.97003)
    with pytest.raises(Exception, match="write a number or a ratio"):
        rate("fast")


def test_labels_that_never_meet_the_predictions(tmp_path):
    """Nothing can be learned from them: exit code 2, and no claim."""
    predictions, labels = write(tmp_path / "p"), write(tmp_path / "t", shift=500)
    options = ("--fps", 1, "--first-index", 1, "--phase-names", ",".join(NAMES))
    result = run("stabilize", predictions, "--annotations", labels, *options, "--out", tmp_path / "out", code=2)
    assert "--annotations-shift" in result.stderr or "--annotations-fps" in result.stderr
    assert "transitions counted" not in result.stderr
    put(tmp_path, "u/video01.txt", "Frame\tPhase\n" + "".join(f"{i + 1}\t-1\n" for i in range(90)))
    result = run("stabilize", predictions, "--annotations", tmp_path / "u", *options, "--out", tmp_path / "out", code=2)
    assert "nothing can be learned or scored" in result.stderr


def test_columns_without_a_header_are_what_the_names_say(tmp_path):
    """HeiChole: 31 columns of instruments."""
    names = ",".join(f"i{k}" for k in range(31))
    rows = "".join(",".join(map(str, [i, *([0, 1] * 16)[:31]])) + "\n" for i in range(50))
    file = put(tmp_path, "Hei-Chole1_Annotation_Instrument.csv", rows)
    (found,) = io.read_annotations(file, tool_names=names)
    assert found.track == "tools" and found.values.shape == (50, 31)
    with pytest.raises(io.FormatError, match=r"31 columns, and no header.*pass tool_names"):
        io.read_annotations(file)
    error = run("explore", file, "--out", tmp_path / "out", code=2).stderr
    assert "--tool-names" in error and "track=" not in error


def test_half_a_label_is_unknown(tmp_path):
    """CATARACTS: 0.5 where annotators disagree; other fractions are errors."""
    halves = put(tmp_path, "video01.txt", "Frame\tGrasper\tHook\n0\t0\t0.5\n25\t1\t0\n")
    (found,) = io.read_annotations(halves, tool_names=("Grasper", "Hook"))
    assert found.values.tolist() == [[0, -1], [1, 0]] and "1 label(s) of 0.5" in found.notices[0]
    scores = put(tmp_path, "scores/video01.txt", "Frame\tGrasper\tHook\n0\t0\t0.3\n")
    with pytest.raises(io.FormatError, match=r"label 0.3 is not a whole number.*write -1"):
        io.read_annotations(scores, tool_names=("Grasper", "Hook"))

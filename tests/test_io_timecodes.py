"""Timecodes with frame numbers: drop-frame and not, against values computed by hand."""

import numpy as np
import pytest
from files import put

from hmmjax import io
from hmmjax.io.timecodes import NTSC, clock

#: Drop-frame timecode and the frame's number: two numbers less per minute, except every tenth.
DROPPED = {
    "00:00:59;29": 1799,
    "00:01:00;02": 1800,
    "00:01:59;29": 3597,
    "00:02:00;02": 3598,
    "00:09:59;29": 17981,
    "00:10:00;00": 17982,
    "00:10:00;01": 17983,
    "01:00:00;00": 107892,
    "10:00:00;00": 1078920,
}


@pytest.mark.parametrize(("text", "frame"), DROPPED.items())
def test_drop_frame_numbers(text, frame):
    for fps in (None, 29.97, NTSC):
        assert clock(text, fps)[0] == pytest.approx(frame / (fps or NTSC), abs=1e-9)
    # Within two frames of real time, for which numbers are dropped.
    hours, minutes, rest = text.split(":")
    seconds, number = map(int, rest.split(";"))
    assert abs(clock(text)[0] - (3600 * int(hours) + 60 * int(minutes) + seconds + number / 30)) < 0.07 * (
        1 + int(hours) / 2
    )


def test_every_frame_has_one_drop_frame_number():
    """Count through eleven minutes, at both rates."""
    for rate in (30, 60):
        left_out, times = rate // 15, []
        for second in range(11 * 60):
            first = left_out if second % 60 == 0 and second // 60 % 10 else 0
            for frame in range(first, rate):
                times.append(clock(f"00:{second // 60:02d}:{second % 60:02d};{frame:02d}", rate * 1000 / 1001)[0])
        np.testing.assert_allclose(times, np.arange(len(times)) / (rate * 1000 / 1001), atol=1e-9)


def test_other_timecodes():
    assert clock("00:01:00:12", 25)[0] == 60.48 and clock("00:01:00:12")[0] == 60.48
    assert clock("01:00:00:00", 29.97)[0] == pytest.approx(108000 / 29.97)
    assert clock("00:01:00.48")[0] == 60.48 and clock("01:30,5")[0] == 90.5


@pytest.mark.parametrize(
    ("text", "fps", "what"),
    [
        ("00:01:00;00", None, "does not exist: drop-frame timecode leaves it out"),
        ("00:01:00;01", 29.97, "does not exist"),
        ("00:01:00;03", 60000 / 1001, "does not exist"),
        ("00:01:00;02", 25, "exists at 29.97 and 59.94 frames per second, not at 25"),
        ("00:01:00:25", None, "is not a timecode at 25 frames per second, whose last number is 0 to 24"),
        ("00:61:00:00", 30, "is not a timecode"),
        ("1.5", None, "is not a timecode; write hh:mm:ss"),
    ],
)
def test_timecodes_that_do_not_exist(text, fps, what):
    with pytest.raises(ValueError, match=what):
        clock(text, fps)


def test_tables_of_timecodes(tmp_path):
    rows = "Phase,Start,End\nPreparation,00:00:00;00,00:01:00;02\nClippingCutting,00:01:00;02,00:10:00;00\n"
    (found,) = io.read_annotations(put(tmp_path, "video01.csv", rows), fps=29.97)
    assert np.bincount(found.values).tolist() == [1800, 0, 17982 - 1800]
    assert "hh:mm:ss;ff is read as drop-frame timecode at 29.97 frames per second" in found.notices[-1]
    # Without a rate the rows are at 25 per second; 1800 and 17982 frames are 60.06 and 599.9994 seconds.
    (found,) = io.read_annotations(put(tmp_path, "video01.csv", rows))
    assert np.bincount(found.values).tolist() == [1502, 0, 15000 - 1502]
    changes = "00:00:00:00 Preparation\n00:01:00:00 ClippingCutting\n"
    (found,) = io.read_annotations(put(tmp_path, "video02.txt", changes), fps=29.97)
    assert np.bincount(found.values).tolist() == [1800, 0, 1]
    assert "01:00:00:00 is 3,603.6 s into the video" in found.notices[-1]
    (found,) = io.read_annotations(put(tmp_path, "video02.txt", changes))
    assert np.bincount(found.values).tolist() == [1500, 0, 1] and "25 frames per second" in found.notices[-1]
    rows = "Phase,Start,End\nPreparation,00:00:00;00,00:01:00:02\n"
    with pytest.raises(io.FormatError, match="some timecodes are hh:mm:ss:ff, others hh:mm:ss;ff"):
        io.read_annotations(put(tmp_path, "video03.csv", rows), fps=29.97)
    rows = "Phase,Start,End\nPreparation,00:00:00;00,00:01:00;01\n"
    with pytest.raises(io.FormatError, match=r"line 2: '00:01:00;01' does not exist.*Fix: write the next frame"):
        io.read_annotations(put(tmp_path, "video03.csv", rows))

"""Read Faster R-CNN detections."""

import numpy as np
from files import fails, put

from hmmjax import io

T = io.CHOLEC80_TOOLS


DETECTIONS = "seq,frame," + ",".join(f"coord_{i:2d}" for i in range(1, 26)) + ",class,,,,\r\n"


def detection(frame, tool, *numbers, after=""):
    cells = [*map(str, numbers), *[""] * (25 - len(numbers))]
    return f"1,{frame:06d}.jpg,{','.join(cells)},{tool},{after},,,\r\n"


def test_detections_take_the_best_column_major_score(tmp_path):
    text = DETECTIONS + "".join(detection(0, t) for t in T)
    text += detection(25, T[0], 1, 2, 3, 4, 5, 6, 7, 8, 0.85, 0.93) + "".join(detection(25, t) for t in T[1:])
    (track,) = io.read(put(tmp_path, "tool_video_11_image_test.csv", text))
    assert track.video == "tool11"
    np.testing.assert_array_equal(track.values, [[0] * 7, [0.93, 0, 0, 0, 0, 0, 0]])


def test_damaged_detection_row_is_an_error_or_a_reported_hole(tmp_path):
    rows = [detection(f, t) for f in (0, 25, 50) for t in T]
    rows[7] = detection(25, T[0], *range(24), 0.98, after="0.96")
    path = put(tmp_path, "tool_video_11_image_test.csv", DETECTIONS + "".join(rows))
    assert fails("damaged row of Grasper in frame 25", path).line == 9
    (track,) = io.read(path, strict=False)
    np.testing.assert_array_equal(track.frames, [0, 50])
    assert "line 9 (Grasper, frame 25)" in track.notices[0]


def test_real_detections_equal_the_scores_npz(data_dir):
    with np.load(data_dir / "frcnn/scores_1fps.npz") as data:
        for tool_video, video in ((11, 61), (12, 62)):
            (track,) = io.read(data_dir / f"frcnn/tool_video_{tool_video}_image_test.csv", strict=False)
            rows = track.frames // 25
            kept = rows < len(data[f"score_{video}"])
            np.testing.assert_allclose(track.values[kept], data[f"score_{video}"][rows[kept]], atol=1e-6)
    fails("line 27029: damaged row of Grasper in frame 96525", data_dir / "frcnn/tool_video_11_image_test.csv")

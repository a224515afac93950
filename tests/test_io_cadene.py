"""Read Cadene's csv of phase probabilities."""

import numpy as np
from files import put

from hmmjax import io


def test_cadene(tmp_path):
    head = "imgpath;stepInt;stepStr;probas\n"
    rows = [
        f"workflow_video_02/workflow_video_02-{i:04d}.jpg;{s};{io.M2CAI16_PHASES[s - 1]};"
        + ";".join(map(str, np.eye(8)[s - 1]))
        for i, s in ((2, 3), (1, 1))
    ]
    path = put(tmp_path, "valset.csv", head + "\n".join(rows) + "\n")
    (track,) = io.read(path, phase_names="m2cai16")
    assert track.video == "workflow02"
    np.testing.assert_array_equal(track.frames, [24, 49])
    np.testing.assert_array_equal(track.values.argmax(1), [0, 2])
    np.testing.assert_array_equal(io.read(path, kind="labels", offset=0)[0].values, [0, 2])
    np.testing.assert_array_equal(io.read(path, kind="labels", offset=0)[0].frames, [0, 25])

"""The check of a copy of Cholec80: on the real labels if they are available, and on simulated ones."""

import numpy as np
import pytest
from annotation_files import phase_file, tool_file

from hmmjax.data import cholec80 as cholec80_check
from hmmjax.io import FormatError


@pytest.fixture(scope="module")
def real(data_dir):
    with np.load(data_dir / "cholec80" / "labels_1fps.npz") as labels:
        return {f"video{n:02d}": (labels[f"phase_{n:02d}"], labels[f"tools_{n:02d}"]) for n in range(1, 81)}


def test_real_labels_agree_with_every_figure(real):
    assert cholec80_check.differences(cholec80_check.statistics(real)) == []


def test_differences_are_found(real):
    phases, tools = real["video10"]
    changed = phases.copy()
    changed[:5] = 0
    lines = cholec80_check.differences(cholec80_check.statistics({**real, "video10": (changed, tools)}))
    assert "frames of Preparation: 8579 found, 8574 expected" in lines
    assert any("videos without Preparation" in line for line in lines)
    assert any("Preparation followed by CalotTriangleDissection: 72 found, 71" in line for line in lines)
    lines = cholec80_check.differences(cholec80_check.statistics({k: v for k, v in real.items() if k != "video80"}))
    assert "number of videos: 79 found, 80 expected" in lines


def test_swapped_phase_order_is_found(real):
    """TF-Cholec80 numbers packaging and retraction in reverse order."""
    swap = np.array([0, 1, 2, 3, 6, 5, 4])
    swapped = {video: (swap[phases], tools) for video, (phases, tools) in real.items()}
    lines = cholec80_check.differences(cholec80_check.statistics(swapped))
    assert any("GallbladderPackaging" in line for line in lines)


def test_check_reads_a_copy(annotations):
    root, _ = annotations
    lines = cholec80_check.check(root)
    assert lines[0] == "2 of 80 videos present, with phases and tools"
    assert "number of videos: 2 found, 80 expected; other counts are not compared" in lines
    assert not any("phase rows" in line for line in lines)


def test_missing_files_are_differences(annotations):
    root, _ = annotations
    tool_file(root, 2).rename(root / "tool_annotations" / "video90-tool.txt")
    lines = cholec80_check.check(root)
    assert "tool_annotations: 79 videos have no file: video02, video03, video04, video05, video06 ..." in lines
    assert (
        "tool_annotations: 1 files belong to no video of Cholec80: video90" in lines
        and "number of videos: 1 found, 80 expected; other counts are not compared" in lines
    )
    phase_file(root, 1).unlink()
    with pytest.raises(FormatError, match="no video has both"):
        cholec80_check.check(root)

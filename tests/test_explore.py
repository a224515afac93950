"""Exploration counts only annotated frames."""

import numpy as np
import pytest

from hmmjax import io
from hmmjax.explore import explore, write_exploration


@pytest.fixture
def annotations(tmp_path):
    np.savez(
        tmp_path / "labels.npz",
        phases_01=np.array([0, 0, 1, 1, 1]),
        tools_01=np.array([[1, 0], [1, 0], [0, 0], [1, 1], [1, 1]]),
        phases_02=np.array([1, 1, 0, -1, 0]),
        tools_02=np.array([[0, 0], [0, 0], [-1, 0], [1, 0], [1, 0]]),
        phase_names=np.array(["Alpha", "Beta"]),
        tool_names=np.array(["Knife", "Fork"]),
    )
    return io.read_annotations(tmp_path / "labels.npz", phase_names=["Alpha", "Beta"], tool_names=["Knife", "Fork"])


def test_counts_by_hand(annotations):
    found = explore(annotations)
    assert found.ids == ("video01", "video02") and found.step_seconds == 1
    np.testing.assert_array_equal(found.phase_frames, [[2, 3], [2, 2]])
    np.testing.assert_array_equal(found.phase_moves, [[1, 1], [1, 3]])  # nothing across the unknown frame
    assert found.orders == (((0, 1), 1),)
    np.testing.assert_array_equal(found.tool_frames, [[4, 2], [2, 0]])
    np.testing.assert_array_equal(found.tool_known, [[5, 5], [4, 5]])
    np.testing.assert_array_equal(found.tools_by_phase, [[3, 0], [2, 2]])
    np.testing.assert_array_equal(found.tools_at_once, [3, 4, 2])
    np.testing.assert_array_equal(found.tool_moves[0, 1], [[1, 1], [1, 1]])
    assert np.isnan(found.tool_transition[1, 0, 1]).all()


def test_gaps_are_no_moves(annotations):
    thinned = [t.take(np.array([0, 1, 3, 4])) for t in annotations]
    assert explore(thinned).phase_moves.sum() == 2 + 1


def test_the_end_of_the_operation_ends_a_stay(annotations, tmp_path):
    """A phase that ends once with a change and once with the operation has two durations."""
    found = explore(annotations)
    np.testing.assert_array_equal(found.phase_exits, [[0, 1, 1], [1, 0, 1]])
    np.testing.assert_array_equal(found.stay_seconds, [2, 2.5])  # four frames, five frames
    write_exploration(found, tmp_path / "e")
    page = (tmp_path / "e" / "tables" / "phase_stays.csv").read_text()
    assert "Alpha,2,1,2.0" in page.replace("\r", "")
    assert "Beta,(operation ends),1" in (tmp_path / "e" / "tables" / "phase_transitions.csv").read_text()
    for name, counted in (("tools_by_phase", "frames,annotated_frames"), ("tool_transitions", "count")):
        assert counted in (tmp_path / "e" / "tables" / f"{name}.csv").read_text().splitlines()[0]


def test_one_note_is_one_note(annotations, tmp_path):
    import dataclasses

    found = dataclasses.replace(explore(annotations), notices=("a note",))
    write_exploration(found, tmp_path)
    assert "1 note from reading" in (tmp_path / "explore.html").read_text()


def test_one_track_alone(annotations, tmp_path):
    for kind in ("phases", "tools"):
        found = explore([t for t in annotations if t.track == kind])
        files = write_exploration(found, tmp_path / kind)
        assert files[0].is_file() and (found.phase_moves is None) == (kind == "tools")
    with pytest.raises(FileExistsError):
        write_exploration(found, tmp_path / "tools")


def test_probabilities_are_refused(tmp_path):
    np.savez(tmp_path / "p.npz", phases_01=np.full((4, 2), 0.5))
    with pytest.raises(io.FormatError, match="holds probabilities, not labels"):
        explore(io.read(tmp_path / "p.npz"))
    with pytest.raises(io.FormatError, match="no annotations"):
        explore([])


def test_cholec80_is_as_published(data_dir):
    """Counts on Cholec80 equal the published ones: frames per phase, phase changes, orders, prevalence of tools."""
    found = explore(io.read_annotations(data_dir / "cholec80" / "labels_1fps.npz"))
    np.testing.assert_array_equal(found.phase_frames.sum(0), [8574, 74826, 14080, 58433, 7618, 14332, 6635])
    changes = {
        (0, 1): 71,
        (1, 2): 80,
        (2, 3): 80,
        (3, 4): 68,
        (3, 5): 12,
        (4, 5): 59,
        (4, 6): 21,
        (5, 4): 12,
        (5, 6): 59,
    }
    changes |= {(6, 5): 3}
    assert {at: n for at, n in np.ndenumerate(found.phase_moves) if n and at[0] != at[1]} == changes
    assert 82 < found.stay_seconds[6] < 84  # not the 36 minutes of a chain that knows no end
    assert [n for _, n in found.orders] == [51, 12, 8, 6, 2, 1]
    prevalence = found.tool_frames.sum(0) / found.tool_known.sum(0)
    np.testing.assert_allclose(prevalence, [0.556, 0.048, 0.559, 0.018, 0.032, 0.053, 0.062], atol=6e-4)
    np.testing.assert_array_equal(found.tools_at_once[:4], [23101, 80190, 78725, 2482])
    assert (found.tool_frames[:, 1] == 0).sum() == 8 and (found.tool_frames[:, 5] == 0).sum() == 19


def _phases(path, frames):
    path.write_text("Frame\tPhase\n" + "".join(f"{f}\tPreparation\n" for f in frames))
    return path


def test_hours_are_of_the_frames_that_were_counted(tmp_path):
    tracks = io.read_annotations(_phases(tmp_path / "video01-phase.txt", range(251)))
    assert explore(tracks).frames.tolist() == [251]
    thinned = explore(tracks, step=25)
    assert thinned.frames.tolist() == [11] == thinned.phase_frames.sum(1).tolist() and thinned.step_seconds == 1


def test_rates_that_differ_and_steps_that_are_none_are_refused(tmp_path):
    files = [_phases(tmp_path / f"video{v:02d}-phase.txt", range(0, 251, step)) for v, step in ((1, 1), (2, 25))]
    tracks = io.read_annotations(files)
    with pytest.raises(io.FormatError, match="video01 has one row per 1 frames, video02 one per 25"):
        explore(tracks)
    assert explore(tracks, step=25).frames.tolist() == [11, 11]
    with pytest.raises(io.FormatError, match="step is 0"):
        explore(tracks, step=0)
    other = io.read_annotations(files[1], fps=1.0)
    with pytest.raises(io.FormatError, match="1 and 25 frames per second"):
        explore([tracks[0], *other], step=1)


def test_files_of_its_names_are_not_written_over(tmp_path):
    found = explore(io.read_annotations(_phases(tmp_path / "video01-phase.txt", range(0, 251, 25))))
    (tmp_path / "tables").mkdir()
    with pytest.raises(FileExistsError, match=r"tables exists\. Fix"):
        write_exploration(found, tmp_path)
    assert not (tmp_path / "explore.html").exists()
    assert write_exploration(found, tmp_path, force=True)[0].is_file()


def test_annotations_without_a_label_are_refused(tmp_path):
    (tmp_path / "video01.txt").write_text("Frame\tPhase\n0\tunknown\n25\tunknown\n")
    with pytest.raises(io.FormatError, match="no frame is labeled"):
        explore(io.read_annotations(tmp_path))

"""What several files say of one video: classes meet by name, annotations add up, and names tell videos apart."""

import numpy as np
import pytest
from files import fails, put

from hmmjax import io
from hmmjax.data.annotations import check_complete
from hmmjax.data.simulated import write_simulation
from hmmjax.io import FormatError, Layout, Track
from hmmjax.simulate import Recognizer, simulate_surgeries


def track(kind, values, names=None, frames=None, video="video01", fps=25.0):
    values = np.asarray(values)
    frames = 25 * np.arange(len(values)) if frames is None else np.asarray(frames)
    layout = Layout("text", "labels" if values.dtype.kind == "i" else "probabilities")
    values = values.astype(np.int32 if values.dtype.kind == "i" else np.float64)
    return Track(video, kind, frames, values, names, fps, layout, f"{video}-{kind}.txt")


def test_classes_of_a_batch_meet_by_name():
    """Predictions in one order, a second video and its annotations in others."""
    said = track("tools", [[0.9, 0.2], [0.8, 0.1]], ("Hook", "Grasper"))
    other = track("tools", [[0.3, 0.7]], ("Grasper", "Hook"), video="video02")
    known = track("tools", [[0, 1], [1, 0]], ("Grasper", "Hook"))
    obs, labels, _, _ = io.to_batch(io.join([said, other]), [known])
    np.testing.assert_allclose(obs.tools[:, 0], [[0.9, 0.2], [0.7, 0.3]], rtol=1e-6)
    np.testing.assert_array_equal(labels.tools[0], [[1, 0], [0, 1]])
    phases = track("phases", [0, 1], ("B", "A"))
    _, labels, _, _ = io.to_batch(io.join([phases]), [track("phases", [0, 1], ("A", "B"))])
    np.testing.assert_array_equal(labels.phases[0], [1, 0])


@pytest.mark.parametrize(
    ("known", "cause"),
    [
        (track("tools", [[1, 0, 1]]), "3 tools are annotated, 2 are predicted"),
        (track("tools", [[1]]), "1 tools are annotated, 2 are predicted"),
        (track("tools", [[1, 0]], ("Hook", "Clipper")), "Clipper"),
    ],
)
def test_annotations_of_other_classes_are_refused(known, cause):
    with pytest.raises(FormatError, match=cause):
        io.to_batch(io.join([track("tools", [[0.9, 0.2]], ("Hook", "Grasper"))]), [known])
    phases = track("phases", [[0.2, 0.8]])
    with pytest.raises(FormatError, match="3 phases are annotated, 2 are predicted"):
        io.to_batch(io.join([phases]), [track("phases", [2], ("A", "B", "C"))])
    with pytest.raises(FormatError, match="time step of 0"):
        io.to_batch(io.join([phases]), step=0)


def test_annotations_of_one_video_add_up_or_contradict():
    said = track("tools", [[0.9, 0.2], [0.8, 0.1], [0.5, 0.5]])
    known = track("tools", [[1, 0], [1, -1]])
    answer = track("tools", [[-1, 1]], frames=[25])
    for order in ([known, answer], [answer, known]):
        labels = io.to_batch(io.join([said]), order)[1]
        np.testing.assert_array_equal(labels.tools[0], [[1, 0], [1, 1], [-1, -1]])
    with pytest.raises(FormatError, match="in frame 25 are not what"):
        io.to_batch(io.join([said]), [known, track("tools", [[0, -1]], frames=[25])])


def test_rows_lost_between_two_counters_are_reported():
    phases = track("phases", np.arange(61) % 2, frames=np.arange(61), fps=60.0)
    tools = track("tools", [[0]] * 3, frames=[0, 24, 25], fps=50.0)
    (video,) = io.join([phases, tools])
    assert video.frames.tolist() == [0, 30]
    assert video.notices[0].startswith("video01: 1 tools row(s) fall between two frames of a counter at 60 per second")


@pytest.mark.parametrize(
    ("one", "other"),
    [("video1_1", "video101"), ("case1-1", "case101"), ("P11_2", "P1_102"), ("case1-2-3", "case12-3"),
     ("David_01", "da01"), ("covid 7", "co7")],
)  # fmt: skip
def test_different_videos_have_different_ids(one, other):
    assert io.video_id(one) != io.video_id(other)


@pytest.mark.parametrize("name", ["patient-a", "patient b", "case.x", "a+b", "video03"])
def test_any_name_survives_an_npz(tmp_path, name):
    frames = np.array([100, 200, 300])
    np.savez(tmp_path / "p.npz", **{f"phases_{name}": [0, 1, 1], f"frames_{name}": frames, f"truth_phases_{name}": [0]})
    (found,) = io.read(tmp_path / "p.npz")
    assert found.video == io.video_id(name) and found.frames.tolist() == frames.tolist() and not found.notices


def test_frames_are_found_by_video_and_strays_are_named(tmp_path):
    np.savez(tmp_path / "p.npz", phases_01=[0, 1], frames_1=[100, 200], frames_7=[0, 25])
    (found,) = io.read(tmp_path / "p.npz")
    assert found.frames.tolist() == [100, 200]
    assert found.notices[-1].endswith("frame numbers of no predictions: frames_7")


def test_arrays_that_say_nothing_of_predictions_are_not_read(tmp_path, monkeypatch):
    """A small file may promise gigabytes in an array that nobody asked for."""
    np.savez(tmp_path / "p.npz", phases_01=[0, 1], features_01=np.zeros((4, 4)))
    read = np.lib.npyio.NpzFile.__getitem__
    asked = []
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", lambda self, key: asked.append(key) or read(self, key))
    (found,) = io.read(tmp_path / "p.npz")
    assert asked == ["phases_01"] and "features_01" in found.notices[-1]


def test_hidden_files_are_passed_over(tmp_path):
    put(tmp_path, "video01-phase.txt", "Frame\tPhase\n0\tPreparation\n")
    put(tmp_path, "._video01-phase.txt", "\x00\x05\x16\x07")
    put(tmp_path, ".phases.npz.abc.npz", "half")
    (found,) = io.read(tmp_path)
    assert found.video == "video01" and not found.notices


def test_spreadsheets_dialects(tmp_path):
    quoted = put(tmp_path, "video01.csv", '"Frame","Phase"\n0,"Preparation"\n25,"CleaningCoagulation"\n')
    assert io.read(quoted)[0].values.tolist() == [0, 5]
    for text in ("Frame;Phase\n0;Preparation\n", "Frame;Grasper;Hook\n0;1;0\n"):
        fails("separated by ';'", put(tmp_path, "video02.txt", text))
    names = put(tmp_path, "names.txt", "\ufeffOpen\nClose\n")
    text = put(tmp_path, "video03-phase.txt", "Frame\tPhase\n0\tOpen\n")
    assert io.read(text, phase_names=str(names))[0].names == ("Open", "Close")


def test_lines_are_counted_with_the_blank_ones(tmp_path):
    path = put(tmp_path, "video01-phase.txt", "Frame\tPhase\n\n0\tPreparation\n\n25\tPreparation\n50\tPreparation\n"
               "\n\n100\tPreparation\n")  # fmt: skip
    with pytest.raises(FormatError, match=r"video01-phase.txt, line 9: rows are missing between frames 50 and 100"):
        check_complete(io.read(path)[0])


def test_two_simulations_never_mix(tmp_path):
    surgeries = simulate_surgeries(1, minutes=0.3)
    with io.claim(tmp_path / "s"), pytest.raises(FileExistsError, match="another process"):
        write_simulation(tmp_path / "s", surgeries, force=True)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "predictions.npz").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="not empty"):
        write_simulation(tmp_path / "t", surgeries)
    assert [p.name for p in (tmp_path / "t").iterdir()] == ["predictions.npz"]
    for bad in ({"minutes": np.inf}, *({"recognizer": Recognizer(noise=x)} for x in (np.nan, np.inf, -1))):
        with pytest.raises(ValueError, match=r"minutes|noise"):
            simulate_surgeries(1, **bad)


def test_what_is_no_array_is_named(tmp_path):
    import zipfile

    np.savez(tmp_path / "p.npz", phases_01=[0, 1])
    with zipfile.ZipFile(tmp_path / "p.npz", "a") as archive:
        archive.writestr("phases_02", b"notes")
    fails("phases_02 is no array", tmp_path / "p.npz")


def test_names_that_differ_by_video_stay_apart(tmp_path):
    tracks = [track("phases", [0, 1], video=name) for name in ("A", "videoA", "video7")]
    io.write_posteriors(tmp_path / "p.npz", tracks)
    assert [t.video for t in io.read(tmp_path / "p.npz")] == ["A", "video07", "videoA"]


def test_results_never_go_over_what_was_read(tmp_path):
    put(tmp_path / "phases", "video01.csv", "Frame,Phase\n0,0\n25,1\n")
    said = io.read(tmp_path / "phases")
    with pytest.raises(FormatError, match="would be written over"):
        io.write(said, tmp_path, like=said, force=True)
    assert io.plan_files(tmp_path / "out", said) == {said[0].source: tmp_path / "out" / "phases" / "video01.csv"}


def test_leftovers_of_a_killed_run_go_and_its_results_are_doubted(tmp_path):
    from hmmjax.io.folder import MARKER

    put(tmp_path, MARKER, "")
    put(tmp_path, "stabilized.npz", "")
    np.savez(tmp_path / "stabilized.npz", phases_01=[0, 1], frames_01=[0, 25])
    left = put(tmp_path / "pictures", ".video01.png.svkkr2f2.png", "half")
    mine = put(tmp_path / "pictures", ".keep", "")
    assert "did not finish" in " ".join(io.read(tmp_path)[0].notices)
    with io.claim(tmp_path) as overwrite:
        assert overwrite
    assert not left.exists() and mine.exists()

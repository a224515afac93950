"""Joining on frames, padding, and writing back: nothing is matched by row number and nothing is lost silently."""

from pathlib import Path

import numpy as np
import pytest

from hmmjax import io
from hmmjax.io import Layout, Track

P, T = io.CHOLEC80_PHASES, io.CHOLEC80_TOOLS


def track(kind, frames, values, video="video01", fps=25.0, names=None):
    values = np.asarray(values)
    values = values.astype(np.int32 if values.dtype.kind in "iu" else np.float64)
    layout = Layout("text", "labels" if values.dtype.kind == "i" else "probabilities")
    return Track(video, kind, np.asarray(frames, np.int64), values, names, fps, layout, f"{video}-{kind}.txt")


def phases(frames, **more):
    return track("phases", frames, np.asarray(frames) // 25 % 7, **more)


def tools(frames, **more):
    return track("tools", frames, np.tile((np.asarray(frames) // 25 % 2)[:, None], 7), **more)


# --- join --------------------------------------------------------------------------------------------------------


def test_every_frame_of_phases_and_each_25th_of_tools():
    """Cholec80: 43,326 phase rows and 1,733 tool rows are 1,733 joint frames; the tail is reported."""
    (video,) = io.join([phases(np.arange(43_326)), tools(np.arange(1_733) * 25)])
    assert len(video.frames) == 1_733
    np.testing.assert_array_equal(video.frames, np.arange(1_733) * 25)
    np.testing.assert_array_equal(video.phases.values, np.arange(1_733) % 7)
    np.testing.assert_array_equal(video.tools.values[:, 0], np.arange(1_733) % 2)
    assert video.notices == ("video01: 25 phases row(s) without tools left out (43301 to 43325)",)


def test_one_row_more_in_one_file_is_matched_by_frame():
    (video,) = io.join([phases(np.arange(10) * 25), tools(np.arange(1, 10) * 25)])
    np.testing.assert_array_equal(video.phases.values, np.arange(1, 10) % 7)
    assert video.notices == ("video01: 1 phases row(s) without tools left out (frame 0)",)


def test_different_counters_meet_in_time():
    (video,) = io.join([phases(np.arange(0, 100, 25)), tools(np.arange(4), fps=1.0)])
    np.testing.assert_array_equal(video.frames, [0, 25, 50, 75])
    np.testing.assert_array_equal(video.tools.frames, [0, 25, 50, 75])


def test_no_common_frame():
    with pytest.raises(io.FormatError, match=r"no frame in common.*fps, step, offset"):
        io.join([phases(np.arange(0, 100, 25)), tools(np.arange(0, 100, 25) + 24)])


def test_only_some_videos_have_both():
    with pytest.raises(io.FormatError, match="video02 has no tools, video01 do"):
        io.join([phases([0]), tools([0]), phases([0], video="video02")])


# --- annotations -------------------------------------------------------------------------------------------------


def test_labels_are_found_by_frame_and_gaps_are_unknown():
    values, told = io.label_rows(phases(np.arange(25, 300)), np.array([0, 25, 50, 400]), 25.0)
    np.testing.assert_array_equal(values, [-1, 1, 2, -1])
    assert told == ["video01: 2 predicted frame(s) without annotated phases (0 to 400)"]


def test_annotated_tail_is_reported():
    values, told = io.label_rows(phases(np.arange(0, 200, 25)), np.array([0, 25, 50]), 25.0)
    np.testing.assert_array_equal(values, [0, 1, 2])
    assert told == ["video01: 5 annotated phases row(s) after the last prediction (frame 50) not used"]


def test_annotations_on_another_counter():
    values, _ = io.label_rows(phases(np.arange(0, 200, 25)), np.array([0, 2]), 1.0)
    np.testing.assert_array_equal(values, [0, 2])


def test_annotations_of_other_videos():
    videos = io.join([phases([0, 25], video="tool11")])
    with pytest.raises(io.FormatError, match=r"predictions are of tool11, annotations of video61.*rename"):
        io.to_batch(videos, [phases([0, 25], video="video61")])
    *_, index = io.to_batch(videos, [phases([0, 25], video="tool11"), phases([0], video="video61")])
    assert any("1 annotated video(s) without predictions teach nothing" in n and "video61" in n for n in index.notices)


# --- batch -------------------------------------------------------------------------------------------------------


def test_batch_pads_and_splits_back():
    tracks = [phases(np.arange(n) * 25, video=f"video{n:02d}") for n in (3, 5)]
    obs, labels, mask, index = io.to_batch(io.join(tracks), [tracks[1]])
    np.testing.assert_array_equal(mask, [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    assert obs.phases.dtype == np.int32 and obs.tools is None and labels.tools is None
    np.testing.assert_array_equal(labels.phases, [[-1] * 5, [0, 1, 2, 3, 4]])
    assert (index.ids, index.step, index.step_seconds) == (("video03", "video05"), 25, 1.0)
    for back, one in zip(index.split(obs.phases), tracks, strict=True):
        np.testing.assert_array_equal(back, one.values)
    with pytest.raises(ValueError, match="expected"):
        index.split(np.zeros((2, 4)))


def test_time_passes_between_timestamps_that_are_apart():
    obs, _, mask, index = io.to_batch(io.join([phases([0, 25, 50, 400])]))
    assert obs.phases.shape == (1, 17) and index.length == 17
    np.testing.assert_array_equal(np.flatnonzero(mask[0]), [0, 1, 2, 16])
    np.testing.assert_array_equal(index.split(obs.phases)[0], [0, 1, 2, 400 // 25 % 7])
    assert "video01 (13)" in index.notices[-1]


def test_a_declared_step_inserts_frames_between_all_rows():
    _, _, mask, index = io.to_batch(io.join([phases([0, 50, 100])]), step=25)
    np.testing.assert_array_equal(mask, [[1, 0, 1, 0, 1]])
    assert index.step_seconds == 1.0


def test_a_video_may_start_late_and_have_one_frame():
    _, _, mask, index = io.to_batch(io.join([phases([4000])]))
    assert mask.tolist() == [[True]] and index.frames[0].tolist() == [4000]


@pytest.mark.parametrize(
    ("tracks", "cause"),
    [
        ([phases([0, 25, 50, 60, 75])], "frame 60 does not fall on steps of 25"),
        (
            [phases([0, 25, 50]), phases([0, 5, 10], video="video02")],
            "video01 has a row each 25 frames, video02 each 5",
        ),
        ([phases([0, 25]), phases([0, 1], video="video02", fps=1.0)], "video02 counts 1 frames per second"),
        (
            [phases([0, 25]), track("phases", [0, 25], np.full((2, 7), 1 / 7), video="video02")],
            r"video02 holds probabilities \(7,\), video01 labels",
        ),
        ([], "no videos"),
    ],
)
def test_videos_that_do_not_go_together(tracks, cause):
    with pytest.raises(io.FormatError, match=cause):
        io.to_batch(io.join(tracks))


def test_sample_thins_annotations_and_refuses_coarser_ones():
    (video,) = io.join([phases(np.arange(101))])
    np.testing.assert_array_equal(io.sample(video, 1.0).frames, [0, 25, 50, 75, 100])
    np.testing.assert_array_equal(io.sample(video, 0.2).frames, np.arange(0, 101, 5))
    with pytest.raises(io.FormatError, match=r"a row each 1 s, the model steps by 0.2 s"):
        io.sample(io.sample(video, 1.0), 0.2)
    with pytest.raises(io.FormatError, match=r"no steps of 0.03 s"):
        io.sample(video, 0.03)


# --- writing -----------------------------------------------------------------------------------------------------

HEADS = "w_02-0001.jpg;1;TrocarPlacement", "w_02-0002.jpg;2;Preparation"


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("video1-phase.txt", f"Frame\tPhase\r\n0\t{P[1]}\r\n25\t{P[2]}\r\n", {}),
        ("video1-phase.txt", f"Frame Phase\n0\t{P[1]}\n25\t{P[2]}\n", {}),
        ("video1-phase.txt", "Frame Phase\n0 Calot Triangle Dissection\n25 clipping_cutting\n", {}),
        ("video1-phase.txt", "0\t6\n25\t1\n", {}),
        ("video1-tool.txt", "Frame\tHook\tGrasper\n0\t1\t0\n25\t0\t0\n", {}),
        ("video1-tool.txt", "Frame Tool1 Tool2\n0\t-1.5\t2.25\t\n25\t0\t8\t\n", {"kind": "logits"}),
        ("video1.csv", f"Phase,Hook,Frame\n{P[3]},0.25,0\n{P[4]},0.75,25\n", {}),
        ("a.csv", f"imgpath;stepInt;stepStr;p\n{HEADS[0]};0.25;0.75\n{HEADS[1]};1;0\n", {}),
    ],
)
def test_text_is_written_as_it_was_read(tmp_path, name, text, options):
    source = tmp_path / "in" / name
    source.parent.mkdir()
    source.write_bytes(text.encode())
    tracks = io.read(source, **options)
    (written,) = io.write(tracks, tmp_path / "out", like=tracks)
    assert written.name == name
    if options.get("kind") == "logits":
        again = io.read(written, **options)
        np.testing.assert_allclose(again[0].values, tracks[0].values, rtol=1e-7)
        assert written.read_text().splitlines()[0] == text.splitlines()[0] and written.read_text().count("\t\n") == 2
    elif name == "a.csv":
        assert written.read_text() == text.split("\n", 1)[1]
    else:
        assert written.read_bytes() == text.encode()


def test_posteriors_become_what_the_file_held(tmp_path):
    source = tmp_path / "video1-phase.txt"
    source.write_text("Frame\tPhase\n0\tPreparation\n25\tPreparation\n")
    (like,) = io.read(source)
    result = track("phases", [25], np.eye(7)[[3]], names=P)  # one frame fewer than was read
    (written,) = io.write([result], tmp_path / "out", like=[like])
    assert written == tmp_path / "out" / "phases" / "video1-phase.txt"
    assert written.read_text() == "Frame\tPhase\n25\tGallbladderDissection\n"


def test_results_in_another_class_order_are_put_back(tmp_path):
    source = tmp_path / "video1-phase.txt"
    source.write_text("0\t4\n")
    (like,) = io.read(source, phase_names="tf-cholec80")
    result = track("phases", [0], np.eye(7)[[P.index("GallbladderPackaging")]], names=P)
    (written,) = io.write([result], tmp_path / "out", like=[like])
    assert written.read_text() == "0\t6\n"


def test_npz_and_npy_are_written_as_they_were_read(tmp_path):
    p = np.random.default_rng(0).dirichlet(np.ones(7), 3)
    np.savez(tmp_path / "both.npz", phases_1=p, tools_1=np.array([[0.1], [0.9], [0.5]]), phase_names=P)
    np.save(tmp_path / "video2-phase.npy", np.array([1, 2]))
    tracks = io.read([tmp_path / "both.npz", tmp_path / "video2-phase.npy"])
    both, npy = io.write(tracks, tmp_path / "out", like=tracks)
    assert both == tmp_path / "out" / "both" / "both.npz" and npy.parent.name == "phases"
    for a, b in zip(io.read([both, npy]), tracks, strict=True):
        np.testing.assert_allclose(a.values, b.values, rtol=1e-6)
        np.testing.assert_array_equal(a.frames, b.frames)


def test_posterior_file_reads_back(tmp_path):
    tracks = [phases([0, 50], video="workflow02", names=P), tools([0, 50], names=T), phases([0, 50], names=P)]
    io.write_posteriors(tmp_path / "stabilized.npz", tracks, log_likelihood={"video01": -1.5})
    again = {(t.video, t.track): t for t in io.read(tmp_path / "stabilized.npz")}
    assert set(again) == {("workflow02", "phases"), ("video01", "tools"), ("video01", "phases")}
    np.testing.assert_array_equal(again["workflow02", "phases"].frames, [0, 50])
    assert again["video01", "tools"].names == T


def test_writing_is_atomic_and_never_overwrites(tmp_path):
    path = tmp_path / "file.txt"
    with pytest.raises(RuntimeError), io.write_atomically(path) as temporary:
        Path(temporary).write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="force"), io.write_atomically(path):
        pass
    with io.write_atomically(path, force=True) as temporary:
        assert path.read_text() == "mine"
        with open(temporary, "w") as file:
            file.write("new")
    assert path.read_text() == "new" and len(list(tmp_path.iterdir())) == 1


def test_two_inputs_of_one_name_do_not_overwrite_each_other(tmp_path):
    tracks = []
    for i, folder in enumerate("ab"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pred.npz").touch()
        np.savez(tmp_path / folder / "pred.npz", **{f"phases_{i}": np.zeros(2, int)})
        tracks += io.read(tmp_path / folder)
    with pytest.raises(io.FormatError, match="both be written"):
        io.write(tracks, tmp_path / "out", like=tracks)


@pytest.mark.parametrize(
    ("step", "rows", "options", "doubted"),
    [(1, 2000, {}, True), (25, 2000, {}, False), (1, 20_000, {}, False), (1, 2000, {"fps": 1}, False)],
)
def test_rows_numbered_in_seconds_are_noticed(tmp_path, step, rows, options, doubted):
    lines = [f"{i * step}\tPreparation" for i in range(rows)]
    (tmp_path / "video01-phase.txt").write_text("Frame\tPhase\n" + "\n".join(lines) + "\n")
    (track,) = io.read(tmp_path, phase_names="cholec80", **options)
    assert any("--fps 1" in notice for notice in track.notices) == doubted

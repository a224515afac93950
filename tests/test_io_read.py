"""Readers: every layout, class orders, and real files; what is refused is in test_io_refused."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from files import fails, put

from hmmjax import io

P, T = io.CHOLEC80_PHASES, io.CHOLEC80_TOOLS


# --- layouts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("sep", ["\t", " "])
@pytest.mark.parametrize("trail", ["", "\t"])
def test_cholec80_phase_txt(tmp_path, end, sep, trail):
    if sep == " " and trail:
        pytest.skip("trailing tabs come with tabs")
    lines = [sep.join(("Frame", "Phase")), *(f"{i}{sep}{P[i // 2]}{trail}" for i in range(6)), ""]
    (track,) = io.read(put(tmp_path, "video07-phase.txt", end.join(lines)))
    assert (track.video, track.track, track.names) == ("video07", "phases", P)
    np.testing.assert_array_equal(track.frames, np.arange(6))
    np.testing.assert_array_equal(track.values, [0, 0, 1, 1, 2, 2])
    assert track.values.dtype == np.int32


def test_cholec80_tool_txt(tmp_path):
    text = "Frame\t" + "\t".join(T) + "\n0\t1\t0\t0\t0\t0\t0\t0\n25\t0\t1\t0\t0\t0\t0\t1\n"
    (track,) = io.read(put(tmp_path, "video07-tool.txt", text))
    assert (track.track, track.names, track.layout.kind) == ("tools", T, "labels")
    np.testing.assert_array_equal(track.values, [[1, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 1]])


def test_mtrcnet_phase_header_with_space_and_rows_with_tab(tmp_path):
    (track,) = io.read(put(tmp_path, "video41-phase.txt", f"Frame Phase\n0\t{P[3]}\n25\t{P[4]}\n"))
    np.testing.assert_array_equal(track.values, [3, 4])
    np.testing.assert_array_equal(track.frames, [0, 25])


def test_mtrcnet_tool_logits_with_trailing_tab(tmp_path):
    header = "Frame " + " ".join(f"Tool{i}" for i in range(1, 8))
    path = put(tmp_path, "video41-tool.txt", f"{header}\n0\t" + "\t".join(["-2.0", "0.0", *["5.5"] * 5]) + "\t\n")
    (track,) = io.read(path, kind="logits", tool_names="cholec80")
    np.testing.assert_allclose(track.values[0, :3], [1 / (1 + np.e**2), 0.5, 1 / (1 + np.exp(-5.5))], rtol=1e-14)
    assert track.names == T
    assert io.read(path, kind="logits")[0].names is None
    error = fails("not a probability", path)
    assert error.line == 2 and "logits" in error.fix


def test_tmrnet_has_no_header_and_its_first_row_is_kept(tmp_path):
    (track,) = io.read(put(tmp_path, "video41-phase.txt", "0\t6\n25\t1\n50\t1\n"))
    np.testing.assert_array_equal(track.values, [6, 1, 1])
    assert track.names is None and track.layout.header is None


def test_surgformer(tmp_path):
    (track,) = io.read(put(tmp_path, "video-41.txt", "Frame\tPhase\n0\t0\n1\t1\n"), fps=1, phase_names="cholec80")
    assert track.video == "video41" and track.fps == 1
    np.testing.assert_array_equal(track.seconds, [0, 1])


def test_csv_of_probabilities_in_any_class_order_and_spelling(tmp_path):
    order = [3, 0, 6, 5, 4, 1, 2]
    spelt = [" ".join(P[i]).replace(" ", "_").lower() if i % 2 else P[i].upper() for i in order]
    probabilities = np.random.default_rng(0).dirichlet(np.ones(7), 4).round(6)
    rows = [",".join([str(f), *map(str, r)]) for f, r in zip(range(0, 100, 25), probabilities, strict=True)]
    path = put(tmp_path, "video01.csv", "\n".join([",".join(["Frame", *spelt]), *rows]))
    (track,) = io.read(path)
    assert track.names == tuple(P[i] for i in order)
    np.testing.assert_allclose(track.values.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(track.reorder(P).values, probabilities[:, np.argsort(order)], atol=1e-5)


def test_csv_with_phase_and_tools_and_frame_column_elsewhere(tmp_path):
    text = f"Phase,Hook,Frame,Grasper\n{P[2]},0.25,0,1.0\n{P[3]},0.5,25,0.0\n"
    phases, tools = io.read(put(tmp_path, "video01.csv", text))
    np.testing.assert_array_equal(phases.values, [2, 3])
    assert tools.names == ("Hook", "Grasper")
    np.testing.assert_array_equal(tools.values, [[0.25, 1], [0.5, 0]])


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


def test_m2cai16_workflow_prediction(tmp_path):
    path = put(tmp_path, "workflow_video_02_pred.txt", "Frame\tPhase\n0\tTrocarPlacement\n1\tPreparation\n")
    assert io.read(path, phase_names="m2cai16")[0].video == "workflow02"
    assert "phase_names" in fails("unknown phase 'TrocarPlacement'", path).fix


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


def test_npz_keys_names_and_logits(tmp_path):
    logits = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    np.savez(tmp_path / "a.npz", logits_71=logits, stages_71=logits, phase_names=np.array(P))
    (track,) = io.read(tmp_path / "a.npz")
    assert (track.video, track.track, track.layout.kind) == ("video71", "phases", "logits")
    np.testing.assert_allclose(track.values, np.exp(logits) / np.exp(logits).sum(1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(track.frames, [0, 25, 50, 75, 100])
    told = " ".join(track.notices)
    assert "stages_71" in told and "no frame numbers" in told and "logits" in told


def test_npz_with_own_frames_and_fps(tmp_path):
    np.savez(tmp_path / "a.npz", tools_1=np.zeros((3, 2)), frames_1=[0, 1, 4], fps=1.0, tool_names=["Hook", "Clipper"])
    (track,) = io.read(tmp_path / "a.npz")
    assert track.fps == 1 and track.names == ("Hook", "Clipper")
    np.testing.assert_array_equal(track.frames, [0, 1, 4])
    fails("counts 1 frames per second, 25 were declared", tmp_path / "a.npz", fps=25)


def test_npy_one_array_per_video(tmp_path):
    np.save(tmp_path / "video09-tool.npy", np.full((4, 7), 0.25))
    (track,) = io.read(tmp_path, tool_names="cholec80")
    assert (track.video, track.track) == ("video09", "tools")
    np.save(tmp_path / "video10.npy", np.full((4, 7), 0.25))
    fails("phases or tools", tmp_path / "video10.npy")


def test_large_and_small_logits_do_not_overflow(tmp_path):
    np.savez(tmp_path / "a.npz", phases_1=np.array([[1e4, -1e4]]), tools_1=np.array([[1e4, -1e4]]))
    phases, tools = io.read(tmp_path / "a.npz", kind="logits")
    np.testing.assert_array_equal(phases.values, [[1, 0]])
    np.testing.assert_array_equal(tools.values, [[1, 0]])


def test_rounding_beyond_one_is_clipped(tmp_path):
    np.savez(tmp_path / "a.npz", tools_1=np.array([[1 + 1e-6, -1e-6]]))
    np.testing.assert_array_equal(io.read(tmp_path / "a.npz")[0].values, [[1, 0]])
    np.savez(tmp_path / "b.npz", tools_1=np.array([[1 + 1e-4]]))
    fails("not a probability", tmp_path / "b.npz")


def test_kind_per_track(tmp_path):
    put(tmp_path, "video1-phase.txt", f"Frame\tPhase\n0\t{P[0]}\n")
    put(tmp_path, "video1-tool.txt", "Frame\tHook\n0\t-3.5\n")
    _, tools = io.read(tmp_path, kind={"tools": "logits"})
    assert 0.02 < tools.values[0, 0] < 0.04
    fails("one column of phases holds labels", tmp_path, kind="logits")


# --- videos and files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("video41-phase.txt", "video41"),
        ("video-41.txt", "video41"),
        ("VID41", "video41"),
        ("41", "video41"),
        ("video01-tool.npy", "video01"),
        ("video1.csv", "video01"),
        ("workflow_video_02_pred.txt", "workflow02"),
        ("workflow_video_02.txt", "workflow02"),
        ("test_workflow_video_02.txt", "testworkflow02"),
        ("tool_video_11_image_test.csv", "tool11"),
        ("surgery.csv", "surgery"),
    ],
)
def test_video_id(name, expected):
    assert io.video_id(name) == expected


def test_natural_order(tmp_path):
    for i in (10, 9, 1):
        put(tmp_path, f"video{i}.txt", "0\t1\n")
    assert [t.video for t in io.read(tmp_path)] == ["video01", "video09", "video10"]


def test_two_files_for_one_video(tmp_path):
    put(tmp_path, "video1.txt", "0\t1\n")
    put(tmp_path, "video01-phase.txt", "0\t1\n")
    assert "one file per video" in fails("phases of video01 were already read from .*txt", tmp_path).fix


def test_rename(tmp_path):
    put(tmp_path, "tool_video_11.csv", "Frame,Hook\n0,0.5\n")
    assert io.read(tmp_path, rename={"tool_video_11": "61"})[0].video == "video61"
    fails("no video video99 to rename", tmp_path, rename={"99": "1"})


def test_pickles_are_refused_unread(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    (tmp_path / "a.pkl").write_bytes(pickle.dumps(Bomb()))
    np.save(tmp_path / "b.npy", np.array([Bomb()]), allow_pickle=True)
    np.savez(tmp_path / "c.npz", phases_1=np.array([Bomb()]))
    for name in ("a.pkl", "b.npy", "c.npz"):
        assert "np.savez" in fails(".", tmp_path / name).fix
    (tmp_path / "d.npy").write_bytes(pickle.dumps(Bomb()))
    fails(".", tmp_path / "d.npy")
    assert not (tmp_path / "exploded").exists()


def test_passed_over_files_are_reported(tmp_path):
    put(tmp_path, "video1.txt", "0\t1\n")
    put(tmp_path, "video1-timestamp.txt", "junk")
    put(tmp_path, "old.pkl", "")
    (track,) = io.read(tmp_path)
    assert "old.pkl" in track.notices[0] and "timestamp" in track.notices[0]


# --- class order -------------------------------------------------------------------------------------------------


def test_a_permuted_header_gives_the_same_named_result(tmp_path):
    order = [6, 2, 0, 1, 5, 4, 3]
    values = np.random.default_rng(1).integers(0, 2, (3, 7))
    for name, columns in (("a", range(7)), ("b", order)):
        columns = list(columns)
        lines = ["Frame\t" + "\t".join(T[i] for i in columns)]
        lines += [f"{25 * r}\t" + "\t".join(str(values[r, i]) for i in columns) for r in range(3)]
        put(tmp_path, f"{name}/video1-tool.txt", "\n".join(lines))
    a, b = (io.read(tmp_path / name)[0] for name in "ab")
    assert b.names != a.names
    np.testing.assert_array_equal(b.reorder(a.names).values, a.values)


def test_tf_cholec80_order_is_moved_by_name(tmp_path):
    (track,) = io.read(put(tmp_path, "video1.txt", "0\t4\n25\t5\n50\t6\n"), phase_names="tf-cholec80")
    np.testing.assert_array_equal(track.reorder(P).values, [6, 5, 4])


def test_indices_never_meet_names_without_a_declared_order(tmp_path):
    (plain,) = io.read(put(tmp_path, "video1.txt", "0\t4\n"))
    (named,) = io.read(put(tmp_path, "b/video1.txt", f"Frame\tPhase\n0\t{P[4]}\n"))
    with pytest.raises(io.FormatError, match=r"by index only.*phase_names="):
        io.align_classes([plain, named])
    tracks, names = io.align_classes([plain, plain])
    assert names is None and tracks[0] is plain


def test_a_missing_class_is_named(tmp_path):
    (six,) = io.read(put(tmp_path, "video1.csv", "Frame," + ",".join(T[:6]) + "\n0" + ",1" * 6 + "\n"))
    with pytest.raises(io.FormatError, match="no tool 'SpecimenBag'"):
        six.reorder(T)
    fails("no column for SpecimenBag", tmp_path / "video1.csv", tool_names="cholec80")


# --- real files --------------------------------------------------------------------------------------------------


def test_real_detections_equal_the_scores_npz(data_dir):
    with np.load(data_dir / "frcnn/scores_1fps.npz") as data:
        for tool_video, video in ((11, 61), (12, 62)):
            (track,) = io.read(data_dir / f"frcnn/tool_video_{tool_video}_image_test.csv", strict=False)
            rows = track.frames // 25
            kept = rows < len(data[f"score_{video}"])
            np.testing.assert_allclose(track.values[kept], data[f"score_{video}"][rows[kept]], atol=1e-6)
    fails("line 27029: damaged row of Grasper in frame 96525", data_dir / "frcnn/tool_video_11_image_test.csv")


def test_real_tmrnet_and_labels(data_dir):
    tracks = io.read(data_dir / "tmrnet/pred-phase", phase_names="cholec80")
    assert [t.video for t in tracks] == [f"video{i}" for i in range(41, 61)]
    assert all((t.values[:9] == 0).all() for t in tracks)
    labels = io.read_annotations(data_dir / "cholec80/labels_1fps.npz")
    assert sum(len(t.frames) for t in labels if t.track == "tools") == 184_498
    truth = {t.video: t for t in labels if t.track == "phases"}
    for track in io.read_annotations(data_dir / "tmrnet/gt-phase", phase_names="cholec80"):
        # The txt has one frame more than the tool-aligned NPZ: only a join on frames finds zero mismatches.
        values, _ = io.label_rows(track, truth[track.video].frames, 25)
        np.testing.assert_array_equal(values, truth[track.video].values)

"""Write results in the layout that was read, and result files."""

import numpy as np
import pytest
from files import phases, put, tools, track

from hmmjax import io

P, T = io.CHOLEC80_PHASES, io.CHOLEC80_TOOLS


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


@pytest.mark.parametrize("name", ["video1-phase.txt", "video1.csv", "boxes.csv"])
@pytest.mark.parametrize(
    ("mark", "codec"),
    [(b"\xef\xbb\xbf", "utf-8"), (b"", "utf-16-le"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")],
)
def test_text_is_written_in_the_encoding_in_which_it_was_read(tmp_path, name, mark, codec):
    """Spreadsheets read letters such as ü only in the encoding that they wrote."""
    text = {
        "video1-phase.txt": "Frame\tPhase\r\n0\tPräparation\r\n25\tDrüse\r\n",
        "video1.csv": "Phase;Start;Ende\nPräparation;0:00:00;0:00:01\nDrüse;0:00:01;0:00:02\n",
        "boxes.csv": "Frame,Präparation,Drüse\n0,0.25,0.75\n25,1,0\n",
    }[name]
    source = put(tmp_path, f"in/{name}", "")
    source.write_bytes(mark + text.encode(codec))
    tracks = io.read(source, phase_names=["Präparation", "Drüse"])
    (written,) = io.write(tracks, tmp_path / "out", like=tracks)
    data = written.read_bytes()
    assert data.startswith(mark) and "Drüse".encode(codec) in data
    if name != "video1.csv":
        assert data == mark + text.encode(codec)
    (again,) = io.read(written, phase_names=["Präparation", "Drüse"])
    np.testing.assert_array_equal(again.values, tracks[0].values)


@pytest.mark.parametrize(
    ("table", "lines"),
    [
        (
            "label,start,end\nPreparation,00:00:02,00:01:04\n",
            ["video,track,label,start,end", "video01,phases,Preparation,00:00:02.000,00:01:04.000"],
        ),
        ("label,start,end\nPreparation,2.0,64\n", [..., "video01,phases,Preparation,2.000,64.000"]),
        (
            "label,start_ms,end_ms\nPreparation,2000,64000\n",
            ["video,track,label,start_ms,end_ms", "video01,phases,Preparation,2000,64000"],
        ),
        (
            "label,start_frame,end_frame\nPreparation,50,1599\n",
            ["video,track,label,start_frame,end_frame", "video01,phases,Preparation,50,1599"],
        ),
        ("50 1599 Preparation\n", [..., "video01,phases,Preparation,50,1599"]),
        ("00:00:02:00 Preparation\n00:01:04:00 CleaningCoagulation\n", [..., "Preparation,00:00:02.000,00:01:04.000"]),
    ],
)
def test_times_of_segments_are_written_in_the_unit_of_the_file(tmp_path, table, lines):
    source = put(tmp_path, "in/video01.csv", table)
    tracks = io.read(source)
    (written,) = io.write(tracks, tmp_path / "out", like=tracks)
    found = written.read_text().splitlines()[: len(lines)]
    assert all(b is ... or a.endswith(b) for a, b in zip(found, lines, strict=True))
    (again,) = io.read(written)
    np.testing.assert_array_equal(again.frames, tracks[0].frames)
    np.testing.assert_array_equal(again.values, tracks[0].values)


def test_names_that_hold_the_separator_are_written_in_quotation_marks(tmp_path):
    text = 'Frame,Phase\n0,"Cutting, clipping"\n25,Preparation\n50,"Dr. ""X"" left"\n'
    names = ["Preparation", "Cutting, clipping", 'Dr. "X" left']
    tracks = io.read(put(tmp_path, "in/video01.csv", text), phase_names=names)
    (written,) = io.write(tracks, tmp_path / "out", like=tracks)
    assert written.read_text() == text


def test_posteriors_become_what_the_file_held(tmp_path):
    source = tmp_path / "video1-phase.txt"
    source.write_text("Frame\tPhase\n0\tPreparation\n25\tPreparation\n")
    (like,) = io.read(source)
    result = track("phases", np.eye(7)[[3]], P, frames=[25])  # one frame fewer than was read
    (written,) = io.write([result], tmp_path / "out", like=[like])
    assert written == tmp_path / "out" / "phases" / "video1-phase.txt"
    assert written.read_text() == "Frame\tPhase\n25\tGallbladderDissection\n"


def test_results_in_another_class_order_are_put_back(tmp_path):
    source = tmp_path / "video1-phase.txt"
    source.write_text("0\t4\n")
    (like,) = io.read(source, phase_names="tf-cholec80")
    result = track("phases", np.eye(7)[[P.index("GallbladderPackaging")]], P)
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


def test_names_that_differ_by_video_stay_apart(tmp_path):
    tracks = [track("phases", [0, 1], video=name) for name in ("A", "videoA", "video7")]
    io.write_posteriors(tmp_path / "p.npz", tracks)
    assert [t.video for t in io.read(tmp_path / "p.npz")] == ["A", "video07", "videoA"]


def test_two_inputs_of_one_name_do_not_overwrite_each_other(tmp_path):
    tracks = []
    for i, folder in enumerate("ab"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pred.npz").touch()
        np.savez(tmp_path / folder / "pred.npz", **{f"phases_{i}": np.zeros(2, int)})
        tracks += io.read(tmp_path / folder)
    with pytest.raises(io.FormatError, match="two input files would be written"):
        io.write(tracks, tmp_path / "out", like=tracks)


def test_results_never_go_over_what_was_read(tmp_path):
    put(tmp_path / "phases", "video01.csv", "Frame,Phase\n0,0\n25,1\n")
    tracks = io.read(tmp_path / "phases")
    with pytest.raises(io.FormatError, match="would be overwritten"):
        io.write(tracks, tmp_path, like=tracks, force=True)
    assert io.plan_files(tmp_path / "out", tracks) == {tracks[0].source: tmp_path / "out" / "phases" / "video01.csv"}

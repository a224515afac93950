"""Cholec80's layout, on simulated copies."""

import dataclasses

import numpy as np
import pytest
from annotation_files import phase_file, tool_file

from hmmjax.data.splits import cholec80_split
from hmmjax.io import CHOLEC80_TOOLS, FormatError
from models.data.cholec80 import cholec80


def edit(path, change):
    path.write_text(change(path.read_text()), newline="")


def opened(root):
    return cholec80(root, pictures=False)


def equal(collection, surgeries):
    for name, surgery in zip(collection.ids, surgeries, strict=True):
        found = collection.annotation(name)
        np.testing.assert_array_equal(found.frames, 25 * np.arange(len(surgery)))
        np.testing.assert_array_equal(found.seconds, np.arange(len(surgery)))
        np.testing.assert_array_equal(found.phases, surgery.phases)
        np.testing.assert_array_equal(found.tools, surgery.tools)


def test_generated_layout_reads_back_identically(layout):
    root, surgeries = layout
    equal(cholec80(root), surgeries)


def test_pictures_come_with_their_frame_numbers(layout):
    root, surgeries = layout
    collection = cholec80(root)
    frames = dict(collection.pictures("video02"))
    assert list(frames) == (25 * np.arange(len(surgeries[1]))).tolist()
    assert all(picture.shape == (48, 64, 3) for picture in frames.values())
    some = dict(collection.pictures("video02", [25, 250], size=(24, 32)))
    assert list(some) == [25, 250] and some[25].shape == (24, 32, 3)


def test_pictures_are_those_that_were_drawn(layout):
    """Frame 25 s shows second s, up to compression loss."""
    from models.data.simsurg import Renderer, make_scene

    root, surgeries = layout
    renderer = Renderer(make_scene(surgeries[0], 1 * 1000 + 1, aspect=64 / 48), 48, 64)
    seconds = np.arange(0, len(surgeries[0]), 7)
    shown = dict(cholec80(root).pictures("video01", 25 * seconds))
    drawn = np.stack([renderer.frame(int(s)) for s in seconds]).astype(float)
    distance = np.abs(drawn[:, None] - np.stack(list(shown.values()))[None]).mean((2, 3, 4))
    assert (distance.argmin(1) == np.arange(len(seconds))).all()
    assert np.diag(distance).max() < 20


def test_dumped_pictures_replace_videos(layout, tmp_path):
    from models.data.video_extract import extract

    root, surgeries = layout
    for n in (1, 2, 3):
        extract(root / "videos" / f"video{n:02d}.mp4", tmp_path / f"video{n:02d}")
    collection = cholec80(root, images=tmp_path, naming="frame")
    with pytest.warns(UserWarning, match=r"1 image\(s\) after"):  # the second without a tool row
        frames = [number for number, _ in collection.pictures("video01")]
    assert len(frames) == len(surgeries[0])
    assert len(cholec80(root, images=tmp_path).annotation("video01")) == len(surgeries[0])
    with pytest.raises(FormatError, match="declare naming"):
        list(cholec80(root, images=tmp_path).pictures("video01"))


def test_prediction_names_videos_as_the_annotations_do(layout):
    from models.inputs import Reading, open_clips

    root, surgeries = layout
    clips = list(open_clips(str(root / "videos" / "video02.mp4"), Reading((24, 32))))
    assert [clip.video for clip in clips] == ["video02"]
    numbers = [number for number, _ in clips[0].images]
    assert numbers == (25 * np.arange(len(surgeries[1]) + 1)).tolist()


def test_any_number_of_processes_writes_the_same_files(tmp_path):
    from models.data.simsurg import write_cholec80

    for workers in (1, 2):
        write_cholec80(tmp_path / str(workers), 2, minutes=0.2, size=(32, 48), workers=workers)
    files = [p.relative_to(tmp_path / "1") for p in sorted((tmp_path / "1").glob("*/*"))]
    assert len(files) == 10
    for file in files:
        assert (tmp_path / "1" / file).read_bytes() == (tmp_path / "2" / file).read_bytes(), file


def test_borders_are_cut_on_request(tmp_path):
    pytest.importorskip("av")
    from models.data.simsurg import write_cholec80

    write_cholec80(tmp_path, 1, minutes=0.3, size=(96, 96), border=16)
    collection = cholec80(tmp_path)
    _, whole = next(iter(collection.pictures("video01")))
    _, cut = next(iter(collection.pictures("video01", crop=True)))
    assert whole.shape == (96, 96, 3) and max(abs(64 - side) for side in cut.shape[:2]) <= 4


def test_split_names_the_parts(layout):
    root, _ = layout
    collection = cholec80(root, split={"train": ("video01", "video03"), "test": ("video02",)})
    assert collection.part("train") == ("video01", "video03") and collection.part("test") == ("video02",)
    with pytest.raises(FormatError, match="has no part 'val'"):
        collection.part("val")
    with pytest.raises(
        FormatError, match=r"77 of the 80 videos of the split are not among the 3 of this copy: video04"
    ):
        cholec80(root, split=cholec80_split("40/40"))
    with pytest.raises(FormatError, match="both in test and in train: video01"):
        cholec80(root, split={"train": ("video01",), "test": ("video02", "video01")})


def test_43326_phase_rows_and_1733_tool_rows_are_1733_frames(tmp_path):
    for kind in ("phase_annotations", "tool_annotations"):
        (tmp_path / kind).mkdir()
    phases = ["Preparation"] * 20_000 + ["CalotTriangleDissection"] * 23_326
    phase_file(tmp_path).write_text("Frame\tPhase\n" + "".join(f"{n}\t{p}\n" for n, p in enumerate(phases)))
    header = "\t".join(("Frame", *CHOLEC80_TOOLS))
    tool_file(tmp_path).write_text(header + "\n" + "".join(f"{25 * n}\t1\t0\t0\t0\t0\t0\t0\n" for n in range(1733)))
    found = opened(tmp_path).annotation("video01")
    assert len(found) == 1733 and found.frames[-1] == 25 * 1732
    np.testing.assert_array_equal(found.phases, [0] * 800 + [1] * 933)
    assert found.notices == ("video01: skipped 1 frame(s) from 43325, where tools are missing",)


def test_tail_is_reported_not_shifted(annotations):
    root, surgeries = annotations
    notices = opened(root).annotation("video01").notices
    assert notices == (f"video01: skipped 1 frame(s) from {25 * len(surgeries[0])}, where tools are missing",)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\t", " "),
        lambda text: text.replace("\n", "\t\n"),
        lambda text: text.replace("CalotTriangleDissection", "calot triangle dissection"),
        lambda text: text.replace("CalotTriangleDissection", "Calot_Triangle_Dissection"),
        lambda text: "\ufeff" + text,
        lambda text: text.rstrip("\n"),
    ],
    ids=["CRLF", "spaces", "trailing tab", "words", "underscores", "byte order mark", "no last line end"],
)
def test_harmless_differences(annotations, change):
    root, surgeries = annotations
    edit(phase_file(root), change)
    if "calot" not in change("CalotTriangleDissection").lower():
        edit(tool_file(root), change)
    equal(opened(root), surgeries)


def test_permuted_header_gives_the_same_named_results(annotations):
    root, surgeries = annotations
    rows = [line.split("\t") for line in tool_file(root).read_text().splitlines()]
    order = [0, 5, 3, 7, 1, 2, 6, 4]
    tool_file(root).write_text("".join("\t".join(row[i] for i in order) + "\n" for row in rows))
    equal(opened(root), surgeries)


@pytest.mark.parametrize(
    ("which", "change", "line", "message"),
    [
        (phase_file, lambda rows: rows[:40] + rows[60:], 41, "rows are missing between frames 38 and 59"),
        (tool_file, lambda rows: rows[:5] + rows[6:], 6, "rows are missing between frames 75 and 125"),
        (phase_file, lambda rows: rows[:1] + rows[2:], 2, "begins at frame 1, not 0"),
        (tool_file, lambda rows: rows[:1] + rows[4:], 2, "begins at frame 75, not 0"),
        (phase_file, lambda rows: [*rows[:9], rows[10], rows[9], *rows[11:]], 11, "frame 8 comes after frame 9"),
        (tool_file, lambda rows: rows[:5] + rows[4:], 6, "frame 75 is listed twice"),
        (phase_file, lambda rows: [*rows[:5], "4\tSuturing", *rows[6:]], 6, "unknown phase 'Suturing'"),
        (tool_file, lambda rows: [*rows[:3], rows[3][:-2], *rows[4:]], 4, "expected 8 columns"),
        (tool_file, lambda rows: [*rows[:3], rows[3][:-1] + "2", *rows[4:]], 4, "out of range"),
        (tool_file, lambda rows: [*rows[:3], rows[3][:-1] + "-1", *rows[4:]], 4, "has an unknown label"),
        (tool_file, lambda rows: [rows[0].replace("Clipper", "Stapler"), *rows[1:]], 1, "unknown tool 'Stapler'"),
    ],
)
def test_damaged_files_name_file_and_line(annotations, which, change, line, message):
    root, _ = annotations
    path = which(root)
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    with pytest.raises(FormatError, match=message) as caught:
        opened(root).annotation("video01")
    assert caught.value.file == str(path) and caught.value.line == line


@pytest.mark.parametrize("which", [phase_file, tool_file])
def test_separators_of_another_kind_are_read_or_refused(annotations, which):
    root, _ = annotations
    expected = opened(root).annotation("video01")
    edit(which(root), lambda text: text.replace("\t", ";"))
    for name in ("phases", "tools"):
        found = getattr(opened(root).annotation("video01"), name)
        np.testing.assert_array_equal(found, getattr(expected, name))
    edit(which(root), lambda text: text.replace(";", "|"))
    with pytest.raises(FormatError) as caught:
        opened(root).annotation("video01")
    assert caught.value.file == str(which(root)) and caught.value.line in (1, 2)


def test_one_line_with_another_separator_is_named(annotations):
    root, _ = annotations
    lines = tool_file(root).read_text().splitlines()
    lines[6] = lines[6].replace("\t", ";")
    tool_file(root).write_text("\n".join(lines) + "\n")
    with pytest.raises(FormatError) as caught:
        opened(root).annotation("video01")
    assert caught.value.file == str(tool_file(root)) and caught.value.line == 7


def test_the_folders_must_hold_the_same_videos(annotations):
    root, _ = annotations
    tool_file(root, 2).rename(tool_file(root, 3))
    with pytest.raises(FormatError, match="tool_annotations has no file for video02"):
        opened(root)
    with pytest.raises(FormatError, match="videos"):
        cholec80(root)


def test_files_of_time_stamps_are_not_videos(layout):
    root, _ = layout
    assert (root / "videos" / "video01-timestamp.txt").exists()
    assert cholec80(root).ids == ("video01", "video02", "video03")


def test_other_rates(annotations):
    """Tools are annotated once per second, so 5 fps is an error and labels are never repeated."""
    root, surgeries = annotations
    with pytest.raises(FormatError, match=r"annotated every 25 frames, but 5 frames per second are every 5.*rate=1"):
        dataclasses.replace(opened(root), rate=5.0).annotation("video01")
    slow = dataclasses.replace(opened(root), rate=0.5).annotation("video01")
    np.testing.assert_array_equal(slow.tools, surgeries[0].tools[::2])
    with pytest.raises(FormatError, match="cannot be taken"):
        dataclasses.replace(opened(root), rate=2.0)


def test_two_folders_of_one_video_are_refused(layout, tmp_path):
    root, _ = layout
    for name in ("video01", "video-01", "video02", "video03"):
        (tmp_path / name).mkdir()
    with pytest.raises(FormatError, match="the same video as"):
        cholec80(root, images=tmp_path, naming="frame")
    with pytest.raises(FormatError, match="no such folder"):
        cholec80(root, images=tmp_path / "absent", naming="frame")


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_invalid_rates(annotations, rate):
    root, _ = annotations
    with pytest.raises(FormatError, match="rate is"):
        cholec80(root, pictures=False, rate=rate)


def test_an_annotation_of_another_length_than_its_video_is_refused(layout, tmp_path):
    root, _surgeries = layout
    for n, name in enumerate(("phase_annotations", "tool_annotations")):
        (tmp_path / name).mkdir()
        kind = ("phase", "tool")[n]
        lines = (root / name / f"video01-{kind}.txt").read_text().splitlines()
        keep = lines[:1] + lines[1 : 1 + (200 if kind == "phase" else 8)]
        (tmp_path / name / f"video01-{kind}.txt").write_text("\n".join(keep) + "\n")
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "video01.mp4").write_bytes((root / "videos" / "video01.mp4").read_bytes())
    with pytest.raises(FormatError, match=r"video01-phase\.txt: the phases of video01 end at frame 199, \d+ s before"):
        cholec80(tmp_path).annotation("video01")
    assert len(opened(tmp_path).annotation("video01")) == 8  # without videos there is no check


def test_another_rate_of_the_video_is_found_by_the_annotation_too(layout, tmp_path):
    from models.data.collections_manifest import read_manifest

    root, _ = layout
    (tmp_path / "m.yaml").write_text(f"tools: [a]\nvideos:\n  - {{id: x, video: {root}/videos/video01.mp4, fps: 30}}\n")
    collection = read_manifest(tmp_path / "m.yaml")
    for read in (collection.annotation, lambda video: list(collection.pictures(video, [0]))):
        with pytest.raises(FormatError, match="25 frames per second, but x is declared to have 30"):
            read("x")

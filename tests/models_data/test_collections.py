"""Collections of fully labeled, partially labeled and unlabeled videos, and their manifests."""

import dataclasses

import numpy as np
import pytest

from hmmjax.io import FormatError
from models.data.collections import Collection, Recording
from models.data.collections_manifest import read_manifest

MANIFEST = """
name: lobectomy
phases: [Exploration, Dissection, Stapling]
tools: [Grasper, Stapler]
videos:
  - {id: case10, phases: labels/case10.txt, tools: labels/case10.txt, part: train}
  - {id: case2, images: frames/case2, naming: second, tools: labels/case2.txt, partial: true, part: train}
  - {id: case3, images: frames/case3, naming: counter, fps: 30, part: test}
"""


@pytest.fixture
def folder(tmp_path):
    from PIL import Image

    (tmp_path / "labels").mkdir()
    rows = [f"{25 * n}\t{'Exploration' if n < 4 else 'Stapling'}\t{n % 2}\t0" for n in range(10)]
    (tmp_path / "labels" / "case10.txt").write_text("Frame\tPhase\tStapler\tGrasper\n" + "\n".join(rows) + "\n")
    (tmp_path / "labels" / "case2.txt").write_text("Frame\tGrasper\tStapler\n50\t1\t-1\n200\t0\t1\n")
    for case, numbers in (("case2", range(10)), ("case3", range(1, 7))):
        (tmp_path / "frames" / case).mkdir(parents=True)
        for n in numbers:
            Image.new("RGB", (16, 12), (n * 20, 0, 0)).save(tmp_path / "frames" / case / f"{n:05d}.png")
    (tmp_path / "manifest.yaml").write_text(MANIFEST)
    return tmp_path


def test_three_kinds_of_videos_in_one_manifest(folder):
    collection = read_manifest(folder / "manifest.yaml")
    assert collection.ids == ("case2", "case3", "case10")  # natural order
    assert collection.part("train") == ("case2", "case10")

    full = collection.annotation("case10")
    np.testing.assert_array_equal(full.phases, [0] * 4 + [2] * 6)
    np.testing.assert_array_equal(full.tools, [[0, n % 2] for n in range(10)])  # by name: the file has Stapler first

    partial = collection.annotation("case2")
    assert len(partial) == 10 and (partial.phases == -1).all()
    known = np.full((10, 2), -1)
    known[2], known[8] = [1, -1], [0, 1]
    np.testing.assert_array_equal(partial.tools, known)

    unlabeled = collection.annotation("case3")
    np.testing.assert_array_equal(unlabeled.frames, 30 * np.arange(6))
    np.testing.assert_array_equal(unlabeled.seconds, np.arange(6))
    assert (unlabeled.phases == -1).all() and (unlabeled.tools == -1).all()


def test_labels_that_are_numbered_from_one(folder):
    """AutoLaparo's layout: seconds and phases are numbered from 1, as ffmpeg numbers the pictures."""
    (folder / "labels" / "label_01.txt").write_text("Frame\tPhase\n1\t1\n2\t1\n3\t2\n4\t7\n5\t7\n6\t7\n")
    text = "{phases: autolaparo, fps: 1, offset: 1, videos: [{id: video01, images: frames/case3, naming: second, "
    text += "phases: labels/label_01.txt, first_index: %s, partial: true}]}"
    (folder / "autolaparo.yaml").write_text(text % 1)
    collection = read_manifest(folder / "autolaparo.yaml")
    found = collection.annotation("video01")
    assert len(collection.phase_names) == 7
    np.testing.assert_array_equal(found.frames, np.arange(1, 7))
    np.testing.assert_array_equal(found.phases, [0, 0, 1, 6, 6, 6])
    assert [number for number, _ in collection.pictures("video01")] == list(range(1, 7))
    (folder / "autolaparo.yaml").write_text(text % 2)
    with pytest.raises(FormatError, match="first_index is '2', expected 0 or 1"):
        read_manifest(folder / "autolaparo.yaml")


def test_pictures_of_a_manifest(folder):
    collection = read_manifest(folder / "manifest.yaml")
    shown = list(collection.pictures("case2", size=(6, 8)))
    assert [n for n, _ in shown] == [25 * n for n in range(10)]
    assert [round(float(p[..., 0].mean())) for _, p in shown] == [20 * n for n in range(10)]
    assert shown[0][1].shape == (6, 8, 3)
    assert [n for n, _ in collection.pictures("case3")] == [30 * n for n in range(6)]
    with pytest.raises(FormatError, match="neither a video nor images"):
        list(collection.pictures("case10"))


def test_other_rates_divide(folder):
    (folder / "manifest.yaml").write_text(MANIFEST.replace("name: lobectomy", "name: x\nrate: 0.5"))
    collection = read_manifest(folder / "manifest.yaml")
    np.testing.assert_array_equal(collection.annotation("case10").frames, [0, 50, 100, 150, 200])
    (folder / "manifest.yaml").write_text(MANIFEST.replace("name: lobectomy", "name: x\nrate: 4"))
    with pytest.raises(FormatError, match="4 frames per second cannot be taken from"):
        read_manifest(folder / "manifest.yaml")


def test_csv_manifest_is_the_same_collection(folder):
    (folder / "phases.txt").write_text("Exploration\nDissection\nStapling\n")
    (folder / "tools.txt").write_text("Grasper\nStapler\n")
    (folder / "lobectomy.csv").write_text(
        "id,images,naming,phases,tools,partial,fps,part\n"
        "case10,,,labels/case10.txt,labels/case10.txt,,,train\n"
        "case2,frames/case2,second,,labels/case2.txt,yes,,train\n"
        "case3,frames/case3,counter,,,,30,test\n"
    )
    assert read_manifest(folder / "lobectomy.csv") == read_manifest(folder / "manifest.yaml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("labels/case10.txt, tools", "labels/case11.txt, tools", "case10: no such phases labels/case11.txt"),
        ("naming: second", "nameing: second", "unknown field 'nameing'"),
        (", naming: counter", "", "declare naming"),
        ("id: case3", "id: case2", "case2 is listed twice"),
        ("id: case3", "id: 003", "put it in quotes"),
        ("fps: 30", "fps: fast", "case3: fps should be a number, found 'fast'"),
        ("phases: [Exploration, Dissection, Stapling]\n", "", "does not name any"),
        ("videos:", "movies:", "has no list called videos"),
        ("name: lobectomy", "name: [lobectomy", "damaged YAML"),
        ("  - {id: case3", "  - {id: case010, part: test}\n  - {id: case3", "in train: case10 = case010"),
        ("fps: 30", "fps: .nan", "case3: fps is nan"),
        ("fps: 30", "fps: .inf", "case3: fps is inf"),
        ("fps: 30", "fps: yes", "case3: fps is True"),
        ("name: lobectomy", "rate: .nan", "rate is nan"),
        ("name: lobectomy", "offset: 0.5", r"offset is 0\.5, expected a frame number"),
        ("name: lobectomy", "offset: .nan", "offset is nan"),
        ("phases: [Exploration, Dissection, Stapling]", "phases: 5", "phases is 5, expected a list of names"),
        (
            "Dissection, Stapling]",
            "[Dissection, Stapling]]",
            r"phases contains \['Dissection', 'Stapling'\], expected a name",
        ),
        ("Dissection, Stapling]", "yes]", "phases contains True, expected a name"),
        ("name: lobectomy", "name: a\nname: b", "line 3: damaged YAML .the key 'name' is repeated"),
        ("videos:", "videos: []\nvideos:", "'videos' is repeated"),
        ("fps: 30, part: test", "fps: 30, part: test, part: train", "'part' is repeated"),
        ("name: lobectomy", "name: &a x\nname2: *a", "an alias is not allowed"),
    ],
)
def test_bad_manifests_name_the_fault(folder, old, new, message):
    path = folder / "manifest.yaml"
    assert old in MANIFEST
    path.write_text(MANIFEST.replace(old, new))
    with pytest.raises(FormatError, match=message) as caught:
        read_manifest(path)
    assert "manifest.yaml" in str(caught.value) or "recording" in str(caught.value)


def test_csv_errors_name_the_line(folder):
    path = folder / "m.csv"
    path.write_text("id,video\ncase1,\ncase2,missing.mp4\n")
    with pytest.raises(FormatError, match=r"m\.csv, line 3: case2: no such video"):
        read_manifest(path)
    path.write_text("id;video\ncase1;a\n")
    with pytest.raises(FormatError, match="line 1: cells are separated by ';'"):
        read_manifest(path)
    path.write_text("id,part,part\ncase1,train,test\n")
    with pytest.raises(FormatError, match="line 1: the column part is repeated"):
        read_manifest(path)
    path.write_text("name,video\ncase1,\n")
    with pytest.raises(FormatError, match="line 1: the column id is missing"):
        read_manifest(path)
    for suffix in ("csv", "yaml"):
        (folder / f"wide.{suffix}").write_bytes("id\ncase1\n".encode("utf-16"))
        with pytest.raises(FormatError, match="not a text file in UTF-8"):
            read_manifest(folder / f"wide.{suffix}")
    path.write_text("id,video\ncase1,,surplus\n")
    with pytest.raises(FormatError, match="line 2: the number of cells differs"):
        read_manifest(path)


def test_a_gap_needs_partial(folder):
    path = folder / "labels" / "case10.txt"
    rows = path.read_text().splitlines()
    path.write_text("\n".join(rows[:4] + rows[5:]) + "\n")
    with pytest.raises(FormatError, match="declare the annotation partial"):
        read_manifest(folder / "manifest.yaml").annotation("case10")


def test_one_recording_in_two_parts_is_an_error_unless_asked_for(folder):
    text = "phases: [A]\nvideos:\n  - {id: video67, part: train}\n  - {id: tool_video_01, part: test}\n"
    (folder / "m.yaml").write_text(text)
    with pytest.raises(FormatError, match="both in test and in train: video67 = tool_video_01"):
        read_manifest(folder / "m.yaml")
    assert len(read_manifest(folder / "m.yaml", allow_overlap=True).ids) == 2


def test_unknown_length(folder):
    (folder / "m.yaml").write_text("tools: [Grasper]\nvideos:\n  - {id: a}\n")
    with pytest.raises(FormatError, match="the length of a is unknown"):
        read_manifest(folder / "m.yaml").annotation("a")


def test_annotations_name_their_classes(folder):
    found = read_manifest(folder / "manifest.yaml").annotation("case10")
    assert found.phase_names == ("Exploration", "Dissection", "Stapling") and found.tool_names == ("Grasper", "Stapler")


def test_a_blank_part_is_no_part(folder):
    assert one(folder, "id: a, images: frames/case2, naming: second, part: ")["a"].part == ""


@pytest.mark.parametrize("spelling", ["unlabeled", "unlabelled"])
def test_both_spellings_of_unlabeled_are_read(folder, spelling):
    """Manifests and recordings may have the earlier spelling "unlabelled"; the current one is used."""
    named = one(folder, f"id: a, images: frames/case2, naming: second, part: {spelling}")
    built = Collection("built", (Recording("a", part=spelling),), (), ())
    for collection in (named, built):
        assert collection["a"].part == "unlabeled"
        assert collection.part("unlabeled") == collection.part("unlabelled") == ("a",)


def one(folder, recording, top="tools: [Grasper, Stapler]\nphases: [Exploration, Stapling]\n"):
    (folder / "one.yaml").write_text(f"{top}videos:\n  - {{{recording}}}\n")
    return read_manifest(folder / "one.yaml")


def pictures_named(folder, numbers):
    from PIL import Image

    folder.mkdir(parents=True)
    for n in numbers:
        Image.new("RGB", (16, 12), (n % 256, 0, 0)).save(folder / f"{n:06d}.png")


@pytest.mark.parametrize(
    ("numbers", "naming"),
    [
        (range(0, 250, 25), "second"),  # named by frame: ten seconds would become four minutes
        (range(0, 250, 25), "counter"),
        (range(60), "frame"),  # named by second: a minute would become two seconds
        ([0, 25, 50, 60, 75], "frame"),
    ],
)
def test_a_wrong_naming_rule_never_stretches_time(folder, numbers, naming):
    pictures_named(folder / "frames" / "wrong", numbers)
    collection = one(folder, f"id: a, images: frames/wrong, naming: {naming}")
    with pytest.raises(FormatError, match="naming"):
        collection.annotation("a")


def test_an_unknown_naming_rule_is_found_when_the_manifest_is_read(folder):
    with pytest.raises(FormatError, match="unknown naming rule 'seconds'"):
        one(folder, "id: a, images: frames/case2, naming: seconds")


def test_prediction_rejects_a_wrong_naming_rule(folder):
    pytest.importorskip("flax", reason="models.inputs needs the vision extra")
    from models.inputs import Reading, open_clips

    pictures_named(folder / "frames" / "wrong", range(0, 250, 25))
    with pytest.raises(FormatError, match="naming"):
        list(open_clips(str(folder / "frames" / "wrong"), Reading((12, 16), naming="second")))


def test_unused_rows_of_a_partial_annotation_are_named(folder):
    (folder / "labels" / "p.txt").write_text(
        "Frame\tGrasper\tStapler\n0\t1\t0\n26\t1\t0\n30\t-1\t-1\n51\t1\t0\n100000\t1\t0\n"
    )
    recording = "id: a, images: frames/case2, naming: second, tools: labels/p.txt, partial: true"
    found = one(folder, recording).annotation("a")
    between, late = found.notices
    assert "2 labeled row(s) of tools not used, from frame 26 on: not at a used frame" in between
    assert "1 labeled row(s) of tools not used, from frame 100000 on: after the end" in late


def test_rows_between_the_steps_are_not_thinned_to_one(folder):
    """Multiples of 30 and of 25 coincide at 0 and 150, or only at 0 with fewer rows."""
    (folder / "labels" / "p.txt").write_text(
        "Frame\tGrasper\tStapler\n" + "".join(f"{n}\t1\t0\n" for n in range(0, 121, 30))
    )
    with pytest.raises(FormatError, match=r"annotated every 30 frames.*every 25.*fps"):
        one(folder, "id: a, tools: labels/p.txt").annotation("a")


def test_an_annotation_of_another_length_than_its_pictures_is_refused(folder):
    pictures_named(folder / "frames" / "long", range(46))
    rows = "".join(f"{n}\tExploration\n" for n in range(46))  # counts seconds, but is read as 25 per second
    (folder / "labels" / "p.txt").write_text("Frame\tPhase\n" + rows)
    recording = "id: a, images: frames/long, naming: second, phases: labels/p.txt"
    with pytest.raises(FormatError, match=r"end at frame 45, 43 s before.*1 for seconds"):
        one(folder, recording).annotation("a")
    assert len(one(folder, recording + ", fps: 1").annotation("a")) == 46


def test_notices_of_the_reader_are_kept(folder, monkeypatch):
    from models.data import annotation

    read = annotation.read_annotations
    monkeypatch.setattr(
        annotation,
        "read_annotations",
        lambda *a, **k: [dataclasses.replace(t, notices=("frames look like seconds",)) for t in read(*a, **k)],
    )
    assert read_manifest(folder / "manifest.yaml").annotation("case10").notices == ("frames look like seconds",)


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([0, 30], "frame 30 of case2 is not used: at 1 frames per second, used frames are 0, 25, 50"),
        ([50, 25], "frame 25 is requested after frame 50"),
        ([25, 25], "frame 25 is requested after frame 25"),
        ([-25], "no frame is -25"),
    ],
)
def test_invalid_requests_of_frames(folder, frames, message):
    with pytest.raises(FormatError, match=message):
        list(read_manifest(folder / "manifest.yaml").pictures("case2", frames))


def test_borders_are_cut_alike_in_all_pictures_of_a_folder(folder):
    """All images of a folder get the same crop, also dark ones and those with a dark edge."""
    from PIL import Image

    (folder / "frames" / "c").mkdir()
    picture = np.zeros((96, 96, 3), np.uint8)
    picture[16:80, 16:80] = 150
    for n in range(12):
        shown = picture.copy()
        if n == 3:
            shown[:, 40:] = 0
        if n in (0, 6):
            shown[:] = 0
        Image.fromarray(shown).save(folder / "frames" / "c" / f"{n}.png")
    collection = one(folder, "id: a, images: frames/c, naming: second")
    assert {p.shape for _, p in collection.pictures("a", crop=True)} == {(64, 64, 3)}

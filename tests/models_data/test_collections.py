"""Manifests of fully labeled, partially labeled and unlabeled videos, and labeling scenarios."""

import dataclasses

import numpy as np
import pytest

import hmmjax
from hmmjax.io import CHOLEC80_TOOLS, FormatError
from hmmjax.simulate import simulate_surgeries, stack
from models.data.collections import Annotation, Collection, Recording
from models.data.collections_manifest import read_manifest
from models.data.scenarios import check_overlap, combined, continuous, discrete

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


# Scenarios


def annotation(name, surgery):
    seconds = np.arange(len(surgery))
    return Annotation(name, 25 * seconds, seconds.astype(float), surgery.phases, surgery.tools)


@pytest.fixture(scope="module")
def videos():
    surgeries = simulate_surgeries(6, seed=2, minutes=12.0)
    return tuple(annotation(f"video{n + 1:02d}", s) for n, s in enumerate(surgeries))


def test_discrete_labels_so_many_frames_of_each_tool(videos):
    scenario = discrete(videos, 12, 30, seed=5)
    tools = np.concatenate([a.tools for a in scenario.annotations])
    assert ((tools == 1).sum(0) == 12).all() and ((tools == 0).sum(0) == 30).all()
    truth = np.concatenate([a.tools for a in videos])
    assert (tools[tools >= 0] == truth[tools >= 0]).all()
    assert all((a.phases == -1).all() for a in scenario.annotations)
    assert scenario.cost["tools"] == 7 * 42 and scenario.cost["phases"] == 0 and scenario.cost["frames"] <= 7 * 42


def test_discrete_is_deterministic_and_nested(videos):
    same, other = discrete(videos, 8, 8, seed=1), discrete(videos, 8, 8, seed=2)
    more = discrete(videos, 16, 24, seed=1)
    for a, b, c in zip(discrete(videos, 8, 8, seed=1).annotations, same.annotations, more.annotations, strict=True):
        np.testing.assert_array_equal(a.tools, b.tools)
        assert (c.tools[a.tools >= 0] == a.tools[a.tools >= 0]).all()
    assert any((a.tools != b.tools).any() for a, b in zip(same.annotations, other.annotations, strict=True))


def test_discrete_keeps_frames_apart(videos):
    scenario = discrete(videos, 6, 6, apart=10.0)
    for video in scenario.annotations:
        for tool in range(7):
            for value in (0, 1):
                gaps = np.diff(video.seconds[video.tools[:, tool] == value])
                assert (gaps >= 10).all()


def test_discrete_whole_frames(videos):
    tools = np.concatenate([a.tools for a in discrete(videos, 4, 4, whole_frames=True).annotations])
    known = tools >= 0
    assert (known.all(1) == known.any(1)).all() and known.any()


def test_too_few_frames_is_an_error(videos):
    with pytest.raises(FormatError, match=r"tool 0 has only \d+ frames with value 1"):
        discrete(videos, 100_000, 1)
    named = [dataclasses.replace(video, tool_names=CHOLEC80_TOOLS) for video in videos]
    with pytest.raises(FormatError, match=r"Grasper has only \d+ frames with value 1"):
        discrete(named, 100_000, 1)


@pytest.mark.parametrize("count", [-1, 2.5, True, "3"])
def test_numbers_of_frames_are_numbers(videos, count):
    for wrong in ((count, 1), (1, count)):
        with pytest.raises(FormatError, match="expected a number of frames"):
            discrete(videos, *wrong, at_most=True)


def test_classes_of_scenarios_are_the_same(videos):
    """One tool would be broadcast to seven columns, and another order of the same tools would go unnoticed."""
    one = dataclasses.replace(videos[0], tools=videos[0].tools[:, :1])
    with pytest.raises(FormatError, match=r"the number of tools of .* differ: 7 and 1"):
        continuous([one, videos[1]]).labels()
    with pytest.raises(FormatError, match="the number of tools"):
        discrete([one, videos[1]], 1, 1)
    named = [dataclasses.replace(video, tool_names=names) for video, names in zip(
        videos, (CHOLEC80_TOOLS, CHOLEC80_TOOLS[::-1]), strict=False)]  # fmt: skip
    with pytest.raises(FormatError, match="the tools of video02 and video01 differ"):
        combined(continuous(named[:1]), continuous(named[1:]))


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


def test_combined_scenario_and_overlap(videos):
    whole, single = continuous(videos[:2]), discrete(videos[2:], 3, 3)
    both = combined(whole, single)
    assert both.name == "S_C+D" and len(both.annotations) == 6
    assert both.cost["tools"] == whole.cost["tools"] + single.cost["tools"]
    with pytest.raises(FormatError, match="both in S_C and in S_D: video02"):
        combined(whole, discrete(videos[1:], 3, 3))
    twin = dataclasses.replace(videos[2], id="tool_video_01"), dataclasses.replace(videos[3], id="video67")
    with pytest.raises(FormatError, match="tool_video_01"):
        combined(continuous(twin[:1]), continuous(twin[1:]))
    with pytest.raises(FormatError, match="test"):
        check_overlap({"train": both, "test": ["video06"]})
    check_overlap({"train": both, "test": ["video41"]})


@pytest.mark.thorough
def test_scenarios_are_labels_that_fit_takes(videos):
    surgeries = simulate_surgeries(6, seed=2, minutes=12.0)
    both = combined(continuous(videos[:3]), discrete(videos[3:], 4, 6))
    labels, mask = both.labels()
    _, obs, seen = stack(surgeries)
    np.testing.assert_array_equal(mask, seen)
    assert (labels.phases[~mask] == -1).all() and (labels.phases[3:] == -1).all()
    start = hmmjax.init_params(7, 7, emissions="confusion")
    result = hmmjax.fit(start, obs.discretize(), mask, labels, max_iterations=2)
    assert np.isfinite(np.asarray(result.history)).all() and result.history[-1] > result.history[0]


def test_whole_scenario_counts_like_the_annotation(videos):
    labels, mask = continuous(videos).labels()
    known = np.asarray(labels.tools)[mask]
    assert (known >= 0).all() and known.shape[0] == sum(map(len, videos))


# Files that do not fit together


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

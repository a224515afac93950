"""M2CAI16-tool, M2CAI16-workflow and m2cai16-tool-locations: layouts, damaged files, and the real frames."""

import numpy as np
import pytest

import hmmjax
from hmmjax.io import CHOLEC80_TOOLS, M2CAI16_PHASES, FormatError, resolve_names
from hmmjax.simulate import simulate_surgeries, stack
from models.data.m2cai import m2cai16_tool, m2cai16_workflow, read_frame_counts
from models.data.m2cai_locations import neighbor_share, read_frame, read_frames, read_image_set, to_batch
from models.data.places import open_collection

# Tool and workflow


@pytest.fixture
def workflow(tmp_path):
    phases = [M2CAI16_PHASES[n // 60] for n in range(480)]
    text = "Frame\tPhase\n" + "".join(f"{n}\t{p}\n" for n, p in enumerate(phases))
    for name in ("workflow_video_01", "workflow_video_10", "test_workflow_video_02"):
        folder = tmp_path / ("test_dataset" if "test" in name else "train_dataset")
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.txt").write_text(text)
        (folder / f"{name}_pred.txt").write_text("results")
    counts = b"workflow_video_01\t480\t\r\nworkflow_video_10\t480\t\r\n"
    (tmp_path / "train_dataset" / "nb-frames.txt").write_bytes(counts)
    return tmp_path


def test_workflow_has_eight_phases_and_two_parts(workflow):
    collection = m2cai16_workflow(workflow)
    assert len(collection.phase_names) == 8 and collection.phase_names[0] == "TrocarPlacement"
    assert len(collection.part("train")) == 2 and len(collection.part("test")) == 1
    found = collection.annotation(collection.part("train")[0])
    assert set(found.phases.tolist()) == set(range(8)) and found.tools.shape == (20, 0)
    named = open_collection(f"m2cai16-workflow:{workflow}")
    assert named is not None and named.ids == collection.ids


@pytest.mark.parametrize("offset", [0, 24])
def test_workflow_offset_is_a_parameter(workflow, offset):
    collection = m2cai16_workflow(workflow, offset=offset)
    found = collection.annotation(collection.ids[0])
    frames = np.arange(offset, 480, 25)
    np.testing.assert_array_equal(found.frames, frames)
    np.testing.assert_array_equal(found.phases, frames // 60)


def test_frame_counts_with_tabs_and_carriage_returns(workflow):
    path = workflow / "train_dataset" / "nb-frames.txt"
    assert read_frame_counts(path) == {"workflow_video_01": 480, "workflow_video_10": 480}
    path.write_text("workflow_video_01\n")
    with pytest.raises(FormatError, match="line 1"):
        read_frame_counts(path)
    path.write_text("workflow_video_01 480\nworkflow_video_01 481\n")
    with pytest.raises(FormatError, match="line 2: workflow_video_01 is listed twice"):
        read_frame_counts(path)
    path.write_bytes("workflow_video_01 480".encode("utf-16"))
    with pytest.raises(FormatError, match="cannot be read"):
        read_frame_counts(path)


def test_tool_layout(tmp_path):
    header = "\t".join(("Frame", *CHOLEC80_TOOLS))
    for part, number in (("train", 1), ("test", 11)):
        folder = tmp_path / f"{part}_dataset"
        folder.mkdir()
        rows = [f"{25 * n}\t{n % 2}\t0\t1\t0\t0\t0\t0" for n in range(30)]
        (folder / f"tool_video_{number:02d}.txt").write_text("\n".join([header, *rows]) + "\n")
    collection = m2cai16_tool(tmp_path)
    assert collection.ids == ("tool01", "tool11") and collection.part("test") == ("tool11",)
    found = collection.annotation("tool11")
    assert len(found) == 30 and (found.phases == -1).all()
    np.testing.assert_array_equal(found.tools[:, 0], np.arange(30) % 2)
    (tmp_path / "train_dataset" / "tool_video_01.MP4").touch()
    with pytest.raises(FormatError, match="1 of 2 annotations have no video: tool11"):
        m2cai16_tool(tmp_path)
    (tmp_path / "test_dataset" / "tool_video_11.mp4").touch()
    assert all(r.video for r in m2cai16_tool(tmp_path).recordings)
    (tmp_path / "test_dataset" / "tool_video_11.mp4").rename(tmp_path / "test_dataset" / "tool_video_1.mp4")
    (tmp_path / "test_dataset" / "tool_video_11.txt").rename(tmp_path / "test_dataset" / "tool_video_1.txt")
    with pytest.raises(FormatError, match="both in test and in train: tool01"):
        m2cai16_tool(tmp_path)


def test_two_files_of_one_video_are_refused(workflow):
    folder = workflow / "train_dataset"
    (folder / "workflow_video_1.txt").write_bytes((folder / "workflow_video_01.txt").read_bytes())
    with pytest.raises(FormatError, match="the same video as"):
        m2cai16_workflow(workflow)


def test_missing_folders(tmp_path):
    with pytest.raises(FormatError, match="train_dataset"):
        m2cai16_tool(tmp_path)


# Locations, generated

XML = """<annotation><folder>VOC2007</folder><filename>{name}.jpg</filename>
<size><width>596</width><height>334</height><depth>3</depth></size>{objects}</annotation>"""
OBJECT = """<object><name>{name}</name><bndbox><xmin>{0}</xmin><ymin>{1}</ymin><xmax>{2}</xmax><ymax>{3}</ymax></bndbox>
</object>"""


@pytest.fixture
def locations(tmp_path):
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Layout").mkdir()
    (tmp_path / "ImageSets" / "Layout" / "train.txt").write_text("01_frame0001\n")

    def add(name, *objects):
        text = "".join(OBJECT.format(*box, name=tool) for tool, box in objects)
        (tmp_path / "Annotations" / f"{name}.xml").write_text(XML.format(name=name, objects=text))
        return name

    return tmp_path, add


def test_boxes_outside_are_clipped(locations):
    root, add = locations
    frame = read_frame(root, add("v01_000025", ("Grasper", (149, -3, 298, 400)), ("Hook", (0, 0, 596, 334))))
    np.testing.assert_allclose(frame.boxes, [[0.25, 0, 0.5, 1], [0, 0, 1, 1]])
    assert frame.clipped == 1 and frame.tools.tolist() == [0, 2]
    assert (frame.video, frame.frame, frame.width, frame.height) == ("v01", 25, 596, 334)


def test_no_object_is_no_boxes(locations):
    root, add = locations
    frame = read_frame(root, add("v01_000050"))
    assert frame.boxes.shape == (0, 4) and frame.tools.shape == (0,) and not frame.presence.any()


def test_two_of_a_kind_and_lower_case(locations):
    root, add = locations
    objects = ("grasper", (1, 1, 9, 9)), ("Specimen Bag", (5, 5, 9, 9)), ("Grasper", (3, 3, 5, 5))
    frame = read_frame(root, add("v02_000025", *objects))
    assert frame.tools.tolist() == [0, 6, 0] and frame.presence.tolist() == [1, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([("Stapler", (1, 1, 2, 2))], "unknown tool 'Stapler'"),
        ([("Hook", (9, 1, 9, 5))], "is empty or outside the image"),
        ([("Hook", (700, 1, 800, 5))], "is empty or outside the image"),
        ([("Hook", (1, "x", 2, 5))], "bndbox/ymin should be a number"),
    ],
)
def test_damaged_boxes_name_the_file(locations, objects, message):
    root, add = locations
    name = add("v01_000075", *objects)
    with pytest.raises(FormatError, match=message) as caught:
        read_frame(root, name)
    assert caught.value.file.endswith("v01_000075.xml")


def test_damaged_or_missing_xml(locations):
    root, _ = locations
    (root / "Annotations" / "v01_000100.xml").write_text("<annotation>\n<size>")
    with pytest.raises(FormatError, match="line 2"):
        read_frame(root, "v01_000100")
    with pytest.raises(FormatError, match="no such annotation"):
        read_frame(root, "v01_000125")


def test_image_sets_are_main_only(locations):
    root, _ = locations
    with pytest.raises(FormatError, match="no such image set"):
        read_image_set(root, "train")
    path = root / "ImageSets" / "Main" / "train.txt"
    path.write_text("v01_000025\nv01_000050\n\n")
    assert read_image_set(root, "train") == ("v01_000025", "v01_000050")
    path.write_text("v01_000025\nv01_000025\n")
    with pytest.raises(FormatError, match="line 2"):
        read_image_set(root, "train")
    with pytest.raises(FormatError, match="unknown image set"):
        read_image_set(root, "Layout")


def test_irregular_times_stay_irregular(locations):
    """Frames 0, 25, 50 and 400 are at positions 0, 1, 2 and 16 of the time axis, with a gap of 13."""
    root, add = locations
    names = [add(f"v01_{n:06d}", ("Hook", (1, 1, 9, 9))) for n in (400, 0, 50, 25)] + [add("v02_000075")]
    labels, mask, videos = to_batch(read_frames(root, names))
    assert videos == ("v01", "v02") and mask.shape == (2, 17)
    assert np.flatnonzero(mask[0]).tolist() == [0, 1, 2, 16] and np.flatnonzero(mask[1]).tolist() == [0]
    assert (labels.tools[~mask] == -1).all() and (labels.tools[0, mask[0], 2] == 1).all()
    with pytest.raises(FormatError, match="between two steps"):
        to_batch(read_frames(root, names), step=50)
    with pytest.raises(FormatError, match="listed twice"):
        to_batch(read_frames(root, [names[0], names[0]]))


@pytest.mark.thorough
def test_gaps_change_what_is_inferred(locations):
    """A gap weakens the dependence between frames, compared with contiguous frames; both results are finite."""
    root, add = locations
    names = [add(f"v01_{n:06d}", ("Hook", (1, 1, 9, 9))) for n in (0, 25, 50, 400)]
    labels, mask, _ = to_batch(read_frames(root, names))
    truth, seen, seen_mask = stack(simulate_surgeries(2, minutes=4.0))
    params = hmmjax.estimate(truth, seen.discretize(), seen_mask, priors=hmmjax.Priors(*[1.0] * 6))
    present = np.maximum(labels.tools, 0)
    gaps = np.asarray(hmmjax.posterior(params, hmmjax.Observations(tools=present), mask).tools)[0, mask[0]]
    close = np.asarray(hmmjax.posterior(params, hmmjax.Observations(tools=present[:, mask[0]])).tools)[0]
    assert np.isfinite(gaps).all() and np.isfinite(close).all()
    assert close[2, 2] > gaps[2, 2] + 1e-4


# Locations, real


@pytest.fixture(scope="module")
def real(data_dir):
    root = data_dir / "m2cai16-tool-locations"
    if not root.is_dir():
        pytest.skip(f"no {root}")
    return root


def test_real_counts(real):
    train, val = read_image_set(real, "train"), read_image_set(real, "val")
    assert (len(train), len(val)) == (1405, 843) and not set(train) & set(val)
    frames = read_frames(real, train + val)
    assert len({(f.video, f.width, f.height) for f in frames}) == 10  # one native size per video
    assert all(len(f.tools) >= 1 for f in frames)  # there are no frames without tools
    assert all(f.frame % 25 == 0 for f in frames)
    boxes = np.concatenate([f.boxes for f in frames])
    assert boxes.min() >= 0 and boxes.max() <= 1 and sum(f.clipped for f in frames) == 17
    assert sum((np.bincount(f.tools, minlength=7)[0] >= 2) for f in frames) > 0  # some frames have two graspers


def test_real_presence_agrees_with_the_table(real):
    import csv

    with (real / "frame_labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        frame = read_frame(real, row["frame"])
        assert frame.presence.tolist() == [int(row[f"voc_{tool}"]) for tool in CHOLEC80_TOOLS]
        assert frame.frame == 25 * int(row["second"])


def test_real_pictures_and_class_list(real):
    from PIL import Image

    assert resolve_names(str(real / "class_list.txt"), "tools") == CHOLEC80_TOOLS  # numbered from one
    for name in read_image_set(real, "val")[::100]:
        frame = read_frame(real, name)
        with Image.open(frame.image) as picture:
            assert picture.width / picture.height == pytest.approx(frame.width / frame.height, rel=0.01)


def test_real_split_has_neighbors_on_both_sides(real):
    train, val = read_image_set(real, "train"), read_image_set(real, "val")
    assert 0.3 < neighbor_share(val, train, 1.0) < neighbor_share(val, train, 2.0) < 0.8
    assert neighbor_share(val, [], 1.0) == 0


# Variants of lists and tables


@pytest.fixture
def lists(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="pictures need Pillow (the vision extra)")

    for folder in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (tmp_path / folder).mkdir(parents=True)
    for number in (25, 50, 75):
        name = f"v01_{number:06d}"
        (tmp_path / "Annotations" / f"{name}.xml").write_text(XML.format(name=name, objects=""))
        Image.new("RGB", (8, 6)).save(tmp_path / "JPEGImages" / f"{name}.jpg")

    def write(**sets):
        for part, text in sets.items():
            (tmp_path / "ImageSets" / "Main" / f"{part}.txt").write_bytes(text.encode())
        return tmp_path

    return write


def opened(root):
    from models.data.m2cai_source import m2cai16_locations

    table = m2cai16_locations(root).table
    return list(zip(table.frames.tolist(), table.parts.tolist(), strict=True))


def test_lists_as_other_programs_write_them(lists):
    root = lists(train="\ufeffv01_000025 1\r\n", val="v01_000050.jpg\n\n", test="v01_000075 -1\n")
    assert opened(root) == [(25, "train"), (50, "val"), (75, "test")]
    with pytest.raises(FormatError, match="line 1: expected the name of a frame"):
        opened(lists(train="v01_000025 and more\n"))


def test_a_damaged_picture_is_named(lists):
    from models.data.m2cai_source import m2cai16_locations

    root = lists(train="v01_000025\n")
    path = root / "JPEGImages" / "v01_000025.jpg"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FormatError, match=r"v01_000025\.jpg: not a readable image"):
        m2cai16_locations(root)[0]


def test_trainval_alone_is_used(lists):
    root = lists(trainval="v01_000025\nv01_000050\n", test="v01_000075\n")
    assert opened(root) == [(25, "trainval"), (50, "trainval"), (75, "test")]
    assert opened(lists(train="v01_000025\n")) == [(25, "train"), (75, "test")]


def test_a_frame_in_two_image_sets_is_refused(lists):
    with pytest.raises(FormatError, match="v01_000025 is in the image sets train and test"):
        opened(lists(train="v01_000025\n", test="v01_000025\nv01_000050\n"))


def test_frames_without_a_picture_are_counted(lists):
    root = lists(train="v01_000025\nv01_000100\n")
    with pytest.warns(UserWarning, match="skipped 1 of 2 frames of train, which have no image"):
        assert opened(root) == [(25, "train")]


@pytest.mark.parametrize("number", ["nan", "inf"])
def test_boxes_are_finite(lists, number):
    root = lists(train="v01_000025\n")
    thing = OBJECT.format(10, 10, number, 30, name="Hook")
    (root / "Annotations" / "v01_000025.xml").write_text(XML.format(name="v01_000025", objects=thing))
    with pytest.raises(FormatError, match=f"should be a number, found '{number}'"):
        read_frame(root, "v01_000025")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frame,cholec80_phase\nv01_000025,99\n", "line 2: phase '99'"),
        ("frame,cholec80_phase\nv01_000025,-7\n", "line 2: phase '-7'"),
        ("frame,cholec80_phase\nv01_000025,1\nv01_000025,2\n", "line 3: v01_000025 is listed twice"),
        ("name,phase\nv01_000025,1\n", "line 1: the columns frame and cholec80_phase"),
    ],
)
def test_phases_of_frames_are_checked(lists, text, message):
    root = lists(train="v01_000025\n")
    (root / "frame_labels.csv").write_text(text)
    with pytest.raises(FormatError, match=message):
        opened(root)

"""tensorflow-datasets builders without TensorFlow: round trips, random access, and invalid sources."""

import sys
import warnings

import numpy as np
import pytest

from hmmjax.io import CHOLEC80_TOOLS, FormatError

pytest.importorskip("array_record", reason="the builders' files need array_record (the tfds extra)")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # from imports of the package
    tfds = pytest.importorskip("tensorflow_datasets", reason="needs tensorflow-datasets (the tfds extra)")
    # Imported after the line above, which skips the tests if the package is missing.
    from models.data import tfds_builders
    from models.data.cholec80 import cholec80

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")


def prepare(builder, root):
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(manual_dir=str(root)))
    return builder


def small(name, **options):
    return tfds_builders.FramesConfig(name=name, height=24, width=32, **options)


def test_cholec80_reads_back_identically_in_order(layout, tmp_path):
    root, surgeries = layout
    config = small("small")
    builder = prepare(tfds_builders.Cholec80Frames(config=config, data_dir=tmp_path, file_format="array_record"), root)
    source = builder.as_data_source("unsplit")
    assert len(source) == sum(map(len, surgeries))
    collection = cholec80(root)
    row = 0
    for video, surgery in zip(collection.ids, surgeries, strict=True):
        pictures = dict(collection.pictures(video, size=(24, 32)))
        for second in range(len(surgery)):
            if second % 9 == 0:
                example = source[row]
                assert example["video"].decode() == video and example["frame"] == 25 * second
                assert example["second"] == second and example["phase"] == surgery.phases[second]
                np.testing.assert_array_equal(example["tools"], surgery.tools[second])
                assert np.abs(example["image"].astype(int) - pictures[25 * second]).mean() < 6  # JPEG
            row += 1
    assert builder.info.metadata["tool_names"] == list(CHOLEC80_TOOLS)
    assert "tensorflow" not in sys.modules


def test_splits_become_parts_and_names_are_registered(layout, tmp_path, monkeypatch):
    root, surgeries = layout
    monkeypatch.setitem(tfds_builders.CHOLEC80_SPLITS, "tiny", {"train": ("video01", "video03"), "test": ("video02",)})
    assert tfds.builder_cls("cholec80_frames") is tfds_builders.Cholec80Frames
    assert [c.name for c in tfds_builders.Cholec80Frames.BUILDER_CONFIGS] == [
        "split_40_40",
        "split_32_8_40",
        "split_40_8_32",
    ]
    config = small("tiny", split="tiny")
    builder = prepare(tfds_builders.Cholec80Frames(config=config, data_dir=tmp_path, file_format="array_record"), root)
    lengths = {name: split.num_examples for name, split in builder.info.splits.items()}
    assert lengths == {"train": len(surgeries[0]) + len(surgeries[2]), "test": len(surgeries[1])}


def test_parquet_is_complete_or_refused(layout, tmp_path):
    """Some versions lose examples after the first hundred, which is an error."""
    root, surgeries = layout
    builder = tfds_builders.Cholec80Frames(config=small("small"), data_dir=tmp_path, file_format="parquet")
    assert sum(map(len, surgeries)) > 110
    try:
        prepare(builder, root)
    except FormatError as error:
        assert "array_record" in str(error) and f"of {sum(map(len, surgeries))} examples" in str(error)
    else:
        assert len(builder.as_data_source("unsplit")) == sum(map(len, surgeries))


def test_any_collection_from_its_manifest(layout, tmp_path):
    root, surgeries = layout
    manifest = root / "manifest.yaml"
    manifest.write_text(
        f"tools: [{', '.join(CHOLEC80_TOOLS)}]\nvideos:\n"
        "  - {id: a, video: videos/video01.mp4, tools: tool_annotations/video01-tool.txt, part: train}\n"
        "  - {id: b, video: videos/video02.mp4, part: train}\n"
    )
    config = small("mine", manifest=str(manifest))
    builder = prepare(
        tfds_builders.SurgeryCollection(config=config, data_dir=tmp_path, file_format="array_record"), root
    )
    source = builder.as_data_source("train")
    assert len(source) == len(surgeries[0]) + len(surgeries[1]) + 1  # b has no annotation, so all its seconds are used
    np.testing.assert_array_equal(source[5]["tools"], surgeries[0].tools[5])
    last = source[len(source) - 1]
    assert last["phase"] == -1 and (last["tools"] == -1).all() and last["frame"] == 25 * len(surgeries[1])


def test_options_of_another_kind_are_refused(layout, tmp_path):
    root, _ = layout
    config = tfds.core.BuilderConfig(name="plain")
    builder = tfds_builders.M2cai16ToolFrames(config=config, data_dir=tmp_path, file_format="array_record")
    with pytest.raises(FormatError, match=r"M2cai16ToolFrames needs a FramesConfig.*config=FramesConfig"):
        prepare(builder, root)
    with pytest.raises(FormatError, match="SurgeryCollection needs a FramesConfig"):
        tfds_builders.SurgeryCollection(config=config, data_dir=tmp_path)


@pytest.fixture
def locations(tmp_path):
    from PIL import Image

    root = tmp_path / "locations"
    for folder in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (root / folder).mkdir(parents=True)
    Image.new("RGB", (40, 20), (9, 90, 9)).save(root / "JPEGImages" / "v01_000025.jpg")
    Image.new("RGB", (40, 20)).save(root / "JPEGImages" / "v01_000050.jpg")
    box = "<bndbox><xmin>20</xmin><ymin>-4</ymin><xmax>40</xmax><ymax>20</ymax></bndbox>"
    size = "<size><width>80</width><height>40</height></size>"
    for name, thing in (("v01_000025", f"<object><name>Hook</name>{box}</object>"), ("v01_000050", "")):
        (root / "Annotations" / f"{name}.xml").write_text(f"<annotation>{size}{thing}</annotation>")
    (root / "ImageSets" / "Main" / "train.txt").write_text("v01_000050\nv01_000025\n")
    return root


def located(tmp_path, **options):
    return tfds_builders.M2cai16ToolLocations(data_dir=tmp_path / "out", file_format="array_record", **options)


def test_boxes(locations, tmp_path):
    builder = prepare(located(tmp_path), locations)
    source = builder.as_data_source("train")
    assert [int(source[row]["frame"]) for row in range(2)] == [50, 25]  # as the image set lists them
    examples = {int(e["frame"]): e for e in source}
    assert examples[25]["image"].shape == (20, 40, 3)
    np.testing.assert_allclose(examples[25]["boxes"]["bbox"], [[0, 0.25, 0.5, 0.5]])
    assert list(examples[25]["boxes"]["tool"]) == [2] and examples[25]["tools"].tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert len(examples[50]["boxes"]["tool"]) == 0 and not examples[50]["tools"].any()


def build(name, tmp_path):
    if name == "SurgeryCollection":
        (tmp_path / "empty.yaml").write_text("videos: []\n")
        config = small("mine", manifest=str(tmp_path / "empty.yaml"))
        return tfds_builders.SurgeryCollection(config=config, data_dir=tmp_path / "out", file_format="array_record")
    return getattr(tfds_builders, name)(data_dir=tmp_path / "out", file_format="array_record")


@pytest.mark.parametrize(
    "name", ["Cholec80Frames", "M2cai16ToolFrames", "M2cai16WorkflowFrames", "M2cai16ToolLocations"]
)
@pytest.mark.parametrize("wrong", ["absent", "empty", "other", None])
def test_a_wrong_folder_builds_nothing(tmp_path, name, wrong):
    """An invalid folder is an error before anything is written, because tensorflow-datasets would keep the result."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "holiday.txt").touch()
    builder = build(name, tmp_path)
    config = tfds.download.DownloadConfig(manual_dir=wrong and str(tmp_path / wrong))
    with pytest.raises(FormatError, match="Fix: "):
        builder.download_and_prepare(download_config=config)
    assert not builder.is_prepared() and not (tmp_path / "out").exists()


def test_collections_without_videos_or_a_manifest_build_nothing(tmp_path):
    with pytest.raises(FormatError, match="no videos"):
        build("SurgeryCollection", tmp_path)
    with pytest.raises(FormatError, match=r"gives no manifest.*FramesConfig"):
        tfds_builders.SurgeryCollection(data_dir=tmp_path / "out", file_format="array_record")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("change", ["empty", "absent", "picture"])
def test_image_sets_without_frames_build_nothing(locations, tmp_path, change):
    listed = locations / "ImageSets" / "Main" / "train.txt"
    if change == "empty":
        listed.write_text("")
    elif change == "absent":
        listed.unlink()
    else:
        (locations / "JPEGImages" / "v01_000025.jpg").unlink()
    builder = located(tmp_path)
    with pytest.raises(FormatError, match=r"image set|no such image"):
        prepare(builder, locations)
    assert not builder.is_prepared() and not (tmp_path / "out").exists()


def test_formats_that_need_tensorflow_are_rejected_first(layout, tmp_path):
    root, _ = layout
    builder = tfds_builders.Cholec80Frames(config=small("small"), data_dir=tmp_path / "out")
    with pytest.raises(FormatError, match="give the builder file_format='array_record'"):
        prepare(builder, root)
    assert not (tmp_path / "out").exists()


def test_beam_builds_the_same_examples(layout, tmp_path):
    pytest.importorskip("apache_beam", reason="needs apache-beam (the beam extra)")
    from apache_beam.options.pipeline_options import PipelineOptions

    root, _ = layout
    sources = []
    for beam in (False, True):
        config = small(f"beam{beam}", beam=beam)
        builder = tfds_builders.Cholec80Frames(config=config, data_dir=tmp_path, file_format="array_record")
        options = PipelineOptions(runner="DirectRunner", direct_running_mode="in_memory") if beam else None
        download = tfds.download.DownloadConfig(manual_dir=str(root), beam_options=options)
        builder.download_and_prepare(download_config=download)
        sources.append(builder.as_data_source("unsplit"))
    assert len(sources[0]) == len(sources[1])
    for plain, spread in zip(*sources, strict=True):
        for field in plain:
            np.testing.assert_array_equal(plain[field], spread[field])


def test_damaged_video_builds_nothing(layout, tmp_path):
    import shutil

    root, _ = layout
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    path = copy / "videos" / "video02.mp4"
    path.write_bytes(path.read_bytes()[:-2000])
    builder = tfds_builders.Cholec80Frames(config=small("small"), data_dir=tmp_path, file_format="array_record")
    with pytest.raises(FormatError, match=r"video02\.mp4"):
        prepare(builder, copy)
    assert not builder.is_prepared()

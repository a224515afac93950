"""tensorflow-datasets builders for the surgical datasets; they work without TensorFlow.

    import tensorflow_datasets as tfds
    import models.data.tfds_builders                      # registers them
    builder = tfds.builder("cholec80_frames/split_40_40", file_format="array_record")
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(manual_dir="cholec80/"))
    source = builder.as_data_source("train")              # random access: len(source), source[i]; Grain takes it as is

Nothing is downloaded: `manual_dir` is the copy that one has (for `surgery_collection`, the config names a manifest).
Examples are in order, video by video. A config with ``beam=True`` spreads videos over Beam workers.
"""

import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from hmmjax.data.splits import CHOLEC80_SPLITS
from hmmjax.io import CHOLEC80_PHASES, CHOLEC80_TOOLS, M2CAI16_PHASES, FormatError
from models.data.cholec80 import cholec80
from models.data.collections import Collection
from models.data.collections_manifest import read_manifest
from models.data.m2cai import m2cai16_tool, m2cai16_workflow
from models.data.m2cai_locations import BoxedFrame, read_frame, read_image_set

VERSION = tfds.core.Version("1.0.0")


@dataclasses.dataclass
class FramesConfig(tfds.core.BuilderConfig):
    """What all builders of frames can be told.

    Attributes:
        height: of the stored pictures, pixels; 0 keeps the native size.
        width: likewise.
        crop: cut black borders off first.
        quality: JPEG's.
        beam: spread videos over Beam workers.
        split: for Cholec80, the name of the split.
        offset: for M2CAI16-workflow, the first used frame.
        manifest: for `SurgeryCollection`, the file that lists the videos.
    """

    height: int = 0
    width: int = 0
    crop: bool = False
    quality: int = 92
    beam: bool = False
    split: str = ""
    offset: int = 0
    manifest: str = ""


class CompleteBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A builder that counts what it wrote: some versions' parquet writer loses examples after the first hundred."""

    VERSION = VERSION

    def download_and_prepare(self, **options: Any) -> None:
        """Write the dataset, as tensorflow-datasets does, and count it.

        Raises:
            FormatError: when files hold another number of examples than were written.
        """
        super().download_and_prepare(**options)
        if self.info.file_format not in (tfds.core.FileFormat.ARRAY_RECORD, tfds.core.FileFormat.PARQUET):
            return  # cannot be read at random, so not be counted without TensorFlow
        for name, split in self.info.splits.items():
            found = len(self.as_data_source(name))
            if found != split.num_examples:
                kind = self.info.file_format.value
                raise FormatError(
                    f"the split {name} holds {found} of {split.num_examples} examples: "
                    f"the {kind} writer of this version of tensorflow-datasets loses some",
                    file=self.data_dir,
                    fix="remove the folder and build with file_format='array_record'",
                )


class CollectionFrames(CompleteBuilder, skip_registration=True):
    """Frames of a `Collection`, one example each: image, video, frame, second, phase, tools.

    An unknown phase or tool is -1.
    """

    BUILDER_CONFIGS = [FramesConfig(name="native")]  # noqa: RUF012
    MANUAL_DOWNLOAD_INSTRUCTIONS = "Give the folder of your copy as manual_dir."
    PHASES: tuple[str, ...] = ()
    TOOLS: tuple[str, ...] = ()

    def collection(self, root: Path) -> Collection:
        """The videos to build from."""
        raise TypeError(f"{type(self).__name__} must define collection")

    def _info(self) -> tfds.core.DatasetInfo:
        phases, tools = self._names()
        return self.dataset_info_from_configs(
            description=type(self).__doc__ or "",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg"),
                    "video": tfds.features.Text(),
                    "frame": tfds.features.Scalar(np.int64),
                    "second": tfds.features.Scalar(np.float32),
                    "phase": tfds.features.Scalar(np.int32),
                    "tools": tfds.features.Tensor(shape=(len(tools),), dtype=np.int32),
                }
            ),
            metadata=tfds.core.MetadataDict(phase_names=list(phases), tool_names=list(tools)),
            disable_shuffling=True,
        )

    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.PHASES, self.TOOLS

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        collection = self.collection(Path(dl_manager.manual_dir))
        parts = dict.fromkeys(recording.part for recording in collection.recordings)
        return {part or "unsplit": self._generate_examples(collection, collection.part(part)) for part in parts}

    def _generate_examples(self, collection: Collection, videos: tuple[str, ...]) -> Any:
        def examples(numbered: tuple[int, str]) -> Iterator[tuple[int, dict[str, Any]]]:
            return self._video(collection, *numbered)

        if self.builder_config.beam:
            beam = tfds.core.lazy_imports.apache_beam
            return beam.Create(list(enumerate(videos))) | beam.FlatMap(examples)
        return (example for numbered in enumerate(videos) for example in examples(numbered))

    def _video(self, collection: Collection, number: int, video: str) -> Iterator[tuple[int, dict[str, Any]]]:
        config = self.builder_config
        known = collection.annotation(video)
        size = (config.height, config.width) if config.height else None
        pictures = collection.pictures(video, known.frames, size=size, crop=config.crop)
        for row, (frame, picture) in enumerate(pictures):
            # Keys are written in ascending order; no video has 2^31 frames.
            yield (
                (number << 31) + frame,
                {
                    "image": encode(picture, config.quality),
                    "video": video,
                    "frame": frame,
                    "second": known.seconds[row],
                    "phase": known.phases[row],
                    "tools": known.tools[row],
                },
            )


class Cholec80Frames(CollectionFrames):
    """Cholec80 at one frame a second; a config per split."""

    BUILDER_CONFIGS = [  # noqa: RUF012
        FramesConfig(name="split_" + name.replace("/", "_"), split=name) for name in CHOLEC80_SPLITS
    ]
    PHASES, TOOLS = CHOLEC80_PHASES, CHOLEC80_TOOLS

    def collection(self, root: Path) -> Collection:
        """The split's videos; without a split, all that there are."""
        name = self.builder_config.split
        return cholec80(root, split=CHOLEC80_SPLITS[name] if name else None)


class M2cai16ToolFrames(CollectionFrames):
    """M2CAI16-tool at one frame a second."""

    TOOLS = CHOLEC80_TOOLS

    def collection(self, root: Path) -> Collection:
        """Ten training and five test videos."""
        return m2cai16_tool(root)


class M2cai16WorkflowFrames(CollectionFrames):
    """M2CAI16-workflow, eight phases, at one frame a second."""

    PHASES = M2CAI16_PHASES

    def collection(self, root: Path) -> Collection:
        """Training and test videos."""
        return m2cai16_workflow(root, offset=self.builder_config.offset)


class SurgeryCollection(CollectionFrames):
    """Any collection, from its manifest."""

    BUILDER_CONFIGS = []  # noqa: RUF012

    def collection(self, root: Path) -> Collection:
        """What the config's manifest lists."""
        return read_manifest(self.builder_config.manifest)

    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        collection = read_manifest(self.builder_config.manifest)
        return collection.phase_names, collection.tool_names


class M2cai16ToolLocations(CompleteBuilder):
    """m2cai16-tool-locations: frames with a box around each instrument, in the published image sets."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = "Give the folder that holds Annotations, ImageSets and JPEGImages as manual_dir."

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            description=type(self).__doc__ or "",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg"),
                    "video": tfds.features.Text(),
                    "frame": tfds.features.Scalar(np.int64),
                    "tools": tfds.features.Tensor(shape=(len(CHOLEC80_TOOLS),), dtype=np.int32),
                    "boxes": tfds.features.Sequence(
                        {"tool": tfds.features.Scalar(np.int32), "bbox": tfds.features.BBoxFeature()}
                    ),
                }
            ),
            metadata=tfds.core.MetadataDict(tool_names=list(CHOLEC80_TOOLS)),
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        root = Path(dl_manager.manual_dir)
        # trainval is train and val; a copy may lack the test set.
        sets = [s for s in ("train", "val", "test") if (root / "ImageSets" / "Main" / f"{s}.txt").is_file()]
        return {name: self._generate_examples(root, read_image_set(root, name)) for name in sets}

    def _generate_examples(self, root: Path, names: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
        for name in names:
            frame = read_frame(root, name)
            yield (
                name,
                {
                    "image": frame.image,
                    "video": frame.video,
                    "frame": frame.frame,
                    "tools": frame.presence,
                    "boxes": _boxes(frame),
                },
            )


def _boxes(frame: BoxedFrame) -> list[dict[str, Any]]:
    return [
        {"tool": int(tool), "bbox": tfds.features.BBox(ymin=ymin, xmin=xmin, ymax=ymax, xmax=xmax)}
        for tool, (xmin, ymin, xmax, ymax) in zip(frame.tools, frame.boxes.tolist(), strict=True)
    ]


def encode(picture: np.ndarray, quality: int) -> io.BytesIO:
    """A picture as a JPEG file in memory; as arrays, tensorflow-datasets would need TensorFlow for them."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=quality)
    buffer.seek(0)
    return buffer

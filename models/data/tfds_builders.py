"""tensorflow-datasets builders for surgical datasets; they work without TensorFlow.

    import tensorflow_datasets as tfds
    import models.data.tfds_builders                      # registers them
    builder = tfds.builder("cholec80_frames/split_40_40", file_format="array_record")
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(manual_dir="cholec80/"))
    source = builder.as_data_source("train")              # random access: len(source), source[i]; works with Grain

Nothing is downloaded: `manual_dir` is the folder of your copy (for `surgery_collection`, the config gives a manifest).
Examples are in order: video by video for collections, and as listed for image sets. A config with ``beam=True``
distributes videos over Beam workers.
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
from models.data.m2cai_locations import BoxedFrame, read_frame, read_image_sets
from models.data.picture import encode_jpeg
from models.data.tfds_complete import CompleteBuilder


@dataclasses.dataclass
class FramesConfig(tfds.core.BuilderConfig):
    """Options of all builders of frames.

    Attributes:
        height: of the stored images in pixels; 0 keeps the native size.
        width: of the stored images in pixels; 0 keeps the native size.
        crop: cut off black borders first.
        quality: JPEG quality, at most 95.
        beam: distribute videos over Beam workers; needs apache-beam (the ``beam`` extra).
        split: name of the split, for Cholec80.
        offset: number of the first used frame, for M2CAI16-workflow.
        manifest: path of the manifest, for `SurgeryCollection`.
    """

    height: int = 0
    width: int = 0
    crop: bool = False
    quality: int = 92
    beam: bool = False
    split: str = ""
    offset: int = 0
    manifest: str = ""


# `skip_registration` is unknown to pyright without the tfds extra.
class CollectionFrames(  # pyright: ignore[reportGeneralTypeIssues]
    CompleteBuilder,
    skip_registration=True,  # pyright: ignore[reportCallIssue]
):
    """Frames of a `Collection`: one example per frame with image, video, frame, second, phase and tools.

    Unknown phases and tools are -1.
    """

    BUILDER_CONFIGS = [FramesConfig(name="native")]  # noqa: RUF012
    MANUAL_DOWNLOAD_INSTRUCTIONS = "Pass the folder of your copy as manual_dir."
    PHASES: tuple[str, ...] = ()
    TOOLS: tuple[str, ...] = ()

    @property
    def config(self) -> FramesConfig:
        """The options of this builder.

        Raises:
            FormatError: for a builder without options, or with those of another kind.
        """
        if not isinstance(self.builder_config, FramesConfig):
            raise FormatError(
                f"{type(self).__name__} needs a FramesConfig", fix="pass config=FramesConfig(name=...) to the builder"
            )
        return self.builder_config

    def collection(self, root: Path) -> Collection:
        """Open the videos to build from; `root` is manual_dir."""
        raise TypeError(f"{type(self).__name__} must define collection")

    def check_source(self, root: Path) -> None:
        """Raise FormatError unless the collection opens and has videos, and height and width are both given or neither.

        Args:
            root: manual_dir, if the builder needs one.
        """
        config = self.config
        if bool(config.height) != bool(config.width):
            raise FormatError(f"height is {config.height} and width {config.width}", fix="give both or neither")
        if not self.collection(root).recordings:
            raise FormatError(
                "no videos in the collection", file=root, fix="pass the folder of your copy as manual_dir"
            )

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
        collection = self.collection(Path(dl_manager.manual_dir) if self.FROM_FOLDER else Path())
        parts = dict.fromkeys(recording.part for recording in collection.recordings)
        return {part or "unsplit": self._generate_examples(collection, collection.part(part)) for part in parts}

    def _generate_examples(self, collection: Collection, videos: tuple[str, ...]) -> Any:
        def examples(numbered: tuple[int, str]) -> Iterator[tuple[int, dict[str, Any]]]:
            return self._video(collection, *numbered)

        if self.config.beam:
            beam = tfds.core.lazy_imports.apache_beam
            return beam.Create(list(enumerate(videos))) | beam.FlatMap(examples)
        return (example for numbered in enumerate(videos) for example in examples(numbered))

    def _video(self, collection: Collection, number: int, video: str) -> Iterator[tuple[int, dict[str, Any]]]:
        config = self.config
        known = collection.annotation(video)
        size = (config.height, config.width) if config.height else None
        pictures = collection.pictures(video, known.frames, size=size, crop=config.crop)
        for row, (frame, picture) in enumerate(pictures):
            # Keys must ascend; a video has fewer than 2^31 frames.
            yield (
                (number << 31) + frame,
                {
                    # As an array, tensorflow-datasets would need TensorFlow to encode it.
                    "image": io.BytesIO(encode_jpeg(picture, config.quality)),
                    "video": video,
                    "frame": frame,
                    "second": known.seconds[row],
                    "phase": known.phases[row],
                    "tools": known.tools[row],
                },
            )


class Cholec80Frames(CollectionFrames):
    """Cholec80 at one frame per second; one config per split."""

    BUILDER_CONFIGS = [  # noqa: RUF012
        FramesConfig(name="split_" + name.replace("/", "_"), split=name) for name in CHOLEC80_SPLITS
    ]
    PHASES, TOOLS = CHOLEC80_PHASES, CHOLEC80_TOOLS

    def collection(self, root: Path) -> Collection:
        """Open the videos of the split, or all without a split."""
        name = self.config.split
        return cholec80(root, split=CHOLEC80_SPLITS[name] if name else None)


class M2cai16ToolFrames(CollectionFrames):
    """M2CAI16-tool at one frame per second."""

    TOOLS = CHOLEC80_TOOLS

    def collection(self, root: Path) -> Collection:
        """Open the ten training and five test videos."""
        return m2cai16_tool(root)


class M2cai16WorkflowFrames(CollectionFrames):
    """M2CAI16-workflow, with eight phases, at one frame per second."""

    PHASES = M2CAI16_PHASES

    def collection(self, root: Path) -> Collection:
        """Open the training and test videos."""
        return m2cai16_workflow(root, offset=self.config.offset)


class SurgeryCollection(CollectionFrames):
    """Any collection with a manifest; needs no manual_dir."""

    BUILDER_CONFIGS = []  # noqa: RUF012
    FROM_FOLDER = False

    def collection(self, root: Path) -> Collection:
        """Open the videos of the config's manifest."""
        manifest = self.config.manifest if self.builder_config else ""
        if not manifest:
            raise FormatError(
                "the config gives no manifest",
                fix="pass config=FramesConfig(name=..., manifest='collection.yaml') to the builder",
            )
        return read_manifest(manifest)

    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        collection = self.collection(Path())
        return collection.phase_names, collection.tool_names


class M2cai16ToolLocations(CompleteBuilder):
    """m2cai16-tool-locations: frames with a box around each instrument, in the published image sets."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = "Pass the folder that contains Annotations, ImageSets and JPEGImages as manual_dir."

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
            disable_shuffling=True,
        )

    def check_source(self, root: Path) -> None:
        """Raise FormatError unless there are image sets and all their images.

        Args:
            root: contains Annotations, ImageSets and JPEGImages.
        """
        for names in read_image_sets(root).values():
            for name in names:
                if not (picture := root / "JPEGImages" / f"{name}.jpg").is_file():
                    raise FormatError(
                        "no such image", file=picture, fix="complete the copy, or remove the frame from the image set"
                    )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        root = Path(dl_manager.manual_dir)
        return {part: self._generate_examples(root, names) for part, names in read_image_sets(root).items()}

    def _generate_examples(self, root: Path, names: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
        for row, name in enumerate(names):
            frame = read_frame(root, name)
            yield (
                row,
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

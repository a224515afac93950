"""tensorflow-datasets builders for the surgical datasets; they work without TensorFlow.

    import tensorflow_datasets as tfds
    import models.data.tfds_builders                      # registers them
    builder = tfds.builder("cholec80_frames/split_40_40", file_format="array_record")
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(manual_dir="cholec80/"))
    source = builder.as_data_source("train")              # random access: len(source), source[i]; Grain takes it as is

Nothing is downloaded: `manual_dir` is the copy that one has (for `surgery_collection`, the config names a manifest).
Examples are in order: of collections video by video, of image sets as these list them. A config with ``beam=True``
spreads videos over Beam workers.
"""

import dataclasses
import importlib.util
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

VERSION = tfds.core.Version("1.0.0")


@dataclasses.dataclass
class FramesConfig(tfds.core.BuilderConfig):
    """What all builders of frames can be told.

    Attributes:
        height: of the stored pictures, pixels; 0 keeps the native size.
        width: likewise.
        crop: cut black borders off first.
        quality: JPEG's.
        beam: spread videos over Beam workers; needs apache-beam (the ``beam`` extra).
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
    """A builder that looks at its source before it writes, and counts what it wrote.

    An empty dataset, once written, would be taken for the right one ever after; and some versions' parquet writer loses
    examples after the first hundred.
    """

    VERSION = VERSION
    #: Whether examples come from manual_dir.
    FROM_FOLDER = True

    def download_and_prepare(
        self, *, download_dir: Any = None, download_config: Any = None, file_format: Any = None, **options: Any
    ) -> None:
        """Write the dataset, as tensorflow-datasets does, and count it.

        Args:
            download_dir: as in tensorflow-datasets.
            download_config: names the folder of one's copy, ``DownloadConfig(manual_dir=...)``.
            file_format: "array_record" for reading at random without TensorFlow; usually given to the builder.
            **options: whatever else tensorflow-datasets takes.

        Raises:
            FormatError: before anything is written, when the folder is missing or does not hold the dataset, or when
                the file format needs TensorFlow and it is not installed; and when files hold another number of
                examples than were written, or none.
        """
        if not self.is_prepared():
            self._check_format(file_format)
            self.check_source(self._folder(download_dir, download_config) if self.FROM_FOLDER else Path())
        super().download_and_prepare(
            download_dir=download_dir, download_config=download_config, file_format=file_format, **options
        )
        empty = [name for name, split in self.info.splits.items() if not split.num_examples]
        if empty or not self.info.splits:
            raise FormatError(
                f"no examples in {', '.join(empty) or 'this dataset'}",
                file=self.data_dir,
                fix="remove the folder and build again",
            )
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

    def check_source(self, root: Path) -> None:
        """Look whether there is something to build from.

        Args:
            root: manual_dir, where the builder needs one.

        Raises:
            FormatError: when there is not.
        """
        raise TypeError(f"{type(self).__name__} must define check_source")

    def _check_format(self, file_format: Any) -> None:
        kind = tfds.core.FileFormat.from_value(file_format) if file_format else self.info.file_format
        tensors = kind in (None, tfds.core.FileFormat.TFRECORD)
        if tensors and importlib.util.find_spec("tensorflow") is None:
            raise FormatError(
                "without file_format tensorflow-datasets writes TFRecord, which needs TensorFlow",
                fix="give the builder file_format='array_record'",
            )

    def _folder(self, download_dir: Any, download_config: Any) -> Path:
        given = None if download_config is None else download_config.manual_dir
        # Where tensorflow-datasets looks unless told.
        downloads = Path(download_dir) if download_dir else Path(self.data_dir_root) / "downloads"
        root = Path(given).expanduser() if given else downloads / "manual"
        fix = "give the folder of your copy: download_config=tfds.download.DownloadConfig(manual_dir=...)"
        if not root.is_dir():
            raise FormatError("no such folder", file=root, fix=fix)
        if not any(root.iterdir()):
            raise FormatError("this folder is empty", file=root, fix=fix)
        return root


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

    def check_source(self, root: Path) -> None:
        """See that the collection opens and has videos.

        Args:
            root: see `collection`.

        Raises:
            FormatError: when it does not, or when only one of height and width is given.
        """
        config = self.builder_config
        if bool(config.height) != bool(config.width):
            raise FormatError(f"height is {config.height} and width {config.width}", fix="give both, or neither")
        if not self.collection(root).recordings:
            raise FormatError("no videos", file=root, fix="give the folder of your copy as manual_dir")

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
    """Any collection, from its manifest; needs no manual_dir."""

    BUILDER_CONFIGS = []  # noqa: RUF012
    FROM_FOLDER = False

    def collection(self, root: Path) -> Collection:
        """What the config's manifest lists."""
        manifest = self.builder_config.manifest if self.builder_config else ""
        if not manifest:
            raise FormatError(
                "which manifest?", fix="give config=FramesConfig(name=..., manifest='collection.yaml') to the builder"
            )
        return read_manifest(manifest)

    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        collection = self.collection(Path())
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
            disable_shuffling=True,
        )

    def check_source(self, root: Path) -> None:
        """See that there are image sets, and pictures.

        Args:
            root: holds Annotations, ImageSets and JPEGImages.

        Raises:
            FormatError: when there are not.
        """
        for names in read_image_sets(root).values():
            for name in names:
                if not (picture := root / "JPEGImages" / f"{name}.jpg").is_file():
                    raise FormatError(
                        "no such picture", file=picture, fix="complete the copy, or shorten the image set"
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


def encode(picture: np.ndarray, quality: int) -> io.BytesIO:
    """A picture as a JPEG file in memory; as arrays, tensorflow-datasets would need TensorFlow for them."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=quality)
    buffer.seek(0)
    return buffer

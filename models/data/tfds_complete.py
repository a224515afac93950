"""The base of the tensorflow-datasets builders: checks of the source before writing, and of the result after it."""

import importlib.util
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from hmmjax.io import FormatError


# `skip_registration` is unknown to pyright without the tfds extra.
class CompleteBuilder(  # pyright: ignore[reportGeneralTypeIssues]
    tfds.core.GeneratorBasedBuilder,
    skip_registration=True,  # pyright: ignore[reportCallIssue]
):
    """A builder that checks its source before writing and counts the examples that it wrote.

    tensorflow-datasets keeps using an empty dataset once it is written, and the parquet writer of some versions loses
    examples after the first hundred.
    """

    VERSION = tfds.core.Version("1.0.0")
    #: Whether examples are read from manual_dir.
    FROM_FOLDER = True

    def download_and_prepare(
        self, *, download_dir: Any = None, download_config: Any = None, file_format: Any = None, **options: Any
    ) -> None:
        """Write the dataset with tensorflow-datasets and count its examples.

        Args:
            download_dir: of tensorflow-datasets.
            download_config: gives the folder of your copy, ``DownloadConfig(manual_dir=...)``.
            file_format: "array_record" for random access without TensorFlow; usually given to the builder.
            **options: other options of tensorflow-datasets.

        Raises:
            FormatError: before anything is written, if the folder is missing or does not contain the dataset, or if the
                file format needs TensorFlow and it is not installed; after writing, if the files contain no examples or
                fewer than were written.
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
            return  # without TensorFlow, only these formats can be counted
        for name, split in self.info.splits.items():
            # The decorator of tensorflow-datasets hides the method's parameters.
            found = len(self.as_data_source(name))  # pyright: ignore[reportCallIssue]
            if found != split.num_examples:
                kind = self.info.file_format.value
                raise FormatError(
                    f"the split {name} has {found} of {split.num_examples} examples: "
                    f"the {kind} writer of this version of tensorflow-datasets loses some",
                    file=self.data_dir,
                    fix="remove the folder and build with file_format='array_record'",
                )

    def check_source(self, root: Path) -> None:
        """Raise FormatError unless the source of the dataset is valid.

        Args:
            root: manual_dir, if the builder needs one.
        """
        raise TypeError(f"{type(self).__name__} must define check_source")

    def _check_format(self, file_format: Any) -> None:
        kind = tfds.core.FileFormat.from_value(file_format) if file_format else self.info.file_format
        tensors = kind in (None, tfds.core.FileFormat.TFRECORD)
        if tensors and importlib.util.find_spec("tensorflow") is None:
            raise FormatError(
                "by default tensorflow-datasets writes TFRecord, which needs TensorFlow",
                fix="give the builder file_format='array_record'",
            )

    def _folder(self, download_dir: Any, download_config: Any) -> Path:
        given = None if download_config is None else download_config.manual_dir
        # The default location of tensorflow-datasets.
        downloads = Path(download_dir) if download_dir else Path(self.data_dir_root) / "downloads"
        root = Path(given).expanduser() if given else downloads / "manual"
        fix = "give the folder of your copy: download_config=tfds.download.DownloadConfig(manual_dir=...)"
        if not root.is_dir():
            raise FormatError("no such folder", file=root, fix=fix)
        if not any(root.iterdir()):
            raise FormatError("this folder is empty", file=root, fix=fix)
        return root

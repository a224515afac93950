"""Read and write predictions, annotations and models. Needs only NumPy; nothing in a file is executed.

tracks = hmmjax.io.read("predictions/", phase_names="cholec80")
videos = hmmjax.io.join(tracks)
obs, labels, mask, index = hmmjax.io.to_batch(videos, hmmjax.io.read_annotations("annotations/"))
"""

from typing import TYPE_CHECKING

from hmmjax._core.deprecation import renamed
from hmmjax.io.atomic_write import write_atomically
from hmmjax.io.batch import BatchIndex, to_batch
from hmmjax.io.choose import select
from hmmjax.io.errors import FormatError
from hmmjax.io.folder import check_free, claim, is_unfinished, lock, refuse_existing
from hmmjax.io.join import align_classes, join, sample
from hmmjax.io.labels import label_rows, match_annotations, merge_labels
from hmmjax.io.model_file import ModelFile, load_params, save_params
from hmmjax.io.names import (
    CHOLEC80_PHASES,
    CHOLEC80_TOOLS,
    CHOLECT50_TOOLS,
    M2CAI16_PHASES,
    TF_CHOLEC80_PHASES,
    resolve_names,
)
from hmmjax.io.read import find_files, read, read_annotations
from hmmjax.io.segment_files import write_segments
from hmmjax.io.tracks import Layout, Track, Video
from hmmjax.io.videos import array_suffix, natural, rename_videos, video_id
from hmmjax.io.write import plan_files, save_npz, write, write_csv, write_posteriors

__all__ = [
    "CHOLEC80_PHASES",
    "CHOLEC80_TOOLS",
    "CHOLECT50_TOOLS",
    "M2CAI16_PHASES",
    "TF_CHOLEC80_PHASES",
    "BatchIndex",
    "FormatError",
    "Layout",
    "ModelFile",
    "Track",
    "Video",
    "align_classes",
    "array_suffix",
    "check_free",
    "claim",
    "find_files",
    "is_unfinished",
    "join",
    "label_rows",
    "load_params",
    "lock",
    "match_annotations",
    "merge_labels",
    "natural",
    "plan_files",
    "read",
    "read_annotations",
    "refuse_existing",
    "rename_videos",
    "resolve_names",
    "sample",
    "save_npz",
    "save_params",
    "select",
    "to_batch",
    "video_id",
    "write",
    "write_atomically",
    "write_csv",
    "write_posteriors",
    "write_segments",
]

if not TYPE_CHECKING:
    __getattr__ = renamed(
        __name__, {"atomic": "write_atomically", "fit_with_checkpoint": "hmmjax.checkpoint.fit_with_checkpoint"}
    )

"""Collections of videos as they are named on command lines, and the tables of their labels."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hmmjax.data.splits import cholec80_split
from hmmjax.io import FormatError
from models.data.annotation import Annotation
from models.data.cholec80 import cholec80
from models.data.collections import Collection
from models.data.collections_manifest import read_manifest
from models.data.frames import FrameTable
from models.data.m2cai import m2cai16_workflow


def open_collection(place: str, split: str | None = None, *, pictures: bool = True) -> Collection | None:
    """Open a collection of videos named on the command line, or return None for a source of frames.

    Args:
        place: ``cholec80:FOLDER``, ``m2cai16-workflow:FOLDER`` or a manifest (.yaml, .csv); or a source of frames, see
            `models.data.cache`.
        split: for Cholec80, the name of the split into parts.
        pictures: whether videos or images are needed; False opens Cholec80's annotations only.

    Raises:
        FormatError: for anything else, and for a split of a source that is not Cholec80.
    """
    kind, _, folder = place.partition(":")
    if kind == "cholec80":
        return cholec80(folder, split=None if split is None else cholec80_split(split), pictures=pictures)
    if kind == "m2cai16-workflow" and split is None:
        return m2cai16_workflow(folder)
    if split is not None:
        raise FormatError(
            "--split applies only to Cholec80", file=place, fix="give cholec80:FOLDER as the source, or omit the split"
        )
    if Path(place).suffix.lower() in (".yaml", ".yml", ".csv"):
        return read_manifest(place)
    if kind != "m2cai16" and not place.endswith(".npz") and not (Path(place) / "table.npz").exists():
        raise FormatError(
            "neither a source of frames nor a manifest",
            file=place,
            fix="give m2cai16:FOLDER, m2cai16-workflow:FOLDER, cholec80:FOLDER, a packed .npz, or a manifest of videos "
            "(.yaml, .csv)",
        )
    return None


def common_rate(collection: Collection) -> float:
    """Return the frame rate of all videos of a collection.

    Raises:
        FormatError: if they have different ones: a table of labels has a single one.
    """
    rates = {recording.fps for recording in collection.recordings}
    if len(rates) != 1:
        raise FormatError(
            f"the videos of {collection.name} have {len(rates)} frame rates "
            f"({', '.join(f'{rate:g}' for rate in sorted(rates))} fps), but a cache or a run has one",
            fix="write a manifest and a cache for the videos of each rate",
        )
    return rates.pop()


def table_of(collection: Collection, annotations: Sequence[Annotation]) -> FrameTable:
    """Return the labels of all videos of a collection in one table.

    Args:
        collection: the videos, of one frame rate.
        annotations: one per video, in the collection's order.
    """
    lengths = [len(annotation) for annotation in annotations]
    return FrameTable(
        videos=np.repeat(collection.ids, lengths),
        frames=np.concatenate([annotation.frames for annotation in annotations]),
        phases=np.concatenate([annotation.phases for annotation in annotations]),
        tools=np.concatenate([annotation.tools for annotation in annotations]),
        parts=np.repeat([recording.part for recording in collection.recordings], lengths),
        phase_names=collection.phase_names,
        tool_names=collection.tool_names,
        fps=common_rate(collection),
    )

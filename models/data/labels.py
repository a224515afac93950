"""Labels without pictures: the table of a cache or a collection, for runs on precomputed features."""

import dataclasses
from pathlib import Path

from models.data.cache import open_source
from models.data.feature_files import Layout, find_features, read_features
from models.data.frames import FrameTable
from models.data.places import common_rate, open_collection, table_of


def read_labels(place: str, split: str | None, features: str | Path, layout: Layout) -> FrameTable:
    """Read the labels of the frames that a place names.

    Args:
        place: ``cholec80:FOLDER``, a manifest, a cache, or another source that `models.data.cache.open_source` opens.
        split: for Cholec80, the name of the split into parts.
        features: folder of features, which give the lengths of videos without complete labels.
        layout: the meaning of their rows.

    Raises:
        FormatError: for labels or features that cannot be read.
    """
    collection = open_collection(place, split, pictures=False)
    if collection is None:
        return open_source(place).table
    common_rate(collection)
    files = find_features(features)
    annotations = []
    for recording in collection.recordings:
        complete = not recording.partial and (recording.phases is not None or recording.tools is not None)
        known = complete or recording.video is not None or recording.images is not None
        available = None
        if not known and recording.id in files:
            layout = dataclasses.replace(layout, fps=recording.fps)
            available = read_features(files[recording.id], layout).frames
        annotations.append(collection.annotation(recording.id, available))
    return table_of(collection, annotations)

"""Helpers of the io tests: write files, expect errors, build tracks."""

import numpy as np
import pytest

from hmmjax import io
from hmmjax.io import Layout, Track


def put(folder, name, text):
    """Write a text file, create missing folders, and return its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def fails(match, *args, **kwargs):
    """Return the FormatError that `io.read` raises."""
    with pytest.raises(io.FormatError, match=match) as caught:
        io.read(*args, **kwargs)
    return caught.value


def track(kind, values, names=None, *, frames=None, video="video01", fps=25.0):
    """Return a track of labels or probabilities; frames default to every 25th."""
    values = np.asarray(values)
    labels = values.dtype.kind in "iu"
    frames = 25 * np.arange(len(values)) if frames is None else frames
    layout = Layout("text", "labels" if labels else "probabilities")
    values = values.astype(np.int32 if labels else np.float64)
    return Track(video, kind, np.asarray(frames, np.int64), values, names, fps, layout, f"{video}-{kind}.txt")


def phases(frames, **more):
    """Return a track of seven phases that change every 25 frames."""
    return track("phases", np.asarray(frames) // 25 % 7, frames=frames, **more)


def tools(frames, **more):
    """Return a track of seven tools that switch every 25 frames."""
    return track("tools", np.tile((np.asarray(frames) // 25 % 2)[:, None], 7), frames=frames, **more)

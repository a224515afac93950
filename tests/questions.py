"""Tracks to ask questions about."""

import numpy as np

from hmmjax.io import Layout, Track

TOOLS = ("Grasper", "Hook")


def track(values, video="video01", kind="tools", names=TOOLS, step=25):
    values = np.asarray(values)
    layout = Layout(format="npz", kind="labels" if values.dtype.kind == "i" else "probabilities")
    return Track(video, kind, step * np.arange(len(values)), values, tuple(names), 25.0, layout, f"{video}.npz")


def flat(count, *levels):
    return np.tile(np.array(levels, float), (count, 1))

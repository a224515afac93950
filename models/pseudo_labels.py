"""Pseudo-labels: posteriors of unlabeled videos become labels, weighted by how sure they are."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hmmjax.types import Observations
from models.data.frames import FrameTable
from models.stabilize import rows_of, seconds


def confidence(posterior: Observations) -> Observations:
    """Return how far the most probable state exceeds chance, from 0 to 1: phases (B, T), tools (B, T, K)."""
    phases, tools = posterior.phases, posterior.tools
    if phases is not None:
        count = phases.shape[-1]
        phases = np.clip((phases.max(-1) * count - 1) / max(count - 1, 1), 0, 1)
    return Observations(phases, None if tools is None else np.abs(2 * tools - 1))


def pseudo_label(table: FrameTable, videos: Sequence[str], posterior: Observations) -> FrameTable:
    """Label videos with their most probable states, weighted by confidence, and move them to the part "train".

    Args:
        table: all frames; existing labels get a weight of 1.
        videos: the unlabeled videos, in the order of the posterior.
        posterior: (B, T, ...) on the axis of seconds.
    """
    trust = confidence(posterior)
    phases, tools = table.phases.copy(), table.tools.copy()
    parts = table.parts.astype(np.promote_types(table.parts.dtype, "<U5"))
    weights = {"phase_weights": np.ones(phases.shape, np.float32), "tool_weights": np.ones(tools.shape, np.float32)}
    for number, video in enumerate(videos):
        rows = rows_of(table, video)
        at = seconds(table, rows)
        if posterior.phases is not None:
            phases[rows] = posterior.phases[number, at].argmax(-1)
            weights["phase_weights"][rows] = trust.phases[number, at]
        if posterior.tools is not None:
            tools[rows] = posterior.tools[number, at] >= 0.5
            weights["tool_weights"][rows] = trust.tools[number, at]
        parts[rows] = "train"
    return dataclasses.replace(table, phases=phases, tools=tools, parts=parts, **weights)

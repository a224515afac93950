"""Pictures of single videos of a result, with their scores before and after."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hmmjax.stabilize.pipeline import Stabilized
from hmmjax.stabilize.systems import as_phases, as_tools
from hmmjax.stabilize.warnings import score_texts, video_score

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_result(result: Stabilized, video: int | str, *, online: bool = False) -> "Figure":
    """Plot one video of a result: truth, recognizers and stabilized predictions, phases above tools.

    Args:
        result: from `stabilize` or `stabilize_arrays`.
        video: the video's name or position.
        online: also draw the online filter.

    Returns:
        A matplotlib figure, see `hmmjax.plots.plot_video`; save it with `hmmjax.plots.save_figure`.

    Raises:
        ValueError: there is no such video.
    """
    from hmmjax.plots import plot_video

    if isinstance(video, str) and video not in result.ids:
        raise ValueError(f"there is no video {video!r}: pass one of {', '.join(result.ids)}, or a position")
    i = result.ids.index(video) if isinstance(video, str) else video
    if not 0 <= i < len(result.ids):
        raise ValueError(f"there is no video {i}: positions are 0 to {len(result.ids) - 1}")
    names = ["raw", *(f"raw {i}" for i, _ in enumerate(result.fused, 2))]
    shown = [*zip(names, result.recognizers, strict=True), *([("online", result.filtered)] if online else [])]
    shown += [("stabilized", result.smoothed)]
    phases: dict[str, np.ndarray] = {}
    tools: dict[str, np.ndarray] = {}
    for rows, truth in ((phases, result.truth_phases), (tools, result.truth_tools)):
        if truth is not None and (truth[i] >= 0).any():
            rows["truth"] = truth[i]
    for name, system in shown:
        if system.phases is not None:
            phases[name] = as_phases(system.phases[i])
        if system.tools is not None:
            tools[name] = as_tools(system.tools[i])
    return plot_video(
        result.frames[i] / result.fps,
        # The truth alone is not worth a row: there is nothing to compare it with.
        phases=phases if set(phases) - {"truth"} else None,
        tools=tools if set(tools) - {"truth"} else None,
        tool_posterior=None if result.smoothed.tools is None else result.smoothed.tools[i],
        phase_names=result.phase_names,
        tool_names=result.tool_names,
        title=result.ids[i],
        note=_score_note(result, i),
        step=result.step_seconds,
    )


def picture(result: Stabilized, i: int, path: Path, *, online: bool = False, force: bool = False) -> None:
    """Draw one video and save the picture.

    Args:
        result: from `stabilize`.
        i: the video's position.
        path: the PNG file.
        online: also draw the online filter.
        force: overwrite an existing file.
    """
    from hmmjax.plots import save_figure

    save_figure(plot_result(result, i, online=online), path, force=force)


def _score_note(result: Stabilized, i: int) -> str:
    """Describe one video's scores before and after; the picture alone always looks better with fewer changes."""
    notes = []
    for track, what in (("phases", "accuracy"), ("tools", "tool F1")):
        raw, smooth = getattr(result.raw, track), getattr(result.smoothed, track)
        truth = getattr(result, f"truth_{track}")
        if result.fused or truth is None or raw is None or smooth is None or not (truth[i] >= 0).any():
            continue
        before, after = (video_score(track, truth[i], values[i]) for values in (raw, smooth))
        if math.isnan(before):
            continue
        worse = ", worse" if after < before else ""
        shown = " \N{RIGHTWARDS ARROW} ".join(score_texts(before, after))
        notes.append(f"{what} {shown}{worse}")
    return "; ".join(notes)

"""Data and strips of each video for the page: rows as runs, probabilities as bytes, and a small strip as SVG."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax.plots import PHASE_COLORS, ROW_COLORS, changes, spans
from hmmjax.stabilize import Stabilized
from hmmjax.stabilize.systems import as_phases, as_tools

#: Fields of `Stabilized`, and names of their rows in the viewer, from top to bottom.
ROWS = (("raw", "raw"), ("filtered", "online"), ("smoothed", "stabilized"))
#: Heights in the overview: of a row of phases, and of the space below a tool, which leaves room for its name.
PHASE, GAP = 11, 4.0
#: Maximum number of probabilities per video in the viewer; longer videos are thinned, their labels are not.
MOST_SHADES = 20_000


def rows(result: Stabilized, i: int, track: str) -> dict[str, np.ndarray]:
    """Return the labels (n,) of phases or (n, K) of tools of one video by row, truth first, without missing rows."""
    convert = as_phases if track == "phases" else as_tools
    found = {}
    truth = getattr(result, f"truth_{track}")
    if truth is not None and (truth[i] >= 0).any():
        found["truth"] = truth[i]
    for field, name in ROWS:
        values = getattr(getattr(result, field), track)
        if values is not None:
            found[name] = convert(values[i])
    return found


def video_data(result: Stabilized, i: int) -> dict[str, Any]:
    """Return the viewer's data of one video as JSON values; times in seconds, probabilities in 255ths."""
    seconds = result.frames[i] / result.fps
    data: dict[str, Any] = {
        "id": result.ids[i],
        "start": float(seconds[0]),
        "end": float(seconds[-1] + result.step_seconds),
    }
    for track in ("phases", "tools"):
        labels = rows(result, i, track)
        if not set(labels) - {"truth"}:
            continue
        if track == "phases":
            data["phases"] = {name: _runs(seconds, x, result.step_seconds) for name, x in labels.items()}
        else:
            data["tools"] = [
                {name: _runs(seconds, x[:, k], result.step_seconds) for name, x in labels.items()}
                for k in range(next(iter(labels.values())).shape[1])
            ]
        posterior = getattr(result.smoothed, track)[i]
        every = max(1, -(-len(posterior) // MOST_SHADES))
        shade = np.rint(255 * np.clip(posterior[::every], 0, 1)).astype(np.uint8)
        times = np.ascontiguousarray(seconds[::every], "<f4")
        data[f"{track}_probability"] = {
            "classes": shade.shape[1],
            "times": base64.b64encode(times.tobytes()).decode("ascii"),
            "bytes": base64.b64encode(np.ascontiguousarray(shade).tobytes()).decode("ascii"),
            "step": float(result.step_seconds * every),
        }
    return data


def _runs(seconds: np.ndarray, values: np.ndarray, step: float) -> list[list[float]]:
    return [[round(60 * a, 3), round(60 * (a + w), 3), v] for a, w, v in spans(seconds, values, step)]


def strip(result: Stabilized, i: int, longest: float, width: int = 760) -> str:
    """Draw one video as a small SVG, with time on the scale of the longest video."""
    seconds = result.frames[i] / result.fps
    scale = width / max(longest, 1e-9)
    start = float(seconds[0])
    parts: list[str] = []
    y = 0.0

    def bar(values: np.ndarray, height: float, color: Any) -> None:
        for a, w, v in spans(seconds, values, result.step_seconds):
            fill = color(v)
            if fill:
                x, size = (60 * a - start) * scale, max(60 * w * scale, 0.25)
                parts.append(f'<rect x="{x:.2f}" y="{y:.1f}" width="{size:.2f}" height="{height}" fill="{fill}"/>')

    for labels in rows(result, i, "phases").values():
        bar(labels, PHASE, lambda v: PHASE_COLORS[v % len(PHASE_COLORS)] if v >= 0 else "#E4E4E4")
        y += PHASE + 1.5
    tools = {n: x for n, x in rows(result, i, "tools").items() if n != "online"}
    if result.raw.tools is not None:
        y += 3 * bool(parts)
        for k in range(next(iter(tools.values())).shape[1]):
            for name, labels in tools.items():
                bar(labels[:, k], 2.6, lambda v, n=name: ROW_COLORS[n] if v == 1 else "")
                y += 3
            y += GAP
    return (
        f'<svg viewBox="0 0 {width} {y:.0f}" preserveAspectRatio="none" style="height:{y:.0f}px" '
        f'aria-hidden="true">{"".join(parts)}</svg>'
    )


def row_names(result: Stabilized, i: int, tools: Sequence[str]) -> list[tuple[str, float]]:
    """Return the names of the rows of one video's strip, each with the vertical middle of its row."""
    names, y = [], 0.0
    for name in rows(result, i, "phases"):
        names.append((name, y + PHASE / 2))
        y += PHASE + 1.5
    if result.raw.tools is not None:
        shown = len([n for n in rows(result, i, "tools") if n != "online"])
        y += 3 * bool(names)
        for k, tool in enumerate(tools):
            names.append((tool, y + k * (3 * shown + GAP) + 1.5 * shown))
    return names


def count_changes(result: Stabilized, i: int, track: str) -> dict[str, int]:
    """Count the changes in each row of one video, over all tools."""
    return {
        name: changes(x) if x.ndim == 1 else sum(changes(x[:, k]) for k in range(x.shape[1]))
        for name, x in rows(result, i, track).items()
    }


def axis(longest: float) -> list[tuple[int, float]]:
    """Return the labels of the common time axis of the strips: minutes, and their places in percent of the width."""
    step = next((s for s in (1, 2, 5, 10, 20, 30, 60) if longest / 60 / s <= 8), 120)
    return [(m, 100 * 60 * m / longest) for m in range(0, int(longest / 60) + 1, step)]

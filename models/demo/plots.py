"""The demo's plots: a timeline of every test video, and moments at which the network or the HMM errs."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hmmjax.io import BatchIndex
from hmmjax.plots import plot_video, save_figure, words
from hmmjax.simulate import PHASES, TOOLS, Surgery
from models.data.simsurg import Renderer, video_scene
from models.demo.outcomes import Outcome

Truth = tuple[Sequence[np.ndarray], Sequence[np.ndarray]]

_RIGHT, _WRONG, _FAINT = "#222222", "#C1272D", "#767676"
_MOST = 42  # letters of a list of tools that fit below a picture
_LINES = 240  # height in pixels of the frames in the plot of moments


def draw_videos(out: Path, index: BatchIndex, truth: Truth, outcomes: Sequence[Outcome]) -> None:
    """Plot each video: phases of the network, online and stabilized; tools of the network and stabilized."""
    raw, online, best = outcomes[0], outcomes[-2], outcomes[-1]
    for n, video in enumerate(index.ids):
        known = truth[0][n] >= 0  # the video has one frame more than its annotation
        phases = {"truth": truth[0], "network": raw.phases, "online": online.phases, "stabilized": best.phases}
        tools = {"truth": truth[1][n], "raw": _present(raw.tools[n]), "stabilized": _present(best.tools[n])}
        figure = plot_video(
            index.frames[n][known] / index.fps,
            phases={name: values[n][known] for name, values in phases.items()},
            tools={name: values[known] for name, values in tools.items()},
            tool_posterior=best.tools[n][known],
            phase_names=PHASES,
            tool_names=TOOLS,
            title=f"{video} (simulated): predictions of a small network, stabilized by the HMM",
        )
        save_figure(figure, out / f"{video}.png", force=True)


class Moment(NamedTuple):
    """A frame of a test video.

    Attributes:
        video: index of the video among the test videos.
        row: index of the frame in the video.
    """

    video: int
    row: int


def choose_moments(truth: Truth, raw: Outcome, best: Outcome, corrected: int = 5, others: int = 3) -> list[Moment]:
    """Return moments at which the network errs and the HMM does not, then moments at which the HMM errs.

    One moment per kind of error, the most frequent kinds first; of each kind the middle one.
    """
    kinds: dict[bool, dict[tuple, list[Moment]]] = {True: {}, False: {}}
    for n, (phases, tools) in enumerate(zip(*truth, strict=True)):
        known = (phases >= 0) & (tools >= 0).all(1)
        raw_errs, errs = (
            np.column_stack([o.phases[n] != phases, _present(o.tools[n]) != tools]) & known[:, None]
            for o in (raw, best)
        )
        wrong = np.any(errs, axis=1)
        good = np.any(raw_errs, axis=1) & ~wrong
        for row in np.flatnonzero(good | wrong).tolist():
            kind = tuple(np.flatnonzero((raw_errs if good[row] else errs)[row]).tolist())
            kinds[bool(good[row])].setdefault(kind, []).append(Moment(n, row))
    chosen = []
    for good, count in ((True, corrected), (False, others)):
        often = sorted(kinds[good].values(), key=len, reverse=True)[:count]
        chosen += [found[len(found) // 2] for found in often]
    return chosen


def draw_moments(
    path: Path,
    index: BatchIndex,
    truth: Truth,
    systems: tuple[Outcome, Outcome],
    surgeries: Sequence[Surgery],
    seed: int,
    size: tuple[int, int],
) -> None:
    """Plot frames at chosen moments with the truth, the prediction of the network, and that of the HMM.

    Args:
        path: of the plot.
        index: of the test videos.
        truth: phases (n,) and tools (n, K) of each video.
        systems: outcomes of the network and of the HMM.
        surgeries: the simulated surgeries, in the order of the index.
        seed: of the simulation.
        size: (height, width) of the videos; the frames are rendered larger here.
    """
    from matplotlib.figure import Figure

    raw, best = systems
    moments = choose_moments(truth, raw, best)
    if not moments:
        return
    columns = 4
    rows = -(-len(moments) // columns)
    wide, high, top = 16.0, 3.55, 0.78
    figure = Figure(figsize=(wide, top + high * rows), facecolor="white")
    height = top + high * rows
    title = "Single moments: the truth, the network's prediction from this frame, and the HMM's"
    figure.text(0.25 / wide, 1 - 0.18 / height, title, size=15, weight="bold", va="top", color=_RIGHT)
    note = f"Errors are red. Rendered here {_LINES} pixels high; the network's input has {size[1]}x{size[0]} pixels."
    figure.text(0.25 / wide, 1 - 0.48 / height, note, size=10, va="top", color=_FAINT)
    each = wide / columns
    for place, (n, row) in enumerate(moments):
        line, column = divmod(place, columns)
        left, bottom = 0.25 + column * (each - 0.08), height - top - high * (line + 1)
        pixels = each - 0.3
        tall = pixels * size[0] / size[1]
        axes = figure.add_axes(
            (left / wide, (bottom + high - tall - 0.25) / height, pixels / wide, tall / height), frame_on=False
        )
        second = float(index.frames[n][row] / index.fps)
        number = int(index.ids[n].removeprefix("video"))
        scene = video_scene(surgeries[n], number, seed, size)
        axes.imshow(Renderer(scene, _LINES, round(_LINES * size[1] / size[0])).frame(second))
        axes.set_xticks([])
        axes.set_yticks([])
        heading = f"{index.ids[n]}, {int(second) // 60}:{int(second) % 60:02d}"
        axes.set_title(heading, size=10, loc="left", pad=4, color=_RIGHT)
        real = truth[0][n][row], truth[1][n][row]
        shown = {
            "truth": real,
            "network": (raw.phases[n][row], _present(raw.tools[n][row])),
            "HMM": (best.phases[n][row], _present(best.tools[n][row])),
        }
        for weight, x, line, text, color in _lines(shown, real):
            y = bottom + high - tall - 0.37 - 0.16 * line
            figure.text((left + x) / wide, y / height, text, size=8.5, va="center", color=color, weight=weight)
    save_figure(figure, path, force=True)


def _lines(shown: dict[str, tuple], real: tuple) -> Iterator[tuple[str, float, int, str, str]]:
    """Yield name, phase and tools of each system: (weight, inches from the left, line, text, color).

    Tools have a line of their own: next to the phase, three of them reach into the next picture.
    """
    for n, (name, (phase, tools)) in enumerate(shown.items()):
        seen = ", ".join(words(TOOLS[k]) for k in np.flatnonzero(tools)) or "no tool"
        yield "normal", 0.0, 2 * n, name, _FAINT
        for line, right, text in (
            (2 * n, phase == real[0], words(PHASES[phase])),
            (2 * n + 1, bool((tools == real[1]).all()), textwrap.shorten(seen, _MOST, placeholder=" ...")),
        ):
            yield "normal" if right else "bold", 0.62, line, text, _RIGHT if right else _WRONG


def _present(probabilities: np.ndarray) -> np.ndarray:
    return (probabilities >= 0.5).astype(np.int32)

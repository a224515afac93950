"""A small result made by hand, from which tests write reports, and measurements of pages and figures."""

import itertools

import numpy as np

import hmmjax
from hmmjax import io
from hmmjax import stabilize as job
from hmmjax.io import CHOLEC80_PHASES, CHOLEC80_TOOLS
from hmmjax.stabilize.systems import System
from hmmjax.stabilize.table import compare_systems

IDS = ("video01", "video02", "2026-11-03_case_17_left_camera")
"""Names of videos: of usual length and long."""


def runs(*parts):
    """Labels (n,) from pairs of a label and its number of frames."""
    return np.concatenate([np.full(n, v, np.int32) for v, n in parts])


def full_result():
    """Three videos of up to an hour with Cholec80's phases and tools; the third is not annotated."""
    rng = np.random.default_rng(0)
    truth = [runs(*((p, n) for p in range(7))) for n in (180, 520, 300)]
    tools = [np.stack([(t + k) % 7 < 2 for k in range(7)], 1).astype(np.int32) for t in truth]
    raw = [np.where(rng.random(len(t)) < 0.1, rng.integers(0, 7, len(t)), t).astype(np.int32) for t in truth]
    raw[0][400:440] = 5
    raw_tools = [np.clip(np.abs(t - (rng.random(t.shape) < 0.1)) * 0.9 + 0.05, 0, 1).astype(np.float32) for t in tools]
    shown = [t.copy() for t in truth]
    shown[0][540:700] = 2  # a phase that is lost, and another that is shown too long
    smooth = [(0.93 * np.eye(7)[t] + 0.01).astype(np.float32) for t in shown]
    online = [(0.7 * np.eye(7)[t] + 0.3 / 7).astype(np.float32) for t in raw]
    present = [np.where(t == 0, 0.02, 0.97).astype(np.float32) for t in tools]
    matrix = np.full((7, 7), 0.02, np.float32) + 0.86 * np.eye(7, dtype=np.float32)
    stay = np.full((7, 7), 0.001, np.float32) + 0.993 * np.eye(7, dtype=np.float32)
    on_off = np.tile(np.array([[0.98, 0.02], [0.05, 0.95]], np.float32), (7, 7, 1, 1))
    params = hmmjax.Params(
        hmmjax.PhaseChain(np.full(7, 1 / 7, np.float32), stay, hmmjax.emissions.PhaseConfusion(matrix)),
        hmmjax.ToolChains(
            np.full((7, 7), 0.1, np.float32),
            hmmjax.transitions.PhaseConditioned(on_off),
            hmmjax.emissions.ToolConfusion(np.tile(np.array([[0.9, 0.1], [0.2, 0.8]], np.float32), (7, 1, 1))),
        ),
    )
    systems = [System("M", raw, raw_tools), System("M_H", smooth, present), System("M_H online", online, present)]
    known = [*truth[:2], np.full_like(truth[2], -1)], [*tools[:2], np.full_like(tools[2], -1)]
    names = {"phase_names": CHOLEC80_PHASES, "tool_names": CHOLEC80_TOOLS}
    return job.Stabilized(
        IDS,
        tuple(25 * np.arange(len(t)) for t in truth),
        25.0,
        1.0,
        *names.values(),
        *known,
        *systems,
        log_likelihood=np.zeros(3),
        folds=(0, 1, -1),
        protocol="2 annotated videos, held out one at a time",
        model=io.ModelFile(params, *names.values(), 1.0, {"method": "made by hand"}),
        table=compare_systems(systems, *known, **names, split="2 annotated videos, held out one at a time"),
        notices=("a note",),
    )


def overlapping_texts(figure):
    """Pairs of texts of a matplotlib figure that overlap, and texts that leave it; measured from their boxes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    # Ticks outside the limits, and axes that are not shown, are objects, but are not drawn.
    hidden = [t for axes in figure.axes for a in (axes.xaxis, axes.yaxis) for t in _hidden_ticks(a)]
    hidden += [t for axes in figure.axes if not axes.get_visible() for t in axes.findobj(Text)]
    boxes = []
    for text in figure.findobj(Text):
        if text.get_text().strip() and text.get_visible() and not text.get_rotation() % 90:
            box = text.get_window_extent(renderer)
            if box.width and text not in hidden:
                boxes.append((text.get_text(), box.x0 + 1, box.y0 + 1, box.x1 - 1, box.y1 - 1))
    width, height = figure.bbox.width, figure.bbox.height
    outside = [text for text, *a in boxes if min(a[:2]) < -1 or a[2] > width + 1 or a[3] > height + 1]
    return [(text, "leaves the figure") for text in outside] + [
        (a[0], b[0])
        for a, b in itertools.combinations(boxes, 2)
        if min(a[3], b[3]) > max(a[1], b[1]) and min(a[4], b[4]) > max(a[2], b[2])
    ]


def _hidden_ticks(axis):
    low, high = sorted(axis.get_view_interval())
    slack = 1e-6 * (high - low)
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    return [label for t in ticks if not low - slack <= t.get_loc() <= high + slack for label in (t.label1, t.label2)]

"""Write an exploration as a page, plots and tables."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hmmjax
from hmmjax import io, plots
from hmmjax.explore.count import Exploration
from hmmjax.io.notices import merge_alike
from hmmjax.plots import words
from hmmjax.report.picture import Picture, matrix_rows
from hmmjax.report.render import asset, css_width, embed, render
from hmmjax.report.write import save_pictures
from hmmjax.stabilize import finite_or_none

PARTS = ("explore.html", "pictures", "tables")
"""The files and folders that `write_exploration` creates."""


def write_exploration(
    found: Exploration, folder: str | os.PathLike[str], *, title: str = "Annotations", force: bool = False
) -> list[Path]:
    """Write ``explore.html``, ``pictures/`` (PNG and SVG) and ``tables/`` (csv).

    Args:
        found: the exploration.
        folder: the output folder.
        title: title of the page.
        force: overwrite existing files.

    Returns:
        The files written, the page first.

    Raises:
        FileExistsError: if the page or one of its folders exists and `force` is False.
    """
    folder = Path(folder)
    page = folder / "explore.html"
    io.refuse_existing(folder, PARTS, force=force)
    drawn = _pictures(found)
    files = [page, *save_pictures(drawn, folder / "pictures")]
    for name, rows in (*((p.name, p.rows) for p in drawn), ("phase_stays", _stays(found))):
        if rows:
            files.append(folder / "tables" / f"{name}.csv")
            io.write_csv(files[-1], rows, force=True)
    text = render(
        "explore.html.j2",
        title=title,
        subtitle=f"{len(found.ids)} video{'s' * (len(found.ids) != 1)}, {int(found.frames.sum()):,} annotated frames, "
        f"{found.frames.sum() * found.step_seconds / 3600:.1f} hours, one frame per {found.step_seconds:g} s",
        pictures=[
            {
                "name": p.name,
                "caption": p.caption,
                "source": embed(p.figure),
                "width": css_width(p.figure),
                "title": p.section,
                "csv": f"tables/{p.name}.csv",
            }
            for p in drawn
        ],
        orders=_orders(found),
        notices=merge_alike(found.notices),
        script=asset("page.js"),
        version=hmmjax.__version__,
    )
    with io.write_atomically(page, force=True) as temporary:
        Path(temporary).write_text(text, encoding="utf-8")
    return files


def _stays(found: Exploration) -> list[dict[str, Any]]:
    if found.phase_names is None or found.phase_ends is None:
        return []
    rows = zip(found.phase_names, found.phase_exits.sum(1), found.phase_ends, found.stay_seconds, strict=True)
    return [
        {"phase": name, "stays": int(n), "ended_with_the_video": int(last), "mean_seconds": finite_or_none(float(mean))}
        for name, n, last, mean in rows
    ]


def _orders(found: Exploration) -> list[dict[str, Any]]:
    names = found.phase_names or ()
    return [{"order": " > ".join(words(names[p]) for p in order), "videos": n} for order, n in found.orders[:20]]


def _pictures(found: Exploration) -> list[Picture]:
    drawn = []
    if found.phase_frames is not None and found.phase_names is not None and found.phase_moves is not None:
        drawn += _phases(found, found.phase_names, found.phase_frames, found.phase_moves)
    if found.tool_names is not None and found.tool_frames is not None and found.tool_known is not None:
        drawn += _tools(found, found.tool_names, found.tool_frames, found.tool_known)
    return drawn


def _phases(found: Exploration, names: Sequence[str], frames: np.ndarray, moves: np.ndarray) -> list[Picture]:
    total = frames.sum(1, keepdims=True)
    known = total[:, 0] > 0
    fractions = frames[known] / total[known]
    minutes = frames * found.step_seconds / 60
    ids = [found.ids[i] for i in np.flatnonzero(known)]
    pooled = (frames.sum(0) / max(frames.sum(), 1))[None]
    missing = "; ".join(
        f"{words(names[p])} is missing in {int((frames[known, p] == 0).sum())}"
        for p in range(len(names))
        if (frames[known, p] == 0).any()
    )
    note = f" Of {int(known.sum())} videos, {missing}." if missing else ""
    return [
        Picture(
            "phase_proportions", "Phases", f"Fraction of frames in each phase, all videos pooled.{note}",
            plots.plot_proportions(pooled, row_names=["all videos"], part_names=names),
            [{"phase": n, "frames": int(f), "share": float(s)}
             for n, f, s in zip(names, frames.sum(0), pooled[0], strict=True)],
        ),
        Picture(
            "phase_proportions_by_video", "Phases of each video", "Fraction of the frames of each video in each phase.",
            plots.plot_proportions(fractions, row_names=ids, part_names=names, label="fraction of the video's frames"),
            matrix_rows(fractions, ids, names, "video", "phase", "share"),
        ),
        Picture(
            "phase_minutes", "Durations", "Minutes of each phase in the videos that have it: the line is the median, "
            "the box the middle 50 %, the whiskers end at 5 and 95 %, each dot is a video.",
            plots.plot_boxes([m[m > 0] for m in minutes[known].T], names=names, unit="minutes"),
            matrix_rows(minutes[known], ids, names, "video", "phase", "minutes"),
        ),
        Picture(
            "phase_transitions", "Phase transitions", "Counted between consecutive annotated frames. Left: the "
            "fraction of the times that each phase (row) ended with each other phase, or with the operation; a point: "
            "never observed. Right: the mean duration of each phase.",
            plots.plot_phase_moves(moves, ends=found.phase_exits[:, -1], frames=frames.sum(0), names=names,
                                   step_seconds=found.step_seconds),
            [*matrix_rows(moves, names, names, "from", "to", "count"),
             *matrix_rows(found.phase_exits[:, -1:], names, ["(operation ends)"], "from", "to", "count")],
        ),
    ]  # fmt: skip


def _tools(found: Exploration, names: Sequence[str], frames: np.ndarray, known: np.ndarray) -> list[Picture]:
    fractions = frames.sum(0) / np.maximum(known.sum(0), 1)
    absent = [int(((frames[:, k] == 0) & (known[:, k] > 0)).sum()) for k in range(len(names))]
    drawn = [
        Picture(
            "tool_presence", "Tools", "Fraction of annotated frames with each tool, all videos pooled, and the number "
            "of videos without it.",
            plots.plot_presence(
                fractions, names=names, notes=[f"absent in {n} of {len(known)} videos" for n in absent]
            ),
            [{"tool": n, "frames": int(f), "annotated_frames": int(a), "share": float(s), "videos_without": v}
             for n, f, a, s, v in zip(names, frames.sum(0), known.sum(0), fractions, absent, strict=True)],
        )
    ]  # fmt: skip
    if found.tools_at_once is not None and found.tools_at_once.sum():
        counts = found.tools_at_once
        drawn.append(
            Picture(
                "tools_at_once", "Tools at once", "Fraction of fully annotated frames with 0, 1, 2, ... tools.",
                plots.plot_presence(counts / counts.sum(), names=[str(n) for n in range(len(counts))]),
                [{"tools": n, "frames": int(c)} for n, c in enumerate(counts)],
            )
        )  # fmt: skip
    if found.tools_by_phase is not None and found.known_by_phase is not None and found.phase_names is not None:
        table = np.divide(
            found.tools_by_phase,
            found.known_by_phase,
            out=np.full(found.tools_by_phase.shape, np.nan),
            where=found.known_by_phase > 0,
        )
        drawn.append(
            Picture(
                "tools_by_phase", "Which tool in which phase", "The fraction of the frames of each phase (row) with "
                "each tool (column).",
                plots.plot_matrices({"fraction of the phase's frames": table}, row_names=found.phase_names,
                                    column_names=names, row_label="phase", column_label="tool", counts=False),
                [{**row, "frames": int(n), "annotated_frames": int(known)} for row, n, known in zip(
                    matrix_rows(table, found.phase_names, names, "phase", "tool", "share"),
                    found.tools_by_phase.flat, found.known_by_phase.flat, strict=True)],
            )
        )  # fmt: skip
    moves = found.tool_transition
    full = moves if moves.ndim == 4 else moves[:, None]
    assert found.tool_moves is not None
    counts = found.tool_moves if moves.ndim == 4 else found.tool_moves[:, None]
    phases = found.phase_names if moves.ndim == 4 else None
    drawn.append(
        Picture(
            "tool_transitions", "Tool transitions",
            f"One block per tool{' and phase' if phases else ''}. Rows: the tool is off or on; columns: off or on "
            f"{found.step_seconds:g} s later. A point: never observed; gray: no observation of this row.",
            plots.plot_tool_transitions(moves, tool_names=names, phase_names=phases),
            [{"tool": names[k], "phase": phases[q] if phases else "", "before": i, "after": j,
              "share": finite_or_none(float(full[k, q, i, j])), "count": int(counts[k, q, i, j])}
             for k, q, i, j in np.ndindex(full.shape)],
        )
    )  # fmt: skip
    return drawn

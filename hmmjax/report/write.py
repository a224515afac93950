"""Put the report together and write it."""

import csv
import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax import io
from hmmjax.io import FormatError
from hmmjax.plots.style import literal
from hmmjax.report import tables
from hmmjax.report.delays import delays, later
from hmmjax.report.figures import Picture, pictures
from hmmjax.report.frames import Frames
from hmmjax.report.minutes import Minutes, estimate_minutes
from hmmjax.report.reasons import describe, longest_changes
from hmmjax.report.render import page
from hmmjax.stabilize import Row, Stabilized, records
from hmmjax.stabilize.write import picture

PARTS = ("report.html", "pictures", "tables")
"""What a report's folder holds."""


def write_report(
    result: Stabilized,
    folder: str | os.PathLike[str],
    *,
    title: str = "Stabilized recognition of surgical phases and tools",
    frames: str | os.PathLike[str] | None = None,
    costs: Sequence[dict[str, Any]] | None = None,
    intervals: bool = True,
    videos: bool = True,
    most_changes: int = 12,
    force: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Path]:
    """Write ``report.html`` and the figures and tables in it.

    - ``report.html``: everything on one page, which needs no network and no other file;
    - ``pictures/``: each figure as PNG and SVG, and ``pictures/videos/<video>.png``;
    - ``tables/``: ``main.csv`` and ``.tex``, ``more.csv``, ``classes.csv``, ``pairs.csv``, ``delays.csv``,
      ``changes.csv``, ``minutes_*.csv``, and the numbers behind each figure.

    Args:
        result: from `hmmjax.stabilize.stabilize` or `hmmjax.stabilize.read_results`.
        folder: where to.
        title: of the page.
        frames: a folder with a folder of pictures for each video, named by frame number; their thumbnails go beside
            what the model changed.
        costs: points of a cost-effectiveness figure, see `read_costs`.
        intervals: compute intervals of minutes (two passes of the smoother per class).
        videos: draw each video as a PNG too.
        most_changes: at most so many changes of phases, and of tools.
        force: overwrite.
        progress: called with a stage's name, how many parts are done, and of how many.

    Returns:
        The files written, the page first.

    Raises:
        FileExistsError: when the page or one of its folders exists and `force` is False.
        FormatError: for a folder of frames without pictures.
    """
    tell = progress or (lambda stage, done, total: None)
    folder = Path(folder)
    io.refuse_existing(folder, PARTS, force=force)
    at_hand = None if frames is None else Frames(frames)
    phase_names = result.phase_names or _numbered("phase", result.model.params.num_phases, 0)
    tool_names = result.tool_names or _numbered("tool", result.model.params.num_tools, 1)
    tell("figures", 0, 4)
    table, more, classes, paired = (
        tables.main_table(result),
        tables.more_figures(result),
        tables.per_class(result),
        tables.pairs(result),
    )
    late = delays(result)
    tell("figures", 1, 4)
    changes = longest_changes(result, most_changes)
    spent = {
        track: estimate_minutes(result, track, names, intervals=intervals, progress=progress)
        for track, names in (("phases", phase_names), ("tools", tool_names))
    }
    tell("figures", 2, 4)
    drawn = pictures(result, phase_names, tool_names, spent, costs)
    tell("figures", 3, 4)
    text = page(
        result,
        title=title,
        phase_names=phase_names,
        tool_names=tool_names,
        table=table,
        more=more,
        classes=classes,
        pairs=paired,
        delays=late,
        warnings=[*tables.harm(result, [*table, *more]), *later(late)],
        changes=changes,
        minutes=spent,
        pictures=drawn,
        frames=at_hand,
    )
    tell("figures", 4, 4)
    change_rows = [
        {
            "video": result.ids[c.video],
            "sentence": describe(c, phase_names, tool_names)[0],
            **{f.name: _plain(getattr(c, f.name)) for f in dataclasses.fields(c) if f.name != "video"},
        }
        for c in changes
    ]
    csvs: dict[str, list[dict[str, Any]]] = {
        "main": _figures(table),
        "more": _figures(more),
        "classes": tables.class_records(classes),
        "pairs": [{k: _plain(v) for k, v in dataclasses.asdict(p).items()} for p in paired],
        "delays": [{**dataclasses.asdict(d), "unit": "seconds"} for d in late],
        "changes": change_rows,
        **{f"minutes_{track}": _minutes_rows(result, m) for track, m in spent.items() if m is not None},
        **{p.name: p.rows for p in drawn if p.rows},
    }
    files = [folder / "report.html"]
    for name, rows in csvs.items():
        if rows:
            files.append(folder / "tables" / f"{name}.csv")
            io.write_csv(files[-1], rows, force=True)
    if table:
        files.append(folder / "tables" / "main.tex")
        _write_text(files[-1], tables.latex(table, title))
    files += save_pictures(drawn, folder / "pictures", tell)
    for i, video in enumerate(result.ids if videos else ()):
        tell("videos", i, len(result.ids))
        files.append(folder / "pictures" / "videos" / f"{video}.png")
        picture(result, i, files[-1], online=True, force=True)
    # The page comes last: where there is one, everything else is there.
    _write_text(files[0], text)
    return files


def read_costs(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Points of a cost-effectiveness figure from a csv.

    Args:
        path: a csv with the columns ``name``, ``cost`` and ``value``, and optionally ``low`` and ``high`` (ends of an
            interval), ``cost_unit`` ("hours of labeling") and ``figure`` ("tool mAP, pooled").

    Returns:
        A dictionary for each row with those seven keys; None for a number that is left out and a column that is not
        there.

    Raises:
        FormatError: for a file that cannot be read, a missing column, or a cost, value or end that is no number.
    """
    file = os.fspath(path)
    try:
        with open(file, newline="", encoding="utf-8-sig") as handle:
            rows = list(csv.DictReader(handle))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"the file cannot be read ({error})", file=file) from None
    missing = {"name", "cost", "value"} - set(rows[0] if rows else ())
    if missing:
        raise FormatError(f"no column {', '.join(sorted(missing))}", file=file, fix="give name, cost and value")
    points = []
    for line, row in enumerate(rows, 2):
        point: dict[str, Any] = {k: row.get(k) for k in ("name", "cost_unit", "figure")}
        for key in ("cost", "value", "low", "high"):
            text = row.get(key)
            try:
                point[key] = float(text) if text else None
            except ValueError:
                raise FormatError(f"{key} is {text!r}, not a number", file=file, line=line) from None
            if (point[key] is None and key in ("cost", "value")) or not math.isfinite(point[key] or 0):
                raise FormatError(f"{key} is {text!r}, not a number", file=file, line=line)
        points.append(point)
    return points


def _numbered(what: str, count: int, start: int) -> tuple[str, ...]:
    return tuple(f"{what} {i + start}" for i in range(count))


def _figures(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows for a csv; a figure that has no classes has no number of them."""
    return [{**record, "classes": record["classes"] or None} for record in records(rows)]


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _minutes_rows(result: Stabilized, table: Minutes) -> list[dict[str, Any]]:
    empty = np.full_like(table.stabilized, np.nan)
    low, high = table.bands() or (empty, empty)
    columns = {
        "truth": table.truth,
        "raw": table.raw,
        "stabilized": table.stabilized,
        "low_80": low,
        "high_80": high,
        "posterior_deviation": empty if table.deviation is None else table.deviation,
    }
    return [
        {"video": video, "class": name, **{k: _plain(float(v[i, c])) for k, v in columns.items()}, "unit": "minutes"}
        for i, video in enumerate(result.ids)
        for c, name in enumerate(table.names)
    ]


def save_pictures(
    drawn: Sequence[Picture], folder: Path, progress: Callable[[str, int, int], None] | None = None
) -> list[Path]:
    """Each figure as PNG and SVG, overwriting; returns the files."""
    tell = progress or (lambda stage, done, total: None)
    files = []
    for i, p in enumerate(drawn):
        tell("pictures", i, len(drawn))
        for suffix in ("png", "svg"):
            path = folder / f"{p.name}.{suffix}"
            with io.write_atomically(path, force=True) as temporary, literal(p.figure):
                options: dict[str, Any] = {"dpi": 200} if suffix == "png" else {"metadata": {"Date": None}}
                p.figure.savefig(temporary, format=suffix, facecolor="white", **options)
            files.append(path)
    tell("pictures", len(drawn), len(drawn))
    return files


def _write_text(path: Path, text: str) -> None:
    with io.write_atomically(path, force=True) as temporary:
        Path(temporary).write_text(text, encoding="utf-8")

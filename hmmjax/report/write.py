"""Compute the report and write it to a folder."""

import csv
import dataclasses
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax import io
from hmmjax.io import FormatError
from hmmjax.plots.style import literal
from hmmjax.report import tables
from hmmjax.report.delays import delays
from hmmjax.report.figures import pictures
from hmmjax.report.frames import Frames
from hmmjax.report.latex import latex
from hmmjax.report.minutes import Minutes, estimate_minutes
from hmmjax.report.page import Content, page
from hmmjax.report.picture import Picture
from hmmjax.report.reasons import describe, longest_changes
from hmmjax.report.summary import balance, balance_rows, difference
from hmmjax.report.worse import find_worse
from hmmjax.stabilize import Row, Stabilized, records
from hmmjax.stabilize.draw import picture
from hmmjax.stabilize.settings import Progress, ignore_progress

PARTS = ("report.html", "pictures", "tables")
"""Files and folders of a report."""


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
    progress: Progress | None = None,
) -> list[Path]:
    """Write ``report.html`` and its pictures and tables.

    - ``report.html``: everything on one page, which needs no network and no other file;
    - ``pictures/``: each picture as PNG and SVG, and ``pictures/videos/<video>.png``;
    - ``tables/``: ``main.csv`` and ``.tex``, ``more.csv``, ``classes.csv``, ``pairs.csv``, ``delays.csv``,
      ``summary.csv``, ``changes.csv``, ``minutes_*.csv``, and the numbers in each picture.

    Args:
        result: from `hmmjax.stabilize.stabilize` or `hmmjax.stabilize.read_results`.
        folder: the output folder.
        title: title of the page.
        frames: a folder with one folder of pictures per video, named by frame number; adds thumbnails to the list of
            changes.
        costs: points of a picture of cost against benefit, see `read_costs`.
        intervals: compute the model's intervals of minutes (two passes of the smoother per class).
        videos: also draw each video as a PNG.
        most_changes: maximum number of changes per track.
        force: overwrite existing files.
        progress: called with a stage's name, the number of parts done, and the number of parts.

    Returns:
        The files written, the page first.

    Raises:
        FileExistsError: the page or one of its folders exists and `force` is False.
        FormatError: the folder of frames holds no pictures.
    """
    tell = progress or ignore_progress
    folder = Path(folder)
    io.refuse_existing(folder, PARTS, force=force)
    thumbnails = None if frames is None else Frames(frames)
    content = _compute(result, title, costs, intervals, most_changes, thumbnails, tell)
    # The page is written last: if it exists, everything else is complete.
    text = page(content)
    tell("report", 4, 4)
    files = [folder / "report.html", *_write_tables(content, folder / "tables")]
    files += save_pictures(content.pictures, folder / "pictures", tell)
    for i, video in enumerate(result.ids if videos else ()):
        tell("videos", i, len(result.ids))
        files.append(folder / "pictures" / "videos" / f"{video}.png")
        picture(result, i, files[-1], online=True, force=True)
    _write_text(files[0], text)
    return files


def _compute(
    result: Stabilized,
    title: str,
    costs: Sequence[dict[str, Any]] | None,
    intervals: bool,
    most_changes: int,
    frames: Frames | None,
    tell: Progress,
) -> Content:
    """Compute everything on the page."""
    phase_names = result.phase_names or _numbered("phase", result.model.params.num_phases, 0)
    tool_names = result.tool_names or _numbered("tool", result.model.params.num_tools, 1)
    tell("report", 0, 4)
    table, more = tables.main_table(result), tables.more_metrics(result)
    classes, pairs, late = tables.per_class(result), tables.pairs(result), delays(result)
    tell("report", 1, 4)
    changes = longest_changes(result, most_changes)
    named = {"phases": phase_names, "tools": tool_names}
    differences = [x for x in (difference(result, track) for track in named) if x is not None]
    balances = [x for x in (balance(result, track, names) for track, names in named.items()) if x is not None]
    minutes = {
        track: estimate_minutes(result, track, names, intervals=intervals, progress=tell)
        for track, names in named.items()
    }
    tell("report", 2, 4)
    drawn = pictures(result, phase_names, tool_names, minutes, costs)
    tell("report", 3, 4)
    return Content(
        result=result,
        title=title,
        phase_names=phase_names,
        tool_names=tool_names,
        table=table,
        more=more,
        classes=classes,
        pairs=pairs,
        delays=late,
        worse=find_worse(result, [*table, *more], classes, differences, balances, late),
        differences=differences,
        balances=balances,
        changes=changes,
        minutes=minutes,
        pictures=drawn,
        frames=frames,
    )


def _write_tables(content: Content, folder: Path) -> list[Path]:
    """Write all tables as csv, and the main table in LaTeX."""
    result = content.result
    change_rows = [
        {
            "video": result.ids[c.video],
            "sentence": describe(c, content.phase_names, content.tool_names)[0],
            **{f.name: _nan_to_none(getattr(c, f.name)) for f in dataclasses.fields(c) if f.name != "video"},
        }
        for c in content.changes
    ]
    csvs: dict[str, list[dict[str, Any]]] = {
        "main": _metrics(content.table),
        "more": _metrics(content.more),
        "classes": tables.class_records(content.classes),
        "pairs": [{k: _nan_to_none(v) for k, v in dataclasses.asdict(p).items()} for p in content.pairs],
        "summary": [row for b in content.balances for row in balance_rows(b)],
        "delays": [{**dataclasses.asdict(d), "unit": "seconds"} for d in content.delays],
        "changes": change_rows,
        **{f"minutes_{track}": _minutes_rows(result, m) for track, m in content.minutes.items() if m is not None},
        **{p.name: p.rows for p in content.pictures if p.rows},
    }
    files = []
    for name, rows in csvs.items():
        if rows:
            files.append(folder / f"{name}.csv")
            io.write_csv(files[-1], rows, force=True)
    if content.table:
        files.append(folder / "main.tex")
        _write_text(files[-1], latex(content.table, content.title))
    return files


def read_costs(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read the points of a picture of cost against benefit from a csv.

    Args:
        path: a csv with the columns ``name``, ``cost`` and ``value``, and optionally ``low`` and ``high`` (ends of an
            interval), ``cost_unit`` ("hours of labeling") and ``figure`` ("tool mAP, pooled").

    Returns:
        A dictionary per row with those seven keys; None for missing numbers and columns.

    Raises:
        FormatError: the file cannot be read, a column is missing, or a cost, value or end is not a number.
    """
    file = os.fspath(path)
    try:
        with open(file, newline="", encoding="utf-8-sig") as handle:
            rows = list(csv.DictReader(handle))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"the file cannot be read ({error})", file=file) from None
    missing = {"name", "cost", "value"} - set(rows[0] if rows else ())
    if missing:
        raise FormatError(
            f"the csv has no column {', '.join(sorted(missing))}", file=file, fix="add the columns name, cost and value"
        )
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


def _metrics(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows for a csv; metrics without classes have no number of classes."""
    return [{**record, "classes": record["classes"] or None} for record in records(rows)]


def _nan_to_none(value: Any) -> Any:
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
        {
            "video": video,
            "class": name,
            **{k: _nan_to_none(float(v[i, c])) for k, v in columns.items()},
            "unit": "minutes",
        }
        for i, video in enumerate(result.ids)
        for c, name in enumerate(table.names)
    ]


def save_pictures(drawn: Sequence[Picture], folder: Path, progress: Progress | None = None) -> list[Path]:
    """Write each picture as PNG and SVG, overwrite existing files, and return the files."""
    tell = progress or ignore_progress
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

"""The results of the grid as JSON, as the paper's table, and as a plot of metrics against cost."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from models.experiment.measure import CONVENTIONS
from models.training.run import environment

SHOWN = ("mAP", "tool F1", "tool changes", "accuracy", "Jaccard", "mF1", "phase changes")
Results = list[dict[str, Any]]


def versions(results: Results) -> list[str]:
    """Return "M" and the names of its stabilized versions, in the order of the results."""
    return list(dict.fromkeys(key for result in results for key in result if key == "M" or key.startswith("M_H")))


def summary(results: Results) -> list[dict[str, Any]]:
    """Return, per scenario, system and version, the seeds and the mean and standard deviation (n - 1) of each metric.

    Versions of M_H also have "gain over M": mean, standard deviation and minimum of the differences of equal seeds.
    """
    rows = []
    for scenario, system in dict.fromkeys((r["scenario"], r["system"]) for r in results):
        everywhere = [r for r in results if (r["scenario"], r["system"]) == (scenario, system)]
        for version in versions(everywhere):
            cells = [cell for cell in everywhere if version in cell]
            figures = {key: _spread(cell[version][key] for cell in cells) for key in cells[0][version]}
            row = {
                "scenario": scenario,
                "system": system,
                "version": version,
                "seeds": [cell["seed"] for cell in cells],
                "cost": {key: _spread(cell["cost"][key] for cell in cells) for key in cells[0]["cost"]},
                "train_seconds": _spread(cell["train_seconds"] for cell in cells),
                "figures": figures,
            }
            if version != "M":
                gains = {
                    key: [c[version][key] - c["M"][key] for c in cells] for key in ("mAP", "accuracy") if key in figures
                }
                row["gain over M"] = {k: {**_spread(x), "smallest": round(min(x), 4)} for k, x in gains.items()}
            rows.append(row)
    return rows


def _spread(values: Iterable[float]) -> dict[str, float | None]:
    found = np.array(list(values), float)
    if not np.isfinite(found).all():
        return {"mean": None, "sd": None}
    return {"mean": round(float(found.mean()), 4), "sd": round(float(found.std(ddof=1)), 4) if len(found) > 1 else None}


def write_report(results: Results, out: Path, plan: dict[str, Any]) -> None:
    """Write ``grid.json``, ``table.md`` and ``cost.png`` to a folder."""
    rows = summary(results)
    record = {
        "plan": plan,
        "conventions": CONVENTIONS,
        "environment": environment(),
        "summary": rows,
        "cells": results,
    }
    (out / "grid.json").write_text(json.dumps(_finite(record), indent=1) + "\n", encoding="utf-8")
    (out / "table.md").write_text(table(rows), encoding="utf-8")
    draw_cost(rows, out / "cost.png")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the main table in Markdown: one row per system and version, mean ± standard deviation over seeds."""
    shown = [key for key in SHOWN if any(key in row["figures"] for row in rows)]
    lines = []
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        seeds = max(len(row["seeds"]) for row in rows if row["scenario"] == scenario)
        lines += [
            f"### {scenario} ({seeds} seeds)",
            "",
            "| system | version | " + " | ".join(shown) + " | labels | s |",
        ]
        lines.append("|---" * (len(shown) + 4) + "|")
        for row in rows:
            if row["scenario"] == scenario:
                cells = [_cell(key, row["figures"].get(key)) for key in shown]
                plain = row["version"] == "M"
                cost = f"{row['cost']['labels']['mean']:,.0f}" if plain else ""
                took = f"{row['train_seconds']['mean']:.0f}" if plain else ""
                few = f" ({len(row['seeds'])} of {seeds} seeds)" if len(row["seeds"]) < seeds else ""
                lines.append("| " + " | ".join([row["system"], row["version"] + few, *cells, cost, took]) + " |")
        lines.append("")
    notes = "; ".join(f"{key}: {how}" for key, how in CONVENTIONS.items() if key in shown)
    return (
        "\n".join(lines) + f"\nMean ± standard deviation over seeds. {notes}. labels: number of manual labels, "
        "including those of the validation videos. s: seconds of training, including the frozen backbone.\n"
    )


def _cell(key: str, value: dict[str, float | None] | None) -> str:
    if value is None or value["mean"] is None:
        return ""
    digits = 0 if key.endswith("changes") else 3
    spread = "" if value["sd"] is None else f" ± {value['sd']:.{digits}f}"
    return f"{value['mean']:.{digits}f}{spread}"


def _finite(value: Any) -> Any:
    """Return a value with NaN and infinities, which JSON lacks, replaced by None."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def draw_cost(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Plot mean average precision and phase accuracy against the number of labels; M hollow, M_H filled."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt
    from matplotlib import ticker
    from matplotlib.lines import Line2D

    best = _best_versions(rows)
    panels = [key for key in ("mAP", "accuracy") if any(key in row["figures"] for row in rows)]
    systems = list(dict.fromkeys(row["system"] for row in rows))
    colors = {system: plt.get_cmap("tab20")(number % 20) for number, system in enumerate(systems)}
    markers = dict(zip(dict.fromkeys(row["scenario"] for row in rows), "osD^", strict=False))
    figure, axes = plt.subplots(1, len(panels), figsize=(5.6 * len(panels) + 2.2, 4.6), squeeze=False)
    for axis, key in zip(axes[0], panels, strict=True):
        for system in systems:
            for scenario, marker in markers.items():
                mine = [r for r in rows if (r["system"], r["scenario"]) == (system, scenario) and key in r["figures"]]
                points = {r["version"]: r["figures"][key]["mean"] for r in mine if r["version"] in ("M", best.get(key))}
                if "M" not in points:
                    continue
                cost = mine[0]["cost"]["labels"]["mean"]
                color = colors[system]
                axis.plot([cost] * len(points), list(points.values()), color=color, lw=1, alpha=0.6)
                for version, value in points.items():
                    fill = "none" if version == "M" else color
                    axis.plot(cost, value, marker, color=color, markerfacecolor=fill, ms=7)
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
        axis.xaxis.set_minor_formatter(ticker.NullFormatter())
        axis.set_xlabel("manual labels")
        axis.set_ylabel(key if key == "mAP" else "phase accuracy")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    handles = [Line2D([], [], color=colors[s], lw=3, label=s) for s in systems]
    handles += [Line2D([], [], marker=m, color="gray", ls="", label=s) for s, m in markers.items()]
    named = "\n".join(dict.fromkeys(f"{version} ({key})" for key, version in best.items()))
    handles += [
        Line2D([], [], marker="o", color="gray", markerfacecolor="none", ls="", label="M"),
        Line2D([], [], marker="o", color="gray", ls="", label=named),
    ]
    figure.legend(handles=handles, loc="center right", frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0, 1 - 1.9 / figure.get_size_inches()[0], 1))
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _best_versions(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the offline version to plot of each metric: average precision needs scores, which labels do not have."""
    offline = list(dict.fromkeys(row["version"] for row in rows if row["version"].startswith("M_H,")))
    if not offline:
        return {}
    scores = "M_H, probability"
    return {"mAP": scores if scores in offline else offline[0], "accuracy": offline[0]}

"""Run an experiment: ``python -m models.experiment FILE``; the same command resumes it.

``python -m models.experiment cholec80 data=FOLDER`` runs `models.experiment.cholec80`.
"""

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models.commands import count, reported, shard
from models.data.scenarios import Scenario
from models.experiment import cholec80
from models.experiment.cell import missing, predict_cell, predict_lanes, read_result, stabilize_cell
from models.experiment.plan import AUTO, EMISSIONS, Cell, Plan, group, read_plan
from models.experiment.report import write_report
from models.experiment.videos import label, prepare_videos, write_view


def prepare(plan: Plan, cell: Cell, *, workers: int = 1) -> tuple[Path, Scenario]:
    """Render the videos of a cell and label them, unless that is done.

    Returns:
        The folder of the labeled frames, and everything that was labeled.
    """
    data, view = plan.out / f"seed{cell.seed}" / "data", cell.folder.parent / "view"
    source = prepare_videos(plan.data, cell.seed, data, workers=workers)
    options = {key: value for key, value in plan.scenarios[cell.scenario].items() if key != "train"}
    table, scenario = label(source.table, cell.scenario, seed=cell.seed, **options)
    if not (view / "table.npz").exists():
        write_view(Path(plan.data.get("cache", data)).resolve() / "images.npy", table, view)
    return view, scenario


def predict(plan: Plan, cells: Sequence[Cell], *, workers: int = 1, seconds: float = math.inf) -> None:
    """Train and predict the cells that are not predicted yet; `seconds` limits each group that trains together."""
    begin = time.perf_counter()
    for together in group(plan, cells):
        if all((cell.folder / "predicted.json").exists() for cell in together):
            continue
        for cell in together:
            cell.folder.mkdir(parents=True, exist_ok=True)
        views = [prepare(plan, cell, workers=workers) for cell in together]
        if plan.rates and together[0].on is not None:
            predict_lanes(plan, together, views, seconds)
        else:
            predict_cell(plan, together[0], *views[0])
        seeds = ", ".join(str(cell.seed) for cell in together)
        print(
            f"{time.perf_counter() - begin:6.0f} s  seed {seeds}  {together[0].scenario}  {together[0].name} predicted",
            flush=True,
        )


def stabilize(plan: Plan, cells: Sequence[Cell], *, wait: float = 0.0) -> None:
    """Stabilize and measure the predicted cells; wait up to `wait` seconds for those that are not predicted yet."""
    begin, left = time.perf_counter(), [cell for cell in cells if missing(plan, _result_of(cell))]
    while left:
        ready = [cell for cell in left if (cell.folder / "predicted.json").exists()]
        if not ready:
            if time.perf_counter() - begin > wait:
                break
            time.sleep(1)
            continue
        cell = ready[0]
        left.remove(cell)
        result = stabilize_cell(plan, cell, cell.folder.parent / "view")
        words = [f"{time.perf_counter() - begin:6.0f} s", f"seed {cell.seed}", cell.scenario, cell.name]
        for version in [key for key in result if key == "M" or key.startswith("M_H,")]:
            shown = [f"{key} {result[version][key]:.3f}" for key in ("mAP", "accuracy") if key in result[version]]
            words.append(f"{version}: {', '.join(shown)}")
        print("  ".join(words), flush=True)


def _result_of(cell: Cell) -> dict[str, Any] | None:
    path = cell.folder / "result.json"
    return read_result(path) if path.exists() else None


def _stage(text: str) -> str:
    if text == "stabilise":
        print("--stage stabilise is deprecated: write --stage stabilize", file=sys.stderr)
        return "stabilize"
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models.experiment", description=(__doc__ or "").partition(":")[0])
    parser.add_argument(
        "plan", help="YAML file, such as models/experiment/plans/simsurg.yaml; models/experiment/plan.py lists its keys"
    )
    parser.add_argument("--out", help="output folder, instead of the plan's")
    parser.add_argument("--seeds", type=int, nargs="+", help="run only these; several processes may share a folder")
    parser.add_argument("--scenarios", nargs="+", help="run only these")
    parser.add_argument("--systems", nargs="+", help="run only these")
    parser.add_argument(
        "--emissions", nargs="+", choices=(*EMISSIONS, AUTO), help="families of the HMM, instead of the plan's"
    )
    parser.add_argument("--workers", type=count, default=1, help="processes that render simulated images (1)")
    parser.add_argument(
        "--stage",
        type=_stage,
        choices=("all", "data", "predict", "stabilize", "report"),
        default="all",
        help="only render and label (data), train and predict, stabilize (a CPU suffices), or write the report (all)",
    )
    parser.add_argument("--wait", type=float, default=0.0, help="seconds that stabilize waits for predictions (0)")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="time for training each group of a plan with rates (no limit)"
    )
    parser.add_argument("--shard", default="0/1", help="i/n: stabilize every n-th cell, starting with the i-th (0/1)")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["cholec80"]:
        return cholec80.main(words[1:])
    options = _parser().parse_args(words)
    with reported("stopped; the same command resumes the experiment"):
        plan = read_plan(options.plan)
        emissions = tuple(options.emissions or plan.emissions)
        plan = dataclasses.replace(plan, out=Path(options.out or plan.out), emissions=emissions)
        for option in ("scenarios", "systems"):
            for name in getattr(options, option) or ():
                if name not in getattr(plan, option):
                    known = ", ".join(getattr(plan, option))
                    raise ValueError(f"--{option} {name!r} is not in {options.plan}. Fix: choose among {known}")
        _run(plan, options)


def _run(plan: Plan, options: argparse.Namespace) -> None:
    first, every = shard(options.shard)
    part = dataclasses.replace(
        plan,
        seeds=tuple(options.seeds or plan.seeds),
        scenarios={k: v for k, v in plan.scenarios.items() if k in (options.scenarios or plan.scenarios)},
    )
    cells = [cell for cell in part.cells() if cell.name in (options.systems or plan.systems)]
    if options.stage == "data":
        # One cell of each scenario suffices; several processes may then predict at once.
        for cell in {(cell.seed, cell.scenario): cell for cell in part.cells()}.values():
            prepare(part, cell, workers=options.workers)
        return
    if options.stage in ("all", "predict"):
        predict(part, cells, workers=options.workers, seconds=options.seconds)
    if options.stage in ("all", "stabilize"):
        stabilize(part, cells[first::every], wait=options.wait)
    if options.stage in ("predict", "stabilize"):
        return
    paths = [cell.folder / "result.json" for cell in plan.cells()]
    results = [read_result(path) for path in paths if path.exists()]
    if not results:
        raise ValueError(f"{plan.out}: none of {len(paths)} cells is finished. Fix: run the other stages first")
    write_report(results, plan.out, json.loads(json.dumps(dataclasses.asdict(plan) | {"out": str(plan.out)})))
    print(f"{plan.out}: {len(results)} of {len(paths)} cells in grid.json, table.md and cost.png")


if __name__ == "__main__":
    main()

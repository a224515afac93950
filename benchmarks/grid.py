"""Predict the cells of an experiment's plan by many processes on the accelerators of one machine, until time is up.

    python benchmarks/grid.py models/experiment/plans/simsurg.yaml --processes 28 --gpus 2 --seconds 540 --pack $OUT

Cells start in the order of the plan's seeds, scenarios and systems, each as soon as those that it depends on are done.
The same command continues where the last one stopped: a process that is stopped resumes from its last checkpoint.
`--pack` writes the predictions, with the labels and settings that stabilizing them needs, to archives; unpacked over
the same folder elsewhere, ``python -m models.experiment PLAN --stage stabilize`` continues without an accelerator.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from models.experiment.plan import Cell, Plan, read_plan

#: Files of an experiment that stabilizing and the report read.
KEPT = ("predictions.npz", "predicted.json", "table.npz")
#: Largest size of an archive's contents in bytes; predictions are compressed already, so an archive is hardly smaller.
PART = 15_500_000


def needs(cell: Cell) -> list[str]:
    """Return the names of the systems on which a cell depends."""
    return [name for name in (cell.on, cell.hmm, *cell.mean) if name is not None]


def ready(cell: Cell) -> bool:
    """Return whether everything on which a cell depends is predicted."""
    return all((cell.folder.parent / name / "predicted.json").exists() for name in needs(cell))


def run(plan_file: str, plan: Plan, cells: list[Cell], options: argparse.Namespace, end: float) -> None:
    """Run cells, at most `options.processes` at a time, until all are done or the time is up."""
    left = [cell for cell in cells if not (cell.folder / "predicted.json").exists()]
    active: dict[subprocess.Popen, tuple[Cell, int]] = {}
    failed: set[tuple[int, str, str]] = set()
    while time.monotonic() < end and (active or any(map(ready, left))):
        for process in [process for process in active if process.poll() is not None]:
            cell, _ = active.pop(process)
            print(
                f"{end - time.monotonic():5.0f} s left  rc {process.returncode}  seed {cell.seed}  {cell.scenario}  "
                f"{cell.name}",
                flush=True,
            )
            if process.returncode:
                failed.add((cell.seed, cell.scenario, cell.name))
                print((cell.folder / "log").read_text(encoding="utf-8")[-600:], flush=True)
        while len(active) < options.processes and (found := next(filter(ready, left), None)) is not None:
            left.remove(found)
            loads = [sum(gpu == number for _, gpu in active.values()) for number in range(options.gpus)]
            gpu = loads.index(min(loads))
            active[start(plan_file, plan, found, gpu)] = (found, gpu)
        time.sleep(0.3)
    for process in active:
        process.kill()
    done = sum((cell.folder / "predicted.json").exists() for cell in cells)
    print(f"{done} of {len(cells)} cells predicted, {len(active)} stopped, {len(failed)} failed", flush=True)


def start(plan_file: str, plan: Plan, cell: Cell, gpu: int) -> subprocess.Popen:
    """Start the process of one cell on an accelerator."""
    cell.folder.mkdir(parents=True, exist_ok=True)
    chosen = ["--seeds", str(cell.seed), "--scenarios", cell.scenario, "--systems", cell.name, "--out", str(plan.out)]
    command = [sys.executable, "-m", "models.experiment", plan_file, "--stage", "predict", *chosen]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with open(cell.folder / "log", "w", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env)


def pack(root: Path, into: Path, name: str) -> None:
    """Write the kept files of an experiment to ``NAME-0.tar.xz`` and so on; 8 archives at most are expected."""
    files = sorted(path for kept in KEPT for path in root.rglob(kept) if "run" not in path.relative_to(root).parts)
    parts: list[list[Path]] = [[]]
    size = 0
    for path in files:
        if size + path.stat().st_size > PART and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(path)
        size += path.stat().st_size
    for number, part in enumerate(parts):
        with tarfile.open(into / f"{name}-{number}.tar.xz", "w:xz", preset=1) as archive:
            for path in part:
                archive.add(path, path.relative_to(root))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("plan")
    parser.add_argument("--out", help="output folder, instead of the plan's")
    parser.add_argument("--seeds", type=int, nargs="+", help="run only these")
    parser.add_argument("--systems", nargs="+", help="run only these")
    parser.add_argument("--processes", type=int, default=8, help="processes at a time (8)")
    parser.add_argument("--gpus", type=int, default=1, help="accelerators (1)")
    parser.add_argument("--seconds", type=float, default=500, help="when to stop (500)")
    parser.add_argument("--pack", help="folder for archives of the predictions")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    plan = read_plan(options.plan)
    plan = Plan(**{**vars(plan), "out": Path(options.out or plan.out), "seeds": tuple(options.seeds or plan.seeds)})
    command = [sys.executable, "-m", "models.experiment", options.plan, "--stage", "data", "--out", str(plan.out)]
    workers = str(min(os.cpu_count() or 1, 32))
    seeds = [str(seed) for seed in plan.seeds]
    # Rendering needs no accelerator, and must not hold its memory.
    cpu = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([*command, "--workers", workers, "--seeds", *seeds], check=True, env=cpu)
    print(f"{end - time.monotonic():5.0f} s left  videos are rendered", flush=True)
    cells = [cell for cell in plan.cells() if cell.name in (options.systems or plan.systems)]
    run(options.plan, plan, cells, options, end)
    if options.pack:
        pack(plan.out, Path(options.pack), plan.out.name)


if __name__ == "__main__":
    main()

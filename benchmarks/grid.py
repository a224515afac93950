"""Predict the cells of an experiment's plan by many processes on the accelerators of one machine, until time is up.

    python benchmarks/grid.py models/experiment/plans/simsurg.yaml --processes 28 --gpus 2 --seconds 540 --pack $OUT

Cells start in the order of the plan's seeds, scenarios and systems, each as soon as those that it depends on are done.
In a plan with `rates`, one process trains a system on frozen backbones for all seeds, and the order is that of systems.
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

from models.experiment.plan import Cell, Plan, group, read_plan

#: Files of an experiment that stabilizing and the report read.
KEPT = ("predictions.npz", "predicted.json", "table.npz")
#: Largest size of an archive's contents in bytes; predictions are compressed already, so an archive is hardly smaller.
PART = 15_500_000


def done(cells: list[Cell]) -> bool:
    """Return whether all cells are predicted."""
    return all((cell.folder / "predicted.json").exists() for cell in cells)


def ready(cells: list[Cell]) -> bool:
    """Return whether everything on which cells depend is predicted."""
    return all((cell.folder.parent / name / "predicted.json").exists() for cell in cells for name in cell.needs)


def run(plan_file: str, plan: Plan, cells: list[Cell], options: argparse.Namespace, end: float) -> None:
    """Run cells, at most `options.processes` processes at a time, until all are done or the time is up."""
    left = [together for together in group(plan, cells) if not done(together)]
    if plan.rates:
        # Lanes wait for the backbones of all seeds.
        left.sort(key=lambda together: list(plan.systems).index(together[0].name))
    active: dict[subprocess.Popen, tuple[list[Cell], int]] = {}
    failed = 0
    while time.monotonic() < end and (active or any(map(ready, left))):
        for process in [process for process in active if process.poll() is not None]:
            together, _ = active.pop(process)
            cell, seeds = together[0], ", ".join(str(cell.seed) for cell in together)
            print(
                f"{end - time.monotonic():5.0f} s left  rc {process.returncode}  seed {seeds}  {cell.scenario}  "
                f"{cell.name}",
                flush=True,
            )
            if process.returncode:
                failed += 1
                print((cell.folder / "log").read_text(encoding="utf-8")[-600:], flush=True)
        while len(active) < options.processes and (found := next(filter(ready, left), None)) is not None:
            left.remove(found)
            loads = [sum(gpu == number for _, gpu in active.values()) for number in range(options.gpus)]
            gpu = min(range(options.gpus), key=lambda n: (loads[n], (n - options.first) % options.gpus))
            # Lanes stop in time to predict with what they have.
            seconds = max(end - time.monotonic() - options.margin, 0)
            active[start(plan_file, plan, found, gpu, seconds)] = (found, gpu)
        time.sleep(0.3)
    for process in active:
        process.kill()
    count = sum(done([cell]) for cell in cells)
    print(f"{count} of {len(cells)} cells predicted, {len(active)} stopped, {failed} failed", flush=True)
    for together, _ in active.values():
        print(f"stopped: {together[0].name}\n{(together[0].folder / 'log').read_text(encoding='utf-8')[-300:]}")


def start(plan_file: str, plan: Plan, cells: list[Cell], gpu: int, seconds: float) -> subprocess.Popen:
    """Start the process of cells that train together on an accelerator."""
    cell = cells[0]
    cell.folder.mkdir(parents=True, exist_ok=True)
    chosen = ["--scenarios", cell.scenario, "--systems", cell.name, "--out", str(plan.out)]
    chosen += ["--seeds", *(str(cell.seed) for cell in cells), "--seconds", f"{seconds:.0f}"]
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
    parser.add_argument("--first", type=int, default=0, help="accelerator to start with, of several (0)")
    parser.add_argument("--seconds", type=float, default=500, help="when to stop (500)")
    parser.add_argument("--margin", type=float, default=30, help="seconds before the end to stop training lanes (30)")
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

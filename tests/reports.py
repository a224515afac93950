"""A result made by hand, and its report."""

import numpy as np

import hmmjax
from hmmjax import io, report
from hmmjax import stabilize as job
from hmmjax.stabilize.systems import System
from hmmjax.stabilize.table import compare_systems

P, T = ("Alpha", "Beta<b>", "Gamma"), ("Knife", "Fork_1")


def runs(*parts):
    return np.concatenate([np.full(n, v, np.int32) for v, n in parts])


def handmade():
    """Two videos made by hand, with a noisy raw result and a mostly correct stabilized one."""
    rng = np.random.default_rng(0)
    truth = [runs((0, 30), (1, 40), (2, 20)), runs((0, 20), (2, 40))]
    tools = [np.stack([t == 1, t != 2], 1).astype(np.int32) for t in truth]
    raw_phases = [np.where(rng.random(len(t)) < 0.2, rng.integers(0, 3, len(t)), t).astype(np.int32) for t in truth]
    raw_phases[0][40:46] = 2  # a run for "what changed": truth and stabilized say 1
    raw_tools = [np.clip(np.abs(t - (rng.random(t.shape) < 0.15)) * 0.9 + 0.05, 0, 1).astype(np.float32) for t in tools]
    tools[1][:, 1] = -1  # a track that is annotated in part

    def sure(labels, classes):
        return (0.9 * np.eye(classes)[labels] + 0.1 / classes).astype(np.float32)

    smooth = [sure(t, 3) for t in truth]
    filtered = [sure(t, 3) for t in raw_phases]
    present = [np.where(t == 0, 0.02, 0.97).astype(np.float32) for t in tools]
    emission = hmmjax.emissions.PhaseConfusion(np.full((3, 3), 0.1, np.float32) + 0.7 * np.eye(3, dtype=np.float32))
    params = hmmjax.Params(
        hmmjax.PhaseChain(
            np.full(3, 1 / 3, np.float32), np.full((3, 3), 0.01, np.float32) + 0.97 * np.eye(3, dtype=np.float32),
            emission,
        ),
        hmmjax.ToolChains(
            np.full((2, 3), 0.5, np.float32),
            hmmjax.transitions.PhaseConditioned(np.tile(np.array([[0.9, 0.1], [0.2, 0.8]], np.float32), (2, 3, 1, 1))),
            hmmjax.emissions.ToolConfusion(np.tile(np.array([[0.8, 0.2], [0.3, 0.7]], np.float32), (2, 1, 1))),
        ),
    )  # fmt: skip
    systems = [
        System("M", raw_phases, raw_tools),
        System("M_H", smooth, present),
        System("M_H online", filtered, present),
    ]
    return job.Stabilized(
        ("video01", "video02"),
        tuple(25 * np.arange(len(t)) for t in truth),
        25.0,
        1.0,
        P,
        T,
        truth,
        tools,
        *systems,
        log_likelihood=np.zeros(2),
        folds=(0, 1),
        protocol="2 annotated videos, held out one at a time",
        model=io.ModelFile(params, P, T, 1.0, {"method": "by hand </script>"}),
        table=compare_systems(
            systems, truth, tools, phase_names=P, tool_names=T, split="2 annotated videos, held out one at a time"
        ),
        notices=("a note with <markup>",),
    )


def write_all(result, folder):
    """Write the report with pictures and costs; return its folder and files."""
    (folder / "frames" / "video01").mkdir(parents=True)
    from PIL import Image

    for frame in range(0, 90 * 25, 25):
        Image.new("RGB", (64, 36), (frame % 255, 80, 40)).save(folder / "frames" / "video01" / f"{frame:06d}.png")
    (folder / "costs.csv").write_text(
        "name,cost,value,low,high,cost_unit,figure\nS_C,10,0.7,0.65,0.75,hours,tool mAP\nS_D,2,0.6,,,hours,tool mAP\n"
    )
    files = report.write_report(
        result,
        folder / "out",
        title="A <title> & more",
        frames=folder / "frames",
        costs=report.read_costs(folder / "costs.csv"),
    )
    return folder / "out", files

"""Frames that are seconds to minutes apart, stabilized: what a network says of m2cai16-tool-locations' val frames.

    python benchmarks/train_real.py fit .device/m2cai16.npz models/recipes/frcnn_m2cai16.yaml --out $OUT
    python benchmarks/real_gaps.py $OUT/frcnn_m2cai16_seed0_last.npz --out gaps.json

Frames lie on an axis of seconds on which the others are unobserved: time passes there, and nothing is said. (The
contrast, "as if consecutive", closes the gaps.) Start and transitions are counted in Cholec80 videos 1-40, which are
none of these; emissions, and their powers where calibrated, in the other videos' val frames, leaving one out. The
split is random within videos, so that a network's own figures are optimistic. HMMJAX_DATA says where the data are,
default ../shared/data.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from real import DATA, chains

import hmmjax
from hmmjax import Labels, Observations, Params, metrics
from hmmjax.data.splits import recording
from hmmjax.stabilize import PRIORS
from models.data.m2cai_locations import read_frames, read_image_set, to_batch
from models.training.record import environment


def on_seconds(file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Presence (B, T, K), the network's probabilities (B, T, K), and which seconds have a frame (B, T)."""
    folder = DATA / "m2cai16-tool-locations"
    frames = read_frames(folder, read_image_set(folder, "val"))
    labels, mask, videos = to_batch(frames)
    said = np.full(labels.tools.shape, 0.5, np.float32)
    with np.load(file) as arrays:
        for row, video in enumerate(videos):
            suffix = recording(video).removeprefix("video")
            first = min(frame.frame for frame in frames if frame.video == video)
            said[row, (arrays[f"frames_{suffix}"] - first) // 25] = arrays[f"tools_{suffix}"]
            assert mask[row].sum() == len(arrays[f"frames_{suffix}"])
    return np.asarray(labels.tools), said, mask


def closed(mask: np.ndarray, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """The same frames one after the other."""
    order = np.argsort(~mask, axis=1, kind="stable")[:, : mask.sum(1).max()]
    return tuple(np.take_along_axis(x, order.reshape(*order.shape, *[1] * (x.ndim - 2)), 1) for x in (*arrays, mask))


def stabilized(
    truth: np.ndarray, said: np.ndarray, mask: np.ndarray, model: Params, emissions: str, calibrated: bool
) -> dict[str, np.ndarray]:
    """Smoothed and filtered presence (B, T, K), each video by the others' emissions."""
    answers = {"smoothed": np.zeros_like(said), "filtered": np.zeros_like(said)}

    def observed(rows: np.ndarray) -> Observations:
        return Observations(tools=said[rows] if emissions == "probability" else (said[rows] > 0.5).astype(np.int32))

    for row in range(len(said)):
        others, own = np.delete(np.arange(len(said)), row), np.array([row])
        labels = Labels(tools=truth[others])
        learned = hmmjax.estimate(labels, observed(others), mask[others], emissions=emissions, priors=PRIORS)
        phases = None if model.phases is None else dataclasses.replace(model.phases, emission=None)
        params = Params(phases, dataclasses.replace(model.tools, emission=learned.tools.emission))
        if calibrated:
            params = hmmjax.calibrate(params, observed(others), mask[others], labels).params
        answers["smoothed"][row] = hmmjax.posterior(params, observed(own), mask[own]).tools[0]
        answers["filtered"][row] = hmmjax.filter(params, observed(own), mask[own]).tools[0]
    return answers


def score(truth: np.ndarray, said: np.ndarray, mask: np.ndarray) -> dict[str, float]:
    """AP of the frames and F1 at one half."""
    return {
        "mAP, scikit-learn step AP, pooled": metrics.average_precision(truth[mask], said[mask]).value,
        "mAP, VOC 11 points, pooled": metrics.average_precision(
            truth[mask], said[mask], definition="voc-11-point"
        ).value,
        "F1, macro over tools, pooled, threshold 0.5": metrics.tool_f1(truth[mask], said[mask]).value,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("predictions", nargs="+", type=Path, help="what train_real.py fit wrote of the val frames")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    results: dict[str, Any] = {"environment": environment(), "systems": {}}
    for file in options.predictions:
        truth, said, mask = on_seconds(file)
        figures: dict[str, Any] = {"raw": score(truth, said, mask)}
        gaps = (truth, said, mask)
        settings = [
            (f"{how}, {what}, {emissions}", arrays, chains(tools_only=what == "tools only"), emissions)
            for how, arrays in (("gaps", gaps), ("as if consecutive", closed(mask, truth, said)))
            for what in ("coupled, phases unobserved", "tools only")
            for emissions in ("confusion", "probability")
        ]
        runs = [(*each, False) for each in settings]
        runs += [(f"{name}, calibrated", *rest, True) for name, *rest in settings if name.startswith("gaps, coupled")]
        for name, arrays, model, emissions, calibrated in runs:
            begin = time.perf_counter()
            for kind, answer in stabilized(*arrays, model, emissions, calibrated).items():
                figures[f"{name}, {kind}"] = score(arrays[0], answer, arrays[2])
            results["systems"][file.stem] = figures
            Path(options.out).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            seconds, shown = time.perf_counter() - begin, figures[f"{name}, smoothed"]
            print(f"{file.stem}: {name}: {seconds:.0f} s, mAP {next(iter(shown.values())):.4f}", flush=True)


if __name__ == "__main__":
    main()

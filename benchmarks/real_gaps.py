"""Stabilize predictions on frames that are seconds to minutes apart: the val frames of m2cai16-tool-locations.

    python benchmarks/train_real.py fit .device/m2cai16.npz models/recipes/frcnn_m2cai16.yaml --out $OUT
    python benchmarks/real_gaps.py $OUT/frcnn_m2cai16_seed0_last.npz --out gaps.json

Frames lie on an axis of seconds on which all other seconds are unobserved. (For contrast, "as if consecutive" closes
the gaps.) Start and transitions are counted in Cholec80 videos 1-40, which do not overlap with these; emissions, and
their powers if calibrated, are learned on the val frames of the other videos, leaving one out. The split is random
within videos, so that the network's own results are optimistic. The environment variable HMMJAX_DATA is the folder of
the data, default ../shared/data.
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
from models.training.run import environment


def on_seconds(file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return presence (B, T, K), the network's probabilities (B, T, K), and which seconds have a frame (B, T)."""
    folder = DATA / "m2cai16-tool-locations"
    frames = read_frames(folder, read_image_set(folder, "val"))
    labels, mask, videos = to_batch(frames)
    predicted = np.full(labels.tools.shape, 0.5, np.float32)
    with np.load(file) as arrays:
        for row, video in enumerate(videos):
            suffix = recording(video).removeprefix("video")
            first = min(frame.frame for frame in frames if frame.video == video)
            predicted[row, (arrays[f"frames_{suffix}"] - first) // 25] = arrays[f"tools_{suffix}"]
            assert mask[row].sum() == len(arrays[f"frames_{suffix}"])
    return np.asarray(labels.tools), predicted, mask


def closed(mask: np.ndarray, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Close the gaps: the observed frames one after the other."""
    order = np.argsort(~mask, axis=1, kind="stable")[:, : mask.sum(1).max()]
    return tuple(np.take_along_axis(x, order.reshape(*order.shape, *[1] * (x.ndim - 2)), 1) for x in (*arrays, mask))


def stabilized(
    truth: np.ndarray, predicted: np.ndarray, mask: np.ndarray, model: Params, emissions: str, calibrated: bool
) -> dict[str, np.ndarray]:
    """Return smoothed and filtered presence (B, T, K), each video with emissions learned on the others."""
    outputs = {"smoothed": np.zeros_like(predicted), "filtered": np.zeros_like(predicted)}

    def observed(rows: np.ndarray) -> Observations:
        tools = predicted[rows]
        return Observations(tools=tools if emissions == "probability" else (tools > 0.5).astype(np.int32))

    for row in range(len(predicted)):
        others, own = np.delete(np.arange(len(predicted)), row), np.array([row])
        labels = Labels(tools=truth[others])
        learned = hmmjax.estimate(labels, observed(others), mask[others], emissions=emissions, priors=PRIORS)
        phases = None if model.phases is None else dataclasses.replace(model.phases, emission=None)
        params = Params(phases, dataclasses.replace(model.tools, emission=learned.tools.emission))
        if calibrated:
            params = hmmjax.calibrate(params, observed(others), mask[others], labels).params
        outputs["smoothed"][row] = hmmjax.posterior(params, observed(own), mask[own]).tools[0]
        outputs["filtered"][row] = hmmjax.filter(params, observed(own), mask[own]).tools[0]
    return outputs


def score(truth: np.ndarray, predicted: np.ndarray, mask: np.ndarray) -> dict[str, float]:
    """Average precision and F1 over the observed frames."""
    return {
        "mAP, scikit-learn step AP, pooled": metrics.average_precision(truth[mask], predicted[mask]).value,
        "mAP, VOC 11 points, pooled": metrics.average_precision(
            truth[mask], predicted[mask], definition="voc-11-point"
        ).value,
        "F1, macro over tools, pooled, threshold 0.5": metrics.tool_f1(truth[mask], predicted[mask]).value,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("predictions", nargs="+", type=Path, help="predictions that train_real.py fit wrote")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    results: dict[str, Any] = {"environment": environment(), "systems": {}}
    for file in options.predictions:
        truth, predicted, mask = on_seconds(file)
        scores: dict[str, Any] = {"raw": score(truth, predicted, mask)}
        gaps = (truth, predicted, mask)
        settings = [
            (f"{axis}, {model_name}, {emissions}", arrays, chains(tools_only=model_name == "tools only"), emissions)
            for axis, arrays in (("gaps", gaps), ("as if consecutive", closed(mask, truth, predicted)))
            for model_name in ("coupled, phases unobserved", "tools only")
            for emissions in ("confusion", "probability")
        ]
        runs = [(*each, False) for each in settings]
        runs += [(f"{name}, calibrated", *rest, True) for name, *rest in settings if name.startswith("gaps, coupled")]
        for name, arrays, model, emissions, calibrated in runs:
            begin = time.perf_counter()
            for kind, output in stabilized(*arrays, model, emissions, calibrated).items():
                scores[f"{name}, {kind}"] = score(arrays[0], output, arrays[2])
            results["systems"][file.stem] = scores
            Path(options.out).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            seconds, shown = time.perf_counter() - begin, scores[f"{name}, smoothed"]
            print(f"{file.stem}: {name}: {seconds:.0f} s, mAP {next(iter(shown.values())):.4f}", flush=True)


if __name__ == "__main__":
    main()

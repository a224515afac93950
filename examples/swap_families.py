"""Compare emission families on the same videos: learned on one half, scored on the other.

    python examples/swap_families.py --videos 12 --minutes 38

Simulated recognizers err as real ones do: over-confident, and many frames in a row. Which family is best depends on the
recognizer, so try this on your own files (see docs/how-to/pytorch.md) before choosing.
"""

import argparse
from collections.abc import Sequence

import numpy as np

import hmmjax
from hmmjax import metrics
from hmmjax.simulate import simulate_surgeries, stack
from hmmjax.stabilize import PRIORS


def main(argv: Sequence[str] | None = None) -> dict[str, tuple[float, float]]:
    """Print and return, for each family, phase accuracy and tool mAP on the held-out half."""
    parser = argparse.ArgumentParser(description="Compare emission families on simulated surgeries.")
    parser.add_argument("--videos", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    surgeries = simulate_surgeries(options.videos, options.seed, minutes=options.minutes)
    half = len(surgeries) // 2
    labels, train, mask = stack(surgeries[:half])
    truth, predicted, test_mask = stack(surgeries[half:])
    found = {"raw": score(truth, np.asarray(predicted.phases).argmax(-1), predicted.tools, test_mask)}
    for name, emissions in (("confusion", "confusion"), ("probability", "probability"), ("calibrated", "probability")):
        train_obs, test_obs = (o.discretize() if emissions == "confusion" else o for o in (train, predicted))
        params = hmmjax.estimate(labels, train_obs, mask, emissions=emissions, priors=PRIORS)
        if name == "calibrated":
            params = hmmjax.calibrate(params, train_obs, mask, labels, max_iterations=8).params
        posterior = hmmjax.posterior(params, test_obs, test_mask)
        found[name] = score(truth, np.asarray(posterior.phases).argmax(-1), posterior.tools, test_mask)
    for name, (accuracy, precision) in found.items():
        print(f"{name:<14} phase accuracy {accuracy:.4f}   tool mAP {precision:.4f}")
    return found


def score(truth: hmmjax.Labels, phases: np.ndarray, tools: np.ndarray, mask: np.ndarray) -> tuple[float, float]:
    """Return pooled accuracy and scikit-learn's step AP, pooled over videos."""
    cut = lambda x: metrics.unpad(np.asarray(x), mask)  # noqa: E731
    accuracy = metrics.accuracy(cut(truth.phases), cut(phases), mean="pooled")
    return accuracy.value, metrics.average_precision(cut(truth.tools), cut(tools)).value


if __name__ == "__main__":
    main()

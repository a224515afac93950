"""Choose among models, mixtures of them and the recognizer itself, by what they predict on held-out videos.

Candidates are ranked by a metric of labels, one by one. The choice is the best that is no worse than the recognizer in
any class; where nothing helps, it is the recognizer.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hmmjax._core.objectives import GUARD

METRICS = ("log-loss", "accuracy")
"""Minus the mean log-probability of the labels, or the fraction of frames that are wrong; means over videos."""

TOLERANCE = 0.01
"""A phase counts as worse than in the recognizer's output if its Jaccard index falls by more than this and by more than
one standard error over videos."""

SHARES = (0.0, 0.1, 0.2, 0.3, 0.35, 0.4, 0.45)
"""Weights of the recognizer's own labels that are tried, smallest first, until no phase is worse. With one half, they
would come back unchanged."""

CLEARLY = 2.0
"""Standard errors by which a candidate must beat the mixture of all: a single model may lose a video that others follow
(docs/results/real.md)."""

EQUAL_VIDEOS = 30.0
"""Videos that equal weights count for when those of a mixture are learned: with few videos they stay equal."""


@dataclasses.dataclass(frozen=True, eq=False)
class Choice:
    """The result of `choose_phases` or `choose_tools`.

    Attributes:
        option: the name of what was chosen, one per tool for tools.
        weights: (N,) of the candidates for phases, or (N, K) for tools, less the share of the recognizer.
        share: weight of the recognizer's own output, () for phases, (K,) for tools; 1 if nothing helps.
        losses: mean loss over held-out videos of every option, best first; the recognizer's is "recognizer".
        margin: the recognizer's loss minus that of the choice.
        error: standard error of `margin`, over videos; NaN for a single one.
    """

    option: str | tuple[str, ...]
    weights: np.ndarray
    share: np.ndarray
    losses: Mapping[str, float]
    margin: float
    error: float


def losses_of(probabilities: Sequence[np.ndarray], labels: Sequence[np.ndarray], metric: str) -> np.ndarray:
    """Return the loss (V,) of each video, or (V, K) of each tool; NaN without labels.

    Args:
        probabilities: per video P(phase) (T, L), or P(present) (T, K).
        labels: per video (T,) or (T, K) int, -1 for unknown.
        metric: one of `METRICS`.

    Raises:
        ValueError: an unknown metric.
    """
    if metric not in METRICS:
        raise ValueError(f"metric {metric!r} is unknown; choose {' or '.join(METRICS)}.")
    rows = []
    for p, known in zip(probabilities, labels, strict=True):
        if known.ndim == 1:
            right = np.take_along_axis(p, np.maximum(known, 0)[:, None], 1)[:, 0]
            hit = p.argmax(-1) == known
        else:
            right = np.where(known == 1, p, 1 - p)
            hit = (p >= 0.5) == known
        loss = -np.log(right + GUARD) if metric == "log-loss" else 1.0 - hit
        loss = np.where(known >= 0, loss, 0).sum(0) / np.maximum((known >= 0).sum(0), 1)
        rows.append(np.where((known >= 0).any(0), loss, np.nan))
    return np.array(rows)


def choose_phases(
    candidates: Mapping[str, Sequence[np.ndarray]],
    outputs: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    *,
    metric: str = "log-loss",
) -> Choice:
    """Choose a candidate, a mixture of all, or the recognizer for phases, and how much of the recognizer to keep.

    The mixture (`mixture_weights`) is chosen unless one candidate is better by more than two standard errors. The
    recognizer's own output gets the smallest of `SHARES` with which no phase is worse than in it, and all the weight if
    there is none, or if the result is no better than it.

    Args:
        candidates: by name, per video P(phase) (T, L) from models that have not seen the video.
        outputs: per video, the recognizer's output as probabilities (T, L).
        labels: per video (T,) int, -1 for unknown.
        metric: one of `METRICS`.

    Returns:
        The option, and the weights of the candidates and of the recognizer, which sum to one.

    Source: Clemen (1989), combining forecasts: equal weights are hard to beat.
    """
    probabilities, count = list(candidates.values()), len(candidates)
    options = {name: np.eye(count)[i] for i, name in enumerate(candidates)}
    scored = dict(zip(candidates, map(list, probabilities), strict=True))
    favorite = next(iter(candidates))
    if count > 1:
        favorite = "mixture"
        options["mixture"] = mixture_weights(probabilities, labels)
        scored["mixture"] = _mixed(probabilities, options["mixture"])
    losses = {name: losses_of(p, labels, metric) for name, p in scored.items()}
    chosen = favorite
    for name in sorted(losses, key=lambda name: np.nanmean(losses[name])):
        gain, error = _difference(losses[favorite] - losses[name])
        if gain > CLEARLY * error:
            chosen = name
            break
    losses["recognizer"] = losses_of(outputs, labels, metric)
    share, found = 1.0, list(outputs)
    for tried in SHARES:
        found = _mixed([scored[chosen], outputs], np.array([1 - tried, tried]))
        if not _some_phase_is_worse(found, outputs, labels):
            share = tried
            break
    margin, error = _difference(losses["recognizer"] - losses_of(found, labels, metric))
    if share == 1 or margin <= 0:
        chosen, share, margin, error = "recognizer", 1.0, 0.0, 0.0
    weights = np.zeros(count) if share == 1 else (1 - share) * options[chosen]
    return Choice(chosen, weights, np.asarray(share), _means(losses), margin, error)


def mixture_weights(
    candidates: Sequence[Sequence[np.ndarray]], labels: Sequence[np.ndarray], *, iterations: int = 100
) -> np.ndarray:
    """Return weights (N,) of a mixture of candidates, with which labels of phases are most probable.

    They are shrunk towards equal weights, see `EQUAL_VIDEOS`.

    Args:
        candidates: for each, per video P(phase) (T, L) from models that have not seen the video.
        labels: per video (T,) int, -1 for unknown. All videos weigh the same.
        iterations: number of EM iterations.

    Source: EM for mixture weights (Dempster, Laird and Rubin 1977) under a Dirichlet prior of `EQUAL_VIDEOS` videos;
        stacked density estimation, Smyth and Wolpert (1999).
    """
    count, rows, shares = len(candidates), [], []
    for known, *probabilities in zip(labels, *candidates, strict=True):
        frames = np.flatnonzero(known >= 0)
        if frames.size:
            rows.append(np.stack([p[frames, known[frames]] for p in probabilities], -1) + GUARD)
            shares.append(np.full(frames.size, 1 / frames.size))
    weights, equal = np.full(count, 1 / count), EQUAL_VIDEOS / count
    if not rows:
        return weights
    likelihoods, share = np.concatenate(rows), np.concatenate(shares)
    for _ in range(iterations):
        joint = likelihoods * weights
        weights = (share @ (joint / joint.sum(1, keepdims=True)) + equal) / (len(rows) + EQUAL_VIDEOS)
    return weights


def choose_tools(
    candidates: Mapping[str, Sequence[np.ndarray]],
    outputs: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    *,
    metric: str = "log-loss",
) -> Choice:
    """Choose a candidate, the mean of all, or the recognizer for each tool.

    Args:
        candidates: by name, per video P(present) (T, K) from models that have not seen the video.
        outputs: per video, the recognizer's output (T, K), labels or probabilities.
        labels: per video (T, K) int, -1 for unknown.
        metric: one of `METRICS`.

    Returns:
        For each tool the best whose average precision over all videos is not below the recognizer's; the recognizer for
        tools that are always or never present.
    """
    from hmmjax import metrics  # the core does not depend on metrics otherwise

    probabilities, count = list(candidates.values()), len(candidates)
    options = {name: np.eye(count)[i] for i, name in enumerate(candidates)}
    scored = dict(zip(candidates, map(list, probabilities), strict=True))
    if count > 1:
        options["mean"] = np.full(count, 1 / count)
        scored["mean"] = _mixed(probabilities, options["mean"])
    scored["recognizer"], options["recognizer"] = [np.asarray(x, float) for x in outputs], np.zeros(count)
    losses = {name: losses_of(p, labels, metric) for name, p in scored.items()}
    precision = {name: np.array(metrics.average_precision(labels, p).per_class) for name, p in scored.items()}
    everything, chosen = np.concatenate(list(labels)), []
    for k in range(everything.shape[-1]):
        varies = {0, 1} <= set(np.unique(everything[:, k]))
        order = sorted(losses, key=lambda name: (np.nanmean(losses[name][:, k]), name != "mean")) if varies else []
        fitting = [name for name in order if precision[name][k] >= precision["recognizer"][k]]
        chosen.append(fitting[0] if fitting else "recognizer")
    best = np.stack([losses[name][:, k] for k, name in enumerate(chosen)], -1)
    margin, error = _difference(np.nanmean(losses["recognizer"] - best, -1))
    weights = np.stack([options[name] for name in chosen], -1)
    return Choice(tuple(chosen), weights, 1 - weights.sum(0), _means(losses), margin, error)


def _means(losses: Mapping[str, np.ndarray]) -> dict[str, float]:
    return dict(sorted(((name, float(np.nanmean(x))) for name, x in losses.items()), key=lambda item: item[1]))


def _mixed(probabilities: Sequence[Sequence[np.ndarray]], weights: np.ndarray) -> list[np.ndarray]:
    return [np.tensordot(weights, np.stack(video), 1) for video in zip(*probabilities, strict=True)]


def _some_phase_is_worse(probabilities: Any, outputs: Any, labels: Sequence[np.ndarray]) -> bool:
    """Return whether the Jaccard index of some phase falls below that of the outputs, see `TOLERANCE`."""
    change = np.full((len(labels), outputs[0].shape[-1]), np.nan)
    for v, known in enumerate(labels):
        keep = known >= 0
        truth, *both = known[keep], outputs[v].argmax(-1)[keep], probabilities[v].argmax(-1)[keep]
        for q in np.unique(truth):
            own, new = (np.sum((x == q) & (truth == q)) / np.sum((x == q) | (truth == q)) for x in both)
            change[v, q] = new - own
    falls = (_difference(-x) for x in change.T if not np.isnan(x).all())
    return any(drop > max(TOLERANCE, 0.0 if np.isnan(error) else error) for drop, error in falls)


def _difference(margins: np.ndarray) -> tuple[float, float]:
    """Return the mean of differences (V,) and its standard error."""
    margins = margins[~np.isnan(margins)]
    error = float(margins.std(ddof=1) / np.sqrt(len(margins))) if len(margins) > 1 else float("nan")
    return float(margins.mean()), error

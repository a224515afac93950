"""Choose among models, mixtures of them and the recognizer itself, by what they predict on held-out videos.

Candidates are ranked by a metric of labels, one by one. Guards look at what a user cares for, on the same videos:
accuracy, the Jaccard index and every phase; average precision and F1 of every tool. Where nothing passes them, the
choice is the recognizer. How strict they are was chosen on seed 0 of the simulated grid (docs/results/networks.md).
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from hmmjax._core.left_out import (
    Comparison,
    compare_accuracy,
    compare_precision,
    gain_of,
    mean_and_error,
    phase_gains,
    phase_scores,
    tool_scores,
)
from hmmjax._core.objectives import GUARD

METRICS = ("log-loss", "accuracy")
"""Minus the mean log-probability of the labels, or the fraction of frames that are wrong; means over videos."""

TOLERANCE = 0.01
"""A phase counts as worse than in the recognizer's output if its Jaccard index falls by more than this and by more than
one standard error over videos."""

SHARES = (0.0, 0.1, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5)
"""Weights of the recognizer's own phases that are tried, smallest first, until no guard objects. With one half,
labels of a recognizer come back unchanged, probabilities do not."""

TOOL_SHARES = {"probabilities": (0.5, 0.75), "labels": (0.0, 0.25, 0.4)}
"""Weights of the recognizer's own tools that are tried, by what it predicts."""

MANY_VIDEOS, SMALL_SHARE = 8, 0.25
"""Fewest labeled videos with which probabilities of tools may keep less than half of their weight, and how much they
keep at least: in simulated surgeries none at all loses more on held-out videos (docs/results/networks.md)."""

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
        comparison: of the choice with the recognizer; None if nothing was compared.
    """

    option: str | tuple[str, ...]
    weights: np.ndarray
    share: np.ndarray
    losses: Mapping[str, float]
    margin: float
    error: float
    comparison: Comparison | None = None


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
    recognizer's own output gets the smallest of `SHARES` with which the metric improves, accuracy and Jaccard index
    rise by at least one standard error, and no phase is worse (`TOLERANCE`); all the weight if there is none.

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
        gain, error = mean_and_error(losses[favorite] - losses[name])
        if gain > CLEARLY * error:
            chosen = name
            break
    losses["recognizer"] = losses_of(outputs, labels, metric)
    phases = outputs[0].shape[-1]
    before = phase_scores([x.argmax(-1) for x in outputs], labels, phases)
    share, margin, error, accuracy = 1.0, 0.0, 0.0, before[0]
    for tried in SHARES:
        found = _mixed([scored[chosen], outputs], np.array([1 - tried, tried]))
        margins = losses["recognizer"] - losses_of(found, labels, metric)
        after = phase_scores([x.argmax(-1) for x in found], labels, phases)
        clear = all(x.is_clear for x in phase_gains(before, after))
        if _improves(margins) and clear and not _some_phase_is_worse(before[1], after[1]):
            share, (margin, error), accuracy = tried, mean_and_error(margins), after[0]
            break
    if share == 1:
        chosen = "recognizer"
    weights = np.zeros(count) if share == 1 else (1 - share) * options[chosen]
    compared = compare_accuracy(before[0], accuracy)
    return Choice(chosen, weights, np.asarray(share), _means(losses), margin, error, compared)


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
    strict: bool = True,
) -> Choice:
    """Choose for each tool a candidate, the mean of all, or the recognizer, and how much of the recognizer to keep.

    The candidates and their mean are tried with the `TOOL_SHARES` of the recognizer. Those are considered that improve
    the metric by at least one standard error, and with which neither average precision nor F1 (at probability .5)
    falls, over all videos and with any video, or group of videos (`hmmjax._core.left_out.GROUPS`), left out. Of those
    within one standard error of the best, the one with the most of the recognizer is chosen.

    Args:
        candidates: by name, per video P(present) (T, K) from models that have not seen the video.
        outputs: per video, the recognizer's output (T, K), labels or probabilities.
        labels: per video (T, K) int, -1 for unknown.
        metric: one of `METRICS`.
        strict: False for single labeled frames, of which average precision and F1 tell little: any improvement of the
            metric suffices, and they may fall by one standard error.

    Returns:
        The option of each tool, and the weights (N, K) of the candidates and of the recognizer, which sum to one; the
        recognizer for tools that are always or never present, or present in a single video.

    Source: the one-standard-error rule of Breiman et al. (1984), towards the recognizer.
    """
    probabilities, count = list(candidates.values()), len(candidates)
    names = {name: np.eye(count)[i] for i, name in enumerate(candidates)}
    if count > 1:
        names["mean"] = np.full(count, 1 / count)
    kind = "probabilities" if any(np.any((x > 0) & (x < 1)) for x in outputs) else "labels"
    shares = TOOL_SHARES[kind]
    if kind == "probabilities" and sum(bool((x >= 0).any()) for x in labels) >= MANY_VIDEOS:
        shares = (SMALL_SHARE, *shares)
    own = [np.asarray(x, float) for x in outputs]
    mixed = {name: _mixed(probabilities, weights) for name, weights in names.items()}
    options = [(name, share) for name in names for share in shares]
    tried = {(name, s): _mixed([mixed[name], own], np.array([1 - s, s])) for name, s in options}
    before, raw = tool_scores(own, labels), losses_of(own, labels, metric)
    losses = {option: losses_of(found, labels, metric) for option, found in tried.items()}
    after = {option: tool_scores(found, labels) for option, found in tried.items()}
    chosen: list[tuple[str, float]] = []
    for k in range(raw.shape[-1]):
        fitting = [
            option
            for option in options
            if _improves(raw[:, k] - losses[option][:, k], strict)
            and not any(_falls(x[:, k] - y[:, k], strict) for x, y in zip(after[option], before, strict=True))
        ]
        chosen.append(_closest_to_recognizer({option: losses[option][:, k] for option in fitting}))
    found = np.stack([raw[:, k] if o[1] == 1 else losses[o][:, k] for k, o in enumerate(chosen)], -1)
    margin, error = mean_and_error(np.nanmean(raw - found, -1))
    if kind == "probabilities" and metric == "log-loss":
        precision = [after.get(o, before)[0][:, k] for k, o in enumerate(chosen)]
        compared = compare_precision(before[0], np.stack(precision, -1))
    else:
        wrong = [losses_of(tried.get(o, own), labels, "accuracy")[:, k] for k, o in enumerate(chosen)]
        right = (1 - np.nanmean(x, -1) for x in (losses_of(own, labels, "accuracy"), np.stack(wrong, -1)))
        compared = compare_accuracy(*right)
    share = np.array([s for _, s in chosen])
    weights = np.stack([np.zeros(count) if s == 1 else (1 - s) * names[name] for name, s in chosen], -1)
    shown = {name: losses_of(x, labels, metric) for name, x in mixed.items()} | {"recognizer": raw}
    return Choice(tuple(name for name, _ in chosen), weights, share, _means(shown), margin, error, compared)


def _closest_to_recognizer(losses: Mapping[tuple[str, float], np.ndarray]) -> tuple[str, float]:
    """Return the option (name, share) with the largest share of the recognizer of those about as good as the best."""
    if not losses:
        return "recognizer", 1.0
    means = {option: float(np.nanmean(x)) for option, x in losses.items()}
    best = losses[min(means, key=means.__getitem__)]
    worse = {option: mean_and_error(x - best) for option, x in losses.items()}
    near = [option for option, (mean, error) in worse.items() if mean <= (0.0 if np.isnan(error) else error)]
    return max(near, key=lambda option: (option[1], -means[option]))


def _means(losses: Mapping[str, np.ndarray]) -> dict[str, float]:
    return dict(sorted(((name, float(np.nanmean(x))) for name, x in losses.items()), key=lambda item: item[1]))


def _mixed(probabilities: Sequence[Sequence[np.ndarray]], weights: np.ndarray) -> list[np.ndarray]:
    return [np.tensordot(weights, np.stack(video), 1) for video in zip(*probabilities, strict=True)]


def _some_phase_is_worse(before: np.ndarray, after: np.ndarray) -> bool:
    """Return whether some phase's Jaccard index, (V, L) per video, falls, see `TOLERANCE`."""
    falls = (mean_and_error(-x) for x in (after - before).T if not np.isnan(x).all())
    return any(drop > max(TOLERANCE, 0.0 if np.isnan(error) else error) for drop, error in falls)


def _improves(margins: np.ndarray, clearly: bool = True) -> bool:
    """Return whether the mean of differences (V,) is positive, and at least one standard error if that is asked for."""
    mean, error = mean_and_error(margins)
    return mean > 0 and not (clearly and mean < error)


def _falls(gains: np.ndarray, strict: bool) -> bool:
    """Return whether a metric falls, given its gain over all videos and with each group left out, or is unknown."""
    if strict:
        return not (gains >= 0).all()
    gain = gain_of(gains)
    return not gain.value >= -gain.error

"""Which model infers which video: no video is inferred by a model that has seen its labels."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hmmjax import inference
from hmmjax.calibration import plain
from hmmjax.io import FormatError
from hmmjax.priors import Priors
from hmmjax.stabilize.learn import Examples, Learned, counts_errors, labeled, learn
from hmmjax.types import Labels, Observations, Params

#: Videos that are inferred together: bounds memory.
GROUP = 8
#: Annotated videos from which powers are learned unasked; of fewer they may do harm (docs/results.md).
ENOUGH_VIDEOS = 8

Progress = Callable[[str, int, int], None]
#: Parameters, positions of the videos that they infer, and the fold (-1: none).
Part = tuple[Params, list[int], int]


def plan_folds(
    examples: Examples,
    ids: tuple[str, ...],
    counts: tuple[tuple[str, ...], Labels, np.ndarray] | None,
    sizes: dict[str, int],
    emissions: str,
    priors: Priors,
    iterations: int | None,
    folds: int | None,
    calibrated: bool | None,
    stages: bool,
    tell: Progress,
) -> tuple[list[Part], str, Learned]:
    """Learn a model for each part of the annotated videos from all the others, and one from all videos.

    Args:
        examples: all videos, annotated or not.
        ids: (B,) their names.
        counts: other videos for transitions: names, labels, mask.
        sizes: number of "phases" and "tools".
        emissions: as in `hmmjax.stabilize.learn`.
        priors: likewise.
        iterations: likewise.
        folds: number of parts; None is one video each.
        calibrated: as in `hmmjax.stabilize.learn`; None is where each model learns from at least `ENOUGH_VIDEOS`
            annotated videos.
        stages: likewise.
        tell: progress.

    Returns:
        Which model infers which videos, the protocol in words, and the model of all videos.

    Raises:
        FormatError: when holding out leaves no video to count transitions in.
        ValueError: a video that is impossible under a starting model, by name.
    """
    known, parts, enough = _split(examples, sizes, folds)

    def run(positions: np.ndarray, held_out: set[str], stage: str) -> Learned:
        others = None if counts is None else _others(counts, held_out)
        try:
            return learn(
                examples.take(positions),
                num_phases=sizes["phases"],
                num_tools=sizes["tools"],
                emissions=emissions,
                transitions=others,
                priors=priors,
                iterations=iterations,
                calibrated=enough if calibrated is None else calibrated,
                stages=stages,
                callback=lambda done, _: tell(f"EM, {stage}", done, 0),
            )
        except ValueError as error:
            here = ", ".join(f"{i} {ids[p]}" for i, p in enumerate(positions))
            raise ValueError(f"{error} (videos here: {here})") from error

    everything = np.arange(len(examples.mask))
    if known.size < 2:
        tell("learning", 0, 1)
        whole = run(everything, set(), "all videos")
        tell("learning", 1, 1)
        return [(whole.params, everything.tolist(), -1)], protocol_of(known.size, 1), whole
    plan = []
    for i, part in enumerate(parts):
        tell("learning", i, len(parts) + 1)
        rest = np.setdiff1d(everything, part)
        held_out = {ids[p] for p in part}
        plan.append((run(rest, held_out, f"fold {i + 1} of {len(parts)}").params, part.tolist(), i))
    tell("learning", len(parts), len(parts) + 1)
    whole = run(everything, set(), "all videos")
    tell("learning", len(parts) + 1, len(parts) + 1)
    if calibrated is None and not enough and whole.fit is None:
        few = f"not calibrated, which needs {ENOUGH_VIDEOS} annotated videos to learn from"
        whole = dataclasses.replace(whole, method=f"{whole.method}; {few} (--calibrate does it all the same)")
    unknown = np.setdiff1d(everything, known)
    if unknown.size:
        plan.append((whole.params, unknown.tolist(), -1))
    return plan, protocol_of(known.size, len(parts)), whole


def protocol_of(annotated: int, parts: int) -> str:
    """How scored videos relate to those that are learned from, in words.

    Args:
        annotated: how many videos are.
        parts: in how many parts they are held out.

    Returns:
        The protocol.
    """
    if annotated < 2:
        return "IN SAMPLE: the only annotated video was learned from" if annotated else "no annotations"
    how = "one video at a time" if parts == annotated else f"{parts} folds"
    return f"held out, {how}, {annotated} videos"


def outlook(
    examples: Examples,
    ids: tuple[str, ...],
    counts: tuple[tuple[str, ...], Labels, np.ndarray] | None,
    sizes: dict[str, int],
    iterations: int | None,
    folds: int | None,
    calibrated: bool | None,
) -> dict[str, Any]:
    """What `plan_folds` would do, without learning anything.

    Args:
        examples: as in `plan_folds`.
        ids: likewise.
        counts: likewise.
        sizes: likewise.
        iterations: likewise.
        folds: likewise.
        calibrated: likewise.

    Returns:
        "annotated": the videos with labels; "left": how many of them each part leaves to learn from; "models": how many
        would be learned; "protocol" in words; "em": whether by EM; "calibrated".

    Raises:
        FormatError: as `plan_folds`.
    """
    known, parts, enough = _split(examples, sizes, folds)
    for part in parts if known.size > 1 else ():
        if counts is not None:
            _others(counts, {ids[p] for p in part})
    counting = counts_errors(examples, iterations)
    return {
        "annotated": [ids[i] for i in known],
        "left": int(known.size) - max(map(len, parts)),
        "models": 1 + len(parts) if known.size > 1 else 1,
        "protocol": protocol_of(int(known.size), len(parts)),
        "em": not counting,
        "calibrated": bool(counting and known.size and (enough if calibrated is None else calibrated)),
    }


def _split(examples: Examples, sizes: dict[str, int], folds: int | None) -> tuple[np.ndarray, list[np.ndarray], bool]:
    """Positions of the annotated videos, of those of each part, and whether enough of them are left to calibrate."""
    any_label = np.zeros(len(examples.mask), bool)
    for track in ("phases", "tools"):
        if sizes[track]:
            any_label |= labeled(examples, track)[0]
    known = np.flatnonzero(any_label)
    parts = np.array_split(known, max(1, known.size if folds is None else min(folds, known.size)))
    return known, parts, known.size - max(map(len, parts)) >= ENOUGH_VIDEOS


def _others(counts: tuple[tuple[str, ...], Labels, np.ndarray], held_out: set[str]) -> tuple[Labels, np.ndarray]:
    """The videos to count transitions in that are not held out."""
    ids, labels, mask = counts
    keep = [i for i, name in enumerate(ids) if name not in held_out]
    if not keep:
        raise FormatError("no video is left to count transitions in", fix="give videos that are not scored")
    part = Examples(Observations(), labels, mask).take(keep)
    return part.labels, part.mask


def infer(
    plan: Sequence[Part], examples: Examples, ids: Sequence[str], params: Params, tell: Progress
) -> tuple[Observations, Observations, np.ndarray, tuple[int, ...]]:
    """Smoothed and filtered posteriors (B, T, ...), log-likelihoods (B,), and folds (B,).

    The filter takes every frame at its word: powers that are right for a whole video make it wait too long.

    Raises:
        ValueError: a video is impossible under its model.
    """
    count, length = examples.mask.shape
    shape = {"phases": (count, length, params.num_phases), "tools": (count, length, params.num_tools)}
    found = [
        {t: np.zeros(s, np.float32) if s[-1] else None for t, s in shape.items()} for _ in ("smoothed", "filtered")
    ]
    likelihood, fold_of, done = np.zeros(count), np.full(count, -1), 0
    for model, positions, fold in plan:
        fold_of[positions] = fold
        for start in range(0, len(positions), GROUP):
            group = positions[start : start + GROUP]
            part = examples.take(group)
            tell("inference", done, count)
            results = (
                inference.posterior(model, part.obs, part.mask),
                inference.filter(plain(model), part.obs, part.mask),
            )
            for arrays, result in zip(found, results, strict=True):
                for track, array in arrays.items():
                    if array is not None:
                        # Sums of float32 probabilities may pass one by a rounding error.
                        array[group] = np.clip(np.asarray(getattr(result, track)), 0, 1)
            likelihood[group] = np.asarray(results[0].log_likelihood)
            done += len(group)
    tell("inference", count, count)
    if not np.isfinite(likelihood).all():
        bad = ", ".join(name for name, value in zip(ids, likelihood, strict=True) if not np.isfinite(value))
        raise ValueError(
            f"impossible under the model: {bad}. A transition or an output of probability zero would be needed. Learn "
            "with pseudo-counts, or check that classes and rates are those of the model."
        )
    smoothed, filtered = (Observations(**arrays) for arrays in found)
    return smoothed, filtered, likelihood, tuple(int(f) for f in fold_of)

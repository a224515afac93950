"""Which model infers which video: no annotated video is inferred by a model that has seen its labels."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from hmmjax.stabilize.examples import TRACKS, bridge_gaps, label_coverage
from hmmjax.stabilize.held_out import learn_from, without
from hmmjax.stabilize.learn import Learned, counting_suffices
from hmmjax.stabilize.prepare import Prepared
from hmmjax.stabilize.settings import AUTO, Progress, Settings, ignore_progress
from hmmjax.stabilize.strengths import strength_of
from hmmjax.types import Labels, Params

#: Number of annotated videos to learn from at which models are calibrated by default; with fewer, powers may do harm
#: (docs/results/real.md).
ENOUGH_VIDEOS = 8


class Part(NamedTuple):
    """Models, positions of the videos that they infer, and the fold (-1: not held out).

    `model` is for whole videos. The filter uses `online`; None is the model without its powers.
    """

    model: Any
    positions: list[int]
    fold: int
    online: Any = None


def plan_folds(prepared: Prepared, settings: Settings, progress: Progress) -> tuple[list[Part], str, Learned]:
    """Learn a model for each part of the annotated videos from all other videos, and one from all videos.

    Args:
        prepared: the videos, see `prepare_inputs`.
        settings: how to learn and how many parts to hold out.
        progress: called with a stage's name, the number of models done and of all models.

    Returns:
        Which model infers which videos, the protocol in words, and the model of all videos.

    Raises:
        FormatError: holding out leaves no video in which transitions can be counted.
        ValueError: a video is impossible under a starting model; names the videos.
    """
    examples = prepared.examples
    known, parts, enough = _split(prepared, settings)
    reason = why_not_chosen(prepared, settings, known)
    if settings.emissions == AUTO and not reason:
        return _plan_auto(prepared, settings, known, parts, enough, progress)
    own = settings.named(calibrated=enough if settings.calibrates is None else settings.calibrates)
    everything = np.arange(len(examples.mask))
    count = len(parts) + 1 if known.size > 1 else 1
    plan: list[Part] = []
    if known.size > 1:
        for i, part in enumerate(parts):
            progress("learning", i, count)
            stage = f"EM, fold {i + 1} of {len(parts)}"
            model = learn_from(prepared, own, np.setdiff1d(everything, part), part, stage, progress)
            plan.append(Part(model.params, part.tolist(), i, model.online))
    progress("learning", count - 1, count)
    final = _learn_named(prepared, settings, known, enough, progress)
    progress("learning", count, count)
    if known.size < 2:
        return [Part(final.params, everything.tolist(), -1, final.online)], describe_protocol(known.size, 1), final
    unknown = np.setdiff1d(everything, known)
    if unknown.size:
        plan.append(Part(final.params, unknown.tolist(), -1, final.online))
    return plan, describe_protocol(known.size, len(parts)), final


def learn_from_all(prepared: Prepared, settings: Settings, progress: Progress) -> Learned:
    """Learn one model from all videos; none is held out.

    Args:
        prepared: the videos, see `prepare_inputs`.
        settings: how to learn; `folds` is the number of inner folds by which "auto" emissions are chosen.
        progress: called with a stage's name, the number of models done and of all models.

    Returns:
        The model and how it was learned.

    Raises:
        ValueError: a video is impossible under the starting model; names the videos.
    """
    known, parts, _ = _split(prepared, settings)
    enough = known.size >= ENOUGH_VIDEOS
    if settings.emissions == AUTO and not why_not_chosen(prepared, settings, known):
        search, methods = _search(prepared, settings, known, parts, enough, holds_out=False)
        held_out, final = search.run(lambda done, count: progress("learning", done, count))
        return _chosen(held_out, final, methods, prepared, settings)
    progress("learning", 0, 1)
    final = _learn_named(prepared, settings, known, enough, progress)
    progress("learning", 1, 1)
    return final


def _learn_named(
    prepared: Prepared, settings: Settings, known: np.ndarray, enough: bool, progress: Progress
) -> Learned:
    """Learn the model of all videos with a named family, or with that which "auto" falls back on."""
    own = settings.named(calibrated=enough if settings.calibrates is None else settings.calibrates)
    everything = np.arange(len(prepared.examples.mask))
    final = learn_from(prepared, own, everything, known[:0], "EM, all videos", progress)
    if reason := why_not_chosen(prepared, settings, known):
        final = dataclasses.replace(final, method=f"{final.method}; {settings.family} emissions, because {reason}")
    why = ""
    if settings.spared_by_memory:
        why = f"{settings.family} emissions already account for errors that last"
    elif settings.calibrates is None and not enough:
        why = f"each model needs {ENOUGH_VIDEOS} annotated videos to learn from"
    if known.size > 1 and why and final.fit is None:
        method = f"{final.method}; not calibrated: {why} (--calibrate calibrates anyway)"
        final = dataclasses.replace(final, method=method)
    return final


def why_not_chosen(prepared: Prepared, settings: Settings, known: np.ndarray) -> str:
    """Return why "auto" emissions are those of a named family, in words; empty if they are chosen, or not "auto"."""
    if settings.emissions != AUTO:
        return ""
    if not known.size:
        return "there are no annotations to choose by"
    if settings.learn != AUTO or settings.calibrated is not None:
        return "how to learn was given"
    if settings.stages:
        return "durations are modeled"
    if len(prepared.outputs) > 1:
        return "recognizers are fused"
    if not counting_suffices(prepared.examples, settings.max_iterations):
        return "no video is labeled throughout" if settings.max_iterations is None else "EM was asked for"
    return ""


def _plan_auto(
    prepared: Prepared,
    settings: Settings,
    known: np.ndarray,
    parts: list[np.ndarray],
    enough: bool,
    progress: Progress,
) -> tuple[list[Part], str, Learned]:
    """Do what `plan_folds` does, with models chosen on inner folds."""
    search, methods = _search(prepared, settings, known, parts, enough)
    held_out, final = search.run(lambda done, count: progress("learning", done, count))
    plan = [
        Part(x.offline, p.tolist(), i, x.online) for i, (x, p) in enumerate(zip(held_out, search.parts, strict=True))
    ]
    unknown = np.setdiff1d(np.arange(len(prepared.examples.mask)), known if known.size > 1 else [])
    if unknown.size:
        plan.append(Part(final.offline, unknown.tolist(), -1, final.online))
    return (
        plan,
        describe_protocol(known.size, max(1, len(parts))),
        _chosen(held_out, final, methods, prepared, settings),
    )


def _chosen(
    held_out: list[Any], final: Any, methods: dict[int, str], prepared: Prepared, settings: Settings
) -> Learned:
    """Return what was chosen from all videos, and how, in words."""
    from hmmjax.stabilize.explain import describe

    how = describe(held_out, final, prepared.examples.obs, prepared.names.get("tools"))
    method = "; ".join([methods[len(prepared.examples.mask)], *how])
    return Learned(final.offline, method, online=final.online)


def _search(
    prepared: Prepared,
    settings: Settings,
    known: np.ndarray,
    parts: list[np.ndarray],
    enough: bool,
    holds_out: bool = True,
) -> tuple[Any, dict[int, str]]:
    """Return the search for models, and a dictionary that it fills: how models were learned, by number of videos."""
    from hmmjax.stabilize import auto  # it infers, which needs the type of a plan

    labeled = prepared.labeled(settings.threshold)
    own = settings.named(emissions=settings.family, calibrated=False)
    ids, counts = prepared.index.ids, prepared.counts

    methods: dict[int, str] = {}

    def learn(positions: np.ndarray, held_out: np.ndarray) -> tuple[Params, tuple[Labels, np.ndarray]]:
        part = dataclasses.replace(prepared, examples=labeled)
        base = learn_from(part, own, positions, held_out, "", ignore_progress)
        methods[len(positions)] = base.method
        if counts is None:
            videos = labeled.only(positions)
            return base.params, (bridge_gaps(videos.labels, videos.mask), videos.mask)
        others = without(counts, {ids[p] for p in held_out})
        return base.params, (bridge_gaps(others.labels, others.mask), others.mask)

    largest = max(map(len, parts)) if known.size > 1 and holds_out else 0
    counted = known.size - largest if counts is None else len(counts.ids)
    search = auto.Search(
        labeled,
        prepared.examples.obs,
        prepared.classes["phases"],
        learn,
        parts if known.size > 1 else [],
        enough,
        strength_of(counted),
        settings.metric,
        settings.threshold,
        holds_out,
    )
    return search, methods


def describe_protocol(annotated: int, parts: int) -> str:
    """Describe how the scored videos relate to the videos learned from.

    Args:
        annotated: number of annotated videos.
        parts: number of parts that are held out in turn.
    """
    if annotated < 2:
        return "IN SAMPLE: the only annotated video was learned from" if annotated else "no annotations"
    how = "one at a time" if parts == annotated else f"in {parts} folds"
    return f"{annotated} annotated videos, held out {how}"


def preview_folds(prepared: Prepared, settings: Settings) -> dict[str, Any]:
    """Return what `plan_folds` would do, without learning anything.

    Args:
        prepared: the videos, see `prepare_inputs`.
        settings: how to learn and how many parts to hold out.

    Returns:
        "annotated": names of the videos with labels; "left": the smallest number of them that a model learns from;
        "models": number of models; "protocol" in words; "em": whether EM is needed; "calibrated"; "chosen": whether
        models are chosen on inner folds. If the settings say which videos to learn from, `prepared` are those.

    Raises:
        FormatError: holding out leaves no video in which transitions can be counted.
    """
    ids = prepared.index.ids
    known, parts, _ = _split(prepared, settings)
    folds = 0 if settings.has_split or known.size < 2 else len(parts)
    for part in parts[:folds]:
        if prepared.counts is not None:
            without(prepared.counts, {ids[p] for p in part})
    left = int(known.size) - (0 if settings.has_split else max(map(len, parts)))
    counting = counting_suffices(prepared.examples, settings.max_iterations)
    chosen = settings.emissions == AUTO and not why_not_chosen(prepared, settings, known)
    calibrated = left >= ENOUGH_VIDEOS if settings.calibrates is None else settings.calibrates
    return {
        "annotated": [ids[i] for i in known],
        "left": left,
        "models": 1 + folds,
        "protocol": describe_protocol(int(known.size), len(parts)),
        "em": not counting,
        "calibrated": bool(counting and known.size and calibrated and not chosen),
        "chosen": chosen,
    }


def _split(prepared: Prepared, settings: Settings) -> tuple[np.ndarray, list[np.ndarray], bool]:
    """Return positions of the annotated videos and of each part, and whether the others suffice to calibrate."""
    any_label = np.zeros(len(prepared.examples.mask), bool)
    for track in TRACKS:
        if prepared.classes[track]:
            any_label |= label_coverage(prepared.examples, track)[0]
    known = np.flatnonzero(any_label)
    folds = known.size if settings.folds is None else min(settings.folds, known.size)
    parts = np.array_split(known, max(1, folds))
    return known, parts, known.size - max(map(len, parts)) >= ENOUGH_VIDEOS

"""From files' tracks to arrays that can be learned from: classes, frames and recognizers go together, or are refused."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax import io, metrics
from hmmjax.initialize import LABELS
from hmmjax.io import BatchIndex, FormatError, ModelFile, Track
from hmmjax.metrics.relaxed import check_order
from hmmjax.stabilize.fuse import observations, together, union
from hmmjax.stabilize.inputs import align, can_hide_phases, count_classes, transition_labels
from hmmjax.stabilize.learn import Examples
from hmmjax.types import Labels, Observations, Params

FEW_VIDEOS = 5
"""With transitions from fewer videos than this, phases that nobody observes are guesses."""


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """All that is known before anything is learned.

    Attributes:
        names: of "phases" and "tools", the classes in the order of the arrays; None where nobody names them.
        classes: of "phases" and "tools", how many the model has; empty with a given model.
        files: everything that was read, classes in one order.
        said: of each recognizer what it says, (B, T, ...).
        examples: what the model sees of them, with the labels.
        counts: videos to count transitions in: their names, labels and mask; None without any.
        given: the parameters of the given model that are of use here, or None.
        index: which frames the arrays stand for.
        notices: what a person should know.
    """

    names: dict[str, Any]
    classes: dict[str, int]
    files: list[Track]
    said: list[Observations]
    examples: Examples
    counts: tuple[tuple[str, ...], Labels, np.ndarray] | None
    given: Params | None
    index: BatchIndex
    notices: tuple[str, ...]


def prepare(
    predictions: Sequence[Track],
    annotations: Sequence[Track] = (),
    *,
    fuse: Sequence[Sequence[Track]] = (),
    transitions: Sequence[Track] = (),
    model: ModelFile | None = None,
    emissions: str = "confusion",
    folds: int | None = 5,
    hidden_phases: bool = True,
    step: int | None = None,
    threshold: float = 0.5,
    relaxed: bool = False,
) -> Prepared:
    """Bring files together as `stabilize` does before it learns.

    Args:
        predictions: as in `stabilize`.
        annotations: likewise.
        fuse: likewise.
        transitions: likewise.
        model: likewise.
        emissions: likewise.
        folds: likewise.
        hidden_phases: likewise.
        step: likewise.
        threshold: likewise; from 0 to 1.
        relaxed: whether relaxed figures are wanted, for which phases must be Cholec80's.

    Returns:
        Arrays, classes and notices.

    Raises:
        FormatError: files that do not go together.
        ValueError: `folds` below two, a threshold that is none, or relaxed figures of other phases than Cholec80's.
    """
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold={threshold:g}: tools are present at or above a probability, 0 to 1")
    if not predictions:
        raise FormatError("no predictions", fix="give at least one prediction file")
    if folds is not None and folds < 2:
        raise ValueError(f"folds={folds}: at least 2 parts are needed to hold one out")
    seen = [track for track in ("phases", "tools") if any(p.track == track for s in (predictions, *fuse) for p in s)]
    tracks = list(seen)
    if "phases" not in seen and hidden_phases and can_hide_phases(annotations, transitions, model):
        tracks.insert(0, "phases")
    names, (predictions, annotations, transitions, *more) = align(
        tracks, model, predictions, annotations, transitions, *fuse
    )
    files = [t for tracks in (predictions, *more, annotations, transitions) for t in tracks]
    notices = [notice for track in files for notice in track.notices]
    raw, each, labels, mask, index, told = _batch((predictions, *more), annotations, step)
    notices += told
    given, classes, counts = None, {}, None
    if model is not None:
        obs = as_observed(raw, model.params, threshold)
        given = _restrict(model.params, tracks, seen)
        _check_rate(model, index)
    else:
        obs = raw.discretize(threshold) if emissions in LABELS else raw
        if emissions not in LABELS:
            _require_probabilities(raw, emissions)
        classes = count_classes(tracks, names, raw, files)
        counts = transition_labels(transitions, index)
        taught = len(mask) - 1 if counts is None else len(counts[0])
        if classes["phases"] and "phases" not in seen and taught < FEW_VIDEOS:
            notices.append(
                "phases are inferred from the tools alone, with transitions counted in "
                f"{max(taught, 1)} video(s) only: do not trust them. Give label files of {FEW_VIDEOS} or more other "
                "videos (--transitions-from)"
            )
    if relaxed and names["phases"] is not None:
        check_order(names["phases"], metrics.TMRNET)
    examples = Examples(obs, labels, mask)
    return Prepared(names, classes, files, each, examples, counts, given, index, tuple(dict.fromkeys(notices)))


def _batch(
    sources: Sequence[Sequence[Track]], annotations: Sequence[Track], step: int | None
) -> tuple[Observations, list[Observations], Labels, np.ndarray, BatchIndex, list[str]]:
    """Padded arrays: what all recognizers say and what each does, labels, mask, index and notices."""
    if len(sources) == 1:
        raw, labels, mask, index = io.to_batch(io.join(sources[0]), annotations, step=step)
        return raw, [raw], labels, mask, index, list(index.notices)
    everything, sampled, told = union(sources)
    _, labels, mask, index = io.to_batch(io.join(everything), annotations, step=step)
    each = observations(sampled, index)
    return together(each), each, labels, mask, index, [*told, *index.notices]


def as_observed(raw: Observations, params: Params, threshold: float) -> Observations:
    """Observations as the model's families want them: labels where a confusion family meets probabilities."""
    labels = raw.discretize(threshold)

    def choose(track: str) -> Any:
        observes = getattr(getattr(getattr(params, track), "emission", None), "observes", None)
        both = getattr(raw, track), getattr(labels, track)
        given, wanted = (len(x) if isinstance(x, tuple) else 1 for x in (both[0], observes))
        if given != wanted and observes is not None and both[0] is not None:
            raise FormatError(
                f"the model fuses {wanted} recognizer(s) of {track}, {given} given",
                fix="give as many, in the order in which it was learned",
            )
        if isinstance(observes, tuple) and both[0] is not None:
            return tuple(x[o == "labels"] for x, o in zip(zip(*both, strict=True), observes, strict=True))
        return both[observes == "labels"]

    return Observations(choose("phases"), choose("tools"))


def _require_probabilities(raw: Observations, emissions: str) -> None:
    """FormatError where the family needs probabilities and a track's only recognizer gives labels."""
    for track in ("phases", "tools"):
        said = getattr(raw, track)
        if said is not None and not isinstance(said, tuple) and said.dtype.kind != "f":
            raise FormatError(
                f"predicted {track} are labels, and {emissions!r} emissions are of probabilities",
                fix="give probabilities or logits, or leave the emissions at 'confusion'",
            )


def _restrict(params: Params, tracks: Sequence[str], seen: Sequence[str]) -> Params:
    """The model without the tracks that nothing is known of: unobserved tools say nothing about phases."""
    for track in seen:
        chain = getattr(params, track)
        if chain is None or chain.emission is None:
            raise FormatError(f"the model has no emissions for {track}, which are predicted", fix="give another model")
    return Params(params.phases if "phases" in tracks else None, params.tools if "tools" in tracks else None)


def _check_rate(model: ModelFile, index: BatchIndex) -> None:
    rate = 1 / index.step_seconds
    if model.fps is not None and abs(model.fps - rate) > 1e-6 * rate:
        raise FormatError(
            f"predictions come at {rate:g} per second (a step of {index.step} frames at {index.fps:g} frames per "
            f"second), the model's transitions are for {model.fps:g} per second",
            fix="check fps (1 where frame numbers count seconds), thin the predictions, or learn a model at their rate",
        )

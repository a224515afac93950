"""From tracks of files to padded arrays: classes in one order, frames aligned, recognizers joined, or an error."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hmmjax import io, metrics
from hmmjax._core.size import check_size
from hmmjax.emissions import LABEL_FAMILIES
from hmmjax.ensembles import Ensemble
from hmmjax.io import BatchIndex, FormatError, ModelFile, Track
from hmmjax.io.parts import trained_on
from hmmjax.metrics.relaxed import check_order
from hmmjax.stabilize.classes import align, can_hide_phases, count_classes
from hmmjax.stabilize.examples import TRACKS, Examples
from hmmjax.stabilize.fuse import join_observations, merge_observations, union
from hmmjax.stabilize.settings import AUTO, Settings, with_overrides
from hmmjax.types import Labels, Observations, Params

FEW_VIDEOS = 5
"""With transitions counted in fewer videos than this, phases inferred from tools alone are guesses."""


class TransitionVideos(NamedTuple):
    """Labeled videos in which initial and transition probabilities are counted.

    Attributes:
        ids: (B,) names.
        labels: (B, T) and (B, T, K) int, -1 for unlabeled.
        mask: (B, T) bool, True at valid frames.
    """

    ids: tuple[str, ...]
    labels: Labels
    mask: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """Everything that is known before a model is learned.

    Attributes:
        names: of "phases" and "tools", the class names in the order of the arrays; None if no file names them.
        classes: of "phases" and "tools", the number of classes in the model; empty with a given model.
        files: all tracks that were read, with their classes in that order.
        outputs: the outputs (B, T, ...) of each recognizer.
        examples: the observations of the model, with the labels.
        counts: videos in which transitions are counted; None to count them in the labels of `examples`.
        given: the parameters of the given model, restricted to its tracks that are of use; None without a model.
        index: the videos and frames that the arrays stand for.
        notices: messages for the user.
    """

    names: dict[str, Any]
    classes: dict[str, int]
    files: list[Track]
    outputs: list[Observations]
    examples: Examples
    counts: TransitionVideos | None
    given: Params | Ensemble | None
    index: BatchIndex
    notices: tuple[str, ...]

    def labeled(self, threshold: float) -> Examples:
        """Return the examples with labels as observations.

        Args:
            threshold: probability at or above which a tool is present.
        """
        return dataclasses.replace(self.examples, obs=self.examples.obs.discretize(threshold))


def prepare_inputs(
    predictions: Sequence[Track],
    annotations: Sequence[Track] = (),
    settings: Settings | None = None,
    *,
    fuse: Sequence[Sequence[Track]] = (),
    transitions: Sequence[Track] = (),
    model: ModelFile | None = None,
    learns: bool = True,
    **overrides: Any,
) -> Prepared:
    """Check and align files as `stabilize` does before it learns.

    Args:
        predictions: tracks from `hmmjax.io.read`.
        annotations: tracks from `hmmjax.io.read_annotations`.
        settings: emissions, hidden_phases, step, threshold and relaxed are used. To prepare the videos of `learn_from`
            or `apply_to` alone, pass what `hmmjax.stabilize.find_split` selects.
        fuse: tracks of further recognizers of the same videos, one list per recognizer.
        transitions: labeled tracks of videos in which transitions are counted.
        model: a learned model to use.
        learns: whether a model is learned from these videos, unless one is given; otherwise it is applied to them.
        overrides: settings by name, in place of those in `settings`.

    Returns:
        Arrays, classes and notices.

    Raises:
        FormatError: the files do not fit together.
        ValueError: relaxed metrics of phases other than those of Cholec80.
        TypeError: an override is not a setting.
    """
    settings = with_overrides(settings, overrides)
    if not predictions:
        raise FormatError("there are no predictions", fix="give at least one prediction file")
    every = [t for source in (predictions, *fuse) for t in source]
    _refuse_training(every, annotations, settings, learns and model is None)
    observed = [t for t in TRACKS if any(p.track == t for source in (predictions, *fuse) for p in source)]
    tracks = list(observed)
    if "phases" not in observed and settings.hidden_phases and can_hide_phases(annotations, transitions, model):
        tracks.insert(0, "phases")
    names, (predictions, annotations, transitions, *more) = align(
        tracks, model, predictions, annotations, transitions, *fuse
    )
    files = [t for source in (predictions, *more, annotations, transitions) for t in source]
    raw, outputs, labels, mask, index, notices = _batch((predictions, *more), annotations, settings.step)
    notices = [*(notice for track in files for notice in track.notices), *notices]
    _require_known(annotations, labels, tracks)
    given, classes, counts = None, {}, None
    if model is not None:
        obs = observations_for(raw, model.params, settings.threshold)
        given = _restrict(model.params, tracks, observed)
        check_rate(model.fps, index)
    else:
        obs = raw.discretize(settings.threshold) if settings.emissions in LABEL_FAMILIES else raw
        if settings.emissions not in (AUTO, *LABEL_FAMILIES):
            _require_probabilities(raw, settings.emissions)
        classes = count_classes(tracks, names, raw, files)
        counts = transition_labels(transitions, index)
        hidden = bool(classes["phases"]) and "phases" not in observed
        check_size(classes["phases"], classes["tools"], index.length, len(index.ids))
        notices += _few_videos(hidden, len(mask) - 1 if counts is None else len(counts.ids))
    if settings.relaxed and names["phases"] is not None:
        check_order(names["phases"], metrics.TMRNET)
    examples = Examples(obs, labels, mask)
    return Prepared(names, classes, files, outputs, examples, counts, given, index, tuple(dict.fromkeys(notices)))


def _refuse_training(
    predictions: Sequence[Track], annotations: Sequence[Track], settings: Settings, learns: bool
) -> None:
    """Raise FormatError for annotated videos that the recognizer was trained on, unless they are allowed."""
    listed = trained_on(predictions, annotations)
    if listed and not settings.training_videos:
        harm = "scores of these videos say little of others"
        harm = "a model learned from them trusts it too much" if learns else harm
        raise FormatError(
            f"the recognizer was trained on {len(listed)} of the annotated videos ({', '.join(listed[:5])}"
            f"{', ...' * (len(listed) > 5)}): its errors there are fewer than in others, so that {harm}",
            fix="choose others (learn_from and apply_to, --learn-from val --apply-to test), leave these out "
            "(--videos), or allow them (training_videos=True, --training-videos)",
        )


def _batch(
    sources: Sequence[Sequence[Track]], annotations: Sequence[Track], step: int | None
) -> tuple[Observations, list[Observations], Labels, np.ndarray, BatchIndex, list[str]]:
    """Pad: joint observations, the outputs of each recognizer, labels, mask, index and notices."""
    if len(sources) == 1:
        raw, labels, mask, index = io.to_batch(io.join(sources[0]), annotations, step=step)
        return raw, [raw], labels, mask, index, list(index.notices)
    frames, sampled, notices = union(sources)
    _, labels, mask, index = io.to_batch(io.join(frames), annotations, step=step)
    each = join_observations(sampled, index)
    return merge_observations(each, mask), each, labels, mask, index, [*notices, *index.notices]


def _require_known(annotations: Sequence[Track], labels: Labels, tracks: Sequence[str]) -> None:
    """Raise FormatError if there are annotations of the model's tracks, but none of a predicted frame."""
    own = [t for t in annotations if t.track in tracks]
    known = [x for track in tracks if (x := getattr(labels, track)) is not None]
    if own and not any((x >= 0).any() for x in known):
        raise FormatError(
            "no annotated frame is a predicted frame, so that nothing can be learned or scored",
            file=own[0].source,
            fix="check the frame rates (--fps, --annotations-fps), the first frame numbers (--annotations-shift), and "
            "that the labels are not all unknown",
        )


def _few_videos(hidden: bool, count: int) -> list[str]:
    if not hidden or count >= FEW_VIDEOS:
        return []
    return [
        f"phases are inferred from the tools alone, with transitions counted in only {max(count, 1)} video(s): do not "
        f"rely on them. Give label files of at least {FEW_VIDEOS} other videos (--transitions-from)"
    ]


def observations_for(raw: Observations, params: Params | Ensemble, threshold: float) -> Observations:
    """Return observations of the kind that each family of a model needs: labels for confusion families.

    Args:
        raw: outputs as read: labels or probabilities, a tuple of them for fused recognizers.
        params: the model.
        threshold: probability at or above which a tool is present.

    Raises:
        FormatError: the model fuses another number of recognizers.
    """
    if isinstance(params, Ensemble):
        return raw  # each member takes what it observes
    labels = raw.discretize(threshold)

    def choose(track: str) -> Any:
        chain = getattr(params, track)
        if chain is None:
            return None  # a member of an ensemble may lack a track
        observes = None if chain.emission is None else chain.emission.observes
        both = getattr(raw, track), getattr(labels, track)
        given, wanted = (len(x) if isinstance(x, tuple) else 1 for x in (both[0], observes))
        if given != wanted and observes is not None and both[0] is not None:
            raise FormatError(
                f"the model fuses {wanted} recognizer(s) of {track}, but {given} were given",
                fix="give the same recognizers in the same order as when the model was learned",
            )
        if isinstance(observes, tuple) and both[0] is not None:
            return tuple(x[o == "labels"] for x, o in zip(zip(*both, strict=True), observes, strict=True))
        return both[observes == "labels"]

    return Observations(choose("phases"), choose("tools"))


def _require_probabilities(raw: Observations, emissions: str) -> None:
    """Raise FormatError if the family needs probabilities and the only recognizer of a track predicts labels."""
    for track in TRACKS:
        outputs = getattr(raw, track)
        if outputs is not None and not isinstance(outputs, tuple) and outputs.dtype.kind != "f":
            raise FormatError(
                f"the predicted {track} are labels, but emissions={emissions!r} needs probabilities",
                fix="give probabilities or logits, or use emissions='confusion'",
            )


def _restrict(params: Any, tracks: Sequence[str], observed: Sequence[str]) -> Any:
    """Return the model without unobserved tracks, except phases that are to be inferred from tools."""
    if isinstance(params, Ensemble):
        lacking = [track for track in observed if not getattr(params, f"num_{track}")]
        if not lacking:
            return params
        raise FormatError(f"the model lacks {' and '.join(lacking)}, which are predicted", fix="leave them out")
    for track in observed:
        chain = getattr(params, track)
        if chain is None or chain.emission is None:
            raise FormatError(
                f"the model has no emissions for {track}, which are predicted",
                fix="give a model that was learned from such predictions, or leave them out",
            )
    return Params(params.phases if "phases" in tracks else None, params.tools if "tools" in tracks else None)


def check_rate(fps: float | None, index: BatchIndex) -> None:
    """Raise FormatError unless a model's transitions are for the rate of the predictions; None is for any."""
    rate = 1 / index.step_seconds
    if fps is not None and abs(fps - rate) > 1e-6 * rate:
        raise FormatError(
            f"there are {rate:g} predictions per second (a step of {index.step:g} frames at {index.fps:g} frames per "
            f"second), but the model's transitions are for {fps:g} per second",
            fix="check fps (1 if frame numbers count seconds), thin the predictions, or learn a model at their rate",
        )


def transition_labels(transitions: Sequence[Track], index: BatchIndex) -> TransitionVideos | None:
    """Return videos in which transitions are counted, at the rate of the predictions; None if none are given.

    Raises:
        FormatError: the tracks hold probabilities, or their rows are too far apart.
    """
    if not transitions:
        return None
    videos = [io.sample(video, index.step_seconds) for video in io.join(transitions)]
    obs, _, mask, where = io.to_batch(videos)
    for track in (obs.phases, obs.tools):
        if track is not None and track.dtype.kind == "f":
            raise FormatError(
                "transitions are counted in labels, but this file holds probabilities", file=transitions[0].source
            )
    return TransitionVideos(where.ids, Labels(obs.phases, obs.tools), mask)

"""From files' tracks to stabilised tracks: learn (never on the video that is scored), infer, compare."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax import io
from hmmjax.io import BatchIndex, FormatError, ModelFile, Track
from hmmjax.priors import Priors
from hmmjax.stabilize.compare import system
from hmmjax.stabilize.doubts import class_doubts, harmed_videos
from hmmjax.stabilize.folds import Progress, infer, plan_folds
from hmmjax.stabilize.fuse import observations, together, union
from hmmjax.stabilize.inputs import align, can_hide_phases, count_classes, transition_labels
from hmmjax.stabilize.learn import PRIORS, Examples
from hmmjax.stabilize.table import Row, System, compare_recognisers, spoken_of
from hmmjax.stabilize.weigh import held_out_worth, words
from hmmjax.starting import LABELS
from hmmjax.types import Labels, Observations, Params


@dataclasses.dataclass(frozen=True, eq=False)
class Stabilized:
    """What `stabilize` found; lists have one entry per video, arrays are at the frames that were read.

    Attributes:
        ids: the videos.
        frames: (n,) frame numbers.
        fps: frames per second of the frame counter.
        step_seconds: seconds per time step of the model.
        phase_names: (L,) or None.
        tool_names: (K,) or None.
        truth_phases: (n,) int labels, -1 unknown; None when no video has any.
        truth_tools: (n, K) likewise.
        raw: M, what was read.
        smoothed: M_H, posteriors given the whole video.
        filtered: M_H online, posteriors given the past and present.
        log_likelihood: (B,) of each video, in nats.
        folds: the fold in which each video was held out, -1 where it was not.
        protocol: how the scored videos relate to the videos learnt from, in words.
        model: the model learnt from all videos (or the one given).
        table: the figures, empty without truth.
        notices: what a person should know.
        fused: what further recognisers say, "M 2", "M 3" ...; -1 or NaN in frames of which one says nothing (so in
            `raw`, where there are several).
    """

    ids: tuple[str, ...]
    frames: tuple[np.ndarray, ...]
    fps: float
    step_seconds: float
    phase_names: tuple[str, ...] | None
    tool_names: tuple[str, ...] | None
    truth_phases: list[np.ndarray] | None
    truth_tools: list[np.ndarray] | None
    raw: System
    smoothed: System
    filtered: System
    log_likelihood: np.ndarray
    folds: tuple[int, ...]
    protocol: str
    model: ModelFile
    table: list[Row]
    notices: tuple[str, ...]
    fused: tuple[System, ...] = ()

    @property
    def recognisers(self) -> tuple[System, ...]:
        """All of them: M and those that were fused with it."""
        return self.raw, *self.fused

    def said(self, track: str, i: int) -> Any:
        """What the recognisers say of one track of one video.

        Args:
            track: "phases" or "tools".
            i: the video's position.

        Returns:
            An array (n, ...), a tuple of them where several recognisers watch, None without any.
        """
        found = tuple(getattr(s, track)[i] for s in self.recognisers if getattr(s, track) is not None)
        return None if not found else found[0] if len(found) == 1 else found


FEW_VIDEOS = 5
"""With transitions from fewer videos than this, phases that nobody observes are guesses."""


def stabilize(
    predictions: Sequence[Track],
    annotations: Sequence[Track] = (),
    *,
    fuse: Sequence[Sequence[Track]] = (),
    transitions: Sequence[Track] = (),
    model: ModelFile | None = None,
    emissions: str = "confusion",
    folds: int | None = 5,
    iterations: int | None = None,
    priors: Priors = PRIORS,
    hidden_phases: bool = True,
    calibrated: bool | None = None,
    stages: bool = False,
    step: int | None = None,
    threshold: float = 0.5,
    relaxed: bool = False,
    progress: Progress | None = None,
) -> Stabilized:
    """Stabilise predictions with the coupled HMM.

    Videos with annotations are learnt from. Where they are also stabilised, each is inferred by a model that has not
    seen it: the annotated videos are split, in natural order, into `folds` parts, and each part is inferred with what
    the others teach. Videos of a part are also left out of `transitions`, should they be there. Videos without
    annotations are inferred by the model of all videos, which is also what is returned as `model`.

    Args:
        predictions: tracks from `hmmjax.io.read`; all videos with the same tracks.
        annotations: tracks from `hmmjax.io.read_annotations` for some of the videos.
        fuse: predictions of further recognisers of the same videos, whose evidence is added: each has errors of its
            own, and with `calibrated` powers of its own. Joined by frame; a recogniser may lack frames, videos or a
            track.
        transitions: labelled tracks of (other) videos in which start and transitions are counted; without them the
            annotations are used.
        model: use this model and learn nothing.
        emissions: families by name, see `hmmjax.init_params`; with "confusion" probabilities are first turned into
            labels.
        folds: number of parts; None leaves one video out at a time.
        iterations: EM iterations at most; see `hmmjax.stabilize.learn`.
        priors: pseudo-counts.
        hidden_phases: with tool predictions only, and phases among the labels: keep the phases in the model and infer
            them from the tools. False gives independent tools.
        calibrated: find out how much a frame's evidence is worth (`hmmjax.calibrate`), because networks err in runs;
            the notices say what was found and what it is worth on held-out videos. Needs labels and no EM. None is
            where at least eight annotated videos are left to learn from. The online filter
            always takes frames at their word.
        stages: model how long phases last (`hmmjax.durations`); takes longer.
        step: counter frames per time step; see `hmmjax.io.to_batch`.
        threshold: for turning tool probabilities into labels.
        relaxed: also the relaxed figures in the table.
        progress: called with a stage's name, how many parts are done, and of how many.

    Returns:
        Posteriors of every video, the model, and the table of figures where there is truth.

    Raises:
        FormatError: files that do not go together.
        ValueError, TypeError: see the core functions.
    """
    tell = progress or (lambda stage, done, total: None)
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
    obs = raw
    if model is None and emissions in LABELS:
        obs = raw.discretize(threshold)
    elif model is not None:
        obs = as_observed(raw, model.params, threshold)
    else:
        _require_probabilities(raw, emissions)
    examples = Examples(obs, labels, mask)
    if model is not None:
        params = _restrict(model.params, tracks, seen)
        _check_rate(model, index)
        plan, protocol, learned = [(params, list(range(len(mask))), -1)], _model_protocol(model, index), None
    else:
        classes = count_classes(tracks, names, raw, files)
        counts = transition_labels(transitions, index)
        plan, protocol, learned = plan_folds(
            examples, index.ids, counts, classes, emissions, priors, iterations, folds, calibrated, stages, tell
        )
        params = learned.params
        notices.append(learned.method)
        if learned.calibration is not None and (worth := held_out_worth(plan, examples)):
            notices.append(words(worth))
        taught = len(mask) - 1 if counts is None else len(counts[0])
        if params.phases is not None and "phases" not in seen and taught < FEW_VIDEOS:
            notices.append(
                "phases are inferred from the tools alone, with transitions counted in "
                f"{max(taught, 1)} video(s) only: do not trust them. Give label files of {FEW_VIDEOS} or more other "
                "videos (--transitions-from)"
            )
    smoothed, filtered, likelihood, fold_of = infer(plan, examples, index.ids, params, tell)

    model = model or ModelFile(
        params,
        names["phases"] if params.phases is not None else None,
        names["tools"] if params.tools is not None else None,
        1 / index.step_seconds,
        {"videos": list(index.ids), "method": learned.method if learned else "", "protocol": protocol},
    )
    truth = {t: None if getattr(labels, t) is None else index.split(getattr(labels, t)) for t in ("phases", "tools")}
    recognisers = [system("M" if i == 0 else f"M {i + 1}", said, index) for i, said in enumerate(each)]
    systems = [system("M_H", smoothed, index), system("M_H online", filtered, index)]
    for said in recognisers:
        own = spoken_of(said, truth["phases"], None)[0] if len(recognisers) > 1 else truth["phases"]
        notices += class_doubts(said, own, names["phases"], files)
    if len(recognisers) == 1:
        notices += harmed_videos(recognisers[0], systems[0], truth["phases"], index.ids)
    table = compare_recognisers(
        recognisers,
        systems,
        truth["phases"],
        truth["tools"],
        phase_names=names["phases"],
        tool_names=names["tools"],
        rows_per_second=1 / index.step_seconds,
        relaxed=relaxed,
        split=protocol,
    )
    return Stabilized(
        index.ids,
        index.frames,
        index.fps,
        index.step_seconds,
        names["phases"],
        names["tools"],
        truth["phases"],
        truth["tools"],
        recognisers[0],
        *systems,
        log_likelihood=likelihood,
        folds=fold_of,
        protocol=protocol,
        model=model,
        table=table,
        notices=tuple(dict.fromkeys(notices)),
        fused=tuple(recognisers[1:]),
    )


def _batch(
    sources: Sequence[Sequence[Track]], annotations: Sequence[Track], step: int | None
) -> tuple[Observations, list[Observations], Labels, np.ndarray, BatchIndex, list[str]]:
    """Padded arrays: what all recognisers say and what each does, labels, mask, index and notices."""
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
                f"the model fuses {wanted} recogniser(s) of {track}, {given} given",
                fix="give as many, in the order in which it was learnt",
            )
        if isinstance(observes, tuple) and both[0] is not None:
            return tuple(x[o == "labels"] for x, o in zip(zip(*both, strict=True), observes, strict=True))
        return both[observes == "labels"]

    return Observations(choose("phases"), choose("tools"))


def _require_probabilities(raw: Observations, emissions: str) -> None:
    """FormatError where the family needs probabilities and a track's only recogniser gives labels."""
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


def _model_protocol(model: ModelFile, index: BatchIndex) -> str:
    known = set(model.metadata.get("videos", [])) & set(index.ids)
    if known:
        return f"IN SAMPLE for {len(known)} of {len(index.ids)} videos that the given model was learnt from"
    return "model given, learnt elsewhere"

"""From tracks of files to stabilized tracks: prepare, learn from other videos, infer, and score."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax.ensembles import Ensemble
from hmmjax.io import BatchIndex, ModelFile, Track
from hmmjax.stabilize.coverage import describe_missing
from hmmjax.stabilize.drift import drifted_states, vanished_phases
from hmmjax.stabilize.effect import calibration_effect, describe_effect
from hmmjax.stabilize.evaluate import as_system
from hmmjax.stabilize.examples import TRACKS
from hmmjax.stabilize.folds import Part, learn_from_all, plan_folds
from hmmjax.stabilize.learn import Learned
from hmmjax.stabilize.posteriors import infer_plan
from hmmjax.stabilize.prepare import Prepared, prepare_inputs
from hmmjax.stabilize.settings import AUTO, Progress, Settings, ignore_progress, with_overrides
from hmmjax.stabilize.split import Split, check_classes, find_split
from hmmjax.stabilize.systems import System, restrict_truth
from hmmjax.stabilize.table import Row, compare_recognizers, timing_left_out
from hmmjax.stabilize.warnings import (
    mismatched_names,
    worse_classes,
    worse_means,
    worse_videos,
)
from hmmjax.types import Params


@dataclasses.dataclass(frozen=True, eq=False)
class Stabilized:
    """Results of `stabilize`. Lists have one entry per video; arrays are at the n frames that were read.

    Attributes:
        ids: names of the videos.
        frames: (n,) frame numbers.
        fps: frames per second of the frame counter.
        step_seconds: seconds per time step of the model.
        phase_names: (L,) or None.
        tool_names: (K,) or None.
        truth_phases: (n,) int labels, -1 for unlabeled; None without annotated phases.
        truth_tools: (n, K) int labels, -1 for unlabeled; None without annotated tools.
        raw: M, the recognizer's outputs as read; -1 or NaN where it does not predict.
        smoothed: M_H, posteriors given the whole video.
        filtered: M_H online, posteriors given past and present frames.
        log_likelihood: (B,) of each video, in nats.
        folds: the fold in which each video was held out, -1 for none.
        protocol: how the scored videos relate to the videos learned from, in words.
        model: the model learned from all videos, or the given one.
        table: the metrics, empty without truth.
        notices: messages for the user.
        online_model: the model for the filter, if it is not `model` without its powers.
        fused: outputs of further recognizers, "M 2", "M 3" ...; -1 or NaN at frames that one does not predict.
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
    online_model: ModelFile | None = None

    @property
    def recognizers(self) -> tuple[System, ...]:
        """M and the recognizers that were fused with it."""
        return self.raw, *self.fused

    def outputs(self, track: str, i: int) -> Any:
        """Return the recognizers' outputs for one track of one video.

        Args:
            track: "phases" or "tools".
            i: the video's position.

        Returns:
            An array (n, ...), a tuple of arrays if several recognizers predict the track, None if no recognizer does.
        """
        found = tuple(getattr(s, track)[i] for s in self.recognizers if getattr(s, track) is not None)
        return None if not found else found[0] if len(found) == 1 else found


def stabilize(
    predictions: Sequence[Track],
    annotations: Sequence[Track] = (),
    settings: Settings | None = None,
    *,
    fuse: Sequence[Sequence[Track]] = (),
    transitions: Sequence[Track] = (),
    model: ModelFile | None = None,
    online_model: ModelFile | None = None,
    progress: Progress | None = None,
    **overrides: Any,
) -> Stabilized:
    """Stabilize predictions with the coupled HMM.

    The model is learned from the annotated videos. An annotated video is never stabilized by a model that has seen its
    labels: the annotated videos are split, in natural order, into parts, and each part is stabilized by a model
    learned from the others (and without the videos of the part in `transitions`). Videos without annotations are
    stabilized by the model of all videos, which is also returned.

    With ``learn_from="val", apply_to="test"`` nothing is held out in turn: one model is learned from the validation
    videos, and the result is the test videos alone. Transitions are never counted in videos of `apply_to`.

    Args:
        predictions: tracks from `hmmjax.io.read`; all videos with the same tracks.
        annotations: tracks from `hmmjax.io.read_annotations` for some of the videos.
        settings: how to learn, hold out and stabilize; None uses the defaults of `Settings`.
        fuse: predictions of further recognizers of the same videos, one list per recognizer. Their emission
            log-likelihoods are added; each has its own error probabilities and powers. Joined by frame; a recognizer
            may lack frames, videos or a track.
        transitions: labeled tracks of (other) videos in which initial and transition probabilities are counted. By
            default they are counted in the annotations.
        model: use this model and learn nothing.
        online_model: use this model for the filter; by default `model` without its powers.
        progress: called with a stage's name, the number of parts done, and the number of parts (0: unknown).
        overrides: settings by name, such as ``folds=3``, in place of those in `settings`.

    Returns:
        Posteriors of every video, the model, and the table of metrics if there is truth.

    Raises:
        FormatError: the files do not fit together.
        ValueError: a setting or a file's content is out of range, or a video is impossible under the model.
        TypeError: an override is not a setting.
    """
    settings = with_overrides(settings, overrides)
    tell = progress or ignore_progress
    split = find_split((predictions, *fuse), settings, learns=model is None)
    inputs: dict[str, Any] = {"predictions": predictions, "annotations": annotations, "fuse": fuse}
    if split is None:
        return _stabilize(inputs, settings, transitions, model, online_model, tell)
    learned = split.doubts
    own = split.applying(**inputs)
    if model is None:
        model, online_model, learned = _learn(split.learning(**inputs, transitions=transitions), settings, split, tell)
        check_classes([t for source in (own["predictions"], *own["fuse"]) for t in source], model.params.num_phases)
    result = _stabilize(own, settings, (), model, online_model, tell, split.protocol if split.learn_from else None)
    return dataclasses.replace(result, notices=tuple(dict.fromkeys((*learned, *result.notices))))


def _learn(
    inputs: dict[str, Any], settings: Settings, split: Split, progress: Progress
) -> tuple[ModelFile, ModelFile | None, tuple[str, ...]]:
    """Return the model of the videos to learn from, that for the filter, and notices."""
    prepared = prepare_inputs(**inputs, settings=settings)
    learned = learn_from_all(prepared, settings, progress)
    missing = describe_missing(prepared.examples, prepared.classes["phases"], prepared.index.step_seconds)
    model = _model_file(learned.params, learned, prepared, split.protocol)
    return (
        model,
        _online_file(learned, prepared, split.protocol),
        (
            split.notice,
            *split.doubts,
            *prepared.notices,
            learned.method,
            *missing,
        ),
    )


def _stabilize(
    inputs: dict[str, Any],
    settings: Settings,
    transitions: Sequence[Track],
    model: ModelFile | None,
    online_model: ModelFile | None,
    tell: Progress,
    protocol: str | None = None,
) -> Stabilized:
    """Stabilize all videos of the inputs; `protocol` describes a given model that was learned from other videos."""
    prepared = prepare_inputs(**inputs, settings=settings, transitions=transitions, model=model)
    params, plan, known, learned = _plan(prepared, settings, model, online_model, tell)
    protocol = protocol or known
    if settings.emissions == AUTO and model is None and not isinstance(params, Ensemble):
        prepared = dataclasses.replace(prepared, examples=prepared.labeled(settings.threshold))
    index, names = prepared.index, prepared.names
    inferred = infer_plan(plan, prepared.examples, index.ids, params, tell)
    notices = list(prepared.notices)
    if learned is not None:
        notices.append(learned.method)
        notices += describe_missing(prepared.examples, prepared.classes["phases"], index.step_seconds)
        if learned.calibration is not None and (effect := calibration_effect(plan, prepared.examples, inferred)):
            notices.append(describe_effect(effect))
    if isinstance(prepared.given, Ensemble) and online_model is None:
        notices.append(
            "the given model mixes models for whole videos, which react late in the filter: give the filter its own "
            "(online_model, --online-model model_online.npz)"
        )
    truth = as_system("truth", prepared.examples.labels, index)
    recognizers = [as_system("M" if i == 0 else f"M {i + 1}", x, index) for i, x in enumerate(prepared.outputs)]
    systems = [as_system("M_H", inferred.smoothed, index), as_system("M_H online", inferred.filtered, index)]
    table = compare_recognizers(
        recognizers,
        systems,
        truth.phases,
        truth.tools,
        phase_names=names["phases"],
        tool_names=names["tools"],
        rows_per_second=1 / index.step_seconds,
        relaxed=settings.relaxed,
        split=protocol,
    )
    if systems[0].phases is not None:
        notices += timing_left_out(truth.phases)
    notices += _warnings(prepared, recognizers, systems[0], truth)
    if learned is not None and settings.emissions != AUTO and len(recognizers) == 1:
        notices += worse_means(table, settings.emissions)
    return Stabilized(
        index.ids,
        index.frames,
        index.fps,
        index.step_seconds,
        names["phases"],
        names["tools"],
        None if truth.phases is None else list(truth.phases),
        None if truth.tools is None else list(truth.tools),
        recognizers[0],
        *systems,
        log_likelihood=inferred.log_likelihood,
        folds=inferred.folds,
        protocol=protocol,
        model=model or _model_file(params, learned, prepared, protocol),
        table=table,
        notices=tuple(dict.fromkeys(notices)),
        fused=tuple(recognizers[1:]),
        online_model=online_model or _online_file(learned, prepared, protocol),
    )


def _plan(
    prepared: Prepared, settings: Settings, model: ModelFile | None, online: ModelFile | None, progress: Progress
) -> tuple[Params | Ensemble, list[Part], str, Learned | None]:
    """Return the model of all videos, which model infers which videos, the protocol, and how the model was learned."""
    if model is not None and prepared.given is not None:
        everything = list(range(len(prepared.index.ids)))
        part = Part(prepared.given, everything, -1, None if online is None else online.params)
        return prepared.given, [part], _model_protocol(model, prepared.index), None
    plan, protocol, learned = plan_folds(prepared, settings, progress)
    return learned.params, plan, protocol, learned


def _model_protocol(model: ModelFile, index: BatchIndex) -> str:
    learned = model.metadata.get("videos", [])
    known = set(map(str, learned if isinstance(learned, list | tuple) else [])) & set(index.ids)
    if known:
        return f"IN SAMPLE for {len(known)} of {len(index.ids)} videos that the given model was learned from"
    return "model given, learned from other videos"


def _online_file(learned: Learned | None, prepared: Prepared, protocol: str) -> ModelFile | None:
    if learned is None or learned.online is None:
        return None
    return _model_file(learned.online, learned, prepared, protocol)


def _model_file(params: Params | Ensemble, learned: Learned | None, prepared: Prepared, protocol: str) -> ModelFile:
    names, index = prepared.names, prepared.index
    return ModelFile(
        params,
        names["phases"] if params.num_phases else None,
        names["tools"] if params.num_tools else None,
        1 / index.step_seconds,
        {"videos": list(index.ids), "method": learned.method if learned else "", "protocol": protocol},
    )


def _warnings(prepared: Prepared, recognizers: Sequence[System], stabilized: System, truth: System) -> list[str]:
    """Return warnings about class names, and about videos and classes that became worse."""
    names, single = prepared.names, len(recognizers) == 1
    notices: list[str] = []
    for outputs in recognizers:
        known = restrict_truth(outputs, truth)
        notices += mismatched_names(outputs, known.phases, names["phases"], prepared.files)
    if single:
        notices += drifted_states(recognizers[0], stabilized, names["phases"], truth.phases)
        steps = prepared.index.step_seconds
        notices += vanished_phases(recognizers[0], stabilized, names["phases"], prepared.index.ids, steps)
        notices += worse_videos(recognizers[0], stabilized, truth.phases, prepared.index.ids)
        notices += worse_classes(recognizers[0], stabilized, truth, {t: names[t] for t in TRACKS})
    return notices

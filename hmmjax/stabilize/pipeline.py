"""From files' tracks to stabilized tracks: learn (never on the video that is scored), infer, compare."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax.io import BatchIndex, ModelFile, Track
from hmmjax.priors import Priors
from hmmjax.stabilize.evaluate import system
from hmmjax.stabilize.folds import Progress, infer, plan_folds
from hmmjax.stabilize.learn import PRIORS
from hmmjax.stabilize.prepare import prepare
from hmmjax.stabilize.table import Row, System, compare_recognizers, spoken_of
from hmmjax.stabilize.warnings import class_doubts, harmed_classes, harmed_videos
from hmmjax.stabilize.weigh import held_out_worth, words


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
        protocol: how the scored videos relate to the videos learned from, in words.
        model: the model learned from all videos (or the one given).
        table: the figures, empty without truth.
        notices: what a person should know.
        fused: what further recognizers say, "M 2", "M 3" ...; -1 or NaN in frames of which one says nothing (so in
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
    def recognizers(self) -> tuple[System, ...]:
        """All of them: M and those that were fused with it."""
        return self.raw, *self.fused

    def said(self, track: str, i: int) -> Any:
        """What the recognizers say of one track of one video.

        Args:
            track: "phases" or "tools".
            i: the video's position.

        Returns:
            An array (n, ...), a tuple of them where several recognizers watch, None without any.
        """
        found = tuple(getattr(s, track)[i] for s in self.recognizers if getattr(s, track) is not None)
        return None if not found else found[0] if len(found) == 1 else found


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
    """Stabilize predictions with the coupled HMM.

    Videos with annotations are learned from. Where they are also stabilized, each is inferred by a model that has not
    seen it: the annotated videos are split, in natural order, into `folds` parts, and each part is inferred with what
    the others teach. Videos of a part are also left out of `transitions`, should they be there. Videos without
    annotations are inferred by the model of all videos, which is also what is returned as `model`.

    Args:
        predictions: tracks from `hmmjax.io.read`; all videos with the same tracks.
        annotations: tracks from `hmmjax.io.read_annotations` for some of the videos.
        fuse: predictions of further recognizers of the same videos, whose evidence is added: each has errors of its
            own, and with `calibrated` powers of its own. Joined by frame; a recognizer may lack frames, videos or a
            track.
        transitions: labeled tracks of (other) videos in which start and transitions are counted; without them the
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
    prepared = prepare(
        predictions,
        annotations,
        fuse=fuse,
        transitions=transitions,
        model=model,
        emissions=emissions,
        folds=folds,
        hidden_phases=hidden_phases,
        step=step,
        threshold=threshold,
        relaxed=relaxed,
    )
    names, labels, examples, index = prepared.names, prepared.examples.labels, prepared.examples, prepared.index
    notices = list(prepared.notices)
    params = prepared.given
    if model is not None and params is not None:
        plan, protocol, learned = [(params, list(range(len(index.ids))), -1)], _model_protocol(model, index), None
    else:
        plan, protocol, learned = plan_folds(
            examples,
            index.ids,
            prepared.counts,
            prepared.classes,
            emissions,
            priors,
            iterations,
            folds,
            calibrated,
            stages,
            tell,
        )
        params = learned.params
        notices.append(learned.method)
        if learned.calibration is not None and (worth := held_out_worth(plan, examples)):
            notices.append(words(worth))
    smoothed, filtered, likelihood, fold_of = infer(plan, examples, index.ids, params, tell)

    model = model or ModelFile(
        params,
        names["phases"] if params.phases is not None else None,
        names["tools"] if params.tools is not None else None,
        1 / index.step_seconds,
        {"videos": list(index.ids), "method": learned.method if learned else "", "protocol": protocol},
    )
    truth = {t: None if getattr(labels, t) is None else index.split(getattr(labels, t)) for t in ("phases", "tools")}
    recognizers = [system("M" if i == 0 else f"M {i + 1}", said, index) for i, said in enumerate(prepared.said)]
    systems = [system("M_H", smoothed, index), system("M_H online", filtered, index)]
    for said in recognizers:
        own = spoken_of(said, truth["phases"], None)[0] if len(recognizers) > 1 else truth["phases"]
        notices += class_doubts(said, own, names["phases"], prepared.files)
    if len(recognizers) == 1:
        notices += harmed_videos(recognizers[0], systems[0], truth["phases"], index.ids)
        notices += harmed_classes(
            recognizers[0], systems[0], truth["phases"], truth["tools"], names["phases"], names["tools"]
        )
    table = compare_recognizers(
        recognizers,
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
        recognizers[0],
        *systems,
        log_likelihood=likelihood,
        folds=fold_of,
        protocol=protocol,
        model=model,
        table=table,
        notices=tuple(dict.fromkeys(notices)),
        fused=tuple(recognizers[1:]),
    )


def _model_protocol(model: ModelFile, index: BatchIndex) -> str:
    learned = model.metadata.get("videos", [])
    known = set(map(str, learned if isinstance(learned, list | tuple) else [])) & set(index.ids)
    if known:
        return f"IN SAMPLE for {len(known)} of {len(index.ids)} videos that the given model was learned from"
    return "model given, learned elsewhere"

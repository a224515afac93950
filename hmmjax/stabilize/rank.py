"""Which emission family suits somebody's own files: `hmmjax.compare` on tracks."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax import io
from hmmjax.comparison import Ranking, check_families, comparable
from hmmjax.comparison import compare as compare_families
from hmmjax.counting import estimate
from hmmjax.io import FormatError, Track
from hmmjax.priors import Priors
from hmmjax.stabilize.folds import Progress, protocol_of
from hmmjax.stabilize.inputs import align, can_hide_phases, count_classes, transition_labels
from hmmjax.stabilize.learn import PRIORS, Examples, labeled
from hmmjax.stabilize.table import plain
from hmmjax.types import Labels, Params

_NATS = ("conditional", "behind", "error", "uncalibrated", "marginal")
#: Agreement with the annotations that is so much less than the recognizer's own is no rounding.
WORSE = 0.01


@dataclasses.dataclass(frozen=True)
class Families:
    """Emission families on somebody's files.

    Attributes:
        ranking: best first, in nats a frame; see `hmmjax.comparison.Rank`.
        ids: the annotated videos.
        tracks: what was predicted and annotated: "phases", "tools".
        protocol: how the videos were held out, in words.
        notices: what a person should know.
    """

    ranking: Ranking
    ids: tuple[str, ...]
    tracks: tuple[str, ...]
    protocol: str
    notices: tuple[str, ...]

    def records(self) -> list[dict[str, Any]]:
        """The ranking as plain rows, one a family; None where a family has no such figure."""
        return [
            {
                "family": rank.family,
                **{name: plain(getattr(rank, name)) for name in _NATS},
                "tied": rank.tied,
                **{name: plain(x) for name, x in rank.as_it_is._asdict().items()},
                **{f"{name}_calibrated": plain(x) for name, x in rank.calibrated._asdict().items()},
                "powers": rank.powers,
            }
            for rank in self.ranking
        ]


def rank_families(
    predictions: Sequence[Track],
    annotations: Sequence[Track],
    *,
    transitions: Sequence[Track] = (),
    families: Sequence[str] | None = None,
    folds: int | None = 5,
    priors: Priors = PRIORS,
    hidden_phases: bool = True,
    step: int | None = None,
    progress: Progress | None = None,
) -> Families:
    """Rank emission families by what they say of held-out videos, from the files that `stabilize` takes.

    Args:
        predictions: tracks from `hmmjax.io.read`.
        annotations: tracks from `hmmjax.io.read_annotations`, of two videos at least; predicted tracks that are not
            annotated are left out, and the notices say so.
        transitions: labeled tracks of other videos in which start and transitions are counted. Those that are also
            annotated and predicted are left out, since they are held out.
        families: names of `hmmjax.initialize.FAMILIES`; by default all that the predictions allow but
            "logistic", which is dearer.
        folds: parts of the videos; None leaves one video out at a time.
        priors: pseudo-counts, by default those of `stabilize`.
        hidden_phases: with tool predictions only, and phases among the labels: keep the phases in the model.
        step: see `hmmjax.io.to_batch`.
        progress: called with a stage's name, how many families are done, and of how many.

    Returns:
        The ranking, and what it was made from.

    Raises:
        FormatError: files that do not go together, or fewer than two annotated videos.
        ValueError, TypeError: see `hmmjax.compare`.
    """
    question = ask_families(
        predictions,
        annotations,
        transitions=transitions,
        families=families,
        folds=folds,
        priors=priors,
        hidden_phases=hidden_phases,
        step=step,
    )
    examples = question.examples
    found, tell = [], progress or (lambda stage, done, total: None)
    for i, name in enumerate(question.families):
        tell("comparing families", i, len(question.families))
        ranking = compare_families(
            examples.labels,
            examples.obs,
            examples.mask,
            families=[name],
            chains=question.chains,
            folds=question.parts,
            priors=priors,
            num_phases=question.num_phases,
        )
        found.append(ranking)
    tell("comparing families", len(question.families), len(question.families))
    ranking = Ranking((rank for ranking in found for rank in ranking), found[0].recognizer)
    return Families(
        ranking,
        question.ids,
        question.tracks,
        question.protocol,
        tuple(dict.fromkeys((*question.notices, *_doubts(ranking)))),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Question:
    """What `rank_families` compares, before it does.

    Attributes:
        examples: the annotated videos.
        ids: their names.
        tracks: what was predicted and annotated: "phases", "tools".
        families: names.
        chains: start and transitions, where they are counted in other videos.
        num_phases: L, None without phases.
        parts: how many parts of the videos are held out in turn.
        notices: what a person should know.
    """

    examples: Examples
    ids: tuple[str, ...]
    tracks: tuple[str, ...]
    families: tuple[str, ...]
    chains: Params | None
    num_phases: int | None
    parts: int
    notices: tuple[str, ...]

    @property
    def protocol(self) -> str:
        """How the videos are held out, in words."""
        return protocol_of(len(self.ids), self.parts)


def ask_families(
    predictions: Sequence[Track],
    annotations: Sequence[Track],
    *,
    transitions: Sequence[Track] = (),
    families: Sequence[str] | None = None,
    folds: int | None = 5,
    priors: Priors = PRIORS,
    hidden_phases: bool = True,
    step: int | None = None,
) -> Question:
    """Bring files together as `rank_families` does before it compares.

    Args:
        predictions: as in `rank_families`.
        annotations: likewise.
        transitions: likewise.
        families: likewise.
        folds: likewise.
        priors: likewise.
        hidden_phases: likewise.
        step: likewise.

    Returns:
        What would be compared.

    Raises:
        FormatError: files that do not go together, fewer than two annotated videos, or nothing to compare.
        ValueError: `folds` below two.
    """
    if folds is not None and folds < 2:
        raise ValueError(f"folds={folds}: at least 2 parts are needed to hold one out")
    predictions, left_out = _annotated(predictions, annotations)
    tracks = [track for track in ("phases", "tools") if any(p.track == track for p in predictions)]
    seen = tuple(tracks)
    if "phases" not in tracks and hidden_phases and can_hide_phases(annotations, transitions, None):
        tracks.insert(0, "phases")
    annotations = [t for t in annotations if t.track in tracks]
    names, (predictions, annotations, transitions) = align(tracks, None, predictions, annotations, transitions)
    notices = [n for t in (*predictions, *annotations, *transitions) for n in t.notices] + left_out
    obs, labels, mask, index = io.to_batch(io.join(predictions), annotations, step=step)
    notices += index.notices
    examples = Examples(obs, labels, mask)
    known = np.flatnonzero(np.logical_or(*(labeled(examples, track)[0] for track in ("phases", "tools"))))
    if known.size < 2:
        raise FormatError(
            f"families are compared on held-out videos, and {known.size} predicted video(s) are annotated",
            fix="give predictions and annotations of at least two videos",
        )
    examples, ids = examples.take(known), tuple(index.ids[i] for i in known)
    classes = count_classes(tracks, names, obs, (*predictions, *annotations, *transitions))
    others = [t for t in transitions if t.video not in ids]
    if transitions and not others:
        raise FormatError("no video is left to count transitions in", fix="give videos that are not compared on")
    counts = transition_labels(others, index)
    num_phases = classes["phases"] or None
    chains = _chains(counts[1], counts[2], tracks, priors, num_phases) if counts else None
    floats = [x.dtype.kind == "f" for x in (obs.phases, obs.tools) if x is not None]
    names_of = tuple(comparable(all(floats)) if families is None else families)
    if families is None and not any(floats):
        raise FormatError(
            "the predictions are labels, which only 'confusion' and, of tools, 'logistic' describe: there is little to "
            "compare",
            fix="give probabilities or logits, or name the families (--emissions confusion --emissions logistic)",
        )
    if families is None and not all(floats):
        raise FormatError(
            "one track holds labels and the other probabilities, and only 'confusion' suits both",
            fix="give the track of probabilities by itself, or name the families (--emissions)",
        )
    check_families(names_of, all(floats))
    return Question(
        examples,
        ids,
        seen,
        names_of,
        chains,
        num_phases,
        len(ids) if folds is None else min(folds, len(ids)),
        tuple(dict.fromkeys(notices)),
    )


def _doubts(ranking: Ranking) -> list[str]:
    """What the order does not show: families that are as good as the first, and those that do harm."""
    notices = []
    if tied := [rank.family for rank in ranking[1:] if rank.tied]:
        count = len(ranking[0].videos)
        notices.append(
            f"{count} videos do not tell {ranking[0].family} from {', '.join(tied)} (95 % intervals of the difference "
            "hold zero): choose by the agreement with the annotations"
        )
    for figure, what in (("phase_accuracy", "phases"), ("tool_f1", "tools")):
        raw = getattr(ranking.recognizer, figure)
        harmful = [
            rank.family
            for rank in ranking
            if all(getattr(found, figure) < raw - WORSE for found in (rank.as_it_is, rank.calibrated))
        ]
        if len(harmful) == len(ranking):
            notices.append(
                f"no family gets as many {what} right as the recognizer itself ({raw:.3f}): keep its labels, or "
                "annotate more videos"
            )
        elif harmful:
            notices.append(
                f"calibrated or not, these get fewer {what} right than the recognizer itself ({raw:.3f}): "
                f"{', '.join(harmful)}"
            )
    return notices


def _annotated(predictions: Sequence[Track], annotations: Sequence[Track]) -> tuple[list[Track], list[str]]:
    """The predictions of annotated tracks, and notices about those that are not."""
    if not predictions:
        raise FormatError("no predictions", fix="give at least one prediction file")
    if not annotations:
        raise FormatError("no annotations", fix="give those of at least two of the predicted videos (--annotations)")
    have = {t.track for t in annotations}
    kept = [p for p in predictions if p.track in have]
    if not kept:
        raise FormatError(f"predictions are of {predictions[0].track}, which nobody annotated", fix="check the files")
    missing = sorted({p.track for p in predictions} - have)
    return kept, [f"{track} are predicted but not annotated, and left out" for track in missing]


def _chains(labels: Labels, mask: np.ndarray, tracks: Sequence[str], priors: Priors, num_phases: int | None) -> Params:
    for track in tracks:
        if getattr(labels, track) is None:
            raise FormatError(f"the videos for transitions have no {track}", fix="give labels of every track")
    wanted = Labels(*(getattr(labels, track) if track in tracks else None for track in ("phases", "tools")))
    return estimate(wanted, None, mask, priors=priors, num_phases=num_phases)

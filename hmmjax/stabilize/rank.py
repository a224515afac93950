"""Rank emission families on prediction files: `hmmjax.compare` on tracks."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax import io
from hmmjax.comparison import check_families, comparable
from hmmjax.comparison import compare as compare_families
from hmmjax.initialize import estimate
from hmmjax.io import FormatError, Track
from hmmjax.ranking import Ranking
from hmmjax.stabilize.classes import align, can_hide_phases, count_classes
from hmmjax.stabilize.examples import TRACKS, Examples, label_coverage
from hmmjax.stabilize.folds import describe_protocol
from hmmjax.stabilize.prepare import TransitionVideos, transition_labels
from hmmjax.stabilize.settings import Progress, Settings, ignore_progress, with_overrides
from hmmjax.stabilize.table import finite_or_none
from hmmjax.stabilize.warnings import MIN_DROP
from hmmjax.types import Labels, Observations, Params

_NATS = ("conditional", "behind", "error", "uncalibrated", "marginal")


@dataclasses.dataclass(frozen=True)
class FamilyRanking:
    """Emission families ranked on files.

    Attributes:
        ranking: best first, in nats per frame; see `hmmjax.ranking.Rank`.
        ids: names of the annotated videos.
        tracks: the tracks that are predicted and annotated: "phases", "tools".
        protocol: how the videos were held out, in words.
        notices: messages for the user.
    """

    ranking: Ranking
    ids: tuple[str, ...]
    tracks: tuple[str, ...]
    protocol: str
    notices: tuple[str, ...]

    def records(self) -> list[dict[str, Any]]:
        """Return the ranking as plain rows, one per family; None for scores that a family does not have."""
        return [
            {
                "family": rank.family,
                **{name: finite_or_none(getattr(rank, name)) for name in _NATS},
                "tied": rank.tied,
                **{name: finite_or_none(x) for name, x in rank.as_it_is._asdict().items()},
                **{f"{name}_calibrated": finite_or_none(x) for name, x in rank.calibrated._asdict().items()},
                "powers": rank.powers,
            }
            for rank in self.ranking
        ]


@dataclasses.dataclass(frozen=True, eq=False)
class RankingInputs:
    """Everything that `rank_families` needs, before it learns a model.

    Attributes:
        examples: the annotated videos.
        ids: names of the annotated videos.
        tracks: the tracks that are predicted and annotated: "phases", "tools".
        families: names of the families to rank.
        chains: initial and transition probabilities, if they are counted in other videos; None otherwise.
        num_phases: L, None without phases.
        parts: number of parts of the videos that are held out in turn.
        notices: messages for the user.
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
        return describe_protocol(len(self.ids), self.parts)


def rank_families(
    predictions: Sequence[Track],
    annotations: Sequence[Track],
    settings: Settings | None = None,
    *,
    transitions: Sequence[Track] = (),
    families: Sequence[str] | None = None,
    progress: Progress | None = None,
    **overrides: Any,
) -> FamilyRanking:
    """Rank emission families by how well they predict the labels of held-out videos.

    Args:
        predictions: tracks from `hmmjax.io.read`.
        annotations: tracks from `hmmjax.io.read_annotations`, of at least two videos; predicted tracks without
            annotations are left out, and a notice says so.
        settings: folds, priors, hidden_phases and step are used.
        transitions: labeled tracks of other videos in which initial and transition probabilities are counted. Videos
            that are also predicted and annotated are left out of them.
        families: names in `hmmjax.emissions.FAMILIES`; by default all that accept the predictions, except the slow
            "logistic".
        progress: called with a stage's name, the number of families done, and the number of families.
        overrides: settings by name, in place of those in `settings`.

    Returns:
        The ranking, and the videos and tracks that it was made from.

    Raises:
        FormatError: the files do not fit together, or fewer than two videos are annotated.
        ValueError: a family is unknown or does not accept the predictions.
        TypeError: an override is not a setting.
    """
    settings = with_overrides(settings, overrides)
    inputs = prepare_ranking(predictions, annotations, settings, transitions=transitions, families=families)
    examples, count = inputs.examples, len(inputs.families)
    tell = progress or ignore_progress
    tell("comparing families", 0, count)
    ranking = compare_families(
        examples.obs,
        examples.mask,
        examples.labels,
        families=inputs.families,
        chains=inputs.chains,
        folds=inputs.parts,
        priors=settings.priors,
        num_phases=inputs.num_phases,
        callback=lambda done: tell("comparing families", done, count),
    )
    notices = tuple(dict.fromkeys((*inputs.notices, *_warnings(ranking))))
    return FamilyRanking(ranking, inputs.ids, inputs.tracks, inputs.protocol, notices)


def prepare_ranking(
    predictions: Sequence[Track],
    annotations: Sequence[Track],
    settings: Settings | None = None,
    *,
    transitions: Sequence[Track] = (),
    families: Sequence[str] | None = None,
    **overrides: Any,
) -> RankingInputs:
    """Check and align files as `rank_families` does before it learns.

    Args:
        predictions: tracks from `hmmjax.io.read`.
        annotations: tracks from `hmmjax.io.read_annotations`.
        settings: folds, priors, hidden_phases and step are used.
        transitions: labeled tracks of other videos in which initial and transition probabilities are counted.
        families: names of families; None for all that accept the predictions, except "logistic".
        overrides: settings by name, in place of those in `settings`.

    Returns:
        The arrays and families that would be compared.

    Raises:
        FormatError: the files do not fit together, fewer than two videos are annotated, or only one family fits.
        ValueError: the settings have `learn_from` or `apply_to`.
        TypeError: an override is not a setting.
    """
    settings = with_overrides(settings, overrides)
    if settings.has_split:
        raise ValueError("families are ranked by holding videos out in turn. Leave out learn_from and apply_to.")
    predictions, notices = _annotated(predictions, annotations)
    observed = tuple(track for track in TRACKS if any(p.track == track for p in predictions))
    tracks = list(observed)
    if "phases" not in tracks and settings.hidden_phases and can_hide_phases(annotations, transitions, None):
        tracks.insert(0, "phases")
    annotations = [t for t in annotations if t.track in tracks]
    names, (predictions, annotations, transitions) = align(tracks, None, predictions, annotations, transitions)
    files = (*predictions, *annotations, *transitions)
    obs, labels, mask, index = io.to_batch(io.join(predictions), annotations, step=settings.step)
    notices = [*(n for t in files for n in t.notices), *notices, *index.notices]
    examples = Examples(obs, labels, mask)
    known = np.flatnonzero(np.logical_or(*(label_coverage(examples, track)[0] for track in TRACKS)))
    if known.size < 2:
        raise FormatError(
            f"families are compared on held-out videos, but {known.size} predicted video(s) are annotated",
            fix="give predictions and annotations of at least two videos",
        )
    ids = tuple(index.ids[i] for i in known)
    num_phases = count_classes(tracks, names, obs, files)["phases"] or None
    others = [t for t in transitions if t.video not in ids]
    if transitions and not others:
        raise FormatError(
            "no video is left to count transitions in", fix="give videos that families are not compared on"
        )
    counts = transition_labels(others, index)
    chains = _chains(counts, tracks, settings, num_phases) if counts else None
    count = len(ids) if settings.folds is None else min(settings.folds, len(ids))
    chosen = _families(obs, families)
    notices = tuple(dict.fromkeys(notices))
    return RankingInputs(examples.take(known), ids, observed, chosen, chains, num_phases, count, notices)


def _families(obs: Observations, families: Sequence[str] | None) -> tuple[str, ...]:
    """Return the families to rank; raise FormatError if there is little to compare."""
    floats = [x.dtype.kind == "f" for x in (obs.phases, obs.tools) if x is not None]
    if families is None and any(floats) and not all(floats):
        raise FormatError(
            "one track holds labels and the other probabilities, and only families of labels accept both",
            fix="give the track of probabilities by itself, or name the families (--emissions)",
        )
    names = tuple(comparable(all(floats)) if families is None else families)
    check_families(names, all(floats))
    return names


def _annotated(predictions: Sequence[Track], annotations: Sequence[Track]) -> tuple[list[Track], list[str]]:
    """Return the predictions of annotated tracks, and notices about tracks without annotations."""
    if not predictions:
        raise FormatError("there are no predictions", fix="give at least one prediction file")
    if not annotations:
        raise FormatError(
            "there are no annotations", fix="give those of at least two of the predicted videos (--annotations)"
        )
    have = {t.track for t in annotations}
    found = [p for p in predictions if p.track in have]
    if not found:
        raise FormatError(
            f"the predictions are of {predictions[0].track}, which has no annotations",
            fix=f"give annotation files of {predictions[0].track}",
        )
    missing = sorted({p.track for p in predictions} - have)
    return found, [f"{track} are predicted but not annotated, and left out" for track in missing]


def _chains(counts: TransitionVideos, tracks: Sequence[str], settings: Settings, num_phases: int | None) -> Params:
    """Count initial and transition probabilities in other videos."""
    for track in tracks:
        if getattr(counts.labels, track) is None:
            raise FormatError(
                f"the videos for transitions have no labels of {track}", fix="give labels of every predicted track"
            )
    wanted = Labels(*(getattr(counts.labels, track) if track in tracks else None for track in TRACKS))
    return estimate(wanted, None, counts.mask, priors=settings.priors, num_phases=num_phases)


def _warnings(ranking: Ranking) -> list[str]:
    """Warn about what the order does not show: families tied with the first, and families that do harm."""
    notices = []
    if tied := [rank.family for rank in ranking[1:] if rank.tied]:
        count = len(ranking[0].videos)
        notices.append(
            f"{count} videos cannot separate {ranking[0].family} from {', '.join(tied)} (the 95 % intervals of the "
            "differences include zero): choose by the agreement with the annotations"
        )
    for score, what in (("phase_accuracy", "phases"), ("tool_f1", "tools")):
        raw = getattr(ranking.recognizer, score)
        harmful = [
            rank.family
            for rank in ranking
            if all(getattr(found, score) < raw - MIN_DROP for found in (rank.as_it_is, rank.calibrated))
        ]
        if len(harmful) == len(ranking):
            notices.append(
                f"no family predicts {what} as well as the recognizer itself ({raw:.3f}): use the recognizer's labels, "
                "or annotate more videos"
            )
        elif harmful:
            notices.append(
                f"with and without calibration, these predict {what} less well than the recognizer itself "
                f"({raw:.3f}): {', '.join(harmful)}"
            )
    return notices

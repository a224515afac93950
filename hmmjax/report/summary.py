"""What stabilizing changed, in minutes and segments: the numbers behind the summary at the top of the page."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hmmjax.plots import changes
from hmmjax.stabilize import Stabilized
from hmmjax.stabilize.gaps import without_gaps
from hmmjax.stabilize.systems import as_phases, as_tools

#: The model counts as sure of a label from this probability.
SURE = 0.9


class Segment(NamedTuple):
    """One annotated segment of a phase, or one annotated use of a tool.

    Attributes:
        video: the video's position.
        kind: the phase's or tool's position.
        start: seconds at its first frame.
        minutes: its duration.
    """

    video: int
    kind: int
    start: float
    minutes: float


@dataclasses.dataclass(frozen=True, eq=False)
class Shown:
    """What one system shows of C classes and S annotated segments.

    Attributes:
        missed: (C,) annotated minutes in which the class is not shown.
        wrong: (C,) minutes in which the class is shown, but not annotated.
        found: (S,) bool, segments whose class is shown for at least half of their time.
        extra: (C,) number of segments shown of which less than half is annotated as such.
    """

    missed: np.ndarray
    wrong: np.ndarray
    found: np.ndarray
    extra: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Balance:
    """What raw and stabilized predictions of one track show of the annotations.

    Attributes:
        track: "phases" or "tools".
        names: (C,) class names.
        annotated: (C,) annotated minutes.
        segments: the S annotated segments.
        raw: what the recognizer shows; None if it does not predict the track throughout.
        stabilized: what the model shows.
        corrected: minutes that were wrong and became right; of tools, summed over tools. 0 without raw.
        spoiled: minutes that were right and became wrong. 0 without raw.
        videos: positions of the V annotated videos.
        minutes: (V,) annotated minutes of each video; of tools, summed over tools.
        wrong: (V, 2) minutes with a wrong label of each video, raw and stabilized; raw NaN without raw.
        right_if_sure: fraction right where the model is sure; NaN if it never is.
        right_if_unsure: fraction right elsewhere; NaN if it is sure throughout.
    """

    track: str
    names: tuple[str, ...]
    annotated: np.ndarray
    segments: tuple[Segment, ...]
    raw: Shown | None
    stabilized: Shown
    corrected: float
    spoiled: float
    videos: tuple[int, ...]
    minutes: np.ndarray
    wrong: np.ndarray
    right_if_sure: float
    right_if_unsure: float

    @property
    def lost(self) -> list[Segment]:
        """Segments that the recognizer shows and the model does not, longest first."""
        return self._between(self.raw, self.stabilized)

    @property
    def gained(self) -> list[Segment]:
        """Segments that the model shows and the recognizer does not, longest first."""
        return self._between(self.stabilized, self.raw)

    def _between(self, one: Shown | None, other: Shown | None) -> list[Segment]:
        if one is None or other is None:
            return []
        own = [s for s, a, b in zip(self.segments, one.found, other.found, strict=True) if a and not b]
        return sorted(own, key=lambda s: -s.minutes)


@dataclasses.dataclass(frozen=True)
class Difference:
    """How raw and stabilized predictions of one track differ, whatever is true.

    Attributes:
        track: "phases" or "tools".
        minutes: minutes of all videos; of tools, summed over tools.
        changed: minutes with another label; NaN without raw predictions.
        changes: number of changes of labels, raw and stabilized; None for missing raw predictions.
        true_changes: number of annotated changes; None unless all videos are annotated throughout.
        sure: fraction of the minutes in which the model gives its label a probability of at least `SURE`.
    """

    track: str
    minutes: float
    changed: float
    changes: tuple[int | None, int]
    true_changes: int | None
    sure: float


def difference(result: Stabilized, track: str) -> Difference | None:
    """Compare raw and stabilized labels of a track.

    Args:
        result: from `hmmjax.stabilize.stabilize`.
        track: "phases" or "tools".

    Returns:
        The difference; None if the track was not inferred.
    """
    smooth = getattr(result.smoothed, track)
    if smooth is None:
        return None
    after, before = [_columns(track, x) for x in smooth], _complete(result, track)
    unit = result.step_seconds / 60
    changed = float("nan")
    if before is not None:
        changed = sum(float((a != b).sum()) for a, b in zip(before, after, strict=True)) * unit
    truth = getattr(result, f"truth_{track}")
    filled = [without_gaps(x) for x in truth or ()]
    known = [_columns(track, x) for x in filled if x is not None]
    return Difference(
        track=track,
        minutes=sum(x.size for x in after) * unit,
        changed=changed,
        changes=(None if before is None else _count(before), _count(after)),
        true_changes=_count(known) if known and len(known) == len(filled) else None,
        sure=float(np.concatenate([_sure(track, x).ravel() for x in smooth]).mean()),
    )


def balance(result: Stabilized, track: str, names: Sequence[str]) -> Balance | None:
    """Compare raw and stabilized labels of a track with the annotations, in annotated frames.

    Args:
        result: from `hmmjax.stabilize.stabilize`.
        track: "phases" or "tools".
        names: (C,) class names.

    Returns:
        The balance; None if the track was not inferred or is not annotated.
    """
    smooth, truth = getattr(result.smoothed, track), getattr(result, f"truth_{track}")
    videos = tuple(i for i, x in enumerate(truth or ()) if (x >= 0).any())
    if smooth is None or truth is None or not videos:
        return None
    unit, count = result.step_seconds / 60, len(names)
    true = [_columns(track, truth[i]) for i in videos]
    known = [x >= 0 for x in true]
    present = [_present(track, x, count) for x in true]
    segments = tuple(
        Segment(i, c, float(result.frames[i][a] / result.fps), (b - a) * unit)
        for i, x in zip(videos, present, strict=True)
        for c, a, b in _runs(x)
    )
    after = [_columns(track, smooth[i]) for i in videos]
    complete = _complete(result, track)
    before = None if complete is None else [complete[i] for i in videos]

    def shown(labels: list[np.ndarray]) -> Shown:
        return _shown([_present(track, x, count) for x in labels], present, known, unit)

    def errors(labels: list[np.ndarray]) -> list[np.ndarray]:
        return [(x != t) & k for x, t, k in zip(labels, true, known, strict=True)]

    wrong = errors(after)
    then = errors(before) if before is not None else []
    sure = [_sure(track, smooth[i]) for i in videos]
    return Balance(
        track=track,
        names=tuple(names),
        annotated=_minutes(present, unit),
        segments=segments,
        raw=None if before is None else shown(before),
        stabilized=shown(after),
        corrected=sum(float((a & ~b).sum()) for a, b in zip(then, wrong, strict=False)) * unit,
        spoiled=sum(float((b & ~a).sum()) for a, b in zip(then, wrong, strict=False)) * unit,
        videos=videos,
        minutes=np.array([k.sum() for k in known]) * unit,
        wrong=np.stack([[x.sum() for x in then] or np.full(len(videos), np.nan), [x.sum() for x in wrong]], 1) * unit,
        right_if_sure=_right(wrong, [k & s for k, s in zip(known, sure, strict=True)]),
        right_if_unsure=_right(wrong, [k & ~s for k, s in zip(known, sure, strict=True)]),
    )


def balance_rows(b: Balance) -> list[dict[str, Any]]:
    """Return one plain row per class and system: annotated, missed and wrongly shown minutes, and segments."""
    kinds = np.array([s.kind for s in b.segments], int)
    return [
        {
            "track": b.track,
            "class": name,
            "system": system,
            "annotated_minutes": float(b.annotated[c]),
            "missed_minutes": float(shown.missed[c]),
            "wrongly_shown_minutes": float(shown.wrong[c]),
            "annotated_segments": int((kinds == c).sum()),
            "recognized_segments": int(shown.found[kinds == c].sum()),
            "extra_segments": int(shown.extra[c]),
            "videos": len(b.videos),
        }
        for c, name in enumerate(b.names)
        for system, shown in (("M", b.raw), ("M_H", b.stabilized))
        if shown is not None
    ]


def _columns(track: str, values: np.ndarray) -> np.ndarray:
    """Return labels (n, 1) of phases or (n, K) of tools."""
    return as_phases(values)[:, None] if track == "phases" else as_tools(values)


def _complete(result: Stabilized, track: str) -> list[np.ndarray] | None:
    """Return the recognizer's labels of each video; None if there are several, or it lacks frames or the track."""
    raw = None if result.fused else getattr(result.raw, track)
    labels = None if raw is None else [_columns(track, x) for x in raw]
    return labels if labels is not None and all((x >= 0).all() for x in labels) else None


def _present(track: str, labels: np.ndarray, count: int) -> np.ndarray:
    """Return (n, C) bool: the frames that show each class."""
    return labels == np.arange(count) if track == "phases" else labels == 1


def _sure(track: str, posterior: np.ndarray) -> np.ndarray:
    """Return (n, 1) or (n, K) bool: the model gives its label a probability of at least `SURE`."""
    if track == "phases":
        return posterior.max(-1, keepdims=True) >= SURE
    return np.maximum(posterior, 1 - posterior) >= SURE


def _count(videos: Sequence[np.ndarray]) -> int:
    return sum(changes(x[:, k]) for x in videos for k in range(x.shape[1]))


def _runs(present: np.ndarray) -> list[tuple[int, int, int]]:
    """Return the runs of presence (n, C) as (class, first frame, last frame + 1)."""
    edges = np.diff(np.pad(present.astype(np.int8), ((1, 1), (0, 0))), axis=0)
    starts, ends = np.argwhere(edges.T == 1), np.argwhere(edges.T == -1)
    return [(int(c), int(a), int(b)) for (c, a), (_, b) in zip(starts, ends, strict=True)]


def _shown(shown: list[np.ndarray], true: list[np.ndarray], known: list[np.ndarray], unit: float) -> Shown:
    pairs: list[Any] = list(zip(shown, true, known, strict=True))
    extra = np.zeros(true[0].shape[1], int)
    for x, t, k in pairs:
        annotated = np.broadcast_to(k, x.shape)
        for c, a, b in _runs(x):
            inside = t[a:b, c][annotated[a:b, c]]
            extra[c] += bool(inside.size) and inside.mean() < 0.5
    return Shown(
        missed=_minutes([t & ~x for x, t, _ in pairs], unit),
        wrong=_minutes([x & ~t & k for x, t, k in pairs], unit),
        found=np.array([x[a:b, c].mean() >= 0.5 for x, t, _ in pairs for c, a, b in _runs(t)], bool),
        extra=extra,
    )


def _minutes(videos: Sequence[np.ndarray], unit: float) -> np.ndarray:
    """Return the minutes (C,) in which the frames (n, C) of all videos are set."""
    return np.sum([x.sum(0) for x in videos], 0) * unit


def _right(wrong: list[np.ndarray], where: list[np.ndarray]) -> float:
    total = sum(int(w.sum()) for w in where)
    return 1 - sum(int((x & w).sum()) for x, w in zip(wrong, where, strict=True)) / total if total else float("nan")

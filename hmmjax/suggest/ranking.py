"""Rank unlabeled frames by how useful their labels would be."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from hmmjax.io import FormatError, Track, align_classes, natural
from hmmjax.io.labels import merge_labels

#: "positive": the tool is probably present, and few positive labels of it are known.
#: "disagreement": the recognizer and the stabilized result differ.
#: "uncertain": the posterior has high entropy.
REASONS = ("positive", "disagreement", "uncertain")
#: Posterior probability at or above which a frame is not uncertain.
_SURE = 0.9


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """A question about one frame: is this tool present, or which phase is this?

    Attributes:
        video: name of the video.
        frame: frame number.
        fps: frames per second of the frame counter.
        track: "phases" or "tools".
        name: the tool that is asked about; for phases, the most probable stabilized phase.
        reason: one of `REASONS`.
        score: the score by which frames of this reason are ranked, larger first.
        raw: the recognizer's probability of `name`, NaN if it predicts labels.
        stabilized: the posterior probability of `name`.
        names: all classes of the track, for the file to fill in.
    """

    video: str
    frame: int
    fps: float
    track: str
    name: str
    reason: str
    score: float
    raw: float
    stabilized: float
    names: tuple[str, ...]

    @property
    def second(self) -> float:
        """Time in seconds."""
        return self.frame / self.fps


@dataclasses.dataclass(frozen=True, eq=False)
class _Candidates:
    """All questions about one tool, or about the phase: parallel arrays over (video, frame)."""

    videos: np.ndarray
    frames: np.ndarray
    seconds: np.ndarray
    classes: np.ndarray
    raw: np.ndarray
    stabilized: np.ndarray
    entropy: np.ndarray
    disagreement: np.ndarray
    sure: np.ndarray


def rank(
    raw: Sequence[Track],
    stabilized: Sequence[Track],
    known: Sequence[Track] = (),
    *,
    count: int = 10,
    apart: float = 10.0,
    reasons: Iterable[str] = REASONS,
) -> list[Suggestion]:
    """Choose frames to label.

    Args:
        raw: the recognizer's predictions of tools or phases, from `hmmjax.io.read`.
        stabilized: posteriors of the same videos and frames, from stabilized.npz of `hmmjax stabilize`.
        known: labels that are already known, -1 for unlabeled; they are not asked for. Several tracks of one video are
            merged.
        count: number of frames per tool and reason. Of the "positive" frames, a tool with few known positive labels
            gets more than `count`, and a tool with many gets fewer.
        apart: minimum number of seconds between two questions about one class in one video.
        reasons: which of `REASONS` to use.

    Returns:
        Suggestions, sorted by reason, class, and decreasing score.

    Raises:
        FormatError: videos, rates or frames of `raw` and `stabilized` differ, known labels contradict each other, or a
            reason is unknown.
    """
    reasons = tuple(reasons)
    for reason in reasons:
        if reason not in REASONS:
            raise FormatError(f"unknown reason {reason!r}", fix=f"choose among {', '.join(REASONS)}")
    suggestions: list[Suggestion] = []
    for track in ("tools", "phases"):
        pairs, names = _pairs(raw, stabilized, track)
        if not pairs:
            continue
        labels = {t.video: t for t in merge_labels(t.reorder(names) for t in known if t.track == track)}
        if track == "tools":
            topics = [_tool_candidates(pairs, labels, tool) for tool in range(len(names))]
        else:
            topics = [_phase_candidates(pairs, labels)]
        taken: dict[tuple[int, int], list[float]] = {}
        for reason in reasons:
            if track == "phases" and reason == "positive":
                continue
            quota = _quota(labels.values(), len(names), count) if reason == "positive" else [count] * len(topics)
            for topic, candidates in enumerate(topics):
                for row, score in _choose(candidates, reason, quota[topic], apart, taken, topic):
                    after = pairs[int(candidates.videos[row])][1]
                    suggestions.append(
                        Suggestion(
                            video=after.video,
                            frame=int(candidates.frames[row]),
                            fps=after.fps,
                            track=track,
                            name=names[int(candidates.classes[row])],
                            reason=reason,
                            score=score,
                            raw=float(candidates.raw[row]),
                            stabilized=float(candidates.stabilized[row]),
                            names=names,
                        )
                    )
    return sorted(suggestions, key=lambda s: (REASONS.index(s.reason), s.track, s.names.index(s.name), -s.score))


#: Raw and stabilized predictions, one pair per video.
Pairs = list[tuple[Track, Track]]


def _pairs(raw: Sequence[Track], stabilized: Sequence[Track], track: str) -> tuple[Pairs, tuple[str, ...]]:
    before = {t.video: t for t in raw if t.track == track}
    after = {t.video: t for t in stabilized if t.track == track}
    if not before or not after:
        return [], ()
    if set(before) != set(after):
        lone = sorted(set(before) ^ set(after), key=natural)
        raise FormatError(
            f"{lone[0]} has {track} in only one of raw and stabilized predictions", fix="give the same videos in both"
        )
    ordered = sorted(before, key=natural)
    aligned, names = align_classes([before[v] for v in ordered] + [after[v] for v in ordered])
    if names is None:
        names = tuple(f"{track[:-1]} {c}" for c in range(aligned[-1].values.shape[-1]))
    pairs = list(zip(aligned[: len(ordered)], aligned[len(ordered) :], strict=True))
    for a, b in pairs:
        if b.is_labels:
            raise FormatError(
                "this file holds labels, but probabilities are needed", file=b.source, fix="give stabilized.npz"
            )
        if a.fps != b.fps:
            raise FormatError(
                f"{a.video} has {b.fps:g} frames per second here, but {a.fps:g} in {a.source}",
                file=b.source,
                fix="give fps",
            )
        if not np.array_equal(a.frames, b.frames):
            raise FormatError(
                f"the frames of {a.video} are not those of {a.source}",
                file=b.source,
                fix="give the predictions that were stabilized",
            )
    return pairs, names


def _tool_candidates(pairs: Pairs, labels: dict[str, Track], tool: int) -> _Candidates:
    parts = []
    for n, (before, after) in enumerate(pairs):
        outputs, p = before.values[:, tool].astype(float), after.values[:, tool]
        # A missing prediction disagrees with nothing.
        seen = outputs >= 0
        differs = np.where(seen, np.abs(outputs - p) * ((outputs >= 0.5) != (p >= 0.5)), 0.0)
        raw = np.full(len(p), np.nan) if before.is_labels else outputs
        free = ~_known(labels.get(after.video), after, tool)
        entropy = _entropy(np.stack([p, 1 - p], -1))
        video, name = np.full(len(p), n), np.full(len(p), tool)
        sure = np.maximum(p, 1 - p)
        columns = video, after.frames, after.seconds, name, raw, p, entropy, differs, sure
        parts.append([x[free] for x in columns])
    return _Candidates(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _phase_candidates(pairs: Pairs, labels: dict[str, Track]) -> _Candidates:
    parts = []
    for n, (before, after) in enumerate(pairs):
        rows, chosen, predicted = np.arange(len(after.frames)), after.values.argmax(-1), before.labels()
        p = after.values[rows, chosen]
        raw = np.full(len(rows), np.nan) if before.is_labels else before.values[rows, chosen]
        differs = (predicted != chosen) * (predicted >= 0) * (p - after.values[rows, predicted])
        free = ~_known(labels.get(after.video), after, None)
        entropy, video = _entropy(after.values), np.full(len(rows), n)
        columns = video, after.frames, after.seconds, chosen, raw, p, entropy, differs, p
        parts.append([x[free] for x in columns])
    return _Candidates(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _known(labels: Track | None, asked: Track, tool: int | None) -> np.ndarray:
    """Return (n,) bool: the frames of a track at which the tool, or the phase, is labeled."""
    if labels is None or not len(labels.frames):
        return np.zeros(len(asked.frames), bool)
    labels = labels.at_fps(asked.fps)
    values = labels.values if tool is None else labels.values[:, tool]
    return np.isin(asked.frames, labels.frames[values >= 0])


def _entropy(p: np.ndarray) -> np.ndarray:
    """Return the entropy over the last axis, in nats."""
    return -(p * np.log(np.maximum(p, 1e-12))).sum(-1)


def _quota(labels: Iterable[Track], num_tools: int, count: int) -> list[int]:
    """Distribute num_tools * count positive frames over tools; tools with fewer known positive labels get more."""
    have = sum(((t.values == 1).sum(0) for t in labels), np.zeros(num_tools))
    need = 1 / np.sqrt(1 + have)
    exact = need / need.sum() * count * num_tools
    quota = np.floor(exact).astype(int)
    quota[np.argsort(quota - exact, kind="stable")[: count * num_tools - quota.sum()]] += 1
    return quota.tolist()


def _choose(
    candidates: _Candidates,
    reason: str,
    count: int,
    apart: float,
    taken: dict[tuple[int, int], list[float]],
    topic: int,
) -> list[tuple[int, float]]:
    """Choose the best rows for a reason, apart from all rows chosen before on this topic; update `taken`."""
    by_reason = {
        "positive": candidates.stabilized,
        "disagreement": candidates.disagreement,
        # Frames that are almost certain are not worth a question, even if they are the least certain ones.
        "uncertain": np.where(candidates.sure < _SURE, candidates.entropy, 0.0),
    }
    score = by_reason[reason]
    least = 0.5 if reason == "positive" else 0.0
    chosen: list[tuple[int, float]] = []
    for row in np.argsort(-score, kind="stable"):
        if len(chosen) == count or score[row] <= least:
            break
        near = taken.setdefault((int(candidates.videos[row]), topic), [])
        if any(abs(candidates.seconds[row] - second) < apart for second in near):
            continue
        near.append(float(candidates.seconds[row]))
        chosen.append((int(row), float(score[row])))
    return chosen

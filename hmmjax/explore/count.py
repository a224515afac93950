"""Count presence, proportions, durations, orders and transitions in annotations."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hmmjax import io
from hmmjax.io import FormatError, Track, Video
from hmmjax.io.grid import Placement, common_step, describe, place


@dataclasses.dataclass(frozen=True, eq=False)
class Exploration:
    """Counts of annotations; arrays of a track without annotations are None.

    Attributes:
        ids: (B,) video identifiers.
        step_seconds: seconds per step.
        frames: (B,) number of frames.
        phase_names: (L,) phase names, or None.
        tool_names: (K,) tool names, or None.
        phase_frames: (B, L) number of frames of each phase.
        phase_moves: (L, L) number of steps from one phase (row) to the next (column), including itself.
        phase_ends: (L,) number of videos that end in each phase.
        orders: orders of first appearance of phases, with the number of videos, most frequent first.
        tool_frames: (B, K) number of frames with each tool.
        tool_known: (B, K) number of frames in which the tool is annotated.
        tools_by_phase: (L, K) number of frames with each tool in each phase.
        known_by_phase: (L, K) number of frames in which phase and tool are annotated.
        tools_at_once: (K + 1,) number of frames with 0, 1, ..., K tools, among those with all tools annotated.
        tool_moves: (K, L, 2, 2) transitions of each tool by the phase of the later frame; (K, 2, 2) without phases.
        notices: messages for the user.
    """

    ids: tuple[str, ...]
    step_seconds: float
    frames: np.ndarray
    phase_names: tuple[str, ...] | None
    tool_names: tuple[str, ...] | None
    phase_frames: np.ndarray | None
    phase_moves: np.ndarray | None
    phase_ends: np.ndarray | None
    orders: tuple[tuple[tuple[int, ...], int], ...]
    tool_frames: np.ndarray | None
    tool_known: np.ndarray | None
    tools_by_phase: np.ndarray | None
    known_by_phase: np.ndarray | None
    tools_at_once: np.ndarray | None
    tool_moves: np.ndarray | None
    notices: tuple[str, ...] = ()

    @property
    def phase_transition(self) -> np.ndarray:
        """(L, L) transition probabilities; a phase without transitions stays."""
        assert self.phase_moves is not None
        return _rows(self.phase_moves)

    @property
    def phase_exits(self) -> np.ndarray:
        """(L, L + 1) number of ends of each phase (row) by next phase (column); the last is the operation's end."""
        assert self.phase_moves is not None and self.phase_ends is not None
        left = self.phase_moves * (1 - np.eye(len(self.phase_moves)))
        return np.concatenate([left, self.phase_ends[:, None]], 1)

    @property
    def stay_seconds(self) -> np.ndarray:
        """(L,) seconds in each phase divided by the number of its ends; NaN without ends.

        This is the mean duration if no annotation is missing. If a gap interrupts a phase, its seconds count, but not
        its end.
        """
        assert self.phase_frames is not None
        exits = self.phase_exits.sum(1)
        frames = self.phase_frames.sum(0) * self.step_seconds
        return np.divide(frames, exits, out=np.full(len(exits), np.nan), where=exits > 0)

    @property
    def tool_transition(self) -> np.ndarray:
        """(K, L, 2, 2) or (K, 2, 2) transition probabilities; NaN for rows without observations."""
        assert self.tool_moves is not None
        total = self.tool_moves.sum(-1, keepdims=True)
        return np.divide(self.tool_moves, total, out=np.full(self.tool_moves.shape, np.nan), where=total > 0)


def _rows(counts: np.ndarray) -> np.ndarray:
    total = counts.sum(1, keepdims=True)
    return np.where(total > 0, counts / np.maximum(total, 1), np.eye(len(counts)))


def explore(annotations: Sequence[Track], *, step: float | None = None) -> Exploration:
    """Count what annotations contain.

    Args:
        annotations: tracks from `hmmjax.io.read_annotations`: phases, tools or both.
        step: counter frames per step; None takes the spacing at which both tracks are annotated.

    Returns:
        The counts. Transitions are counted between consecutive frames without missing or unknown labels.

    Raises:
        FormatError: if there are no annotations or none is known, they hold probabilities, videos are annotated at
            different rates and no common step is given, or the step is less than 1.
    """
    if step is not None and step < 1:
        raise FormatError(f"step is {step}", fix="pass a number of frames, at least 1")
    if not annotations:
        raise FormatError("there are no annotations", fix="pass files or folders")
    for track in annotations:
        if not track.is_labels:
            raise FormatError("the file holds probabilities, not labels", file=track.source, fix="pass kind='labels'")
    if not any((track.values >= 0).any() for track in annotations):
        raise FormatError("no frame is labeled", file=annotations[0].source, fix="give annotations with known labels")
    aligned: list[Track] = []
    names: dict[str, tuple[str, ...] | None] = {"phases": None, "tools": None}
    for kind in ("phases", "tools"):
        own = [t for t in annotations if t.track == kind]
        if own:
            tracks, names[kind] = io.align_classes(own)
            aligned += tracks
    videos = io.join(aligned)
    if len(rates := {video.fps for video in videos}) > 1:
        counted = " and ".join(f"{rate:g}" for rate in sorted(rates))
        raise FormatError(f"videos are counted at {counted} frames per second", fix="explore them separately")
    step = common_step(videos) if step is None else step
    num_phases, num_tools = (_num_classes(aligned, names, kind) for kind in ("phases", "tools"))
    placements = [place(video.frames, step) for video in videos]
    moved = describe(videos, placements, step)
    sampled = [_sample(video, placement) for video, placement in zip(videos, placements, strict=True)]
    phases = _count_phases(sampled, num_phases)
    tools = _count_tools(sampled, num_phases, num_tools)
    return Exploration(
        ids=tuple(v.id for v in videos),
        step_seconds=step / videos[0].fps,
        frames=np.array([len(video.follows) + 1 for video in sampled]),
        phase_names=_named(names["phases"], num_phases, "phase", 0),
        tool_names=_named(names["tools"], num_tools, "tool", 1),
        notices=tuple(dict.fromkeys([*(n for x in (*annotations, *videos) for n in x.notices), *moved])),
        **phases,
        **tools,
    )


class _Sampled(NamedTuple):
    """Labels of a video at one frame per step; whether each frame but the first directly follows the one before it."""

    phases: np.ndarray | None
    tools: np.ndarray | None
    follows: np.ndarray


def _sample(video: Video, placement: Placement) -> _Sampled:
    phases, tools = (None if t is None else t.values[placement.keep] for t in (video.phases, video.tools))
    return _Sampled(phases, tools, np.diff(placement.rows) == 1)


def _count_phases(videos: Sequence[_Sampled], num_phases: int) -> dict[str, Any]:
    """Count frames, transitions, final phases and orders."""
    moves, ends = np.zeros((num_phases, num_phases)), np.zeros(num_phases)
    frames = np.zeros((len(videos), num_phases), int)
    orders: Counter[tuple[int, ...]] = Counter()
    for video, count in zip(videos, frames, strict=True):
        p = video.phases
        if p is None:
            continue
        count += np.bincount(p[p >= 0], minlength=num_phases)
        known = video.follows & (p[:-1] >= 0) & (p[1:] >= 0)
        np.add.at(moves, (p[:-1][known], p[1:][known]), 1)
        if p[-1] >= 0:
            ends[p[-1]] += 1
        if (p >= 0).all():
            orders[tuple(dict.fromkeys(p.tolist()))] += 1
    if not num_phases:
        return {"phase_frames": None, "phase_moves": None, "phase_ends": None, "orders": ()}
    return {"phase_frames": frames, "phase_moves": moves, "phase_ends": ends, "orders": tuple(orders.most_common())}


def _count_tools(videos: Sequence[_Sampled], num_phases: int, num_tools: int) -> dict[str, Any]:
    """Count frames and transitions of each tool, per phase if phases are annotated."""
    moves = np.zeros((num_tools, num_phases, 2, 2) if num_phases else (num_tools, 2, 2))
    by_phase, known_by_phase = np.zeros((num_phases, num_tools)), np.zeros((num_phases, num_tools))
    at_once = np.zeros(num_tools + 1)
    frames, known_frames = np.zeros((2, len(videos), num_tools), int)
    for i, video in enumerate(videos):
        p, t = video.phases, video.tools
        if t is None:
            continue
        frames[i], known_frames[i] = (t == 1).sum(0), (t >= 0).sum(0)
        complete = (t >= 0).all(1)
        at_once += np.bincount(t[complete].sum(1), minlength=num_tools + 1)
        for k in range(num_tools):
            known = video.follows & (t[:-1, k] >= 0) & (t[1:, k] >= 0)
            if num_phases == 0:
                np.add.at(moves[k], (t[:-1, k][known], t[1:, k][known]), 1)
            elif p is not None:
                known &= p[1:] >= 0
                np.add.at(moves[k], (p[1:][known], t[:-1, k][known], t[1:, k][known]), 1)
        for q in range(num_phases if p is not None else 0):
            by_phase[q] += (t[p == q] == 1).sum(0)
            known_by_phase[q] += (t[p == q] >= 0).sum(0)
    both = num_phases and num_tools
    return {
        "tool_frames": frames if num_tools else None,
        "tool_known": known_frames if num_tools else None,
        "tools_by_phase": by_phase if both else None,
        "known_by_phase": known_by_phase if both else None,
        "tools_at_once": at_once if num_tools else None,
        "tool_moves": moves if num_tools else None,
    }


def _num_classes(tracks: Sequence[Track], names: dict[str, tuple[str, ...] | None], kind: str) -> int:
    own = [t for t in tracks if t.track == kind]
    if not own:
        return 0
    if names[kind] is not None:
        return len(names[kind] or ())
    return max(t.num_classes or int(t.values.max(initial=0)) + 1 for t in own)


def _named(names: tuple[str, ...] | None, count: int, what: str, start: int) -> tuple[str, ...] | None:
    if not count:
        return None
    return names or tuple(f"{what} {i + start}" for i in range(count))

"""Count: presence, proportions, durations, orders, transitions."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np

from hmmjax import io
from hmmjax.io import FormatError, Track, Video
from hmmjax.io.batch import most_common_step


@dataclasses.dataclass(frozen=True, eq=False)
class Exploration:
    """What annotations say; arrays that need a track without any annotation are None.

    Attributes:
        ids: (B,) the videos.
        step_seconds: seconds from one annotated frame to the next.
        frames: (B,) annotated frames.
        phase_names: (L,) or None.
        tool_names: (K,) or None.
        phase_frames: (B, L) frames of each phase in each video.
        phase_moves: (L, L) how often a phase (row) is followed by a phase (column) at the next step.
        phase_ends: (L,) videos whose last frame is in each phase: a stay that the end of the operation ended.
        orders: phase orders without repetition, each with the number of videos that have it, most frequent first.
        tool_frames: (B, K) frames with each tool.
        tool_known: (B, K) frames in which the tool is annotated.
        tools_by_phase: (L, K) frames with each tool in each phase.
        known_by_phase: (L, K) frames in which both are annotated.
        tools_at_once: (K + 1,) frames with so many tools, where all are annotated.
        tool_moves: (K, L, 2, 2) transitions of each tool by the phase moved into; (K, 2, 2) without phases.
        notices: what a person should know.
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
        """(L, L) shares of `phase_moves`; a phase that nothing follows stays."""
        assert self.phase_moves is not None
        return _rows(self.phase_moves)

    @property
    def phase_exits(self) -> np.ndarray:
        """(L, L + 1) how stays of each phase (row) ended: in which phase (column), last with the operation."""
        assert self.phase_moves is not None and self.phase_ends is not None
        left = self.phase_moves * (1 - np.eye(len(self.phase_moves)))
        return np.concatenate([left, self.phase_ends[:, None]], 1)

    @property
    def stay_seconds(self) -> np.ndarray:
        """(L,) seconds in a phase over the number of its stays that ended; NaN where none did.

        The mean length of a stay where no annotation is missing; where some is, a stay cut by a gap adds its seconds
        and no end.
        """
        assert self.phase_frames is not None
        exits = self.phase_exits.sum(1)
        frames = self.phase_frames.sum(0) * self.step_seconds
        return np.divide(frames, exits, out=np.full(len(exits), np.nan), where=exits > 0)

    @property
    def tool_transition(self) -> np.ndarray:
        """(K, L, 2, 2) or (K, 2, 2) shares of `tool_moves`; NaN where a row was never seen."""
        assert self.tool_moves is not None
        total = self.tool_moves.sum(-1, keepdims=True)
        return np.divide(self.tool_moves, total, out=np.full(self.tool_moves.shape, np.nan), where=total > 0)


def _rows(counts: np.ndarray) -> np.ndarray:
    total = counts.sum(1, keepdims=True)
    return np.where(total > 0, counts / np.maximum(total, 1), np.eye(len(counts)))


def explore(annotations: Sequence[Track], *, step: int | None = None) -> Exploration:
    """Count what annotations say.

    Args:
        annotations: tracks from `hmmjax.io.read_annotations`, phases, tools or both.
        step: counter frames from one frame to the next; None is the spacing at which both tracks are annotated.

    Returns:
        Counts. Consecutive frames count as a move only where no frame is missing or unknown between them.

    Raises:
        FormatError: no annotation, probabilities, videos annotated at different rates without a step that they share,
            or a step that is none.
    """
    if step is not None and step < 1:
        raise FormatError(f"a step of {step} frames", fix="give at least 1")
    if not annotations:
        raise FormatError("no annotations", fix="give files or folders")
    for track in annotations:
        if not track.is_labels:
            raise FormatError("labels are explored, not probabilities", file=track.source, fix="say kind='labels'")
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
        raise FormatError(f"videos count {counted} frames per second", fix="explore them apart")
    step = _spacing(videos) if step is None else step
    num_phases, num_tools = (_count(aligned, names, kind) for kind in ("phases", "tools"))
    phase_moves = np.zeros((num_phases, num_phases))
    tool_moves = np.zeros((num_tools, num_phases, 2, 2) if num_phases else (num_tools, 2, 2))
    phase_ends = np.zeros(num_phases)
    by_phase, known_by = np.zeros((num_phases, num_tools)), np.zeros((num_phases, num_tools))
    at_once = np.zeros(num_tools + 1)
    kept, phase_frames, tool_frames, tool_known = [], [], [], []
    orders: Counter[tuple[int, ...]] = Counter()
    for video in videos:
        keep = (video.frames - video.frames[0]) % step == 0
        frames = video.frames[keep]
        kept.append(len(frames))
        follows = np.diff(frames) == step
        p = None if video.phases is None else video.phases.values[keep]
        t = None if video.tools is None else video.tools.values[keep]
        if p is not None:
            phase_frames.append(np.bincount(p[p >= 0], minlength=num_phases))
            both = follows & (p[:-1] >= 0) & (p[1:] >= 0)
            np.add.at(phase_moves, (p[:-1][both], p[1:][both]), 1)
            if p[-1] >= 0:
                phase_ends[p[-1]] += 1
            if (p >= 0).all():
                orders[tuple(dict.fromkeys(p.tolist()))] += 1
        else:
            phase_frames.append(np.zeros(num_phases, int))
        if t is None:
            tool_frames.append(np.zeros(num_tools, int))
            tool_known.append(np.zeros(num_tools, int))
            continue
        tool_frames.append((t == 1).sum(0))
        tool_known.append((t >= 0).sum(0))
        whole = (t >= 0).all(1)
        at_once += np.bincount(t[whole].sum(1), minlength=num_tools + 1)
        for k in range(num_tools):
            both = follows & (t[:-1, k] >= 0) & (t[1:, k] >= 0)
            if num_phases == 0:
                np.add.at(tool_moves[k], (t[:-1, k][both], t[1:, k][both]), 1)
            elif p is not None:
                both &= p[1:] >= 0
                np.add.at(tool_moves[k], (p[1:][both], t[:-1, k][both], t[1:, k][both]), 1)
        if p is not None:
            for q in range(num_phases):
                by_phase[q] += (t[p == q] == 1).sum(0)
                known_by[q] += (t[p == q] >= 0).sum(0)
    return Exploration(
        ids=tuple(v.id for v in videos),
        step_seconds=step / videos[0].fps,
        frames=np.array(kept),
        phase_names=_named(names["phases"], num_phases, "phase", 0),
        tool_names=_named(names["tools"], num_tools, "tool", 1),
        phase_frames=np.array(phase_frames) if num_phases else None,
        phase_moves=phase_moves if num_phases else None,
        phase_ends=phase_ends if num_phases else None,
        orders=tuple(orders.most_common()),
        tool_frames=np.array(tool_frames) if num_tools else None,
        tool_known=np.array(tool_known) if num_tools else None,
        tools_by_phase=by_phase if num_phases and num_tools else None,
        known_by_phase=known_by if num_phases and num_tools else None,
        tools_at_once=at_once if num_tools else None,
        tool_moves=tool_moves if num_tools else None,
        notices=tuple(dict.fromkeys(n for x in (*annotations, *videos) for n in x.notices)),
    )


def _spacing(videos: Sequence[Video]) -> int:
    """The frames from one row to the next, which must be the same in all videos: minutes are counted in them."""
    found: dict[int, str] = {}
    for video in videos:
        if own := most_common_step(video.frames):
            found.setdefault(own, video.id)
    if len(found) > 1:
        rows = " and ".join(f"each {own} frames in {video}" for own, video in found.items())
        raise FormatError(
            f"videos are annotated at different rates ({rows})",
            fix="say a step that all of them have (--step), or explore them apart",
        )
    return next(iter(found), 1)


def _count(tracks: Sequence[Track], names: dict[str, tuple[str, ...] | None], kind: str) -> int:
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

"""Place rows on regular time steps, and match rows of two files by time.

Frame numbers are whole, time steps need not be: one row per second of a video at 29.97 frames per second has the frame
numbers 0, 30, ..., 570, 599. Rows therefore belong to the nearest step, and rows of two files to each other if they
are nearest in time, up to half a step.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.tracks import Video

MOST_LEFT_OUT = 0.05
"""Largest fraction of a video's rows that may be left out because another row is nearer to their step."""

MOST_MOVED = 0.5
"""Largest fraction of annotated rows that may lie a frame or more away from the predicted frame they belong to."""

#: Largest relative difference of two videos' steps that counts as rounding.
_SAME = 0.01


class Placement(NamedTuple):
    """Rows of one video on time steps.

    Attributes:
        keep: (n,) bool; rows that are left out because another one is nearer to the same step are False.
        rows: positions of the rows that are kept, increasing, the first 0.
        moved: number of kept rows that lie more than a frame away from their step.
        farthest: largest distance of a kept row from its step, in frames.
    """

    keep: np.ndarray
    rows: np.ndarray
    moved: int
    farthest: float

    @property
    def left_out(self) -> int:
        """Number of rows that are left out."""
        return int((~self.keep).sum())


def most_common_step(frames: np.ndarray) -> int:
    """Return the most common difference of consecutive frame numbers; 0 for a single frame.

    Args:
        frames: (n,) increasing frame numbers.

    Returns:
        The difference; the smallest of equally common ones.
    """
    differences, counts = np.unique(np.diff(frames), return_counts=True)
    return int(differences[counts.argmax()]) if counts.size else 0


def row_step(frames: np.ndarray, fps: float) -> float:
    """Return the counter frames per row, a fraction if rows are not a whole number of frames apart; 0 for one row.

    Args:
        frames: (n,) increasing frame numbers.
        fps: frames per second of the counter.

    Returns:
        The most common distance if all distances are multiples of it, apart from a few rows between the others.
        Otherwise, as frame numbers are rounded or rows jitter, the mean distance of neighboring rows, or the distance
        that makes the time between rows, or the number of rows per second, a whole number, if that is the same up to
        rounding.
    """
    common = most_common_step(frames)
    distances = np.diff(frames)
    if not common or not (distances % common).any():
        return float(common)
    apart = np.abs(distances - np.maximum(np.rint(distances / common), 1) * common)
    if (apart == 0).mean() >= 0.5 and (apart > 1).sum() > 0.5 * (apart > 0).sum():
        return float(common)
    if (apart <= 1).mean() < 0.5:
        # Rows jitter: no distance is typical, but their median is close to the step.
        return _whole_rate(float(np.median(distances)), fps, 0.05)
    near = distances[(distances > common / 2) & (distances < 1.5 * common)]
    step, steps = float(near.mean()), near.size
    for _ in range(2):
        # Distances over short gaps tell the step more precisely: numbers are rounded only at their ends.
        counts = np.maximum(np.rint(distances / step), 1)
        short = counts <= 8
        step, steps = float(distances[short].sum() / counts[short].sum()), int(counts[short].sum())
    return _whole_rate(step, fps, max(1e-3, 2 / (steps * step)))


def _whole_rate(step: float, fps: float, tolerance: float) -> float:
    """Return the step of a whole number of seconds, or of rows per second, if it is the same up to a tolerance."""
    seconds = step / fps
    whole = round(seconds) if seconds >= 0.9 else 1 / round(1 / seconds)
    return whole * fps if abs(whole - seconds) <= seconds * tolerance else step


def common_step(videos: Sequence[Video]) -> float:
    """Return the counter frames per row, which must be the same in all videos up to rounding; 1 without two rows.

    Raises:
        FormatError: videos differ in the distance of their rows.
    """
    found = [(step, len(v.frames), v) for v in videos if (step := row_step(v.frames, v.fps))]
    if not found:
        return 1.0
    step, _, most = max(found, key=lambda f: f[1])
    for other, _, video in found:
        if abs(other - step) > (_SAME * step if other % 1 or step % 1 else 0):
            first, second = sorted([(most, step), (video, other)], key=lambda pair: videos.index(pair[0]))
            raise FormatError(
                f"{first[0].id} has one row per {first[1]:g} frames, {second[0].id} one per {second[1]:g}",
                fix="read each with its own fps, or pass the step to use (step=)",
            )
    return step


def place(frames: np.ndarray, step: float) -> Placement:
    """Put rows on the nearest time steps, counted from the first row; of several rows the nearest is kept.

    If rows are denser than steps, a step takes the row that is nearest to it.

    Args:
        frames: (n,) increasing frame numbers, at least one.
        step: counter frames per time step.
    """
    exact = (frames - frames[0]) / step
    exact = exact - _phase(exact, step)
    rows = np.floor(exact + 0.5).astype(np.int64)
    keep = np.ones(frames.size, bool)
    if is_denser(frames, step):
        keep = np.abs(exact - rows) * step <= float(np.median(np.diff(frames))) / 2
        keep[keep] = np.append(True, np.diff(rows[keep]) > 0)
    elif frames.size > 1 and (np.diff(rows) == 0).any():
        # Frame numbers are rounded, so half a step may be a frame more.
        rows, keep = _resolve(exact.tolist(), min(0.5 + 1 / step, 0.6) + 1e-9)
    apart = np.abs(exact - rows)[keep] * step
    return Placement(keep, rows[keep], int((apart > 1).sum()), float(apart.max(initial=0)))


def is_denser(frames: np.ndarray, step: float) -> bool:
    """Whether rows are so much denser than time steps that most of them belong to none."""
    return frames.size > 1 and float(np.quantile(np.diff(frames), 0.9)) < step / 1.5


def _phase(exact: np.ndarray, step: float) -> float:
    """Return how far, in steps, most rows lie from steps counted from the first row, which may jitter too."""
    apart = np.abs(exact - np.rint(exact)) * step
    if not (apart > 1).any() or is_denser(exact * step, step):
        return 0.0
    mean = np.exp(2j * np.pi * exact).mean()
    return float(np.angle(mean) / (2 * np.pi)) if np.abs(mean) > 0.15 else 0.0


def _resolve(exact: list[float], half: float) -> tuple[np.ndarray, np.ndarray]:
    """Return steps, and which rows are kept, if several rows are nearest to one step; `half` is half a step."""
    rows, keep, last = [0] * len(exact), [True] * len(exact), 0
    for i, x in enumerate(exact[1:], 1):
        row = math.floor(x + 0.5)
        if row <= rows[last] and abs(x - rows[last] - 1) <= half:
            row = rows[last] + 1  # halfway between two steps, as after a restart of the recording
        rows[i] = max(row, rows[last])
        if rows[i] == rows[last]:
            nearer = abs(x - rows[i]) < abs(exact[last] - rows[last])
            keep[last if nearer else i] = False
            last = i if nearer else last
        else:
            last = i
    return np.array(rows, np.int64), np.array(keep)


def describe(videos: Sequence[Video], found: Sequence[Placement], step: float) -> list[str]:
    """Return a notice about rows that do not lie on time steps; raise if too many of a video are left out.

    Args:
        videos: the videos.
        found: their placements.
        step: counter frames per time step.

    Raises:
        FormatError: more than `MOST_LEFT_OUT` of a video's rows are left out.
    """
    pairs = [(v, own) for v, own in zip(videos, found, strict=True) if not is_denser(v.frames, step)]
    denser = [(v, own) for v, own in zip(videos, found, strict=True) if is_denser(v.frames, step)]
    if denser:
        used, rows = (sum(n) for n in zip(*((own.keep.sum(), own.keep.size) for _, own in denser), strict=True))
        return [
            f"{used:,} of {rows:,} rows used, one per {step / denser[0][0].fps:.6g} s ({step:.6g} frames); the rows "
            "between the time steps are left out",
            *describe([v for v, _ in pairs], [own for _, own in pairs], step),
        ]
    if not pairs:
        return []
    videos, found = zip(*pairs, strict=True)
    for video, own in pairs:
        if own.left_out > MOST_LEFT_OUT * video.frames.size:
            raise FormatError(
                f"{video.id}: {own.left_out} of {video.frames.size} rows would be left out, because they are closer "
                f"together than the time step of {step:g} frames",
                file=video.tracks[0].source,
                fix="check fps, or pass a step that fits the distances between rows (step=)",
            )
    total = sum(video.frames.size for video in videos)
    moved, left_out = (sum(getattr(own, name) for own in found) for name in ("moved", "left_out"))
    if not (moved or left_out or step % 1):
        return []
    fps = videos[0].fps
    farthest = max(own.farthest for own in found) / fps
    return [
        f"{total - left_out:,} of {total:,} rows used, one per {step / fps:.6g} s ({step:.6g} frames): {moved:,} moved "
        f"by more than a frame to the nearest step (up to {farthest:.2g} s), {left_out:,} left out"
    ]


def nearest_rows(times: np.ndarray, others: np.ndarray, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Match each time with the nearest of other times.

    Args:
        times: (n,) increasing.
        others: (m,) increasing.
        tolerance: largest distance of a match.

    Returns:
        (n,) bool, which times have a match, and (n,) the position of the nearest other time.
    """
    if not others.size:
        return np.zeros(times.shape, bool), np.zeros(times.shape, np.int64)
    after = np.clip(np.searchsorted(others, times), 0, others.size - 1)
    before = np.maximum(after - 1, 0)
    rows = np.where(np.abs(times - others[before]) <= np.abs(times - others[after]), before, after)
    return np.abs(times - others[rows]) <= tolerance, rows


def match_tolerance(frames: np.ndarray, fps: float, others: np.ndarray, other_fps: float) -> float:
    """Return up to how many seconds apart rows of two files belong together: half the smaller distance of rows."""
    spacings = [most_common_step(x) / rate for x, rate in ((frames, fps), (others, other_fps)) if x.size > 1]
    return 0.5 * (min(spacings) if spacings else 1 / max(fps, other_fps)) - 1e-9

"""Check a copy of Cholec80 (``hmmjax data check cholec80 DIR``).

Compares counts of frames, phase changes, phase orders, tools and their persistence with those of the published labels.
Videos are not read.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax.data.annotations import check_complete, video_files
from hmmjax.data.splits import CHOLEC80_SPLITS
from hmmjax.io import CHOLEC80_PHASES, CHOLEC80_TOOLS, FormatError, Track, join, natural, read_annotations


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Counts over frames with both phase and tools, one frame per second.

    Attributes:
        frames: number of frames by video.
        phase_frames: number of frames per phase.
        phase_missing: per phase, the videos without it.
        phase_changes: (L, L) number of steps from each phase (row) to each phase (column), including itself.
        orders: number of videos by phase order.
        tool_missing: per tool, the videos without it.
        prevalence: fraction of frames with each tool.
        tools_per_frame: number of frames with 0, 1, 2, ... tools.
        stays_on: P(1 -> 1) of each tool.
        stays_off: P(0 -> 0) of each tool.
    """

    frames: dict[str, int]
    phase_frames: list[int]
    phase_missing: list[tuple[str, ...]]
    phase_changes: np.ndarray
    orders: dict[tuple[int, ...], int]
    tool_missing: list[tuple[str, ...]]
    prevalence: np.ndarray
    tools_per_frame: list[int]
    stays_on: np.ndarray
    stays_off: np.ndarray


def statistics(videos: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Statistics:
    """Count the statistics that `differences` compares with the published ones.

    Args:
        videos: by identifier, int phases (n,) and tools (n, K) at one frame per second, none unknown.

    Returns:
        The counts.

    Raises:
        ValueError: if there are no videos.
    """
    num_phases, num_tools = len(CHOLEC80_PHASES), len(CHOLEC80_TOOLS)
    changes = np.zeros((num_phases, num_phases), int)
    pairs = np.zeros((num_tools, 2, 2), int)
    orders: dict[tuple[int, ...], int] = {}
    for phases, tools in videos.values():
        np.add.at(changes, (phases[:-1].astype(int), phases[1:].astype(int)), 1)
        order = tuple(phases[np.flatnonzero(np.diff(phases.astype(int), prepend=-1))].tolist())
        orders[order] = orders.get(order, 0) + 1
        for tool in range(num_tools):
            np.add.at(pairs[tool], (tools[:-1, tool].astype(int), tools[1:, tool].astype(int)), 1)
    all_phases = np.concatenate([phases for phases, _ in videos.values()])
    all_tools = np.concatenate([tools for _, tools in videos.values()])

    def without(present: Any, count: int) -> list[tuple[str, ...]]:
        return [tuple(v for v, tracks in videos.items() if not present(tracks, c)) for c in range(count)]

    total = np.maximum(pairs.sum(-1), 1)
    return Statistics(
        frames={video: len(phases) for video, (phases, _) in videos.items()},
        phase_frames=np.bincount(all_phases, minlength=num_phases).tolist(),
        phase_missing=without(lambda tracks, p: (tracks[0] == p).any(), num_phases),
        phase_changes=changes,
        orders=orders,
        tool_missing=without(lambda tracks, k: tracks[1][:, k].any(), num_tools),
        prevalence=all_tools.mean(0),
        tools_per_frame=np.bincount(all_tools.sum(1)).tolist(),
        stays_on=pairs[:, 1, 1] / total[:, 1],
        stays_off=pairs[:, 0, 0] / total[:, 0],
    )


def _names(*numbers: int) -> tuple[str, ...]:
    return tuple(f"video{n:02d}" for n in numbers)


#: Published or counted on the published labels.
PHASE_ROWS = 4_612_532
TOOL_ROWS = 184_498
PHASE_FRAMES = [8574, 74826, 14080, 58433, 7618, 14332, 6635]
PHASE_MISSING = {0: _names(10, 13, 19, 22, 23, 29, 32, 33, 38), 5: _names(21, 50, 65, 69, 71, 75)}
PHASE_CHANGES = {(0, 1): 71, (1, 2): 80, (2, 3): 80, (3, 4): 68, (3, 5): 12, (4, 5): 59, (4, 6): 21, (5, 4): 12}
PHASE_CHANGES |= {(5, 6): 59, (6, 5): 3}
PHASE_CHANGES |= {(p, p): n for p, n in enumerate([8503, 74746, 14000, 58353, 7538, 14258, 6555])}
NUM_ORDERS = 6
TOOL_MISSING = {
    1: _names(21, 40, 44, 50, 69, 71, 75, 76),
    5: _names(4, 12, 13, 21, 27, 34, 36, 48, 50, 55, 56, 61, 67, 69, 70, 71, 75, 78, 80),
}
PREVALENCE = [0.556, 0.048, 0.559, 0.018, 0.032, 0.053, 0.062]
TOOLS_PER_FRAME = [23101, 80190, 78725, 2482]
STAYS_ON = [0.940, 0.926, 0.972, 0.932, 0.952, 0.904, 0.947]
STAYS_OFF = [0.925, 0.996, 0.964, 0.999, 0.998, 0.995, 0.997]
SPLIT_FRAMES = {"40/40": [86_304, 98_194], "32/8/40": [71_000, 15_304, 98_194], "40/8/32": [86_304, 21_437, 76_757]}
SHORTEST, LONGEST = ("video78", 739), ("video58", 5993)


def differences(found: Statistics) -> list[str]:
    """List the differences between counts and those of Cholec80.

    Args:
        found: the counts.

    Returns:
        One line per difference; empty for an exact copy.
    """
    lines: list[str] = []

    def compare(what: str, have: Any, want: Any) -> None:
        if have != want:
            lines.append(f"{what}: {have} found, {want} expected")

    compare("number of videos", len(found.frames), 80)
    compare("frames", sum(found.frames.values()), TOOL_ROWS)
    for video, seconds in (SHORTEST, LONGEST):
        compare(f"frames of {video}", found.frames.get(video), seconds)
    for p, name in enumerate(CHOLEC80_PHASES):
        compare(f"frames of {name}", found.phase_frames[p], PHASE_FRAMES[p])
        compare(f"videos without {name}", found.phase_missing[p], PHASE_MISSING.get(p, ()))
        for q, other in enumerate(CHOLEC80_PHASES):
            compare(f"{name} followed by {other}", int(found.phase_changes[p, q]), PHASE_CHANGES.get((p, q), 0))
    compare("different orders of phases", len(found.orders), NUM_ORDERS)
    for k, name in enumerate(CHOLEC80_TOOLS):
        compare(f"videos without {name}", found.tool_missing[k], TOOL_MISSING.get(k, ()))
        for what, have, want in (
            (f"fraction of frames with {name}", found.prevalence[k], PREVALENCE[k]),
            (f"P(1->1) of {name}", found.stays_on[k], STAYS_ON[k]),
            (f"P(0->0) of {name}", found.stays_off[k], STAYS_OFF[k]),
        ):
            if abs(have - want) > 0.001:  # published to three digits
                compare(what, round(float(have), 4), want)
    compare("frames with 0, 1, ... tools", found.tools_per_frame, TOOLS_PER_FRAME)
    for split, parts in CHOLEC80_SPLITS.items():
        have = [sum(found.frames.get(video, 0) for video in videos) for videos in parts.values()]
        compare(f"frames of the {split} split's parts", have, SPLIT_FRAMES[split])
    return lines


def check(directory: str | os.PathLike[str], *, progress: Callable[[Iterable[str]], Iterable[str]] = iter) -> list[str]:
    """Read the annotations of a copy, and list what there is and how it differs from Cholec80.

    Args:
        directory: the folder that holds phase_annotations/ and tool_annotations/.
        progress: wraps the iteration over videos, for a progress bar.

    Returns:
        How many videos are present, and one line per difference; no more for an exact copy. Counts over all videos
        are compared if all are there.

    Raises:
        FormatError: if a folder is missing, no video has both annotations, or a file is damaged.
    """
    root = Path(directory)
    phase_files, tool_files = (video_files(root / f"{kind}_annotations") for kind in ("phase", "tool"))
    lines = []
    expected = {video for videos in CHOLEC80_SPLITS["40/40"].values() for video in videos}
    for have, where in (phase_files, "phase"), (tool_files, "tool"):
        if missing := sorted(expected - set(have), key=natural):
            more = " ..." if len(missing) > 5 else ""
            lines.append(f"{where}_annotations: {len(missing)} videos have no file: {', '.join(missing[:5])}{more}")
        if surplus := sorted(set(have) - expected, key=natural):
            more = " ..." if len(surplus) > 5 else ""
            some = ", ".join(surplus[:5]) + more
            lines.append(f"{where}_annotations: {len(surplus)} files belong to no video of Cholec80: {some}")
    both_there = sorted(set(phase_files) & set(tool_files), key=natural)
    if not both_there:
        raise FormatError("no video has both phase and tool annotations", file=root, fix="pass the folder of Cholec80")
    lines.insert(0, f"{len(expected & set(both_there))} of {len(expected)} videos present, with phases and tools")
    videos, rows = {}, 0
    for video in progress(both_there):
        phases, tools = _complete(phase_files[video], CHOLEC80_PHASES), _complete(tool_files[video], CHOLEC80_TOOLS)
        rows += len(phases.frames)
        (both,) = join([phases, tools])
        assert both.phases is not None and both.tools is not None
        videos[video] = both.phases.values, both.tools.values
    if set(videos) != expected:
        lines.append(f"number of videos: {len(videos)} found, {len(expected)} expected; other counts are not compared")
        for video, seconds in (SHORTEST, LONGEST):
            if video in videos and len(videos[video][0]) != seconds:
                lines.append(f"frames of {video}: {len(videos[video][0])} found, {seconds} expected")
        return lines
    if rows != PHASE_ROWS:
        lines.append(f"phase rows: {rows} found, {PHASE_ROWS} expected")
    return lines + differences(statistics(videos))


def _complete(file: str, names: tuple[str, ...]) -> Track:
    tracks = read_annotations(file)
    if len(tracks) != 1:
        raise FormatError(
            f"the file has {len(tracks)} tracks, expected one", file=file, fix="keep phases and tools in separate files"
        )
    track = tracks[0].reorder(names)
    check_complete(track)
    return track

"""Features of videos joined with their labels by frame number; a length that is off is named, never cut silently."""

import dataclasses
import sys
from pathlib import Path

import numpy as np

from hmmjax.io import FormatError
from models.data.feature_files import Layout, VideoFeatures, find_features, read_features
from models.data.frames import FrameTable, take


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureRows:
    """The features of labeled frames, gathered from one file per video.

    Attributes:
        table: labels of n frames.
        videos: the videos with features.
        owners: (n,) index into `videos` of each frame, -1 for frames without features.
        places: (n,) row of each frame in its video's features.
    """

    table: FrameTable
    videos: tuple[VideoFeatures, ...]
    owners: np.ndarray
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.table)

    @property
    def width(self) -> int:
        """The length D of a row of features."""
        return self.videos[0].values.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """(n, D)."""
        return len(self), self.width

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return the features (m, D) of some rows (m,) in float32.

        Raises:
            FormatError: for numbers that are not finite.
            ValueError: for rows without features.
        """
        owners, places = self.owners[rows], self.places[rows]
        if (owners < 0).any():
            raise ValueError("these frames have no features. Fix: read them only for the parts that were joined")
        found = np.empty((len(rows), self.width), np.float32)
        for owner in np.unique(owners):
            chosen = owners == owner
            found[chosen] = self.videos[owner].values[places[chosen]]
        if not np.isfinite(found).all():
            video = self.videos[owners[~np.isfinite(found).all(1)][0]]
            raise FormatError("features that are not finite", file=video.path, fix="extract them again")
        return found


def join_features(
    folder: str | Path, table: FrameTable, part: str | None, layout: Layout, *, slack: int = 0
) -> FeatureRows:
    """Join the features of the videos of one part with their labels.

    Args:
        folder: one file per video.
        table: labels; of the videos without a frame in `part`, no features are read.
        part: the part; None takes all videos.
        layout: the meaning of the rows of files that do not state it, except `fps`, which is that of the labels.
        slack: rows that may be missing or surplus at the end of a video. Frames without features are then removed from
            the table, and named on standard error.

    Raises:
        FormatError: if a video has no file, if the lengths of videos and their labels differ by more than `slack`, if
            frames in between have no features, and if videos differ in the length of their rows.
    """
    files = find_features(folder)
    wanted = np.unique(table.videos[table.rows(part)]).tolist()
    if lost := [video for video in wanted if video not in files]:
        raise FormatError(
            f"no features of {len(lost)} of {len(wanted)} videos: {', '.join(lost[:5])}{', ...' * (len(lost) > 5)}; "
            f"the files are of {', '.join(list(files)[:5])}{', ...' * (len(files) > 5)}",
            file=folder,
            fix="name each file after its video, or add the missing ones",
        )
    owners, places = np.full(len(table), -1), np.zeros(len(table), np.int64)
    found, problems, notices = [], [], []
    keep = np.ones(len(table), bool)
    for number, video in enumerate(wanted):
        features = read_features(files[video], dataclasses.replace(layout, fps=table.fps))
        rows = np.flatnonzero(table.videos == video)
        rows = rows[np.argsort(table.frames[rows], kind="stable")]
        place, has, surplus = _align(features, table.frames[rows], table.fps)
        found.append(features)
        owners[rows[has]], places[rows[has]] = number, place[has]
        keep[rows[~has]] = False
        if not has.all() or surplus:
            # Only frames at the end may be missing.
            tolerable = has[: has.sum()].all() and 0 <= max((~has).sum(), surplus) <= slack and has.any()
            off = _describe(features, table.frames[rows], has, surplus)
            (notices if tolerable else problems).append(f"{video}: {off}")
    _check_widths(found)
    if problems:
        raise FormatError(
            f"features and labels of {len(problems)} of {len(wanted)} videos differ in length: "
            f"{'; '.join(problems[:5])}{'; ...' * (len(problems) > 5)}",
            file=folder,
            fix="extract every labeled frame, state data.rate (rows per second), or allow rows that are missing or "
            "surplus at the end of a video with data.slack=N",
        )
    if notices:
        shown = f"{'; '.join(notices[:3])}{'; ...' * (len(notices) > 3)}"
        print(f"{folder}: left out at the end of {len(notices)} of {len(wanted)} videos: {shown}", file=sys.stderr)
    kept = np.flatnonzero(keep)
    return FeatureRows(take(table, kept), tuple(found), owners[kept], places[kept])


def _align(features: VideoFeatures, frames: np.ndarray, fps: float) -> tuple[np.ndarray, np.ndarray, int]:
    """Find labeled frames among a video's rows.

    Returns:
        (n,) row of each labeled frame, (n,) whether it has one, and the number of steps that features continue after
        the last label.

    Raises:
        FormatError: if the frame numbers of features and labels count different frame rates, or the axes are swapped.
    """
    if abs(features.fps - fps) > 0.01 * fps:
        raise FormatError(
            f"the frame numbers count {features.fps:g} frames per second, those of the labels {fps:g}",
            file=features.path,
            fix="write fps and frames as the labels count them",
        )
    count, width = features.values.shape
    if width == len(frames) != count:
        raise FormatError(
            f"the features have shape {(count, width)}, and {width} frames are labeled: rows are channels",
            file=features.path,
            fix="set data.channels_first=true",
        )
    place = np.minimum(np.searchsorted(features.frames, frames), count - 1)
    has = features.frames[place] == frames
    steps = np.diff(frames)
    # Rows after the last label are surplus only if all frames up to it are labeled, one step apart.
    even = len(steps) > 0 and (steps == steps[0]).all()
    surplus = (int(features.frames[-1]) - int(frames[-1])) // int(steps[0]) if even else 0
    return place, has, max(surplus, 0)


def _describe(features: VideoFeatures, frames: np.ndarray, has: np.ndarray, surplus: int) -> str:
    parts = [f"{len(features.frames):,} rows for {len(frames):,} labeled frames"]
    if not has.all():
        parts.append(f"{(~has).sum():,} without features, from frame {frames[~has][0]}")
    if surplus:
        parts.append(f"{surplus:,} surplus after frame {frames[-1]}")
    return ", ".join(parts)


def _check_widths(videos: list[VideoFeatures]) -> None:
    for video in videos:
        if video.values.shape[1] != videos[0].values.shape[1]:
            raise FormatError(
                f"rows of {video.values.shape[1]} numbers, but {videos[0].path.name} has {videos[0].values.shape[1]}",
                file=video.path,
                fix="extract all videos with one encoder; set data.channels_first=true if files are (channels, frames)",
            )

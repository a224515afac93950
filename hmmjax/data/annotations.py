"""Files of annotations: which video each belongs to, and whether it is complete."""

import os
from pathlib import Path

import numpy as np

from hmmjax.io import FormatError, Track, video_id


def video_files(folder: Path, suffixes: tuple[str, ...] = (".txt",)) -> dict[str, str]:
    """The files of a folder by the video that they belong to.

    Raises:
        FormatError: for a missing or empty folder, and for two files of one video.
    """
    if not folder.is_dir():
        raise FormatError("no such folder", file=folder, fix="give the folder that holds videos/ and the annotations")
    # Each video has a time stamp file beside it, which is no annotation.
    shown = [p for p in sorted(folder.iterdir()) if not p.name.startswith(".")]
    files = [p for p in shown if p.suffix.lower() in suffixes and "timestamp" not in p.name]
    found: dict[str, str] = {}
    for path in files:
        twin = found.setdefault(video_id(path.stem), str(path))
        if twin != str(path):
            raise FormatError(f"the same video as {os.path.basename(twin)}", file=path, fix="keep one of them")
    if not found:
        raise FormatError(f"no {' or '.join(suffixes)} file in this folder", file=folder)
    return found


def check_complete(track: Track) -> None:
    """A complete annotation has a row at every step, from frame 0 on, and no unknown label.

    Raises:
        FormatError: naming the line after a gap, or of an unknown label.
    """
    header = int(track.layout.header is not None)

    def line(row: int) -> int:
        """Where a row is in its file, in which blank lines may stand between rows."""
        text = Path(track.source).read_bytes().decode("utf-8-sig").splitlines()
        return [i for i, content in enumerate(text, 1) if content.strip()][row + header]

    fix = "restore the rows, or declare the annotation partial"
    if track.frames[0] != 0:
        raise FormatError(f"begins at frame {track.frames[0]}, not 0", file=track.source, line=line(0), fix=fix)
    steps = np.diff(track.frames)
    if len(steps):
        common = np.median(steps)
        gap = np.flatnonzero(steps != common)
        if len(gap):
            before, after = track.frames[gap[0] : gap[0] + 2]
            raise FormatError(
                f"rows are missing between frames {before} and {after}, elsewhere they are {common:g} apart",
                file=track.source,
                line=line(int(gap[0]) + 1),
                fix=fix,
            )
    unknown = np.flatnonzero((track.values < 0).reshape(len(track.frames), -1).any(1))
    if len(unknown):
        at = line(int(unknown[0]))
        raise FormatError("unknown label in a complete annotation", file=track.source, line=at, fix=fix)

"""Find annotation files by video, and check that they are complete."""

import os
from pathlib import Path

import numpy as np

from hmmjax.io import FormatError, Track, video_id
from hmmjax.io.decode import read_text_file


def video_files(folder: Path, suffixes: tuple[str, ...] = (".txt",)) -> dict[str, str]:
    """Return the files of a folder by video identifier.

    Raises:
        FormatError: if the folder is missing or has no such files, or two files belong to one video.
    """
    if not folder.is_dir():
        raise FormatError(
            "the folder does not exist", file=folder, fix="pass the folder that holds videos/ and the annotations"
        )
    # Cholec80 has a timestamp file per video, which is not an annotation.
    shown = [p for p in sorted(folder.iterdir()) if not p.name.startswith(".")]
    files = [p for p in shown if p.suffix.lower() in suffixes and "timestamp" not in p.name]
    found: dict[str, str] = {}
    for path in files:
        twin = found.setdefault(video_id(path.stem), str(path))
        if twin != str(path):
            raise FormatError(
                f"the file belongs to the same video as {os.path.basename(twin)}", file=path, fix="keep one of them"
            )
    if not found:
        raise FormatError(f"the folder has no {' or '.join(suffixes)} file", file=folder, fix="check the path")
    return found


def check_complete(track: Track) -> None:
    """Raise FormatError unless an annotation starts at frame 0 and has a known label at every step.

    Raises:
        FormatError: naming the line after a gap, or that of an unknown label.
    """
    header = int(track.layout.header is not None)

    def line(row: int) -> int:
        """Return the line number of a row; files may have blank lines."""
        text = read_text_file(track.source).splitlines()
        return [i for i, content in enumerate(text, 1) if content.strip(" \t,;")][row + header]

    fix = "restore the rows, or declare the annotation partial"
    if track.frames[0] != 0:
        raise FormatError(
            f"the annotation begins at frame {track.frames[0]}, not 0", file=track.source, line=line(0), fix=fix
        )
    steps = np.diff(track.frames)
    if len(steps):
        common = np.median(steps)
        gap = np.flatnonzero(steps != common)
        if len(gap):
            before, after = track.frames[gap[0] : gap[0] + 2]
            raise FormatError(
                f"rows are missing between frames {before} and {after}; others are {common:g} frames apart",
                file=track.source,
                line=line(int(gap[0]) + 1),
                fix=fix,
            )
    unknown = np.flatnonzero((track.values < 0).reshape(len(track.frames), -1).any(1))
    if len(unknown):
        at = line(int(unknown[0]))
        raise FormatError("the annotation has an unknown label", file=track.source, line=at, fix=fix)

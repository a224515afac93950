"""The videos of a collection: from a folder, or from a list with their files."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from hmmjax.io import FormatError, natural, video_id
from hmmjax.io.manifest import SUFFIXES, read_manifest

#: Columns of a list of videos that hold files: of both tracks or a video, of phases, of tools.
COLUMNS = {"path": None, "file": None, "phases": "phases", "tools": "tools"}


class Entry(NamedTuple):
    """One video of a collection.

    Attributes:
        video: its name, which the files that are written get.
        paths: its files, and the track that each holds: "phases", "tools", or None for both, or for images.
    """

    video: str
    paths: tuple[tuple[str | None, str], ...]


def find_entries(place: str, suffixes: Collection[str], address: str | None = None, out: str = "") -> list[Entry]:
    """Return the videos of a collection, in natural order of their names.

    Args:
        place: a folder, whose files are grouped by the video that their names tell, also in subfolders; or a list of
            videos (csv, tsv, json, jsonl) with a column "video" and one of `COLUMNS`, whose files are relative to
            the list, absolute, or addresses such as gs://bucket/file.
        suffixes: of the files of a folder that are taken.
        address: where the list is from, if `place` is a copy of it.
        out: the folder of results, which is passed over if it is inside `place`.

    Raises:
        FormatError: there are no videos, two entries have the same name, or an entry has no file.
    """
    path = Path(place)
    if path.is_dir():
        return _of_folder(path, suffixes, Path(out) if out and "://" not in out else None)
    if path.suffix.lower() not in SUFFIXES:
        raise FormatError(
            "neither a folder nor a list of videos", file=place, fix=f"give a folder, or a list ({', '.join(SUFFIXES)})"
        )
    found = []
    for row in read_manifest(path):
        given = [(COLUMNS[key], str(row[key])) for key in COLUMNS if row.get(key)]
        if not given:
            raise FormatError(
                f"{row['video']} has no file", file=place, fix=f"give it in one of the columns {', '.join(COLUMNS)}"
            )
        places = tuple((track, _resolved(file, address or place)) for track, file in given)
        found.append(Entry(video_id(row["video"]), places))
    names = [entry.video for entry in found]
    if twice := sorted({name for name in names if names.count(name) > 1}, key=natural):
        raise FormatError(
            f"{len(twice)} video(s) are listed twice: {', '.join(twice[:5])}", file=place, fix="keep one row per video"
        )
    return sorted(found, key=lambda entry: natural(entry.video))


def _resolved(file: str, listed_in: str) -> str:
    """Return the place of a file that a list names."""
    if "://" in file or "://" not in listed_in:
        return file if "://" in file else str(Path(listed_in).parent / file)
    return file if file.startswith("/") else f"{listed_in.rpartition('/')[0]}/{file}"


def _of_folder(folder: Path, suffixes: Collection[str], out: Path | None) -> list[Entry]:
    groups: dict[str, list[tuple[str | None, str]]] = {}
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        is_result = out is not None and out.resolve() in path.resolve().parents and out.resolve() != folder.resolve()
        if path.suffix.lower() in suffixes and path.is_file() and not hidden and not is_result:
            groups.setdefault(video_id(path.name), []).append((None, str(path)))
    if not groups:
        raise FormatError("no files of videos here", file=folder, fix=f"give a folder with {', '.join(suffixes)}")
    return [Entry(video, tuple(groups[video])) for video in sorted(groups, key=natural)]

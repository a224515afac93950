"""Video identifiers: derive them from file names, sort and rename videos by them."""

import dataclasses
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from hmmjax.io.errors import FormatError
from hmmjax.io.tracks import Track

_SUFFIX = re.compile(
    r"[-_. ]*(phases?|tools?|pred(ictions?)?|gt|labels?|probs?|logits?|scores?|annotations?|image[-_]test|"
    r"stabili[sz]ed|timestamps?)$",
    re.IGNORECASE,
)


def video_id(name: str) -> str:
    """Return a video's identifier from a file name or NPZ key, regardless of the naming scheme.

    "video41-phase.txt", "video-41.txt", "VID41" and "41" all become "video41". Prefixes that number other recordings
    are kept: "workflow_video_02_pred.txt" becomes "workflow02", "tool_video_11_image_test.csv" becomes "tool11".

    Args:
        name: a file name, a path, or the name of an array.

    Returns:
        The identifier. A name that does not end in a number is returned without its suffixes.
    """
    # File systems differ in whether they split accented letters.
    name = unicodedata.normalize("NFC", PurePath(name).name).strip()
    stem = re.sub(r"(\.(txt|csv|tsv|npz|npy|png|json|xml|eaf|mp4))+$", "", name, flags=re.IGNORECASE).strip()
    while (shorter := _SUFFIX.sub("", stem)) and shorter != stem:
        stem = shorter
    match = re.fullmatch(r"(.*?)[-_ ]*(\d+)", stem)
    if not match:
        return stem
    prefix, number = match.groups()
    prefix = re.sub(r"(?<![a-z])(video|vid)$", "", prefix, flags=re.IGNORECASE)
    # A separator between two numbers is kept: "1_11" and "11_1" are different videos.
    parts = re.split(r"[-_ ]+", prefix.lower())
    prefix = ""
    for part in (*filter(None, parts), f"{int(number):02d}"):
        prefix += f"_{part}" if prefix[-1:].isdigit() and part[0].isdigit() else part
    return prefix if not prefix.isdigit() else f"video{prefix}"


def ids_of_paths(file: str, paths: Sequence[tuple[int, str]]) -> list[str]:
    """Return the identifiers of the videos that a column or document names, by path or name.

    Args:
        file: the file that names them, for error messages.
        paths: the line number and the path of each row; folders are separated by slashes or backslashes.

    Returns:
        One identifier per row.

    Raises:
        FormatError: videos in different folders have the same identifier.
    """
    known: dict[str, str] = {}  # identifier by path
    folders: dict[str, tuple[str, str]] = {}  # folder and path, by identifier
    for line, path in paths:
        if path in known:
            continue
        folder, _, name = path.replace("\\", "/").rpartition("/")
        video = video_id(re.sub(r"\.\w{2,4}$", "", name))
        known[path] = video
        other, first = folders.setdefault(video, (folder, path))
        if other != folder:
            raise FormatError(
                f"{first!r} and {path!r} would both be {video}",
                file=file,
                line=line,
                fix="give the videos different names, or write a file per video, and pass rename for one of them",
            )
    return [known[path] for _, path in paths]


def check_video_names(file: str, paths: Sequence[tuple[int, str]], ids: Sequence[str]) -> list[str]:
    """Return notices about different names in a column that are taken for one video; raise for a blank one.

    Args:
        file: the file, for messages.
        paths: the line number and the name of each row's video.
        ids: the identifier of each of them.

    Raises:
        FormatError: a row names no video; names the line.
    """
    names: dict[str, list[str]] = {}
    for (line, name), video in zip(paths, ids, strict=True):
        if not name:
            raise FormatError("the row names no video", file=file, line=line, fix="fill the cell in, or remove the row")
        if name not in names.setdefault(video, []):
            names[video].append(name)
    return [
        f"{file}: {' and '.join(map(repr, own[:3]))} are taken for one video, {video}; if they are several, give them "
        "different names"
        for video, own in names.items()
        if len(own) > 1
    ]


def array_suffix(video: str) -> str:
    """Return the suffix of a video's arrays in an NPZ ("41" in "phases_41").

    Args:
        video: a video identifier.

    Returns:
        The number of "video41", else the whole identifier; `video_id` maps it back to the identifier.
    """
    number = video.removeprefix("video")
    return number if video_id(number) == video else video


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that orders video9 before video10.

    Args:
        name: the name of a file or a video.

    Returns:
        One tuple per run of digits or of other characters; case is ignored.
    """
    return [(0, int(part), "") if part.isdigit() else (1, 0, part.lower()) for part in re.split(r"(\d+)", name) if part]


def rename_videos(tracks: Sequence[Track], names: Mapping[str, str]) -> list[Track]:
    """Rename some videos.

    Args:
        tracks: tracks from `read`.
        names: new names by old name, for instance ``{"tool_video_11": "video61"}``.

    Returns:
        The tracks, in the same order.

    Raises:
        FormatError: if an old name matches no video, or if two tracks then belong to the same video.
    """
    result = renamed(tracks, names)
    check_no_duplicates(result)
    return result


def renamed(tracks: Sequence[Track], names: Mapping[str, str]) -> list[Track]:
    """Rename some videos without checking for duplicates."""
    wanted = {video_id(old): video_id(new) for old, new in names.items()}
    missing = set(wanted) - {track.video for track in tracks}
    if missing:
        have = ", ".join(dict.fromkeys(track.video for track in tracks))
        raise FormatError(f"no video {', '.join(sorted(missing))} to rename", fix=f"choose among {have}")
    return [dataclasses.replace(track, video=wanted.get(track.video, track.video)) for track in tracks]


def check_no_duplicates(tracks: Sequence[Track]) -> None:
    """Raise FormatError if two tracks hold the same track of the same video."""
    seen: dict[tuple[str, str], Track] = {}
    for track in tracks:
        other = seen.setdefault((track.video, track.track), track)
        if other is not track:
            raise FormatError(
                f"{track.track} of {track.video} were already read from {other.source}"
                + (f" (array {other.layout.key} there, {track.layout.key} here)" if track.layout.key else ""),
                file=track.source,
                fix="pass one file per video and track, or rename one of the videos",
            )

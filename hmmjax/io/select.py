"""Choose some of the videos by number."""

import re
from collections.abc import Sequence

from hmmjax.io.errors import FormatError
from hmmjax.io.records import Track
from hmmjax.io.spec import video_id


def select(tracks: Sequence[Track], videos: str | None) -> list[Track]:
    """The tracks of some videos only.

    Args:
        tracks: from `read`.
        videos: numbers, ranges and identifiers, separated by commas: ``"1-40"``, ``"41-60,62"``, ``"workflow02"``.
            A number means every video that ends in it. None is all.

    Returns:
        The tracks of those videos, in the order given.

    Raises:
        FormatError: when a part of it names no video.
    """
    if videos is None:
        return list(tracks)
    chosen: set[str] = set()
    names = {track.video for track in tracks}
    for part in filter(None, (part.strip() for part in videos.split(","))):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match:
            low, high = int(match[1]), int(match[2] or match[1])
            found = {name for name in names if (n := re.search(r"(\d+)$", name)) and low <= int(n[1]) <= high}
        else:
            found = names & {video_id(part)}
        if not found:
            raise FormatError(f"no video {part}", fix=f"the videos are {', '.join(sorted(names))}")
        chosen |= found
    if not chosen:
        raise FormatError(f"no video {videos}", fix=f"the videos are {', '.join(sorted(names))}")
    return [track for track in tracks if track.video in chosen]

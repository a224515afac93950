"""Cholec80: 80 cholecystectomies at 25 fps, a phase row for every frame and a tool row for every 25th.

videos/video01.mp4 ... video80.mp4
phase_annotations/video01-phase.txt ...
tool_annotations/video01-tool.txt ...
"""

import os
from pathlib import Path

from hmmjax.data.annotations import video_files
from hmmjax.data.splits import Parts
from hmmjax.io import CHOLEC80_PHASES, CHOLEC80_TOOLS, FormatError, natural, video_id
from models.data.collections import Collection, Recording

FPS = 25.0


def cholec80(
    directory: str | os.PathLike[str],
    *,
    split: Parts | None = None,
    images: str | os.PathLike[str] | None = None,
    naming: str | None = None,
    rate: float = 1.0,
    pictures: bool = True,
) -> Collection:
    """Open a copy of Cholec80, or of anything laid out like it.

    Args:
        directory: holds videos/, phase_annotations/ and tool_annotations/.
        split: names the parts, see `splits.cholec80_split`; videos outside it are left out.
        images: folder with one subfolder of dumped pictures per video, in place of videos/.
        naming: what the numbers in the pictures' names count, see `video_images.find_images`.
        rate: frames per second to use.
        pictures: False opens annotations only, without looking for videos.

    Raises:
        FormatError: when folders are missing, when the three folders do not hold the same videos, or when the split
            names a video that is not there.
    """
    root = Path(directory)
    phases = video_files(root / "phase_annotations", (".txt",))
    tools = video_files(root / "tool_annotations", (".txt",))
    if images is not None:
        shown = {video_id(p.name): str(p) for p in sorted(Path(images).iterdir()) if p.is_dir()}
    else:
        shown = video_files(root / "videos", (".mp4", ".avi", ".mkv")) if pictures else phases
    pairs = (phases, tools, "tool_annotations"), (phases, shown, "videos"), (tools, phases, "phase_annotations")
    for have, other, where in pairs:
        missing = sorted(set(have) - set(other), key=natural)
        if missing:
            raise FormatError(f"{where} has no file of {', '.join(missing[:5])}", file=root, fix="complete the copy")
    part_of = {video: part for part, videos in (split or {}).items() for video in videos}
    lost = sorted(set(part_of) - set(phases), key=natural)
    if lost:
        raise FormatError(f"the split names {', '.join(lost[:5])}, not among the videos", file=root)
    recordings = tuple(
        Recording(
            id=video,
            video=shown[video] if pictures and images is None else None,
            images=shown[video] if images is not None else None,
            naming=naming,
            phases=phases[video],
            tools=tools[video],
            fps=FPS,
            part=part_of.get(video, ""),
        )
        for video in sorted(phases, key=natural)
        if split is None or video in part_of
    )
    return Collection("cholec80", recordings, CHOLEC80_PHASES, CHOLEC80_TOOLS, rate)

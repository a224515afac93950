"""Cholec80: 80 cholecystectomies at 25 fps, with one phase row per frame and one tool row per 25 frames.

videos/video01.mp4 ... video80.mp4
phase_annotations/video01-phase.txt ...
tool_annotations/video01-tool.txt ...
"""

import os
from pathlib import Path

from hmmjax.data.annotations import video_files
from hmmjax.data.splits import Parts, check_disjoint
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
    """Open a copy of Cholec80, or of a dataset with the same layout.

    Args:
        directory: contains videos/, phase_annotations/ and tool_annotations/.
        split: the videos of each part, see `hmmjax.data.splits.cholec80_split`; videos in no part are skipped.
        images: folder with one subfolder of extracted images per video, in place of videos/.
        naming: meaning of the numbers in the images' names, see `models.data.video_images.find_images`.
        rate: frames per second to use.
        pictures: whether videos or images are needed; False opens annotations only.

    Raises:
        FormatError: if folders are missing, if an annotated video lacks its other annotation, its video or its folder
            of images (videos without annotations are ignored), if two folders belong to one video, or if the split
            names a missing video or one recording twice.
    """
    root = Path(directory)
    phases = video_files(root / "phase_annotations", (".txt",))
    tools = video_files(root / "tool_annotations", (".txt",))
    if images is not None:
        shown = _folders(Path(images))
    else:
        shown = video_files(root / "videos", (".mp4", ".avi", ".mkv")) if pictures else phases
    pairs = (phases, tools, "tool_annotations"), (phases, shown, "videos"), (tools, phases, "phase_annotations")
    for have, other, where in pairs:
        missing = sorted(set(have) - set(other), key=natural)
        if missing:
            raise FormatError(f"{where} has no file for {', '.join(missing[:5])}", file=root, fix="complete the copy")
    check_disjoint(split or {})
    part_of = {video: part for part, videos in (split or {}).items() for video in videos}
    lost = sorted(set(part_of) - set(phases), key=natural)
    if lost:
        raise FormatError(
            f"{len(lost)} of the {len(part_of)} videos of the split are not among the {len(phases)} of this copy: "
            f"{', '.join(lost[:5])}{' and others' if len(lost) > 5 else ''}",
            file=root,
            fix="complete the copy, or list the available videos and their parts in a manifest (manifest.yaml)",
        )
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


def _folders(root: Path) -> dict[str, str]:
    """Return the folder of images of each video."""
    if not root.is_dir():
        raise FormatError("no such folder", file=root, fix="give the folder with one subfolder of images per video")
    found: dict[str, str] = {}
    for path in sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")):
        twin = found.setdefault(video_id(path.name), str(path))
        if twin != str(path):
            raise FormatError(f"this is the same video as {os.path.basename(twin)}", file=path, fix="keep one of them")
    return found

"""The videos of the M2CAI16 challenges: tool (15 videos, all also in Cholec80) and workflow (41, eight phases).

train_dataset/tool_video_01.{mp4,txt} ...      test_dataset/tool_video_11.{mp4,txt} ...
train_dataset/workflow_video_01.{mp4,txt} ...  test_dataset/test_workflow_video_01.{mp4,txt} ...
"""

import os
from pathlib import Path

from hmmjax.data.splits import check_disjoint
from hmmjax.io import CHOLEC80_TOOLS, M2CAI16_PHASES, FormatError, natural, video_id
from models.data.collections import Collection, Recording

FPS = 25.0


def m2cai16_tool(directory: str | os.PathLike[str], *, rate: float = 1.0) -> Collection:
    """Open M2CAI16-tool: tools of 10 training and 5 test videos, one row per 25 frames.

    Args:
        directory: contains train_dataset/ and test_dataset/, with annotations and either all videos or none.
        rate: frames per second to use.

    Raises:
        FormatError: if folders or annotations are missing, if only some have a video, if two files belong to one video,
            or if a video is in both parts.
    """
    return Collection("m2cai16-tool", _recordings(directory, "tools"), (), CHOLEC80_TOOLS, rate)


def m2cai16_workflow(directory: str | os.PathLike[str], *, rate: float = 1.0, offset: int = 0) -> Collection:
    """Open M2CAI16-workflow: eight phases, one row per frame.

    Args:
        directory: contains train_dataset/ and test_dataset/, with annotations and either all videos or none.
        rate: frames per second to use.
        offset: number of the first used frame; published results use every 25th frame from 0 or from 24.

    Raises:
        FormatError: if folders or annotations are missing, if only some have a video, if two files belong to one video,
            or if a video is in both parts.
    """
    return Collection("m2cai16-workflow", _recordings(directory, "phases"), M2CAI16_PHASES, (), rate, offset)


def read_frame_counts(path: str | os.PathLike[str]) -> dict[str, int]:
    """Read nb-frames.txt, the number of frames of each video, with any separators and line ends.

    Raises:
        FormatError: for a line that is not a name and a number, a video that is listed twice, or a file that is not
            text.
    """
    counts: dict[str, int] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"the file cannot be read ({error})", file=path) from None
    for number, line in enumerate(lines, 1):
        cells = line.split()
        if not cells:
            continue
        if len(cells) < 2 or not cells[-1].isdigit():
            raise FormatError(f"expected a name and a number, found {line.strip()!r}", file=path, line=number)
        name = os.path.splitext(os.path.basename(cells[0]))[0]
        if name in counts:
            raise FormatError(f"{name} is listed twice", file=path, line=number, fix="keep the correct line")
        counts[name] = int(cells[-1])
    return counts


def _recordings(directory: str | os.PathLike[str], track: str) -> tuple[Recording, ...]:
    root = Path(directory)
    found: list[Recording] = []
    for part in ("train", "test"):
        folder = root / f"{part}_dataset"
        if not folder.is_dir():
            raise FormatError("no such folder", file=folder, fix="give the folder that contains train_dataset/")
        # The folder may also contain results (_pred) and time stamps.
        annotations = [
            p
            for p in folder.glob("*_video_*.txt")
            if not p.stem.endswith("_pred") and "timestamp" not in p.stem and not p.name.startswith(".")
        ]
        videos = {p.stem: p for p in sorted(folder.iterdir()) if p.suffix.lower() in (".mp4", ".avi", ".mkv")}
        if not annotations:
            raise FormatError("no annotations in this folder", file=folder, fix="complete the copy")
        for path in sorted(annotations, key=lambda p: natural(p.name)):
            name = video_id(path.name)
            if twin := next((r for r in found if r.id == name and r.part == part), None):
                raise FormatError(
                    f"this is the same video as {twin.phases or twin.tools}", file=path, fix="keep one of them"
                )
            found.append(
                Recording(
                    id=name,
                    video=str(videos[path.stem]) if path.stem in videos else None,
                    fps=FPS,
                    part=part,
                    phases=str(path) if track == "phases" else None,
                    tools=str(path) if track == "tools" else None,
                )
            )
    without = [recording.id for recording in found if recording.video is None]
    if 0 < len(without) < len(found):
        raise FormatError(
            f"{len(without)} of {len(found)} annotations have no video: {', '.join(without[:5])}",
            file=root,
            fix="put every video next to its annotation, or remove all videos",
        )
    check_disjoint({part: [r.id for r in found if r.part == part] for part in ("train", "test")})
    return tuple(found)

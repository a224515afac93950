"""Videos to folders of pictures, for training: ``python -m models.data.video_extract VIDEO... --out FOLDER``.

Pictures are named by frame number (naming rule "frame"), so that no reader has to guess: 000025.jpg is one second into
a 25 fps video.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hmmjax.io import FormatError
from models.data.video import content_box, read_frames


def extract(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    rate: float = 1.0,
    size: tuple[int, int] | None = None,
    crop: bool = False,
    quality: int = 92,
    progress: bool = False,
) -> int:
    """Write a video's frames as JPEG.

    The folder appears under its name only when all frames are there: what a stopped or failed run leaves behind ends
    in ".part" and is never taken for a whole video.

    Args:
        path: the video.
        folder: where to; must not exist.
        rate: frames per second to keep.
        size: (height, width) to scale to.
        crop: cut black borders off.
        quality: JPEG's, up to 95.
        progress: show a progress bar.

    Returns:
        The number of pictures.

    Raises:
        FormatError: when the folder exists or the video is damaged.
    """
    from PIL import Image

    target = Path(folder)
    if target.exists():
        raise FormatError("this folder exists", file=target, fix="remove it, or give another")
    partial = target.with_name(target.name + ".part")
    partial.mkdir(parents=True, exist_ok=True)
    box = content_box(path) if crop else None
    count = 0
    for number, picture in read_frames(path, rate=rate, size=size, crop=box, progress=progress):
        Image.fromarray(picture).save(partial / f"{number:06d}.jpg", quality=quality)
        count += 1
    partial.rename(target)
    return count


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: a folder per video, named like it."""
    parser = argparse.ArgumentParser(description="Write videos' frames as pictures, one a second.")
    parser.add_argument("videos", nargs="+")
    parser.add_argument("--out", required=True, help="folder that gets a folder for each video")
    parser.add_argument("--rate", type=float, default=1.0, help="pictures per second")
    parser.add_argument("--height", type=int, help="pixels; with --width")
    parser.add_argument("--width", type=int, help="pixels; with --height")
    parser.add_argument("--crop", action="store_true", help="cut black borders off")
    options = parser.parse_args(argv)
    if (options.height is None) != (options.width is None):
        parser.error("give --height and --width, or neither")
    size = None if options.height is None else (options.height, options.width)
    for video in options.videos:
        folder = Path(options.out) / Path(video).stem
        count = extract(video, folder, rate=options.rate, size=size, crop=options.crop, progress=True)
        print(f"{folder}: {count} pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())

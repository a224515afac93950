"""Extract the frames of videos to folders of images: ``python -m models.data.video_extract VIDEO... --out FOLDER``.

Images are named by frame number (naming rule "frame"): 000025.jpg is at one second in a video of 25 fps.
"""

import argparse
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import chain
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
    """Write a video's frames as JPEG files.

    Images are written to a folder with the suffix ".part", which is renamed when it is complete. One left by an
    interrupted or failed run is removed by the next run.

    Args:
        path: of the video.
        folder: to create; must not exist.
        rate: frames per second to keep.
        size: (height, width) to scale to; None keeps the size.
        crop: cut off black borders.
        quality: JPEG quality, at most 95.
        progress: show a progress bar.

    Returns:
        The number of images.

    Raises:
        FormatError: if the folder exists, or if the video is missing or damaged. Nothing is written then, unless the
            damage is found only in decoding.
    """
    from PIL import Image

    target = Path(folder)
    if target.exists():
        raise FormatError("this folder exists already", file=target, fix="remove it, or choose another")
    partial = target.with_name(target.name + ".part")
    box = content_box(path) if crop else None
    pictures = read_frames(path, rate=rate, size=size, crop=box, progress=progress)
    first = next(pictures, None)
    if first is None:
        raise FormatError("no frames in this video", file=path, fix="get the file again")
    if partial.exists():
        # It may contain images at another rate, from an earlier run.
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    count = 0
    for number, picture in chain([first], pictures):
        Image.fromarray(picture).save(partial / f"{number:06d}.jpg", quality=quality)
        count += 1
    partial.rename(target)
    return count


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line: write one folder per video, with its name.

    Videos whose folder exists are skipped, so an interrupted batch resumes. If a video fails, its error is printed and
    the others are still written.

    Args:
        argv: arguments of the command line; None takes those of this process.

    Returns:
        0, or 2 if a video could not be written.
    """
    parser = argparse.ArgumentParser(description="Extract the frames of videos to folders of images, one per second.")
    parser.add_argument("videos", nargs="+", help="video files")
    parser.add_argument("--out", required=True, help="folder in which one folder per video is created")
    parser.add_argument("--rate", type=float, default=1.0, help="images per second (1)")
    parser.add_argument("--height", type=int, help="of the images, in pixels; requires --width")
    parser.add_argument("--width", type=int, help="of the images, in pixels; requires --height")
    parser.add_argument("--crop", action="store_true", help="cut off black borders")
    options = parser.parse_args(argv)
    if (options.height is None) != (options.width is None):
        parser.error("give both --height and --width, or neither")
    size = None if options.height is None else (options.height, options.width)
    twice = [stem for stem, count in Counter(Path(video).stem for video in options.videos).items() if count > 1]
    if twice:
        parser.error(f"several videos are named {twice[0]}: write them to different folders")
    failed = 0
    for video in options.videos:
        folder = Path(options.out) / Path(video).stem
        if folder.exists():
            print(f"{folder}: exists, skipped; remove it to extract the video again")
            continue
        try:
            count = extract(video, folder, rate=options.rate, size=size, crop=options.crop, progress=True)
        except (FormatError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            failed += 1
            continue
        print(f"{folder}: {count} images")
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

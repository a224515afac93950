"""Videos to folders of pictures, for training: ``python -m models.data.video_extract VIDEO... --out FOLDER``.

Pictures are named by frame number (naming rule "frame"), so that no reader has to guess: 000025.jpg is one second into
a 25 fps video.
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
    """Write a video's frames as JPEG.

    The folder appears under its name only when all frames are there: what a stopped or failed run leaves behind ends
    in ".part", is never taken for a whole video, and is removed by the next run.

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
        FormatError: when the folder exists, or the video is missing or damaged; before anything is written, unless
            only decoding shows the damage.
    """
    from PIL import Image

    target = Path(folder)
    if target.exists():
        raise FormatError("this folder exists", file=target, fix="remove it, or give another")
    partial = target.with_name(target.name + ".part")
    box = content_box(path) if crop else None
    pictures = read_frames(path, rate=rate, size=size, crop=box, progress=progress)
    first = next(pictures, None)
    if first is None:
        raise FormatError("no pictures in this video", file=path)
    if partial.exists():
        # Pictures of an earlier run, perhaps at another rate, must not be taken for this one's.
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    count = 0
    for number, picture in chain([first], pictures):
        Image.fromarray(picture).save(partial / f"{number:06d}.jpg", quality=quality)
        count += 1
    partial.rename(target)
    return count


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: a folder per video, named like it.

    Videos whose folder is there are passed over, so that a batch that was stopped goes on where it was; one that fails
    is named, and the others are still written.

    Args:
        argv: words of the command line; those of this process when left out.

    Returns:
        0, or 2 when a video could not be written.
    """
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
    twice = [stem for stem, count in Counter(Path(video).stem for video in options.videos).items() if count > 1]
    if twice:
        parser.error(f"several videos are called {twice[0]}: write them to different folders")
    failed = 0
    for video in options.videos:
        folder = Path(options.out) / Path(video).stem
        if folder.exists():
            print(f"{folder}: is there, passed over; remove it to write it anew")
            continue
        try:
            count = extract(video, folder, rate=options.rate, size=size, crop=options.crop, progress=True)
        except (FormatError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            failed += 1
            continue
        print(f"{folder}: {count} pictures")
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

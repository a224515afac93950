"""The command line: ``python -m hmmjax.suggest --predictions RAW --stabilized stabilized.npz --out to-label``."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax.io import FormatError, read, read_annotations
from hmmjax.suggest.ranking import REASONS, rank
from hmmjax.suggest.sheet import Picture, write


def main(argv: Sequence[str] | None = None) -> int:
    """Rank frames, write the page and the file to fill in; 1 for unusable files."""
    parser = argparse.ArgumentParser(prog="hmmjax suggest", description="Choose frames for a person to label.")
    parser.add_argument("--predictions", nargs="+", required=True, help="the recogniser's files")
    parser.add_argument("--stabilized", required=True, help="stabilized.npz, written by hmmjax stabilize")
    parser.add_argument("--annotations", nargs="*", default=[], help="labels that there are already")
    parser.add_argument("--pictures", help="a folder of pictures per video, named by frame number (000025.jpg)")
    parser.add_argument("--out", required=True, help="folder for index.html and answers.csv")
    parser.add_argument("--count", type=int, default=10, help="frames per tool and reason")
    parser.add_argument("--apart", type=float, default=10.0, help="least seconds between questions about one tool")
    parser.add_argument("--reasons", nargs="+", default=list(REASONS), choices=REASONS)
    parser.add_argument("--kind", choices=("labels", "probabilities", "logits"), help="of the predictions")
    parser.add_argument("--force", action="store_true", help="overwrite answers.csv")
    options = parser.parse_args(argv)
    try:
        suggestions = rank(
            read(options.predictions, kind=options.kind),
            read(options.stabilized),
            read_annotations(options.annotations) if options.annotations else (),
            count=options.count,
            apart=options.apart,
            reasons=options.reasons,
        )
        picture = pictures(options.pictures) if options.pictures else None
        page, answers = write(options.out, suggestions, picture=picture, force=options.force)
    except (FormatError, FileExistsError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(suggestions)} questions. Look at {page}, fill in {answers}.")
    return 0


def pictures(folder: str) -> Picture:
    """Pictures of many videos: a folder each, files named by frame number."""
    found: dict[tuple[str, int], Path] = {}
    for path in Path(folder).glob("*/*"):
        numbers = re.findall(r"\d+", path.stem)
        if numbers and path.suffix.lower() in (".jpg", ".jpeg", ".png"):
            found[path.parent.name, int(numbers[-1])] = path
    if not found:
        raise FormatError("no pictures in subfolders", file=folder, fix="give a folder with one folder per video")

    def picture(video: str, frame: int) -> Any:
        from PIL import Image

        path = found.get((video, frame))
        if path is None:
            return None
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))

    return picture


if __name__ == "__main__":
    sys.exit(main())

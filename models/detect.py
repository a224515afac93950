"""Find tools in frames: ``python -m models.detect RUN INPUT... --out boxes.npz``.

A run is one of `frcnn`, `fcn` or `fcn_l`; inputs are those of `models.predict`. The file written holds, for each video,
``boxes_<video>`` (n, D, 4) xmin, ymin, xmax, ymax as shares of the picture, best first, ``box_scores_<video>`` (n, D),
``box_tools_<video>`` (n, D), -1 where there were fewer, and ``frames_<video>`` (n,), and once ``tool_names`` and
``fps``. Where an input knows true boxes, average precision at half overlap is printed.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hmmjax.io import FormatError, save_npz
from models.commands import check_out, progress, reported
from models.data.cache import open_source
from models.data.frames import FrameTable, take
from models.detection.faster_rcnn import FasterRCNN
from models.detection.localize import map_boxes
from models.detection.scores import BoxPrecision, box_precision
from models.predict import Reading, add_reading, check_inputs, collect, reading_of
from models.recognizer import Recognizer
from models.runs import read_run
from models.systems import Answer

#: Systems that say where tools are.
LOCATORS = ("frcnn", "fcn", "fcn_l")
FIELDS = ("boxes", "box_scores", "box_tools")


def _check_locates(run: str | Path) -> None:
    config = read_run(run)
    # Of temporal models only this answers with maps.
    if config.system not in LOCATORS or config.temporal not in (None, "conv_lstm"):
        system = " with ".join(filter(None, (config.system, config.temporal)))
        raise FormatError(f"{system} finds no boxes", file=run, fix=f"give a run of {', '.join(LOCATORS)}")


class Locator(Recognizer):
    """A trained detector: `Recognizer` that answers with "boxes", "box_scores" and "box_tools"; FCN also with "maps".

    Args:
        run: folder of the run.
        which: checkpoint, "best" or "last".

    Raises:
        FormatError: for a run of another system, and when there is none.
    """

    def __init__(self, run: str | Path, which: str = "best"):
        _check_locates(run)
        super().__init__(run, which)

    def _answer(self, system: Any, images: jax.Array) -> dict[str, jax.Array]:
        if isinstance(system, FasterRCNN):
            return dict(zip(FIELDS, system.detect(images), strict=True))
        return self._tell(system, system.answer(system.features(images)))

    def _tell(self, system: Any, answer: Answer) -> dict[str, jax.Array]:
        return {"maps": system.maps(answer)}

    def _finish(self, answer: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Maps, where there are any, and the boxes that they give."""
        if "maps" in answer:
            config = self.config.detection
            found = [map_boxes(maps, count=config.detections, min_score=config.min_score) for maps in answer["maps"]]
            answer |= {name: np.stack(x) for name, x in zip(FIELDS, zip(*found, strict=True), strict=True)}
        return answer


def detect(
    run: str | Path, inputs: Sequence[str], reading: Reading, *, which: str = "best", quiet: bool = True
) -> dict[str, np.ndarray]:
    """Boxes of all inputs, as the arrays of the file.

    Args:
        run: folder of a training run of a detector.
        inputs: see `models.predict.open_clips`.
        reading: how they are read.
        which: checkpoint, "best" or "last".
        quiet: show no progress.

    Returns:
        The arrays that the module's text lists, and FCN's "maps_<video>".

    Raises:
        FormatError: for inputs that cannot be read, and when two have one name, or number their frames at different
            rates.
    """
    _check_locates(run)
    check_inputs(inputs)
    locator = Locator(run, which)
    with progress(quiet) as show:
        found = collect(locator, inputs, reading, show)
    return {"tool_names": np.array(locator.names["tools"]), **found}


def box_scores(arrays: Mapping[str, np.ndarray], table: FrameTable, *, overlap: float = 0.5) -> BoxPrecision:
    """Average precision of what `detect` found in the frames of a table, which must know their boxes.

    Raises:
        FormatError: when they are not known, and when frames are missing.
    """
    if table.boxes is None or table.box_tools is None:
        raise FormatError("no true boxes are known of these frames")
    found: dict[str, list[np.ndarray]] = {name: [] for name in FIELDS}
    for video, frame in zip(table.videos.tolist(), table.frames.tolist(), strict=True):
        suffix = video.removeprefix("video")
        row = np.flatnonzero(arrays[f"frames_{suffix}"] == frame) if f"frames_{suffix}" in arrays else []
        if len(row) != 1:
            raise FormatError(f"frame {frame} of {video} was not looked at")
        for name in FIELDS:
            found[name].append(arrays[f"{name}_{suffix}"][row[0]])
    stacked = (np.stack(found[name]) for name in FIELDS)
    return box_precision(table.boxes, table.box_tools, *stacked, len(table.tool_names), overlap=overlap)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m models.detect", description=(__doc__ or "").partition(":")[0])
    add_reading(parser)
    options = parser.parse_intermixed_args(arguments)
    with reported():
        check_out(options.out, force=options.force)
        reading = reading_of(options)
        arrays = detect(options.run, options.inputs, reading, which=options.checkpoint, quiet=options.quiet)
        kept = {name: x for name, x in arrays.items() if not name.startswith("maps_")}
        save_npz(options.out, kept, force=options.force)
        for place in options.inputs:
            _print_scores(place, arrays, reading)
    videos = sum(name.startswith("frames_") for name in arrays)
    print(f"{options.out}: boxes of {videos} video(s)")


def _print_scores(place: str, arrays: Mapping[str, np.ndarray], reading: Reading) -> None:
    """True boxes come with caches and packed files."""
    if not (Path(place) / "table.npz").exists() and not place.endswith(".npz") and not place.startswith("m2cai16:"):
        return
    table = open_source(place).table
    if table.boxes is None:
        return
    found = box_scores(arrays, take(table, table.rows(reading.part)))
    each = ", ".join(f"{name} {x:.3f}" for name, x in zip(table.tool_names, found.all_points, strict=True))
    print(f"{place}: mean box AP at IoU 0.5 (VOC, all points) {found.mean:.4f}; {each}")


if __name__ == "__main__":
    main()

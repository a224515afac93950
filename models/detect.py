"""Find tools in frames: ``python -m models.detect RUN INPUT... --out boxes.npz``.

The run is one of `frcnn`, `fcn` or `fcn_l`; inputs are those of `models.predict`. The output file holds, per video,
``boxes_<video>`` (n, D, 4) xmin, ymin, xmax, ymax as fractions of the image, best first, ``box_scores_<video>`` (n, D),
``box_tools_<video>`` (n, D), -1 for padding, and ``frames_<video>`` (n,); and once ``tool_names`` and ``fps``. Until it
is written, finished videos are kept in ``boxes.npz.partial/``, so that the same command continues after an
interruption. If an input has true boxes, average precision at an intersection over union of 0.5 is printed.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

from hmmjax.io import FormatError, save_npz
from models.commands import check_out, progress, reported
from models.data.cache import open_source
from models.data.frames import FrameTable, take
from models.detection.localize import map_boxes
from models.detection.scores import BoxPrecision, box_precision
from models.inputs import Reading, check_inputs
from models.partial_predictions import PartialPredictions, partial_predictions, prediction_key
from models.predict import add_reading, collect, reading_of
from models.systems import SYSTEMS, ComposedSystem, Outputs, System
from models.training.recognizer import Recognizer
from models.training.run import read_run

#: Systems that localize tools.
LOCATORS = tuple(name for name, spec in SYSTEMS.items() if spec.locates)
FIELDS = ("boxes", "box_scores", "box_tools")


def _check_locates(run: str | Path) -> None:
    config = read_run(run)
    # No other temporal model returns maps.
    if config.system not in LOCATORS or config.temporal not in (None, "conv_lstm"):
        system = " with ".join(filter(None, (config.system, config.temporal)))
        raise FormatError(f"{system} does not localize tools", file=run, fix=f"give a run of {', '.join(LOCATORS)}")


class Locator(Recognizer):
    """A trained system that predicts "boxes", "box_scores" and "box_tools" of images; FCN also "maps".

    Args:
        run: folder of the run.
        which: checkpoint, "best" or "last".
        maps: predict FCN's "maps" too, about 1 MB per frame.

    Raises:
        FormatError: for a run of another system, and if the folder holds no training run.
    """

    def __init__(self, run: str | Path, which: str = "best", *, maps: bool = True):
        _check_locates(run)
        super().__init__(run, which)
        self._maps = maps

    def _predict(self, system: System, images: jax.Array) -> dict[str, jax.Array]:
        return system.locate(images)

    def _select(self, system: ComposedSystem, outputs: Outputs) -> dict[str, jax.Array]:
        return {"maps": system.maps(outputs)}

    def _finish(self, predicted: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Add the boxes of maps, if maps are predicted."""
        if "maps" not in predicted:
            return predicted
        config = self.config.detection
        found = [map_boxes(maps, count=config.detections, min_score=config.min_score) for maps in predicted["maps"]]
        boxes = {name: np.stack(x) for name, x in zip(FIELDS, zip(*found, strict=True), strict=True)}
        return {**predicted, **boxes} if self._maps else boxes


def detect(
    run: str | Path,
    inputs: Sequence[str],
    reading: Reading,
    *,
    which: str = "best",
    maps: bool = True,
    quiet: bool = True,
    kept: PartialPredictions | None = None,
) -> dict[str, np.ndarray]:
    """Localize tools in all inputs; return the arrays that the module's docstring lists, and FCN's "maps_<video>".

    Args:
        run: folder of a training run of a system that localizes tools.
        inputs: videos, folders of images, caches or packed files.
        reading: settings of reading them.
        which: checkpoint, "best" or "last".
        maps: return FCN's maps too, about 1 MB per frame.
        quiet: do not show progress.
        kept: see `models.predict.collect`.

    Raises:
        FormatError: for inputs that cannot be read, and if two videos have the same name or their frame numbers have
            different rates.
    """
    _check_locates(run)
    check_inputs(inputs)
    locator = Locator(run, which, maps=maps)
    with progress(quiet) as show:
        found = collect(locator, inputs, reading, show, kept=kept)
    return {"tool_names": np.array(locator.names["tools"]), **found}


def box_scores(arrays: Mapping[str, np.ndarray], table: FrameTable, *, overlap: float = 0.5) -> BoxPrecision:
    """Compute the average precision of the output of `detect` on the frames of a table with true boxes.

    Args:
        arrays: the output of `detect`.
        table: frames with their true boxes, all of which `detect` must have seen.
        overlap: intersection over union from which a box is correct.

    Raises:
        FormatError: if the true boxes are unknown, and if frames are missing from `arrays`.
    """
    if table.boxes is None or table.box_tools is None:
        raise FormatError("these frames have no true boxes", fix="give a source with boxes")
    found: dict[str, list[np.ndarray]] = {name: [] for name in FIELDS}
    for video, frame in zip(table.videos.tolist(), table.frames.tolist(), strict=True):
        suffix = video.removeprefix("video")
        row = np.flatnonzero(arrays[f"frames_{suffix}"] == frame) if f"frames_{suffix}" in arrays else []
        if len(row) != 1:
            raise FormatError(
                f"frame {frame} of {video} is missing from the detections", fix="run models.detect on the same frames"
            )
        for name in FIELDS:
            found[name].append(arrays[f"{name}_{suffix}"][row[0]])
    boxes, scores, tools = (np.stack(found[name]) for name in FIELDS)
    return box_precision(table.boxes, table.box_tools, boxes, scores, tools, len(table.tool_names), overlap=overlap)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m models.detect", description=(__doc__ or "").partition(":")[0])
    add_reading(parser)
    options = parser.parse_intermixed_args(arguments)
    with reported("stopped; the same command continues"):
        check_out(options.out, force=options.force)
        reading = reading_of(options)
        _check_locates(options.run)
        check_inputs(options.inputs)
        key = prediction_key("detect", options.run, options.checkpoint, options.inputs, reading)
        with partial_predictions(options.out, key) as kept:
            arrays = detect(
                options.run,
                options.inputs,
                reading,
                which=options.checkpoint,
                maps=False,
                quiet=options.quiet,
                kept=kept,
            )
            save_npz(options.out, arrays, force=options.force)
        for place in options.inputs:
            _print_scores(place, arrays, reading)
    videos = sum(name.startswith("frames_") for name in arrays)
    print(f"{options.out}: boxes of {videos} video(s)")


def _print_scores(place: str, arrays: Mapping[str, np.ndarray], reading: Reading) -> None:
    """Print average precision for an input with true boxes, which only caches and packed files have."""
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

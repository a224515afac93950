"""Draw the picture of the README: ``python benchmarks/picture.py``.

Phases of three TMRNet test videos of Cholec80: annotated, predicted, and stabilized as `hmmjax stabilize` does by
default (`auto.py`). The videos are those whose accuracy stabilization raises most, by the median, and least (or
lowers). Writes ``docs/images/stabilized.png``. The environment variable HMMJAX_DATA is the folder of the data, default
../shared/data.
"""

from pathlib import Path

import auto
import numpy as np
import real
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hmmjax import Labels, Observations
from hmmjax.plots import PHASE_COLORS, changes, save_figure, spans, words

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "stabilized.png"


def main() -> None:
    """Stabilize, choose the videos, draw and write."""
    truth, predicted = real.tmrnet_videos()
    stabilized = stabilize(truth, predicted)
    right = [[float((x[i] == truth[i]).mean()) for x in (predicted, stabilized)] for i in range(len(truth))]
    order = np.argsort([before - after for before, after in right])
    figure = Figure(figsize=(11, 5.6), facecolor="white", layout="constrained")
    axes = figure.subplots(3, 1)
    for axis, i in zip(axes, (order[0], order[len(order) // 2], order[-1]), strict=True):
        rows = {"annotated": truth[i], "TMRNet": predicted[i], "hmmjax": stabilized[i]}
        draw(axis, rows)
        before, after = right[i]
        axis.set_title(f"Video {41 + i}: accuracy {before:.3f}, stabilized {after:.3f}", loc="left", size=10)
        print(f"video {41 + i}: {before:.4f} -> {after:.4f}")
    axes[-1].set_xlabel("minutes", size=9)
    with np.load(real.DATA / "cholec80" / "labels_1fps.npz") as file:
        names = [words(str(name)) for name in file["phase_names"]]
    handles = [Patch(facecolor=color, label=name) for color, name in zip(PHASE_COLORS, names, strict=False)]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    save_figure(figure, PICTURE, force=True)


def stabilize(truth: list[np.ndarray], predicted: list[np.ndarray]) -> list[np.ndarray]:
    """Phases (n,) of each video, by the models that `hmmjax stabilize` chooses on the other folds (five in a row)."""
    prepared = auto.prepare(Observations(predicted), Labels(truth), 7, 0)
    inferred, _ = auto.run(prepared, folds=5)
    return [inferred.smoothed.phases[i, : len(x)].argmax(-1) for i, x in enumerate(truth)]


def draw(axis, rows: dict[str, np.ndarray]) -> None:
    """One ribbon per row, with its number of phase changes on the right."""
    for position, phases in enumerate(rows.values()):
        for start, width, phase in spans(np.arange(len(phases), dtype=float), phases, 1.0):
            axis.broken_barh([(start, width)], (position + 0.06, 0.88), facecolor=PHASE_COLORS[phase], linewidth=0)
        axis.text(1.01, position + 0.5, f"{changes(phases)} changes", transform=axis.get_yaxis_transform(), va="center",
                  size=9)  # fmt: skip
    axis.set_yticks(np.arange(len(rows)) + 0.5, list(rows), size=9)
    axis.set_ylim(len(rows), 0)
    axis.set_xlim(0, len(phases) / 60)
    axis.tick_params(axis="y", length=0)
    axis.tick_params(axis="x", labelsize=8)
    for side in axis.spines.values():
        side.set_visible(False)


if __name__ == "__main__":
    main()

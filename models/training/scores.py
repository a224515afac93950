"""What a validation is judged by."""

import math

import numpy as np

from hmmjax.metrics import average_precision
from models.data.frames import FrameTable


def score(predicted: dict[str, np.ndarray], table: FrameTable) -> dict[str, float]:
    """Mean average precision of tools, accuracy of phases, and the mean of what there is of them.

    Args:
        predicted: probabilities of "phases" (n, L), "tools" (n, K), or both.
        table: the truth of the same n frames.

    Returns:
        Figures by name: "mAP" and "AP/<tool>" (scikit-learn's steps, frames pooled), "accuracy" (frames pooled),
        "score".
    """
    figures: dict[str, float] = {}
    if "tools" in predicted and (table.tools >= 0).any():
        found = average_precision(table.tools, predicted["tools"].astype(np.float64), names=table.tool_names)
        figures["mAP"] = found.value
        figures |= {f"AP/{name}": value for name, value in zip(found.class_names, found.per_class, strict=True)}
    known = table.phases >= 0
    if "phases" in predicted and known.any():
        figures["accuracy"] = float((predicted["phases"].argmax(1) == table.phases)[known].mean())
    parts = [figures[name] for name in ("mAP", "accuracy") if math.isfinite(figures.get(name, math.nan))]
    figures["score"] = float(np.mean(parts)) if parts else math.nan
    return figures

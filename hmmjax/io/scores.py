"""Check scores: probabilities, percentages that are taken for them, and logits."""

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.spec import LineOf, raise_at

#: Largest deviation of a row of probabilities from a sum of one (text files round); such rows are normalized. Values
#: with two or three digits may deviate by the sum of their rounding errors.
SUM_TOLERANCE = 1e-3
#: Largest distance of a probability from [0, 1] (float32 sums round); such values are clipped.
RANGE_TOLERANCE = 1e-5
#: From this many values on, logits without a negative one are taken for probabilities or percentages.
FEW = 50


def check_scores(values: np.ndarray, track: str, kind: str, line_of: LineOf, file: str) -> np.ndarray:
    """Check probabilities, or compute them from logits (softmax over phases, sigmoid per tool); NaN is missing.

    Args:
        values: (n, C) scores.
        track: "phases" or "tools".
        kind: "probabilities" or "logits".
        line_of: maps the position of a row to its line number.
        file: the file, for error messages.

    Returns:
        (n, C) float64 probabilities, NaN where missing: of single tools, or of all phases of a frame. Other phase rows
        sum to one.

    Raises:
        FormatError: if a value is infinite or not in [0, 1], only some phases of a frame are NaN, phase
            probabilities do not sum to one, or logits are probabilities.
    """
    values = values.astype(np.float64)
    missing = np.isnan(values)
    raise_at(np.isinf(values), values, "{} is not a number", line_of, file, "repair or remove the row")
    if track == "phases":
        some = missing & ~missing.all(-1, keepdims=True)
        fix = "write NaN for all phases of a frame, or for none"
        raise_at(some, values, "{} among the probabilities of phases", line_of, file, fix)
    if kind == "logits":
        _refuse_probabilities(values, track, line_of, file)
        if track == "tools":
            return np.where(values >= 0, 1 / (1 + np.exp(-np.abs(values))), 1 - 1 / (1 + np.exp(-np.abs(values))))
        powers = np.exp(values - values.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)
    out = (values < -RANGE_TOLERANCE) | (values > 1 + RANGE_TOLERANCE)
    if out.any():
        raise_at(out, values, "{} is not a probability", line_of, file, _fix(values))
    values = np.clip(values, 0, 1)
    if track == "tools":
        return values
    total = values.sum(-1, keepdims=True)
    off = np.abs(total - 1) > max(SUM_TOLERANCE, _rounding(values) * values.shape[-1])
    fix = "divide each row by its sum, add the column of a class that is missing, or export more digits"
    raise_at(off, total, "phase probabilities sum to {}, not 1", line_of, file, fix)
    return values / total


def _refuse_probabilities(values: np.ndarray, track: str, line_of: LineOf, file: str) -> None:
    """Raise FormatError if scores that were declared as logits seem to be probabilities or percentages."""
    known = values[~np.isnan(values)]
    if known.size < FEW or known.min() < 0:
        return
    percent = np.abs(np.nansum(values, -1)[~np.isnan(values).any(-1)] - 100) < 1
    if known.max() <= 1:
        cause, fix = "all are from 0 to 1: they seem to be probabilities", "pass kind='probabilities'"
    elif track == "phases" and percent.all():
        cause, fix = "the rows sum to 100: they seem to be percentages", "divide them by 100"
    elif track == "tools":
        cause = "none is negative, so that all tools would be present in all frames"
        fix = "export logits, or divide percentages by 100"
    else:
        return
    raise FormatError(f"the scores were declared as logits, but {cause}", file=file, line=line_of(0), fix=fix)


def _fix(values: np.ndarray) -> str:
    """Return how to correct scores that are not probabilities, by their range."""
    known = values[~np.isnan(values)]
    if known.min() < 0 or known.max() > 255:
        return "if these are logits, pass kind='logits'"
    if known.max() > 100:
        return "if these are bytes (0 to 255), divide them by 255; if these are logits, pass kind='logits'"
    if known.max() > 10:
        return "if these are percentages, divide them by 100; if these are logits, pass kind='logits'"
    return "if these are logits, pass kind='logits'"


def _rounding(values: np.ndarray) -> float:
    """Return the largest error of a value: half a unit of its last digit, if all have two or three digits; else 0."""
    for digits in (2, 3):
        scaled = values[~np.isnan(values)] * 10**digits
        if (np.abs(scaled - np.rint(scaled)) < 1e-6 * 10**digits).all():
            return 0.5 * 10**-digits
    return 0.0

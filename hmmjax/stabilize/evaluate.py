"""Score predictions against the truth."""

from collections.abc import Sequence
from typing import Any

from hmmjax import io
from hmmjax.io import BatchIndex, FormatError, Track
from hmmjax.io.parts import trained_on
from hmmjax.stabilize.classes import align
from hmmjax.stabilize.examples import TRACKS
from hmmjax.stabilize.systems import System, restrict_truth
from hmmjax.stabilize.table import Row, compare_systems, timing_left_out
from hmmjax.stabilize.warnings import mismatched_names
from hmmjax.types import Posterior


def as_system(name: str, values: Any, index: BatchIndex) -> System:
    """Return padded observations, labels or posteriors as a `System`, at the frames that were read."""
    fields = (*TRACKS, "tool_log_odds", "phase_log_probs") if isinstance(values, Posterior) else TRACKS
    arrays = {field: getattr(values, field) for field in fields}
    return System(name, **{field: None if x is None else index.split(x) for field, x in arrays.items()})


def evaluate_predictions(
    predictions: Sequence[Track], truth: Sequence[Track], *, relaxed: bool = False, step: int | None = None
) -> tuple[list[Row], tuple[str, ...]]:
    """Score predictions against the truth, joined on frame numbers, without a model; missing ones are not scored.

    Args:
        predictions: tracks from `hmmjax.io.read`.
        truth: tracks from `hmmjax.io.read_annotations`.
        relaxed: add metrics with relaxed boundaries.
        step: frame numbers per time step; None uses the spacing of the predictions.

    Returns:
        Rows of one system, "predictions", and notices.

    Raises:
        FormatError: the files do not fit together, or the truth has none of the predicted tracks.
    """
    tracks = [track for track in TRACKS if any(p.track == track for p in predictions)]
    truth = [t for t in truth if t.track in tracks]
    if not truth:
        raise FormatError(
            f"the truth has no {' and no '.join(tracks)}, which are predicted",
            fix="give annotation files of the predicted tracks",
        )
    names, (predictions, truth) = align(tracks, None, predictions, truth)
    raw, labels, _, index = io.to_batch(io.join(predictions), truth, step=step)
    outputs = as_system("predictions", raw, index)
    known = restrict_truth(outputs, as_system("truth", labels, index))
    warnings = mismatched_names(outputs, known.phases, names["phases"], (*predictions, *truth))
    warnings += timing_left_out(known.phases)
    rows = compare_systems(
        [outputs],
        known.phases,
        known.tools,
        phase_names=names["phases"],
        tool_names=names["tools"],
        rows_per_second=1 / index.step_seconds,
        relaxed=relaxed,
    )
    notices = [n for t in (*predictions, *truth) for n in t.notices]
    if trained := trained_on(predictions, truth):
        notices.append(
            f"the recognizer was trained on {len(trained)} of the {len({t.video for t in truth})} scored videos "
            f"({', '.join(trained[:5])}{', ...' * (len(trained) > 5)}): its metrics there are better than in others"
        )
    return rows, tuple(dict.fromkeys((*notices, *index.notices, *warnings)))

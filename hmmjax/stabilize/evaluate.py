"""Compare predictions with the truth."""

from collections.abc import Sequence

from hmmjax import io
from hmmjax.io import BatchIndex, FormatError, Track
from hmmjax.stabilize.inputs import align
from hmmjax.stabilize.table import Row, System, compare
from hmmjax.stabilize.warnings import class_doubts
from hmmjax.types import Observations


def system(name: str, values: Observations, index: BatchIndex) -> System:
    """Padded values as a `System`, at the frames that were read."""
    split = {t: None if getattr(values, t) is None else index.split(getattr(values, t)) for t in ("phases", "tools")}
    return System(name, split["phases"], split["tools"])


def evaluate(
    predictions: Sequence[Track], truth: Sequence[Track], *, relaxed: bool = False, step: int | None = None
) -> tuple[list[Row], tuple[str, ...]]:
    """The table of any predictions against the truth, joined on frames, with no model in between.

    Args:
        predictions: tracks from `hmmjax.io.read`.
        truth: tracks from `hmmjax.io.read_annotations`.
        relaxed: also the relaxed figures.
        step: see `hmmjax.io.to_batch`.

    Returns:
        Rows for one system "predictions", and notices.

    Raises:
        FormatError: files that do not go together, or nothing to compare.
    """
    tracks = [track for track in ("phases", "tools") if any(p.track == track for p in predictions)]
    truth = [t for t in truth if t.track in tracks]
    if not truth:
        raise FormatError(f"the truth has none of the predicted tracks ({', '.join(tracks)})", fix="check the files")
    names, (predictions, truth) = align(tracks, None, predictions, truth)
    raw, labels, _, index = io.to_batch(io.join(predictions), truth, step=step)
    both = [None if x is None else index.split(x) for x in (labels.phases, labels.tools)]
    said = system("predictions", raw, index)
    doubts = class_doubts(said, both[0], names["phases"], (*predictions, *truth))
    rows = compare(
        [said],
        *both,
        phase_names=names["phases"],
        tool_names=names["tools"],
        rows_per_second=1 / index.step_seconds,
        relaxed=relaxed,
    )
    notices = [n for t in (*predictions, *truth) for n in t.notices]
    return rows, tuple(dict.fromkeys((*notices, *index.notices, *doubts)))

"""Greedy non-maximum suppression with shapes that do not depend on the boxes, so that it compiles and batches."""

import jax
from jax import Array
from jax import numpy as jnp

from models.detection.boxes import iou


def survivors(overlap: Array, real: Array, threshold: float) -> Array:
    """Which of some boxes, best first, the greedy rule keeps: each that overlaps no better kept one.

    The rule is sequential, but has one fixed point, which is reached in as many parallel steps as the longest chain of
    boxes that suppress each other in turn.

    Args:
        overlap: (N, N) intersection over union; 0 for pairs that leave each other alone.
        real: (N,) bool, False for padding.
        threshold: more overlap than this suppresses.

    Returns:
        (N,) bool.
    """
    rank = jnp.arange(len(real))
    blocks = (overlap > threshold) & (rank < rank[:, None])

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        kept, _ = carry
        new = real & ~(blocks & kept).any(1)
        return new, (new != kept).any()

    return jax.lax.while_loop(lambda carry: carry[1], step, (real, jnp.array(True)))[0]


def suppress(
    boxes: Array,
    scores: Array,
    threshold: float,
    count: int,
    *,
    classes: Array | None = None,
    real: Array | None = None,
    candidates: int | None = None,
) -> tuple[Array, Array]:
    """The best boxes that do not overlap each other.

    Args:
        boxes: (N, 4).
        scores: (N,); on a tie the first goes first. A box whose score is NaN counts as padding.
        threshold: more intersection over union than this suppresses.
        count: boxes wanted.
        classes: (N,) int; boxes of different classes leave each other alone. None for one class.
        real: (N,) bool, False for padding.
        candidates: how many of the best boxes are looked at; None for all.

    Returns:
        (count,) rows, best first, and (count,) bool, False where there were fewer.
    """
    real = ~jnp.isnan(scores) & (True if real is None else real)
    _, order = jax.lax.top_k(jnp.where(real, scores, -jnp.inf), min(candidates or len(scores), len(scores)))
    overlap = iou(boxes[order], boxes[order])
    if classes is not None:
        overlap = jnp.where(classes[order][:, None] == classes[order], overlap, 0)
    kept = survivors(overlap, real[order], threshold)
    first = jnp.argsort(~kept, stable=True)[:count]
    spare = count - len(first)
    return jnp.pad(order[first], (0, max(spare, 0))), jnp.pad(kept[first], (0, max(spare, 0)))

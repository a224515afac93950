"""Greedy non-maximum suppression with static shapes, so that it works under `jit` and `vmap`."""

import jax
from jax import Array
from jax import numpy as jnp

from models.detection.boxes import iou


def survivors(overlap: Array, real: Array, threshold: float) -> Array:
    """Return which boxes, sorted best first, the greedy rule keeps: those that overlap no better box that is kept.

    The rule is sequential but has a unique fixed point. Parallel iteration reaches it in as many steps as the longest
    chain of boxes of which each suppresses the next.

    Args:
        overlap: (N, N) intersection over union; 0 for pairs that do not suppress each other.
        real: (N,) bool, False for padding.
        threshold: overlap above which a box is suppressed.

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
    """Select the best boxes that do not overlap each other.

    Args:
        boxes: (N, 4).
        scores: (N,); ties are broken by index. A box whose score is NaN counts as padding.
        threshold: intersection over union above which a box is suppressed.
        count: number of boxes to return.
        classes: (N,) int; boxes of different classes do not suppress each other. None for a single class.
        real: (N,) bool, False for padding; None if there is none.
        candidates: maximum number of best boxes that are considered; None for all.

    Returns:
        (count,) indices, best first, and (count,) bool, False for padding.
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

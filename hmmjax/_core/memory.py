"""Gather the past that emission families with memory see: of whole videos, and frame by frame."""

from typing import Any

import jax
import jax.numpy as jnp

from hmmjax._core.checks import is_float
from hmmjax._core.packing import Packing
from hmmjax._core.typing import Array
from hmmjax.emissions.base import Emission
from hmmjax.emissions.fused import Fused, fill_missing
from hmmjax.emissions.past import Past


def with_past(emission: Emission, observations: Any, observed: Any, packing: Packing | None = None) -> tuple:
    """Return the arguments of `log_prob` and `statistics` that precede weights: observations, and their past if needed.

    Args:
        emission: the family.
        observations: (B, T, ...) without invalid values in unobserved frames; a tuple if the family is `Fused`.
        observed: (B, T) bool.
        packing: positions of the videos if they are packed; (B, T) is then (1, N).
    """
    if not emission.lag:
        return (observations,)
    num_frames = observed.shape[1]
    position = jnp.arange(num_frames) if packing is None else packing.position(num_frames)
    if not isinstance(emission, Fused):
        return observations, _gather(emission, *_seen(emission, observations, observed), position)
    return observations, tuple(
        _gather(family, *_seen(family, x, observed), position) if family.lag and x is not None else None
        for family, x in zip(emission.families, observations, strict=True)
    )


def blank_past(emission: Any, lead: tuple[int, ...], dtype: Any) -> Any:
    """Return the past before the first frame, with leading axes `lead`; None for a family without memory."""
    if emission is None or not emission.lag:
        return None
    if isinstance(emission, Fused):
        return tuple(blank_past(family, lead, dtype) for family in emission.families)
    labels = emission.observes == "labels"
    values = jnp.full(
        (emission.lag, *lead, *emission.event_shape), 0 if labels else 0.5, jnp.int32 if labels else dtype
    )
    tools = (emission.size,) if emission.track == "tools" else ()
    return Past(values, jnp.zeros((emission.lag, *lead, *tools), bool))


def push_past(emission: Any, past: Any, observations: Any, observed: Array) -> Any:
    """Return the past of the frame after one with these observations.

    Args:
        emission: the family.
        past: of this frame, from `blank_past` or the step before.
        observations: (*lead, ...) of this frame, None if there are none; a tuple if the family is `Fused`.
        observed: (*lead) bool.
    """
    if past is None:
        return None
    if isinstance(emission, Fused):
        given = (None,) * len(emission.families) if observations is None else observations
        return tuple(
            push_past(family, own, x, observed) for family, own, x in zip(emission.families, past, given, strict=True)
        )
    if observations is None:
        values, seen = past.values[0], jnp.zeros_like(past.observed[0])
    else:
        values, seen = _seen(emission, observations, observed)
    newest = Past(values.astype(past.values.dtype), seen)
    return jax.tree.map(lambda new, old: jnp.concatenate([new[None], old[:-1]]), newest, past)


def _seen(emission: Emission, observations: Any, observed: Any) -> tuple[Array, Array]:
    """Return valid observations of one source, and where they are observed: (...,) of phases, (..., K) of tools."""
    present, filled = fill_missing(jnp.asarray(observations), emission)
    observed = jnp.asarray(observed)
    return filled, present & (observed[..., None] if emission.track == "tools" else observed)


def _gather(emission: Emission, values: Array, seen: Array, position: Array) -> Past:
    """Return the past of every frame, from observations (B, T, ...) and where they are observed.

    `position` (T,) is the number of each frame in its video.
    """

    def shift(x: Array, frames: int) -> Array:
        fill = 0.5 if is_float(x) else 0
        pad = [(0, 0), (frames, 0)] + [(0, 0)] * (x.ndim - 2)
        before = jnp.pad(x, pad)[:, : x.shape[1]]
        return jnp.where((position >= frames).reshape(-1, *[1] * (x.ndim - 2)), before, fill)

    lags = range(1, emission.lag + 1)
    return Past(jnp.stack([shift(values, n) for n in lags]), jnp.stack([shift(seen, n) for n in lags]))

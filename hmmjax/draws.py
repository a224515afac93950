"""What may have happened: whole paths drawn from the posterior, and what they say of times and durations.

Marginals say how sure each frame is; they do not say how sure "the gallbladder was packed at 34:10" or "the hook was in
view for 12 minutes of dissection" is. Paths do: compute the figure on each, and look at the spread.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax import durations
from hmmjax._core import configurations, lowering
from hmmjax._core.batch import Data
from hmmjax._core.checks import is_concrete
from hmmjax._core.typing import Array, Float, Int
from hmmjax.inference import prepare
from hmmjax.messages import online
from hmmjax.messages.potentials import Potentials
from hmmjax.types import Labels, Observations, Params


def sample_posterior(
    params: Params,
    key: jax.Array,
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    num_samples: int = 100,
) -> Labels:
    """Draw hidden paths given the observations (and labels): forward filtering, backward sampling.

    Args:
        params: the model, L phases and K tools.
        key: a `jax.random` key.
        obs: (B, T, ...) observations, or one video without B.
        mask: (B, T) bool, True where observed.
        labels: known states; every draw agrees with them.
        num_samples: draws of each video, N.

    Returns:
        phases (N, B, T) and tools (N, B, T, K) int32, without B for a single video; -1 after a video's last observed
        frame, and all through an impossible one. Memory: T * L * 2**K floats for one video at a time, and the answer.

    Raises:
        TypeError, ValueError: bad input, or a number of draws below one.

    Source: Carter and Kohn (1994); Frühwirth-Schnatter (1994).
    """
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, got {num_samples}.")
    data, batched = prepare(params, obs, mask, labels)
    first = next(x for x in (mask, *jax.tree.leaves((obs, labels))) if x is not None)
    num_frames = first.shape[1 if batched else 0]
    keys = jax.random.split(key, len(data.observed))
    exact = not is_concrete(params) or not lowering.scaled_is_exact(params)
    drawn = []
    for video, key in enumerate(keys):
        one = jax.tree.map(lambda x, i=video: x[i : i + 1], data)
        drawn.append(_draw(params, key, one, num_samples, exact))

    def stack(*videos: Any) -> Any:
        whole = jnp.stack(videos, 1)[:, :, :num_frames]
        return whole if batched else whole[:, 0]

    if not drawn:
        shapes = (params.phases, ()), (params.tools, (params.num_tools,))
        empty = [None if c is None else jnp.zeros((num_samples, 0, num_frames, *s), jnp.int32) for c, s in shapes]
        return Labels(*empty)
    return Labels(*(None if x[0] is None else stack(*x) for x in zip(*drawn, strict=True)))


@partial(jax.jit, static_argnames=("num_samples", "exact"))
def _draw(params: Params, key: jax.Array, data: Data, num_samples: int, exact: bool) -> tuple[Any, Any]:
    table = lowering.tables(params, data)
    p = lowering.potentials(params, table, data.lengths)
    length = data.lengths[0]
    keys = jax.random.split(key, num_samples)

    def chain(p: Potentials, keys: jax.Array) -> tuple[Array, Array, Array]:
        chain = online.chain_of(p, exact)
        messages, value = online.filtered_messages(chain, p.phases[0], p.configs[0], length)
        phases, configs = jax.vmap(lambda key: online.sample_back(chain, messages, length, key))(keys)
        return phases, configs, value

    if lowering.is_factorial(params, table):
        keys = jax.vmap(lambda key: jax.random.split(key, params.num_tools), out_axes=1)(keys)
        tools, _, value = jax.vmap(chain, (lowering.PER_TOOL, 0))(p, keys)
        phases, tools, value = None, jnp.moveaxis(tools, 0, -1), value.sum()
    else:
        phases, configs, value = chain(p, keys)
        if params.phases is None:
            phases = None
        elif params.phases.stages is not None:
            phases = jnp.asarray(durations.owners(params.phases.stages))[phases]
        tools = None if params.tools is None else configurations.bits(params.num_tools)[configs]
    real = (jnp.arange(data.observed.shape[1]) < length) & (value > -jnp.inf)
    phases = None if phases is None else jnp.where(real, phases, -1).astype(jnp.int32)
    tools = None if tools is None else jnp.where(real[:, None], tools, -1).astype(jnp.int32)
    return phases, tools


def phase_starts(phases: Int[Any, "... T"], num_phases: int, *, fps: float = 1.0) -> Float[np.ndarray, "... L"]:
    """Seconds from the first frame to each phase's first, on every path (..., L); NaN where it does not occur.

    Args:
        phases: (..., T) int paths, -1 where there is none.
        num_phases: L.
        fps: frames per second.

    Returns:
        (..., L) seconds, float64.
    """
    phases = np.asarray(phases)
    there = phases[..., None] == np.arange(num_phases)
    return np.where(there.any(-2), there.argmax(-2) / fps, np.nan)


def phase_minutes(phases: Int[Any, "... T"], num_phases: int, *, fps: float = 1.0) -> Float[np.ndarray, "... L"]:
    """Minutes spent in each phase, on every path.

    Args:
        phases: (..., T) int paths, -1 where there is none.
        num_phases: L.
        fps: frames per second.

    Returns:
        (..., L) minutes, float64.
    """
    phases = np.asarray(phases)
    return (phases[..., None] == np.arange(num_phases)).sum(-2) / (60 * fps)


def tool_minutes(
    phases: Int[Any, "... T"], tools: Int[Any, "... T K"], num_phases: int, *, fps: float = 1.0
) -> Float[np.ndarray, "... L K"]:
    """Minutes that each tool is in use in each phase, on every path.

    Args:
        phases: (..., T) int paths, -1 where there is none.
        tools: (..., T, K) int paths, 1 where the tool is present.
        num_phases: L.
        fps: frames per second.

    Returns:
        (..., L, K) minutes, float64.
    """
    inside = (np.asarray(phases)[..., None] == np.arange(num_phases)).astype(float)
    return np.einsum("...tl,...tk->...lk", inside, (np.asarray(tools) == 1).astype(float)) / (60 * fps)


@dataclasses.dataclass(frozen=True)
class Interval:
    """A figure over paths.

    Attributes:
        median: of the paths on which the figure exists; NaN where there are none.
        low: lower end of the central interval.
        high: upper end.
        probability: share of paths on which it exists.
    """

    median: np.ndarray
    low: np.ndarray
    high: np.ndarray
    probability: np.ndarray


def interval(figures: Any, level: float = 0.9) -> Interval:
    """The median and the central interval of a figure over paths.

    Args:
        figures: (N, ...) the figure on each of N paths, NaN where a path has none.
        level: share of the paths that the interval holds.

    Returns:
        `Interval` of arrays (...).

    Raises:
        ValueError: a level outside (0, 1).
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}.")
    figures = np.asarray(figures, np.float64)
    there = ~np.isnan(figures)
    # Quantiles over what exists; where nothing does, any number will do and is then removed.
    filled = np.where(there.any(0), figures, 0.0)
    quantiles = np.nanquantile(filled, [0.5, (1 - level) / 2, (1 + level) / 2], axis=0)
    median, low, high = np.where(there.any(0), quantiles, np.nan)
    return Interval(median, low, high, there.mean(0))


__all__ = ["Interval", "interval", "phase_minutes", "phase_starts", "sample_posterior", "tool_minutes"]

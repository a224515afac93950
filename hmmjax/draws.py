"""Sample paths from the posterior, and summarize start times and durations over them.

Marginals quantify the uncertainty of single frames, but not that of "the gallbladder was packed at 34:10" or "the hook
was in view for 12 minutes of dissection". For these, compute the quantity on each of many paths, and its interval.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import lowering
from hmmjax._core.batch import Batch, canonical, prepare
from hmmjax._core.checks import is_concrete
from hmmjax._core.deprecation import renamed_arguments
from hmmjax._core.tables import tabulate
from hmmjax._core.typing import Array, ArrayLike, Float, Int
from hmmjax.messages import online
from hmmjax.messages.potentials import Potentials
from hmmjax.types import Labels, Observations, Params


def sample_posterior(
    params: Params,
    key: jax.Array,
    obs: Observations,
    mask: ArrayLike = None,
    labels: Labels | None = None,
    *,
    num_samples: int = 100,
) -> Labels:
    """Draw hidden paths given the observations (and labels), by forward filtering and backward sampling.

    Args:
        params: the model, L phases and K tools.
        key: a `jax.random` key.
        obs: (B, T, ...) observations, a list of (T_i, ...) arrays, or (T, ...) for a single video.
        mask: (B, T) bool, True where observed; None if all frames are.
        labels: known states, -1 for unknown; every path agrees with them.
        num_samples: N, paths per video.

    Returns:
        phases (N, B, T) and tools (N, B, T, K) int32, without B for a single video, and lists of (N, T_i, ...) arrays
        given lists; -1 after a video's last observed frame, and in all frames of an impossible video. Videos are
        processed one after the other, which takes memory for T * L * 2**K floats in addition to the result.

    Raises:
        TypeError, ValueError: bad input, or `num_samples` below one.

    Source: Carter and Kohn (1994); Frühwirth-Schnatter (1994).
    """
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, got {num_samples}.")
    batch = prepare(params, obs, mask, labels)
    in_logs = not is_concrete(params) or not lowering.scaled_is_exact(params)
    phases, tools = _draw(canonical(params), key, dataclasses.replace(batch, split=None), num_samples, in_logs)
    return Labels(*batch.restore(None, (phases, tools), axis=1)[1])


@partial(jax.jit, static_argnames=("num_samples", "in_logs"))
def _draw(params: Params, key: jax.Array, batch: Batch, num_samples: int, in_logs: bool) -> tuple[Any, Any]:
    """Draw paths (N, B, T) and (N, B, T, K), one video at a time."""

    def draw(inputs: tuple) -> tuple[Any, Any]:
        key, video = inputs
        return _draw_video(params, key, jax.tree.map(lambda x: x[None], video), num_samples, in_logs)

    keys = jax.random.split(key, len(batch.observed))
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), jax.lax.map(draw, (keys, batch)))


def _draw_video(params: Params, key: jax.Array, batch: Batch, num_samples: int, in_logs: bool) -> tuple[Any, Any]:
    table = tabulate(params, batch)
    structure = lowering.structure_of(params, table)
    length = batch.lengths[0]
    keys = jax.random.split(key, num_samples)
    if structure.independent:
        keys = jax.vmap(lambda key: jax.random.split(key, params.num_tools), out_axes=1)(keys)

    def draw(p: Potentials, keys: jax.Array) -> tuple[Array, Array, Array]:
        chain = online.chain_of(p, in_logs)
        messages, value = online.filtered_messages(chain, p.phases[0], p.configs[0], length)
        phases, configs = jax.vmap(lambda key: online.sample_back(chain, messages, length, key))(keys)
        return phases, configs, value

    phases, configs, value = structure.map(draw, lowering.lower(params, table, batch.lengths).joined(), keys)
    phases, tools = structure.lift_path(phases, configs)
    keep = batch.valid[0] & (structure.lift_log_prob(value) > -jnp.inf)
    phases = None if phases is None else jnp.where(keep, phases, -1)
    tools = None if tools is None else jnp.where(keep[:, None], tools, -1)
    return phases, tools


def phase_starts(phases: Int[Any, "... T"], num_phases: int, *, fps: float = 1.0) -> Float[np.ndarray, "... L"]:
    """Return the seconds from the video's first frame to each phase's first frame, on every path.

    Args:
        phases: (..., T) int paths, -1 for padding.
        num_phases: L.
        fps: frames per second.

    Returns:
        (..., L) seconds, float64; NaN for a phase that the path does not visit.
    """
    phases = np.asarray(phases)
    visited = phases[..., None] == np.arange(num_phases)
    return np.where(visited.any(-2), visited.argmax(-2) / fps, np.nan)


def phase_minutes(phases: Int[Any, "... T"], num_phases: int, *, fps: float = 1.0) -> Float[np.ndarray, "... L"]:
    """Return the minutes spent in each phase, on every path.

    Args:
        phases: (..., T) int paths, -1 for padding.
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
    """Return the minutes that each tool is present in each phase, on every path.

    Args:
        phases: (..., T) int paths, -1 for padding.
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
    """The distribution of a quantity over paths.

    Attributes:
        median: median over the paths on which the quantity is defined; NaN if there are none.
        low: lower end of the central interval.
        high: upper end of the central interval.
        probability: fraction of paths on which the quantity is defined.
    """

    median: np.ndarray
    low: np.ndarray
    high: np.ndarray
    probability: np.ndarray


@renamed_arguments(figures="values")
def interval(values: ArrayLike, level: float = 0.9) -> Interval:
    """Return the median and the central interval of a quantity over paths.

    Args:
        values: (N, ...) the quantity on each of N paths, NaN if it is not defined there.
        level: probability of the interval.

    Returns:
        `Interval` of (...) arrays.

    Raises:
        ValueError: a level outside (0, 1).
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}.")
    values = np.asarray(values, np.float64)
    defined = ~np.isnan(values)
    # nanquantile warns about columns without values, so these are filled first and set to NaN afterwards.
    filled = np.where(defined.any(0), values, 0.0)
    quantiles = np.nanquantile(filled, [0.5, (1 - level) / 2, (1 + level) / 2], axis=0)
    median, low, high = np.where(defined.any(0), quantiles, np.nan)
    return Interval(median, low, high, defined.mean(0))


__all__ = ["Interval", "interval", "phase_minutes", "phase_starts", "sample_posterior", "tool_minutes"]

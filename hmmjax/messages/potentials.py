"""Inputs and outputs of every backend: the potentials of a batch of videos, filtered marginals, and paths."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.configurations import add_over_tools, per_tool
from hmmjax._core.packing import Packing, of_padded
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array


@pytree
class Potentials:
    """A chain over joint states (q, c): phase q of L and tool configuration c of C.

    A configuration is the presence of each of the K tools as the bits of a number, tool 0 the most significant, so
    C = 2**K; without tools C is 1. A model without phases is K chains with L = 2 and C = 1, one per tool.

    Attributes:
        initial: (L, C) probability of the first joint state.
        transition: (L, L) probability of the next phase given this one.
        blocks: per-phase Kronecker factors (L, n, n) of P(next c | c, next q), the most significant bits first; their
            sizes n multiply up to C. Empty when C is 1.
        phases: (B, T, L) log-likelihood of each frame's observations given its phase; 0 for a missing observation.
        configs: (B, T, C) log-likelihood of each frame's observations given its configuration; None for zeros.
        lengths: (B,) int32 number of frames of each video; later frames are padding and are ignored.
        tools: (B, T, K, 2) further log-likelihood of each tool by itself, to be added to that of configurations; None
            for zeros. Backends without `sums_tools` get it added already, see `joined`.
        packing: positions of the videos if they lie one after another in one row of frames, so that (B, T) is (1, N)
            above. Backends without `packs` get them `padded`.
    """

    # Any, not Array: the same class also names axes for jax.vmap.
    initial: Any
    transition: Any
    blocks: Any
    phases: Any
    configs: Any
    lengths: Any
    tools: Any = None
    packing: Packing | Any = None

    @property
    def num_configs(self) -> int:
        """Number of configurations C."""
        if self.configs is not None:
            return self.configs.shape[-1]
        return 1 if self.tools is None else 2 ** self.tools.shape[-2]

    def joined(self) -> "Potentials":
        """Return the same potentials with the log-likelihoods of tools added to those of configurations."""
        configs = None if self.tools is None else add_over_tools(self.tools)
        if self.configs is not None:
            configs = self.configs if configs is None else configs + self.configs
        if configs is None:
            configs = jnp.zeros((*self.phases.shape[:-1], 1), self.phases.dtype)
        return dataclasses.replace(self, configs=configs, tools=None)

    def padded(self) -> "Potentials":
        """Return the same potentials as a padded batch (B, T, ...)."""
        if self.packing is None:
            return self
        phases, configs, tools = jax.tree.map(self.packing.spread, (self.phases, self.configs, self.tools))
        return dataclasses.replace(self, phases=phases, configs=configs, tools=tools, packing=None)

    def packed(self) -> "Potentials":
        """Return the same potentials in one row of frames (1, N, ...), with all padding that they have."""
        if self.packing is not None:
            return self
        packing = of_padded(self.lengths, self.phases.shape[1])
        data = self.phases, self.configs, self.tools
        phases, configs, tools = jax.tree.map(lambda x: x.reshape(1, -1, *x.shape[2:]), data)
        return dataclasses.replace(self, phases=phases, configs=configs, tools=tools, packing=packing)

    def pack_like(self, out: Any) -> Any:
        """Return results of padded videos in the form of these potentials.

        Args:
            out: `Filtered` or `Path`, whose arrays per frame are (B, T, ...).

        Returns:
            The same; with arrays per frame (1, N, ...) if the potentials are packed.
        """
        if self.packing is None:
            return out
        *per_frame, value = (getattr(out, field.name) for field in dataclasses.fields(out))
        return type(out)(*(self.packing.gather(x, self.phases.shape[1]) for x in per_frame), value)


VIDEOS = Potentials(None, None, None, 0, 0, 0)
"""Axes for jax.vmap over the videos; the tables of the model are shared."""


@pytree
class Filtered:
    """Marginals of each frame's state given that frame and all before it.

    Attributes:
        phases: (B, T, L).
        tools: (B, T, K, 2) probabilities of absence and presence.
        log_normalizer: (B,) log-probability of all observations.
    """

    phases: Array
    tools: Array
    log_normalizer: Array

    @classmethod
    def of_configs(cls, phases: Array, configs: Array, log_normalizer: Array) -> "Filtered":
        """Return marginals of tools from those of configurations.

        Args:
            phases: (B, T, L).
            configs: (B, T, C).
            log_normalizer: (B,).
        """
        return cls(phases, per_tool(configs), log_normalizer)


@pytree
class Path:
    """The jointly most probable path.

    Attributes:
        phases: (B, T) int32 phases.
        configs: (B, T) int32 configurations.
        log_prob: (B,) log-probability of the path and the observations; -inf if no path is possible.
    """

    phases: Array
    configs: Array
    log_prob: Array


def log_prob(p: Potentials, phases: Array, configs: Array) -> Array:
    """Compute the log-probability (B,) of paths (B, T) and the observations; (1, N) if packed."""
    packing, num_frames = p.packing, phases.shape[1]
    position = jnp.arange(num_frames) if packing is None else packing.position(num_frames)
    steps, right = num.log(p.transition)[phases[:, :-1], phases[:, 1:]], p.configs.shape[-1]
    for block in p.blocks:
        n = block.shape[-1]
        right //= n
        own = (configs // right) % n
        steps += num.log(block)[phases[:, 1:], own[:, :-1], own[:, 1:]]
    first = num.log(p.initial).astype(p.phases.dtype)[phases, configs]
    emission = jnp.take_along_axis(p.phases, phases[..., None], -1)
    emission = emission + jnp.take_along_axis(p.configs, configs[..., None], -1)
    parts = jnp.where(position == 0, first, jnp.pad(steps, [(0, 0), (1, 0)])) + emission[..., 0]
    if packing is not None:
        parts = packing.spread(parts)
    return num.accurate_sum(jnp.where(jnp.arange(parts.shape[1]) < p.lengths[:, None], parts, 0))

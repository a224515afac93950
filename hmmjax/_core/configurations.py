"""Configurations of K tools: which are present, numbered by their bits, tool 0 the slowest; there are C = 2**K."""

import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.typing import Array


def bits(num_tools: int) -> Array:
    """(C, K) presence of each tool in each configuration."""
    return (jnp.arange(2**num_tools)[:, None] >> jnp.arange(num_tools - 1, -1, -1)) & 1


def add_over_tools(per_tool: Array) -> Array:
    """(..., K, 2) log-tables to their sums (..., C) over configurations."""
    out = per_tool[..., 0, :]
    for k in range(1, per_tool.shape[-2]):
        out = (out[..., :, None] + per_tool[..., k, None, :]).reshape(*out.shape[:-1], -1)
    return out


def multiply_over_tools(per_tool: Array) -> Array:
    """(..., K, n) weights of each tool's n states to their products (..., n**K), tool 0 the slowest."""
    out = per_tool[..., 0, :]
    for k in range(1, per_tool.shape[-2]):
        out = (out[..., :, None] * per_tool[..., k, None, :]).reshape(*out.shape[:-1], -1)
    return out


def per_config(table: Array, num_tools: int) -> Array:
    """A table (..., K, 2) over each tool's own states as one (..., K, C) over configurations."""
    own = jnp.broadcast_to(bits(num_tools).T, (*table.shape[:-1], 2**num_tools))
    return jnp.take_along_axis(table, own, -1)


def per_state(weights: Array, num_tools: int) -> Array:
    """Weights (..., K, C) of configurations summed to (..., K, 2) of each tool's own states."""
    own = bits(num_tools).T.astype(weights.dtype)
    return num.einsum("...kc,kcj->...kj", weights, jnp.stack([1 - own, own], -1))

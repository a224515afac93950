"""Configurations of K tools, C = 2**K subsets numbered by their bits; tool 0 is the highest bit."""

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import numerics as num
from hmmjax._core.typing import Array


def bits(num_tools: int) -> Array:
    """Return the presence (C, K) of each tool in each configuration."""
    return (jnp.arange(2**num_tools)[:, None] >> jnp.arange(num_tools - 1, -1, -1)) & 1


def add_over_tools(per_tool: Array) -> Array:
    """Sum log-tables (..., K, 2) over tools, to (..., C) for each configuration."""
    out = per_tool[..., 0, :]
    for k in range(1, per_tool.shape[-2]):
        out = (out[..., :, None] + per_tool[..., k, None, :]).reshape(*out.shape[:-1], -1)
    return out


def multiply_over_tools(per_tool: Array) -> Array:
    """Multiply weights (..., K, n) of each tool's n states over tools, to (..., n**K) with tool 0 the slowest."""
    out = per_tool[..., 0, :]
    for k in range(1, per_tool.shape[-2]):
        out = (out[..., :, None] * per_tool[..., k, None, :]).reshape(*out.shape[:-1], -1)
    return out


@jax.custom_jvp
def joint_of_tools(per_tool: Array) -> Array:
    """Do what `multiply_over_tools` does for weights (..., K, 2), with a derivative that is quick to compile.

    JAX's own is a chain of K sums of products, in a kernel each. This one takes K times the memory of the result.
    """
    return multiply_over_tools(per_tool)


@joint_of_tools.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    (weights,), (tangent,) = primals, tangents
    num_tools = weights.shape[-2]
    others = joint_of_tools(jnp.where(np.eye(num_tools, dtype=bool)[..., None], 1, weights[..., None, :, :]))
    own = np.arange(2**num_tools)[:, None] >> np.arange(num_tools - 1, -1, -1) & 1
    states = jnp.asarray(own[..., None] == np.arange(2), weights.dtype)
    return joint_of_tools(weights), (others * num.einsum("...ki,cki->...kc", tangent, states)).sum(-2)


def per_tool(configs: Array) -> Array:
    """Sum weights (..., C) of configurations to (..., K, 2) of each tool's absence and presence."""
    present = bits(configs.shape[-1].bit_length() - 1).astype(configs.dtype)
    return num.einsum("...c,cki->...ki", configs, jnp.stack([1 - present, present], -1))


def per_config(table: Array, num_tools: int) -> Array:
    """Expand a table (..., K, 2) over each tool's own states to (..., K, C) over configurations."""
    own = jnp.broadcast_to(bits(num_tools).T, (*table.shape[:-1], 2**num_tools))
    return jnp.take_along_axis(table, own, -1)


def per_state(weights: Array, num_tools: int) -> Array:
    """Sum weights (..., K, C) of configurations to (..., K, 2) of each tool's own states."""
    own = bits(num_tools).T.astype(weights.dtype)
    return num.einsum("...kc,kcj->...kj", weights, jnp.stack([1 - own, own], -1))

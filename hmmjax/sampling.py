"""Drawing videos from a model."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hmmjax import durations
from hmmjax._core import configurations, lowering, validation
from hmmjax._core import numerics as num
from hmmjax._core.batch import Data, bucket
from hmmjax._core.checks import is_concrete
from hmmjax.types import Labels, Observations, Params


def sample(params: Params, key: jax.Array, lengths: Any) -> tuple[Labels, Observations, Any]:
    """Draw hidden states and what the recognizer would say of them.

    Args:
        params: the model.
        key: a `jax.random` key.
        lengths: frames per video, a sequence of B integers; one integer draws a single video without batch axis.

    Returns:
        labels: phases (B, T), tools (B, T, K) int32, -1 after each video's end; T is the longest length.
        obs: of each track that has an emission; harmless values (0) after each video's end.
        mask: (B, T) bool, True up to each video's end.

    Raises:
        ValueError: a negative length, or invalid parameters.

    Source: the paper's model, read as a recipe: start, transitions, emissions.
    """
    if is_concrete(params):
        validation.check_params(params)
    lengths = np.asarray(lengths)
    if lengths.shape == (0,):
        lengths = lengths.astype(np.int32)
    if lengths.ndim > 1 or not np.issubdtype(lengths.dtype, np.integer) or (lengths < 0).any():
        raise ValueError(f"lengths must be non-negative integers, one a video, got {lengths!r}.")
    batch = np.atleast_1d(lengths).astype(np.int32)
    num_frames = int(batch.max(initial=0))
    draw = partial(_sample, num_frames=bucket(num_frames))
    out = jax.vmap(draw, (None, 0, 0))(params, jax.random.split(key, len(batch)), jnp.asarray(batch))
    out = jax.tree.map(lambda x: x[:, :num_frames], out)
    return out if lengths.ndim else jax.tree.map(lambda x: x[0], out)


@partial(jax.jit, static_argnames="num_frames")
def _sample(params: Params, key: jax.Array, length: Any, num_frames: int) -> tuple[Labels, Observations, Any]:
    empty = Data(None, None, jnp.zeros((1, num_frames), bool), None, None)
    table = lowering.tables(params, empty)
    key_chain, key_phases, key_tools = jax.random.split(key, 3)
    with_phases, with_tools = params.phases is not None, params.tools is not None
    # The chain below is of stages, which are the phases themselves where there is one each.
    transition, initial_phase, owner = table.phase_transition, table.phase_initial, None
    if params.phases is not None and params.phases.stages is not None:
        owner = jnp.asarray(durations.owners(params.phases.stages))
        transition = durations.staged_transition(transition, params.phases.stages)
        initial_phase = durations.staged_initial(initial_phase[:, None], params.phases.stages)[:, 0]

    def phase_of(stage: Any) -> Any:
        return stage if owner is None else owner[stage]

    factors: Any = ()
    if params.tools is not None:
        factors = params.tools.transition.blocks(table.tool_transition)

    def first(key: jax.Array) -> tuple[Any, Any]:
        key_phase, key_tool = jax.random.split(key)
        phase = jax.random.categorical(key_phase, num.log(initial_phase)) if with_phases else None
        if not with_tools:
            return phase, None
        initial = table.tool_initial[:, phase_of(phase), 1] if with_phases else table.tool_initial[:, 1]
        return phase, jax.random.bernoulli(key_tool, initial).astype(jnp.int32)

    def step(state: tuple, key: jax.Array) -> tuple:
        phase, tools = state
        key_phase, key_tool = jax.random.split(key)
        if with_phases:
            phase = jax.random.categorical(key_phase, num.log(transition)[phase])
        if with_tools:
            tools = _next_tools(key_tool, phase_of(phase), tools)
        return (phase, tools), (phase, tools)

    def _next_tools(key: jax.Array, phase: Any, tools: Any) -> Any:
        chosen = [f[phase] for f in factors] if with_phases else factors
        if len(chosen) == params.num_tools:
            matrix = jnp.stack(chosen)
            present = jnp.where(tools == 1, matrix[:, 1, 1], matrix[:, 0, 1])
        else:
            # Interacting tools: one joint table, drawn as a whole configuration.
            config = jnp.sum(tools * 2 ** jnp.arange(params.num_tools - 1, -1, -1))
            config = jax.random.categorical(key, num.log(chosen[0][config]))
            return configurations.bits(params.num_tools)[config]
        return jax.random.bernoulli(key, present).astype(jnp.int32)

    keys = jax.random.split(key_chain, num_frames)
    start = first(keys[0])
    _, rest = lax.scan(step, start, keys[1:])
    states = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, rest)
    phases, tools = states
    phases = phase_of(phases)
    mask = jnp.arange(num_frames) < length

    def said(chain: Any, key: jax.Array, states: Any) -> Any:
        if chain is None or chain.emission is None:
            return None
        drawn = chain.emission.sample(key, states)
        return jax.tree.map(lambda x: jnp.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, 0), drawn)

    obs = Observations(said(params.phases, key_phases, phases), said(params.tools, key_tools, tools))
    phases = jnp.where(mask, phases, -1).astype(jnp.int32) if with_phases else None
    tools = jnp.where(mask[:, None], tools, -1) if with_tools else None
    return Labels(phases, tools), obs, mask

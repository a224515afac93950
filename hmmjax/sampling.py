"""Sample hidden states and observations from a model."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hmmjax._core import configurations, lowering, validation
from hmmjax._core import numerics as num
from hmmjax._core.arrays import native
from hmmjax._core.batch import Batch, bucket, canonical, dtype_of
from hmmjax._core.checks import is_concrete
from hmmjax._core.interpreter import interpretable
from hmmjax._core.memory import blank_past, push_past
from hmmjax._core.tables import tabulate
from hmmjax._core.typing import Array, ArrayLike
from hmmjax.types import Labels, Observations, Params


def sample(params: Params, key: jax.Array, lengths: ArrayLike) -> tuple[Labels, Observations, Array]:
    """Draw hidden states, and observations of them.

    Args:
        params: the model.
        key: a `jax.random` key.
        lengths: frames per video, a sequence of B integers; one integer draws a single video without batch axis.

    Returns:
        labels: phases (B, T), tools (B, T, K) int32, -1 after each video's end; T is the longest length.
        obs: observations of each track that has an emission family; 0 after each video's end.
        mask: (B, T) bool, True up to each video's end.

    Raises:
        ValueError: a negative length, or invalid parameters.

    Source: ancestral sampling from the paper's model: starts, transitions, emissions.
    """
    if is_concrete(params):
        validation.check_params(params)
    params = canonical(params)
    lengths = np.asarray(native("lengths", lengths))
    if lengths.shape == (0,):
        lengths = lengths.astype(np.int32)
    if lengths.ndim > 1 or not np.issubdtype(lengths.dtype, np.integer) or (lengths < 0).any():
        raise ValueError(f"lengths must be non-negative integers, one per video, got {lengths!r}.")
    batch = np.atleast_1d(lengths).astype(np.int32)
    num_frames = int(batch.max(initial=0))
    # Rounded up, so that many lengths share a program.
    out = _sample_batch(params, key, batch, num_frames=bucket(num_frames))
    cut = (slice(None) if lengths.ndim else 0, slice(num_frames))
    return jax.tree.map(lambda x: jax.device_put(np.asarray(x)[cut]) if is_concrete(x) else x[cut], out)


@interpretable(static_argnames="num_frames")
def _sample_batch(params: Params, key: jax.Array, lengths: Array, num_frames: int) -> tuple[Labels, Observations, Any]:
    keys = jax.random.split(key, len(lengths))
    return jax.vmap(partial(_sample, params, num_frames=num_frames))(keys, lengths)


def _sample(params: Params, key: jax.Array, length: Any, num_frames: int) -> tuple[Labels, Observations, Any]:
    """Draw one video."""
    key_chain, key_phases, key_tools = jax.random.split(key, 3)
    keys = jax.random.split(key_chain, num_frames)
    phases, tools = _sample_states(params, keys)
    mask = jnp.arange(num_frames) < length

    def observe(chain: Any, key: jax.Array, states: Any) -> Any:
        if chain is None or chain.emission is None:
            return None
        drawn = _sample_observations(chain.emission, key, states, dtype_of(params))
        return jax.tree.map(lambda x: jnp.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, 0), drawn)

    obs = Observations(observe(params.phases, key_phases, phases), observe(params.tools, key_tools, tools))
    phases = None if phases is None else jnp.where(mask, phases, -1)
    tools = None if tools is None else jnp.where(mask[:, None], tools, -1)
    return Labels(phases, tools), obs, mask


def _sample_observations(emission: Any, key: jax.Array, states: Array, dtype: Any) -> Any:
    """Draw the observations of one track's states (T, ...); with memory, each given those drawn before it."""
    if not emission.lag:
        return emission.sample(key, states)

    def step(past: Any, frame: tuple) -> tuple:
        key, state = frame
        drawn = emission.sample(key, state, past)
        return push_past(emission, past, drawn, jnp.asarray(True)), drawn

    keys = jax.random.split(key, len(states))
    return lax.scan(step, blank_past(emission, (), dtype), (keys, states))[1]


def _sample_states(params: Params, keys: jax.Array) -> tuple[Any, Any]:
    """Draw one path: phases (T,) and tools (T, K) int32, with one key per frame."""
    table = tabulate(params, Batch.unobserved(1))
    # Lower the phases alone, so that they are drawn over stages if they have any.
    alone = Params(phases=params.phases)
    structure = lowering.structure_of(alone)
    chain = None if params.phases is None else lowering.lower(alone, table, jnp.zeros((1,), jnp.int32))

    # All random numbers at once: the scan only compares.
    keys = jax.vmap(jax.random.split)(keys)
    phase_noise = tool_noise = joint = None
    if chain is not None:
        start_logits, logits = num.log(chain.initial[:, 0]), num.log(chain.transition)
        phase_noise = jax.vmap(lambda key: jax.random.gumbel(key, start_logits.shape, logits.dtype))(keys[:, 0])
    if params.tools is not None:
        present = table.tool_initial[..., 1]
        tool_noise = jax.vmap(lambda key: jax.random.uniform(key, present.shape[:1], present.dtype))(keys[:, 1])
        blocks = params.tools.transition.blocks(table.tool_transition)
        if params.tools.transition.is_joint:
            size, moves = 2**params.num_tools, num.log(blocks[0])
            joint = jax.vmap(lambda key: jax.random.gumbel(key, (size,), present.dtype))(keys[:, 1])
        else:
            moves = jnp.stack([block[..., 1] for block in blocks], -1)  # to presence, from each state

    def draw_phase(noise: Any, previous: Any) -> Any:
        if chain is None:
            return None
        return jnp.argmax(noise + (start_logits if previous is None else logits[previous]), -1)

    def draw_tools(noise: Any, joint: Any, stage: Any, previous: Any) -> Any:
        if params.tools is None:
            return None
        phase = None if stage is None else structure.lift_path(stage, stage)[0]
        if previous is None:
            start = present if phase is None else present[:, phase]
            return (noise < start).astype(jnp.int32)
        matrix = moves if phase is None else moves[phase]
        if joint is None:
            return (noise < jnp.where(previous == 1, matrix[1], matrix[0])).astype(jnp.int32)
        config = jnp.sum(previous * 2 ** jnp.arange(params.num_tools - 1, -1, -1))
        return configurations.bits(params.num_tools)[jnp.argmax(joint + matrix[config], -1)]

    def step(state: tuple, noise: tuple) -> tuple:
        phase_noise, tool_noise, joint = noise
        stage = draw_phase(phase_noise, state[0])
        state = stage, draw_tools(tool_noise, joint, stage, state[1])
        return state, state

    noise = phase_noise, tool_noise, joint
    start, _ = step((None, None), jax.tree.map(lambda x: x[0], noise))
    _, rest = lax.scan(step, start, jax.tree.map(lambda x: x[1:], noise))
    stages, tools = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, rest)
    phases = None if stages is None else structure.lift_path(stages, stages)[0]
    return phases, tools

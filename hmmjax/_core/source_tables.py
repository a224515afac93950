"""Emission log-likelihoods of each recognizer by itself, apart from the chains.

What runs on them (`score_labels`, the objective of `hmmjax.calibrate`) knows nothing of emission families, so one
compiled program serves all families and all powers.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmmjax._core import lowering
from hmmjax._core.batch import Batch
from hmmjax._core.sources import Source
from hmmjax._core.tables import Tables, clamp, tabulate
from hmmjax._core.typing import Array
from hmmjax.types import Params

SourceTables = dict[Source, Array]
"""Per recognizer (B, T, L) of phases, (B, T, K, 2) of tools, or (B, T, K, 2**K) of joint families of tools."""


def temper(tables: SourceTables, powers: dict[Source, Array]) -> SourceTables:
    """Return tables multiplied by powers: scalars, (L,) or (K,). Impossible states stay impossible."""
    out = {}
    for source, table in tables.items():
        power = powers[source][..., None] if source.track == "tools" else powers[source]
        possible = table > -jnp.inf
        out[source] = jnp.where(possible, power * jnp.where(possible, table, 0), -jnp.inf)
    return out


def without_observations(batch: Batch) -> Batch:
    """Return the batch without observations, so that programs do not depend on their kind."""
    return dataclasses.replace(batch, phases=None, tools=None)


def combine(chains: Params, tables: SourceTables, batch: Batch) -> Tables:
    """Return the tables of a model and a batch without labels.

    Args:
        chains: a model without emissions.
        tables: per recognizer; those of one track are added, and a track without any is unobserved.
        batch: observed frames.
    """
    out = tabulate(chains, without_observations(batch).without_labels())
    phases, tools, configs = out.phases, out.tools, out.configs
    for source, table in tables.items():
        observed = batch.observed.reshape(*batch.observed.shape, *[1] * (table.ndim - 2))
        table = jnp.where(observed, table, 0)
        if source.track == "phases":
            phases = phases + table.astype(phases.dtype)
        elif table.shape[-1] == 2:
            tools = tools + table.astype(tools.dtype)
        else:
            configs = (0 if configs is None else configs) + table.sum(-2).astype(tools.dtype)
    return dataclasses.replace(out, phases=phases, tools=tools, configs=configs)


class Scores(NamedTuple):
    """Posteriors and log-likelihoods of videos.

    Attributes:
        phases: (B, T, L) probabilities, None without phases.
        tools: (B, T, K) probabilities of presence, None without tools.
        log_likelihood: (B,) log-probability of the observations.
        conditional: (B,) log-probability of the labels given the observations.
    """

    phases: Any
    tools: Any
    log_likelihood: Array
    conditional: Array


@partial(jax.jit, static_argnames="backend")
def score_labels(
    chains: Params, tables: SourceTables, powers: dict[Source, Array], batch: Batch, backend: str
) -> Scores:
    """Infer the states of videos, and score their labels.

    Args:
        chains: a model without emissions.
        tables: per recognizer, with powers of one.
        powers: per recognizer.
        batch: observed frames and labels, without observations.
        backend: a name in `hmmjax.messages.BACKENDS`.
    """
    free = combine(chains, temper(tables, powers), batch)
    valid = batch.valid
    clamped = dataclasses.replace(
        free,
        phases=None if free.phases is None else clamp(free.phases, batch.phase_labels, valid),
        tools=None if free.tools is None else clamp(free.tools, batch.tool_labels, valid),
    )
    value, *marginals = lowering.smooth(chains, free, batch.lengths, backend)
    phases, tools, *_ = lowering.report(*marginals)
    joint = lowering.log_normalizer(chains, clamped, batch.lengths, backend)
    possible = value > -jnp.inf
    conditional = jnp.where(possible, joint - jnp.where(possible, value, 0), -jnp.inf)
    return Scores(phases, tools, value, conditional)

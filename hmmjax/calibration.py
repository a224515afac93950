"""Calibrate emissions by tempering: choose powers that maximize the conditional likelihood of the labels."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import lowering
from hmmjax._core import numerics as num
from hmmjax._core.batch import Batch, dtype_of, known_frames, prepare, require_known
from hmmjax._core.deprecation import renamed_arguments
from hmmjax._core.minimize import check_options, minimize
from hmmjax._core.pytree import pytree
from hmmjax._core.sources import Source, map_families, observations_of, observed_families, without_emissions
from hmmjax._core.tables import fill_masked, tabulate
from hmmjax._core.typing import Array
from hmmjax.emissions import Emission, Fused, Tempered
from hmmjax.initialize import label_weights
from hmmjax.priors import Priors, check_priors, of_source
from hmmjax.types import Labels, Observations, Params

FOLDS = 5
"""Default number of parts into which labeled videos are split."""

FEW_VIDEOS = 4
"""With fewer labeled videos than this, there is no cross-fitting: tables learned from one or two videos differ too much
from the model's own. Powers are then found with the given tables."""

IMPOSSIBLE = (
    "the labels are impossible under params (conditional log-likelihood not finite): use pseudo-counts when estimating "
    "the tables (hmmjax.Priors), or correct the labels."
)
"""Message for labels of probability zero, which neither `calibrate` nor `refine` can improve."""


@pytree
class Calibration:
    """The result of `calibrate`.

    Attributes:
        params: the model with tempered emissions.
        before: conditional log-likelihood of the labels given the observations, in nats, with powers of one.
        after: conditional log-likelihood with the powers found, on the same videos.
        iterations: number of optimizer iterations.
        folds: number of parts into which videos were split, each scored with tables that were learned from the others;
            0 if powers were found with the given tables.
    """

    params: Params
    before: float
    after: float
    iterations: int
    folds: int


@renamed_arguments(strength="l2", iterations="max_iterations")
def calibrate(
    params: Params,
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    folds: int | None = None,
    per_phase: bool = False,
    l2: float = 1.0,
    priors: Priors | None = None,
    max_iterations: int = 30,
    backend: str = "auto",
) -> Calibration:
    """Temper the emissions of the observed tracks so that the labels of labeled videos become most probable.

    Maximizes log P(labels | observations), the log-likelihood with labels minus that without, over one power for the
    phases (or one per phase) and one per tool. Emissions fit the videos that they were learned from better than new
    videos. Labeled videos are therefore split into folds, and each fold is scored with tables learned from the labeled
    frames of the others. The result keeps the given tables.

    Args:
        params: a model, emissions included; emissions that are already tempered start from their powers.
        obs: (B, T, ...) observations of labeled videos.
        mask: (B, T) bool, True where observed.
        labels: known states; -1 is unknown.
        folds: number of parts into which labeled videos are split, each with every folds-th video. 0 uses the given
            tables, which should then be learned from other videos. None means `FOLDS` (5), or one video per part if
            there are fewer videos, or 0 with fewer than `FEW_VIDEOS` (4) labeled videos.
        per_phase: whether every phase has a power of its own.
        l2: L2 penalty on log-powers, in nats per unit squared: half the precision of a normal prior with mean zero.
        priors: pseudo-counts for the folds' emissions; use those with which `params` was learned.
        max_iterations: maximum number of quasi-Newton iterations.
        backend: "auto" or a name in `hmmjax.messages.BACKENDS`.

    Returns:
        `Calibration`, whose `params` are the given ones with tempered emissions.

    Raises:
        TypeError, ValueError: bad input, no labels, or videos that are impossible under `params`.

    Source: the objective of Bahl et al. (1986), as in `refine`, over powers alone.
    """
    if labels is None or (labels.phases is None and labels.tools is None):
        raise ValueError("calibrate needs labels: pass hmmjax.Labels(phases=..., tools=...) with some frames known.")
    check_options(l2, max_iterations)
    priors = Priors() if priors is None else priors
    batch = prepare(params, obs, mask, labels)
    require_known(batch, "calibrate")
    if not jax.tree.leaves((batch.phases, batch.tools)):
        raise ValueError("calibrate needs observations, but obs is empty: pass obs.phases or obs.tools.")
    check_priors(params, priors)
    start = _temper(params, batch, per_phase)
    families = observed_families(start, batch)
    parts = split_folds(batch, folds)
    tables = _held_out_log_probs(families, params, batch, parts, priors)
    powers = {source: family.power for source, family in families.items() if isinstance(family, Tempered)}
    name, chains = lowering.choose_backend(backend, params), without_emissions(start)

    def objective(theta: np.ndarray, l2: float = l2) -> tuple[float, np.ndarray]:
        value, gradient = _objective(theta, powers, chains, tables, batch, l2, name)
        return float(value), np.asarray(gradient, np.float64)

    theta = np.asarray(jnp.log(jnp.concatenate([jnp.ravel(p) for p in powers.values()])), np.float64)
    before, _ = objective(np.zeros_like(theta), 0.0)
    if not np.isfinite(before):
        raise ValueError(IMPOSSIBLE)
    theta, iterations = minimize(objective, theta, max_iterations)
    after, _ = objective(theta, 0.0)
    found = {source: p.astype(dtype_of(params)) for source, p in _unflatten(jnp.asarray(theta), powers).items()}

    def set_power(source: Source, family: Emission) -> Emission:
        return Tempered(family.unwrapped, found[source]) if source in found else family

    return Calibration(map_families(start, set_power), -before, -after, iterations, len(parts))


def without_powers(params: Params) -> Params:
    """Return the model with all powers removed."""
    return map_families(params, lambda source, family: family.unwrapped)


def _temper(params: Params, batch: Batch, per_phase: bool) -> Params:
    """Return the model with every observed family tempered by powers of the requested shape."""

    def temper(source: Source, family: Emission) -> Emission:
        if observations_of(batch, source) is None:
            return family
        shape = (params.num_tools,) if source.track == "tools" else (params.num_phases,) if per_phase else ()
        power: Any = jnp.ones((), dtype_of(params))
        if isinstance(family, Tempered):
            power = jnp.asarray(family.power, dtype_of(params))
            shape = np.broadcast_shapes(shape, power.shape)
        return Tempered(family.unwrapped, jnp.broadcast_to(power, shape))

    return map_families(params, temper)


def _unflatten(theta: Array, powers: dict[Source, Array]) -> dict[Source, Array]:
    """Return powers in the shapes of `powers` from a vector of log-powers."""
    out, at = {}, 0
    for source, like in powers.items():
        out[source] = jnp.exp(theta[at : at + like.size]).reshape(like.shape)
        at += like.size
    return out


def split_folds(batch: Batch, folds: int | None) -> list[np.ndarray]:
    """Return the positions of the labeled videos of each fold; an empty list if the given tables are to be used."""
    known = known_frames(batch).any(1)
    if folds is None:
        folds = 0 if known.sum() < FEW_VIDEOS else min(FOLDS, int(known.sum()))
    if folds != int(folds) or (folds and not 2 <= folds <= known.sum()):
        raise ValueError(
            f"folds={folds} needs to be 0 (no folds), or from 2 to the number of labeled videos, {known.sum()}."
        )
    return [np.flatnonzero(known)[i :: int(folds)] for i in range(int(folds))]


def _held_out_log_probs(
    families: dict[Source, Emission], params: Params, batch: Batch, parts: Sequence[np.ndarray], priors: Priors
) -> dict[Source, Array]:
    """Return untempered emission log-likelihoods per source; those of each part use tables learned from the others."""
    out = {}
    for source, tempered in families.items():
        observations = fill_masked(observations_of(batch, source), jnp.asarray(batch.observed), dtype_of(params))
        # As the only member of a fused family: missing frames then contribute nothing.
        family, given = Fused((tempered.unwrapped,)), (observations,)
        labels = batch.phase_labels if source.track == "phases" else batch.tool_labels
        if not parts or labels is None:
            out[source] = _log_prob(family, given)
            continue
        pseudo = priors.phase_emission if source.track == "phases" else priors.tool_emission
        num_states = params.num_phases if source.track == "phases" else 2
        combined = None
        for part in parts:
            others = np.ones(len(batch.observed), bool)
            others[part] = False
            pseudo_counts = of_source(pseudo, source.index)
            table = _log_prob(_learn(family, given, labels, batch, others, pseudo_counts, num_states), given)
            combined = table if combined is None else jnp.where(_over_frames(others, table), combined, table)
        out[source] = combined
    return out


@jax.jit
def _log_prob(family: Any, observations: Any) -> Array:
    return family.log_prob(observations)


@partial(jax.jit, static_argnames="num_states")
def _learn(
    family: Any, observations: Any, labels: Any, batch: Batch, videos: Array, pseudo_counts: Any, num_states: int
) -> Any:
    """Return the family estimated from the labeled, observed frames of some videos."""
    used = batch.observed.reshape(*batch.observed.shape, *[1] * (labels.ndim - 2)) & _over_frames(videos, labels)
    weights = jnp.where(used[..., None], jax.nn.one_hot(labels, num_states), 0)
    return family.from_counts(family.statistics(observations, label_weights(family, weights)), pseudo_counts)


def _over_frames(videos: Any, like: Any) -> Any:
    """Return (B,) values with further axes of size one, so that they broadcast to `like`."""
    return jnp.reshape(videos, (-1,) + (1,) * (like.ndim - 1))


def _label_log_prob(params: Params, tables: dict[Source, Array], batch: Batch, backend: str) -> Array:
    """Return the log-probability (B,) of each video's labels given its observations.

    Args:
        params: chains without emissions.
        tables: emission log-likelihoods of each source, (B, T, L) for phases, (B, T, K, 2), or (B, T, K, 2**K) of joint
            families, for tools. Those of one track are added; a track without any is unobserved.
        batch: observed frames and labels.
        backend: a name in `hmmjax.messages.BACKENDS`.
    """
    blank = tabulate(params, batch.without_labels())
    phases, tools, configs = blank.phases, blank.tools, blank.configs
    for source, table in tables.items():
        observed = batch.observed.reshape(*batch.observed.shape, *[1] * (table.ndim - 2))
        table = jnp.where(observed, table, 0)
        if source.track == "phases":
            phases = phases + table.astype(phases.dtype)
        elif table.shape[-1] == 2:
            tools = tools + table.astype(tools.dtype)
        else:
            configs = (0 if configs is None else configs) + table.sum(-2).astype(tools.dtype)
    return lowering.conditional(
        params, dataclasses.replace(blank, phases=phases, tools=tools, configs=configs), batch, backend
    )


def _loss(
    theta: Array, powers: dict, chains: Params, tables: dict[Source, Array], batch: Batch, l2: Any, backend: str
) -> Array:
    """Return minus the labels' conditional log-likelihood, plus the penalty on log-powers."""
    found = _unflatten(jnp.asarray(theta), powers)
    tempered = {}
    for source, table in tables.items():
        power = found[source][..., None] if source.track == "tools" else found[source]
        possible = table > -jnp.inf
        tempered[source] = jnp.where(possible, power * jnp.where(possible, table, 0), -jnp.inf)
    value = _label_log_prob(chains, tempered, batch, backend)
    return -num.accurate_sum(value) + l2 * jnp.sum(jnp.asarray(theta) ** 2)


_objective = jax.jit(jax.value_and_grad(_loss), static_argnames="backend")

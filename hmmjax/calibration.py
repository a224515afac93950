"""Calibrate emissions by tempering: choose powers that maximize the conditional likelihood of the labels."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hmmjax._core import lowering
from hmmjax._core import numerics as num
from hmmjax._core.batch import Batch, canonical, dtype_of, known_frames, prepare, require_known
from hmmjax._core.deprecation import renamed_arguments
from hmmjax._core.inputs import refuse_labels
from hmmjax._core.interpreter import interpretable
from hmmjax._core.memory import with_past
from hmmjax._core.minimize import check_options, minimize
from hmmjax._core.objectives import PATH, Objective
from hmmjax._core.pytree import pytree
from hmmjax._core.source_tables import SourceTables, combine, temper, without_observations
from hmmjax._core.sources import Source, map_families, observations_of, observed_families, without_emissions
from hmmjax._core.tables import fill_masked
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
        before: the objective with powers of one, summed over videos, in nats; by default the conditional log-likelihood
            of the labels given the observations.
        after: the objective with the powers found, on the same videos.
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
    objective: str = "path",
    balanced: bool = False,
    video_weight: float = 30.0,
    folds: int | None = None,
    per_phase: bool = False,
    l2: float = 1.0,
    priors: Priors | None = None,
    max_iterations: int = 30,
    backend: str = "auto",
) -> Calibration:
    """Temper the emissions of the observed tracks so that the labels of labeled videos become most probable.

    Maximizes log P(labels | observations), the log-likelihood with labels minus that without (or another `objective` of
    `refine`), over one power for the phases (or one per phase) and one per tool. Emissions fit the videos that they
    were learned from better than new videos. Labeled videos are therefore split into folds, and each fold is scored
    with tables learned from the labeled frames of the others. The result keeps the given tables.

    Args:
        params: a model, emissions included; emissions that are already tempered start from their powers.
        obs: (B, T, ...) observations of labeled videos.
        mask: (B, T) bool, True where observed.
        labels: known states; -1 is unknown.
        objective: "path", or "smoother" or "filter": what `refine` maximizes by these names, over powers alone.
        balanced: as in `refine`.
        video_weight: as in `refine`.
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
    refuse_labels(mask)
    if labels is None or (labels.phases is None and labels.tools is None):
        raise ValueError("calibrate needs labels: pass hmmjax.Labels(phases=..., tools=...) with some frames known.")
    goal = Objective(objective, balanced, video_weight)
    goal.check()
    check_options(l2, max_iterations)
    priors = Priors() if priors is None else priors
    batch = prepare(params, obs, mask, labels)
    params = canonical(params)
    require_known(batch, "calibrate")
    if not jax.tree.leaves((batch.phases, batch.tools)):
        raise ValueError("calibrate needs observations, but obs is empty: pass obs.phases or obs.tools.")
    check_priors(params, priors)
    start = _temper(params, batch, per_phase)
    families = observed_families(start, batch)
    parts = split_folds(batch, folds)
    tables = held_out_tables(families, params, batch, parts, priors)
    powers = {source: family.power for source, family in families.items() if isinstance(family, Tempered)}
    chains, backend = without_emissions(start), lowering.choose_backend(backend, params)
    options: dict[str, Any] = {"l2": l2, "max_iterations": max_iterations, "backend": backend, "goal": goal}
    found = find_powers(chains, tables, powers, batch, **options)

    def set_power(source: Source, family: Emission) -> Emission:
        power = found.powers.get(source)
        return family if power is None else Tempered(family.unwrapped, power.astype(dtype_of(params)))

    return Calibration(map_families(start, set_power), found.before, found.after, found.iterations, len(parts))


class Powers(NamedTuple):
    """The result of `find_powers`; its fields are those of `Calibration`, with powers by recognizer."""

    powers: dict[Source, Array]
    before: float
    after: float
    iterations: int


def find_powers(
    chains: Params,
    tables: SourceTables,
    powers: dict[Source, Array],
    batch: Batch,
    *,
    l2: float,
    max_iterations: int,
    backend: str,
    goal: Objective = PATH,
) -> Powers:
    """Return the powers with which the labels of a batch are most probable, see `calibrate`.

    Args:
        chains: a model without emissions.
        tables: emission log-likelihoods per recognizer, with powers of one.
        powers: the powers to start from.
        batch: observed frames and labels.
        l2: penalty on log-powers.
        max_iterations: maximum number of quasi-Newton iterations.
        backend: a name in `hmmjax.messages.BACKENDS`.
        goal: the objective.

    Raises:
        ValueError: the labels are impossible.
    """
    # Videos without labels do not count; as empty ones they cost nothing.
    labeled = batch.observed & known_frames(batch).any(1, keepdims=True)
    batch = dataclasses.replace(without_observations(batch), observed=labeled)
    seen: dict[bytes, tuple[float, np.ndarray]] = {}

    def evaluate(theta: np.ndarray) -> tuple[float, np.ndarray]:
        if theta.tobytes() not in seen:
            value, gradient = _objective(theta, powers, chains, tables, batch, goal, backend)
            seen[theta.tobytes()] = float(value), np.asarray(gradient, np.float64)
        return seen[theta.tobytes()]

    def penalized(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = evaluate(theta)
        return value + l2 * float(np.sum(theta**2)), gradient + 2 * l2 * theta

    theta = np.log(np.concatenate([np.ravel(np.asarray(p, np.float64)) for p in powers.values()]))
    before, _ = evaluate(np.zeros_like(theta))
    if not np.isfinite(before):
        raise ValueError(IMPOSSIBLE)
    theta, iterations = minimize(penalized, theta, max_iterations)
    return Powers(_unflatten(np.exp(theta), powers), -before, -evaluate(theta)[0], iterations)


def without_powers(params: Params) -> Params:
    """Return the model with all powers set to one; it runs the programs that were compiled for the given one."""

    def reset(source: Source, family: Emission) -> Emission:
        return Tempered(family.family, np.ones_like(family.power)) if isinstance(family, Tempered) else family

    return map_families(params, reset)


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


def _unflatten(values: Array, like: dict[Source, Array]) -> dict[Source, Array]:
    """Return the entries of a vector in the shapes of `like`."""
    out, at = {}, 0
    for source, power in like.items():
        out[source] = values[at : at + power.size].reshape(power.shape)
        at += power.size
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


def held_out_tables(
    families: dict[Source, Emission], params: Params, batch: Batch, parts: Sequence[np.ndarray], priors: Priors
) -> SourceTables:
    """Return untempered emission log-likelihoods per recognizer.

    Those of each part of the videos are of the family that is learned from the labels of the other parts; without
    parts they are of the given family.
    """
    held_out = np.zeros((len(parts), len(batch.observed)), bool)
    for i, part in enumerate(parts):
        held_out[i, part] = True
    out = {}
    for source, family in families.items():
        if not parts or labels_of(batch, source) is None:
            out[source] = table_of(family, source, params, batch)
        else:
            out[source] = _cross_fit(*_learning(family, source, params, batch, priors), held_out, dtype_of(params))
    return out


def unit_powers(params: Params, batch: Batch) -> dict[Source, Any]:
    """Return powers of one for every observed recognizer: a scalar for phases, (K,) for tools."""
    shape = {"phases": (), "tools": (params.num_tools,)}
    return {source: np.ones(shape[source.track], dtype_of(params)) for source in observed_families(params, batch)}


def table_of(family: Emission, source: Source, params: Params, batch: Batch) -> Array:
    """Return the untempered emission log-likelihoods of one recognizer's family."""
    return _log_prob(family.unwrapped, observations_of(batch, source), batch.observed, dtype_of(params))


def learn_family(
    family: Emission, source: Source, params: Params, batch: Batch, priors: Priors, videos: np.ndarray
) -> Emission:
    """Return one recognizer's family, learned from the labeled, observed frames of some videos, (B,) bool."""
    return _learn(*_learning(family, source, params, batch, priors), videos, dtype_of(params))


def labels_of(batch: Batch, source: Source) -> Any:
    """Return the labels of a recognizer's track."""
    return batch.phase_labels if source.track == "phases" else batch.tool_labels


def _learning(family: Emission, source: Source, params: Params, batch: Batch, priors: Priors) -> tuple:
    """Return the leading arguments of `_learn`."""
    pseudo = priors.phase_emission if source.track == "phases" else priors.tool_emission
    num_states = params.num_phases if source.track == "phases" else 2
    given = observations_of(batch, source), batch.observed, labels_of(batch, source)
    return family.unwrapped, *given, of_source(pseudo, source.index), num_states


def _alone(family: Emission, observations: Any, observed: Array, dtype: Any) -> tuple[Fused, tuple]:
    """Return a family as the only member of a fused one, for which missing frames count for nothing, and its inputs."""
    fused = Fused((family,))
    return fused, with_past(fused, (fill_masked(observations, observed, dtype),), observed)


@interpretable(static_argnames="dtype")
def _log_prob(family: Emission, observations: Any, observed: Array, dtype: Any) -> Array:
    fused, given = _alone(family, observations, observed, dtype)
    return fused.log_prob(*given)


@interpretable(static_argnames=("num_states", "dtype"))
def _learn(
    family: Emission,
    observations: Any,
    observed: Array,
    labels: Any,
    pseudo_counts: Any,
    num_states: int,
    videos: Array,
    dtype: Any,
) -> Emission:
    fused, given = _alone(family, observations, observed, dtype)
    used = _per_video(videos, labels) & observed.reshape(*observed.shape, *[1] * (labels.ndim - 2))
    weights = jnp.where(used[..., None], jax.nn.one_hot(labels, num_states, dtype=dtype), 0)
    observations, *past = given
    statistics = fused.statistics(observations, label_weights(fused, weights), *past)
    return fused.from_counts(statistics, pseudo_counts).families[0]


@interpretable(static_argnames=("num_states", "dtype"))
def _cross_fit(
    family: Emission,
    observations: Any,
    observed: Array,
    labels: Any,
    pseudo_counts: Any,
    num_states: int,
    held_out: Array,
    dtype: Any,
) -> Array:
    """Return the log-likelihoods of each part, (P, B) bool, by the family learned from all other videos."""

    def add(table: Array, part: Array) -> tuple[Array, None]:
        learned = _learn(family, observations, observed, labels, pseudo_counts, num_states, ~part, dtype)
        found = _log_prob(learned, observations, observed, dtype)
        return jnp.where(_per_video(part, found), found, table), None

    blank = jax.eval_shape(lambda: _log_prob(family, observations, observed, dtype))
    return lax.scan(add, jnp.zeros(blank.shape, blank.dtype), held_out)[0]


def _per_video(videos: Any, like: Any) -> Any:
    """Return (B,) values with further axes of size one, so that they broadcast to `like`."""
    return jnp.reshape(videos, (-1,) + (1,) * (like.ndim - 1))


def _loss(
    theta: Array,
    powers: dict[Source, Array],
    chains: Params,
    tables: SourceTables,
    batch: Batch,
    goal: Objective,
    backend: str,
) -> Array:
    """Return minus the objective with powers exp(theta)."""
    found = _unflatten(jnp.exp(jnp.asarray(theta)), powers)
    free = combine(chains, temper(tables, found), batch)
    return -num.accurate_sum(goal.value(chains, free, batch, backend))


_objective = interpretable(jax.value_and_grad(_loss), static_argnames="backend")

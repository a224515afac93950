"""How much is a recognizer's frame worth? Powers for the emissions, by the labels' conditional likelihood."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import lowering
from hmmjax._core import numerics as num
from hmmjax._core.batch import Batch, dtype_of, known_frames, prepare, require_known
from hmmjax._core.minimize import check_options, minimize
from hmmjax._core.pytree import pytree
from hmmjax._core.tables import fill_masked, tabulate
from hmmjax._core.typing import Array
from hmmjax.counting import labeled
from hmmjax.emissions.fused import Fused
from hmmjax.emissions.tempered import Tempered
from hmmjax.priors import Priors, check_priors, of_source
from hmmjax.types import Labels, Observations, Params

FOLDS = 5
"""Parts into which labeled videos are split where nothing else is asked for."""

FEW_VIDEOS = 4
"""With fewer labeled videos than this, tables of the others would differ from the model's own by more than the
powers could mend: powers are then found on the videos that the tables were learned from."""


@pytree
class Calibration:
    """What `calibrate` found.

    Attributes:
        params: the model with tempered emissions.
        before: conditional log-likelihood of the labels given the observations, in nats, with powers of one.
        after: the same with the powers found.
        iterations: optimizer iterations.
        folds: parts of the videos, each seen through tables that were learned from the others; 0 when the powers were
            found with the given tables.
    """

    params: Params
    before: float
    after: float
    iterations: int
    folds: int


def calibrate(
    params: Params,
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    folds: int | None = None,
    per_phase: bool = False,
    strength: float = 1.0,
    priors: Priors | None = None,
    iterations: int = 30,
    backend: str = "auto",
) -> Calibration:
    """Temper the emissions of the observed tracks so that the labels of labeled videos become most probable.

    Maximizes log P(labels | observations) = log-likelihood with the labels clamped minus log-likelihood without, over
    one power for the phases (or one a phase) and one a tool. Emissions that were learned from the same videos look
    better there than they are: the videos are split into folds, and each is looked at through tables learned from the
    labeled frames of the others. The tables of the answer are those given.

    Args:
        params: a model, emissions included; emissions that are already tempered start from their powers.
        obs: (B, T, ...) observations of labeled videos.
        mask: (B, T) bool, True where observed.
        labels: known states; -1 is unknown.
        folds: parts of the labeled videos (every folds-th is one), 0 for none: the given tables, at best not
            learned from these videos. None is `FOLDS`, or one video a part where there are fewer, or 0 with fewer than
            `FEW_VIDEOS` videos that have labels.
        per_phase: a power for every phase instead of one for all.
        strength: nats that pull each log-power toward zero, per unit squared: what a few frames can overrule.
        priors: pseudo-counts for the folds' emissions; give those that `params` was learned with.
        iterations: at most so many quasi-Newton iterations.
        backend: as in `posterior`.

    Returns:
        `Calibration`, whose `params` are the given ones with tempered emissions.

    Raises:
        TypeError, ValueError: bad input, no labels, or videos that are impossible under `params`.

    Source: the objective of Bahl et al. (1986), as in `refine`, over powers alone.
    """
    if labels is None or (labels.phases is None and labels.tools is None):
        raise ValueError("calibrate needs labels: hmmjax.Labels(phases=..., tools=...) with some frames known.")
    check_options(strength, iterations)
    priors = Priors() if priors is None else priors
    data = prepare(params, obs, mask, labels)
    require_known(data, "calibrate")
    if not jax.tree.leaves((data.phases, data.tools)):
        raise ValueError("calibrate weighs what recognizers say, and obs is empty: give obs.phases or obs.tools.")
    check_priors(params, priors)
    start = _tempered(params, data, per_phase)
    parts = _parts(data, folds)
    evidence = _evidence(start, data, parts, priors)
    name = lowering.choose_backend(backend, params)
    bare = _bare(start)

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _objective(theta, powers, bare, evidence, data, strength, name)
        return float(value), np.asarray(gradient, np.float64)

    powers = {name: family.power for name, (_, family, _) in _sources(start, data).items()}
    theta = np.asarray(jnp.log(jnp.concatenate([jnp.ravel(p) for p in powers.values()])), np.float64)
    before, _ = _objective(np.zeros_like(theta), powers, bare, evidence, data, 0.0, name)
    if not np.isfinite(before):
        raise ValueError(
            "the labels are impossible under params (conditional log-likelihood not finite): give pseudo-counts where "
            "the tables were estimated (hmmjax.Priors), or correct the labels."
        )
    theta, done = minimize(objective, theta, iterations)
    after, _ = _objective(theta, powers, bare, evidence, data, 0.0, name)
    found = {n: p.astype(dtype_of(params)) for n, p in _split(jnp.asarray(theta), powers).items()}

    def put(track: str, source: int, family: Any) -> Any:
        power = found.get(f"{track}/{source}")
        return family if power is None else Tempered(family.family, power)

    return Calibration(_map_families(start, put), -float(before), -float(after), done, len(parts))


def plain(params: Params) -> Params:
    """The model with every emission's power taken off."""
    return _map_families(
        params, lambda track, source, family: family.family if isinstance(family, Tempered) else family
    )


def _map_families(params: Params, function: Callable[[str, int, Any], Any]) -> Params:
    """The model with every family replaced by ``function(track, source, family)``; one recognizer is source 0."""

    def replace(track: str, chain: Any) -> Any:
        if chain is None or chain.emission is None:
            return chain
        if isinstance(chain.emission, Fused):
            families = tuple(function(track, i, f) for i, f in enumerate(chain.emission.families))
            return dataclasses.replace(chain, emission=Fused(families))
        return dataclasses.replace(chain, emission=function(track, 0, chain.emission))

    return Params(replace("phases", params.phases), replace("tools", params.tools))


def _tempered(params: Params, data: Batch, per_phase: bool) -> Params:
    """Every observed source's family with powers of the wanted shape: one for phases or one each, one a tool."""

    def temper(track: str, source: int, family: Any) -> Any:
        if _source(data, track, source) is None:
            return family
        size = (params.num_tools,) if track == "tools" else (params.num_phases,) if per_phase else ()
        power: Any = jnp.ones((), dtype_of(params))
        if isinstance(family, Tempered):
            family, power = family.family, jnp.asarray(family.power, dtype_of(params))
            size = np.broadcast_shapes(size, power.shape)
        return Tempered(family, jnp.broadcast_to(power, size))

    return _map_families(params, temper)


def _source(data: Batch, track: str, source: int) -> Any:
    """What one recognizer says; None when it says nothing."""
    said = getattr(data, track)
    return said[source] if isinstance(said, tuple) else said


def _sources(params: Params, data: Batch) -> dict[str, tuple[str, Any, Any]]:
    """Every observed source: its track, its family and what it says."""
    out: dict[str, tuple[str, Any, Any]] = {}

    def note(track: str, source: int, family: Any) -> Any:
        if (said := _source(data, track, source)) is not None:
            out[f"{track}/{source}"] = (track, family, said)
        return family

    _map_families(params, note)
    return out


def _split(theta: Array, powers: dict[str, Array]) -> dict[str, Array]:
    """A vector of log-powers to powers in the shapes of `powers`."""
    out, at = {}, 0
    for name, like in powers.items():
        out[name] = jnp.exp(theta[at : at + like.size]).reshape(like.shape)
        at += like.size
    return out


def _bare(params: Params) -> Params:
    """The chains alone: their evidence comes from elsewhere."""
    phases = None if params.phases is None else dataclasses.replace(params.phases, emission=None)
    tools = None if params.tools is None else dataclasses.replace(params.tools, emission=None)
    return Params(phases, tools)


def _parts(data: Batch, folds: int | None) -> list[np.ndarray]:
    """Positions of the labeled videos of each fold; none where the given tables are to be used."""
    known = known_frames(data).any(1)
    if folds is None:
        folds = 0 if known.sum() < FEW_VIDEOS else min(FOLDS, int(known.sum()))
    if folds != int(folds) or (folds and not 2 <= folds <= known.sum()):
        raise ValueError(f"folds={folds} needs 0 (none), or from 2 to as many videos as have labels, {known.sum()}.")
    return [np.flatnonzero(known)[i :: int(folds)] for i in range(int(folds))]


def _evidence(params: Params, data: Batch, parts: Sequence[np.ndarray], priors: Priors) -> dict[str, Array]:
    """Untempered log-evidence of each source, each part's by tables that were learned from the other parts."""
    out = {}
    for name, (track, tempered, said) in _sources(params, data).items():
        # One source of its own: a frame in which it says nothing is then no evidence.
        family, said = Fused((tempered.family,)), (fill_masked(said, jnp.asarray(data.observed), dtype_of(params)),)
        labels = data.phase_labels if track == "phases" else data.tool_labels
        pseudo = priors.phase_emission if track == "phases" else priors.tool_emission
        pseudo = of_source(pseudo, int(name.split("/")[1]))
        if not parts or labels is None:
            out[name] = _log_prob(family, said)
            continue
        size = params.num_phases if track == "phases" else 2
        total = None
        for part in parts:
            others = np.ones(len(data.observed), bool)
            others[part] = False
            table = _log_prob(_refit(family, said, labels, data, others, pseudo, size), said)
            total = table if total is None else jnp.where(_over(others, table), total, table)
        out[name] = total
    return out


@jax.jit
def _log_prob(family: Any, observations: Any) -> Array:
    return family.log_prob(observations)


@partial(jax.jit, static_argnames="size")
def _refit(family: Any, said: Any, labels: Any, data: Batch, videos: Array, pseudo_counts: Any, size: int) -> Any:
    """The family fitted to the labeled, observed frames of some videos; states they do not show keep theirs."""
    seen = data.observed.reshape(*data.observed.shape, *[1] * (labels.ndim - 2)) & _over(videos, labels)
    weights = jax.nn.one_hot(labels, size) * seen[..., None]
    statistics = family.statistics(said, labeled(family, weights))
    return family.from_counts(statistics, pseudo_counts)


def _over(videos: Any, like: Any) -> Any:
    return jnp.reshape(videos, (-1,) + (1,) * (like.ndim - 1))


def conditional(params: Params, evidence: dict[str, Array], data: Batch, backend: str) -> Array:
    """Log-probability (B,) of each video's labels given its observations.

    Args:
        params: chains; their emissions are not looked at.
        evidence: log-evidence of sources "phases/0", "phases/1" ... (B, T, L), "tools/0" ... (B, T, K, 2), or
            (B, T, K, 2**K) of joint families; it adds up, and a track without any is unobserved.
        data: observed frames and labels.
        backend: a name in `hmmjax.messages.BACKENDS`.
    """
    blank = tabulate(_bare(params), data.without_labels())

    phases, tools, configs = blank.phases, blank.tools, blank.configs
    for source, more in evidence.items():
        seen = data.observed.reshape(*data.observed.shape, *[1] * (more.ndim - 2))
        more = jnp.where(seen, more, 0)
        if source.startswith("phases/"):
            phases = phases + more.astype(phases.dtype)
        elif more.shape[-1] == 2:
            tools = tools + more.astype(tools.dtype)
        else:
            configs = (0 if configs is None else configs) + more.sum(-2).astype(tools.dtype)

    free = dataclasses.replace(blank, phases=phases, tools=tools, configs=configs)
    return lowering.conditional(params, free, data, backend)


def _loss(
    theta: Array, powers: dict, params: Params, evidence: dict, data: Batch, strength: Any, backend: str
) -> Array:
    split = _split(jnp.asarray(theta), powers)
    tempered = {}
    for name, table in evidence.items():
        power = split[name][..., None] if name.startswith("tools") else split[name]
        possible = table > -jnp.inf
        tempered[name] = jnp.where(possible, power * jnp.where(possible, table, 0), -jnp.inf)
    value = conditional(params, tempered, data, backend)
    return -num.accurate_sum(value) + strength * jnp.sum(jnp.asarray(theta) ** 2)


_objective = jax.jit(jax.value_and_grad(_loss), static_argnames="backend")

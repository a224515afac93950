"""Learn parameters from partly labeled videos by expectation-maximization."""

import dataclasses
import warnings
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hmmjax import messages
from hmmjax._core import lowering
from hmmjax._core import numerics as num
from hmmjax._core.batch import Batch, canonical, dtype_of, prepare
from hmmjax._core.checks import is_concrete
from hmmjax._core.implicit import fixed_point_tangent
from hmmjax._core.interpreter import interpretable
from hmmjax._core.typing import Array, ArrayLike
from hmmjax.anchoring import anchor_batch
from hmmjax.em import expectations, maximize
from hmmjax.emissions.anchor import pseudo_frames_of
from hmmjax.priors import Priors, check_priors, frozen_blocks, log_prior
from hmmjax.types import FitResult, Labels, Observations, Params

ROUNDING = 1e-5
"""Fraction of the objective that float32 sums may lose from one iteration to the next."""


@interpretable(static_argnames=("backend", "freeze"))
def _em_step(
    params: Params, batch: Batch, priors: Priors, backend: str, freeze: frozenset[str]
) -> tuple[Params, Array, Array, Array]:
    """Return the next parameters, and the objective, log-likelihood and log-likelihoods per video of the current."""
    values, expected = expectations(params, batch, backend, freeze)
    likelihood = num.accurate_sum(values)
    objective = likelihood + log_prior(params, priors, freeze, batch)
    return maximize(params, expected, priors, freeze), objective, likelihood, values


def _has_converged(previous: Any, objective: Any, tolerance: Any, pseudo_frames: Any) -> Any:
    """Whether an iteration gained less than the tolerance, and lost no more than rounding explains.

    Both are relative to the size of the objective; rounding also affects each pseudo-frame of an anchor. Works on
    numbers and on traced arrays.
    """
    xp: Any = np if is_concrete(previous, objective, tolerance, pseudo_frames) else jnp
    gain, size = objective - previous, xp.maximum(xp.abs(objective), 1)
    return (gain <= tolerance * size) & (gain >= -xp.maximum(tolerance, ROUNDING) * (size + pseudo_frames))


def fit(
    params: Params,
    obs: Observations,
    mask: ArrayLike = None,
    labels: Labels | None = None,
    *,
    priors: Priors | None = None,
    freeze: Collection[str] = (),
    max_iterations: int = 100,
    tolerance: float = 1e-6,
    backend: str = "auto",
    callback: Callable[[int, float], None] | None = None,
) -> FitResult:
    """Learn parameters by expectation-maximization, from videos of which any part may be labeled.

    Args:
        params: the starting parameters; their types select what is learned (tracks, families, transition model).
        obs: (B, T, ...) observations, a list of (T_i, ...) arrays, or (T, ...) for a single video. A batch that
            `hmmjax.shard` spread over devices is learned from in place, with the same result as on one device.
        mask: (B, T) bool, True where observed; None if all frames are.
        labels: known phases and tools, -1 for unknown. Known states are clamped.
        priors: pseudo-counts, for maximum a posteriori estimates; ``hmmjax.Priors()`` for maximum likelihood. None is
            maximum likelihood too, except for emissions of tracks with unlabeled frames: `hmmjax.anchor` holds these
            to the labeled frames and the starting parameters.
        freeze: blocks to leave unchanged, names in `hmmjax.priors.BLOCKS`, or "phases" or "tools" for a whole track.
        max_iterations: maximum number of EM iterations.
        tolerance: EM stops when an iteration raises the objective by less than this, relative to its size.
        backend: "auto" or a name in `hmmjax.messages.BACKENDS`, see `hmmjax.log_likelihood`.
        callback: called after every iteration with its number and the objective in nats (not inside `jax.jit`).

    Returns:
        `FitResult`; its objective never decreases, beyond rounding.

    Raises:
        TypeError, ValueError: bad input, an unknown block, a video that is impossible under `params`, by number, or a
            derivative of a fit that has not converged.

    Warns:
        UserWarning: concentrations reached their cap (all outputs of a state are alike), or the starting parameters
            do not distinguish the states.

    Derivatives are those of the parameters at which EM converges, see docs/how-to/differentiate.md.

    Source: the paper's semi-supervised EM (section 3.2 and Appendix S2.2, with misprints corrected).
    """
    frozen = frozen_blocks(freeze)
    batch = prepare(params, obs, mask, labels)
    traced = not is_concrete(params, obs, mask, labels, priors)
    params, prior = canonical(params), Priors() if priors is None else priors
    if priors is None:
        params, prior, held = anchor_batch(params, batch, prior)
        frozen |= set(held)
    if traced:
        batch = dataclasses.replace(batch, split=None)
        return _fit_traced(params, batch, prior, frozen, max_iterations, tolerance, messages.choose(backend))
    check_priors(params, prior)
    if len(batch.observed) == 0:
        return _empty_result(params)
    _warn_of_symmetry(params, frozen, labels)
    batch = lowering.pack(batch, messages.choose(backend))
    if batch.split is not None:
        params, prior = batch.split.replicate(params, prior)
    else:
        batch = jax.device_put(batch)  # once, not in every iteration

    pseudo_frames, num_frames = float(pseudo_frames_of(prior)), batch.observed.size
    history: list[float] = []
    likelihoods: list[float] = []
    converged = False
    while True:
        # EM may drive probabilities to zero, for which not every backend is exact.
        name = lowering.choose_backend(backend, params)
        following, objective, likelihood, values = _em_step(params, batch, prior, name, frozen)
        _require_possible(np.asarray(values), history)
        history.append(float(objective))
        likelihoods.append(float(likelihood))
        done = len(history) - 1
        if done:
            if callback is not None:
                callback(done, history[-1])
            converged = bool(_has_converged(history[-2], history[-1], tolerance, pseudo_frames))
            if not converged:
                _warn_of_decrease(done, history[-2], history[-1], pseudo_frames + num_frames, params)
        if converged or done >= max_iterations:
            break
        params = following
    for warning in _family_warnings(params):
        warnings.warn(warning, stacklevel=2)
    dtype = dtype_of(params)
    return FitResult(
        params,
        # These two compile nothing, unlike jnp.asarray.
        *(jax.device_put(np.asarray(x, dtype)) for x in (history, likelihoods)),
        *jax.device_put((np.asarray(done, np.int32), np.asarray(converged))),
    )


def _fit_traced(
    params: Params, batch: Batch, priors: Priors, freeze: frozenset[str], limit: int, tolerance: Any, backend: str
) -> FitResult:
    """Run the loop of `fit` inside a caller's jit: without warnings, and with histories padded with NaN."""
    if len(batch.observed) == 0:
        return _empty_result(params)
    return FitResult(*_iterate(params, (batch, priors), tolerance, freeze, limit, backend))


@partial(jax.custom_jvp, nondiff_argnums=(3, 4, 5))
def _iterate(
    params: Params, inputs: tuple[Batch, Priors], tolerance: Any, freeze: frozenset[str], limit: int, backend: str
) -> tuple:
    """Return the fields of `FitResult`."""
    (batch, priors), dtype = inputs, dtype_of(params)
    nan, pseudo_frames = jnp.full((limit + 1,), jnp.nan, dtype), pseudo_frames_of(priors)

    def body(state: tuple) -> tuple:
        params, following, history, likelihoods, done, _ = state
        params = jax.tree.map(lambda a, b: jnp.where(done >= 0, b, a), params, following)
        following, objective, likelihood, _ = _em_step(params, batch, priors, backend, freeze)
        done += 1
        previous = history[jnp.maximum(done - 1, 0)]
        converged = (done > 0) & _has_converged(previous, objective, tolerance, pseudo_frames)
        history, likelihoods = history.at[done].set(objective), likelihoods.at[done].set(likelihood)
        return params, following, history, likelihoods, done, converged

    def unfinished(state: tuple) -> Array:
        return ~state[5] & (state[4] < limit)

    start = (params, params, nan, nan, jnp.array(-1, jnp.int32), jnp.array(False))
    params, _, *rest = lax.while_loop(unfinished, body, start)
    return (params, *rest)


@_iterate.defjvp
def _(freeze: frozenset[str], limit: int, backend: str, primals: tuple, tangents: tuple) -> tuple:
    """Differentiate the fixed point of EM. Histories count as constants."""
    result = _iterate(*primals, freeze, limit, backend)
    fitted, *histories, done, converged = result
    if is_concrete(converged) and not converged:
        raise ValueError(
            f"EM has not converged in {int(done)} iterations, so that fit has no derivative: it is defined where "
            "another iteration changes nothing. Increase max_iterations, or tolerance at the cost of accuracy."
        )

    def step(params: Params, inputs: tuple[Batch, Priors]) -> Params:
        return _em_step(params, *inputs, backend, freeze)[0]

    moved = fixed_point_tangent(step, fitted, primals[1], *tangents[:2])
    # A product, which stays NaN when it is transposed; a selection becomes zero.
    defined = jnp.where(converged, 1.0, jnp.nan)
    moved = jax.tree.map(lambda x: x * defined.astype(x.dtype), moved)
    none = (np.zeros((), jax.dtypes.float0),) * 2
    return result, (moved, *map(jnp.zeros_like, histories), *none)


def _empty_result(params: Params) -> FitResult:
    """Return the result for a batch without videos."""
    zero = jnp.zeros(1, dtype_of(params))
    return FitResult(params, zero, zero, jnp.zeros((), jnp.int32), jnp.array(True))


def _warn_of_decrease(iteration: int, previous: float, objective: float, terms: float, params: Params) -> None:
    # Log-densities of either sign may cancel, which leaves a small sum of as many rounding errors as there are terms.
    # Densities that a family warns of are so steep that the sum of their logarithms cancels.
    if objective - previous < -ROUNDING * (max(abs(objective), 1) + terms) and not _family_warnings(params):
        warnings.warn(
            f"EM iteration {iteration} lowered the objective by {previous - objective:.6g} nats, which a correct "
            "M-step cannot do. Check maximize and log_prior of the emission family.",
            stacklevel=3,
        )


def _require_possible(values: np.ndarray, history: list[float]) -> None:
    if np.isfinite(values).all():
        return
    bad = np.flatnonzero(~np.isfinite(values)).tolist()
    which = f"video {bad[0]} is" if len(bad) == 1 else f"videos {', '.join(map(str, bad))} are"
    when = "the starting parameters" if not history else f"the parameters of iteration {len(history)}"
    raise ValueError(
        f"{which} impossible (log-likelihood {values[bad[0]]}) under {when}: the observations or labels need a "
        "transition, a start or an observed symbol whose probability is exactly zero. Start from parameters without "
        "those zeros, or pass pseudo-counts (hmmjax.Priors) when estimating them."
    )


def _warn_of_symmetry(params: Params, freeze: frozenset[str], labels: Labels | None) -> None:
    for track, chain in (("phases", params.phases), ("tools", params.tools)):
        if chain is None or chain.emission is None or f"{track}.emission" in freeze:
            continue
        if labels is not None and getattr(labels, track) is not None:
            continue
        # Leaves with fewer axes are not tables over states; a power is an example.
        tables = [np.asarray(leaf) for leaf in jax.tree.leaves(chain.emission)]
        tables = [table for table in tables if table.ndim >= (2 if track == "phases" else 3)]
        tables = [table if track == "phases" else np.moveaxis(table, 1, 0) for table in tables]
        if tables and all(len(table) > 1 and np.ptp(table, axis=0).max(initial=0) == 0 for table in tables):
            warnings.warn(
                f"{track}.emission is the same for every state, so EM cannot tell the states apart. Start from "
                "hmmjax.init_params or hmmjax.estimate, or pass labels.",
                stacklevel=3,
            )


def _family_warnings(params: Params) -> list[str]:
    emissions = [chain.emission for chain in (params.phases, params.tools) if chain is not None]
    return [warning for emission in emissions if emission is not None for warning in emission.warnings()]

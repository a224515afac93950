"""Learning from partly labeled videos by expectation-maximization."""

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
from hmmjax._core.batch import Data, dtype_of
from hmmjax._core.checks import is_concrete
from hmmjax._core.typing import Array
from hmmjax.em import expectations, maximize
from hmmjax.inference import prepare
from hmmjax.priors import Priors, check_priors, frozen_blocks, log_prior
from hmmjax.sharding import Split, split_of
from hmmjax.types import FitResult, Labels, Observations, Params

ROUNDING = 1e-5
"""Share of the objective that float32 sums may lose from one iteration to the next."""


@partial(jax.jit, static_argnames=("backend", "freeze", "split"))
def _em_step(
    params: Params, data: Data, priors: Priors, backend: str, freeze: frozenset[str], split: Split | None = None
) -> tuple[Params, Array, Array, Array]:
    """Next parameters, and of the current ones: objective, log-likelihood, log-likelihood per video."""
    values, expected = expectations(params, data, backend, freeze, split)
    likelihood = num.accurate_sum(values)
    objective = likelihood + log_prior(params, priors, freeze, data)
    return maximize(params, expected, priors, freeze), objective, likelihood, values


def fit(
    params: Params,
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    priors: Priors | None = None,
    freeze: Collection[str] = (),
    max_iterations: int = 100,
    tolerance: float = 1e-6,
    backend: str = "auto",
    callback: Callable[[int, float], None] | None = None,
) -> FitResult:
    """Learn by expectation-maximization from videos of which any part may be labeled.

    Args:
        params: where to start; its types say what is learned (which tracks, families, transition model).
        obs: (B, T, ...) observations, or one video without B. A batch spread over devices by `hmmjax.shard` is learned
            from where it is: the answer is that of one device.
        mask: (B, T) bool, True where observed; None is all.
        labels: known phases and tools; -1 is unknown. Known states are clamped.
        priors: pseudo-counts for MAP; none by default.
        freeze: blocks to leave as they are, names from `BLOCKS`, or "phases" or "tools" for a whole track.
        max_iterations: at most so many EM iterations.
        tolerance: stop when an iteration raises the objective by less than this, relative to its size.
        backend: as in `posterior`.
        callback: called after every iteration with its number and the objective in nats (not inside `jax.jit`).

    Returns:
        `FitResult`; its objective never goes down, beyond round-off.

    Raises:
        TypeError, ValueError: bad input, an unknown block, or a video that is impossible under `params`, by number.

    Warns:
        UserWarning: concentrations at their cap (outputs of a state all alike), or a start that cannot tell the
            states apart.

    Source: the paper's semi-supervised EM (section 3.2 and Appendix S2.2, misprints put right).
    """
    frozen = frozen_blocks(freeze)
    prior = Priors() if priors is None else priors
    traced = not is_concrete(params, obs, mask, labels, prior)
    split = None if traced else split_of(obs, mask, labels)
    data, _ = prepare(params, obs, mask, labels)
    params = jax.tree.map(lambda x: jnp.asarray(x, dtype_of(params)), params)
    if split is not None:
        params, prior = split.replicate(params, prior)
    if traced:
        name = messages.choose(backend)
        return _fit_traced(params, data, prior, frozen, max_iterations, tolerance, name)
    check_priors(params, prior)
    if len(data.observed) == 0:
        return FitResult(params, np.zeros(1), np.zeros(1), 0, True)
    _warn_of_symmetry(params, frozen, labels)

    history: list[float] = []
    likelihoods: list[float] = []
    converged = False
    while True:
        # Learning may drive tables to zero, and so from one backend to the other.
        name = lowering.choose_backend(backend, params)
        following, objective, likelihood, values = _em_step(params, data, prior, name, frozen, split)
        _require_possible(np.asarray(values), history)
        history.append(float(objective))
        likelihoods.append(float(likelihood))
        done = len(history) - 1
        if callback is not None and done:
            callback(done, history[-1])
        if done:
            gain, size = history[-1] - history[-2], max(abs(history[-1]), 1.0)
            converged = -max(tolerance, ROUNDING) * size <= gain <= tolerance * size
            if gain < -ROUNDING * size and not converged:
                warnings.warn(
                    f"EM iteration {done} lowered the objective by {-gain:.6g} nats, which a right M-step cannot "
                    "do: look at the emission family's maximize and log_prior.",
                    stacklevel=2,
                )
        if converged or done >= max_iterations:
            break
        params = following
    _warn_of_caps(params)
    return FitResult(params, np.array(history), np.array(likelihoods), done, bool(converged))


def _fit_traced(
    params: Params, data: Data, priors: Priors, freeze: frozenset[str], limit: int, tolerance: Any, backend: str
) -> FitResult:
    """The same loop inside somebody's jit: no warnings, histories padded with NaN."""
    if len(data.observed) == 0:
        return FitResult(params, jnp.zeros(1), jnp.zeros(1), 0, True)
    nan = jnp.full((limit + 1,), jnp.nan, dtype_of(params))

    def body(state: tuple) -> tuple:
        params, following, history, likelihoods, done, _ = state
        params = jax.tree.map(lambda a, b: jnp.where(done >= 0, b, a), params, following)
        following, objective, likelihood, _ = _em_step(params, data, priors, backend, freeze)
        done += 1
        gain = objective - history[jnp.maximum(done - 1, 0)]
        size = jnp.maximum(jnp.abs(objective), 1.0)
        converged = (done > 0) & (gain <= tolerance * size) & (gain >= -jnp.maximum(tolerance, ROUNDING) * size)
        history, likelihoods = history.at[done].set(objective), likelihoods.at[done].set(likelihood)
        return params, following, history, likelihoods, done, converged

    def unfinished(state: tuple) -> Array:
        return ~state[5] & (state[4] < limit)

    start = (params, params, nan, nan, jnp.array(-1), jnp.array(False))
    params, _, history, likelihoods, done, converged = lax.while_loop(unfinished, body, start)
    return FitResult(params, history, likelihoods, done, converged)


def _require_possible(values: np.ndarray, history: list[float]) -> None:
    if np.isfinite(values).all():
        return
    bad = np.flatnonzero(~np.isfinite(values)).tolist()
    which = f"video {bad[0]} is" if len(bad) == 1 else f"videos {', '.join(map(str, bad))} are"
    when = "the starting parameters" if not history else f"the parameters of iteration {len(history)}"
    raise ValueError(
        f"{which} impossible (log-likelihood {values[bad[0]]}) under {when}: the observations or labels need a "
        "transition, a start or an observed symbol whose probability is exactly zero. Start from parameters without "
        "those zeros, or give pseudo-counts where they were estimated (hmmjax.Priors)."
    )


def _warn_of_symmetry(params: Params, freeze: frozenset[str], labels: Labels | None) -> None:
    for track, chain in (("phases", params.phases), ("tools", params.tools)):
        if chain is None or chain.emission is None or f"{track}.emission" in freeze:
            continue
        if labels is not None and getattr(labels, track) is not None:
            continue
        # What has fewer axes is no table over states: a power, say.
        tables = [np.asarray(leaf) for leaf in jax.tree.leaves(chain.emission)]
        tables = [table for table in tables if table.ndim >= (2 if track == "phases" else 3)]
        tables = [table if track == "phases" else np.moveaxis(table, 1, 0) for table in tables]
        if tables and all(len(table) > 1 and np.ptp(table, axis=0).max(initial=0) == 0 for table in tables):
            warnings.warn(
                f"{track}.emission is the same for every state, so EM cannot tell them apart and will leave "
                "them alike. Start from hmmjax.init_params or hmmjax.estimate, or give labels.",
                stacklevel=3,
            )


def _warn_of_caps(params: Params) -> None:
    for chain in (params.phases, params.tools):
        for warning in () if chain is None or chain.emission is None else chain.emission.warnings():
            warnings.warn(warning, stacklevel=3)

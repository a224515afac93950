"""Timing, and the comparison of all libraries on one video, for `hmm.py`."""

import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hmm_model import codes, dense, e_step, log_likelihood64

import hmmjax


def has(name: str) -> bool:
    """Return whether a package is installed."""
    try:
        version(name)
    except ModuleNotFoundError:
        return False
    return True


def clock(run: Callable[[], Any], repeats: int = 200, budget: float = 5.0) -> tuple[float, float]:
    """Return the seconds of the first call, and of the best of `repeats` more, which stop after `budget` seconds."""
    started = time.perf_counter()
    jax.block_until_ready(run())
    first, best, spent = time.perf_counter() - started, np.inf, 0.0
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(run())
        took = time.perf_counter() - started
        best, spent = min(best, took), spent + took
        if spent > budget:
            break
    return first, best


def _dynamax_em_step(start: Any, move: Any, see: Any, symbols: Any) -> Callable[[], Any]:
    """Return one iteration of its `fit_em`: two-filter smoother, pair counts, statistics and M-step."""
    from dynamax.hidden_markov_model import CategoricalHMM

    model = CategoricalHMM(len(start), 1, see.shape[1])
    tables = {"initial_probs": start, "transition_matrix": move, "emission_probs": see[:, None]}
    params, properties = model.initialize(jax.random.key(0), **{k: jnp.float32(x) for k, x in tables.items()})
    state = model.initialize_m_step_state(params, properties)

    @jax.jit
    def step(params: Any, observed: Any) -> Any:
        statistics, value = model.e_step(params, observed)
        return model.m_step(params, properties, jax.tree.map(lambda x: x[None], statistics), state)[0], value

    return partial(step, params, jnp.asarray(symbols)[:, None])


def _cuthbert(start: Any, move: Any, see: Any, symbols: Any) -> tuple[Any, dict[str, float]]:
    """Return filtered states (T, S), and the seconds of filter and of smoother (without pair counts)."""
    from cuthbert import filter, smoother
    from cuthbert.discrete import build_filter, build_smoother

    move, seen = jnp.asarray(move, jnp.float32), jnp.log(jnp.asarray(see[:, symbols].T, jnp.float32))
    inputs = {"seen": seen, "first": jnp.arange(len(symbols)) == 0}

    def transition(x: Any) -> Any:
        # Its initial distribution is of the state before the first observation.
        return jnp.where(x["first"], jnp.eye(len(move)), move)

    filtering = build_filter(jnp.asarray(start, jnp.float32), transition, lambda x: x["seen"])
    smoothing = build_smoother(transition)

    @jax.jit
    def run(inputs: Any) -> Any:
        return filter(filtering, inputs, filtering.init_prepare())

    @jax.jit
    def both(inputs: Any) -> Any:
        return smoother(smoothing, filter(filtering, inputs, filtering.init_prepare()), inputs).dist

    states = run(inputs).dist[1:]
    return states, {"filter": clock(lambda: run(inputs).dist, 3)[1], "e_step": clock(lambda: both(inputs), 3)[1]}


def peers(params: hmmjax.Params, obs: hmmjax.Observations, *, path: bool = True) -> dict[str, Any]:
    """Compare all libraries on one video: microseconds per frame, ratios to hmmjax, and differences of the results."""
    num_frames, num_phases, num_tools = len(obs.phases), params.num_phases, params.num_tools
    start, move, see = dense(params)
    symbols = codes(obs)
    params, obs = jax.tree.map(jnp.asarray, (params, obs))
    # Jitted as a whole, like the other libraries below.
    runs = {"filter": jax.jit(hmmjax.filter), "e_step": e_step(), "viterbi": jax.jit(hmmjax.decode)}
    ours: dict[str, Callable[[], Any]] = {name: partial(run, params, obs) for name, run in runs.items()}
    times: dict[str, dict[str, float]] = {}
    for name, run in ours.items():
        first, best = clock(run)
        times[name] = {"hmmjax": best, "hmmjax first call": first}
    posterior, decoded = hmmjax.posterior(params, obs), hmmjax.decode(params, obs)
    differences: dict[str, float] = {}
    plain = e_step("logspace")
    times["e_step"]["hmmjax, plain log-space scan"] = clock(lambda: plain(params, obs))[1]
    joint = codes(jax.tree.map(np.asarray, hmmjax.Observations(decoded.phases, decoded.tools)))
    differences["path log-probability, along our path"] = relative(
        decoded.log_prob, _score(start, move, see, symbols, joint)
    )
    differences["log-likelihood, float64"] = relative(posterior.log_likelihood, log_likelihood64(params, obs))

    if has("dynamax"):
        from dynamax.hidden_markov_model import inference

        dense32 = [jnp.asarray(x, jnp.float32) for x in (start, move)]
        seen = jnp.log(jnp.asarray(see[:, symbols].T, jnp.float32))
        # Jitted as a whole, which the library leaves to its users.
        smoother, filtered, mode = (
            jax.jit(f) for f in (inference.hmm_smoother, inference.hmm_filter, inference.hmm_posterior_mode)
        )
        times["filter"]["dynamax"] = clock(lambda: filtered(*dense32, seen))[1]
        their_step = _dynamax_em_step(start, move, see, symbols)
        times["e_step"]["dynamax"] = clock(their_step)[1]
        times["e_step"]["dynamax, hmm_smoother alone"] = clock(lambda: smoother(*dense32, seen))[1]
        theirs = smoother(*dense32, seen)
        states = np.asarray(theirs.smoothed_probs, np.float64).reshape(num_frames, num_phases, 2**num_tools)
        differences["log-likelihood, dynamax"] = relative(posterior.log_likelihood, theirs.marginal_loglik)
        differences["log-likelihood, dynamax EM"] = relative(posterior.log_likelihood, their_step()[1])
        differences["phase posteriors, dynamax"] = float(np.abs(states.sum(2) - posterior.phases).max())
        if path:
            times["viterbi"]["dynamax"] = clock(lambda: mode(*dense32, seen))[1]
            best = np.asarray(mode(*dense32, seen))
            differences["path log-probability, dynamax"] = relative(
                decoded.log_prob, _score(start, move, see, symbols, best)
            )
    if has("cuthbert") and path:
        # Its states hold a matrix of S x S per frame: few frames, for memory.
        some = min(num_frames, 100)
        theirs, seconds = _cuthbert(start, move, see, symbols[:some])
        for name, took in seconds.items():
            times[name]["cuthbert, per frame of 100"] = took * num_frames / some
        filtered = hmmjax.filter(params, jax.tree.map(lambda x: x[:some], obs))
        states = np.asarray(theirs, np.float64).reshape(some, num_phases, -1)
        differences["filtered phases, cuthbert"] = float(np.abs(states.sum(2) - filtered.phases).max())
    if has("hmmlearn"):
        from hmmlearn.hmm import CategoricalHMM

        learner = CategoricalHMM(
            len(start), n_iter=1, init_params="", params="ste", tol=-np.inf, implementation="scaling"
        )
        learner.n_features = see.shape[1]

        def reset() -> None:
            learner.startprob_, learner.transmat_, learner.emissionprob_ = start, move, see

        def em_step() -> None:
            reset()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                learner.fit(symbols[:, None])

        times["e_step"]["hmmlearn"] = clock(em_step)[1]
        reset()
        times["filter"]["hmmlearn (score)"] = clock(lambda: learner.score(symbols[:, None]))[1]
        differences["log-likelihood, hmmlearn"] = relative(posterior.log_likelihood, learner.score(symbols[:, None]))
        if path:
            times["viterbi"]["hmmlearn"] = clock(lambda: learner.decode(symbols[:, None]))[1]
            differences["path log-probability, hmmlearn"] = relative(
                decoded.log_prob, learner.decode(symbols[:, None])[0]
            )
    worst = max(v for v in differences.values())
    assert worst < 1e-3, differences
    micro = {k: {n: round(1e6 * t / num_frames, 2) for n, t in v.items() if "first" not in n} for k, v in times.items()}
    ratios = {
        k: {n: round(t / v["hmmjax"], 1) for n, t in v.items() if n != "hmmjax" and "first" not in n}
        for k, v in times.items()
    }
    first = {k: round(v["hmmjax first call"], 2) for k, v in times.items()}
    return {
        "states": len(start), "frames": num_frames, "microseconds per frame": micro, "times slower than hmmjax": ratios,
        "first call, seconds": first, "differences": differences,
    }  # fmt: skip


def relative(a: Any, b: Any) -> float:
    return float(abs(np.float64(a) - np.float64(b)) / max(1.0, abs(np.float64(b))))


def _score(start: np.ndarray, move: np.ndarray, see: np.ndarray, symbols: np.ndarray, path: np.ndarray) -> float:
    log = np.log(start[path[0]]) + np.log(see[path, symbols]).sum() + np.log(move[path[:-1], path[1:]]).sum()
    return float(log)

"""The model and data of `hmm.py`: a coupled model, the same as one dense chain, and its likelihood in float64."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import hmmjax
from hmmjax import em, emissions
from hmmjax._core.batch import collect
from hmmjax.priors import Priors


def model(num_phases: int = 7, num_tools: int = 7, seed: int = 0) -> hmmjax.Params:
    """Return a model with sticky phases and tools, and confusions like a real recognizer's."""
    rng = np.random.default_rng(seed)
    stay = 0.995

    def sticky(n: int, *shape: int) -> np.ndarray:
        move = rng.dirichlet(np.ones(n), (*shape, n))
        return (stay * np.eye(n) + (1 - stay) * move).astype(np.float32)

    def confusion(n: int, *shape: int) -> np.ndarray:
        return (0.85 * np.eye(n) + 0.15 * rng.dirichlet(np.ones(n), (*shape, n))).astype(np.float32)

    start = hmmjax.init_params(num_phases, num_tools)
    phases = hmmjax.PhaseChain(
        np.full(num_phases, 1 / num_phases, np.float32),
        sticky(num_phases),
        emissions.PhaseConfusion(confusion(num_phases)),
    )
    tools = hmmjax.ToolChains(
        np.asarray(rng.uniform(0.1, 0.5, start.tools.initial.shape), np.float32),
        hmmjax.transitions.PhaseConditioned(sticky(2, num_tools, num_phases)),
        emissions.ToolConfusion(confusion(2, num_tools)),
    )
    return hmmjax.Params(phases, tools)


def dense(params: hmmjax.Params) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the same model as one chain in float64: start (S,), transition (S, S), emission (S, symbols)."""
    phases, tools = params.phases, params.tools
    start, symbols = np.float64(phases.initial)[:, None], np.float64(phases.emission.matrix)
    steps = [np.ones((1, 1))] * len(start)
    tool_symbols = np.ones((1, 1))
    for k in range(params.num_tools):
        p = np.float64(tools.initial[k])
        start = (start[:, :, None] * np.stack([1 - p, p], -1)[:, None, :]).reshape(len(p), -1)
        steps = [np.kron(a, np.float64(tools.transition.matrix[k, q])) for q, a in enumerate(steps)]
        tool_symbols = np.kron(tool_symbols, np.float64(tools.emission.matrix[k]))
    move = np.stack(steps)  # (q, c*, c)
    n = move.shape[1]
    transition = np.einsum("pq,qab->paqb", np.float64(phases.transition), move).reshape(len(steps) * n, -1)
    transition /= transition.sum(1, keepdims=True)
    emission = np.kron(symbols, tool_symbols)
    return start.reshape(-1) / start.sum(), transition, emission / emission.sum(1, keepdims=True)


def draw(params: hmmjax.Params, lengths: Any, seed: int = 0) -> hmmjax.Observations:
    """Draw hard predictions of the recognizer."""
    _, obs, _ = hmmjax.sample(params, jax.random.key(seed), lengths)
    return jax.tree.map(np.asarray, obs)


def codes(obs: hmmjax.Observations) -> np.ndarray:
    """Return one symbol per frame."""
    k = obs.tools.shape[-1]
    return np.asarray(obs.phases) * 2**k + (np.asarray(obs.tools) << np.arange(k - 1, -1, -1)).sum(-1)


def e_step(backend: str = "auto") -> Callable:
    """Return a jitted EM iteration: log-likelihoods, all expected counts, and the M-step."""

    @jax.jit
    def run(params: hmmjax.Params, obs: hmmjax.Observations) -> Any:
        data = collect(obs, None, None)
        value, expected = em.expectations(params, data, backend)
        return value, em.maximize(params, expected, Priors(), frozenset())

    return run


def log_likelihood64(params: hmmjax.Params, obs: hmmjax.Observations) -> float:
    """Compute one video's log-likelihood in float64 with NumPy; shares no code with the library."""
    phases, tools = params.phases, params.tools
    k, size = params.num_tools, len(phases.initial)
    start = np.float64(phases.initial)[:, None]
    for p in np.float64(tools.initial):
        start = (start[:, :, None] * np.stack([1 - p, p], -1)[:, None, :]).reshape(size, -1)
    move, steps = np.float64(phases.transition).T.copy(), np.float64(tools.transition.matrix)
    seen_phase, seen_tool = np.float64(phases.emission.matrix), np.float64(tools.emission.matrix)
    table = {}
    total, message = 0.0, start
    for t in range(len(obs.phases)):
        key = tuple(obs.tools[t].tolist())
        if key not in table:
            likelihood = np.ones(1)
            for j, y in enumerate(key):
                likelihood = np.kron(likelihood, seen_tool[j][:, y])
            table[key] = likelihood
        if t:
            message = move @ message
            for j in range(k):
                x = message.reshape(size, 2**j, 2, -1)
                message = np.einsum("qlir,qij->qljr", x, steps[j]).reshape(size, -1)
        message = message * seen_phase[:, obs.phases[t]][:, None] * table[key]
        norm = message.sum()
        message, total = message / norm, total + np.log(norm)
    return float(total)

"""Emission families for the suites, away from their defaults, and observations to test them on.

A family is built by its `default(n)`, and its observations are drawn by its own `sample`.
"""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hmmjax
from hmmjax import emissions

N = 3
ML = hmmjax.Priors()  # maximum likelihood: no anchors
# Not densities over observations: they cannot be sampled and there is nothing to maximize.
SCALED = {"PhaseScaled", "ToolScaled", "ToolMonotone"}
FAMILIES = [
    c
    for c in (getattr(emissions, name) for name in emissions.__all__)
    if inspect.isclass(c) and dataclasses.is_dataclass(c) and hasattr(c, "default")
]


def every(function):
    return pytest.mark.parametrize("family", FAMILIES, ids=lambda c: c.__name__)(function)


def every_memory(function):
    memories = [c for c in FAMILIES if c.default(N).lag]
    return pytest.mark.parametrize("family", memories, ids=lambda c: c.__name__)(function)


def every_density(function):
    densities = [c for c in FAMILIES if c.__name__ not in SCALED]
    return pytest.mark.parametrize("family", densities, ids=lambda c: c.__name__)(function)


def is_table(x):
    """Return whether rows are distributions."""
    return np.allclose(np.asarray(x).sum(-1), 1, atol=1e-4)


def perturbed(family, seed=0):
    """Return a family away from its default: nothing symmetric, every parameter valid."""
    rng = np.random.default_rng(seed)
    start = family.default(N)

    def move(x):
        moved = np.asarray(x) * rng.uniform(0.7, 1.4, np.shape(x)).astype(np.float32)
        if family.__name__ in ("ToolScaled", "ToolMonotone"):
            return jnp.asarray(moved)
        return jnp.asarray(moved / moved.sum(-1, keepdims=True) if is_table(x) else moved, jnp.float32)

    moved = jax.tree.map(move, start)
    moved.check()
    return moved


# Compiled once for all tests: a loop inside `maximize` would otherwise be compiled in every call.
maximize = jax.jit(lambda family, statistics, pseudo=0.0: family.maximize(statistics, pseudo))
statistics_of = jax.jit(lambda family, obs, posterior, *past: family.statistics(obs, posterior, *past))
log_prob = jax.jit(lambda family, obs, *past: family.log_prob(obs, *past))
sample = jax.jit(lambda family, key, hidden, *past: family.sample(key, hidden, *past))


def states(family, rng, *lead):
    return rng.integers(0, N, lead) if family.track == "phases" else rng.integers(0, 2, (*lead, N))


def onehot(family, hidden):
    if family.is_joint:
        configs = np.eye(2**N, dtype=np.float32)[hidden @ 2 ** np.arange(N)[::-1]]
        return jnp.asarray(np.broadcast_to(configs[:, None], (len(hidden), *tail(family))))
    return jnp.asarray(np.eye(N if family.track == "phases" else 2, dtype=np.float32)[hidden])


def draw(family, n=200, seed=1):
    # Draw a multiple of 200: compiling a sampler for another shape takes seconds.
    hidden = states(family, np.random.default_rng(seed), -(-n // 200) * 200)
    if type(family).__name__ in SCALED:
        rng = np.random.default_rng(seed)
        observed = rng.dirichlet(np.ones(N), n) if family.track == "phases" else rng.uniform(size=(n, N))
        return hidden[:n], observed.astype(np.float32)
    past = past_of(family, len(hidden))
    observed = np.asarray(sample(family, jax.random.key(seed), jnp.asarray(hidden), *past))
    return hidden[:n], observed[:n]


def past_of(family, n):
    """Return the past of the n frames of `draw`, a part of which is unobserved; nothing for a family without memory."""
    if not family.lag:
        return ()
    family = perturbed(type(family))  # the same past, whatever the parameters
    rng, length = np.random.default_rng(9), family.lag * -(-n // 200) * 200
    hidden = states(family, rng, length)
    values = np.asarray(sample(family, jax.random.key(9), jnp.asarray(hidden)))
    observed = rng.uniform(size=(family.lag, length // family.lag, *np.shape(hidden)[1:])) < 0.8
    return (emissions.Past(values.reshape(family.lag, -1, *values.shape[1:])[:, :n], observed[:, :n]),)


def tail(family):
    """Return the shape of `log_prob` per frame; a joint family has a column per configuration."""
    return (N,) if family.track == "phases" else (N, 2**N if family.is_joint else 2)


def weights(family, n, seed=2):
    shape = (n, *tail(family))
    if family.is_joint:  # of whole configurations: the same for every tool
        w = np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), (n, 1))
        return jnp.asarray(np.broadcast_to(w, shape), jnp.float32)
    w = np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), shape[:-1])
    return jnp.asarray(w, jnp.float32)

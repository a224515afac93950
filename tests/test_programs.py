"""The library inside a user's own program, and how often anything is compiled."""

import dataclasses

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import everything
from numpy.testing import assert_allclose

import hmmjax


def test_inside_jit_vmap_and_grad():
    case = cases.make(23, 2, 2, lengths=(5, 3))

    def run(obs, mask):
        return hmmjax.posterior(case.params, obs, mask), hmmjax.decode(case.params, obs, mask)

    eager = run(case.obs, case.mask)
    for answer in (jax.jit(run)(case.obs, case.mask), jax.vmap(run)(case.obs, case.mask)):
        jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-5, atol=1e-6), answer, eager)

    stay = jnp.array([0.6, 0.9])

    def with_stay(p):
        phases = dataclasses.replace(case.params.phases, transition=jnp.array([[p, 1 - p], [1 - p, p]]))
        return hmmjax.log_likelihood(dataclasses.replace(case.params, phases=phases), case.obs, case.mask).sum()

    slopes = jax.jit(jax.vmap(jax.grad(with_stay)))(stay)
    step = 1e-2
    for p, slope in zip(stay, slopes, strict=True):
        assert_allclose(slope, (with_stay(p + step) - with_stay(p - step)) / (2 * step), rtol=2e-2)


class Traces:
    """Counts what JAX traces and compiles."""

    def __init__(self):
        self.count = 0

    def __call__(self, event, duration, **_):
        self.count += event == "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def traces():
    counter = Traces()
    jax.monitoring.register_event_duration_secs_listener(counter)
    yield counter
    jax.monitoring.unregister_event_duration_listener(counter)


def test_repeated_calls_never_retrace(traces):
    """Peers 22."""
    case = cases.make(24, 2, 2, 23, lengths=(23, 20))
    everything(*case.args)
    before = traces.count
    assert before > 0
    for seed in (25, 26):
        other = cases.make(seed, 2, 2, 23, lengths=(19, 23))
        everything(*other.args)
    assert traces.count == before


def test_twenty_lengths_compile_a_handful_of_programs(traces):
    case = cases.make(27, 0, 2, 2000, batch=1)
    hmmjax.log_likelihood(case.params, cases.map_tracks(lambda x: x[:, :2000], case.obs))
    before = traces.count
    for n in np.linspace(700, 1900, 20).astype(int):
        hmmjax.log_likelihood(case.params, cases.map_tracks(lambda x, n=n: x[:, :n], case.obs))
    assert traces.count - before <= 12

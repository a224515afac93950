"""The library inside a user's own program: transformations, compilation counts, and type promotion."""

import dataclasses
from functools import partial

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import everything
from numpy.testing import assert_allclose

import hmmjax
from hmmjax import durations, em, messages, streaming
from hmmjax._core.batch import collect


@pytest.mark.thorough
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


@pytest.fixture
def compiled():
    """The names of compiled programs, in a list that grows."""
    events = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    jax.clear_caches()  # programs of earlier tests would not be counted
    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


def test_repeated_calls_never_retrace(compiled):
    case = cases.make(24, 2, 2, 23, lengths=(23, 20))
    everything(*case.args)
    before = len(compiled)
    assert before > 0
    for seed in (25, 26):
        other = cases.make(seed, 2, 2, 23, lengths=(19, 23))
        everything(*other.args)
    assert len(compiled) == before


@pytest.mark.parametrize("emissions", ["probability", "confusion"])
def test_fitted_parameters_need_no_new_programs(compiled, emissions):
    """Parameters of init_params, of fit and of NumPy are all typed alike."""
    start = hmmjax.init_params(2, 2, emissions=emissions)
    _, obs, mask = hmmjax.sample(start, jax.random.key(0), [16, 9])
    # By name, because "auto" selects another backend if a fitted probability is nearly zero.
    fit, posterior = partial(hmmjax.fit, max_iterations=2, backend="scan"), partial(hmmjax.posterior, backend="scan")
    inside = jax.jit(posterior)
    fitted = fit(start, obs, mask).params
    for run in (posterior, inside):
        run(start, obs, mask)
    before = len(compiled)
    again = fit(fitted, obs, mask).params
    for run in (posterior, inside):
        run(again, obs, mask)
    posterior(jax.tree.map(np.asarray, fitted), obs, mask)
    assert len(compiled) == before


def test_results_of_fit_have_the_same_types_inside_jit():
    start = hmmjax.init_params(2, 0, emissions="confusion")
    obs = hmmjax.Observations(np.zeros((2, 5), int))
    for batch in (obs, hmmjax.Observations(np.zeros((0, 5), int))):
        eager = hmmjax.fit(start, batch, max_iterations=2)
        inside = jax.jit(lambda p, o: hmmjax.fit(p, o, max_iterations=2))(start, batch)
        for a, b in zip(jax.tree.leaves(eager), jax.tree.leaves(inside), strict=True):
            assert isinstance(a, jax.Array) and a.dtype == b.dtype and a.weak_type == b.weak_type and a.ndim == b.ndim


def test_an_em_step_compiles_few_kernels():
    """Compiling takes most of the first step. It was 66 kernels once."""
    if not messages.native.available():
        pytest.skip("of the compiled recursions")
    params = hmmjax.init_params(7, 7, emissions="confusion")
    obs = hmmjax.Observations(np.zeros(100, int), np.zeros((100, 7), int))

    @jax.jit
    def step(params, obs):
        value, expected = em.expectations(params, collect(obs, None, None), "native")
        return value, em.maximize(params, expected, hmmjax.Priors(), frozenset())

    program = step.lower(params, obs).compile().as_text()
    kernels = [line for line in program[program.index("ENTRY") :].splitlines() if "fusion(" in line]
    assert 0 < len(kernels) <= 45


@pytest.mark.thorough
def test_twenty_lengths_compile_a_handful_of_programs(compiled):
    case = cases.make(27, 0, 2, 2000, batch=1)
    hmmjax.log_likelihood(case.params, cases.map_tracks(lambda x: x[:, :2000], case.obs))
    before = len(compiled)
    for n in np.linspace(700, 1900, 20).astype(int):
        hmmjax.log_likelihood(case.params, cases.map_tracks(lambda x, n=n: x[:, :n], case.obs))
    assert len(compiled) - before <= 12


def _models():
    plain = hmmjax.init_params(3, 2)
    confusion = hmmjax.init_params(3, 2, emissions="confusion", interacting=True)
    chains = [
        dataclasses.replace(a, emission=(a.emission, b.emission))
        for a, b in ((plain.phases, confusion.phases), (plain.tools, confusion.tools))
    ]
    return {
        "phases": hmmjax.init_params(3, 0),
        "tools": hmmjax.init_params(0, 3),
        "joint tools": hmmjax.init_params(0, 2, emissions="logistic"),
        "stages": durations.spread(confusion, (2, 1, 3)),
        "several recognizers": hmmjax.Params(*chains),
        **{name: hmmjax.init_params(3, 2, emissions=name) for name in ("inflated", "logit-normal", "scaled")},
    }


@pytest.mark.thorough
@pytest.mark.parametrize("name", _models())
def test_strict_type_promotion(name):
    """No implicit promotion of types anywhere; tracing shows it, nothing is compiled."""
    params, frames = _models()[name], (2, 20)

    def observe(chain):
        if chain is None:
            return None, None
        sources = [
            np.zeros((*frames, *f.event_shape), np.int32)
            if f.observes == "labels"
            else np.full((*frames, *f.event_shape), 1 / max(*f.event_shape, 2), np.float32)
            for f in chain.emission.sources
        ]
        known = frames if chain is params.phases else (*frames, params.num_tools)
        return tuple(sources) if len(sources) > 1 else sources[0], np.zeros(known, np.int32)

    (phases, known_phases), (tools, known_tools) = observe(params.phases), observe(params.tools)
    obs, labels = hmmjax.Observations(phases, tools), hmmjax.Labels(known_phases, known_tools)
    args = params, obs, np.ones(frames, bool)
    key, first = jax.random.key(0), jax.tree.map(lambda x: x[0, 0], obs)
    with jax.numpy_dtype_promotion("strict"):
        for backend in ("scan", "logspace"):
            jax.eval_shape(partial(hmmjax.filter, backend=backend), *args)
            for run in (hmmjax.posterior, hmmjax.decode):
                jax.eval_shape(partial(run, backend=backend), *args, labels)
        jax.eval_shape(jax.grad(lambda *args: hmmjax.log_likelihood(*args).sum()), *args, labels)
        jax.eval_shape(hmmjax.conditional_log_likelihood, *args, labels)
        jax.eval_shape(partial(hmmjax.fit, max_iterations=2), *args, labels)
        jax.eval_shape(partial(hmmjax.sample_posterior, num_samples=2), params, key, *args[1:], labels)
        jax.eval_shape(lambda p, o: streaming.step(p, streaming.start(p, 2), o), params, first)
        if name != "scaled":
            jax.eval_shape(lambda p: hmmjax.sample(p, key, [5, 3]), params)

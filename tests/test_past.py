"""Emission families with memory in batches, gaps, streams, samples and EM, against tables made frame by frame."""

import dataclasses
from functools import partial

import emission_oracles
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose

import hmmjax
from hmmjax import emissions
from hmmjax.emissions import Fused, PhaseEmission, Tempered

MASK = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 0, 0]], bool)
CASES = [
    ("PhaseAutoregressive", "ToolAutoregressive"),
    ("PhaseAutoregressiveLogitNormal", "ToolAutoregressiveLogitNormal"),
]


def perturb(family, seed=0):
    rng = np.random.default_rng(seed)

    def move(x):
        x = np.asarray(x)
        if np.allclose(x.sum(-1), 1):
            return rng.dirichlet(np.full(x.shape[-1], 2.0), x.shape[:-1]).astype(np.float32)
        return (x * rng.uniform(0.6, 1.5, x.shape) + rng.uniform(0, 0.5, x.shape)).astype(np.float32)

    return jax.tree.map(move, family)


def model(phase_family, tool_family, seed=1):
    """Two phases, two tools, with random tables; and the oracle's."""
    own = oracles.random_model(np.random.default_rng(seed), 2, 2)
    transition = hmmjax.transitions.PhaseConditioned(np.float32(own.tool_transition))
    phases = hmmjax.PhaseChain(np.float32(own.initial), np.float32(own.transition), phase_family)
    return hmmjax.Params(phases, hmmjax.ToolChains(np.float32(own.tool_initial), transition, tool_family)), own


def table_by_frames(family, observations, mask):
    """One video's log-densities, each frame with the past that the contract promises."""
    out = []
    for t in range(len(observations)):
        seen = t > 0 and mask[t - 1]
        past = emissions.Past(
            np.asarray(observations[max(t - 1, 0)])[None, None],
            np.full((1, 1, *(() if family.track == "phases" else (family.size,))), seen),
        )
        tables = [np.asarray(x, np.float64) for x in jax.tree.leaves(family)]
        name = type(family).__name__
        out.append(emission_oracles.log_densities(name, tables, np.asarray(observations[t])[None], past)[0])
    return np.stack(out)


def case(names):
    families = [perturb(getattr(emissions, name).default(2)) for name in names]
    params, own = model(*families)
    obs = hmmjax.sample(params, jax.random.key(0), [5, 5])[1]
    tables = [
        oracles.emission_table(
            5,
            2,
            2,
            *(table_by_frames(f, x[i], MASK[i]) for f, x in zip(families, (obs.phases, obs.tools), strict=True)),
            MASK[i],
        )
        for i in (0, 1)
    ]
    return params, own, obs, tables


@pytest.mark.parametrize("names", CASES, ids=lambda c: c[0])
def test_posteriors_filters_and_streams_are_those_of_the_tables_frame_by_frame(names):
    """After a gap and at the start nothing is remembered; padding is not seen."""
    params, own, obs, tables = case(names)
    smoothed, filtered = hmmjax.posterior(params, obs, MASK), hmmjax.filter(params, obs, MASK)
    for i, table in enumerate(tables):
        answer, n = oracles.enumerate_paths(own, table), len(table)
        assert_allclose(smoothed.log_likelihood[i], answer.log_likelihood, rtol=1e-4)
        assert_allclose(smoothed.phases[i, :n], answer.phases, atol=1e-4)
        assert_allclose(smoothed.tools[i, :n], answer.tools, atol=1e-4)
        assert_allclose(filtered.tools[i, :n], answer.filter_tools, atol=1e-4)
    stream = hmmjax.Stream(params, lag=2)
    for t in range(4):
        frame = hmmjax.Observations(np.asarray(obs.phases[0, t]), np.asarray(obs.tools[0, t])) if MASK[0, t] else None
        now = stream.step(frame)
        assert_allclose(now.phases, filtered.phases[0, t], atol=1e-4)
        assert_allclose(now.tools, filtered.tools[0, t], atol=1e-4)


def test_streams_of_memory_are_saved_and_resumed(tmp_path):
    params, _, obs, _ = case(CASES[0])
    frames = [hmmjax.Observations(np.asarray(obs.phases[1, t]), np.asarray(obs.tools[1, t])) for t in range(4)]
    stream = hmmjax.Stream(params, lag=1)
    for frame in frames[:3]:
        stream.step(frame)
    stream.save(tmp_path / "state.npz")
    resumed = hmmjax.Stream.resume(params, tmp_path / "state.npz")
    # The state is kept in logarithms, which round once.
    jax.tree.map(partial(assert_allclose, rtol=1e-12), resumed.state, stream.state)
    jax.tree.map(partial(assert_allclose, rtol=1e-6), resumed.step(frames[3]), stream.step(frames[3]))


def test_fused_recognizers_remember_what_each_of_them_predicted():
    """One with memory and gaps of its own in single tools, one without memory, and powers."""
    memory = perturb(emissions.ToolAutoregressive.default(2))
    plain = perturb(emissions.ToolConfusion.default(2), 3)
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, (2, 5, 2)).astype(np.int32)
    missing = labels.copy()
    missing[0, 1, 0] = missing[1, 2, 1] = -1
    family = Fused((Tempered(memory, np.float32(0.5)), plain))
    params, _ = model(None, family)
    both = np.zeros((2, 5, 2, 2))
    after, matrix = np.log(np.float64(memory.after)), np.log(np.float64(memory.matrix))
    for i, t, k in np.ndindex(2, 5, 2):
        both[i, t, k] += np.log(np.float64(plain.matrix))[k, :, labels[i, t, k]]
        m, n = missing[i, t, k], missing[i, t - 1, k] if t and MASK[i, t - 1] else -1
        if m >= 0:
            both[i, t, k] += 0.5 * (matrix[k, :, m] if n < 0 else after[k, :, n, m])
    table = hmmjax._core.tables.tabulate(
        hmmjax._core.batch.canonical(params),
        hmmjax._core.batch.collect(hmmjax.Observations(tools=(missing, labels)), MASK, None, params),
    )
    assert_allclose(table.tools[MASK], both[MASK], atol=1e-4)


@pytest.mark.parametrize("names", CASES, ids=lambda c: c[0])
def test_labels_and_em_learn_the_memory_of_samples(names):
    """Counting finds the parameters; EM goes uphill from them, also with masks."""
    families = [perturb(getattr(emissions, name).default(2)) for name in names]
    params, _ = model(*families)
    labels, obs, mask = hmmjax.sample(params, jax.random.key(1), [3000, 2500])
    found = hmmjax.estimate(labels, obs, mask, emissions=dict(zip(("phases", "tools"), families, strict=True)))
    for track in ("phases", "tools"):
        truth, counted = getattr(params, track).emission, getattr(found, track).emission
        for name in ("after",) if hasattr(truth, "after") else ("intercept", "slope", "residual"):
            assert_allclose(getattr(counted, name), getattr(truth, name), atol=0.12)
    result = hmmjax.fit(found, obs, np.asarray(mask) & (np.arange(3000) % 7 > 0), max_iterations=4, tolerance=0.0)
    history = np.asarray(result.history)
    assert (np.diff(history) >= -1e-6 * np.abs(history[1:])).all() and history[-1] > history[0]


@hmmjax.pytree
class PhaseWindow(PhaseEmission):
    """A label that follows the majority of its last two labels: a family of lag 2, as a user would write it."""

    matrix: jax.Array
    weight: jax.Array
    observes, lag = "labels", 2

    @property
    def num_phases(self):
        return len(self.matrix)

    @property
    def num_symbols(self):
        return self.matrix.shape[-1]

    def log_prob(self, observations, past=None):
        scores = jnp.log(self.matrix)
        repeats = jnp.zeros((*jnp.shape(observations), self.matrix.shape[-1]))
        if past is not None:
            for values, observed in zip(past.values, past.observed, strict=True):
                repeats = repeats + observed[..., None] * jax.nn.one_hot(values, self.matrix.shape[-1])
        table = jax.nn.log_softmax(scores + self.weight * repeats[..., None, :])
        return jnp.take_along_axis(table, observations[..., None, None], -1)[..., 0]

    def sample(self, key, states, past=None):
        symbols = jnp.arange(self.matrix.shape[-1])
        over = jax.vmap(lambda m: self.log_prob(jnp.full(jnp.shape(states), m), past), out_axes=-1)(symbols)
        return jax.random.categorical(key, jnp.take_along_axis(over, states[..., None, None], -2)[..., 0, :])


def test_a_family_of_two_lags_needs_no_more_than_its_density():
    family = PhaseWindow(jnp.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]]), jnp.array(1.5))
    params = hmmjax.Params(dataclasses.replace(model(None, None)[0].phases, emission=family))
    _, obs, mask = hmmjax.sample(params, jax.random.key(3), [6, 4])
    mask = np.asarray(mask) & ~np.array([[0, 0, 1, 0, 0, 0], [0] * 6], bool)
    own = oracles.random_model(np.random.default_rng(1), 2, 2)
    own = oracles.Model(own.initial, own.transition)
    posterior, total = hmmjax.posterior(params, obs, mask), 0.0
    for i in (0, 1):
        table = np.zeros((6, 2))
        for t, p in np.ndindex(6, 2):
            scores = np.log(np.float64(family.matrix[p]))
            for lag in (1, 2):
                if t >= lag and mask[i, t - lag]:
                    scores[int(obs.phases[i, t - lag])] += 1.5
            table[t, p] = scores[int(obs.phases[i, t])] - np.log(np.exp(scores).sum())
        answer = oracles.enumerate_paths(own, oracles.emission_table(6, 2, 0, table, None, mask[i]))
        assert_allclose(posterior.phases[i, : len(answer.phases)], answer.phases, atol=1e-4)
        total += answer.log_likelihood
    slope = jax.grad(
        lambda w: hmmjax.log_likelihood(
            dataclasses.replace(
                params, phases=dataclasses.replace(params.phases, emission=dataclasses.replace(family, weight=w))
            ),
            obs,
            mask,
        ).sum()
    )(family.weight)
    assert_allclose(hmmjax.log_likelihood(params, obs, mask).sum(), total, rtol=1e-4)
    assert np.isfinite(slope) and slope != 0


def test_a_model_with_memory_belongs_to_its_frame_rate():
    params, _ = model(emissions.PhaseAutoregressive.default(2), None)
    with pytest.raises(TypeError, match="frame rate"):
        hmmjax.rates.rescale(params, 2)

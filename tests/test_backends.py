"""Every backend gives the oracle's answers: values, marginals, paths, and all the derivatives that counts come from.

Kernels run interpreted here; benchmarks/hmm.py runs the same comparison on a GPU.
"""

import dataclasses

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose

from hmmjax import messages
from hmmjax.messages import BACKENDS, Potentials

SHAPES = {"scan": [(3, 2), (2, 5), (0, 2), (3, 0)], "parallel": [(0, 2), (3, 0)], "gpu": [(3, 2)], "logspace": [(3, 2)]}


@pytest.mark.parametrize(("backend", "shape"), [(b, s) for b in BACKENDS for s in SHAPES[b]])
def test_answers(backend, shape):
    method = oracles.enumerate_paths if 2 ** sum(shape) <= 32 else oracles.dense
    cases.check(cases.make(6, *shape, holes=0.3, lengths=(5, 3)), method, backend=backend)


def chain(seed, videos, frames, phases, tools, sharpness):
    rng = np.random.default_rng(seed)
    configs = 2**tools
    initial = rng.dirichlet(np.ones(phases * configs)).reshape(phases, configs)
    transition = rng.dirichlet(np.full(phases, 0.5), phases)
    transition[0, -1] = 0
    transition[0] /= transition[0].sum()
    blocks = tuple(jnp.asarray(rng.dirichlet(np.ones(2), (phases, 2)), jnp.float32) for _ in range(tools))
    evidence = [jnp.asarray(-rng.exponential(sharpness, (videos, frames, n)), jnp.float32) for n in (phases, configs)]
    lengths = jnp.asarray([frames, *rng.integers(0, frames, videos - 1)], jnp.int32)
    return Potentials(jnp.float32(initial), jnp.float32(transition), blocks, *evidence, lengths)


def derivatives(p, backend):
    value, vjp = jax.vjp(lambda p: messages.log_normalizer(p, backend), p)
    return value, vjp(jnp.linspace(1, 2, len(value)))[0]


def same(a, b):
    parts = ("initial", "transition", "blocks", "phases", "configs")
    a, b = ((value, [getattr(grads, part) for part in parts]) for value, grads in (a, b))
    jax.tree.map(lambda x, y: assert_allclose(x, y, rtol=2e-5, atol=1e-5), a, b)


CHAINS = [("scan", (3, 40, 4, 3)), ("scan", (2, 12, 9, 5)), ("parallel", (3, 33, 5, 0)), ("gpu", (3, 9, 5, 3))]


@pytest.mark.parametrize(("backend", "shape"), CHAINS)
def test_derivatives_are_those_of_plain_differentiation(backend, shape):
    """Against reverse-mode differentiation of the recursion in logarithms, with zeros, gaps and videos of no frame."""
    p = chain(1, *shape, sharpness=3.0)
    value, grads = jax.jit(derivatives, static_argnums=1)(p, backend)
    expected, plain = jax.jit(derivatives, static_argnums=1)(p, "logspace")
    assert_allclose(value, expected, rtol=1e-6)
    allowed = p.transition > 0
    for name in ("initial", "blocks", "phases", "configs"):
        jax.tree.map(
            lambda a, b: assert_allclose(a, b, rtol=2e-5, atol=2e-5), getattr(grads, name), getattr(plain, name)
        )
    assert_allclose(jnp.where(allowed, grads.transition, 0), jnp.where(allowed, plain.transition, 0), rtol=2e-5)
    # At a zero the derivative is what a little probability there would be worth.
    nudged = jax.jit(messages.log_normalizer, static_argnums=1)(
        Potentials(p.initial, p.transition.at[0, -1].set(1e-3), p.blocks, p.phases, p.configs, p.lengths), backend
    )
    worth = float(jnp.sum(jnp.linspace(1, 2, len(value)) * (nudged - value))) / 1e-3
    assert_allclose(grads.transition[0, -1], worth, rtol=0.1)


@pytest.mark.parametrize("backend", ["scan", "parallel"])
def test_taking_turns_changes_nothing(backend, monkeypatch):
    """Messages that would not fit are computed again, chunk by chunk."""
    p = chain(2, 3, 300, 3, 0 if backend == "parallel" else 2, sharpness=1.0)
    value, grads = jax.jit(derivatives, static_argnums=1)(p, backend)
    best = messages.viterbi(p, backend)
    monkeypatch.setattr("hmmjax.messages.batching.STORED_BYTES", 1)
    again = jax.jit(derivatives, static_argnums=1)(p, backend)
    same(again, (value, grads))
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-6), messages.viterbi(p, backend), best)


@pytest.mark.parametrize(("stored", "at_once"), [(4_000, 2), (2_000, 1), (1_000, 0)])
def test_kernels_in_turns_and_chunks(monkeypatch, stored, at_once):
    """As many videos as fit, down to less than one, and counts of at most three frames by one matrix product."""
    p = chain(3, 3, 6, 3, 2, sharpness=1.0)
    value, grads = jax.jit(derivatives, static_argnums=1)(p, "gpu")
    answers = messages.filter(p, "gpu"), messages.viterbi(p, "gpu")
    monkeypatch.setattr("hmmjax.messages.kernels.CHUNK", 3)
    monkeypatch.setattr("hmmjax.messages.gpu.STORED_BYTES", stored)
    assert messages.gpu._at_once(p) == at_once
    again = jax.jit(lambda p: derivatives(p, "gpu"))(p)
    same(again, (value, grads))
    filtered, best = messages.filter(p, "gpu"), messages.viterbi(p, "gpu")
    real = np.arange(6)[None] < np.asarray(p.lengths)[:, None]
    for x, y in zip(jax.tree.leaves((filtered, best)), jax.tree.leaves(answers), strict=True):
        assert_allclose(*(z[real] if z.ndim > 1 else z for z in map(np.asarray, (x, y))), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("backend", "frames"), [("scan", 150), ("gpu", 7)])
def test_answers_are_differentiable_themselves(backend, frames):
    """Posteriors, filters and gradients, beyond a chunk and in kernels: as of the recursion in logarithms."""
    p = chain(5, 2, frames, 3, 2, sharpness=1.0)
    rng = np.random.default_rng(0)
    real = jnp.arange(frames)[None, :, None] < p.lengths[:, None, None]
    weights = [jnp.asarray(rng.normal(size=x.shape) * real, jnp.float32) for x in (p.phases, p.configs)]

    def objective(p, backend):
        def value(phases, configs):
            return messages.log_normalizer(dataclasses.replace(p, phases=phases, configs=configs), backend)

        value, vjp = jax.vjp(value, p.phases, p.configs)
        online = messages.filter(p, backend)
        answers = (*vjp(jnp.ones_like(value)), online.phases, online.configs)
        best = messages.viterbi(p, backend).log_prob
        sums = (jnp.sum(w * jnp.where(real, x, 0)) for w, x in zip(weights * 2, answers, strict=True))
        return value.sum() + best.sum() + sum(sums)

    slope = jax.jit(jax.grad(objective, allow_int=True), static_argnums=1)
    got, expected = slope(p, backend), slope(p, "logspace")
    for name in ("initial", "transition", "blocks", "phases", "configs"):
        jax.tree.map(
            lambda a, b: assert_allclose(a, b, rtol=1e-4, atol=1e-4 * float(jnp.abs(b).max())),
            *(_allowed(getattr(x, name), p, name) for x in (got, expected)),
        )


@pytest.mark.parametrize(
    ("backend", "frames"), [("gpu", 1), ("gpu", 5), *(("scan", frames) for frames in (1, 5, 129, 150, 300))]
)
def test_the_best_path_is_the_one_whose_probability_is_told(backend, frames):
    """Also where frames do not fill their chunks, and inside a caller's own jit, where nothing is padded."""
    p = chain(5, 3, frames, 3, 2, sharpness=1.0)
    best = jax.jit(messages.viterbi, static_argnums=1)(p, backend)
    plain = jax.jit(messages.viterbi, static_argnums=1)(p, "logspace")
    assert_allclose(best.log_prob, plain.log_prob, rtol=1e-6)
    for v, length in enumerate(np.asarray(p.lengths)):
        q, c = (np.asarray(x)[v, :length] for x in (best.phases, best.configs))
        bits = c[:, None] >> np.arange(1, -1, -1) & 1
        value = 0.0
        for t in range(length):
            value += p.phases[v, t, q[t]] + p.configs[v, t, c[t]]
            value += np.log(p.initial[q[0], c[0]] if t == 0 else p.transition[q[t - 1], q[t]])
            if t:
                value += sum(np.log(b[q[t], bits[t - 1, k], bits[t, k]]) for k, b in enumerate(p.blocks))
        assert_allclose(best.log_prob[v], value, rtol=1e-5)


@pytest.mark.parametrize(("backend", "nats"), [("scan", 70.0), ("scan", 110.0), ("gpu", 70.0)])
def test_a_beginning_that_evidence_denies(backend, nats):
    """Where a video may begin its derivative is exact; elsewhere it may be beyond float32, and is never NaN."""
    p = chain(6, 1, 4, 2, 1, sharpness=1.0)
    initial = jnp.float32([[0.5, 0], [0.5, 0]])
    p = dataclasses.replace(p, initial=initial, configs=p.configs.at[0, 0].set(jnp.array([-nats, 0.0])))

    def slope(backend):
        return jax.grad(lambda x: messages.log_normalizer(dataclasses.replace(p, initial=x), backend).sum())(initial)

    got, want = slope(backend), slope("logspace")
    assert_allclose(got[:, 0], want[:, 0], rtol=1e-5)
    assert_allclose(got[:, 0].sum(), 2, rtol=1e-5)
    assert (got[:, 1] > 1e28).all()


def _allowed(x, p, name):
    """What the derivative at a zero is worth differs between recursions, as a path that cannot be does."""
    return jnp.where(p.transition > 0, x, 0) if name == "transition" else x


def test_kernels_lower_for_a_gpu(monkeypatch):
    """To Triton's language, for which no GPU is needed: nothing in them is beyond it."""
    p = chain(4, 2, 5, 3, 3, sharpness=1.0)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for run in (lambda p: derivatives(p, "gpu"), messages.gpu.filter, messages.gpu.viterbi):
        lowered = jax.jit(run).trace(p).lower(lowering_platforms=("cuda",))
        assert "triton" in lowered.as_text()

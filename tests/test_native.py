"""The compiled recursions: against dense matrices on random shapes, under sanitizers, and through JAX."""

import dataclasses
import os
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_backends import chain, derivatives

import hmmjax
from hmmjax import messages, native
from hmmjax._core import lowering
from hmmjax._core.packing import place
from hmmjax.native import build

HERE = Path(__file__).parent
SANITIZERS = ("-g", "-O1", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

compiled = pytest.mark.skipif(not native.is_loaded(), reason=native.describe())


def test_a_compiler_means_compiled_recursions():
    """The other tests may skip only where nothing could be compiled, or where someone switched it off."""
    has_compiler = bool(os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++"))
    assert native.is_loaded() or not has_compiler or os.environ.get("HMMJAX_NATIVE") == "off", native.describe()


def test_headers_are_those_of_the_earliest_jaxlib():
    """A jaxlib refuses what was compiled with the headers of a later one, which pip would install to build with."""
    with open(Path(__file__).parents[1] / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)
    (earliest,) = (x.removeprefix("jax>=") for x in project["project"]["dependencies"] if x.startswith("jax>"))
    assert f"jaxlib=={earliest}.0; python_version < '3.14'" in project["build-system"]["requires"]


@pytest.mark.thorough
@pytest.mark.parametrize("isa", ["avx512", "avx2", "baseline"])
def test_random_shapes_against_dense_matrices(isa, tmp_path):
    """No warning, no undefined behavior, no access outside of arrays; the same numbers as in long double."""
    known = ["", "baseline", "avx2", "avx512"]
    if known.index(native.load()[0]) < known.index(isa):
        pytest.skip(f"this processor cannot run {isa}, or there is no compiler")
    fuzz = tmp_path / "fuzz"
    sources = [build.HERE / f"{isa}.cc", HERE / "native" / "fuzz.cc"]
    reason = build.compile_program(fuzz, sources, (*SANITIZERS, f"-DISA={isa}"))
    assert not reason
    # The search for leaks needs rights that containers may lack.
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    run = subprocess.run([fuzz, "200"], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr


@compiled
def test_models_are_vectorized_over():
    """Under vmap models may have videos of their own, or share them."""
    a, b = chain(1, 2, 20, 3, 2), chain(2, 2, 20, 3, 2)
    both = jax.tree.map(lambda *x: jnp.stack(x), a, b)
    got = jax.vmap(partial(messages.log_normalizer, backend="native"))(both)
    assert_allclose(got, [messages.log_normalizer(p, "scan") for p in (a, b)], rtol=1e-6)

    def shared(transition):
        return messages.log_normalizer(dataclasses.replace(a, transition=transition), "native")

    transitions = jnp.stack([jnp.stack([a.transition, b.transition]), jnp.stack([b.transition, a.transition])])
    got = jax.vmap(jax.vmap(shared))(transitions)
    assert_allclose(got[0], got[1][::-1], rtol=1e-6)
    assert_allclose(got[0, 0], messages.log_normalizer(a, "scan"), rtol=1e-6)
    gradients = jax.vmap(jax.grad(lambda t: shared(t).sum()))(transitions[0])
    assert_allclose(gradients[0], derivatives_of_sum(a).transition, rtol=1e-5)


def derivatives_of_sum(p):
    _, vjp = jax.vjp(lambda p: messages.log_normalizer(p, "scan"), p)
    return vjp(jnp.ones(len(p.lengths)))[0]


@compiled
def test_tools_may_be_summed_or_not():
    """Log-likelihoods per tool count as their sum per configuration does, alone or with it, in value and derivative."""
    p = chain(3, 2, 30, 3, 2)
    tools = -jnp.asarray(np.random.default_rng(0).exponential(2.0, (2, 30, 2, 2)), jnp.float32)
    for configs in (None, p.configs):
        q = dataclasses.replace(p, configs=configs, tools=tools)
        value, gradient = derivatives(q, "native")
        expected, plain = derivatives(q, "logspace")
        assert_allclose(value, expected, rtol=1e-6)
        jax.tree.map(partial(assert_allclose, rtol=1e-4, atol=1e-5), gradient.tools, plain.tools)
        assert (gradient.configs is None) == (configs is None)
        real = (np.arange(30) < np.asarray(p.lengths)[:, None])[..., None, None]
        filtered = [np.where(real, messages.filter(q, name).tools, 0) for name in ("native", "logspace")]
        assert_allclose(*filtered, rtol=1e-4, atol=1e-6)
        assert_allclose(messages.viterbi(q, "native").log_prob, messages.viterbi(q, "logspace").log_prob, rtol=1e-6)


@compiled
def test_posteriors_ask_for_no_counts_of_tables(monkeypatch):
    asked, call = [], messages.native._call

    def record(name, p, *results):
        asked.append([shape for shape, _ in results[1:4]])
        return call(name, p, *results)

    monkeypatch.setattr(messages.native, "_call", record)
    p = chain(2, 1, 33, 3, 2)
    value = lambda **changes: messages.log_normalizer(dataclasses.replace(p, **changes), "native").sum()  # noqa: E731
    jax.eval_shape(jax.grad(lambda x: value(phases=x)), p.phases)
    assert all(0 in shape for shape in asked.pop())
    jax.eval_shape(jax.grad(lambda x: value(transition=x)), p.transition)
    assert not any(0 in shape for shape in asked.pop())


@compiled
def test_padding_does_not_count():
    """Frames after a video's end may hold anything, NaN too, and their marginals are zero."""
    p = chain(4, 3, 40, 3, 2)
    real = jnp.arange(40) < p.lengths[:, None]
    phases, configs = (jnp.where(real[..., None], x, jnp.nan) for x in (p.phases, p.configs))
    spoiled = dataclasses.replace(p, phases=phases, configs=configs)
    got, expected = derivatives(spoiled, "native"), derivatives(p, "native")
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    assert not np.asarray(got[1].phases)[~np.asarray(real)].any()


@compiled
def test_videos_may_lie_one_after_another():
    """In a single row without padding between them, videos give what they give in rows of their own."""
    p = chain(5, 4, 20, 3, 2)
    lengths = np.array([20, 0, 7, 12], np.int32)
    tools = -jnp.asarray(np.random.default_rng(1).exponential(2.0, (4, 20, 2, 2)), jnp.float32)
    apart = dataclasses.replace(p, lengths=jnp.asarray(lengths), tools=tools)
    real = np.arange(20) < lengths[:, None]

    def join(x):
        return jnp.pad(x[real], [(0, 3)] + [(0, 0)] * (x.ndim - 2), constant_values=np.nan)[None]

    row = dataclasses.replace(apart, **{n: join(getattr(apart, n)) for n in ("phases", "configs", "tools")})
    row = dataclasses.replace(row, packing=place(jnp.asarray(lengths), 20))
    weights = jnp.asarray([1.0, 2.0, 0.5, -3.0])

    def run(p):
        value, vjp = jax.vjp(partial(messages.log_normalizer, backend="native"), p)
        gradient = vjp(weights)[0]
        filtered, path = messages.filter(p, "native"), messages.viterbi(p, "native")
        tables = value, gradient.initial, gradient.transition, gradient.blocks, filtered.log_normalizer, path.log_prob
        frames = gradient.phases, gradient.tools, gradient.configs, filtered.phases, filtered.tools, path.phases
        return tables, frames, path.configs

    (tables, frames, configs), (expected, expected_frames, expected_configs) = run(row), run(apart)
    jax.tree.map(np.testing.assert_array_equal, tables, expected)
    for got, want in zip((*frames, configs), (*expected_frames, expected_configs), strict=True):
        np.testing.assert_array_equal(got[0, : real.sum()], want[real])
        assert not np.asarray(got[0, real.sum() :]).any()


@compiled
def test_learning_from_videos_of_different_lengths_equals_the_reference(monkeypatch):
    """EM packs them for the compiled recursions; gaps, labels and an unobserved video are kept."""
    params = hmmjax.init_params(3, 2, emissions="confusion")
    rng = np.random.default_rng(0)
    obs = hmmjax.Observations(rng.integers(0, 3, (3, 20)), rng.integers(0, 2, (3, 20, 2)))
    mask = (np.arange(20) < np.array([[20], [0], [9]])) & (rng.random((3, 20)) > 0.2)
    labels = hmmjax.Labels(np.where(rng.random((3, 20)) < 0.1, obs.phases, -1), None)
    monkeypatch.setattr("hmmjax._core.batch.LEAST_SAVED", 1)
    run = partial(hmmjax.fit, params, obs, mask, labels, priors=hmmjax.Priors(*[0.1] * 6), max_iterations=2)
    got, expected = run(backend="native"), run(backend="scan")
    assert_allclose(got.history, expected.history, rtol=1e-6)
    jax.tree.map(partial(assert_allclose, rtol=1e-4, atol=1e-6), got.params, expected.params)


@pytest.mark.parametrize("value", ["off", "baseline"])
def test_switches(value):
    """HMMJAX_NATIVE switches the compiled part off or limits it; the answer is the same."""
    if value != "off" and not native.is_loaded():
        pytest.skip(native.describe())
    code = (
        "import numpy as np, hmmjax; params = hmmjax.init_params(3, 2, emissions='confusion');"
        "print(hmmjax.diagnostics.backend());"
        "print(hmmjax.log_likelihood(params, hmmjax.Observations(np.arange(5) % 3, None)))"
    )
    environment = {**os.environ, "HMMJAX_NATIVE": value, "JAX_PLATFORMS": "cpu"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    line, number = run.stdout.splitlines()
    assert "HMMJAX_NATIVE=off" in line if value == "off" else line == "native: compiled recursions (baseline)"
    params = hmmjax.init_params(3, 2, emissions="confusion")
    expected = hmmjax.log_likelihood(params, hmmjax.Observations(np.arange(5) % 3, None))
    assert_allclose(float(number), expected, rtol=1e-6)


@pytest.mark.parametrize("content", [None, b"", b"not a library"])
def test_a_library_that_does_not_load_only_costs_speed(content, tmp_path, monkeypatch):
    library = tmp_path / "_recursions.so"
    if content is not None:
        library.write_bytes(content)
    monkeypatch.setattr(native, "LIBRARY", library)
    native.load.cache_clear()
    try:
        assert not native.is_loaded()
        assert "reinstall hmmjax" in hmmjax.diagnostics.backend()
        assert messages.select("auto", chain(1, 1, 4, 3, 2)).name == "scan"
    finally:
        native.load.cache_clear()


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build.shutil, "which", lambda _: None)
    assert "no C++ compiler" in build.build()


@compiled
def test_a_tool_that_is_always_there_at_first_needs_no_logarithms():
    """EM often ends with a start of zero, and observations may deny it by any number of nats later."""
    start = hmmjax.init_params(2, 2, emissions="confusion")
    initial = np.float32([[1.0, 0.0], [0.3, 1e-30]])
    params = dataclasses.replace(start, tools=dataclasses.replace(start.tools, initial=initial))
    assert lowering.choose_backend("auto", params) == "auto"
    tools = np.where(np.arange(40)[:, None] < 20, [0, 1], [1, 0])
    sure = hmmjax.emissions.ToolConfusion(np.float32([[[1 - 1e-30, 1e-30], [1e-30, 1 - 1e-30]]] * 2))
    params = dataclasses.replace(params, tools=dataclasses.replace(params.tools, emission=sure))
    got, expected = (
        hmmjax.posterior(params, hmmjax.Observations(tools=tools), backend=b) for b in ("auto", "logspace")
    )
    assert_allclose(got.log_likelihood, expected.log_likelihood, rtol=1e-6)
    assert_allclose(got.tools, expected.tools, atol=1e-6)
    assert_allclose(got.phases, expected.phases, atol=1e-6)


@compiled
def test_tools_that_cannot_switch_lose_nothing():
    """Observations may favor one tool by thousands of nats, and then deny it: no path leads from it to the other.

    Each configuration is then a chain of phases of its own, solved here in float64.
    """
    frames, nats = 60, 40.0
    p = chain(6, 1, frames, 2, 2)
    never = tuple(jnp.broadcast_to(jnp.eye(2), b.shape) for b in p.blocks)
    sign = np.where(np.arange(frames) < frames // 2, 1, -1)[:, None] * np.array([1, -0.5])
    tools = nats * jnp.asarray(np.stack([sign, -sign], -1)[None], jnp.float32)
    p = dataclasses.replace(p, blocks=never, tools=tools, lengths=jnp.full((1,), frames, jnp.int32))

    with np.errstate(divide="ignore"):
        initial, move = np.log(np.float64(p.initial)), np.log(np.float64(p.transition))
    seen = np.float64(p.phases)[0][..., None] + np.float64(p.configs)[0][:, None]  # (T, L, C)
    for c in range(4):
        seen[:, :, c] += sum(np.float64(tools)[0, :, k, c >> (1 - k) & 1] for k in range(2))[:, None]
    alpha, beta = [initial + seen[0]], [np.zeros((2, 4))]
    for t in range(1, frames):
        alpha.append(np.logaddexp.reduce(alpha[-1][:, None] + move[..., None], 0) + seen[t])
        beta.append(np.logaddexp.reduce(move[..., None] + (seen[-t] + beta[-1])[None], 1))

    def marginals(scores):
        total = np.logaddexp.reduce(scores, (1, 2), keepdims=True)
        states = np.exp(scores - total)
        return total, states.sum(2), np.stack([states.sum(1)[:, [2, 3]].sum(1), states.sum(1)[:, [1, 3]].sum(1)], -1)

    value, gradient = derivatives(p, "native")
    total, phases, present = marginals(np.array(alpha) + np.array(beta[::-1]))
    assert_allclose(value, total[0, 0], rtol=1e-6)
    assert_allclose(gradient.phases[0], phases, atol=1e-6)
    assert_allclose(gradient.tools[0, ..., 1], present, atol=1e-6)
    assert_allclose(np.asarray(gradient.transition * p.transition).sum(), frames - 1, rtol=1e-5)
    filtered = messages.filter(p, "native")
    _, phases, present = marginals(np.array(alpha))
    assert_allclose(filtered.log_normalizer, total[0, 0], rtol=1e-6)
    assert_allclose(filtered.phases[0], phases, atol=1e-6)
    assert_allclose(filtered.tools[0, ..., 1], present, atol=1e-6)


@compiled
@pytest.mark.parametrize("past_only", [False, True])
def test_training_by_single_labels_has_compiled_derivatives(past_only):
    """Against slopes of a plain recursion in float64, in a random direction of all tables; padding does not count."""
    rng = np.random.default_rng(3)
    initial, transition = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), 3)
    phases, v = rng.normal(0, 2, (2, 2, 7, 3))
    lengths = np.array([7, 4], np.int32)

    def plain(initial, transition, phases):
        total = 0.0
        for b, n in enumerate(lengths):
            likelihood, forward, backward = np.exp(phases[b, :n]), [], [np.ones(3)]
            for t in range(n):
                forward.append(likelihood[t] * (initial if t == 0 else forward[-1] @ transition))
            for t in range(n - 1, 0, -1):
                backward.insert(0, transition @ (likelihood[t] * backward[0]))
            marginals = np.array(forward) * (1 if past_only else np.array(backward))
            total += (v[b, :n] * marginals / marginals.sum(-1, keepdims=True)).sum()
        return total

    def compiled_value(initial, transition, phases):
        p = messages.Potentials(initial[:, None], transition, (), phases, None, jnp.asarray(lengths))
        assert messages.native.can_train(p)
        real = np.arange(7) < lengths[:, None]
        return jnp.sum(jnp.where(real[..., None], v * messages.native.marginals(past_only, p).phases, 0))

    tables = initial, transition, phases
    gradient = jax.grad(compiled_value, (0, 1, 2))(*(jnp.asarray(x, jnp.float32) for x in tables))
    direction = [rng.normal(size=x.shape) for x in tables]
    up, down = (plain(*(x + sign * 1e-5 * d for x, d in zip(tables, direction, strict=True))) for sign in (1, -1))
    slope = sum(float((np.asarray(g) * d).sum()) for g, d in zip(gradient, direction, strict=True))
    assert slope == pytest.approx((up - down) / 2e-5, rel=1e-3, abs=1e-4)
    assert not np.asarray(gradient[2])[1, 4:].any()

"""Every backend of the registry gives the oracles' answers: values, marginals, paths, and derivatives of all orders.

Without a GPU its kernels are interpreted. With one, run this file as it is: the same tests launch them, and the tests
marked gpu compare a model of real size.
"""

import dataclasses
from contextlib import nullcontext
from functools import cache, partial

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose

import hmmjax
from hmmjax import messages, native
from hmmjax._core.packing import place
from hmmjax.messages import BACKENDS, Backend, Potentials, batching, logspace


def empty(phases, tools):
    """Potentials of one video of one frame, for questions about shapes; without phases those of one tool."""
    phases, tools = (phases, tools) if phases else (2, 0)
    tables = (np.zeros((1, 1, n), np.float32) for n in (phases, 2**tools))
    return Potentials(None, None, (np.zeros((phases, 2, 2)),) * tools, *tables, None)


def runnable(name, phases, tools):
    """Whether a backend runs these shapes; interpreting the kernels of many states would only take longer."""
    return BACKENDS[name].supports(empty(phases, tools)) and not (name == "gpu" and phases * 2**tools > 40)


SHAPES = [(3, 2), (2, 5), (0, 2), (3, 0)]
CHAINS = [(3, 9, 5, 3), (3, 12, 9, 5), (3, 33, 5, 0)]


@pytest.mark.parametrize(("name", "shape"), [(b, s) for b in BACKENDS for s in SHAPES if runnable(b, *s)])
def test_answers(name, shape):
    method = oracles.enumerate_paths if 2 ** sum(shape) <= 32 else oracles.dense
    cases.check(cases.make(6, *shape, holes=0.3, lengths=(5, 3)), method, backend=name)


@pytest.mark.parametrize(("name", "shape"), [(b, s) for b in BACKENDS for s in SHAPES[2:] if runnable(b, *s)])
def test_frames_that_are_tied_in_float32_are_ranked_by_logarithms(name, shape):
    """Twenty nats for each state: probabilities are 1 or as good as 0, and logarithms keep the order of frames."""
    case = cases.make(7, *shape, num_frames=7)
    single = dataclasses.replace(case.params.phases or case.params.tools, emission=None)
    if shape[0]:
        emission = hmmjax.emissions.PhaseConfusion(
            np.float32([[0.98, 0.01, 0.01], [0.01, 0.98, 0.01], [0.01, 0.01, 0.98]])
        )
        single = dataclasses.replace(single, transition=np.float32(0.01 + 0.97 * np.eye(3)), emission=emission)
        params, obs = hmmjax.Params(single), hmmjax.Observations(np.zeros((1, 7), np.int32))
    else:
        table = np.float32([[[0.99, 0.01], [0.02, 0.98]]] * 2)
        move = hmmjax.transitions.PhaseConditioned(np.float32([[[0.98, 0.02], [0.01, 0.99]]] * 2))
        single = dataclasses.replace(single, transition=move, emission=hmmjax.emissions.ToolConfusion(table))
        params, obs = hmmjax.Params(None, single), hmmjax.Observations(tools=np.ones((1, 7, 2), np.int32))
    found = hmmjax.posterior(params, obs, backend=name)
    with jax.enable_x64(True):
        exact = hmmjax.posterior(jax.tree.map(lambda x: np.asarray(x, np.float64), params), obs, backend="logspace")
    if shape[0]:
        values, logs = (
            (np.asarray(x.phases[0, :, 0], np.float64) for x in (found, exact)),
            found.phase_log_probs[0, :, 0],
        )
        expected = exact.phase_log_probs[0, :, 0]
    else:
        values, logs = (np.asarray(x.tools[0], np.float64) for x in (found, exact)), found.tool_log_odds[0]
        expected = exact.tool_log_odds[0]
    single_precision, double = values
    assert len(np.unique(single_precision)) < len(np.unique(double.round(12)))
    assert_allclose(logs, expected, rtol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize(("backend", "tools"), [(b, 0) for b in BACKENDS])
def test_a_factor_that_all_states_of_a_frame_share_changes_nothing(backend, tools):
    """Features far from all phases: their log-likelihoods are beyond the integers of float32."""
    rng = np.random.default_rng(5)
    tables = [rng.dirichlet(np.ones(n), shape).astype(np.float32) for n, shape in ((3, ()), (3, 3), (2, (tools, 3, 2)))]
    initial = np.repeat(tables[0][:, None] / 2**tools, 2**tools, 1)
    phases, configs = (-rng.exponential(1, (1, 5, n)).astype(np.float32) for n in (3, 2**tools))
    phases[0, 2] = configs[0, 2] = 0
    plain = messages.Potentials(initial, tables[1], tuple(tables[2]), phases, configs, np.array([5], np.int32))
    far = [x.copy() for x in (phases, configs)]
    far[0][0, 2], far[1][0, 2] = -(2.0**40), -(2.0**34)
    moved = dataclasses.replace(plain, phases=far[0], configs=far[1])
    (a, want), (b, found) = ((jax.tree.map(jnp.asarray, p), []) for p in (plain, moved))
    for p, out in ((a, want), (b, found)):
        filtered, path = messages.filter(p, backend), messages.viterbi(p, backend)
        value, vjp = jax.vjp(
            lambda x, p=p: messages.log_normalizer(dataclasses.replace(p, phases=x), backend), p.phases
        )
        out += [filtered.phases, filtered.tools, path.phases, path.configs, vjp(jnp.ones_like(value))[0]]
    jax.tree.map(partial(assert_allclose, atol=1e-5), found, want)
    assert_allclose(filtered.log_normalizer, -(2.0**40) - 2.0**34, rtol=1e-6)


def chain(seed, videos, frames, phases, tools, sharpness=1.0):
    rng = np.random.default_rng(seed)
    configs = 2**tools
    initial = rng.dirichlet(np.ones(phases * configs)).reshape(phases, configs)
    transition = rng.dirichlet(np.full(phases, 0.5), phases)
    transition[0, -1] = 0
    transition[0] /= transition[0].sum()
    blocks = tuple(jnp.asarray(rng.dirichlet(np.ones(2), (phases, 2)), jnp.float32) for _ in range(tools))
    log_likelihoods = [
        jnp.asarray(-rng.exponential(sharpness, (videos, frames, n)), jnp.float32) for n in (phases, configs)
    ]
    lengths = jnp.asarray([frames, *rng.integers(0, frames, videos - 1)], jnp.int32)
    return Potentials(jnp.float32(initial), jnp.float32(transition), blocks, *log_likelihoods, lengths)


def derivatives(p, name):
    value, vjp = jax.vjp(lambda p: messages.log_normalizer(p, name), p)
    return value, vjp(jnp.linspace(1, 2, len(value)))[0]


run_derivatives = jax.jit(derivatives, static_argnums=1)
run_viterbi = jax.jit(messages.viterbi, static_argnums=1)
run_filter = jax.jit(messages.filter, static_argnums=1)


@cache
def reference(shape):
    p = chain(1, *shape, sharpness=3.0)
    return p, *run_derivatives(p, "logspace")


def assert_same(a, b):
    parts = ("initial", "transition", "blocks", "phases", "configs")
    a, b = ((value, [getattr(grads, part) for part in parts]) for value, grads in (a, b))
    jax.tree.map(lambda x, y: assert_allclose(x, y, rtol=2e-5, atol=1e-5), a, b)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "shape"), [(b, s) for b in BACKENDS for s in CHAINS if b != "logspace" and runnable(b, *s[2:])]
)
def test_derivatives_are_those_of_plain_differentiation(name, shape):
    """Against reverse-mode differentiation in logarithms, with structural zeros, missing frames and empty videos."""
    p, expected, plain = reference(shape)
    value, grads = run_derivatives(p, name)
    assert_allclose(value, expected, rtol=1e-6)
    allowed = p.transition > 0
    for part in ("initial", "blocks", "phases", "configs"):
        jax.tree.map(
            lambda a, b: assert_allclose(a, b, rtol=2e-5, atol=2e-5), getattr(grads, part), getattr(plain, part)
        )
    assert_allclose(jnp.where(allowed, grads.transition, 0), jnp.where(allowed, plain.transition, 0), rtol=2e-5)
    # At a structural zero the derivative is one-sided.
    nudged = run_derivatives(dataclasses.replace(p, transition=p.transition.at[0, -1].set(1e-3)), name)[0]
    slope = float(jnp.sum(jnp.linspace(1, 2, len(value)) * (nudged - value))) / 1e-3
    assert_allclose(grads.transition[0, -1], slope, rtol=0.1)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["scan", "logspace"])
def test_a_small_memory_budget_changes_nothing(name, monkeypatch):
    """Messages that exceed the budget are recomputed, chunk by chunk."""
    p = chain(2, 3, 300, 3, 2)
    best = run_viterbi(p, name)
    whole = run_derivatives(p, name) if name == "scan" else None
    monkeypatch.setattr(batching, "STORED_BYTES", 1)
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-6), jax.jit(lambda p: messages.viterbi(p, name))(p), best)
    if whole is not None:
        assert_same(jax.jit(lambda p: derivatives(p, name))(p), whole)


@partial(jax.jit, static_argnums=1)
def _answers(p, name):
    return derivatives(p, name), messages.filter(p, name), messages.viterbi(p, name)


def _kernel_answers(p):
    return derivatives(p, "gpu"), messages.filter(p, "gpu"), messages.viterbi(p, "gpu")


@pytest.mark.thorough
@pytest.mark.parametrize(("stored", "group"), [(2_000, 2), (700, 0)])
def test_kernels_in_groups_and_chunks(monkeypatch, stored, group):
    """As many videos as fit the budget, down to less than one, and counts of at most two frames per program."""
    p = chain(3, 3, 6, 3, 2)
    (value, grads), *answers = jax.jit(_kernel_answers)(p)
    monkeypatch.setattr("hmmjax.messages.gpu.pairs.FRAMES", 2)
    monkeypatch.setattr("hmmjax.messages.gpu.STORED_BYTES", stored)
    assert messages.gpu._group_size(p) == group
    grouped, *found = jax.jit(lambda p: _kernel_answers(p))(p)
    assert_same(grouped, (value, grads))
    real = np.arange(6)[None] < np.asarray(p.lengths)[:, None]
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(answers), strict=True):
        assert_allclose(*(z[real] if z.ndim > 1 else z for z in map(np.asarray, (x, y))), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name, b in BACKENDS.items() if b.packs])
def test_packed_videos_are_those_of_a_padded_batch(name):
    """With NaN after the last video, a video without frames, and log-likelihoods of tools by themselves."""
    p = chain(3, 4, 6, 3, 2)
    tools = jnp.log(jnp.asarray(np.random.default_rng(0).uniform(0.01, 1, (4, 6, 2, 2)), jnp.float32))
    p = dataclasses.replace(p, configs=None, tools=tools, lengths=jnp.asarray([6, 0, 1, 4], jnp.int32))
    packing = place(p.lengths, 6)
    inside = np.asarray(packing.inside(16))

    def pack(x):
        row = packing.gather(x, 16)
        return jnp.where(inside.reshape(-1, *[1] * (x.ndim - 2)), row, jnp.nan)

    packed = dataclasses.replace(p, phases=pack(p.phases), tools=pack(tools), packing=packing)
    (value, grads), filtered, path = _answers(packed, name)
    (expected, plain), *others = _answers(p, name)
    assert_allclose(value, expected, rtol=1e-6)
    for part in ("initial", "transition", "blocks"):
        a, b = getattr(grads, part), getattr(plain, part)
        jax.tree.map(lambda x, y: assert_allclose(x, y, rtol=1e-5, atol=1e-6), a, b)
    real = np.arange(6) < np.asarray(p.lengths)[:, None]
    of_filter, of_path = others
    for x, y in (
        *((getattr(grads, part), getattr(plain, part)) for part in ("phases", "tools")),
        *((getattr(filtered, part), getattr(of_filter, part)) for part in ("phases", "tools")),
        *((getattr(path, part), getattr(of_path, part)) for part in ("phases", "configs")),
    ):
        assert_allclose(np.asarray(packing.spread(x))[real], np.asarray(y)[real], rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name, b in BACKENDS.items() if b.derivatives_from])
def test_answers_have_the_derivatives_of_the_recursion_in_logarithms(name):
    """Posteriors, filters, paths' log-probabilities and gradients, over more frames than a chunk has."""
    p = chain(5, 2, 150, 3, 2)
    got, expected = slopes(p, name), slopes(p, "logspace")
    for part in ("initial", "transition", "blocks", "phases", "configs"):
        # One-sided derivatives at structural zeros differ between recursions.
        a, b = (jnp.where(p.transition > 0, x.transition, 0) if part == "transition" else getattr(x, part)
                for x in (got, expected))  # fmt: skip
        jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-4, atol=1e-4 * float(jnp.abs(b).max())), a, b)


def _objective(p, name):
    rng = np.random.default_rng(0)
    real = jnp.arange(p.phases.shape[1])[None, :] < p.lengths[:, None]

    def value(phases, configs):
        return messages.log_normalizer(dataclasses.replace(p, phases=phases, configs=configs), name)

    value, vjp = jax.vjp(value, p.phases, p.configs)
    filtered = messages.filter(p, name)
    answers = (*vjp(jnp.ones_like(value)), filtered.phases, filtered.tools)
    valid = [jnp.where(real.reshape(*real.shape, *[1] * (x.ndim - 2)), x, 0) for x in answers]
    sums = (jnp.sum(jnp.asarray(rng.normal(size=x.shape), jnp.float32) * x) for x in valid)
    return value.sum() + messages.viterbi(p, name).log_prob.sum() + sum(sums)


slopes = jax.jit(jax.grad(_objective, allow_int=True), static_argnums=1)


@cache
def best_log_prob(frames):
    p = chain(5, 3, frames, 3, 2)
    return p, run_viterbi(p, "logspace").log_prob


@pytest.mark.parametrize(
    ("name", "frames"),
    [("gpu", 1), ("gpu", 5), *((name, frames) for name in ("native", "scan") for frames in (1, 5, 129, 300))],
)
def test_the_path_has_the_log_probability_that_comes_with_it(name, frames):
    """Also when frames do not fill their chunks, and inside a caller's own jit, where nothing is padded."""
    p, expected = best_log_prob(frames)
    best = run_viterbi(p, name)
    assert_allclose(best.log_prob, expected, rtol=1e-6)
    p = jax.tree.map(np.asarray, p)
    for v, length in enumerate(p.lengths):
        q, c = (np.asarray(x)[v, :length] for x in (best.phases, best.configs))
        bits = c[:, None] >> np.arange(1, -1, -1) & 1
        value = 0.0
        for t in range(length):
            value += p.phases[v, t, q[t]] + p.configs[v, t, c[t]]
            value += np.log(p.initial[q[0], c[0]] if t == 0 else p.transition[q[t - 1], q[t]])
            if t:
                value += sum(np.log(b[q[t], bits[t - 1, k], bits[t, k]]) for k, b in enumerate(p.blocks))
        assert_allclose(best.log_prob[v], value, rtol=1e-5)


def _initial_slope(initial, p, name):
    return jax.grad(lambda x: messages.log_normalizer(dataclasses.replace(p, initial=x), name).sum())(initial)


@pytest.mark.parametrize(("name", "nats"), [("scan", 70.0), ("scan", 110.0), ("gpu", 70.0)])
def test_a_beginning_that_observations_contradict(name, nats):
    """The derivative is exact for possible starts; for others it may overflow float32, and is never NaN."""
    p = chain(6, 1, 4, 2, 1)
    initial = jnp.float32([[0.5, 0], [0.5, 0]])
    p = dataclasses.replace(p, initial=initial, configs=p.configs.at[0, 0].set(jnp.array([-nats, 0.0])))
    slope = jax.jit(_initial_slope, static_argnums=2)
    got, expected = slope(initial, p, name), slope(initial, p, "logspace")
    assert_allclose(got[:, 0], expected[:, 0], rtol=1e-5)
    assert_allclose(got[:, 0].sum(), 2, rtol=1e-5)
    assert (got[:, 1] > 1e28).all()


def _without_gpu():
    """Describe a GPU to versions of JAX that ask for one when they lower."""
    if jax.__version_info__ < (0, 11):
        return nullcontext()
    device = jax.sharding.AbstractDevice("NVIDIA H200", 132, "cuda")
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device))


def test_kernels_lower_for_a_gpu(monkeypatch):
    """To Triton, for which no GPU is needed: the kernels use only what it supports."""
    p = chain(4, 2, 5, 3, 3)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for run in (lambda p: derivatives(p, "gpu"), messages.gpu.filter, messages.gpu.viterbi):
        with _without_gpu():
            lowered = jax.jit(run).trace(p).lower(lowering_platforms=("cuda",))
        assert "triton" in lowered.as_text()


@pytest.mark.gpu
def test_kernels_at_real_size():
    """7 phases and 7 tools over more frames than a chunk has: the kernels against the scans."""
    if jax.default_backend() != "gpu":
        pytest.skip("needs a GPU")
    p = chain(7, 3, 2500, 7, 7)
    (value, grads), (expected, plain) = run_derivatives(p, "gpu"), run_derivatives(p, "scan")
    assert_allclose(value, expected, rtol=1e-6)
    real = jnp.arange(2500)[None, :, None] < p.lengths[:, None, None]
    for part in ("initial", "transition", "blocks", "phases", "configs"):
        a, b = getattr(grads, part), getattr(plain, part)
        jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=2e-3, atol=2e-4 * float(jnp.abs(b).max())), a, b)
    filtered, plain = run_filter(p, "gpu"), run_filter(p, "scan")
    assert_allclose(jnp.where(real, filtered.phases, 0), jnp.where(real, plain.phases, 0), atol=1e-4)
    real = real[..., None]
    assert_allclose(jnp.where(real, filtered.tools, 0), jnp.where(real, plain.tools, 0), atol=1e-4)
    assert_allclose(run_viterbi(p, "gpu").log_prob, run_viterbi(p, "scan").log_prob, rtol=1e-6)


# The registry. ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hardware", "phases", "tools", "auto", "named"),
    [
        ("compiled cpu", 3, 2, "native", {"native": "native", "parallel": "scan"}),
        ("compiled cpu", 3, 0, "native", {"scan": "scan"}),
        ("cpu", 3, 2, "scan", {"native": "scan", "parallel": "scan", "gpu": "gpu"}),
        ("cpu", 3, 0, "scan", {"parallel": "parallel", "gpu": "scan"}),
        ("cpu", 4, 0, "scan", {"parallel": "parallel", "scan": "scan"}),
        ("gpu", 7, 7, "gpu", {"scan": "scan", "logspace": "logspace"}),
        ("gpu", 9, 7, "scan", {"gpu": "scan"}),
        ("gpu", 16, 0, "parallel", {"gpu": "scan"}),
        ("gpu", 17, 0, "scan", {"parallel": "parallel"}),
    ],
)
def test_selection(hardware, phases, tools, auto, named, monkeypatch):
    """ "auto" picks by shape and hardware; a backend that cannot run the shape gives way to scan."""
    monkeypatch.setattr(jax, "default_backend", lambda: hardware.split()[-1])
    monkeypatch.setattr(native, "is_loaded", lambda: hardware.startswith("compiled"))
    p = empty(phases, tools)
    found = {name: messages.select(name, p).name for name in ("auto", *named)}
    assert found == {"auto": auto, **named}


def test_unknown_backends_are_refused():
    with pytest.raises(ValueError, match="'fast' is unknown; choose from auto, native, parallel, gpu, scan, logspace"):
        messages.choose("fast")


def test_a_backend_is_one_entry_of_the_registry(monkeypatch):
    called = []

    def log_normalizer(potentials, save):
        called.append(save)
        return logspace.log_normalizer(potentials, save)

    mine = dataclasses.replace(logspace.BACKEND, name="mine", log_normalizer=log_normalizer)
    assert isinstance(mine, Backend)
    monkeypatch.setitem(BACKENDS, "mine", mine)
    case = cases.make(6, 3, 2, holes=0.3, lengths=(5, 3))
    found, expected = (hmmjax.posterior(*case.args, backend=name) for name in ("mine", "logspace"))
    assert called == [True]
    assert_allclose(found.phases, expected.phases)

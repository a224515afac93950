"""Programs that NumPy runs agree with the compiled ones, and small work compiles next to nothing."""

import re
from functools import partial
from pathlib import Path

import cases
import commands
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jax import lax
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax
from hmmjax._core import interpreter
from hmmjax._core.interpreter import special
from hmmjax._core.interpreter.program import Program
from hmmjax._core.interpreter.rules import RULES
from hmmjax.messages import native

ROOT = Path(__file__).parents[1]


@pytest.fixture
def interpreted():
    interpreter.choose(True)
    yield
    interpreter.choose(None)


@pytest.fixture
def compiled():
    """The names of compiled programs, in a list that grows; inputs decide whether programs are interpreted."""
    names = []

    def listen(event, duration, fun_name="", **_):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(fun_name)

    folder = jax.config.jax_compilation_cache_dir
    jax.clear_caches()
    jax.config.update("jax_compilation_cache_dir", None)
    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)
    jax.config.update("jax_compilation_cache_dir", folder)


X = np.array([[-2.5, -1.0, -0.0, 0.5], [1.0, 3.25, np.inf, 1e-3], [7.0, 0.25, np.nan, -3.0]], np.float32)
P = np.array([[0.1, 0.9, 3.0, 40.0]], np.float32)
N = np.array([[3, -7, 0], [2**31 - 1, 5, -1]], np.int32)
U = np.array([1, 2**31, 77], np.uint32)
B = np.array([True, False, True, False])


def elementwise(x, p, n, u, b):
    near = jnp.clip(x, -0.9, 0.9)
    return (
        [abs(x), x + 1, lax.exp(x), jnp.expm1(x), jnp.isfinite(x), lax.log(x), lax.log1p(x), lax.logistic(x)],
        [lax.sign(x), lax.sqrt(x), lax.square(x), x**3, x**-2, lax.integer_pow(x, 2), -x, x * p, x / p, p - x],
        [lax.max(x, x[::-1]), lax.min(x, x[::-1]), lax.clamp(-1.0, x, 2.0), lax.pow(p, p[:, ::-1])],
        [x == x.T[:1].T, x != 0, x < 1, x <= 1, x > 1, x >= 1, lax.copy_p.bind(x), lax.stop_gradient(x)],
        [n & 5, n | 5, ~n, ~b, b & b[::-1], n >> 1, u >> 3, lax.shift_right_logical(u, jnp.uint32(31)), n + n, n * n],
        [lax.lgamma(p), lax.digamma(p), lax.polygamma(jnp.ones_like(p), p), lax.erf_inv(near), lax.erf(near)],
        [lax.convert_element_type(x, jnp.int32), lax.convert_element_type(n, jnp.float32), b.astype(jnp.float32)],
        [lax.bitcast_convert_type(x, jnp.int32), jnp.where(b, x, 2), lax.select_n(n % 2 + n * 0, n, 2 * n)],
    )


def arrays(x, p, n, u, b):
    grid = jnp.where(jnp.isfinite(x), x, 0)
    batched = jnp.stack([grid, 2 * grid])
    return (
        [grid.sum(0), grid.max(1), grid.min((0, 1)), b.any(), b.all(), jnp.argmax(grid, 1), n.max(1), jnp.sum(grid)],
        [jnp.cumsum(grid, 1), lax.cumsum(grid, 0, reverse=True), lax.cummax(grid, 1), lax.rev(grid, (0, 1))],
        [jnp.concatenate([grid, x], 1), grid.T, grid.reshape(2, 6), grid[1:, ::2], x[:, None], jnp.squeeze(p, 0)],
        [lax.dynamic_slice(grid, (n[1, 0], n[0, 1]), (2, 2)), lax.pad(grid, 1.5, ((-1, 2, 0), (1, -1, 2)))],
        [
            lax.pad(grid, 0.5, ((0, -2, 0), (-2, 1, 1))),
            lax.iota(jnp.int32, 5),
            lax.broadcasted_iota(jnp.int32, (2, 3), 1),
        ],
        [grid @ grid.T, jnp.einsum("bij,bik->bjk", batched, batched), jnp.einsum("ij,j->i", grid, p[0])],
        [grid[n % 3, 1], grid.at[n, :2].get(mode="fill"), grid.at[:, n].get(mode="clip"), n.at[u % 5].get(mode="fill")],
        [b.at[n].get(mode="fill"), u.at[n].get(mode="fill"), jax.vmap(lambda row, i: row[i])(grid, n.T % 4)],
        [grid.at[jnp.array([2, 0])].set(p), grid.at[jnp.array([1, 7]), 2].set(5.0, mode="drop")],
        [grid.at[n % 3, 1].add(p[0, :3]), grid.at[n].add(1.0, mode="drop"), jnp.split(grid, [1, 3], 1), list(grid)],
        [lax.unstack_p.bind(grid, axis=1)] if hasattr(lax, "unstack_p") else [],
        [jax.grad(lambda table: jnp.sum(jax.vmap(lambda row, i: row[i])(table, n.T % 4) ** 2))(grid)],
    )


def control(x, p, n, u, b):
    def halve(value):
        return lax.while_loop(lambda v: v > 1, lambda v: v / 2, value)

    carried = lax.scan(lambda total, row: (total + row, (total, row[0])), jnp.zeros(4), p.repeat(3, 0))
    backwards = lax.scan(lambda total, row: (total * 0.5 + row, total), jnp.zeros(4), x[:2], reverse=True)
    branch = lax.cond(p[0, 2] > 1, lambda v: v + 1, lambda v: v - 1, p)
    switched = lax.switch(n[0, 0], [lambda v: v, lambda v: 2 * v], p)
    return halve(p[0, 3]), jax.vmap(halve)(p[0]), carried, backwards, branch, switched


def draws(x, p, n, u, b):
    keys = jax.random.split(jax.random.wrap_key_data(jnp.stack([u[0], u[2]])), (2, 3))
    small = jnp.array([[0.01, 0.3, 5.0]], jnp.float32)
    seeds = [jax.random.key_data(jax.random.key(n[0, 0])), jax.random.key_data(jax.random.fold_in(keys[0, 2], u[1]))]
    return (
        seeds,
        [jax.random.key_data(keys), jax.random.bits(keys[0, 1], (3, 5)), jax.random.bits(keys[0, 1], (4,), np.uint8)],
        [jax.random.gamma(keys[1, 0], small, (400, 3)), jax.random.loggamma(keys[1, 0], small, (400, 3))],
        [jax.random.normal(keys[1, 1], (300,)), jax.vmap(lambda k: jax.random.gamma(k, 0.2, (50,)))(keys[0])],
        [jax.random.categorical(keys[0, 0], jnp.log(p), shape=(50,)), jax.random.dirichlet(keys[1, 2], p[0], (40,))],
    )


SETS = (elementwise, arrays, control, draws)


@pytest.mark.parametrize("function", SETS, ids=lambda f: f.__name__)
def test_every_primitive_agrees_with_xla(function):
    inputs = X, P, N, U, B
    jitted = jax.jit(function)
    expected = jax.tree.leaves(jitted(*inputs))
    with np.errstate(all="ignore"):
        found = Program(jitted.trace(*inputs).jaxpr)(inputs)
    for a, b in zip(found, expected, strict=True):
        assert np.shape(a) == b.shape and np.asarray(a).dtype == b.dtype
        assert_allclose(a, b, rtol=3e-6, atol=1e-6) if b.dtype.kind == "f" else assert_array_equal(a, b)


def test_gamma_functions_at_all_sizes():
    """Against SciPy, which also computes them at 0, at negative numbers and at infinity."""
    x = np.concatenate([10 ** np.linspace(-30, 30, 601), np.linspace(0.01, 30, 300)])
    for ours, theirs in ((special.lgamma, scipy.special.gammaln), (special.digamma, scipy.special.psi)):
        assert_allclose(ours(x), theirs(x), rtol=1e-13, atol=1e-14)
        assert ours(x.astype(np.float32)).dtype == np.float32
        for edge in ([0.0, 2.0], [-1.5, 2.0], [np.inf, 2.0]):
            assert_array_equal(ours(np.array(edge)), theirs(np.array(edge)))
    near = x[(x > 1e-15) & (x < 1e15)]
    for order in (1, 2, 3):
        ours, theirs = special.polygamma(np.float64(order), near), scipy.special.polygamma(order, near)
        assert_allclose(ours, theirs, rtol=1e-13)


def test_every_rule_is_tested():
    used = set()

    def visit(x):
        if isinstance(x, (tuple, list)):
            for y in x:
                visit(y)
        for eqn in getattr(getattr(x, "jaxpr", x), "eqns", ()):
            used.add(eqn.primitive.name)
            visit(list(eqn.params.values()))

    visit([jax.make_jaxpr(function)(X, P, N, U, B) for function in SETS])
    assert not set(RULES) - used - {"add_any", "copy_p"}


@pytest.mark.parametrize("families", cases.FAMILIES[::3], ids="-".join)
def test_enumeration(interpreted, families):
    cases.check(cases.make(1, 2, 2, families=families))
    cases.check(cases.make(1, 2, 2, families=families, holes=0.3, lengths=(4, 5)))
    cases.check(cases.make(2, 3, 2, families=families, holes=0.3, lengths=(5, 3), known=0.4))


@pytest.mark.parametrize(("num_phases", "num_tools"), [(3, 1), (0, 3), (0, 1), (4, 0), (1, 2)])
def test_enumeration_of_every_shape(interpreted, num_phases, num_tools):
    cases.check(cases.make(2, num_phases, num_tools, lengths=(4, 5), known=0.3))


def test_double_precision(interpreted):
    exact = {"rtol": 1e-10, "atol": 1e-10}
    with jax.enable_x64(True):
        cases.check(cases.make(5, 2, 2, families=cases.FAMILIES[0], dtype=np.float64), tolerance=exact)


@pytest.mark.parametrize("name", ["probability", pytest.param("confusion", marks=pytest.mark.thorough)])
def test_learning_and_derivatives_agree_with_compiled_programs(name):
    start = hmmjax.init_params(3, 2, emissions=name)
    interpreter.choose(True)
    labels, obs, mask = hmmjax.sample(start, jax.random.key(1), [16, 11])
    known = hmmjax.Labels(phases=labels.phases)
    found = []
    for on in (True, False):
        interpreter.choose(on)
        try:
            fitted = hmmjax.fit(start, obs, mask, known, max_iterations=1)
            slopes = jax.grad(lambda p: hmmjax.conditional_log_likelihood(p, obs, mask, known).sum())(start)
            found.append((fitted, slopes))
        finally:
            interpreter.choose(None)
    jax.tree.map(partial(assert_allclose, rtol=5e-4, atol=2e-4), *found)


def test_results_do_not_share_memory_with_inputs(interpreted):
    case = cases.make(3, 2, 2)
    params = jax.tree.map(np.array, case.params)
    result = hmmjax.fit(params, case.obs, case.mask, freeze=("phases", "tools"), max_iterations=1).params
    before = jax.tree.map(np.array, result)
    for leaf in jax.tree.leaves(params):
        leaf[...] = 0.5
    jax.tree.map(assert_array_equal, result, before)


def test_large_or_repeated_work_is_compiled(compiled):
    run = interpreter.interpretable(lambda x: jnp.cumsum(jnp.exp(-x)))
    run(np.ones(100, np.float32))
    assert compiled == []
    for _ in range(3000):
        run(np.ones(100, np.float32))
    assert len(compiled) == 1
    run(np.ones(2**21, np.float32))
    assert len(compiled) == 2


def test_what_has_no_rule_is_compiled(compiled):
    run = interpreter.interpretable(jnp.sin)
    assert_allclose(run(np.ones(3, np.float32)), np.sin(1), rtol=1e-6)
    assert compiled == ["jit(sin)"]


def test_what_has_other_parameters_in_this_version_of_jax_is_compiled(compiled, monkeypatch):
    monkeypatch.setitem(RULES, "exp", lambda eqn: eqn.params["renamed"])
    run = interpreter.interpretable(jnp.exp)
    assert_allclose(run(np.ones(3, np.float32)), np.e, rtol=1e-6)
    assert compiled == ["jit(exp)"]


def test_arguments_that_never_change_are_used_once():
    """What remains agrees with the whole, also if it has to be compiled."""

    def function(x, a):
        return {"y": jnp.log(a["b"]) * x + lax.lgamma(a["c"]), "x": x}

    a = {"b": jnp.arange(1.0, 4.0), "c": jnp.float32(2.5)}
    run = interpreter.without_jax(function, (X[:, :3],), (a,))
    whole = function(X[:, :3], a)
    for x in (X[:, :3], X[::-1, :3]):
        assert_allclose(run(x)["y"], function(x, a)["y"], rtol=1e-6)
    assert len(Program(jax.jit(function).trace(X[:, :3], a).jaxpr).folded([a["b"], a["c"]])._calls) <= 4
    interpreter.choose(False)
    again = interpreter.without_jax(function, (X[:, :3],), (a,))
    interpreter.choose(None)
    assert_allclose(again(X[:, :3])["y"], whole["y"], rtol=1e-6)
    has_no_rule = interpreter.without_jax(
        lambda x, a: jnp.linalg.cholesky(x) + a, (np.eye(2, dtype=np.float32),), (1.0,)
    )
    assert_allclose(has_no_rule(np.eye(2, dtype=np.float32)), np.eye(2) + 1)


@pytest.mark.skipif(not native.available(), reason="the recursions are not compiled")
def test_a_stream_compiles_nothing(compiled):
    params = hmmjax.init_params(3, 2)
    frame = hmmjax.Observations(np.array([0.2, 0.3, 0.5], np.float32), np.array([0.1, 0.8], np.float32))
    compiled.clear()
    stream = hmmjax.Stream(params, lag=2)
    for obs in (frame, None, frame):
        stream.step(obs)
    stream.finish()
    assert not compiled


def test_the_readme_compiles_next_to_nothing(compiled):
    """Only random keys, the compiled recursions' calls, and single operations of the snippet's own."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], {})
    assert len(compiled) <= 16, compiled
    ours = ("_em_step", "_sample", "_posterior", "_filter", "_decode", "_log_likelihood", "pull_back", "_default")
    assert not [name for name in compiled if any(part in name for part in ours)]


def test_stabilize_compiles_few_programs(compiled, world, tmp_path):
    """With a folder of programs, as the command line keeps one, every program is compiled once. A named family."""
    interpreter.choose(False)
    try:
        commands.run(
            *("stabilize", world / "said", "--annotations", world / "truth", *commands.NAMES),
            *("--emissions", "confusion", "--out", tmp_path / "out"),
        )
    finally:
        interpreter.choose(None)
    assert 0 < len(compiled) <= 24, compiled

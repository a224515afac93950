"""Arrays of any library, byte order and memory layout, and outputs that are missing: the same answer, or a refusal."""

import dataclasses
import warnings

import emission_oracles
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import to_params

import hmmjax
from hmmjax import Labels, Observations, metrics
from hmmjax._core.arrays import as_floats, native

RNG = np.random.default_rng(400)
T, L, K = 16, 3, 2
MODEL = oracles.random_model(RNG, L, K)
EMISSIONS = emission_oracles.random_emissions(RNG, L, K)
SOFTMAX = RNG.dirichlet(np.ones(L), T).astype(np.float32)
SCORES = RNG.uniform(0.02, 0.98, (T, K)).astype(np.float32)
KNOWN = np.where(RNG.uniform(size=T) < 0.3, RNG.integers(0, L, T), -1).astype(np.int32)
MASK = np.append(RNG.uniform(size=T - 1) < 0.8, True)
PARAMS = to_params(MODEL, EMISSIONS, "PhaseDirichlet", "ToolBeta")


class Foreign:
    """An array of another library, of which NumPy learns only by the protocol."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


class Exchanged:
    """An array that only the DLPack protocol gives."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class Tensor(Foreign):
    """A tensor of PyTorch that requires a gradient: it converts only after it was detached."""

    dtype = "torch.float32"

    def detach(self):
        return Foreign(self.values)

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


Foreign.cpu = lambda self: self
Foreign.dtype = "float32"
Tensor.__module__ = "torch"


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def strided(x):
    wide = np.zeros((2 * len(x), *(3 * n for n in x.shape[1:])), x.dtype)
    view = wide[(slice(None, None, 2), *[slice(None, None, 3)] * (x.ndim - 1))]
    view[...] = x
    return view


WAYS = {
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "Fortran order": np.asfortranarray,
    "strided": strided,
    "reversed": lambda x: x[::-1].copy()[::-1],
    "read-only": read_only,
    "masked array": np.ma.asarray,
    "objects": lambda x: x.astype(object) if x.dtype.kind != "f" else np.asarray(x, np.float64).astype(object),
    "__array__": Foreign,
    "__dlpack__": Exchanged,
    "torch": Tensor,
    "jax": jnp.asarray,
}


def answers(obs, labels, mask, params=PARAMS):
    post, past = hmmjax.posterior(params, obs, mask, labels), hmmjax.filter(params, obs, mask)
    path = hmmjax.decode(params, obs, mask, labels)
    value = hmmjax.log_likelihood(params, obs, mask)
    return jax.tree.leaves((post, past, path, value))


@pytest.fixture(scope="module")
def right():
    # The first call compiles; a second one, of arrays that were not normalized, would be read as it is.
    return answers(Observations(SOFTMAX, SCORES), Labels(KNOWN), MASK)


@pytest.mark.parametrize("way", WAYS)
def test_same_numbers_for_every_kind_of_array(way, right):
    change = WAYS[way]
    given = answers(Observations(change(SOFTMAX), change(SCORES)), Labels(change(KNOWN)), change(MASK))
    for x, want in zip(given, right, strict=True):
        np.testing.assert_array_equal(x, want)


def test_trees_that_were_rebuilt_are_normalized_too(right):
    """`jax.tree.map` does not call constructors."""

    def turned(tree):
        return jax.tree.map(lambda x: np.asarray(x).astype(np.asarray(x).dtype.newbyteorder(">")), tree)

    obs, labels, params = turned(Observations(SOFTMAX, SCORES)), turned(Labels(KNOWN)), turned(PARAMS)
    assert not obs.phases.dtype.isnative
    for x, want in zip(answers(obs, labels, MASK, params), right, strict=True):
        np.testing.assert_array_equal(x, want)
    draws = [hmmjax.sample(p, jax.random.key(0), [5]) for p in (PARAMS, params)]
    jax.tree.map(np.testing.assert_array_equal, *draws)
    now = [hmmjax.Stream(p).step(jax.tree.map(lambda x: x[0], o)) for p, o in ((PARAMS, obs), (params, obs))]
    want = hmmjax.Stream(PARAMS).step(Observations(SOFTMAX[0], SCORES[0]))
    for moment in now:
        np.testing.assert_array_equal(moment.phases, want.phases)


def test_pandas():
    pd = pytest.importorskip("pandas")
    np.testing.assert_array_equal(Observations(pd.DataFrame(SOFTMAX)).phases, SOFTMAX)
    series = pd.Series(KNOWN)
    for labels in (series, series.astype("Int64"), series.astype("category")):
        np.testing.assert_array_equal(Labels(labels).phases, KNOWN)
    np.testing.assert_array_equal(Labels(pd.Series([1, None, 2], dtype="Int64")).phases, [1, -1, 2])
    with pytest.raises(TypeError, match=r"^labels\.phases holds Python objects \(str\)"):
        Labels(pd.Series(["Preparation"], dtype=object))


def test_masked_and_absent_entries():
    hole = np.array([False, True, False])
    np.testing.assert_array_equal(native("x", np.ma.array([1, 2, 3], mask=hole)), [1, -1, 3])
    np.testing.assert_array_equal(native("x", np.ma.array(np.uint8([1, 2, 3]), mask=hole)), [1, -1, 3])
    np.testing.assert_array_equal(native("x", np.ma.array([0.1, 0.2, 0.3], mask=hole)), [0.1, np.nan, 0.3])
    np.testing.assert_array_equal(native("x", np.ma.array([True, True, True], mask=hole)), ~hole)
    np.testing.assert_array_equal(native("x", np.array([0.5, None], object)), [0.5, np.nan])
    np.testing.assert_array_equal(native("x", np.array([3, None], object)), [3, -1])
    np.testing.assert_array_equal(as_floats("x", np.ma.array([1, 2, 3], mask=hole)), [1, -1, 3])
    # An unknown truth is left out of a metric rather than counted under the mask.
    truth = np.ma.array([0, 1, 1], mask=hole)
    assert metrics.accuracy(truth, np.array([0, 0, 1])).value == 1
    assert metrics.accuracy(truth.astype(">i4"), np.array([0, 0, 1], ">i2")).value == 1


@pytest.mark.parametrize(
    "odd", [np.array(["a"]), np.array([1j]), np.array(["2020-01-01"], "M8[D]"), np.array([2**70], object)]
)
def test_arrays_without_numbers_are_refused(odd):
    with pytest.raises(TypeError, match=r"^obs\.tools .*Pass "):
        Observations(tools=odd)


def test_an_array_of_another_device_is_refused():
    class Far:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("on device 3")

    with pytest.raises(TypeError, match=r"^obs\.phases is a .*Far that does not convert .*on device 3.*Copy it to the"):
        Observations(Far())


def test_numbers_that_are_no_arrays_pass_through():
    start = hmmjax.init_params(2)
    for x in (None, 0.5, 3, "text", jnp.ones(2), (1.0, 2.0), start, np.float32(1), np.zeros(1, jnp.bfloat16)):
        assert native("x", x) is x
    assert native("x", [1.0, 2.0]) == [1.0, 2.0]
    assert native("x", np.ones(2, np.longdouble)).dtype == np.float64


# Outputs that are missing.


def _missing(kind):
    """Observations with missing entries, and the oracle's tables in which they count for nothing."""
    names = ("PhaseConfusion", "ToolConfusion") if kind == "labels" else ("PhaseDirichlet", "ToolBeta")
    given = [SOFTMAX.astype(np.float64), SCORES.astype(np.float64)]
    given = [SOFTMAX.argmax(-1), (SCORES > 0.5).astype(int)] if kind == "labels" else given
    tables = [emission_oracles.log_densities(n, EMISSIONS[n], x) for n, x in zip(names, given, strict=True)]
    gaps = (np.arange(T) % 5 == 2, np.stack([np.arange(T) % 4 == 1, np.arange(T) % 6 == 0], 1))
    for x, table, gap in zip(given, tables, gaps, strict=True):
        x[gap], table[gap] = -1 if kind == "labels" else np.nan, 0
    dtype = np.int32 if kind == "labels" else np.float32
    return to_params(MODEL, EMISSIONS, *names), Observations(*(x.astype(dtype) for x in given)), tables


@pytest.mark.parametrize("kind", ["labels", "probabilities"])
def test_one_output_is_missing_and_the_rest_of_the_frame_counts(kind):
    params, obs, tables = _missing(kind)
    answer = oracles.dense(MODEL, oracles.emission_table(T, L, K, *tables))
    found, past = hmmjax.posterior(params, obs), hmmjax.filter(params, obs)
    assert float(found.log_likelihood) == pytest.approx(answer.log_likelihood, abs=2e-4)
    np.testing.assert_allclose(found.phases, answer.phases, atol=2e-5)
    np.testing.assert_allclose(found.tools, answer.tools, atol=2e-5)
    traced = jax.jit(hmmjax.posterior)(params, obs)
    np.testing.assert_allclose(traced.tools, found.tools, atol=2e-6)
    stream = hmmjax.Stream(params)
    for t in range(T):
        now = stream.step(jax.tree.map(lambda x, t=t: x[t], obs))
        np.testing.assert_allclose(now.tools, past.tools[t], atol=2e-6)


def test_missing_outputs_do_not_count_in_learning():
    """Counting equals counting by hand; EM equals that of one fused source, and never falls."""
    params, obs, _ = _missing("labels")
    states = Labels(RNG.integers(0, L, T).astype(np.int32), RNG.integers(0, 2, (T, K)).astype(np.int32))
    found = hmmjax.estimate(states, obs, num_phases=L).tools.emission.matrix
    for k in range(K):
        seen = obs.tools[:, k] >= 0
        counts = np.zeros((2, 2))
        np.add.at(counts, (states.tools[seen, k], obs.tools[seen, k]), 1)
        np.testing.assert_allclose(found[k], counts / counts.sum(1, keepdims=True), atol=1e-6)
    single = hmmjax.fit(params, obs, max_iterations=2, tolerance=0)
    assert (np.diff(single.history) > -1e-3).all()
    fused = dataclasses.replace(
        params,
        phases=dataclasses.replace(params.phases, emission=(params.phases.emission,)),
        tools=dataclasses.replace(params.tools, emission=(params.tools.emission,)),
    )
    both = hmmjax.fit(fused, Observations((obs.phases,), (obs.tools,)), max_iterations=2, tolerance=0)
    np.testing.assert_allclose(single.history, both.history, rtol=1e-5)


def test_discretized_outputs_stay_missing():
    _params, obs, _ = _missing("probabilities")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = obs.discretize()
    np.testing.assert_array_equal(labels.tools < 0, np.isnan(obs.tools))
    np.testing.assert_array_equal(labels.phases < 0, np.isnan(obs.phases).any(-1))

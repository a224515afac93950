"""What users of other HMM libraries ran into, tried here; numbers are those of the collected list of pain points.

Elsewhere: 3, 25, 27, 30 in test_invariance; 8, 9, 10, 24 in test_inference; 22 in test_programs; 5, 10, 14, 15, 20, 21,
38 in test_learning; 9 in test_sampling; 17, 19, 32 in test_emissions; 12, 28, 33 in test_validation. Not ours: 23
(transitions that vary with time) and 39 (flags that switch outputs), which the library does not have.
"""

import subprocess
import sys
from pathlib import Path

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax

pytestmark = pytest.mark.shipped
CONFUSION = ("PhaseConfusion", "ToolConfusion")


def total(params, obs, mask):
    return hmmjax.log_likelihood(params, obs, mask).sum()


def padded(case, value):
    """The case padded from 5 to 7 frames with `value` (in labels 99 where that is no integer)."""

    def pad(x):
        filler = value if x.dtype.kind == "f" else 99
        return np.pad(x, [(0, 0), (0, 2)] + [(0, 0)] * (x.ndim - 2), constant_values=filler)

    return cases.map_tracks(pad, case.obs), np.pad(case.mask, [(0, 0), (0, 2)])


@pytest.mark.parametrize(("phases", "num_tools"), [("PhaseConfusion", 0), ("PhaseDirichlet", 2)])
def test_rows_1_2_4_padding_of_any_kind_changes_nothing(phases, num_tools):
    case = cases.make(1, 2, num_tools, families=(phases, "ToolBeta"), lengths=(5, 3))
    lone = [hmmjax.posterior(*cases.video(case, 0)), None]
    params, obs, mask, _ = cases.video(case, 1)
    lone[1] = hmmjax.posterior(params, cases.map_tracks(lambda x: x[:3], obs), mask[:3])
    results = []
    for value in (0.0, np.nan, 1e30, 99.0):
        obs, mask = padded(case, value)
        posterior = hmmjax.posterior(case.params, obs, mask)
        for i, n in enumerate((5, 3)):
            assert_allclose(posterior.log_likelihood[i], lone[i].log_likelihood, rtol=1e-6)
            assert_allclose(posterior.phases[i, :n], lone[i].phases, rtol=1e-5, atol=1e-6)
            if num_tools:
                assert_allclose(posterior.tools[i, :n], lone[i].tools, rtol=1e-5, atol=1e-6)
        fitted = hmmjax.fit(case.params, obs, mask, max_iterations=2, tolerance=0.0)
        results.append((posterior, fitted, jax.grad(total)(case.params, obs, mask)))
    for other in results[1:]:
        jax.tree.map(assert_array_equal, other, results[0])


def test_row_8_a_frame_that_no_state_explains():
    """Every state gives the third symbol probability zero."""
    emission = hmmjax.emissions.PhaseConfusion(jnp.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.5, 0.5, 0.0]]))
    params = hmmjax.Params(hmmjax.PhaseChain(jnp.full(3, 1 / 3), jnp.full((3, 3), 1 / 3), emission))
    obs = hmmjax.Observations(np.array([[0, 2, 0], [0, 0, 0]]))
    posterior, good = hmmjax.posterior(params, obs), hmmjax.posterior(params, hmmjax.Observations(obs.phases[1]))
    assert posterior.log_likelihood[0] == -np.inf
    assert_array_equal(posterior.phases[0], 0)
    assert_allclose(posterior.phases[1], good.phases, rtol=1e-5)
    with pytest.raises(ValueError, match="video 0 is impossible"):
        hmmjax.fit(params, obs)


def test_row_9_one_frame_beside_fifty():
    case = cases.make(9, 2, 2, 50, families=CONFUSION, lengths=(50, 1))
    fitted = hmmjax.fit(case.params, case.obs, case.mask, max_iterations=3, tolerance=0.0)
    jax.tree.map(lambda x: assert_array_equal(np.isfinite(x), True), fitted.params)
    only = cases.map_tracks(lambda x: x[1:, :1], case.obs)
    lone = hmmjax.posterior(case.params, only)
    both = hmmjax.posterior(*case.args)
    assert_allclose(both.phases[1, 0], lone.phases[0, 0], rtol=1e-5)
    alone = hmmjax.fit(case.params, only, max_iterations=2, tolerance=0.0)
    jax.tree.map(lambda x: assert_array_equal(np.isfinite(x), True), alone.params)
    assert_allclose(np.sum(alone.params.phases.transition, -1), 1, rtol=1e-6)
    assert hmmjax.decode(case.params, only).phases.shape == (1, 1)


def test_row_11_default_start_on_lengths_2_5_9():
    case = cases.make(11, 3, 2, 9, batch=3, lengths=(2, 5, 9))
    priors = hmmjax.Priors(phase_emission=1.0, tool_emission=1.0)
    result = hmmjax.fit(hmmjax.init_params(3, 2), case.obs, case.mask, max_iterations=3, priors=priors)
    assert np.isfinite(result.history).all()


def test_row_12_symbols_at_test_time(unchecked):
    emission = hmmjax.emissions.PhaseConfusion(jnp.array([[0.9, 0.1], [0.1, 0.9]]))
    params = hmmjax.Params(hmmjax.PhaseChain(jnp.array([0.5, 0.5]), jnp.full((2, 2), 0.5), emission))
    for said in ([0, 2], [1, 2, 4], [0, -1]):
        with pytest.raises(ValueError, match=r"symbols are 0\.\.1"):
            hmmjax.log_likelihood(params, hmmjax.Observations(np.array([said])))
    for said in ([0.0, 1.7], [0.0, np.nan]):
        with pytest.raises((TypeError, ValueError), match=r"obs\.phases"):
            hmmjax.log_likelihood(params, hmmjax.Observations(np.array([said])))


MEMORY = """
import numpy as np
import hmmjax
params = hmmjax.init_params(7, 7)
rng = np.random.default_rng(0)
peaks = []
for frames in (1000, 2000):
    phases = rng.dirichlet(np.ones(7), (1, frames)).astype("f4")
    obs = hmmjax.Observations(phases, rng.uniform(0, 1, (1, frames, 7)).astype("f4"))
    hmmjax.fit(params, obs, max_iterations=1)
    peaks += [int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(*peaks)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc, which is Linux's")
def test_row_16_memory_of_an_em_step_with_896_states():
    """Under 1 GiB in all, and no S * S numbers per frame: 1000 more frames of pairs would be 3 GB."""
    run = subprocess.run(
        [sys.executable, "-c", MEMORY],
        capture_output=True,
        text=True,
        cwd=Path(hmmjax.__file__).parents[1],
        check=False,
    )
    assert run.returncode == 0, run.stderr
    first, second = map(float, run.stdout.split())
    assert first < 1024 and second - first < 200, run.stdout


def test_row_22_fits_of_one_shape_compile_once():
    compiled = []

    def listen(event, duration, **_):
        compiled.append(event == "/jax/core/compile/backend_compile_duration")

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for seed in (1, 2, 3):
            case = cases.make(seed, 2, 2, families=CONFUSION)
            hmmjax.fit(case.params, case.obs, case.mask, max_iterations=2, tolerance=0.0)
            if seed == 1:
                before = sum(compiled)
        assert sum(compiled) == before
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_row_27_permuted_start_gives_the_permuted_fit():
    case = cases.make(27, 3, 0, 40, families=CONFUSION)
    p = np.array([2, 0, 1])
    m, table = case.model, case.emissions["PhaseConfusion"]
    start = cases.to_params(
        oracles.Model(m.initial[p], m.transition[np.ix_(p, p)]), {"PhaseConfusion": table[p]}, "PhaseConfusion", ""
    )
    plain = hmmjax.fit(case.params, case.obs, max_iterations=10, tolerance=0.0)
    moved = hmmjax.fit(start, case.obs, max_iterations=10, tolerance=0.0)
    assert_allclose(moved.history, plain.history, rtol=1e-5)
    expected = np.asarray(plain.params.phases.transition)[np.ix_(p, p)]
    assert_allclose(moved.params.phases.transition, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("concentration", [0.5, 0.01])
def test_row_32_concentrations_below_one(concentration):
    table = jnp.full((2, 2), concentration) + jnp.eye(2)
    chain = hmmjax.PhaseChain(jnp.array([0.5, 0.5]), jnp.full((2, 2), 0.5), hmmjax.emissions.PhaseDirichlet(table))
    said = np.array([[[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]], np.float32)
    posterior = hmmjax.posterior(hmmjax.Params(chain), hmmjax.Observations(said))
    assert np.isfinite(posterior.log_likelihood).all() and np.isfinite(posterior.phases).all()


def test_row_34_density_underflow_is_not_ignored():
    """A spike at .02 in every state and an output of .98: some 4,500 nats below, far from what exp can hold."""
    table = np.array([[[20.0, 980.0], [30.0, 970.0]]])
    model = oracles.Model(tool_initial=np.array([0.5]), tool_transition=np.full((1, 2, 2), 0.5))
    params = cases.to_params(model, {"ToolBeta": table}, "", "ToolBeta")
    said = np.array([[[0.02], [0.98]]], np.float32)
    expected = oracles.dense(model, oracles.evidence(2, 0, 1, tools=oracles.tool_beta(table, said[0]))).log_likelihood
    assert expected < -3000
    assert_allclose(hmmjax.log_likelihood(params, hmmjax.Observations(tools=said)), [expected], rtol=1e-5)


def test_row_36_a_symbol_absent_from_the_data():
    start = cases.to_params(
        oracles.random_model(np.random.default_rng(36), 3, 0),
        {"PhaseConfusion": np.random.default_rng(36).dirichlet(np.ones(3), 3)},
        "PhaseConfusion",
        "",
    )
    said = np.random.default_rng(36).integers(0, 2, (2, 40))
    result = hmmjax.fit(start, hmmjax.Observations(said), max_iterations=20, tolerance=0.0)
    assert np.isfinite(result.history).all()
    assert (np.diff(result.history) >= -1e-4).all()
    assert_array_equal(np.asarray(result.params.phases.emission.matrix)[:, 2], 0)


def test_row_37_host_and_device_arrays_mix_and_fit_goes_on():
    case = cases.make(37, 2, 2, families=CONFUSION)
    on_device = cases.map_tracks(jnp.asarray, case.obs)
    once = hmmjax.fit(case.params, case.obs, max_iterations=2, tolerance=0.0)
    twice = hmmjax.fit(once.params, on_device, max_iterations=2, tolerance=0.0)
    straight = hmmjax.fit(jax.tree.map(np.asarray, case.params), on_device, max_iterations=4, tolerance=0.0)
    assert_allclose(np.r_[once.history, twice.history[1:]], straight.history, rtol=1e-6)


def test_row_38_label_only_the_phase():
    case = cases.make(38, 2, 2, 12, batch=1, families=CONFUSION)
    labels = hmmjax.Labels(phases=np.array([[0] * 6 + [1] * 6]))
    posterior = hmmjax.posterior(case.params, case.obs, labels=labels)
    assert_allclose(posterior.phases[0, np.arange(12), labels.phases[0]], 1, atol=1e-6)
    free = np.asarray(posterior.tools)
    assert ((free > 0) & (free < 1)).all()

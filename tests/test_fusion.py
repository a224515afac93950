"""Several recognizers on one track, against the oracle with the sum of their emission log-likelihoods."""

import dataclasses

import emission_oracles
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose

import hmmjax
import hmmjax.io
from hmmjax import Labels, Observations, Params, emissions

RNG = np.random.default_rng(0)
MODEL = oracles.random_model(RNG, 3, 1, sticky=0.5)
TABLES = [emission_oracles.random_emissions(RNG, 3, 1) for _ in range(2)]
FRAMES = 12
HIDDEN = oracles.simulate(RNG, MODEL, FRAMES)


def _cast(x):
    return jnp.asarray(np.asarray(x, np.float32))


def _problem():
    """Two recognizers for the phases and two for the tool, each with missing frames; in one frame all are missing."""
    outputs = (
        emission_oracles.observe(RNG, "PhaseConfusion", TABLES[0]["PhaseConfusion"], HIDDEN[0]),
        emission_oracles.observe(RNG, "PhaseDirichlet", TABLES[1]["PhaseDirichlet"], HIDDEN[0]),
        emission_oracles.observe(RNG, "ToolConfusion", TABLES[0]["ToolConfusion"], HIDDEN[1]),
        emission_oracles.observe(RNG, "ToolBeta", TABLES[1]["ToolBeta"], HIDDEN[1]),
    )
    names = ("PhaseConfusion", "PhaseDirichlet", "ToolConfusion", "ToolBeta")
    tables = [
        emission_oracles.log_densities(n, TABLES[i % 2][n], x)
        for i, (n, x) in enumerate(zip(names, outputs, strict=True))
    ]
    outputs = [x.copy() for x in outputs]
    for i, (x, table) in enumerate(zip(outputs, tables, strict=True)):
        missing = np.arange(FRAMES) % 4 == i
        missing[3] = True  # all outputs are missing
        x[missing] = -1 if x.dtype.kind == "i" else np.nan
        table[missing] = 0
    families = [getattr(emissions, n)(_cast(TABLES[i % 2][n])) for i, n in enumerate(names)]
    params = Params(
        hmmjax.PhaseChain(_cast(MODEL.initial), _cast(MODEL.transition), tuple(families[:2])),
        hmmjax.ToolChains(
            _cast(MODEL.tool_initial),
            hmmjax.transitions.PhaseConditioned(_cast(MODEL.tool_transition)),
            tuple(families[2:]),
        ),
    )
    return params, Observations(tuple(outputs[:2]), tuple(outputs[2:])), tables


@pytest.mark.thorough
def test_results_are_those_of_summed_log_likelihoods():
    params, obs, tables = _problem()
    table = oracles.emission_table(FRAMES, 3, 1, tables[0] + tables[1], tables[2] + tables[3])
    answer = oracles.dense(MODEL, table)
    found, past, path = (f(params, obs) for f in (hmmjax.posterior, hmmjax.filter, hmmjax.decode))
    assert float(found.log_likelihood) == pytest.approx(answer.log_likelihood, abs=2e-4)
    assert_allclose(found.phases, answer.phases, atol=2e-5)
    assert_allclose(found.tools, answer.tools, atol=2e-5)
    assert_allclose(past.phases, answer.filter_phases, atol=2e-5)
    assert float(path.log_prob) == pytest.approx(answer.path_log_prob, abs=2e-4)
    # A source may be None for all videos.
    one = Observations((obs.phases[0], None), (None, obs.tools[1]))
    answer = oracles.dense(MODEL, oracles.emission_table(FRAMES, 3, 1, tables[0], tables[3]))
    assert float(hmmjax.log_likelihood(params, one)) == pytest.approx(answer.log_likelihood, abs=2e-4)


def test_streams_take_tuples():
    params, obs, _ = _problem()
    past, stream = hmmjax.filter(params, obs), hmmjax.Stream(params)
    for t in range(FRAMES):
        now = stream.step(jax.tree.map(lambda x, t=t: x[t], obs))
        assert_allclose(now.phases, past.phases[t], atol=2e-6)


@pytest.mark.thorough
def test_counting_and_em_learn_each_source_on_its_own():
    params, obs, _ = _problem()
    labels = Labels(*HIDDEN)
    priors = hmmjax.Priors(phase_emission=1.0, tool_emission=1.0)
    both = hmmjax.estimate(
        labels, obs, emissions=("confusion", "probability"), priors=priors, num_phases=3
    ).phases.emission.families
    for i, kind in enumerate(("confusion", "probability")):
        x = obs.phases[i]
        seen = x >= 0 if kind == "confusion" else ~np.isnan(x).any(-1)
        alone = hmmjax.estimate(
            Labels(HIDDEN[0]), Observations(x), seen, emissions=kind, priors=priors, num_phases=3
        ).phases.emission
        jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=5e-4), alone, both[i])
    result = hmmjax.fit(params, obs, max_iterations=4, priors=priors)
    assert (np.diff(result.history) > -1e-3).all()


@pytest.mark.thorough
def test_calibration_halves_the_power_of_a_duplicate(tmp_path):
    labels, obs, mask = hmmjax.sample(hmmjax.init_params(3, 0, emissions="confusion"), jax.random.key(1), [150] * 6)
    twice = Observations((obs.phases, obs.phases))
    params = hmmjax.estimate(labels, twice, mask, priors=hmmjax.Priors(phase_emission=1.0), num_phases=3)
    found = hmmjax.calibrate(params, twice, mask, labels, l2=0.01)
    powers = [float(f.power) for f in found.params.phases.emission.families]
    assert sum(powers) == pytest.approx(1.0, abs=0.25) and abs(powers[0] - powers[1]) < 0.1
    hmmjax.io.save_params(tmp_path / "m.npz", found.params)
    loaded = hmmjax.io.load_params(tmp_path / "m.npz").params
    assert_allclose(hmmjax.log_likelihood(loaded, twice, mask), hmmjax.log_likelihood(found.params, twice, mask))


@pytest.mark.thorough
def test_fused_sources_are_no_worse_than_the_better_one():
    labels, good, mask = hmmjax.sample(hmmjax.init_params(3, 0, emissions="confusion"), jax.random.key(2), [300] * 6)
    rng = np.random.default_rng(1)
    bad = np.where(rng.random(good.phases.shape) < 0.5, rng.integers(0, 3, good.phases.shape), good.phases)

    def accuracy(obs):
        params = hmmjax.estimate(labels, obs, mask, priors=hmmjax.Priors(phase_emission=1.0), num_phases=3)
        return (np.argmax(hmmjax.posterior(params, obs, mask).phases, -1) == labels.phases).mean()

    worse = rng.permuted(np.asarray(good.phases), axis=1)
    alone = accuracy(Observations(good.phases))
    assert accuracy(Observations((good.phases, worse))) >= alone - 0.005
    other = np.where(rng.random(bad.shape) < 0.3, rng.integers(0, 3, bad.shape), labels.phases)
    assert accuracy(Observations((good.phases, other))) > alone


def test_pseudo_counts_for_each_source():
    """Each source gets its own entry of a tuple, in counting, fitting and calibration."""
    outputs = hmmjax.sample(hmmjax.init_params(2, 0), jax.random.key(3), [6] * 4)
    labels, scores, mask = jax.tree.map(np.asarray, outputs)
    obs = Observations((scores.discretize().phases, scores.phases))
    priors = hmmjax.Priors(phase_emission=(np.eye(2) + 1, 3.0))
    both = hmmjax.estimate(labels, obs, mask, emissions=("confusion", "scaled"), priors=priors, num_phases=2)
    for i, name in enumerate(("confusion", "scaled")):
        own = hmmjax.Priors(phase_emission=priors.phase_emission[i])
        alone = hmmjax.estimate(
            labels, Observations(obs.phases[i]), mask, emissions=name, priors=own, num_phases=2
        ).phases.emission
        jax.tree.map(assert_allclose, both.phases.emission.families[i], alone)
    assert hmmjax.calibrate(both, obs, mask, labels, priors=priors, max_iterations=0).folds == 4


def test_bad_input_is_named():
    params, obs, _ = _problem()
    with pytest.raises(TypeError, match="pass a tuple"):
        hmmjax.posterior(params, dataclasses.replace(obs, phases=obs.phases[0]))
    with pytest.raises(TypeError, match="has 2"):
        hmmjax.posterior(params, dataclasses.replace(obs, phases=(*obs.phases, obs.phases[0])))
    with pytest.raises(ValueError, match=r"obs.phases\[0\] is 9"):
        hmmjax.posterior(params, dataclasses.replace(obs, phases=(np.full(FRAMES, 9), obs.phases[1])))
    for i, wrong in ((0, np.full(FRAMES, -7)), (1, np.where(np.arange(3) < 1, np.nan, obs.phases[1]))):
        phases = tuple(wrong if j == i else x for j, x in enumerate(obs.phases))
        with pytest.raises(ValueError, match=rf"obs.phases\[{i}\] is (-2|NaN in some classes) at"):
            hmmjax.posterior(params, dataclasses.replace(obs, phases=phases))
    whole = dataclasses.replace(params.phases, emission=emissions.Tempered(params.phases.emission, 0.5))
    with pytest.raises(TypeError, match="Fused cannot be tempered as a whole"):
        hmmjax.posterior(dataclasses.replace(params, phases=whole), obs)
    with pytest.raises(ValueError, match="a tuple of 3, but the emission fuses 2 sources"):
        hmmjax.fit(params, obs, priors=hmmjax.Priors(phase_emission=(1.0, 1.0, 1.0)))
    with pytest.raises(ValueError, match=r"phase_emission has shape \(5,\)"):
        hmmjax.fit(params, obs, priors=hmmjax.Priors(phase_emission=np.ones(5)))
    with pytest.raises(TypeError, match="phase_initial is a tuple"):
        hmmjax.fit(params, obs, priors=hmmjax.Priors(phase_initial=(1.0, 1.0, 1.0)))
    with pytest.raises(ValueError, match="holds no source"):
        hmmjax.posterior(params, dataclasses.replace(obs, phases=(None, None)))
    wrong = dataclasses.replace(params.phases, emission=(emissions.PhaseConfusion.default(3), TABLES))
    with pytest.raises(TypeError, match="cannot be fused"):
        hmmjax.posterior(Params(wrong), Observations((obs.phases[0], obs.phases[0])))
    wrong = dataclasses.replace(wrong, emission=tuple(emissions.PhaseConfusion.default(n) for n in (3, 2)))
    with pytest.raises(ValueError, match="differ in size"):
        hmmjax.posterior(Params(wrong), Observations((obs.phases[0], obs.phases[0])))
    with pytest.raises(ValueError, match="emissions has 3 families"):
        hmmjax.estimate(Labels(HIDDEN[0]), Observations(obs.phases), emissions=("confusion",) * 3)

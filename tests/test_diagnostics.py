"""Restarts, criteria, held-out likelihood and label switching."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import make

import hmmjax
from hmmjax import Labels, Observations, diagnostics, emissions

TRUTH = hmmjax.init_params(3, 0, emissions="confusion", stay=0.9)
LABELS, OBS, _ = jax.tree.map(np.asarray, hmmjax.sample(TRUTH, jax.random.key(0), [60] * 6))


def _with(params, matrix):
    emission = emissions.PhaseConfusion(jnp.asarray(matrix, jnp.float32))
    return dataclasses.replace(params, phases=dataclasses.replace(params.phases, emission=emission))


def test_the_best_start_wins_and_the_first_is_as_given():
    start = _with(TRUTH, np.full((3, 3), 1 / 3))
    options = {"restarts": 3, "spread": 1.0, "max_iterations": 20, "priors": hmmjax.Priors()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # equal for all states, from which EM cannot move
        best, objectives = diagnostics.fit_best(start, OBS, seed=1, **options)
        alone = hmmjax.fit(start, OBS, priors=hmmjax.Priors(), max_iterations=20)
    assert objectives.shape == (3,) and objectives[0] == pytest.approx(float(alone.history[-1]), rel=1e-6)
    assert float(best.history[-1]) == objectives.max() > objectives[0] + 10
    with pytest.raises(ValueError, match="at least 1"):
        diagnostics.fit_best(start, OBS, restarts=0)


def test_what_is_frozen_does_not_move_between_starts():
    best, _ = diagnostics.fit_best(TRUTH, OBS, restarts=2, freeze=["phases.emission"], max_iterations=2)
    np.testing.assert_array_equal(best.params.phases.emission.matrix, TRUTH.phases.emission.matrix)


def test_powers_are_the_same_in_every_start():
    emission = emissions.Tempered(TRUTH.phases.emission, jnp.float32(0.5))
    start = dataclasses.replace(TRUTH, phases=dataclasses.replace(TRUTH.phases, emission=emission))
    best, objectives = diagnostics.fit_best(start, OBS, restarts=3, spread=1.0, max_iterations=2)
    assert best.params.phases.emission.power == 0.5 and len(set(objectives)) == 3


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        # Phases: start 2, transitions 6; tools: starts 6, transitions 2 * 3 * 2. Then the families.
        ("confusion", 8 + 18 + 6 + 4),
        ("probability", 8 + 18 + 9 + 8),
        ("logit-normal", 8 + 18 + 12 + 8),
    ],
)
def test_parameters_are_counted(kind, number):
    params = hmmjax.init_params(3, 2, emissions=kind)
    assert diagnostics.num_parameters(params) == number


def test_zeros_are_not_parameters():
    left_right = dataclasses.replace(TRUTH.phases, transition=jnp.array([[0.9, 0.1, 0], [0, 0.9, 0.1], [0, 0, 1.0]]))
    params = hmmjax.Params(left_right)
    assert diagnostics.num_parameters(params) == 2 + 2 + 6


def test_bic_is_the_oracles():
    case = make(2, 2, 2, num_frames=4, batch=2, families=("PhaseConfusion", "ToolConfusion"), lengths=[4, 3])
    likelihood = sum(oracles.enumerate_paths(case.model, e).log_likelihood for e in case.emission_tables)
    number = 1 + 2 + 2 + 4 + 8 + 4
    found = diagnostics.bic(*case.args[:3])
    outputs = Observations(np.full((5, 3), 1 / 3, np.float32))
    one, batch = (diagnostics.bic(hmmjax.init_params(3, 0), x) for x in (outputs, Observations(outputs.phases[None])))
    assert one == pytest.approx(batch)
    assert found == pytest.approx(number * np.log(7) - 2 * likelihood, rel=1e-5)


def test_held_out_videos_are_not_learned_from():
    seen = []

    def learn(obs, mask, labels):
        seen.append((len(obs.phases), mask, labels.phases.shape))
        return TRUTH

    found = diagnostics.held_out(learn, OBS, None, Labels(LABELS.phases), folds=3)
    assert seen == [(4, None, (4, 60))] * 3
    whole = np.asarray(hmmjax.log_likelihood(TRUTH, OBS)).sum() / OBS.phases.size
    assert found == pytest.approx(whole, rel=1e-5)
    with pytest.raises(ValueError, match="at least two"):
        diagnostics.held_out(learn, Observations(OBS.phases[:1]))
    with pytest.raises(ValueError, match="1 videos"):
        diagnostics.held_out(learn, Observations(OBS.phases[0]))


@pytest.mark.parametrize("kind", ["confusion", "probability", "inflated", "logit-normal", "scaled"])
def test_a_good_model_has_no_switched_states(kind):
    assert diagnostics.find_label_switching(hmmjax.init_params(4, 3, emissions=kind)) == []


def test_states_that_changed_places_are_named():
    phases = _with(TRUTH, np.asarray(TRUTH.phases.emission.matrix)[[1, 0, 2]])
    assert diagnostics.find_label_switching(phases) == [
        "phase 0 behaves as the recognizer's phase 1",
        "phase 1 behaves as the recognizer's phase 0",
    ]
    for kind in ("confusion", "probability"):
        good = hmmjax.init_params(2, 3, emissions=kind)
        table = jax.tree.leaves(good.tools.emission)[0]
        family = type(good.tools.emission)(table.at[1].set(table[1, ::-1]))
        bad = dataclasses.replace(good, tools=dataclasses.replace(good.tools, emission=family))
        assert diagnostics.find_label_switching(bad) == ["tool 1 is called present when it is absent"]

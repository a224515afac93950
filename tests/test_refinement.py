"""Discriminative training by the labels' conditional likelihood."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import make
from numpy.testing import assert_allclose

import hmmjax
from hmmjax import Labels, Observations, emissions
from hmmjax._core.constraints import apply_update
from hmmjax._core.validation import check_params
from hmmjax.priors import BLOCKS

pytestmark = pytest.mark.thorough
FAMILIES = ["confusion", "autoregressive", "probability", "inflated", "logit-normal", "scaled", "logistic"]


@pytest.mark.parametrize("family", FAMILIES)
def test_models_stay_valid_however_far_they_move(family):
    params = hmmjax.init_params(3, 2, emissions=family, stay=0.9, interacting=family == "logistic")
    zero = params.phases.transition.at[0].set([1.0, 0.0, 0.0])
    params = dataclasses.replace(params, phases=dataclasses.replace(params.phases, transition=zero))
    tempered = emissions.Tempered(params.tools.emission, jnp.ones(2))
    fused = emissions.Fused((params.tools.emission, tempered))
    params = dataclasses.replace(params, tools=dataclasses.replace(params.tools, emission=fused))
    far = np.random.default_rng(0).normal(0, 4, 500).astype(np.float32)
    for theta, same in ((far * 0, True), (far, False)):
        new = apply_update(params, theta, frozenset())
        check_params(new)
        for before, after in zip(jax.tree.leaves(params), jax.tree.leaves(new), strict=True):
            if same:
                assert_allclose(after, before, rtol=1e-6)
            else:
                assert after.dtype == before.dtype and not np.array_equal(after, before)
        np.testing.assert_array_equal(new.phases.transition[0], [1, 0, 0])


def test_the_objective_is_the_oracles_and_frozen_blocks_stay():
    case = make(3, 2, 2, num_frames=5, batch=2, known=0.6, families=("PhaseConfusion", "ToolBeta"))
    known = [oracles.enumerate_paths(case.model, e).log_likelihood for e in case.emission_tables]
    free = [float(x) for x in hmmjax.log_likelihood(case.params, case.obs, case.mask)]
    found = hmmjax.refine(*case.args, freeze=["phases", "tools.initial"], l2=0.1, max_iterations=3)
    assert found.before == pytest.approx(sum(known) - sum(free), rel=1e-4)
    assert found.after > found.before and 1 <= found.iterations <= 3
    recomputed = hmmjax.log_likelihood(found.params, *case.args[1:]) - hmmjax.log_likelihood(
        found.params, *case.args[1:3]
    )
    assert found.after == pytest.approx(float(recomputed.sum()), rel=1e-4)
    for block in BLOCKS:
        track, field = block.split(".")
        new, old = (jax.tree.leaves(getattr(getattr(p, track), field)) for p in (found.params, case.params))
        assert all(map(np.array_equal, new, old)) == (block not in ("tools.transition", "tools.emission"))


@pytest.mark.thorough
def test_refinement_recovers_from_a_wrong_table_on_held_out_videos():
    """Starting from emissions of a recognizer that is never wrong."""
    truth = hmmjax.init_params(3, 0, emissions="confusion", stay=0.9)
    labels, obs, _ = jax.tree.map(np.asarray, hmmjax.sample(truth, jax.random.key(1), [60] * 8))
    sure = emissions.PhaseConfusion(0.998 * jnp.eye(3) + 0.002 / 3)
    wrong = dataclasses.replace(truth, phases=dataclasses.replace(truth.phases, emission=sure))

    def part(x, videos):
        return x.phases[videos]

    seen, unseen = slice(0, 4), slice(4, 8)
    chain = ["phases.initial", "phases.transition"]
    found = hmmjax.refine(wrong, Observations(part(obs, seen)), None, Labels(part(labels, seen)), freeze=chain)

    def held_out(params):
        outputs = Observations(part(obs, unseen))
        known = hmmjax.log_likelihood(params, outputs, labels=Labels(part(labels, unseen)))
        return float((known - hmmjax.log_likelihood(params, outputs)).sum())

    lost = held_out(truth) - held_out(wrong)
    assert lost > 50
    assert held_out(found.params) > held_out(wrong) + 0.6 * lost


def test_bad_input_is_named():
    params = hmmjax.init_params(2, 0, emissions="confusion")
    outputs = Observations(np.array([[0, 1, 1]]))
    with pytest.raises(ValueError, match="refine needs labels"):
        hmmjax.refine(params, outputs)
    with pytest.raises(ValueError, match="every block is frozen"):
        hmmjax.refine(params, outputs, None, Labels(np.array([[0, 0, 1]])), freeze=["phases"])
    never = dataclasses.replace(params, phases=dataclasses.replace(params.phases, transition=jnp.eye(2)))
    with pytest.raises(ValueError, match="impossible under params"):
        hmmjax.refine(never, outputs, None, Labels(np.array([[0, 0, 1]])))
    with pytest.raises(ValueError, match="every label is -1"):
        hmmjax.refine(params, outputs, None, Labels(np.full((1, 3), -1)))
    with pytest.raises(ValueError, match="every label is -1"):
        hmmjax.calibrate(params, outputs, None, Labels(np.full((1, 3), -1)))
    with pytest.raises(ValueError, match="l2=nan"):
        hmmjax.refine(params, outputs, None, Labels(np.array([[0, 0, 1]])), l2=float("nan"))


def test_integer_parameters_are_updated_too():
    family = emissions.PhaseDirichlet(jnp.array([[4, 1], [1, 4]]))
    params = hmmjax.init_params(2, 0)
    params = dataclasses.replace(params, phases=dataclasses.replace(params.phases, emission=family))
    new = apply_update(params, np.full(10, 0.1, np.float32), frozenset())
    assert_allclose(new.phases.emission.concentration, np.array([[4, 1], [1, 4]]) * np.exp(0.1), rtol=1e-6)

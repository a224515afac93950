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
from hmmjax._core import numerics as num
from hmmjax._core.batch import Batch, prepare
from hmmjax._core.constraints import apply_update, fields
from hmmjax._core.objectives import Objective
from hmmjax._core.validation import check_params
from hmmjax.priors import BLOCKS
from hmmjax.refinement import _loss

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


def slope_of(params, case, goal, direction):
    """The objective's slope along a direction, in float64 and by the oracle's marginals."""
    values = []
    for sign in (1, -1):
        model = apply_update(params, jnp.asarray(sign * 1e-4 * direction), frozenset())
        tables = [
            oracles.emission_table(
                5,
                2,
                2,
                *(np.asarray(getattr(model, t).emission.log_prob(getattr(case.obs, t)))[i] for t in TRACKS),
                case.mask[i],
            )
            for i in (0, 1)
        ]
        chain, tools = model.phases, model.tools
        own = oracles.Model(chain.initial, chain.transition, tools.initial, tools.transition.matrix)
        total = 0.0
        for i, table in enumerate(tables):
            answer = oracles.enumerate_paths(own, table)
            prefix = "filter_" if goal == "filter" else ""
            for track in TRACKS:
                p = getattr(answer, prefix + track)
                labels = np.asarray(getattr(case.labels, track))[i, : len(p)]
                p = np.stack([1 - p, p], -1) if track == "tools" else p
                scores = np.log(np.take_along_axis(p, np.maximum(labels, 0)[..., None], -1)[..., 0] + 1e-6)
                known = labels >= 0
                total += 30 * np.sum(np.where(known, scores, 0) / np.maximum(known.sum(0), 1))
        values.append(total)
    return np.mean(values), (values[0] - values[1]) / 2e-4


TRACKS = ("phases", "tools")


@pytest.mark.parametrize("goal", ["smoother", "filter"])
def test_label_wise_objectives_and_their_gradients_are_the_oracles(goal):
    with jax.enable_x64(True):
        case = make(
            3, 2, 2, num_frames=5, batch=2, known=0.6, families=("PhaseConfusion", "ToolBeta"), dtype=np.float64
        )
        start = hmmjax.refine(*case.args, objective=goal, max_iterations=0)
        direction = np.random.default_rng(0).normal(size=sum(np.size(x) for x, _ in fields(case.params)))
        value, slope = slope_of(case.params, case, goal, direction)
        batch = prepare(*case.args)
        for backend in ("auto", "scan"):
            loss, gradient = _loss(
                np.zeros(len(direction)), case.params, batch, Objective(goal, False, 30.0), frozenset(), backend
            )
            assert_allclose(-loss, value, rtol=1e-5)
            assert_allclose(-np.asarray(gradient) @ direction, slope, rtol=1e-5)
        assert start.before == start.after == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("goal", ["smoother", "filter"])
def test_second_derivatives_of_label_wise_objectives_are_the_scans(goal):
    with jax.enable_x64(True):
        case = make(3, 2, 0, num_frames=4, known=0.6, families=("PhaseConfusion", ""), dtype=np.float64)
        batch = prepare(*case.args)
        point = np.zeros(sum(np.size(x) for x, _ in fields(case.params)))
        ahead = np.random.default_rng(0).normal(size=len(point))

        def slope(at, backend):
            objective = Objective(goal, False, 30.0)
            return _loss(at, case.params, batch, objective, frozenset(), backend)[1] @ ahead

        curves = [np.asarray(jax.grad(slope)(jnp.asarray(point), backend)) for backend in ("auto", "scan")]
        assert_allclose(*curves, rtol=1e-7, atol=1e-9)
        change = (slope(jnp.asarray(1e-4 * ahead), "scan") - slope(jnp.asarray(-1e-4 * ahead), "scan")) / 2e-4
        assert_allclose(curves[0] @ ahead, change, rtol=1e-4)


def test_balanced_objectives_weigh_classes_alike():
    """Three frames of one phase and one of the other; each phase weighs half."""
    goal = Objective("smoother", True, 10.0)
    batch = Batch(
        None,
        None,
        np.ones((1, 4), bool),
        np.array([[0, 0, 0, 1]], np.int32),
        np.array([[[-1], [-1], [-1], [-1]]], np.int32),
    )
    marginals = jnp.asarray([[[0.5, 0.5], [0.6, 0.4], [0.6, 0.4], [0.8, 0.2]]], jnp.float32)
    expected = 10 * (np.log([0.5, 0.6, 0.6]).mean() + np.log(0.2)) / 2
    assert_allclose(goal._score(marginals, batch.phase_labels, batch), [expected], rtol=1e-4)
    assert_allclose(goal._score(marginals[..., None, :], batch.tool_labels, batch), [0])


def test_label_wise_training_frees_powers_and_learns_from_some_labels():
    """A recognizer whose errors last: powers fall far below one, and held-out labels become more probable."""
    truth = hmmjax.init_params(3, 1, emissions="confusion", stay=0.95)
    labels, obs, _ = jax.tree.map(np.asarray, hmmjax.sample(truth, jax.random.key(2), [40] * 8))
    slow = Observations(np.repeat(obs.phases, 5, 1), np.repeat(obs.tools, 5, 1))
    known = Labels(
        np.repeat(labels.phases, 5, 1), np.where(np.arange(200)[:, None] % 3 > 0, -1, np.repeat(labels.tools, 5, 1))
    )
    priors = hmmjax.Priors(phase_emission=1.0, tool_emission=1.0, phase_transition=0.1, tool_initial=1.0)
    start = hmmjax.estimate(known, slow, priors=priors)
    chains = {t: getattr(start, t) for t in TRACKS}
    start = hmmjax.Params(
        **{
            t: dataclasses.replace(c, emission=emissions.Tempered(c.emission, jnp.asarray(0.5)))
            for t, c in chains.items()
        }
    )
    seen, unseen = slice(0, 5), slice(5, 8)

    def part(x, videos):
        return jax.tree.map(lambda a: a[videos], x)

    found = hmmjax.refine(start, part(slow, seen), None, part(known, seen), objective="smoother", max_iterations=12)
    assert found.after > found.before and float(found.params.phases.emission.power) < 0.4

    def score(params):
        p = np.asarray(hmmjax.posterior(params, part(slow, unseen)).phases)
        return np.log(np.take_along_axis(p, known.phases[unseen][..., None], -1) + 1e-6).mean()

    assert score(found.params) > score(start)
    powers = hmmjax.calibrate(start, part(slow, seen), None, part(known, seen), objective="smoother", folds=0)
    assert powers.after > powers.before and float(powers.params.phases.emission.power) < 0.5


def test_a_structural_zero_has_no_second_derivative():
    assert jax.grad(jax.grad(num.log))(jnp.zeros(())) == 0
    case = make(3, 2, 1, num_frames=4, known=0.6)
    tools = dataclasses.replace(case.params.tools, initial=jnp.array([[0.0, 0.4]], jnp.float32))
    params = dataclasses.replace(case.params, tools=tools)
    found = hmmjax.refine(params, *case.args[1:], objective="smoother", max_iterations=2, backend="logspace")
    assert found.after > found.before and found.params.tools.initial[0, 0] == 0


def test_objectives_that_do_not_exist_are_refused():
    case = make(3, 2, 0, known=0.6)
    for options, message in (
        ({"objective": "viterbi"}, "objective='viterbi' is unknown"),
        ({"balanced": True}, "balanced=True weighs single labels"),
        ({"objective": "filter", "video_weight": 0.0}, "video_weight=0.0 must be"),
    ):
        with pytest.raises(ValueError, match=message):
            hmmjax.refine(*case.args, **options)
        with pytest.raises(ValueError, match=message):
            hmmjax.calibrate(*case.args, **options)


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

"""Anchored emissions: unlabeled EM keeps what a recognizer's classes mean, and drift is detected where it does not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import gammaln, psi

import hmmjax
from hmmjax import diagnostics, simulate
from hmmjax.agreement import agreement
from hmmjax.anchoring import STRENGTH
from hmmjax.emissions import Anchor, PhaseConfusion, PhaseDirichlet, Tempered, ToolBeta
from hmmjax.emissions.anchor import pseudo_frames_of
from hmmjax.priors import check_priors

#: Half a percent of frames: what smoothing may cost a video that holds nothing to smooth.
SLACK = 0.006


def accuracy(phases, truth):
    return np.array([(np.asarray(x).argmax(-1) == y).mean() for x, y in zip(phases, truth, strict=True)])


def simulated(seed, gain, num_videos=3):
    recognizer = simulate.Recognizer(phase_gain=gain, tool_gain=gain)
    videos = simulate.simulate_surgeries(num_videos, seed, minutes=8, recognizer=recognizer)
    return [v.phase_probabilities for v in videos], [v.phases for v in videos]


@pytest.mark.parametrize("gain", [1.0, 3.5, 20.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_default_path_is_not_below_raw_however_confident_the_recognizer_is(seed, gain):
    outputs, truth = simulated(seed, gain)
    obs = hmmjax.Observations(outputs)
    fitted = hmmjax.fit(hmmjax.init_params(7, 0), obs)
    change = accuracy(hmmjax.posterior(fitted.params, obs).phases, truth) - accuracy(outputs, truth)
    assert change.mean() > -SLACK and change.min() > -0.02
    assert diagnostics.find_drift(fitted.params, obs) == []


def test_maximum_likelihood_drifts_where_the_default_does_not():
    outputs, truth = simulated(2, 3.5, 5)
    obs = hmmjax.Observations(outputs)
    free = hmmjax.fit(hmmjax.init_params(7, 0), obs, priors=hmmjax.Priors(), max_iterations=40).params
    held = hmmjax.fit(hmmjax.init_params(7, 0), obs, max_iterations=40).params
    loss = [accuracy(hmmjax.posterior(p, obs).phases, truth).mean() for p in (held, free)]
    assert loss[0] > loss[1] + 0.02
    assert diagnostics.find_drift(held, obs) == []


@pytest.mark.parametrize("labeled", [(), (0,), (0, 1)])
def test_real_overconfident_outputs_stay_at_raw(labeled, data_dir):
    logits = np.load(data_dir / "mstcn" / "phase_logits_1fps.npz")
    known = np.load(data_dir / "cholec80" / "labels_1fps.npz")
    videos = [np.asarray(jax.nn.softmax(logits[f"stages_{v}"][0])) for v in range(71, 76)]
    truth = [known[f"phase_{v}"][: len(x)].astype(int) for v, x in zip(range(71, 76), videos, strict=True)]
    videos = [x[: len(y)] for x, y in zip(videos, truth, strict=True)]
    labels = [y if i in labeled else np.full(len(y), -1) for i, y in enumerate(truth)]
    obs = hmmjax.Observations(videos)
    fitted = hmmjax.fit(hmmjax.init_params(7, 0), obs, labels=hmmjax.Labels(labels) if labeled else None).params
    rest = [i for i in range(5) if i not in labeled]
    change = (accuracy(hmmjax.posterior(fitted, obs).phases, truth) - accuracy(videos, truth))[rest]
    assert change.mean() > -0.002 and change.min() > -0.01
    if not labeled:
        free = hmmjax.fit(
            hmmjax.init_params(7, 0), obs, priors=hmmjax.Priors(), freeze=("phases.transition",), backend="logspace"
        )
        assert diagnostics.find_drift(free.params, obs)  # .40 of frames correct, .71 by the recognizer


# The prior.


def test_the_log_prior_is_minus_frames_times_the_divergence():
    rng = np.random.default_rng(0)
    reference, table = rng.dirichlet(np.ones(3), 3), rng.dirichlet(np.ones(3), 3)
    frames = np.array([2.0, 5.0, 0.0])
    want = -(frames[:, None] * reference * np.log(reference / table)).sum()
    prior = Anchor(PhaseConfusion(jnp.asarray(reference, jnp.float32)), jnp.asarray(frames, jnp.float32))
    assert_allclose(PhaseConfusion(jnp.asarray(table, jnp.float32)).log_prior(prior), want, rtol=1e-5)
    first, other = rng.uniform(0.3, 6, (3, 3)), rng.uniform(0.3, 6, (3, 3))

    def normalizer(c):
        return gammaln(c).sum(-1) - gammaln(c.sum(-1))

    mean = psi(first) - psi(first.sum(-1, keepdims=True))
    each = ((first - other) * mean).sum(-1) - normalizer(first) + normalizer(other)
    prior = Anchor(PhaseDirichlet(jnp.asarray(first, jnp.float32)), jnp.asarray(frames, jnp.float32))
    assert_allclose(PhaseDirichlet(jnp.asarray(other, jnp.float32)).log_prior(prior), -(frames * each).sum(), rtol=1e-4)


@pytest.mark.parametrize("family", [PhaseConfusion, PhaseDirichlet, ToolBeta])
def test_without_frames_the_reference_itself_is_most_probable(family):
    reference, other = family.default(3), family.default(3)
    shape = (3,) if family.track == "phases" else (3, 2)
    moved = jax.tree.map(lambda x: (x + 0.2) / (x + 0.2).sum(-1, keepdims=True), other)
    zero = jax.tree.map(jnp.zeros_like, family.default(3).statistics(_outputs(family), jnp.zeros((4, *shape))))
    found = moved.maximize(zero, Anchor(reference, 100.0))
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-4), found, reference)
    assert float(reference.log_prior(Anchor(reference, 1e6))) == 0 > float(moved.log_prior(Anchor(reference, 1.0)))


def _outputs(family):
    if family.observes == "labels":
        return jnp.zeros(4, jnp.int32)
    return jnp.full((4, 3), 1 / 3)


def test_anchors_weaken_as_labels_are_given_and_leave_with_the_last_unlabeled_frame():
    outputs, truth = simulated(0, 3.5)
    start, obs = hmmjax.init_params(7, 0), hmmjax.Observations(outputs)
    total = sum(map(len, truth))
    none = hmmjax.anchor(start, obs)
    assert_allclose(pseudo_frames_of(none.priors), STRENGTH * total, rtol=1e-5)
    assert_array_equal(none.priors.phase_emission.family.concentration, start.phases.emission.concentration)
    some = hmmjax.anchor(start, obs, labels=hmmjax.Labels([truth[0], *(np.full(len(y), -1) for y in truth[1:])]))
    assert_allclose(pseudo_frames_of(some.priors), STRENGTH * (total - len(truth[0])), rtol=1e-5)
    everything = hmmjax.Labels(truth)
    assert hmmjax.anchor(start, obs, labels=everything).priors == hmmjax.Priors()
    assert hmmjax.anchor(start, obs, strength=0).priors == hmmjax.Priors()
    by_default, plain = (hmmjax.fit(start, obs, labels=everything, priors=p).params for p in (None, hmmjax.Priors()))
    jax.tree.map(assert_array_equal, by_default, plain)


def test_fit_anchors_by_default_and_keeps_the_type_of_the_model():
    outputs, _ = simulated(1, 3.5)
    emission = Tempered(hmmjax.init_params(7, 0).phases.emission, jnp.float32(0.5))
    start = hmmjax.init_params(7, 0)
    start = dataclasses.replace(start, phases=dataclasses.replace(start.phases, emission=emission))
    obs = hmmjax.Observations(outputs)
    held = hmmjax.anchor(start, obs)
    want = hmmjax.fit(held.params, obs, priors=held.priors, freeze=held.freeze, max_iterations=3)
    found = hmmjax.fit(start, obs, max_iterations=3)
    jax.tree.map(assert_array_equal, found, want)
    assert jax.tree.structure(found.params) == jax.tree.structure(start)
    assert (np.diff(found.history) > -1e-6 * pseudo_frames_of(held.priors)).all()


def test_families_without_an_anchor_are_frozen_and_foreign_classes_are_free():
    outputs, _ = simulated(0, 3.5)
    held = hmmjax.anchor(hmmjax.init_params(7, 0, emissions="logit-normal"), hmmjax.Observations(outputs))
    assert held.freeze == ("phases.emission",) and held.priors == hmmjax.Priors()
    start = hmmjax.init_params(2, 0, emissions="confusion")
    foreign = dataclasses.replace(
        start, phases=dataclasses.replace(start.phases, emission=PhaseConfusion.default(2, 3))
    )
    held = hmmjax.anchor(foreign, hmmjax.Observations(np.zeros((1, 9), int)))
    assert held.freeze == () and held.priors == hmmjax.Priors()


def test_bad_anchors_are_named():
    params = hmmjax.init_params(3, 2)
    for prior, error, message in (
        (
            Anchor(PhaseConfusion.default(3), 1.0),
            TypeError,
            "anchors a PhaseConfusion, but the model has a PhaseDirichlet",
        ),
        (Anchor(PhaseDirichlet.default(4), 1.0), ValueError, "other shapes"),
        (Anchor(PhaseDirichlet.default(3), -1.0), ValueError, "non-negative"),
    ):
        with pytest.raises(error, match=message):
            check_priors(params, hmmjax.Priors(phase_emission=prior))
    logistic = hmmjax.init_params(0, 2, emissions="logistic")
    with pytest.raises(TypeError, match="ToolLogistic does not take"):
        check_priors(logistic, hmmjax.Priors(tool_emission=Anchor(logistic.tools.emission, 1.0)))
    with pytest.raises(ValueError, match="strength"):
        hmmjax.anchor(params, hmmjax.Observations(np.full((1, 9, 3), 1 / 3, np.float32)), strength=-1)


# The check.


def test_agreement_counts_frames_and_names_what_moved():
    outputs = np.repeat([0, 1, 2], 40)
    states = np.where(outputs == 2, 1, outputs)
    found = agreement([states], [outputs], 3)
    assert_allclose(found.fraction, 2 / 3)
    (text,) = found.describe(("a", "b", "c"))
    assert "67%" in text and "c in 0%, mostly taken for b" in text
    assert agreement([outputs], [outputs], 3).describe() == []
    soft = np.eye(3)[outputs] * 0.8 + 0.1 * (1 - np.eye(3)[outputs])
    soft[:10] = np.nan
    assert_allclose(agreement([soft], [soft], 3).confidence, 0.8)

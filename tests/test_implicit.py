"""Derivatives through iterations, against differences and against derivatives of the iterations themselves."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optima
import pytest
from numpy.testing import assert_allclose

import hmmjax
from hmmjax import learning
from hmmjax._core import implicit, logistic
from hmmjax._core.batch import canonical, prepare
from hmmjax.emissions import _concentration


def toy_step(point, inputs):
    """Return the next point of a contraction, whose second part never changes."""
    matrix, bias, _ = inputs
    return {"x": jnp.tanh(matrix @ point["x"] + bias * point["kept"]), "kept": point["kept"]}


@jax.custom_jvp
def toy(start, inputs):
    return jax.lax.fori_loop(0, 300, lambda _, point: toy_step(point, inputs), start)


@toy.defjvp
def _(primals, tangents):
    point = toy(*primals)
    return point, implicit.fixed_point_tangent(toy_step, point, primals[1], *tangents)


def test_the_derivative_of_a_fixed_point_is_that_of_many_iterations():
    """In both modes, with respect to inputs and to what an iteration leaves alone; integers have none."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        matrix = jnp.asarray(0.6 * np.linalg.qr(rng.normal(size=(4, 4)))[0])
        start = {"x": jnp.zeros(4), "kept": jnp.asarray(0.7)}
        target = jnp.asarray(rng.normal(size=4))

        def value(iterate, start, bias):
            return iterate(start, (matrix, bias, jnp.arange(3)))["x"] @ target

        def unrolled(start, inputs):
            return jax.lax.scan(lambda p, _: (toy_step(p, inputs), None), start, length=300)[0]

        bias = jnp.asarray(rng.normal(size=4))
        found = jax.grad(value, (1, 2))(toy, start, bias)
        expected = jax.grad(value, (1, 2))(unrolled, start, bias)
        jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, expected)
        forward = jax.jvp(lambda b: value(toy, start, b), (bias,), (target,))[1]
        assert_allclose(forward, expected[1] @ target, rtol=1e-9)


def test_linear_systems_are_solved_by_products():
    rng = np.random.default_rng(1)
    matrix = (np.eye(30) - 0.9 * np.linalg.qr(rng.normal(size=(30, 30)))[0]).astype(np.float32)
    right = rng.normal(size=30).astype(np.float32)
    found = implicit.solve(lambda v: jnp.asarray(matrix) @ v, jnp.asarray(right))
    assert_allclose(found, np.linalg.solve(matrix.astype(float), right), rtol=1e-3, atol=1e-4)
    assert not np.asarray(implicit.solve(lambda v: v, jnp.zeros(3))).any()


def test_m_steps_have_the_derivatives_of_their_optima():
    """At which they start, so that no iteration is made; in both modes."""
    with jax.enable_x64(True):
        mean = optima.dirichlet_mean_log(np.array([0.5, 2.0, 7.0]))
        best, inverse = optima.dirichlet(mean)
        fit = jax.jit(jax.jacrev(lambda m: _concentration.fit_concentration(m, jnp.asarray(best))))
        assert_allclose(fit(jnp.asarray(mean)), -inverse, rtol=1e-6)

        counts = np.random.default_rng(2).gamma(2, 10, (4, 2))
        start, penalty = jnp.zeros((1, 3)), np.array([0.1, 0.5, 0.5])

        def weights(counts, ridge):
            return logistic.fit(counts[None], start, ridge)[0]

        slopes = jax.jit(jax.jacfwd(weights, (0, 1)))(jnp.asarray(counts), jnp.asarray(penalty))
        step = 1e-4
        for index in ((0, 0), (3, 1)):
            more = np.zeros_like(counts)
            more[index] = step
            high, low = (optima.ridge_regression(counts + sign * more, penalty)[0] for sign in (1, -1))
            assert_allclose(slopes[0][:, *index], (high - low) / (2 * step), rtol=1e-4, atol=1e-7)
        high, low = (optima.ridge_regression(counts, penalty + sign * np.array([0, step, 0]))[0] for sign in (1, -1))
        assert_allclose(slopes[1][:, 1], (high - low) / (2 * step), rtol=1e-4, atol=1e-7)


def problem():
    """Return a start, observations and a function of pseudo-counts that fits in float64 to convergence."""
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), hmmjax.init_params(2))
    transition = np.array([[0.9, 0.1], [0.2, 0.8]])
    params = dataclasses.replace(params, phases=dataclasses.replace(params.phases, transition=transition))
    _, obs, _ = hmmjax.sample(params, jax.random.key(0), [14, 14])
    return params, np.asarray(obs.phases, np.float64)


def fit(params, outputs, pseudo):
    priors = hmmjax.Priors(phase_initial=1.0, phase_transition=pseudo, phase_emission=3.0)
    return hmmjax.fit(params, hmmjax.Observations(outputs), priors=priors, max_iterations=2000, tolerance=1e-15)


@pytest.mark.thorough
def test_gradients_through_fit():
    """With respect to pseudo-counts and outputs: against differences of `fit`, and derivatives of unrolled EM."""
    with jax.enable_x64(True):
        params, outputs = problem()

        def value(outputs, pseudo):
            fitted = fit(params, outputs, pseudo).params.phases
            return fitted.transition[0, 1] + 0.1 * jnp.log(fitted.emission.concentration[1, 0])

        # In all frames, smaller where logarithms are steep, and of the pseudo-counts.
        direction = outputs * outputs[..., ::-1] * [1, -1]
        slopes = jax.jit(jax.grad(value, (0, 1)))(outputs, 2.0)
        found = (slopes[0] * direction).sum() + slopes[1]
        run = jax.jit(value)
        high, low = (run(outputs + step * direction, 2.0 + step) for step in (1e-3, -1e-3))
        assert_allclose(found, (high - low) / 2e-3, rtol=1e-4)

        def unrolled(outputs, pseudo):
            batch = prepare(canonical(params), hmmjax.Observations(outputs), None, None)
            priors = hmmjax.Priors(phase_initial=1.0, phase_transition=pseudo, phase_emission=3.0)

            def step(params, _):
                return learning._em_step(params, batch, priors, "scan", frozenset())[0], None

            phases = jax.lax.scan(step, canonical(params), length=400)[0].phases
            return phases.transition[0, 1] + 0.1 * jnp.log(phases.emission.concentration[1, 0])

        iterated = jax.jit(lambda *x: jax.jvp(unrolled, x, (jnp.asarray(direction), jnp.ones(()))))(outputs, 2.0)
        assert_allclose(iterated, (run(outputs, 2.0), found), rtol=1e-6)


def test_a_fit_that_has_not_converged_has_no_derivative():
    params = hmmjax.init_params(2, emissions="confusion")
    outputs = hmmjax.Observations(np.array([[0, 0, 1, 0, 1, 1]]))

    def value(pseudo):
        priors = hmmjax.Priors(phase_transition=pseudo)
        fitted = hmmjax.fit(params, outputs, priors=priors, max_iterations=1, tolerance=0.0).params
        return fitted.phases.transition[0, 1]

    with pytest.raises(ValueError, match="not converged in 1 iterations, so that fit has no derivative"):
        jax.grad(value)(2.0)
    assert np.isnan(jax.jit(jax.grad(value))(2.0))  # not zero, which a step of an optimizer would take

"""Products over the configurations of tools, and their derivatives."""

import itertools

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from hmmjax._core.configurations import joint_of_tools, multiply_over_tools

WEIGHTS = np.float32([[[0.2, 0.8], [0, 1], [0.5, 0.5]], [[1, 0], [0, 0], [3, 0.25]]])


@pytest.mark.parametrize("multiply", [joint_of_tools, multiply_over_tools])
def test_products_and_their_derivatives_at_zeros_too(multiply):
    """Derivatives are exact products of the other tools' weights, also of zero, once and twice."""
    states = list(itertools.product((0, 1), repeat=3))
    expected = np.array([[np.prod([w[k, s[k]] for k in range(3)]) for s in states] for w in WEIGHTS])
    assert_allclose(multiply(WEIGHTS), expected, rtol=1e-6)

    first = jax.jit(jax.jacrev(multiply))(WEIGHTS[0])
    second = jax.jit(jax.jacfwd(jax.jacrev(multiply)))(WEIGHTS[0])
    exact_first, exact_second = np.zeros((8, 3, 2)), np.zeros((8, 3, 2, 3, 2))
    for c, s in enumerate(states):
        for k, m in itertools.product(range(3), repeat=2):
            others = [WEIGHTS[0, j, s[j]] for j in range(3) if j not in (k, m)]
            exact_second[c, k, s[k], m, s[m]] = 0 if k == m else np.prod(others)
            exact_first[c, k, s[k]] = np.prod([WEIGHTS[0, j, s[j]] for j in range(3) if j != k])
    assert_allclose(first, exact_first, rtol=1e-6)
    assert_allclose(second, exact_second, rtol=1e-6)
    assert_allclose(jax.jacfwd(multiply)(WEIGHTS[0]), exact_first, rtol=1e-6)

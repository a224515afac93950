"""Default parameters, and estimates by counting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hmmjax
from hmmjax import Labels, Observations, emissions


@pytest.mark.parametrize("name", emissions.FAMILIES)
def test_defaults_are_strongly_typed_float32(name):
    params = hmmjax.init_params(3, 2, emissions=name, interacting=name == "logistic")
    families = [family.default(2) for family in emissions.FAMILIES[name]]
    for leaf in jax.tree.leaves((params, families)):
        assert leaf.dtype == jnp.float32 and not leaf.weak_type


def test_each_track_may_have_a_family_of_its_own():
    labels = Labels(np.array([[0, 0, 1, 1]]), np.array([[[0], [1], [1], [0]]]))
    obs = Observations(np.full((1, 4, 2), 0.5, np.float32), labels.tools)
    params = hmmjax.estimate(labels, obs, emissions={"phases": "scaled", "tools": "confusion"})
    assert_allclose(params.phases.emission.frequency, [0.5, 0.5])
    assert_allclose(params.tools.emission.matrix, [np.eye(2)])
    own = emissions.ToolConfusion.default(1, 3)
    assert hmmjax.estimate(labels, Observations(tools=labels.tools), emissions=own).tools.emission.num_symbols == 3
    with pytest.raises(ValueError, match="key 'phase'"):
        hmmjax.estimate(labels, emissions={"phase": "confusion"})


def test_outputs_of_other_classes_do_not_count_as_phases():
    labels, outputs = Labels(np.array([[0, 1, 1, 0]])), Observations(np.array([[0, 3, 2, 1]]))
    params = hmmjax.estimate(labels, outputs, num_symbols=4)
    assert params.num_phases == 2 and params.phases.emission.matrix.shape == (2, 4)
    with pytest.raises(ValueError, match="num_symbols=0"):
        hmmjax.estimate(labels, outputs, num_symbols=0)

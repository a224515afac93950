"""Conversion to and from dynamax preserves the likelihood."""

import dataclasses

import jax
import numpy as np
import pytest
from cases import make
from numpy.testing import assert_allclose

import hmmjax
from hmmjax import Observations, Params

pytest.importorskip("dynamax", reason="the bridge needs dynamax, of the bench extra")
pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore")]
CONFUSION = ("PhaseConfusion", "ToolConfusion")


@pytest.mark.parametrize("shape", [(3, 0), (0, 2), (2, 1), "stages"])
def test_both_give_the_same_likelihood_and_posterior(shape):
    from hmmjax import dynamax

    case = make(1, *((3, 1) if shape == "stages" else shape), num_frames=9, batch=1, families=CONFUSION)
    params = case.params
    if shape == "stages":
        params = dataclasses.replace(params, phases=dataclasses.replace(params.phases, stages=(2, 1, 2)))
    one = Observations(*(None if x is None else x[0] for x in (case.obs.phases, case.obs.tools)))
    model, theirs = dynamax.to_dynamax(params)
    found = model.smoother(theirs, dynamax.to_emissions(one))
    ours = hmmjax.posterior(params, one)
    assert float(found.marginal_loglik) == pytest.approx(float(ours.log_likelihood), abs=1e-4)
    phases, tools, _ = dynamax.joint_states(params)
    probabilities = np.asarray(found.smoothed_probs)
    if ours.phases is not None:
        assert_allclose(probabilities @ np.eye(params.num_phases)[phases], ours.phases, atol=1e-4)
    if ours.tools is not None:
        assert_allclose(probabilities @ tools, ours.tools, atol=1e-4)


def test_there_and_back():
    from hmmjax import dynamax

    phases = Params(make(2, 3, 0, families=CONFUSION).params.phases)
    back = dynamax.from_dynamax(dynamax.to_dynamax(phases)[1])
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-5), back, phases)
    tools = make(3, 0, 2, families=CONFUSION).params
    alone = [jax.tree.map(lambda x, k=k: x[k : k + 1], tools) for k in range(2)]
    back = dynamax.tool_from_dynamax(*(dynamax.to_dynamax(p)[1] for p in alone))
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-5), back, tools)


def test_what_has_no_counterpart_is_named():
    from hmmjax import dynamax

    with pytest.raises(TypeError, match="only PhaseConfusion is categorical"):
        dynamax.to_dynamax(hmmjax.init_params(3))
    with pytest.raises(ValueError, match="joint states"):
        dynamax.to_dynamax(hmmjax.init_params(7, 8, emissions="confusion"))
    with pytest.raises(ValueError, match="has no emissions"):
        chain = dataclasses.replace(hmmjax.init_params(2, emissions="confusion").phases, emission=None)
        dynamax.to_dynamax(Params(chain))
    outputs = np.zeros((2, 4), int)
    for obs, error, named in (
        (Observations(outputs), ValueError, "one video at a time"),
        (Observations(np.full((4, 2), 0.5)), TypeError, "discretize"),
        (Observations(outputs[0], outputs), ValueError, r"\[4, 2\] frames"),
        (Observations(), ValueError, "obs is empty"),
    ):
        with pytest.raises(error, match=named):
            dynamax.to_emissions(obs)
    with pytest.raises(TypeError, match="dict is not a ParamsCategoricalHMM"):
        dynamax.from_dynamax({})
    coupled = dynamax.to_dynamax(hmmjax.init_params(2, 1, emissions="confusion"))[1]
    with pytest.raises(ValueError, match="one column"):
        dynamax.from_dynamax(coupled)
    with pytest.raises(ValueError, match="two states"):
        dynamax.tool_from_dynamax(dynamax.to_dynamax(hmmjax.init_params(3, emissions="confusion"))[1])

"""Parity of temporal models with their published implementations, on recorded outputs for weights made from names."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flax", reason="needs the vision extra (flax)")

import jax.numpy as jnp
from flax import nnx
from make_temporal_reference import CLASSES, INPUTS, LAYERS, WIDTH, features_for, state_for

from models.temporal import STAGED, build
from models.weights import WeightsError, load_state


def recorded(name):
    """Return the state dict, features and outputs of a published network."""
    with np.load(Path(__file__).with_name("temporal_reference.npz")) as arrays:
        entries = [text.split() for text in arrays[f"{name}/names"].tolist()]
        outputs = arrays[f"{name}/outputs"]
    return state_for({key: tuple(map(int, shape)) for key, *shape in entries}), features_for(name), outputs


@pytest.mark.parametrize("name", STAGED)
def test_stages_equal_the_published_network(name):
    state, features, want = recorded(name)
    model = build(name, INPUTS, sizes={"phases": CLASSES}, width=WIDTH, layers=LAYERS, rngs=nnx.Rngs(0))
    model.eval()
    load_state(model, state)
    got = np.stack([stage["phases"] for stage in model.every_stage(features)])
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()
    # Padding, whatever it holds, changes nothing.
    length = features.shape[1]
    padded = np.pad(features, ((0, 0), (0, 9), (0, 0)), constant_values=np.nan)
    got = np.stack([stage["phases"] for stage in model.every_stage(padded, np.arange(length + 9)[None] < length)])
    assert np.abs(got[:, :, :length] - want).max() <= 1e-4 * np.abs(want).max()
    missing = sorted(state)[0]
    with pytest.raises(WeightsError, match=r"missing \(1\)"):
        load_state(model, {key: value for key, value in state.items() if key != missing})


def test_bilstm_equals_torch():
    state, features, want = recorded("bilstm")
    model = build("bilstm", INPUTS, width=WIDTH, rngs=nnx.Rngs(0))
    for layer, suffix in ((model.earlier, ""), (model.later, "_reverse")):
        part = {
            key: jnp.asarray(state[f"{key}_l0{suffix}"]) for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        }
        layer.enter.kernel.set_value(part["weight_ih"].T)
        layer.enter.bias.set_value(part["bias_ih"] + part["bias_hh"])
        layer.recur.kernel.set_value(part["weight_hh"].T)
    np.testing.assert_allclose(model(features), want, rtol=1e-4, atol=1e-5)

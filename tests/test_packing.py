"""Uneven videos lie one after another: cost follows their frames, and results are those of padded batches."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax
from hmmjax._core import batch
from hmmjax._core.batch import prepare
from hmmjax._core.packing import of_padded, place, row_length
from hmmjax.messages import BACKENDS

LENGTHS = np.array([0, 5, 3, 0, 7, 1, 0])


def test_frames_go_to_their_places_and_back():
    rng = np.random.default_rng(0)
    padded = np.where(np.arange(8)[:, None] < LENGTHS[:, None, None], rng.normal(size=(7, 8, 2)), 0)
    packing, row, position = place(LENGTHS, 8), np.zeros((1, 20, 2)), np.full(20, -1)
    row[0, :16] = np.concatenate([video[:length] for video, length in zip(padded, LENGTHS, strict=True)])
    position[:16] = np.concatenate([np.arange(length) for length in LENGTHS])
    assert_array_equal(packing.gather(padded, 20), row)
    on_device = jax.tree.map(jnp.asarray, packing)
    assert_array_equal(on_device.gather(jnp.float32(padded), 20), np.float32(row))
    assert_array_equal(on_device.spread(jnp.float32(row)), np.float32(padded))
    assert_array_equal(packing.inside(20), position >= 0)
    assert_array_equal(np.where(position >= 0, packing.position(20), -1), position)
    assert_array_equal(of_padded(LENGTHS, 8).inside(56).reshape(7, 8), np.arange(8) < LENGTHS[:, None])
    reshaped = jnp.float32(padded).reshape(1, 56, 2)
    assert_array_equal(of_padded(LENGTHS, 8).spread(jnp.where(reshaped == 0, jnp.nan, reshaped)), padded.astype("f"))
    both = on_device.join(jnp.float32(row), -jnp.float32(row))
    assert_array_equal(packing.twice().spread(both), np.concatenate([padded, -padded]).astype(np.float32))


def test_rows_are_little_longer_than_their_frames_and_of_few_lengths():
    frames = np.arange(1, 200_000, 7)
    lengths = np.array([row_length(int(n)) for n in frames])
    assert (lengths >= frames).all() and (lengths <= np.maximum(1.125 * frames, frames + 16)).all()
    assert len({int(n) for n in lengths if 2**15 < n <= 2**16}) == 8


def _answers(params, *data, backend):
    fitted = hmmjax.fit(params, *data, max_iterations=2, tolerance=0.0, backend=backend)
    ask = hmmjax.posterior, hmmjax.decode, hmmjax.log_likelihood, hmmjax.conditional_log_likelihood
    return (
        fitted.params,
        fitted.history,
        hmmjax.filter(params, *data[:2], backend=backend),
        *(function(params, *data, backend=backend) for function in ask),
    )


def test_programs_get_the_frames_of_videos(monkeypatch):
    """Counted, at lengths spread like those of Cholec80, whose longest video is 2.6 times the mean."""
    seen = []
    monkeypatch.setitem(BACKENDS, "counting", cases.packed_backend(seen))
    monkeypatch.setattr(batch, "LEAST_SAVED", 1)
    lengths = np.random.default_rng(1).permutation(np.linspace(18, 150, 24).astype(int) ** 2 // 60)
    case = cases.make(3, 2, 1, lengths=lengths, batch=24, num_frames=int(lengths.max()), known=0.1,
                      families=("PhaseConfusion", "ToolConfusion"))  # fmt: skip
    found, expected = (_answers(*case.args, backend=name) for name in ("counting", "logspace"))
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=2e-4, atol=1e-5), found, expected)
    frames = int(np.asarray(case.mask).sum())
    programs = {shape[0] * shape[1] for shape in seen}
    assert len(seen) >= 6 and programs and max(programs) <= 2 * 1.15 * frames  # labels and their complement together
    assert min(programs) <= 1.15 * frames < 0.5 * case.mask.size


def test_emissions_with_memory_see_no_other_video(monkeypatch):
    seen = []
    monkeypatch.setitem(BACKENDS, "counting", cases.packed_backend(seen))
    monkeypatch.setattr(batch, "LEAST_SAVED", 1)
    labels, obs, mask = hmmjax.sample(hmmjax.init_params(2, 2, emissions="confusion"), jax.random.key(0), [30, 4, 9, 6])
    params = hmmjax.estimate(labels, obs, mask, emissions="autoregressive")
    found, expected = (hmmjax.posterior(params, obs, mask, backend=name) for name in ("counting", "logspace"))
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)
    assert {videos for videos, _ in seen} == {1}


def test_batches_that_gain_nothing_stay_as_they_are(monkeypatch):
    uneven = cases.make(4, 2, 1, batch=3, num_frames=40, lengths=(40, 1, 1))
    assert prepare(uneven.params, uneven.obs, uneven.mask, None).packed().packing is None
    monkeypatch.setattr(batch, "LEAST_SAVED", 1)
    assert prepare(uneven.params, uneven.obs, uneven.mask, None).packed().packing is not None
    case = cases.make(4, 2, 1, batch=2, num_frames=16, lengths=(16, 16))
    full = prepare(case.params, case.obs, None, None)
    assert full.packed() is full
    single = prepare(case.params, jax.tree.map(lambda x: x[:1, :3], case.obs), None, None)
    assert single.packed() is single
    assert full.spread(case.mask) is case.mask

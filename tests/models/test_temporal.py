"""Temporal models: causality, independence of batch size, padding and other videos; and penalties."""

import numpy as np
import pytest

pytest.importorskip("flax", reason="needs the vision extra (flax)")

import jax
import jax.numpy as jnp
from flax import nnx

from models.temporal import TEMPORAL, Correlation, SequenceVAE, build, smoothing_loss

OPTIONS = {
    "lstm": {"width": 8},
    # Videos are longer than a block, so that a frame's past spans two blocks.
    "lapformer": {"width": 8, "heads": 2, "band": 5},
    "conv_lstm": {"cells": (1, 2, 3)},
    "map_attention": {"cells": (1, 2, 3), "width": 8, "heads": 2, "band": 5},
    "last": {"width": 8, "heads": 2, "layers": 2, "phase_band": 70, "tool_band": 3},
    "bilstm": {"width": 8},
    "mstcn": {"width": 8, "layers": 3, "stages": 2},
    "tecno": {"width": 8, "layers": 3},
    "asformer": {"width": 8, "layers": 3, "decoders": 1},
}
SIZES = {"phases": 3, "tools": 2}


@pytest.fixture(scope="module", params=sorted(TEMPORAL))
def model(request):
    """Return a model in evaluation mode, its jitted call, features (3, 150, 6) and a mask with a gap."""
    model = build(request.param, 6, sizes=SIZES, rngs=nnx.Rngs(0), **OPTIONS[request.param])
    model.eval()
    features = np.random.default_rng(0).normal(size=(3, 150, 6)).astype(np.float32)
    mask = np.ones((3, 150), bool)
    mask[1, 20:30] = False
    return model, jax.jit(lambda x, mask: model(x, mask)), features, mask


def assert_equal(a, b, **tolerance):
    compare = np.testing.assert_allclose if tolerance else np.testing.assert_array_equal
    jax.tree.map(lambda x, y: compare(x, y, **tolerance), a, b)


def part(answer, *index):
    return jax.tree.map(lambda x: np.asarray(x)[index], answer)


def test_only_models_that_are_not_causal_depend_on_later_frames(model):
    network, run, features, mask = model
    changed = features.copy()
    changed[:, 101:] = 1e3
    a, b = run(features, mask), run(changed, mask)
    past, after = (slice(None), slice(101)), (slice(None), slice(101, None))
    if network.causal:
        assert_equal(part(a, *past), part(b, *past))
    else:
        differs = jax.tree.map(lambda x, y: np.abs(x - y).max(), part(a, *past), part(b, *past))
        assert min(jax.tree.leaves(differs)) > 1e-3
    differs = jax.tree.map(lambda x, y: np.abs(x - y).max(), part(a, *after), part(b, *after))
    assert min(jax.tree.leaves(differs)) > 1e-3


@pytest.mark.thorough
def test_outputs_do_not_depend_on_batch_or_padding(model):
    network, run, features, mask = model
    whole = run(features, mask)
    for row in range(3):
        alone = network(features[row : row + 1], mask[row : row + 1])
        assert_equal(part(alone, 0), part(whole, row), rtol=1e-4, atol=1e-5)
    shorter, padded = network(features[:, :70], mask[:, :70]), run(features, mask & (np.arange(150) < 70))
    assert_equal(shorter, part(padded, slice(None), slice(70)), rtol=1e-4, atol=1e-5)


def test_missing_frames_do_not_affect_others(model):
    _, run, features, mask = model
    changed = features.copy()
    changed[1, 20:30] = np.nan
    a, b = run(features, mask), run(changed, mask)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[mask], y[mask]), a, b)


def test_videos_are_independent(model):
    _, run, features, mask = model
    changed = features.copy()
    changed[0] *= -1
    assert_equal(part(run(features, mask), 2), part(run(changed, mask), 2))


def test_a_windowed_lstm_forgets_what_is_before_its_window():
    """The output equals that of a clip of the last four frames from an empty state, as in MTRCNet."""
    whole, windowed = (build("lstm", 3, rngs=nnx.Rngs(0), width=4, window=window) for window in (None, 4))
    x = np.random.default_rng(0).normal(size=(2, 9, 3)).astype(np.float32)
    mask = np.ones((2, 9), bool)
    mask[1, 4] = False
    found = windowed(x, mask)
    for t in (0, 2, 3, 8):
        clip = slice(max(t - 3, 0), t + 1)
        np.testing.assert_allclose(found[:, t], whole(x[:, clip], mask[:, clip])[:, -1], atol=1e-6)
    assert np.abs(found - whole(x, mask))[:, 8].max() > 1e-4
    with pytest.raises(ValueError, match="window is 0"):
        build("lstm", 3, rngs=nnx.Rngs(0), window=0)


def test_lstm_equals_its_equations():
    model = build("lstm", 3, rngs=nnx.Rngs(0), width=4)
    x = np.random.default_rng(0).normal(size=(1, 6, 3)).astype(np.float32)
    enter, recur = np.asarray(model.enter.kernel[...]), np.asarray(model.recur.kernel[...])
    hidden = cell = np.zeros(4)
    for t in range(6):
        i, f, g, o = np.split(x[0, t] @ enter + hidden @ recur, 4)
        cell = cell / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        hidden = np.tanh(cell) / (1 + np.exp(-o))
        np.testing.assert_allclose(model(x)[0, t], hidden, atol=1e-5)


def test_attention_equals_its_definition():
    from models.temporal.attention import CausalAttention

    band, length = 4, 80
    layer = CausalAttention(4, 2, band, 0.0, dtype=jnp.float32, rngs=nnx.Rngs(0))
    x = np.random.default_rng(0).normal(size=(1, length, 4)).astype(np.float32)
    valid = np.ones((1, length), bool)
    valid[0, 10:12] = False
    q, k, v = np.split(np.asarray(layer.qkv(x))[0].reshape(length, 3, 2, 2), 3, 1)
    got = np.asarray(layer(x, valid, None))[0]
    for t in (0, 2, 10, 13, 66, 79):
        attended = [s for s in range(max(t - band + 1, 0), t + 1) if valid[0, s] or s == t]
        heads = []
        for h in range(2):
            weight = np.exp(k[attended, 0, h] @ q[t, 0, h] / np.sqrt(2))
            heads.append((weight / weight.sum()) @ v[attended, 0, h])
        want = layer.proj(jnp.asarray(np.concatenate(heads), jnp.float32))
        np.testing.assert_allclose(got[t], want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_receptive_fields_of_tcns(causal):
    """With two layers of dilation 1 and 2 a frame sees 3 frames on each side, or the 6 before it."""
    name = "tecno" if causal else "mstcn"
    model = build(name, 1, sizes={"phases": 2}, rngs=nnx.Rngs(0), width=32, layers=2, stages=1)
    model.eval()
    gradient = jax.grad(lambda x: model(x)["phases"][0, 10].sum())(jnp.ones((1, 20, 1)))
    seen = np.flatnonzero(np.abs(gradient[0, :, 0]))
    assert seen.tolist() == list(range(4, 11) if causal else range(7, 14))


def test_the_smoothing_loss():
    rng = np.random.default_rng(0)
    phases, tools = rng.normal(size=(2, 9, 3)) * 4, rng.normal(size=(2, 9, 2)) * 4
    mask = np.ones((2, 9), bool)
    mask[0, 4] = mask[1, 6:] = False
    log_phases = phases - np.log(np.exp(phases).sum(-1, keepdims=True))
    log_tools = np.stack([-np.log1p(np.exp(-tools)), -np.log1p(np.exp(tools))], -1).reshape(2, 9, 4)
    pairs = [(0, t) for t in (1, 2, 3, 6, 7, 8)] + [(1, t) for t in range(1, 6)]
    want = sum(
        np.mean([np.minimum((x[b, t] - x[b, t - 1]) ** 2, 16).mean() for b, t in pairs])
        for x in (log_phases, log_tools)
    )
    logits = {"phases": jnp.asarray(phases, jnp.float32), "tools": jnp.asarray(tools, jnp.float32)}
    np.testing.assert_allclose(smoothing_loss(logits, mask), want, rtol=1e-5)
    # The earlier frame of a pair is a constant, so a frame without a predecessor has no gradient.
    grad = np.asarray(jax.grad(lambda x: smoothing_loss({"phases": x}, mask))(logits["phases"]))
    assert (grad[0, [0, 4, 5]] == 0).all() and (grad[1, 0] == 0).all() and (grad != 0).any()
    assert smoothing_loss(jax.tree.map(lambda x: x[:, :1], logits), mask[:, :1]) == 0


@pytest.mark.parametrize(("window", "length"), [(1, 70), (4, 150), (128, 300), (128, 30)])
def test_window_attention_equals_its_definition(window, length):
    from models.temporal.asformer import WindowAttention

    layer = WindowAttention(4, window, dtype=jnp.float32, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(0)
    x, values = rng.normal(size=(2, 1, length, 4)).astype(np.float32)
    valid = np.ones((1, length), bool)
    valid[0, 10:12] = False
    q, k, v = (np.asarray(f(a))[0] for f, a in ((layer.query_conv, x), (layer.key_conv, x), (layer.value_conv, values)))
    got = np.asarray(layer(x, values, valid))[0]
    for t in sorted({0, 2, 13, 63, 64, 66, 127, 128, length - 1}):
        first = t // window * window - window // 2
        attended = [s for s in range(max(first, 0), min(first + 2 * window - 1, length)) if valid[0, s]]
        if t < length:
            weight = np.exp(k[attended] @ q[t] / np.sqrt(2))
            want = layer.conv_out(jnp.asarray(np.maximum(weight / weight.sum() @ v[attended], 0))[None, None])[0, 0]
            np.testing.assert_allclose(got[t], want, rtol=1e-4, atol=1e-5)


def test_asformer_drops_whole_channels_and_survives_missing_videos():
    options = {"width": 4, "layers": 1, "decoders": 0, "dropout": 0.0, "drop_inputs": 0.5}
    model = build("asformer", 8, sizes={"phases": 2}, rngs=nnx.Rngs(0), **options)
    mask = np.arange(9) < [[9], [0]]
    features = jnp.where(mask[..., None], jnp.ones((2, 9, 8)), jnp.nan)
    graph, params, rest = nnx.split(model, nnx.Param, ...)

    def run(params, seed):
        return nnx.merge(graph, params, rest)(features, mask, key=jax.random.key(seed))["phases"]

    # Equal frames stay equal inside the video, where the convolution does not reach its ends.
    first, second = (np.asarray(run(params, seed)) for seed in (0, 1))
    np.testing.assert_allclose(first[0, 1:8], np.broadcast_to(first[0, 1], (7, 2)), atol=1e-5)
    assert np.abs(first[0] - second[0]).max() > 1e-3
    grads = jax.grad(lambda params: (run(params, 0) ** 2).sum())(params)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((first, grads)))


def labels(rng):
    return {"phases": rng.integers(0, 3, (2, 9)), "tools": rng.integers(0, 2, (2, 9, 2))}


def test_the_correlation_loss():
    rng = np.random.default_rng(0)
    known, mask = labels(rng), np.ones((2, 9), bool)
    loss = Correlation(5, {"phases": 3, "tools": 2}, rngs=nnx.Rngs(0))
    reads = {"phases": jnp.asarray(rng.normal(size=(2, 9, 5)), jnp.float32)}
    implied = loss.imply(reads["phases"])
    p = np.asarray(jax.nn.sigmoid(implied))
    # Tools are summed, as MTRCNet-CL sums all its losses, and frames are averaged.
    entropy = -np.where(known["tools"] == 1, np.log(p), np.log(1 - p)).sum(-1).mean()
    # If the predicted tools equal the implied ones, only the linear map's own loss remains.
    np.testing.assert_allclose(loss({"tools": implied}, reads, known, mask), entropy, rtol=1e-5)
    predicted = rng.normal(size=(2, 9, 2)).astype(np.float32)
    q = np.asarray(jax.nn.sigmoid(predicted))
    divergence = (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).sum(-1).mean()
    np.testing.assert_allclose(loss({"tools": predicted}, reads, known, mask), entropy + divergence, rtol=1e-4)
    as_source = Correlation(5, {"phases": 3, "tools": 2}, form="source", rngs=nnx.Rngs(0))
    source = np.abs((p * (np.log(p) - q)).sum()) / p[..., 0].size
    np.testing.assert_allclose(as_source({"tools": predicted}, reads, known, mask), entropy + source, rtol=1e-4)
    with pytest.raises(ValueError, match="choose kl or source"):
        Correlation(5, {"tools": 2}, form="both", rngs=nnx.Rngs(0))


@pytest.mark.thorough
def test_the_sequence_vae():
    rng = np.random.default_rng(0)
    known, mask = labels(rng), np.ones((2, 9), bool)
    known["phases"][0, 3] = -1
    mask[1, 6:] = False
    vae = SequenceVAE(5, {"phases": 3, "tools": 2}, rngs=nnx.Rngs(0))
    vae.eval()
    logits = {"phases": rng.normal(size=(2, 9, 3)), "tools": rng.normal(size=(2, 9, 2))}
    loss = jax.jit(lambda logits: vae(logits, {}, known, mask))
    value, grads = jax.value_and_grad(loss)(jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), logits))
    assert value > 0
    used = mask & (known["phases"] >= 0)
    for grad in grads.values():
        assert (np.abs(grad[used]).max(-1) > 0).all() and (np.asarray(grad)[~used] == 0).all()
    # Equal summaries have zero divergence.
    vae.read[1].kernel.set_value(vae.read[0].kernel[...])
    vae.look.set_value(jnp.broadcast_to(vae.look[...][:1], vae.look[...].shape))
    exact = {"phases": 200.0 * jax.nn.one_hot(known["phases"], 3), "tools": 400.0 * (known["tools"] - 0.5)}
    np.testing.assert_allclose(jax.jit(lambda logits: vae(logits, {}, known, mask))(exact), 0, atol=1e-6)
    unlabeled = {"phases": np.full((2, 9), -1), "tools": known["tools"]}
    assert vae(logits, {}, unlabeled, mask) == 0


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("lapformer", {"width": 8, "heads": 3}, "width 8 is not a multiple of heads, 3"),
        ("lapformer", {"width": 8, "heads": 2, "band": 0}, "band is 0"),
        ("last", {"width": 8, "heads": 2, "tool_band": -1}, "band is -1"),
        ("lstm", {"witdh": 8}, "lstm cannot be built with the options witdh"),
        ("mstcn", {}, "mstcn computes logits itself. Fix: pass sizes"),
        ("mstcn", {"sizes": SIZES, "stages": 0}, "stages is 0"),
        ("mstcn", {"sizes": SIZES, "smoothness": -1}, "smoothness is -1"),
        ("asformer", {"sizes": SIZES, "width": 7}, "width is 7"),
        ("asformer", {"sizes": SIZES, "layers": 0}, "layers is 0"),
        ("tecno", {"sizes": SIZES, "causal": False}, "tecno cannot be built with the options"),
    ],
)
def test_invalid_options(name, options, message):
    with pytest.raises(ValueError, match=message):
        build(name, 6, rngs=nnx.Rngs(0), **options)


def test_videos_of_one_frame(model):
    """The output for a one-frame video equals the output at the first frame of a longer one, if that is causal."""
    model, run, features, mask = model
    alone = model(jnp.asarray(features[:, :1]), jnp.asarray(mask[:, :1]))
    longer = run(features, mask if model.causal else mask & (np.arange(150) < 1))
    assert_equal(alone, part(longer, slice(None), slice(1)), atol=1e-5)

"""Layers: hand-written gradients against autodiff, and training and evaluation mode."""

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flax", reason="needs the vision extra (flax)")

import jax
import jax.numpy as jnp
from flax import nnx
from jax.test_util import check_grads

import models
from models.backbones.attention import relative_position_index, softmax, window_regions
from models.backbones.depthwise import CHANNELS, Depthwise, convolve
from models.backbones.layers import BatchNorm, Dropout, LayerNorm, PatchConv, gelu
from models.backbones.pooling import adaptive_average_pool, max_pool, spatial_max
from models.backbones.resnet import ResNet


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def wide(layer, **values):
    """Return a copy of a layer in float64 with the given parameters."""
    state = jax.tree.map(lambda x: x.astype(jnp.float64), nnx.state(layer))
    layer = nnx.merge(nnx.graphdef(layer), state, copy=True)
    for name, value in values.items():
        getattr(layer, name).set_value(value)
    return layer


def plain_batch_norm(x, scale, bias, residual, relu):
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    y = (x - mean) / jnp.sqrt(var + 1e-5) * scale + bias
    y = y if residual is None else y + residual
    return jax.nn.relu(y) if relu else y


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("with_residual", [False, True])
def test_batch_norm_gradient_equals_autodiff(float64, relu, with_residual):
    x, scale, bias = 3 + normal(4, 3, 5, 6), normal(6, seed=1), normal(6, seed=2)
    residual = normal(4, 3, 5, 6, seed=3) if with_residual else None
    weight = normal(4, 3, 5, 6, seed=4)

    def ours(x, scale, bias, residual):
        layer = wide(BatchNorm(6), scale=scale, bias=bias)
        return (layer(x, residual, relu=relu) * weight).sum()

    def plain(x, scale, bias, residual):
        return (plain_batch_norm(x, scale, bias, residual, relu) * weight).sum()

    which = (0, 1, 2, 3) if with_residual else (0, 1, 2)
    for got, want in zip(
        jax.value_and_grad(ours, which)(x, scale, bias, residual),
        jax.value_and_grad(plain, which)(x, scale, bias, residual),
        strict=True,
    ):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), got, want)


def test_batch_norm_statistics_equal_torchs():
    x = 2 + 3 * normal(4, 3, 5, 6).astype(jnp.float32)
    layer = BatchNorm(6)
    layer(x)
    np.testing.assert_allclose(layer.mean[...], 0.1 * x.mean((0, 1, 2)), rtol=1e-5)
    np.testing.assert_allclose(layer.var[...], 0.9 + 0.1 * np.var(x, (0, 1, 2), ddof=1), rtol=1e-5)
    before = np.array(layer.mean[...])
    layer.eval()
    alone = layer(x[:1])
    np.testing.assert_array_equal(layer.mean[...], before)
    np.testing.assert_allclose(alone, layer(x)[:1], rtol=1e-6)


def test_batch_norm_of_an_empty_batch_keeps_its_statistics():
    norm = BatchNorm(3)
    with pytest.raises(ValueError, match="empty input"):
        norm(jnp.zeros((0, 2, 2, 3)))
    np.testing.assert_array_equal(norm.mean[...], np.zeros(3))
    norm.set_view(use_running_average=True)
    assert norm(jnp.zeros((0, 2, 2, 3))).shape == (0, 2, 2, 3)


def test_layer_norm_gradient_equals_autodiff(float64):
    x, scale, bias, weight = normal(2, 3, 5), normal(5, seed=1), normal(5, seed=2), normal(2, 3, 5, seed=3)

    def ours(x, scale, bias):
        return (wide(LayerNorm(5), scale=scale, bias=bias)(x) * weight).sum()

    def plain(x, scale, bias):
        y = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return ((y * scale + bias) * weight).sum()

    for got, want in zip(
        jax.value_and_grad(ours, (0, 1, 2))(x, scale, bias),
        jax.value_and_grad(plain, (0, 1, 2))(x, scale, bias),
        strict=True,
    ):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), got, want)


@pytest.mark.parametrize("size", [2, 4])
def test_patches_are_those_of_a_convolution(size):
    """Incomplete patches at the edges are ignored; the gradient reaches input and parameters."""
    layer = PatchConv(3, 5, size, dtype=jnp.float32, rngs=nnx.Rngs(0), kernel_init=nnx.initializers.normal())
    layer.bias.set_value(normal(5).astype(jnp.float32))
    x = normal(2, 2 * size + 1, 3 * size, 3, seed=1).astype(jnp.float32)

    def plain(kernel, x):
        out = jax.lax.conv_general_dilated(
            x, kernel, (size, size), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"), precision="highest"
        )
        return out + layer.bias[...]

    graph, kernels, rest = nnx.split(layer, lambda path, _: path[-1] == "kernel", ...)

    def ours(kernel, x):
        return nnx.merge(graph, jax.tree.map(lambda _: kernel, kernels), rest)(x)

    kernel = layer.kernel[...]
    want, back = jax.vjp(plain, kernel, x)
    got, ours_back = jax.vjp(ours, kernel, x)
    assert got.shape == (2, 2, 3, 5)
    np.testing.assert_allclose(got, want, atol=1e-5)
    for a, b in zip(ours_back(want), back(want), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.parametrize(("size", "shape"), [(7, (2, 5, 9)), (3, (1, 4, 3))])
def test_depthwise_kernels_equal_the_convolution(size, shape):
    """Output and both gradients, where the last tile of pixels is not full and filters reach over all edges."""
    x, grad = (normal(*shape, CHANNELS, seed=seed).astype(jnp.float32) for seed in (0, 1))
    kernel = normal(size, size, CHANNELS, seed=2).astype(jnp.float32)

    def plain(x, kernel):
        side = size // 2
        return jax.lax.conv_general_dilated(
            x,
            kernel[:, :, None],
            (1, 1),
            ((side, side), (side, side)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=CHANNELS,
            precision="highest",
        )

    got, ours_back = jax.vjp(convolve, x, kernel)
    want, back = jax.vjp(plain, x, kernel)
    np.testing.assert_allclose(got, want, atol=1e-4)
    for a, b in zip(ours_back(grad), back(grad), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_depthwise_kernels_refuse_numbers_of_channels_that_they_would_cut():
    layer = Depthwise(96, 3, fast=True, dtype=jnp.float32, rngs=nnx.Rngs(0), kernel_init=nnx.initializers.normal())
    with pytest.raises(ValueError, match="96 channels are no multiple of 64"):
        layer(jnp.zeros((1, 4, 4, 96)))


def test_depthwise_layers_take_the_plain_form_without_a_gpu():
    options = {"dtype": jnp.bfloat16, "rngs": nnx.Rngs(0), "kernel_init": nnx.initializers.normal()}
    found = {}
    for fast in (None, True, False):
        layer = Depthwise(CHANNELS, 3, fast=fast, **options)
        found[fast] = "pallas_call" in str(jax.make_jaxpr(layer)(jnp.zeros((1, 4, 4, CHANNELS))))
    assert found == {None: jax.default_backend() == "gpu", True: True, False: False}


@pytest.mark.parametrize(
    ("size", "stride", "padding", "shape"), [(3, 2, 1, (7, 8)), (3, 2, 0, (9, 6)), (2, 2, 0, (5, 4))]
)
def test_max_pool_equals_reduce_window(float64, size, stride, padding, shape):
    x = normal(2, *shape, 3)

    def plain(x):
        edges = ((0, 0), (padding, padding), (padding, padding), (0, 0))
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, size, size, 1), (1, stride, stride, 1), edges)

    weight = normal(*plain(x).shape, seed=1)
    got = jax.value_and_grad(lambda x: (max_pool(x, size, stride, padding) * weight).sum())(x)
    want = jax.value_and_grad(lambda x: (plain(x) * weight).sum())(x)
    jax.tree.map(np.testing.assert_allclose, got, want)


def test_max_pool_gradient_of_ties_goes_to_the_first():
    grad = jax.grad(lambda x: max_pool(x, 2, 2).sum())(jnp.ones((1, 2, 2, 1)))
    np.testing.assert_array_equal(grad[0, :, :, 0], [[1, 0], [0, 0]])


def test_max_pool_rejects_maps_that_are_too_small():
    with pytest.raises(ValueError, match="too small to pool"):
        max_pool(jnp.ones((1, 2, 4, 1)), 3, 2)


def test_softmax_and_gelu_gradients(float64):
    check_grads(lambda x: softmax(x, jnp.float64) * jnp.arange(5.0), (normal(3, 5),), 1, modes=["rev"])
    x = normal(50)
    np.testing.assert_allclose(gelu(x), jax.nn.gelu(x, approximate=False), rtol=1e-12)
    check_grads(gelu, (x,), 1, modes=["rev"])


def test_adaptive_pool_bins_equal_torchs():
    x = jnp.arange(10.0).reshape(1, 10, 1, 1)
    # torch.nn.functional.adaptive_avg_pool1d(torch.arange(10.), 4), and its transpose.
    np.testing.assert_allclose(adaptive_average_pool(jnp.broadcast_to(x, (1, 10, 4, 1)), 4)[0, :, 0, 0], [1, 3, 6, 8])
    assert adaptive_average_pool(jnp.ones((1, 3, 5, 2)), 6).shape == (1, 6, 6, 2)


def test_dropout_by_mode():
    x, key = jnp.ones((64, 4, 8)), jax.random.key(0)
    whole, single = Dropout(0.25, samples=True), Dropout(0.25)
    output = np.array(whole(x, key))
    assert set(np.unique(output)) == {0.0, np.float32(1 / 0.75)}
    assert (output == output[:, :1, :1]).all() and 0 < (output[:, 0, 0] == 0).mean() < 0.6
    assert 0.2 < (np.array(single(x, key)) == 0).mean() < 0.3
    with pytest.raises(ValueError, match="needs a key"):
        single(x, None)
    for layer in (whole, single):
        layer.eval()
        np.testing.assert_array_equal(layer(x, None), x)


def test_regions_of_shifted_windows():
    # By hand: a map of 4x4 in windows of 2, shifted by 1: the last window of each axis wraps around.
    got = window_regions(2, 2, 2, (1, 1)).reshape(2, 2, 2, 2)
    assert len(set(got[0, 0].ravel())) == 1 and len(set(got[1, 1].ravel())) == 4
    assert got[0, 1, 0, 0] == got[0, 1, 1, 0] != got[0, 1, 0, 1]
    assert len(set(window_regions(1, 2, 2, (0, 1))[0])) == 1


def test_relative_position_index():
    index = relative_position_index(3)
    y, x = np.divmod(np.arange(9), 3)
    for i in range(9):
        for j in range(9):
            assert index[i, j] == (y[i] - y[j] + 2) * 5 + (x[i] - x[j] + 2)


@pytest.mark.parametrize("rate", [1.0, -0.1, float("nan")])
def test_dropout_rate_is_checked(rate):
    with pytest.raises(ValueError, match="dropout rate"):
        Dropout(rate)


def test_frozen_normalization_never_changes():
    """In training it normalizes by the running statistics, and neither these nor its factors learn."""
    network = ResNet((1, 0, 0, 0), False, frozen_norm=True, rngs=nnx.Rngs(0))
    images = jnp.asarray(np.random.default_rng(0).normal(size=(2, 16, 16, 3)), jnp.float32)
    before = jax.tree.map(np.array, nnx.state(network, nnx.BatchStat))
    network.train()
    graph, params, rest = nnx.split(network, nnx.Param, ...)

    def loss(params):
        trained = nnx.merge(graph, params, rest, copy=True)
        return (trained(images).pooled ** 2).sum(), nnx.state(trained, nnx.BatchStat)

    grads, after = jax.jit(jax.grad(loss, has_aux=True))(params)
    jax.tree.map(np.testing.assert_array_equal, before, after)
    moved: dict[str, bool] = {}
    for path, x in jax.tree_util.tree_leaves_with_path(grads):
        names = [getattr(entry, "key", None) for entry in path]
        kind = next(name for name in ("kernel", "scale", "bias") if name in names)
        moved[kind] = moved.get(kind, False) or bool((np.asarray(x) != 0).any())
    assert moved["kernel"] and not moved["scale"] and not moved["bias"]
    network.eval()
    np.testing.assert_array_equal(network(images).pooled, nnx.merge(graph, params, rest)(images).pooled)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_of_a_spatial_maximum_goes_to_the_first_one(dtype):
    """Also if cells are equal; it has no division by the number of equal cells, which may be zero after rounding."""
    x = jnp.asarray(np.random.default_rng(0).integers(-3, 4, (2, 3, 4, 5, 6)), dtype)
    given = jnp.asarray(np.random.default_rng(1).normal(size=(2, 3, 6)), dtype)
    found, pull = jax.vjp(spatial_max, x)
    (gradient,) = pull(given)
    assert found.dtype == gradient.dtype == x.dtype
    np.testing.assert_array_equal(found, np.asarray(x).max((2, 3)))
    np.testing.assert_array_equal(spatial_max(x), found)
    want = np.zeros((2, 3, 20, 6), x.dtype)
    first = np.asarray(x).reshape(want.shape).argmax(2)[:, :, None]
    np.put_along_axis(want, first, np.asarray(given)[:, :, None], 2)
    np.testing.assert_array_equal(gradient, want.reshape(x.shape))


def test_no_network_differentiates_the_maximum_of_jax():
    """Its gradient divides by a count of equal numbers that is zero if XLA rounds them differently the second time."""
    folder = Path(models.__file__).parent
    for part in ("backbones", "temporal", "systems"):
        for path in (folder / part).glob("*.py"):
            lines = path.read_text().splitlines()
            used = [line for line in lines if re.search(r"\.(max|min)\(\(?-?\d|jnp\.(max|min)\(", line)]
            assert [line.strip() for line in used] == ["return x.max((-3, -2))"] * (path.name == "pooling.py"), path

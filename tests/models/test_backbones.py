"""Backbones: parity with torchvision at any image size, weights under torchvision's names, and options."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flax", reason="needs the vision extra (flax)")

import jax
import jax.numpy as jnp
from flax import nnx
from make_reference import CLASSES, SIZES, images_for, weights_for

from models.backbones import build
from models.backbones.layers import Dropout
from models.backbones.swin import Swin
from models.weights import WeightsError, entries, export_state, load_state

SMALL = ("alexnet", "resnet18", "swin_t")  # one of each family
IMAGES = np.random.default_rng(0).standard_normal((2, 64, 96, 3)).astype(np.float32)


def small_swin(**options):
    """Build a Swin with one regular and one shifted block, quick to compile."""
    return Swin(16, (2, 0, 0, 0), (2, 2, 4, 4), drop_path=0.5, rngs=nnx.Rngs(0), **options)


def shaped(name, **options):
    """Build a backbone of abstract parameters, which are quick to make and are then filled with weights."""
    return nnx.eval_shape(lambda: build(name, rngs=nnx.Rngs(0), **options))


def shapes_of(network):
    """Return the shape of each entry of a network's state dict, without implied buffers."""
    return {entry.name: entry.shape for entry in entries(network)}


def filled(name, **options):
    """Build a backbone with weights derived from its parameters' names."""
    network = shaped(name, **options)
    with pytest.raises(WeightsError) as caught:
        load_state(network, {})
    shapes = shapes_of(network)
    assert sorted(shapes) == caught.value.missing
    load_state(network, {key: weights_for(key, shape) for key, shape in shapes.items()})
    return network


def apply(network, images, method="classify", key=None):
    graph, state = nnx.split(network)
    return jax.jit(lambda state, images: getattr(nnx.merge(graph, state), method)(images, key=key))(state, images)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["alexnet", "vgg16", "resnet18", "resnet50", "swin_t", "swin_b"])
def test_parity_with_torchvision(parity, name):
    recorded, reference = parity
    network = shaped(name, classes=1000)
    network.eval()
    shapes = [tuple(map(int, text.split())) for text in recorded[f"{name}/shapes"]]
    state = {k: reference.weights_for(k, s) for k, s in zip(recorded[f"{name}/keys"], shapes, strict=True)}
    load_state(network, state)
    want = recorded[f"{name}/logits"]
    got = apply(network, reference.image().transpose(0, 2, 3, 1))
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()
    exported = export_state(network)
    assert set(exported) >= set(state)
    for key, value in state.items():
        np.testing.assert_array_equal(exported[key], value)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [n if n in SMALL else pytest.param(n, marks=pytest.mark.slow) for n in SIZES])
def test_parity_at_sizes_no_stride_divides(name):
    images = images_for(name)
    network = filled(name, classes=CLASSES)
    with np.load(Path(__file__).with_name("reference.npz")) as recorded:
        names = {f"{key} {' '.join(map(str, shape))}" for key, shape in shapes_of(network).items()}
        assert names == set(recorded[f"{name}/names"])
        modes = [mode for mode in ("eval", "train") if mode == "eval" or name in ("alexnet", "resnet18", "swin_t")]
        for mode in modes:
            getattr(network, mode)()
            for _, module in nnx.iter_modules(network):
                if isinstance(module, Dropout):
                    module.rate = 0.0
            want = recorded[f"{name}/{mode}"]
            assert np.abs(apply(network, images) - want).max() <= 1e-4 * np.abs(want).max()


# Pooled width, and channels at each stride.
SHAPES = {
    "alexnet": (4096, {4: 64, 8: 192, 16: 256, 32: 256}),
    "small": (192, {2: 16, 4: 32, 8: 64, 16: 96}),
    "resnet18": (512, {2: 64, 4: 64, 8: 128, 16: 256, 32: 512}),
    "resnet34": (512, {2: 64, 4: 64, 8: 128, 16: 256, 32: 512}),
    "resnet50": (2048, {2: 64, 4: 256, 8: 512, 16: 1024, 32: 2048}),
    "vgg16": (4096, {1: 64, 2: 128, 4: 256, 8: 512, 16: 512, 32: 512}),
    "swin_t": (768, {4: 96, 8: 192, 16: 384, 32: 768}),
    "swin_s": (768, {4: 96, 8: 192, 16: 384, 32: 768}),
    "swin_b": (1024, {4: 128, 8: 256, 16: 512, 32: 1024}),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", SHAPES)
def test_features_and_maps(name):
    width, channels = SHAPES[name]
    network = shaped(name)
    features = nnx.eval_shape(lambda net: net(jnp.zeros((2, 96, 160, 3)), key=jax.random.key(0)), network)
    assert network.width == width
    assert features.pooled.shape == (2, width)
    for stride, x in features.maps.items():
        assert x.shape[-1] == channels.pop(stride)
        # AlexNet's convolutions and pooling drop a border.
        assert name == "alexnet" or x.shape[:3] == (2, 96 // stride, 160 // stride)
    assert not channels


def test_late_stages_at_stride_one():
    network = shaped("resnet18", strides=(1, 2, 1, 1))
    features = nnx.eval_shape(lambda net: net(jnp.zeros((1, 480, 854, 3))), network)
    assert features.maps[8].shape == (1, 60, 107, 512)


@pytest.mark.thorough
@pytest.mark.parametrize("option", [{"fold_stem": True}, {"align": 8}])
def test_equivalent_arithmetic_gives_the_same_result(option):
    images = IMAGES[:, :63, :91]
    make = small_swin if "align" in option else lambda **options: filled("resnet18", **options)
    network, other = make(classes=5), make(classes=5, **option)
    for net in (network, other):
        net.eval()
    np.testing.assert_allclose(apply(other, images), apply(network, images), rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["resnet18", "swin"])
def test_remat_preserves_loss_and_gradient(name):
    def loss_and_grads(remat):
        options = {"classes": 3, "remat": remat}
        network = small_swin(**options) if name == "swin" else filled(name, **options)
        graph, params, rest = nnx.split(network, nnx.Param, ...)

        def loss(params, rest):
            net = nnx.merge(graph, params, rest, copy=True)
            value = (net.classify(IMAGES, key=jax.random.key(0)) ** 2).mean()
            return value, nnx.split(net, nnx.Param, ...)[2]

        return jax.jit(jax.value_and_grad(loss, has_aux=True))(params, rest)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5 * np.abs(a).max() + 1e-7),
        loss_and_grads(False),
        loss_and_grads(True),
    )


@pytest.mark.thorough
def test_training_mode_is_random_and_evaluation_is_not():
    network = small_swin(classes=3)
    one, two = (apply(network, IMAGES, key=jax.random.key(i)) for i in range(2))
    assert np.abs(one - two).max() > 0
    with pytest.raises(ValueError, match="needs a key"):
        apply(network, IMAGES)
    network.eval()
    np.testing.assert_allclose(apply(network, IMAGES)[:1], apply(network, IMAGES[:1]), rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_bfloat16_keeps_float32_parameters():
    network, exact = filled("resnet18", classes=3, dtype=jnp.bfloat16), filled("resnet18", classes=3)
    assert {x.dtype for x in jax.tree.leaves(nnx.state(network))} == {jnp.dtype("float32")}
    for net in (network, exact):
        net.eval()
    got, want = (np.asarray(apply(net, IMAGES), np.float32) for net in (network, exact))
    assert 0 < np.abs(got - want).max() < 0.05 * np.abs(want).max()


@pytest.mark.thorough
def test_graph_and_tree_mode_agree():
    network = filled("resnet18", classes=3)
    network.eval()
    want = apply(network, IMAGES)
    graph, state = nnx.split(network, graph=False)
    np.testing.assert_array_equal(jax.jit(lambda s: nnx.merge(graph, s).classify(IMAGES))(state), want)
    assert hash(nnx.graphdef(network)) == hash(nnx.graphdef(network))


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "resnet18", "swin_t", "small"])
def test_an_empty_batch(name):
    net = shaped(name)
    net.eval()
    features = nnx.eval_shape(lambda net: net(jnp.zeros((0, 64, 64, 3))), net)
    assert features.pooled.shape == (0, net.width)


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "swin_t"])
def test_images_that_are_too_small(name):
    net = shaped(name)
    net.eval()
    with pytest.raises(ValueError, match="use larger images"):
        nnx.eval_shape(lambda net: net(jnp.zeros((1, 3, 40, 3))), net)


def test_unknown_backbone():
    with pytest.raises(ValueError, match="resnet18"):
        build("resnet19", rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="resnet18 cannot be built with the options remta"):
        build("resnet18", remta=True, rngs=nnx.Rngs(0))

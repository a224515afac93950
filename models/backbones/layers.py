"""Layers that Flax lacks, or that run faster on a GPU with a hand-written gradient.

Activations are NHWC. Parameters are float32; layers compute in their `dtype`, and statistics in float32.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.typing import DTypeLike

#: torchvision's initializer of the convolutions of ResNet and VGG (He, fan out).
he_normal = nnx.initializers.variance_scaling(2.0, "fan_out", "normal")
#: torch's default initializer: uniform within one over the square root of the fan-in.
torch_uniform = nnx.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def conv(
    inputs: int,
    outputs: int,
    size: int,
    stride: int = 1,
    padding: int = 0,
    *,
    bias: bool = True,
    dtype: DTypeLike,
    rngs: nnx.Rngs,
    kernel_init=he_normal,
) -> nnx.Conv:
    """Build a square convolution with torch's explicit symmetric padding."""
    return nnx.Conv(
        inputs,
        outputs,
        (size, size),
        stride,
        padding=((padding, padding), (padding, padding)),
        use_bias=bias,
        dtype=dtype,
        kernel_init=kernel_init,
        rngs=rngs,
    )


class PatchConv(nnx.Conv):
    """A convolution of square patches that do not overlap, computed as one matrix product.

    Matrix units are as fast for the few channels of an image as for many in this form, also in the filter's gradient.
    Incomplete patches at the lower and right edges are ignored, as a convolution without padding does.

    Args:
        inputs: number of channels of the input.
        outputs: number of channels C of the output.
        size: side of a patch.
        dtype: in which the layer computes.
        rngs: for the initial parameters.
        kernel_init: of the kernel.
    """

    def __init__(self, inputs: int, outputs: int, size: int, *, dtype: DTypeLike, rngs: nnx.Rngs, kernel_init):
        options = {"dtype": dtype, "kernel_init": kernel_init, "rngs": rngs}
        super().__init__(inputs, outputs, (size, size), size, padding="VALID", **options)

    def __call__(self, x: Array) -> Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Compute (N, H / size, W / size, C) from x (N, H, W, inputs)."""
        size, outputs = self.kernel_size[0], self.out_features
        n, rows, columns, inputs = x.shape[0], x.shape[1] // size, x.shape[2] // size, x.shape[3]
        x = x[:, : rows * size, : columns * size].astype(self.dtype)
        x = x.reshape(n, rows, size, columns, size, inputs).transpose(0, 1, 3, 2, 4, 5)
        kernel = self.kernel[...].astype(self.dtype).reshape(-1, outputs)
        x = x.reshape(n, rows, columns, -1) @ kernel
        return x if self.bias is None else x + self.bias[...].astype(self.dtype)


class BatchNorm(nnx.Module):
    """Batch normalization over (N, H, W), fused with the addition and ReLU that follow it in a residual block.

    One operation with a hand-written gradient, because the residuals of autodiff (float32 copies of activations)
    cost more than the arithmetic: training a ResNet is limited by memory bandwidth. The statistics are those of the
    whole batch, also if it is sharded.

    Args:
        features: number of channels C.
        momentum: weight of the new batch in the running statistics, as in torch.
        epsilon: added to the variance.

    Attributes:
        frozen: normalize by the running statistics in training too, and leave them and the factors unchanged.
    """

    frozen = False

    def __init__(self, features: int, *, momentum: float = 0.1, epsilon: float = 1e-5):
        self.scale = nnx.Param(jnp.ones(features, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(features, jnp.float32))
        self.mean = nnx.BatchStat(jnp.zeros(features, jnp.float32))
        self.var = nnx.BatchStat(jnp.ones(features, jnp.float32))
        self.momentum = momentum
        self.epsilon = epsilon
        self.use_running_average = False

    def __call__(self, x: Array, residual: Array | None = None, *, relu: bool = False) -> Array:
        """Normalize, add `residual`, and apply a ReLU.

        Args:
            x: (N, H, W, C).
            residual: (N, H, W, C), added after normalization, or None.
            relu: whether to apply a ReLU.

        Returns:
            (N, H, W, C), in x's dtype.

        Raises:
            ValueError: in training mode for an empty x, which would turn the running statistics into NaN.
        """
        scale, bias = self.scale[...], self.bias[...]
        if self.frozen:
            scale, bias = jax.lax.stop_gradient((scale, bias))
        if self.use_running_average or self.frozen:
            gain = scale * jax.lax.rsqrt(self.var[...] + self.epsilon)
            return _finish(x * gain + (bias - self.mean[...] * gain), residual, relu, x.dtype)
        if not x.size:
            raise ValueError(
                f"batch normalization in training mode got an empty input {x.shape}. Fix: pass at least one image"
            )
        out, mean, var = _batch_norm(x, scale, bias, residual, relu, self.epsilon)
        count = x.size // x.shape[-1]
        unbiased = var * (count / max(count - 1, 1))  # torch stores the unbiased variance, but normalizes by the biased
        self.mean[...] += self.momentum * jax.lax.stop_gradient(mean - self.mean[...])
        self.var[...] += self.momentum * jax.lax.stop_gradient(unbiased - self.var[...])
        return out

    def set_view(self, use_running_average: bool | None = None) -> None:
        """Set the mode; ``nnx.view``, `train` and `eval` call this."""
        if use_running_average is not None:
            self.use_running_average = use_running_average


def _finish(y: Array, residual: Array | None, relu: bool, dtype: DTypeLike) -> Array:
    if residual is not None:
        y = y + residual
    return (jax.nn.relu(y) if relu else y).astype(dtype)


def _normalize_batch(
    x: Array, scale: Array, bias: Array, residual: Array | None, relu: bool, epsilon: float
) -> tuple[Array, Array, Array]:
    """Return the output, and the mean and the biased variance of each channel."""
    return _batch_norm_forward(x, scale, bias, residual, relu, epsilon)[0]


def _batch_norm_forward(x, scale, bias, residual, relu, epsilon):
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    # Both moments in one pass over x.
    mean = wide.mean((0, 1, 2))
    var = jnp.maximum((wide * wide).mean((0, 1, 2)) - mean * mean, 0)
    inverse = jax.lax.rsqrt(var + epsilon)
    out = _finish((wide - mean) * (inverse * scale) + bias, residual, relu, x.dtype)
    # The backward pass only needs to know whether there was a residual: () marks one without storing an array.
    return (out, mean, var), (x, scale, mean, inverse, None if residual is None else (), out if relu else None)


def _batch_norm_backward(relu, epsilon, residuals, cotangents):
    x, scale, mean, inverse, residual, out = residuals
    grad = cotangents[0].astype(mean.dtype)
    if relu:
        grad = jnp.where(out > 0, grad, 0)
    normal = (x.astype(mean.dtype) - mean) * inverse
    count = x.size // x.shape[-1]
    bias_grad = grad.sum((0, 1, 2))
    scale_grad = (grad * normal).sum((0, 1, 2))
    x_grad = (inverse * scale) * (grad - (bias_grad + normal * scale_grad) / count)
    return x_grad.astype(x.dtype), scale_grad, bias_grad, None if residual is None else grad.astype(x.dtype)


_batch_norm = jax.custom_vjp(_normalize_batch, nondiff_argnums=(4, 5))
_batch_norm.defvjp(_batch_norm_forward, _batch_norm_backward)


class LayerNorm(nnx.Module):
    """Layer normalization over channels, with a hand-written gradient that saves memory bandwidth.

    Args:
        features: number of channels C.
        epsilon: added to the variance.
    """

    def __init__(self, features: int, *, epsilon: float = 1e-5):
        self.scale = nnx.Param(jnp.ones(features, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(features, jnp.float32))
        self.epsilon = epsilon

    def __call__(self, x: Array) -> Array:
        """Normalize x (..., C) over its last axis, in x's dtype."""
        return _layer_norm(x, self.scale[...], self.bias[...], self.epsilon)


def _normalize_channels(x: Array, scale: Array, bias: Array, epsilon: float) -> Array:
    return _layer_norm_forward(x, scale, bias, epsilon)[0]


def _layer_norm_forward(x, scale, bias, epsilon):
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mean = wide.mean(-1, keepdims=True)
    var = jnp.maximum((wide * wide).mean(-1, keepdims=True) - mean * mean, 0)
    inverse = jax.lax.rsqrt(var + epsilon)
    return ((wide - mean) * inverse * scale + bias).astype(x.dtype), (x, scale, mean, inverse)


def _layer_norm_backward(epsilon, residuals, grad):
    x, scale, mean, inverse = residuals
    normal = (x.astype(mean.dtype) - mean) * inverse
    grad = grad.astype(mean.dtype)
    axes = tuple(range(x.ndim - 1))
    inner = grad * scale
    x_grad = inverse * (inner - inner.mean(-1, keepdims=True) - normal * (inner * normal).mean(-1, keepdims=True))
    return x_grad.astype(x.dtype), (grad * normal).sum(axes), grad.sum(axes)


_layer_norm = jax.custom_vjp(_normalize_channels, nondiff_argnums=(3,))
_layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


@jax.checkpoint
def gelu(x: Array) -> Array:
    """Compute the exact GELU; the backward pass recomputes it, which is cheaper than storing a float32 intermediate."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return (0.5 * wide * (1 + jax.lax.erf(wide * 2**-0.5))).astype(x.dtype)


class Dropout(nnx.Module):
    """Dropout of activations, or of whole samples of a residual branch (stochastic depth).

    Args:
        rate: probability of dropping, in [0, 1).
        samples: drop whole samples (stochastic depth, Huang et al. 2016) instead of single activations.

    Raises:
        ValueError: for a rate outside [0, 1).
    """

    def __init__(self, rate: float, *, samples: bool = False):
        if not 0 <= rate < 1:
            raise ValueError(f"the dropout rate is {rate}: give a number in [0, 1)")
        self.rate = rate
        self.samples = samples
        self.deterministic = False

    def __call__(self, x: Array, key: Array | None) -> Array:
        """Apply dropout to x (N, ...); `key` may be None in evaluation mode and for a rate of 0.

        Raises:
            ValueError: without a key in training mode.
        """
        if self.deterministic or self.rate == 0:
            return x
        if key is None:
            raise ValueError(
                "dropout in training mode needs a key: pass key=jax.random.key(seed), or switch the network to "
                "evaluation with .eval()"
            )
        keep = 1 - self.rate
        shape = (x.shape[0],) + (1,) * (x.ndim - 1) if self.samples else x.shape
        return jnp.where(jax.random.bernoulli(key, keep, shape), x / keep, 0).astype(x.dtype)

    def set_view(self, deterministic: bool | None = None) -> None:
        """Set the mode; ``nnx.view``, `train` and `eval` call this."""
        if deterministic is not None:
            self.deterministic = deterministic


def fold(key: Array | None, number: int) -> Array | None:
    """Return the key of a network's `number`-th random layer, or None without a key."""
    return None if key is None else jax.random.fold_in(key, number)

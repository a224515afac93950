"""Maximum and average pooling of NHWC feature maps."""

import jax
import jax.numpy as jnp
from jax import Array


def max_pool(x: Array, size: int, stride: int, padding: int = 0) -> Array:
    """Compute the maximum over size x size windows.

    The gradient goes to the first maximum of a window, as in torch. It is written by hand because XLA's own
    (select-and-scatter) uses atomics, which are slow and have no fixed order of summation.

    Args:
        x: (N, H, W, C).
        size: side of a window.
        stride: cells from one window to the next.
        padding: rows and columns of minus infinity added on each side.

    Returns:
        (N, (H + 2 padding - size) // stride + 1, ..., C).

    Raises:
        ValueError: if the map is smaller than one window.
    """
    if min(x.shape[1:3]) + 2 * padding < size:
        raise ValueError(
            f"a feature map of {x.shape[1:3]} is too small to pool over {size}x{size}. Fix: use larger images"
        )
    return _max_pool(x, size, stride, padding)


def _window_max(x: Array, size: int, stride: int, padding: int) -> Array:
    edges = (padding, padding)
    return jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, size, size, 1), (1, stride, stride, 1), ((0, 0), edges, edges, (0, 0))
    )


def _max_pool_forward(x, size, stride, padding):
    padded = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)), constant_values=-jnp.inf)
    rows, columns = ((side - size) // stride + 1 for side in padded.shape[1:3])

    def shifted(k):
        i, j = divmod(k, size)
        return padded[:, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]

    best, where = shifted(0), jnp.zeros((), jnp.uint8)
    for k in range(1, size * size):
        candidate = shifted(k)
        where = jnp.where(candidate > best, jnp.uint8(k), where)
        best = jnp.maximum(candidate, best)
    return best, (where, x.shape)


def _max_pool_backward(size, stride, padding, residuals, grad):
    where, shape = residuals
    total = jnp.zeros((), jnp.promote_types(grad.dtype, jnp.float32))
    for k in range(size * size):
        here = jnp.where(where == k, grad, 0).astype(total.dtype)
        # Scatter to the position of the window's k-th element; negative padding drops positions in the padding.
        spread = [(0, 0, 0)]
        for start, side, windows in zip(divmod(k, size), shape[1:3], grad.shape[1:3], strict=True):
            low = start - padding
            spread.append((low, side - low - (stride * (windows - 1) + 1), stride - 1))
        total += jax.lax.pad(here, jnp.zeros((), total.dtype), [*spread, (0, 0, 0)])
    return (total.astype(grad.dtype),)


_max_pool = jax.custom_vjp(_window_max, nondiff_argnums=(1, 2, 3))
_max_pool.defvjp(_max_pool_forward, _max_pool_backward)


@jax.custom_vjp
def spatial_max(x: Array) -> Array:
    """Compute the maximum over rows and columns.

    The gradient goes to the first maximum. JAX's own divides by the number of cells that equal the maximum. XLA may
    compute these cells a second time and round them differently; then none of them is equal, and the gradient is NaN.

    Args:
        x: (..., H, W, C).

    Returns:
        (..., C).
    """
    return x.max((-3, -2))


def _spatial_max_forward(x):
    cells = x.reshape(*x.shape[:-3], -1, x.shape[-1])
    where = cells.argmax(-2)
    return jnp.take_along_axis(cells, where[..., None, :], -2)[..., 0, :], (where, x.shape)


def _spatial_max_backward(residuals, grad):
    where, shape = residuals
    cells = jnp.arange(shape[-3] * shape[-2])[:, None]
    return (jnp.where(cells == where[..., None, :], grad[..., None, :], 0).astype(grad.dtype).reshape(shape),)


spatial_max.defvjp(_spatial_max_forward, _spatial_max_backward)


def adaptive_average_pool(x: Array, size: int) -> Array:
    """Compute the average over size x size bins, with torch's bin edges.

    Args:
        x: (N, H, W, C).
        size: number of bins along each axis.

    Returns:
        (N, size, size, C).
    """
    if x.shape[1:3] == (size, size):
        return x

    def bins(length: int) -> Array:
        position = jnp.arange(length)
        start = (jnp.arange(size) * length) // size
        stop = -((-(jnp.arange(size) + 1) * length) // size)
        inside = (position >= start[:, None]) & (position < stop[:, None])
        return (inside / inside.sum(1, keepdims=True)).astype(x.dtype)

    return jnp.einsum("nhwc,ih,jw->nijc", x, bins(x.shape[1]), bins(x.shape[2]))

"""Special functions of float arrays, as XLA defines them."""

import math
from typing import Any

import numpy as np

_STEPS = 10
"""Steps by which the gamma functions' recurrences move an argument to where their asymptotic series hold."""

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)
_ORDERS = range(2, 2 * len(_BERNOULLI) + 1, 2)


def _is_usual(x: Any) -> bool:
    """Return whether all are positive and finite; others are left to SciPy, whose import takes a sixth of a second."""
    return bool(np.all((x > 0) & (x < np.inf)))


def _move(x: Any) -> tuple[Any, Any]:
    """Return x + _STEPS, and x, x + 1, ..., x + _STEPS - 1 along a new last axis, in doubles."""
    moved = np.asarray(x, np.float64)[..., None] + np.arange(_STEPS + 1)
    return moved[..., -1], moved[..., :-1]


def lgamma(x: Any) -> Any:
    """Return the logarithm of the absolute value of the gamma function.

    Source: Stirling's series, NIST Handbook of Mathematical Functions (2010), 5.11.1.
    """
    if not _is_usual(x):
        from scipy.special import gammaln  # JAX depends on SciPy

        return gammaln(x)
    y, passed = _move(x)
    tail = sum(b / (n * (n - 1)) * y ** (1 - n) for n, b in zip(_ORDERS, _BERNOULLI, strict=True))
    value = (y - 0.5) * np.log(y) - y + 0.5 * math.log(2 * math.pi) + tail - np.log(passed.prod(-1))
    return value.astype(x.dtype)


def digamma(x: Any) -> Any:
    """Return the derivative of `lgamma`, by that of its series."""
    if not _is_usual(x):
        from scipy.special import psi

        return psi(x)
    y, passed = _move(x)
    tail = sum(b / n * y**-n for n, b in zip(_ORDERS, _BERNOULLI, strict=True))
    return (np.log(y) - 0.5 / y - tail - (1 / passed).sum(-1)).astype(x.dtype)


def polygamma(order: Any, x: Any) -> Any:
    """Return the derivative of digamma of an order (an array of whole numbers), by that of its series."""
    order, x = np.asarray(order), np.asarray(x)
    k = int(order.flat[0]) if order.size else 1
    if not _is_usual(x) or k < 1 or (order != k).any():
        from scipy.special import polygamma

        return polygamma(order.astype(np.int64), x).astype(x.dtype)
    y, passed = _move(x)
    powers = (b * math.prod(range(n + 1, n + k)) * y ** -(n + k) for n, b in zip(_ORDERS, _BERNOULLI, strict=True))
    total = math.factorial(k - 1) * y**-k + math.factorial(k) * (0.5 * y ** -(k + 1) + (passed ** -(k + 1.0)).sum(-1))
    return ((-1) ** (k + 1) * (total + sum(powers))).astype(x.dtype)


def logistic(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    x = np.asarray(x)
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


def erf(x: Any) -> Any:
    """Return the error function."""
    from scipy.special import erf

    return erf(x)


_CENTER = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
)
_CENTER += (0.246640727, 1.50140941)
_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047)
_TAIL += (1.00167406, 2.83297682)


def erf_inv(x: Any) -> Any:
    """Return the inverse of the error function.

    Source: Giles (2010), approximating the erfinv function, in single precision; XLA's own for float32.
    """
    x = np.asarray(x)
    if x.dtype != np.float32:
        from scipy.special import erfinv

        return erfinv(x)
    w = -np.log1p(-x * x)
    center = w < 5
    w = np.where(center, w - np.float32(2.5), np.sqrt(w) - np.float32(3))
    total = np.where(center, np.float32(_CENTER[0]), np.float32(_TAIL[0]))
    for a, b in zip(_CENTER[1:], _TAIL[1:], strict=True):
        total = np.where(center, np.float32(a), np.float32(b)) + total * w
    return np.where(np.abs(x) == 1, x * np.float32(np.inf), total * x)

"""Special functions of float arrays, as XLA defines them."""

from typing import Any

import numpy as np


def lgamma(x: Any) -> Any:
    """Return the logarithm of the absolute value of the gamma function."""
    from scipy.special import gammaln  # JAX depends on SciPy

    return gammaln(x)


def digamma(x: Any) -> Any:
    """Return the derivative of `lgamma`."""
    from scipy.special import psi

    return psi(x)


def polygamma(order: Any, x: Any) -> Any:
    """Return the derivative of digamma of an order (an array of whole numbers)."""
    from scipy.special import polygamma

    x = np.asarray(x)
    return polygamma(np.asarray(order).astype(np.int64), x).astype(x.dtype)


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
    from scipy.special import erfinv

    x = np.asarray(x)
    if x.dtype != np.float32:
        return erfinv(x)
    w = -np.log1p(-x * x)
    center = w < 5
    w = np.where(center, w - np.float32(2.5), np.sqrt(w) - np.float32(3))
    total = np.where(center, np.float32(_CENTER[0]), np.float32(_TAIL[0]))
    for a, b in zip(_CENTER[1:], _TAIL[1:], strict=True):
        total = np.where(center, np.float32(a), np.float32(b)) + total * w
    return np.where(np.abs(x) == 1, x * np.float32(np.inf), total * x)

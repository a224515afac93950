"""BFGS for few parameters and an expensive objective, such as a likelihood.

The core depends on JAX and NumPy only, so this is a plain implementation of Nocedal and Wright, "Numerical
Optimization" (2006), Algorithm 6.1, with an Armijo line search by halving instead of one for the Wolfe conditions
(updates without positive curvature are skipped). Its limits: the dense inverse Hessian costs n^2 numbers of memory and
time per iteration, so n should stay below a few thousand; objectives must be smooth; it finds a local minimum.
"""

from collections.abc import Callable

import numpy as np

LARGEST_STEP = 2.0
"""Largest change of any parameter per iteration. Parameters move in logarithms, of which 2 is a factor of 7."""

SMALLEST_FRACTION = 1e-4
"""The line search gives up below this fraction of the full step."""

TOLERANCE = 1e-5
"""Iterations stop if one lowers the objective by less than this, relative to its size."""


def check_options(l2: float, max_iterations: int) -> None:
    """Raise ValueError unless both are non-negative and the penalty is finite."""
    if not (np.isfinite(l2) and l2 >= 0):
        raise ValueError(f"l2={l2} must be a finite number of at least 0.")
    if max_iterations < 0:
        raise ValueError(f"max_iterations={max_iterations} must be at least 0.")


def minimize(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]],
    theta: np.ndarray,
    max_iterations: int,
    callback: Callable[[int, np.ndarray], None] | None = None,
) -> tuple[np.ndarray, int]:
    """Minimize by BFGS on the host; the result is never worse than the start.

    Args:
        objective: returns value and gradient (n,) at a point.
        theta: (n,) starting point.
        max_iterations: maximum number of iterations; each evaluates the objective once, or more in line searches.
        callback: called after every iteration with its number, from 1 on, and the point reached.

    Returns:
        The best point found and the number of iterations done.
    """
    value, gradient = objective(theta)
    inverse = np.eye(theta.size) / max(np.linalg.norm(gradient), 1e-12)
    for iteration in range(max_iterations):
        direction = -inverse @ gradient
        direction *= min(1.0, LARGEST_STEP / max(np.abs(direction).max(), 1e-12))
        step = 1.0
        while step > SMALLEST_FRACTION:
            new = theta + step * direction
            new_value, new_gradient = objective(new)
            if np.isfinite(new_value) and new_value <= value + 1e-4 * step * gradient @ direction:
                break
            step /= 2
        else:
            return theta, iteration
        s, y = new - theta, new_gradient - gradient
        gain = value - new_value
        theta, value, gradient = new, new_value, new_gradient
        if callback is not None:
            callback(iteration + 1, theta)
        if s @ y > 1e-12:
            rho = 1 / (s @ y)
            left = np.eye(theta.size) - rho * np.outer(s, y)
            inverse = left @ inverse @ left.T + rho * np.outer(s, s)
        if gain < TOLERANCE * max(abs(value), 1.0):
            return theta, iteration + 1
    return theta, max_iterations

"""A quasi-Newton minimizer for few parameters whose objective is an inference each time."""

from collections.abc import Callable

import numpy as np


def check_options(strength: float, iterations: int) -> None:
    """ValueError unless the pull is a number of at least 0, and so are the iterations."""
    if not (np.isfinite(strength) and strength >= 0):
        raise ValueError(f"strength={strength} must be a number of at least 0.")
    if iterations < 0:
        raise ValueError(f"iterations={iterations} must be at least 0.")


def minimize(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]], theta: np.ndarray, iterations: int
) -> tuple[np.ndarray, int]:
    """BFGS with backtracking on the host: the answer is never worse than the start.

    Args:
        objective: value and gradient at a point.
        theta: (n,) where to start.
        iterations: at most so many.

    Returns:
        The best point found and the number of iterations done.
    """
    value, gradient = objective(theta)
    inverse = np.eye(theta.size) / max(np.linalg.norm(gradient), 1e-12)
    for iteration in range(iterations):
        direction = -inverse @ gradient
        direction *= min(1.0, 2.0 / max(np.abs(direction).max(), 1e-12))
        step = 1.0
        while step > 1e-4:
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
        if s @ y > 1e-12:
            rho = 1 / (s @ y)
            left = np.eye(theta.size) - rho * np.outer(s, y)
            inverse = left @ inverse @ left.T + rho * np.outer(s, s)
        if gain < 1e-5 * max(abs(value), 1.0):
            return theta, iteration + 1
    return theta, iterations

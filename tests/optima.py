"""Optima of M-steps in float64, by SciPy, which share no code with the library."""

import itertools

import numpy as np
from scipy import optimize
from scipy.special import expit, gammaln, log_expit, polygamma, psi


def dirichlet_mean_log(concentration) -> np.ndarray:
    """Return the mean logarithms of Dirichlet-distributed outputs (..., n)."""
    return psi(concentration) - psi(np.sum(concentration, -1, keepdims=True))


def dirichlet(mean) -> tuple[np.ndarray, np.ndarray]:
    """Return the most likely concentrations (n,) of mean log-outputs, and the inverse of the Hessian there."""
    mean = np.asarray(mean, np.float64)

    def loss(u):
        c = np.exp(u)
        return gammaln(c).sum() - gammaln(c.sum()) - (c - 1) @ mean, c * (dirichlet_mean_log(c) - mean)

    def hessian(c):
        return polygamma(1, c.sum()) - np.diag(polygamma(1, c))

    # In logarithms, then to the last digits without them.
    start = np.log(-len(mean) / (2 * np.sum(mean + np.log(len(mean)))) + 0.1) * np.ones(len(mean))
    c = np.exp(optimize.minimize(loss, start, jac=True, method="BFGS").x)
    c = optimize.root(lambda c: mean - dirichlet_mean_log(c), c, jac=hessian, tol=1e-14).x
    return c, np.linalg.inv(hessian(c))


def ridge_regression(counts, penalty) -> tuple[np.ndarray, np.ndarray]:
    """Weights (K + 1,) of a logistic regression on configurations, and the Hessian of its loss, from (C, 2) counts.

    By scipy's minimizer, and by differences of its gradient.
    """
    counts, penalty = np.asarray(counts, np.float64), np.asarray(penalty, np.float64)
    size = len(penalty)
    x = np.array([[1, *tools] for tools in itertools.product(range(2), repeat=size - 1)], float)

    def loss(w):
        odds = x @ w
        return -(counts[:, 1] @ log_expit(odds) + counts[:, 0] @ log_expit(-odds)) + penalty @ w**2 / 2

    def slope(w):
        return (counts.sum(-1) * expit(x @ w) - counts[:, 1]) @ x + penalty * w

    found = optimize.minimize(
        loss, np.zeros(size), jac=slope, method="BFGS", options={"gtol": 1e-10, "maxiter": 1000}
    ).x
    found = optimize.root(slope, found, tol=1e-14).x
    steps = 1e-5 * np.eye(size)
    return found, np.array([(slope(found + s) - slope(found - s)) / 2e-5 for s in steps])


def regression(before, after, weight) -> tuple[float, float, float]:
    """Return intercept, slope and residual standard deviation of weighted least squares."""
    root = np.sqrt(weight)
    design = np.stack([np.ones_like(before), before], -1)
    (intercept, slope), *_ = np.linalg.lstsq(design * root[:, None], after * root, rcond=None)
    residual = after - intercept - slope * before
    return intercept, slope, np.sqrt(weight @ residual**2 / weight.sum())

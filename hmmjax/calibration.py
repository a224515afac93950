"""How much is a recogniser's frame worth? Powers for the emissions, by the labels' conditional likelihood."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax import _model
from hmmjax import _numerics as num
from hmmjax._data import Data, dtype_of
from hmmjax._pytree import pytree
from hmmjax._typing import Array
from hmmjax.emissions.tempered import Tempered
from hmmjax.inference import prepare
from hmmjax.types import Labels, Observations, Params


@pytree
class Calibration:
    """What `calibrate` found.

    Attributes:
        params: the model with tempered emissions.
        before: conditional log-likelihood of the labels given the observations, in nats, with powers of one.
        after: the same with the powers found.
        iterations: optimiser iterations.
    """

    params: Params
    before: float
    after: float
    iterations: int


def calibrate(
    params: Params,
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    strength: float = 1.0,
    iterations: int = 30,
    backend: str = "auto",
) -> Calibration:
    """Temper the emissions of the observed tracks so that the labels of labelled videos become most probable.

    Maximises log P(labels | observations) = log-likelihood with the labels clamped minus log-likelihood without, over
    one power for the phases and one a tool.

    Args:
        params: a model, emissions included; emissions that are already tempered start from their powers.
        obs: (B, T, ...) observations of labelled videos that, at best, the emissions were not estimated on.
        mask: (B, T) bool, True where observed.
        labels: known states; -1 is unknown.
        strength: nats that pull each log-power towards zero, per unit squared: what a few frames can overrule.
        iterations: at most so many quasi-Newton iterations.
        backend: as in `posterior`.

    Raises:
        TypeError, ValueError: bad input, no labels, or videos that are impossible under `params`.
    """
    if labels is None or (labels.phases is None and labels.tools is None):
        raise ValueError("calibrate needs labels: hmmjax.Labels(phases=..., tools=...) with some frames known.")
    data, _ = prepare(params, obs, mask, labels)
    start = _tempered(params, data)
    name = _model.choose_backend(backend, params)

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _objective(theta, start, data, strength, name)
        return float(value), np.asarray(gradient, np.float64)

    theta = np.asarray(_get(start), np.float64)
    one = np.zeros_like(theta)
    before, _ = _objective(one, start, data, 0.0, name)
    if not np.isfinite(before):
        raise ValueError(
            "the labels are impossible under params (conditional log-likelihood not finite): give pseudo-counts where "
            "the tables were estimated (hmmjax.Priors), or correct the labels."
        )
    theta, done = _minimise(objective, theta, iterations)
    after, _ = _objective(theta, start, data, 0.0, name)
    return Calibration(_set(start, theta), -float(before), -float(after), done)


def _tempered(params: Params, data: Data) -> Params:
    """Every observed track's emission with a power: one for phases, one a tool."""

    def temper(chain: Any, observations: Any) -> Any:
        if chain is None or chain.emission is None or observations is None or isinstance(chain.emission, Tempered):
            return chain
        size = () if chain.emission.track == "phases" else (chain.num_tools,)
        return dataclasses.replace(chain, emission=Tempered(chain.emission, jnp.ones(size, dtype_of(params))))

    return Params(temper(params.phases, data.phases), temper(params.tools, data.tools))


def _chains(params: Params) -> list[tuple[str, Any]]:
    pairs = (("phases", params.phases), ("tools", params.tools))
    return [(n, c) for n, c in pairs if c is not None and isinstance(c.emission, Tempered)]


def _get(params: Params) -> Array:
    return jnp.concatenate([jnp.log(jnp.ravel(jnp.asarray(c.emission.power))) for _, c in _chains(params)])


def _set(params: Params, theta: Any) -> Params:
    at = 0
    for name, chain in _chains(params):
        size = int(np.size(chain.emission.power))
        power = jnp.exp(jnp.asarray(theta[at : at + size], dtype_of(params))).reshape(np.shape(chain.emission.power))
        chain = dataclasses.replace(chain, emission=Tempered(chain.emission.family, power))
        params = dataclasses.replace(params, **{name: chain})
        at += size
    return params


def _loss(theta: Array, params: Params, data: Data, strength: Any, backend: str) -> Array:
    params = _set(params, theta)
    free = dataclasses.replace(data, phase_labels=None, tool_labels=None)

    def likelihood(data: Data) -> Array:
        return _model.log_normalizer(params, _model.tables(params, data), data.lengths, backend)

    return num.accurate_sum(likelihood(free) - likelihood(data)) + strength * jnp.sum(jnp.asarray(theta) ** 2)


_objective = jax.jit(jax.value_and_grad(_loss), static_argnames="backend")


def _minimise(objective: Any, theta: np.ndarray, iterations: int) -> tuple[np.ndarray, int]:
    """BFGS with backtracking on the host: a handful of parameters, each evaluation an E-step or two."""
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

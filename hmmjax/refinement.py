"""Discriminative training: maximize the conditional likelihood of the labels."""

from collections.abc import Collection
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import lowering
from hmmjax._core import numerics as num
from hmmjax._core.batch import Batch, dtype_of, prepare, require_known
from hmmjax._core.constraints import apply_update, fields
from hmmjax._core.deprecation import renamed_arguments
from hmmjax._core.minimize import check_options, minimize
from hmmjax._core.pytree import pytree
from hmmjax._core.tables import tabulate
from hmmjax._core.typing import Array
from hmmjax.calibration import IMPOSSIBLE
from hmmjax.priors import frozen_blocks
from hmmjax.types import Labels, Observations, Params


@pytree
class Refinement:
    """The result of `refine`.

    Attributes:
        params: the refined model.
        before: conditional log-likelihood of the labels given the observations, in nats, at the start.
        after: conditional log-likelihood under `params`, on the same videos; held-out videos gain less, or get worse.
        iterations: number of optimizer iterations.
    """

    params: Params
    before: float
    after: float
    iterations: int


@renamed_arguments(strength="l2", iterations="max_iterations")
def refine(
    params: Params,
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    freeze: Collection[str] = (),
    l2: float = 1.0,
    max_iterations: int = 30,
    backend: str = "auto",
) -> Refinement:
    """Train tables and powers discriminatively, so that the labels of labeled videos become most probable.

    Maximizes log P(labels | observations), the log-likelihood with labels minus that without, as `calibrate` does, but
    over every block that is not frozen. Each parameter moves within its constraint, so that the result is always a
    valid model; probabilities that are zero stay zero. Estimated or fitted tables describe the recognizer; refined ones
    predict the states from its outputs, and no longer describe it: do not continue with `fit`. Evaluate the result on
    other videos.

    Args:
        params: starting point, preferably a calibrated model (`calibrate`); powers are trained as well.
        obs: (B, T, ...) observations of labeled videos.
        mask: (B, T) bool, True where observed.
        labels: known states; -1 is unknown.
        freeze: blocks to keep, names in `hmmjax.priors.BLOCKS`, or "phases" or "tools" for a whole track.
        l2: L2 penalty, in nats per unit squared, on each parameter's change, in logarithms for probabilities and
            positive parameters.
        max_iterations: maximum number of quasi-Newton iterations, of one E-step each (and a few more in line searches).
        backend: "auto" or a name in `hmmjax.messages.BACKENDS`.

    Returns:
        `Refinement`, whose `params` have the families and shapes of the given ones.

    Raises:
        TypeError, ValueError: bad input, no labels, or videos that are impossible under `params`.

    Source: Bahl et al. (1986), maximum mutual information estimation of hidden Markov models.
    """
    if labels is None or (labels.phases is None and labels.tools is None):
        raise ValueError("refine needs labels: pass hmmjax.Labels(phases=..., tools=...) with some frames known.")
    check_options(l2, max_iterations)
    batch = prepare(params, obs, mask, labels)
    require_known(batch, "refine")
    frozen = frozen_blocks(freeze)
    name = lowering.choose_backend(backend, params)
    if not (sizes := [np.size(value) for value, _ in fields(params, frozen)]):
        raise ValueError("refine has no parameters to train: every block is frozen. Shorten freeze.")
    theta = np.zeros(sum(sizes))

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _objective(theta, params, batch, l2, frozen, name)
        return float(value), np.asarray(gradient, np.float64)

    before = float(_objective(theta, params, batch, 0.0, frozen, name)[0])
    if not np.isfinite(before):
        raise ValueError(IMPOSSIBLE)
    theta, done = minimize(objective, theta, max_iterations)
    after = float(_objective(theta, params, batch, 0.0, frozen, name)[0])
    return Refinement(apply_update(params, jnp.asarray(theta, dtype_of(params)), frozen), -before, -after, done)


@partial(jax.jit, static_argnames=("frozen", "backend"))
@partial(jax.value_and_grad, argnums=0)
def _objective(theta: Array, params: Params, batch: Batch, l2: Any, frozen: frozenset[str], backend: str) -> Array:
    """Return minus the labels' conditional log-likelihood, plus the penalty on the distance from the start."""
    theta = jnp.asarray(theta, dtype_of(params))
    model = apply_update(params, theta, frozen)
    free = tabulate(model, batch.without_labels())
    value = lowering.conditional(model, free, batch, backend)
    return -num.accurate_sum(value) + l2 * jnp.sum(theta**2)

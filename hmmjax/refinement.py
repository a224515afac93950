"""Tables moved to where known states become most probable, rather than the recognizer's outputs."""

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
from hmmjax._core.minimize import check_options, minimize
from hmmjax._core.pytree import pytree
from hmmjax._core.tables import tabulate
from hmmjax._core.typing import Array
from hmmjax.priors import frozen_blocks
from hmmjax.types import Labels, Observations, Params


@pytree
class Refinement:
    """What `refine` found.

    Attributes:
        params: the refined model.
        before: conditional log-likelihood of the labels given the observations, in nats, at the start.
        after: the same of `params`, on the same videos; held-out videos gain less, or lose.
        iterations: optimizer iterations.
    """

    params: Params
    before: float
    after: float
    iterations: int


def refine(
    params: Params,
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    freeze: Collection[str] = (),
    strength: float = 1.0,
    iterations: int = 30,
    backend: str = "auto",
) -> Refinement:
    """Move tables and powers so that the labels of labeled videos become most probable (discriminative learning).

    Maximizes log P(labels | observations) = log-likelihood with the labels clamped minus log-likelihood without, as
    `calibrate` does, but over every table that is not frozen. Probabilities move in logarithms and keep their sums and
    zeros, positive parameters move in logarithms, so the answer is a valid model whatever the steps. Counted or fitted
    tables say how recognizers behave; refined ones say which states follow from what they said, and no longer explain
    the recognizer: do not go on with `fit`. Judge the result on videos that were not refined on.

    Args:
        params: where to start, best a calibrated model (`calibrate`): powers are moved as well.
        obs: (B, T, ...) observations of labeled videos.
        mask: (B, T) bool, True where observed.
        labels: known states; -1 is unknown.
        freeze: blocks to leave as they are, as in `fit`.
        strength: nats that pull each parameter to its start, per unit (of its logarithm) squared.
        iterations: at most so many quasi-Newton iterations, one E-step each (and a few more in line searches).
        backend: as in `posterior`.

    Returns:
        `Refinement`, whose `params` have the families and shapes of the given ones.

    Raises:
        TypeError, ValueError: bad input, no labels, or videos that are impossible under `params`.

    Source: Bahl et al. (1986), maximum mutual information estimation of hidden Markov models.
    """
    if labels is None or (labels.phases is None and labels.tools is None):
        raise ValueError("refine needs labels: hmmjax.Labels(phases=..., tools=...) with some frames known.")
    check_options(strength, iterations)
    data = prepare(params, obs, mask, labels)
    require_known(data, "refine")
    frozen = frozen_blocks(freeze)
    name = lowering.choose_backend(backend, params)
    if not (sizes := [np.size(value) for value, _ in fields(params, frozen)]):
        raise ValueError("refine has nothing to move: every block is frozen.")
    theta = np.zeros(sum(sizes))

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _objective(theta, params, data, strength, frozen, name)
        return float(value), np.asarray(gradient, np.float64)

    before = float(_objective(theta, params, data, 0.0, frozen, name)[0])
    if not np.isfinite(before):
        raise ValueError(
            "the labels are impossible under params (conditional log-likelihood not finite): give pseudo-counts where "
            "the tables were estimated (hmmjax.Priors), or correct the labels."
        )
    theta, done = minimize(objective, theta, iterations)
    after = float(_objective(theta, params, data, 0.0, frozen, name)[0])
    return Refinement(apply_update(params, jnp.asarray(theta, dtype_of(params)), frozen), -before, -after, done)


@partial(jax.jit, static_argnames=("frozen", "backend"))
@partial(jax.value_and_grad, argnums=0)
def _objective(theta: Array, params: Params, data: Batch, strength: Any, frozen: frozenset[str], backend: str) -> Array:
    """Minus the labels' conditional log-likelihood, and the pull toward the start."""
    theta = jnp.asarray(theta, dtype_of(params))
    model = apply_update(params, theta, frozen)
    free = tabulate(model, data.without_labels())
    value = lowering.conditional(model, free, data, backend)
    return -num.accurate_sum(value) + strength * jnp.sum(theta**2)

"""Discriminative training: make the labels of labeled videos most probable."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import lowering
from hmmjax._core import numerics as num
from hmmjax._core.batch import Batch, canonical, dtype_of, prepare, require_known
from hmmjax._core.constraints import apply_update, fields
from hmmjax._core.deprecation import renamed_arguments
from hmmjax._core.inputs import refuse_labels
from hmmjax._core.minimize import check_options, minimize
from hmmjax._core.objectives import Objective
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
        before: the objective at the start, summed over videos, in nats.
        after: the objective under `params`, on the same videos; held-out videos gain less, or get worse.
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
    objective: str = "path",
    balanced: bool = False,
    video_weight: float = 30.0,
    freeze: Collection[str] = (),
    l2: float | None = None,
    max_iterations: int = 30,
    backend: str = "auto",
) -> Refinement:
    """Train tables and powers discriminatively, so that the labels of labeled videos become most probable.

    Maximizes, over every block that is not frozen, one of three objectives:

    - "path": log P(labels | observations), the log-likelihood with labels minus that without, as `calibrate` does;
    - "smoother": the sum over labels of log P(label | all observations), which is what `posterior` is used for;
    - "filter": the sum over labels of log P(label | observations up to its frame), for `filter` and `Stream`.

    The last two train for frame-wise decisions. They need no path to be right as a whole, and are more robust to errors
    that last. Start them from counted tables with a power of about one half (`emissions.Tempered`).

    Each parameter moves within its constraint, so that the result is always a valid model; probabilities that are zero
    stay zero. Estimated or fitted tables describe the recognizer; refined ones predict the states from its outputs, and
    no longer describe it: do not continue with `fit`. Evaluate the result on other videos.

    Args:
        params: starting point, preferably a calibrated model (`calibrate`); powers are trained as well.
        obs: (B, T, ...) observations of labeled videos.
        mask: (B, T) bool, True where observed.
        labels: known states; -1 is unknown.
        objective: "path", "smoother" or "filter".
        balanced: whether all phases, and the presence and absence of each tool, weigh the same in a label-wise
            objective, however rare they are: what macro averages such as Jaccard ask for.
        video_weight: frames that the labels of a video weigh together in a label-wise objective, on the phases and on
            each tool, because neighboring frames are far from independent.
        freeze: blocks to keep, names in `hmmjax.priors.BLOCKS`, or "phases" or "tools" for a whole track.
        l2: L2 penalty, in nats per unit squared, on each parameter's change, in logarithms for probabilities and
            positive parameters. None is 1 for "path", and 3 for label-wise objectives, in which powers are free.
        max_iterations: maximum number of quasi-Newton iterations, of one E-step each (and a few more in line searches).
        backend: "auto" or a name in `hmmjax.messages.BACKENDS`.

    Returns:
        `Refinement`, whose `params` have the families and shapes of the given ones.

    Raises:
        TypeError, ValueError: bad input, no labels, or videos that are impossible under `params`.

    Source: Bahl et al. (1986), maximum mutual information estimation of hidden Markov models; label-wise, Kakade, Teh
    and Roweis (2002), an alternate objective function for Markovian fields, and Gross et al. (2007).
    """
    goal = Objective(objective, balanced, video_weight)
    return refine_lengths(params, obs, mask, labels, goal, (max_iterations,), freeze=freeze, l2=l2, backend=backend)[0]


def refine_lengths(
    params: Params,
    obs: Observations,
    mask: Any,
    labels: Labels | None,
    goal: Objective,
    lengths: Sequence[int],
    *,
    freeze: Collection[str] = (),
    l2: float | None = None,
    backend: str = "auto",
) -> list[Refinement]:
    """Do what `refine` does, and return the model after several numbers of iterations of the same run.

    Args:
        params: starting point.
        obs: (B, T, ...) observations of labeled videos.
        mask: (B, T) bool, True where observed; None if all frames are.
        labels: known states; -1 is unknown.
        goal: what to maximize.
        lengths: numbers of iterations, each as `max_iterations` of `refine`.
        freeze: as in `refine`.
        l2: as in `refine`.
        backend: as in `refine`.

    Returns:
        One result per length.

    Raises:
        TypeError, ValueError: as `refine`.
    """
    refuse_labels(mask)
    if labels is None or (labels.phases is None and labels.tools is None):
        raise ValueError("refine needs labels: pass hmmjax.Labels(phases=..., tools=...) with some frames known.")
    goal.check()
    l2 = (3.0 if goal.is_labelwise else 1.0) if l2 is None else l2
    for length in lengths:
        check_options(l2, length)
    batch = prepare(params, obs, mask, labels)
    params = canonical(params)
    require_known(batch, "refine")
    frozen = frozen_blocks(freeze)
    name = lowering.choose_backend(backend, params)
    # Powers are free in label-wise objectives: they undo the overconfidence that the penalty would keep.
    free = {"power"} if goal.is_labelwise else set()
    trained = fields(params, frozen)
    penalty = [np.full(np.size(value), 0 if constraint in free else l2) for value, constraint in trained]
    if not penalty:
        raise ValueError("refine has no parameters to train: every block is frozen. Shorten freeze.")
    penalty = np.concatenate(penalty)

    def evaluate(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _loss(theta, params, batch, goal, frozen, name)
        return float(value), np.asarray(gradient, np.float64)

    def penalized(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = evaluate(theta)
        return value + float(penalty @ theta**2), gradient + 2 * penalty * theta

    reached = [np.zeros(penalty.size)]
    before, _ = evaluate(reached[0])
    if not np.isfinite(before):
        raise ValueError(IMPOSSIBLE)
    minimize(penalized, reached[0], max(lengths), lambda _, theta: reached.append(theta))
    found = []
    for length in lengths:
        done = min(length, len(reached) - 1)
        after, _ = evaluate(reached[done])
        model = apply_update(params, jnp.asarray(reached[done], dtype_of(params)), frozen)
        found.append(Refinement(model, -before, -after, done))
    return found


@partial(jax.jit, static_argnames=("frozen", "backend"))
@partial(jax.value_and_grad, argnums=0)
def _loss(theta: Array, params: Params, batch: Batch, goal: Objective, frozen: frozenset[str], backend: str) -> Array:
    """Return minus the objective of the model that is `theta` away from the start."""
    model = apply_update(params, jnp.asarray(theta, dtype_of(params)), frozen)
    return -num.accurate_sum(goal.value(model, tabulate(model, batch.without_labels()), batch, backend))

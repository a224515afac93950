"""Objectives of discriminative training: how probable the labels are, together or one by one."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax import messages
from hmmjax._core import lowering
from hmmjax._core import numerics as num
from hmmjax._core.batch import Batch
from hmmjax._core.pytree import pytree, static
from hmmjax._core.tables import Tables
from hmmjax._core.typing import Array
from hmmjax.types import Params

OBJECTIVES = ("path", "smoother", "filter")
"""The log-probability of all labels of a video together, or the sum over labels of that of each label by itself, given
all frames or the frames up to its own."""

GUARD = 1e-6
"""Added to probabilities of labels, which bounds the cost of a label at 14 nats. Labels that no parameters explain,
such as wrong ones, then have no influence."""


@pytree
class Objective:
    """What `hmmjax.refine` and `hmmjax.calibrate` maximize.

    Attributes:
        name: one of `OBJECTIVES`.
        balanced: whether classes (phases; absence and presence of each tool) weigh the same over all videos together.
        video_weight: frames that the labels of a video weigh together, on the phases and on each tool.
    """

    name: str = static()
    balanced: bool = static()
    video_weight: Any

    @property
    def is_labelwise(self) -> bool:
        """Whether labels are scored one by one."""
        return self.name != "path"

    def check(self) -> None:
        """Raise ValueError unless the name is known, the weight positive, and options suit the objective."""
        if self.name not in OBJECTIVES:
            raise ValueError(f"objective={self.name!r} is unknown; choose {' or '.join(map(repr, OBJECTIVES))}.")
        if self.balanced and not self.is_labelwise:
            raise ValueError("balanced=True weighs single labels: choose objective='smoother' or 'filter'.")
        if not (np.isfinite(self.video_weight) and self.video_weight > 0):
            raise ValueError(f"video_weight={self.video_weight} must be a positive, finite number of frames.")

    def value(self, params: Params, free: Tables, batch: Batch, backend: str) -> Array:
        """Return the objective (B,) of each video, -inf for an impossible one; differentiable in the tables.

        Args:
            params: the model.
            free: tables of the batch without its labels.
            batch: observed frames and labels.
            backend: a name in `hmmjax.messages.BACKENDS`.

        Source: label-wise, Kakade, Teh and Roweis (2002), an alternate objective function for Markovian fields.
        """
        if not self.is_labelwise:
            return lowering.conditional(params, free, batch, backend)
        value, phases, tools = _marginals(params, free, batch.lengths, backend, self.name == "filter")
        total = self._score(phases, batch.phase_labels, batch) + self._score(tools, batch.tool_labels, batch)
        return jnp.where(value > -jnp.inf, total, -jnp.inf)

    def _score(self, marginals: Any, labels: Any, batch: Batch) -> Array:
        """Return weighted log-probabilities (B,) of labels (B, T) or (B, T, K), from marginals (..., states)."""
        if marginals is None or labels is None:
            return jnp.zeros(len(batch.observed))
        valid = batch.valid.reshape(*batch.valid.shape, *[1] * (labels.ndim - 2))
        known = valid & (labels >= 0)
        onehot = jax.nn.one_hot(jnp.where(known, labels, -1), marginals.shape[-1], dtype=marginals.dtype)
        chosen = jnp.where(known, jnp.sum(onehot * marginals, -1), 1)
        weights = 1 / jnp.maximum(jnp.sum(known, 1, keepdims=True), 1)
        if self.balanced:
            count = onehot.sum((0, 1))  # (L,) or (K, 2) frames
            occur = jnp.sum(count > 0, -1, keepdims=True)
            relative = jnp.where(count > 0, count.sum(-1, keepdims=True) / jnp.maximum(count * occur, 1), 0)
            weights = weights * jnp.sum(onehot * relative, -1)
        scores = jnp.where(known, weights * jnp.log(chosen + GUARD), 0)
        return self.video_weight * num.accurate_sum(scores.reshape(len(scores), -1))


PATH = Objective("path", False, 30.0)
"""The objective of Bahl et al. (1986)."""


def _marginals(
    params: Params, table: Tables, lengths: Array, backend: str, past_only: bool
) -> tuple[Array, Array | None, Array | None]:
    """Return what `lowering.smooth` does, given all frames or the frames up to each frame's own."""
    structure = lowering.structure_of(params, table)
    potentials = lowering.lower(params, table, lengths)
    if messages.select(backend, potentials).name == "native" and messages.native.can_train(potentials):
        out = structure.map(partial(messages.native.marginals, past_only), potentials)
    elif past_only:
        out = structure.map(lambda p: messages.filter(p, backend=backend), potentials)
    else:
        return lowering.smooth(params, table, lengths, backend)
    return structure.lift_log_prob(out.log_normalizer), *structure.lift_states(out.phases, out.tools)

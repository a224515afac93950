"""A prior that holds an emission family to a reference: pseudo-frames drawn from the reference in every state."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array


@pytree
class Anchor:
    """The conjugate prior whose mode is a reference family, in place of pseudo-counts in `hmmjax.Priors`.

    It counts as `frames` pseudo-frames in each state, whose outputs are distributed as the reference says. The
    log-prior is minus `frames` times the Kullback-Leibler divergence from the reference to the family, summed over
    states: 0 at the reference, negative elsewhere. Families that set `accepts_anchor` take it.

    Attributes:
        family: the reference, a family of the same class and shapes.
        frames: pseudo-frames per state, a scalar, (L,) for phases or (K, 2) for tools.

    Source: conjugate priors of exponential families, Diaconis and Ylvisaker (1979).
    """

    family: Any
    frames: Any

    def check(self, name: str, block: Any) -> None:
        """Raise unless the anchor fits a family.

        Args:
            name: name of the prior in messages, such as "priors.phase_emission".
            block: the family that it is to hold.

        Raises:
            TypeError: the family takes no anchor, or is of another class than the reference.
            ValueError: `frames` is negative, not finite or of a wrong shape, or shapes of the families differ.
        """
        kind = type(block.unwrapped).__name__
        if not block.unwrapped.accepts_anchor:
            raise TypeError(f"{name} is an Anchor, which {kind} does not take: freeze the block, or pass numbers.")
        if type(self.family) is not type(block.unwrapped):
            raise TypeError(f"{name} anchors a {type(self.family).__name__}, but the model has a {kind}.")
        if self.family.prior_shape != block.unwrapped.prior_shape or self.family.size != block.size:
            raise ValueError(f"{name} anchors a family of other shapes than the model's {kind}.")
        values = np.asarray(self.frames)
        lead = (block.size,) if block.track == "phases" else (block.size, 2)
        if values.shape not in ((), lead) or not (np.isfinite(values) & (values >= 0)).all():
            raise ValueError(f"{name}.frames must be a finite, non-negative number or an array {lead}, got {values!r}.")


def table_counts(pseudo_counts: Any) -> Any:
    """Return the pseudo-counts of a table of probabilities: an anchor's are its frames times the reference's rows."""
    if not isinstance(pseudo_counts, Anchor):
        return pseudo_counts
    return jnp.asarray(pseudo_counts.frames)[..., None] * jnp.asarray(pseudo_counts.family.matrix)


def table_divergence(anchor: Anchor, matrix: Array) -> Array:
    """Return the log-prior of an anchored table of probabilities: minus frames times the divergence of each row."""
    reference = jnp.asarray(anchor.family.matrix)
    possible = reference > 0
    change = jnp.where(possible, jnp.asarray(matrix) / jnp.where(possible, reference, 1) - 1, 0)
    # Both rows sum to one, so that subtracting the change adds nothing; without it, all that counts is of the size of
    # rounding errors, which very many pseudo-frames would multiply.
    excess = jnp.where(change > -1, jnp.log1p(jnp.maximum(change, -1 + 1e-30)) - change, -jnp.inf)
    weights = jnp.where(possible, table_counts(anchor), 0)
    return jnp.sum(jnp.where(weights > 0, weights * excess, 0))


def pseudo_frames_of(priors: Any) -> Any:
    """Return the number of pseudo-frames of all anchors in a tree, a measure of how rounding affects its log-prior."""
    anchors = jax.tree.leaves(priors, is_leaf=lambda x: isinstance(x, Anchor))
    total = 0.0
    for x in anchors:
        if isinstance(x, Anchor):
            states = x.family.size if x.family.track == "phases" else 2 * x.family.size
            frames = jnp.asarray(x.frames) if isinstance(x.frames, jax.Array) else np.asarray(x.frames)
            total += frames.mean() * states
    return total

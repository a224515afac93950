"""Hold emissions to what a recognizer means: without labels, EM would find states that explain its outputs better.

Nothing in a likelihood says that the state which explains a recognizer's outputs "phase 3" is phase 3. A network's
outputs cluster by video, by confidence and by the runs of its errors, and the more flexible a family is, the more of
that its states come to describe. Frames with labels tie states to classes; unlabeled ones do not. An `Anchor` stands in
for the labels that unlabeled frames lack.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core.batch import Batch, canonical, dtype_of, prepare
from hmmjax._core.checks import is_concrete
from hmmjax._core.sources import Source, map_families, observations_of
from hmmjax.em import statistics
from hmmjax.emissions import Anchor, Emission, Fused
from hmmjax.initialize import label_weights
from hmmjax.priors import Priors, frozen_blocks
from hmmjax.types import Labels, Observations, Params

STRENGTH = 300.0
"""Pseudo-frames per unlabeled frame. Chosen on MS-TCN's softmax (71-75, stages 0 and 3) and simulated recognizers (four
degrees of over-confidence, two seeds), with none to four of five videos labeled: unlabeled videos lose at most .005 of
accuracy, 30 and 100 lose up to .05 and .03, and more gains nothing."""


class Anchored(NamedTuple):
    """Arguments of `hmmjax.fit` with which unlabeled frames do not change what a recognizer's outputs mean.

    Attributes:
        params: the starting parameters; emissions that have an anchor are learned from the labeled frames and the given
            emissions.
        priors: the given priors, with an `emissions.Anchor` at these emissions.
        freeze: emission blocks whose families take no anchor; they keep their starting parameters.
    """

    params: Params
    priors: Priors
    freeze: tuple[str, ...]


def anchor(
    params: Params,
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    priors: Priors | None = None,
    strength: float = STRENGTH,
) -> Anchored:
    """Return priors that hold the emissions of a partly labeled or unlabeled track, as `hmmjax.fit` does by default.

    For each such track, emissions are first learned from its labeled frames together with `Emission.anchor_frames`
    pseudo-frames per state of the given emissions. The prior then has its mode there and counts as `strength`
    pseudo-frames per unlabeled frame, spread evenly over the states: the more of the frames are labeled, the weaker it
    is. Tracks that are labeled throughout are left alone, and so are recognizers of features or of other classes than
    the states, which have no meaning of their own to hold on to.

    Args:
        params: the starting parameters.
        obs: (B, T, ...) observations.
        mask: (B, T) bool, True where observed.
        labels: known states; -1 is unknown.
        priors: pseudo-counts of the other blocks; those of emissions are replaced where an anchor holds them.
        strength: pseudo-frames per unlabeled frame; 0 is no anchor.

    Returns:
        `Anchored`: ``fit(a.params, obs, mask, labels, priors=a.priors, freeze=a.freeze)`` equals
        ``fit(params, obs, mask, labels)``; ``fit(params, obs, mask, labels, priors=hmmjax.Priors())`` has no anchor.

    Raises:
        TypeError, ValueError: bad input, or a negative strength.
    """
    if not strength >= 0:
        raise ValueError(f"strength={strength} must be 0 (no anchor) or positive.")
    batch = prepare(params, obs, mask, labels)
    return anchor_batch(canonical(params), batch, Priors() if priors is None else priors, strength)


def learn_emissions(
    params: Params, obs: Observations, mask: Any, labels: Labels, *, frames: float | None = None
) -> Params:
    """Estimate emissions from single labeled frames, shrunk towards the given ones.

    Args:
        params: a model whose emissions take an anchor.
        obs: (B, T, ...) observations.
        mask: (B, T) bool, True where observed; None if all frames are.
        labels: known states; -1 is unknown.
        frames: pseudo-frames per state of the given emissions; None means each family's `Emission.anchor_frames`, which
            suit labels of whole videos, whose frames resemble each other. Frames labeled one by one count for more.

    Returns:
        The model with estimated emissions of the tracks that are observed and labeled.

    Raises:
        TypeError, ValueError: bad input.

    Source: posterior mode under the conjugate prior, see `emissions.Anchor`.
    """
    batch = prepare(params, obs, mask, labels)
    params = canonical(params)
    for track, known in (("phases", batch.phase_labels), ("tools", batch.tool_labels)):
        if known is not None and getattr(batch, track) is not None:
            params = _learn_from_labels(params, batch, track, frames)
    return params


def anchor_options(
    params: Params, obs: Observations, mask: Any, labels: Labels | None, options: dict[str, Any]
) -> tuple[Params, dict[str, Any]]:
    """Return starting parameters and options of `fit` that give several calls the anchors of the first one.

    Args:
        params: the starting parameters of the first call.
        obs: (B, T, ...) observations.
        mask: (B, T) bool or None.
        labels: known states or None.
        options: keyword arguments of `fit`. Options with priors are returned unchanged.
    """
    if options.get("priors") is not None:
        return params, options
    found = anchor(params, obs, mask, labels)
    frozen = frozen_blocks(options.get("freeze", ())) | set(found.freeze)
    return found.params, {**options, "priors": found.priors, "freeze": frozen}


def anchor_batch(params: Params, batch: Batch, priors: Priors, strength: float = STRENGTH) -> Anchored:
    """Return what `anchor` does, given a batch."""
    freeze: list[str] = []
    for track in ("phases", "tools"):
        chain = getattr(params, track)
        if chain is None or chain.emission is None or getattr(batch, track) is None or not strength:
            continue
        frames = _unlabeled_frames(batch, track, dtype_of(params))
        if (is_concrete(frames) and not np.asarray(frames).any()) or not any(map(has_meaning, chain.emission.sources)):
            continue
        if not all(family.unwrapped.accepts_anchor or not has_meaning(family) for family in chain.emission.sources):
            freeze.append(f"{track}.emission")
            continue
        states = params.num_phases if track == "phases" else 2
        params, anchors = _center(params, batch, track, strength * frames / states)
        priors = _with_anchors(priors, f"{track[:-1]}_emission", chain.emission, anchors)
    return Anchored(params, priors, tuple(freeze))


def _unlabeled_frames(batch: Batch, track: str, dtype: Any) -> Any:
    """Return the number of observed frames without a label, () for phases and (K,) for tools."""
    labels = batch.phase_labels if track == "phases" else batch.tool_labels
    if labels is None:
        unknown = batch.observed
    else:
        unknown = batch.observed.reshape(*batch.observed.shape, *[1] * (labels.ndim - 2)) & (labels < 0)
    xp: Any = np if is_concrete(batch) and batch.split is None else jnp
    return xp.asarray(unknown.sum((0, 1)), dtype)


def has_meaning(family: Emission) -> bool:
    """Return whether a recognizer's classes are the states of its track."""
    if family.observes == "reals":
        return False
    return family.observes != "labels" or family.num_symbols == (family.size if family.track == "phases" else 2)


def _center(params: Params, batch: Batch, track: str, frames: Any) -> tuple[Params, tuple[Any, ...]]:
    """Return the model with emissions learned from labeled frames, and the anchors at them (None if not anchored)."""
    labels = batch.phase_labels if track == "phases" else batch.tool_labels
    if labels is not None:
        params = _learn_from_labels(params, batch, track)
    if track == "tools":
        xp: Any = np if is_concrete(frames) else jnp
        frames = xp.broadcast_to(xp.asarray(frames)[..., None], (params.num_tools, 2))
    families = getattr(params, track).emission.sources
    return params, tuple(Anchor(family.unwrapped, frames) if has_meaning(family) else None for family in families)


@partial(jax.jit, static_argnames="track")
def _learn_from_labels(params: Params, batch: Batch, track: str, frames: Any = None) -> Params:
    """Return the model with the anchored emissions of a track estimated from its labeled frames and themselves."""
    chain, dtype = getattr(params, track), dtype_of(params)
    labels, states = (batch.phase_labels, params.num_phases) if track == "phases" else (batch.tool_labels, 2)
    valid = batch.valid.reshape(*batch.valid.shape, *[1] * (labels.ndim - 1))
    weights = jnp.where(valid, jax.nn.one_hot(labels, states, dtype=dtype), 0)
    counts = statistics(chain, getattr(batch, track), label_weights(chain.emission, weights), batch)

    def learn(source: Source, family: Emission) -> Emission:
        if source.track != track or not has_meaning(family) or observations_of(batch, source) is None:
            return family
        own = counts[source.index] if isinstance(chain.emission, Fused) else counts
        strength = family.unwrapped.anchor_frames if frames is None else frames
        return family.maximize(own, Anchor(family.unwrapped, jnp.asarray(strength, dtype)))

    return map_families(params, learn)


def _with_anchors(priors: Priors, field: str, emission: Emission, anchors: tuple[Any, ...]) -> Priors:
    """Return the priors with anchors in place of the pseudo-counts of the anchored recognizers of a track."""
    given = getattr(priors, field)
    entries = tuple(
        (given[i] if isinstance(given, tuple) else given) if own is None else own for i, own in enumerate(anchors)
    )
    return Priors(**{**vars(priors), field: entries if isinstance(emission, Fused) else entries[0]})

"""The hidden Markov model's conditional likelihood of the labels as a loss on top of a network: end to end.

A network that is to be stabilized afterwards need not be right in every frame; it has to say what the chain can use.
The loss is -log P(labels | what the network says), in nats a frame: the log-likelihood with the labels clamped taken
from the one without them. Both are differentiable in the network's probabilities, at the cost of an E-step each.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import jax
from jax import Array
from jax import numpy as jnp

import hmmjax
from hmmjax.io import load_params


class HMMLoss:
    """A fixed model's conditional likelihood, called as ``loss(logits, labels, mask)``.

    Args:
        path: a model file, with probability emissions for the tracks that the network has.

    Raises:
        ValueError: when the emissions read labels, through which nothing can be differentiated.
    """

    def __init__(self, path: str | Path):
        self.params = load_params(path).params
        for track in ("phases", "tools"):
            emission = getattr(getattr(self.params, track), "emission", None)
            if emission is not None and emission.observes != "probabilities":
                raise ValueError(
                    f"{path}: the emissions of {track} read labels, which have no gradient. Fix: learn the model with "
                    "probability emissions"
                )

    def __call__(self, logits: Mapping[str, Array], labels: Mapping[str, Array], mask: Array) -> Array:
        """-log P(labels | network), in nats a frame.

        Args:
            logits: by track, (B, T, classes).
            labels: by track, (B, T) and (B, T, K), -1 unknown.
            mask: (B, T) frames that are there.

        Returns:
            A scalar.
        """
        obs, known = hmmjax.Observations(), hmmjax.Labels()
        said = {"phases": jax.nn.softmax, "tools": jax.nn.sigmoid}
        for track in ("phases", "tools"):
            chain = getattr(self.params, track)
            if chain is None:
                continue
            known = dataclasses.replace(known, **{track: labels[track]})
            if chain.emission is not None and track in logits:
                obs = dataclasses.replace(obs, **{track: said[track](logits[track])})
        free = hmmjax.log_likelihood(self.params, obs, mask)
        clamped = hmmjax.log_likelihood(self.params, obs, mask, known)
        return (free - clamped).sum() / jnp.maximum(mask.sum(), 1)

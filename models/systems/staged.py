"""Systems whose temporal model computes logits itself, in stages: MS-TCN, TeCNO and ASFormer."""

from collections.abc import Mapping

from jax import Array
from jax import numpy as jnp

from models.backbones import Backbone
from models.systems.base import Criterion, Outputs, Terms
from models.systems.network import ComposedSystem, temporal_key
from models.temporal import Staged, smoothing_loss


class StagedSystem(ComposedSystem):
    """A backbone and a temporal model in stages; the logits of the last stage are the system's.

    Args:
        backbone: images (N, H, W, 3) to features.
        temporal: a model of feature sequences (B, T, D), with the number of classes by track.
        options: `mean`, `std` and `rngs` of `ComposedSystem`.
    """

    temporal: Staged

    def __init__(self, backbone: Backbone, temporal: Staged, **options):
        super().__init__(backbone, {}, {}, temporal=temporal, **options)

    def outputs(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Outputs:
        """Compute logits by track; there are no heads with inputs.

        Args:
            features: (B, T, D).
            mask: (B, T), False at missing frames.
            key: for dropout; needed only in training mode.
        """
        return Outputs(self.temporal(features, mask, key=temporal_key(key)), {})

    def training_loss(
        self, batch: Mapping[str, Array], criterion: Criterion, *, key: Array | None
    ) -> tuple[Array, Terms]:
        """Compute the sum of the losses of all stages, and the terms by name.

        Args:
            batch: "images" (N, T, H, W, 3), or "features" (N, T, D) with "mask"; and labels.
            criterion: the loss of logits against labels.
            key: for dropout and stochastic depth.

        Returns:
            The loss, and the terms of the last stage by track, "smoothness" of all stages if it has a weight, and the
            terms that `criterion` defines on sequences, of the last stage.
        """
        features = batch.get("features")
        if features is None:
            features = self.features(batch["images"], key=key)
        mask = batch.get("mask", jnp.ones(features.shape[:2], bool))
        stages = self.temporal.every_stage(features, mask, key=temporal_key(key))
        losses = [criterion.frames(logits, batch) for logits in stages]
        more = criterion.sequences(stages[-1], batch, mask)
        if weight := self.temporal.smoothness:
            more = more | {"smoothness": weight * jnp.stack([smoothing_loss(x, mask) for x in stages]).sum()}
        return jnp.asarray(sum(value for value, _ in losses) + sum(more.values())), losses[-1][1] | more

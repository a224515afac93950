"""Train a network through the model: the gradient of the HMM's loss reaches its weights.

    python examples/end_to_end.py --steps 300

A linear layer reads noisy features frame by frame. Trained alone it minimizes cross-entropy; trained end to end it
minimizes -log P(labels | its outputs) under the hidden Markov model, and leaves to the chain what the chain can do.
"""

import argparse
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

import hmmjax


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Print and return the stabilized accuracy on held-out videos for both objectives."""
    parser = argparse.ArgumentParser(description="Train a small network through the hidden Markov model.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--noise", type=float, default=2.5)
    options = parser.parse_args(argv)
    world = hmmjax.init_params(num_phases=4)
    labels, _, mask = hmmjax.sample(world, jax.random.key(1), [options.frames] * 8)
    phases = np.asarray(labels.phases)
    rng = np.random.default_rng(0)
    features = np.eye(4)[phases] @ rng.normal(size=(4, 16)) + options.noise * rng.normal(size=(*phases.shape, 16))
    features = jnp.asarray(features, jnp.float32)
    train, test = slice(0, 4), slice(4, 8)

    def outputs(weights: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(features @ weights)

    def cross_entropy(weights: jax.Array) -> jax.Array:
        return -jnp.take_along_axis(outputs(weights)[train], phases[train][..., None], -1).mean()

    # Scaled likelihoods: p(output | phase) is proportional to the softmax output.
    chain = hmmjax.PhaseChain(world.phases.initial, world.phases.transition, Softmax(4))
    params = hmmjax.Params(chain)

    def stabilized(weights: jax.Array) -> jax.Array:
        predicted = hmmjax.Observations(jnp.exp(outputs(weights)[train]))
        known = hmmjax.Labels(phases[train])
        return -hmmjax.conditional_log_likelihood(params, predicted, mask[train], known).sum() / mask[train].sum()

    found = {}
    for name, loss in (("cross-entropy", cross_entropy), ("through the model", stabilized)):
        step = jax.jit(jax.value_and_grad(loss))
        weights = jnp.zeros((16, 4))
        for _ in range(options.steps):
            value, gradient = step(weights)
            weights = weights - 0.5 * gradient
        posterior = hmmjax.posterior(params, hmmjax.Observations(jnp.exp(outputs(weights)[test])), mask[test])
        found[name] = float((np.asarray(posterior.phases).argmax(-1) == phases[test]).mean())
        print(f"{name:<18} loss {float(value):.4f}   accuracy of held-out videos, stabilized {found[name]:.4f}")
    return found


@hmmjax.pytree
class Softmax(hmmjax.emissions.PhaseEmission):
    """The softmax output as likelihood, with a uniform prior over phases."""

    classes: int = hmmjax.static()
    observes = "probabilities"

    @property
    def num_phases(self) -> int:
        """Number of phases."""
        return self.classes

    def log_prob(self, observations: jax.Array) -> jax.Array:
        """Return log-likelihoods (..., L)."""
        return jnp.log(jnp.clip(observations, 1e-9, 1))


if __name__ == "__main__":
    main()

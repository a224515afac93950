"""Learn an emission family of your own by gradient ascent on the exact likelihood.

    python examples/learn_a_family.py --steps 200

The family models the log-probabilities of phase p as Gaussian with a mean per phase and one width for all phases:
unlike any network's softmax, but short. It defines no M-step; gradient ascent on the likelihood of unlabeled
videos finds its parameters. (`hmmjax.emissions.PhaseGaussian`, over any features, is fitted by EM.)
"""

import argparse
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

import hmmjax
from hmmjax.emissions import PhaseEmission


@hmmjax.pytree
class PhaseIsotropic(PhaseEmission):
    """Log-probabilities given phase p: Gaussian, mean `means[p]` of (L, L), standard deviation exp(`log_width`)."""

    means: jax.Array
    log_width: jax.Array
    observes = "probabilities"

    @property
    def num_phases(self) -> int:
        """Number of phases."""
        return self.means.shape[0]

    def log_prob(self, observations: jax.Array) -> jax.Array:
        """Return log-densities (..., L), up to a term that is the same for all phases."""
        logits = jnp.log(jnp.clip(observations, 1e-6, 1))
        distance = ((logits[..., None, :] - self.means) ** 2).sum(-1)
        return -0.5 * distance / jnp.exp(2 * self.log_width) - self.num_phases * self.log_width


def main(argv: Sequence[str] | None = None) -> list[float]:
    """Print and return the log-likelihood per frame at every step."""
    parser = argparse.ArgumentParser(description="Learn an emission family by gradient.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.05)
    options = parser.parse_args(argv)
    world = hmmjax.init_params(num_phases=3)
    labels, obs, mask = hmmjax.sample(world, jax.random.key(0), [options.frames, options.frames])
    family = PhaseIsotropic(jnp.log(0.25 + 0.5 * jnp.eye(3)), jnp.zeros(()))

    def objective(family: PhaseIsotropic) -> jax.Array:
        chain = hmmjax.PhaseChain(world.phases.initial, world.phases.transition, family)
        return hmmjax.log_likelihood(hmmjax.Params(chain), obs, mask).sum() / mask.sum()

    step = jax.jit(jax.value_and_grad(objective))
    square = jax.tree.map(jnp.zeros_like, family)
    history = []
    for _ in range(options.steps):
        value, gradient = step(family)
        history.append(float(value))
        # RMSprop; the family is a pytree, so that optax works as well.
        square = jax.tree.map(lambda s, g: 0.9 * s + 0.1 * g**2, square, gradient)
        family = jax.tree.map(lambda p, g, s: p + options.rate * g / jnp.sqrt(s + 1e-8), family, gradient, square)
    chain = hmmjax.PhaseChain(world.phases.initial, world.phases.transition, family)
    predicted = np.asarray(hmmjax.posterior(hmmjax.Params(chain), obs, mask).phases).argmax(-1)
    print(f"log-likelihood per frame {history[0]:.3f} -> {history[-1]:.3f} nats")
    print(f"accuracy without any label: {(predicted == labels.phases).mean():.3f}")
    return history


if __name__ == "__main__":
    main()

r"""Variance of the number of frames in each phase, or with each tool.

The number of frames N is a sum of dependent indicators. If \theta is added to the log-potential of every frame with the
phase or tool, the log-likelihood becomes the cumulant generating function of N given the observations: its derivatives
at 0 are the posterior mean and variance of N, exactly, whatever the coupling.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import lowering
from hmmjax._core.batch import Batch, canonical, prepare
from hmmjax._core.tables import tabulate
from hmmjax.types import Observations, Params

#: Half of the step of the central difference, in nats per frame: small compared to the inverse standard deviations of
#: counts, large compared to float32's rounding.
STEP = 0.01


def occupancy_variance(params: Params, obs: Observations, mask: Any, track: str) -> np.ndarray:
    """Compute the posterior variance of the number of observed frames in each phase, or with each tool.

    Args:
        params: the model.
        obs: (B, T, ...) observations.
        mask: (B, T) bool, True where observed.
        track: "phases" or "tools".

    Returns:
        (B, L) or (B, K), in frames squared.

    Source: the second cumulant, by a central difference of the expected number of frames.
    """
    batch = prepare(params, obs, mask, None)
    params = canonical(params)
    backend = lowering.choose_backend("auto", params)
    count = params.num_phases if track == "phases" else params.num_tools
    columns = []
    for c in range(count):
        up, down = (_expected(params, batch, sign * STEP, c, track=track, backend=backend) for sign in (1, -1))
        columns.append((np.asarray(up, np.float64) - np.asarray(down, np.float64)) / (2 * STEP))
    return np.stack(columns, 1)


@partial(jax.jit, static_argnames=("track", "backend"))
def _expected(params: Params, batch: Batch, theta: Any, c: Any, *, track: str, backend: str) -> Any:
    """Return the expected number of frames (B,) of class c if each of its frames is weighted by exp(theta)."""
    table = tabulate(params, batch)

    def log_likelihood(tilt: Any) -> Any:
        extra = tilt[:, None] * batch.observed
        if track == "phases":
            tilted = dataclasses.replace(table, phases=table.phases.at[..., c].add(extra))
        else:
            tilted = dataclasses.replace(table, tools=table.tools.at[..., c, 1].add(extra))
        return lowering.log_normalizer(params, tilted, batch.lengths, backend).sum()

    return jax.grad(log_likelihood)(jnp.full(batch.lengths.shape, theta, jnp.float32))

"""Autoregressive logit-normal emissions: log-odds regress on the recognizer's log-odds in the frame before."""

from types import MappingProxyType
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core.checks import check_positive, check_shape
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array, Float
from hmmjax.emissions.base import PhaseEmission, ToolEmission
from hmmjax.emissions.logit_normal import (
    MIN_SCALE,
    PRIOR_SCALE,
    PhaseLogitNormal,
    ToolLogitNormal,
    check_values,
    log_normal,
    log_odds,
    log_ratios,
    maximize_normal,
    moments,
    normal_log_prior,
)
from hmmjax.emissions.past import Past

SHRINKAGE = 10.0
"""Strength, in frames, with which `from_counts` shrinks regressions towards the normal without memory."""

CONSTRAINTS = MappingProxyType(
    {"mean": "real", "scale": "positive", "intercept": "real", "slope": "real", "residual": "positive"}
)


class _Regression:
    """Fields and M-step of both tracks. Arrays are (L, L - 1) for phases, (K, 2) for tools."""

    mean: Any
    scale: Any
    intercept: Any
    slope: Any
    residual: Any

    def maximize(self, statistics: dict[str, Array], pseudo_counts: Any = 0.0) -> Any:
        """Return weighted means and standard deviations, and weighted least squares on the frame before."""
        pseudo = jnp.asarray(pseudo_counts, jnp.asarray(self.mean).dtype)
        alone = {name: statistics[name] for name in ("weight", "first", "second")}
        mean, scale = maximize_normal(self.mean, self.scale, alone, pseudo)
        center = jnp.zeros_like(mean), jnp.full_like(mean, PRIOR_SCALE)
        build: Any = type(self)
        return build(mean, scale, *self._regress(statistics, self._over_log_odds(pseudo), *center))

    def from_counts(self, statistics: dict[str, Array], pseudo_counts: Any = 0.0) -> Any:
        """Return normals of all frames, and regressions that are shrunk towards them by `SHRINKAGE` frames."""
        pooled = {
            "weight": statistics["weight"] + statistics["pairs"],
            "first": statistics["first"] + statistics["y"],
            "second": statistics["second"] + statistics["yy"],
        }
        mean, scale = maximize_normal(self.mean, self.scale, pooled, pseudo_counts)
        build: Any = type(self)
        return build(mean, scale, *self._regress(statistics, jnp.full_like(mean, SHRINKAGE), mean, scale))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the log-density of the pseudo-frames, alone and as pairs of frames that are independent."""
        pseudo = jnp.asarray(pseudo_counts)
        intercept, slope, residual = (jnp.asarray(x) for x in (self.intercept, self.slope, self.residual))
        spread = intercept**2 + (1 + slope**2) * PRIOR_SCALE**2
        pairs = -0.5 * spread / residual**2 - jnp.log(residual)
        alone = normal_log_prior(self.mean, self.scale, self._over_log_odds(pseudo))
        return alone + jnp.sum(self._over_log_odds(pseudo) * pairs)

    def _over_log_odds(self, pseudo: Array) -> Array:
        """Return pseudo-counts in a shape that broadcasts to the fields."""
        return pseudo

    def _regress(self, statistics: dict[str, Array], pseudo: Any, mean: Array, scale: Array) -> tuple[Array, ...]:
        """Return intercept, slope and residual, with `pseudo` pairs of independent normals."""
        center = jnp.asarray(self.mean)
        mean = mean - center
        n = self._over_log_odds(statistics["pairs"]) + pseudo
        visited = n > 0
        safe = jnp.where(visited, n, 1)
        moment = pseudo * (mean**2 + scale**2)
        x, y = ((statistics[name] + pseudo * mean) / safe for name in ("x", "y"))
        xx = (statistics["xx"] + moment) / safe - x**2
        yy = (statistics["yy"] + moment) / safe - y**2
        xy = (statistics["xy"] + pseudo * mean**2) / safe - x * y
        varies = xx > MIN_SCALE**2
        slope = jnp.where(varies, xy / jnp.where(varies, xx, 1), 0)
        residual = jnp.sqrt(jnp.maximum(yy - slope * xy, MIN_SCALE**2))
        intercept = center + y - slope * (center + x)
        found, old = (intercept, slope, residual), (self.intercept, self.slope, self.residual)
        return tuple(jnp.where(visited, new, jnp.asarray(before)) for new, before in zip(found, old, strict=True))

    def _log_normal(self, odds: Array, past: Any, before: Array | None) -> Array:
        """Return log-densities of log-odds, given those of the frame before where `past` is observed."""
        alone = log_normal(odds, self.mean, self.scale)
        if before is None:
            return alone
        mean = jnp.asarray(self.intercept) + jnp.asarray(self.slope) * before
        return jnp.where(past, log_normal(odds, mean, self.residual), alone)

    def _draw(self, key: jax.Array, at: Any, past: Any, before: Array | None) -> Array:
        """Draw log-odds of the states that `at` selects."""
        mean, scale = at(self.mean), at(self.scale)
        if before is not None:
            mean = jnp.where(past, at(self.intercept) + at(self.slope) * before, mean)
            scale = jnp.where(past, at(self.residual), scale)
        return mean + scale * jax.random.normal(key, mean.shape, mean.dtype)

    def _moments(self, weight: Array, odds: Array, past: Any, before: Array | None) -> dict[str, Array]:
        """Return weighted moments (S, D) of log-odds (N, 1 or S, D) about `mean`, weight (N, S, 1 or D)."""
        alone = weight if before is None else jnp.where(past, 0, weight)
        pairs = jnp.zeros_like(weight) if before is None else jnp.where(past, weight, 0)
        x, y = (z - jnp.asarray(self.mean) for z in (odds if before is None else before, odds))
        return {
            **moments(alone, odds, self.mean),
            "x": (pairs * x).sum(0),
            "y": (pairs * y).sum(0),
            "xx": (pairs * x**2).sum(0),
            "xy": (pairs * x * y).sum(0),
            "yy": (pairs * y**2).sum(0),
        } | self._totals(alone.sum(0), pairs.sum(0))

    def _totals(self, alone: Array, pairs: Array) -> dict[str, Array]:
        return {"weight": alone, "pairs": pairs}

    def _check(self, track: str, shape: tuple[int, ...], meaning: str) -> None:
        for name in CONSTRAINTS:
            check_shape(f"{track}.emission.{name}", getattr(self, name), shape, meaning)
        check_values(track, self.mean, self.scale)
        check_positive(f"{track}.emission.residual", self.residual)
        for name in ("intercept", "slope"):
            if not np.isfinite(np.asarray(getattr(self, name), np.float64)).all():
                raise ValueError(f"{track}.emission.{name} must be finite.")


@pytree
class PhaseAutoregressiveLogitNormal(_Regression, PhaseEmission):
    """Log-odds z[q] = log(pi_q / pi_last) that regress on themselves in the frame before, for q < L - 1.

    Given phase p, z[q] is normal with mean intercept[p, q] + slope[p, q] * z_before[q] and standard deviation
    residual[p, q]; without a frame before with mean[p, q] and scale[p, q].

    Attributes:
        mean: (L, L - 1) nats.
        scale: (L, L - 1) positive, nats.
        intercept: (L, L - 1) nats.
        slope: (L, L - 1) lag coefficients; 0 is no memory.
        residual: (L, L - 1) positive, nats.

    Outputs are clipped as in `PhaseLogitNormal`. Pseudo-counts (scalar or (L,)): pseudo-frames, alone and as
    independent pairs, with log-odds of mean 0 and standard deviation 2. `from_counts` shrinks regressions towards the
    normal without memory by `SHRINKAGE` frames.

    Source: switching autoregressions, Hamilton (1989), of a logistic-normal (Aitchison and Shen 1980).
    """

    mean: Array
    scale: Array
    intercept: Array
    slope: Array
    residual: Array
    observes = "probabilities"
    lag = 1
    constraints = CONSTRAINTS

    @property
    def num_phases(self) -> int:
        """Number of phases L."""
        return self.mean.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts are (L,) or a scalar."""
        return (self.mean.shape[0],)

    @classmethod
    def default(cls, num_phases: int) -> Self:
        """Return `PhaseLogitNormal.default` after every output: no memory."""
        start = PhaseLogitNormal.default(num_phases)
        return cls(start.mean, start.scale, start.mean, jnp.zeros_like(start.mean), start.scale)

    def log_prob(self, observations: Float[Array, "... L"], past: Past | None = None) -> Float[Array, "... L"]:
        """Return the log-density (..., L), on the simplex, of each softmax output (..., L) under each phase."""
        ratios, jacobian = log_ratios(observations)
        table = self._log_normal(ratios[..., None, :], *self._before(past))
        return table.sum(-1) + jacobian[..., None]

    def statistics(
        self, observations: Float[Array, "... L"], posterior: Float[Array, "... L"], past: Past | None = None
    ) -> dict[str, Array]:
        """Return weights (L,) and weighted moments (L, L - 1) of log-odds, alone and with those of the frame before."""
        n = self.num_phases
        seen, before = self._before(past)
        seen, before = (None if x is None else x.reshape(-1, 1, x.shape[-1]) for x in (seen, before))
        ratios = log_ratios(observations)[0].reshape(-1, 1, n - 1)
        return self._moments(posterior.reshape(-1, n, 1), ratios, seen, before)

    def sample(self, key: jax.Array, states: Array, past: Past | None = None) -> Array:
        """Draw softmax outputs (..., L) for phases (...,), given the outputs before."""
        seen, before = self._before(past)
        seen, before = (None if x is None else x[..., 0, :] for x in (seen, before))
        drawn = self._draw(key, lambda x: jnp.asarray(x)[states], seen, before)
        return jax.nn.softmax(jnp.concatenate([drawn, jnp.zeros_like(drawn[..., :1])], -1), -1)

    def check(self) -> None:
        """Raise ValueError unless shapes agree, numbers are finite and scales positive."""
        size = len(self.mean)
        self._check("phases", (size, size - 1), "(L, L - 1)")

    def _before(self, past: Past | None) -> tuple[Any, Any]:
        """Return whether frames before are observed (..., 1, 1), and their log-odds (..., 1, L - 1)."""
        if past is None:
            return None, None
        return past.observed[0][..., None, None], log_ratios(past.values[0])[0][..., None, :]

    def _over_log_odds(self, pseudo: Array) -> Array:
        return pseudo[..., None]

    def _totals(self, alone: Array, pairs: Array) -> dict[str, Array]:
        return {"weight": alone[:, 0], "pairs": pairs[:, 0]}


@pytree
class ToolAutoregressiveLogitNormal(_Regression, ToolEmission):
    """Log-odds z = log(pi_k / (1 - pi_k)) that regress on themselves in the frame before.

    Given presence d of tool k, z is normal with mean intercept[k, d] + slope[k, d] * z_before and standard deviation
    residual[k, d]; without a frame before with mean[k, d] and scale[k, d].

    Attributes:
        mean: (K, 2) nats.
        scale: (K, 2) positive, nats.
        intercept: (K, 2) nats.
        slope: (K, 2) lag coefficients; 0 is no memory.
        residual: (K, 2) positive, nats.

    Outputs are clipped as in `ToolLogitNormal`. Pseudo-counts (scalar or (K, 2)): pseudo-frames, alone and as
    independent pairs, with log-odds of mean 0 and standard deviation 2. `from_counts` shrinks regressions towards the
    normal without memory by `SHRINKAGE` frames.

    Source: switching autoregressions, Hamilton (1989), of a logistic-normal (Aitchison and Shen 1980).
    """

    mean: Array
    scale: Array
    intercept: Array
    slope: Array
    residual: Array
    observes = "probabilities"
    lag = 1
    constraints = CONSTRAINTS

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        return self.mean.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts are (K, 2) or broadcast to it."""
        return self.mean.shape

    @classmethod
    def default(cls, num_tools: int) -> Self:
        """Return `ToolLogitNormal.default` after every output: no memory."""
        start = ToolLogitNormal.default(num_tools)
        return cls(start.mean, start.scale, start.mean, jnp.zeros_like(start.mean), start.scale)

    def log_prob(self, observations: Float[Array, "... K"], past: Past | None = None) -> Float[Array, "... K 2"]:
        """Return the log-density (..., K, 2) of each output (..., K) under absence and presence."""
        odds, jacobian = log_odds(observations)
        return self._log_normal(odds[..., None], *self._before(past)) + jacobian[..., None]

    def statistics(
        self, observations: Float[Array, "... K"], posterior: Float[Array, "... K 2"], past: Past | None = None
    ) -> dict[str, Array]:
        """Return weights and weighted moments (K, 2) of log-odds, alone and with those of the frame before."""
        k = self.num_tools
        seen, before = (None if x is None else x.reshape(-1, k, 1) for x in self._before(past))
        return self._moments(posterior.reshape(-1, k, 2), log_odds(observations)[0].reshape(-1, k, 1), seen, before)

    def sample(self, key: jax.Array, states: Array, past: Past | None = None) -> Array:
        """Draw sigmoid outputs (..., K) for presence 0 or 1 (..., K), given the outputs before."""
        seen, before = (None if x is None else x[..., 0] for x in self._before(past))
        tools = jnp.arange(self.num_tools)
        return jax.nn.sigmoid(self._draw(key, lambda x: jnp.asarray(x)[tools, states], seen, before))

    def check(self) -> None:
        """Raise ValueError unless shapes agree, numbers are finite and scales positive."""
        self._check("tools", (len(self.mean), 2), "(K, 2)")

    def _before(self, past: Past | None) -> tuple[Any, Any]:
        """Return whether frames before are observed and their log-odds, both (..., K, 1)."""
        if past is None:
            return None, None
        return past.observed[0][..., None], log_odds(past.values[0])[0][..., None]

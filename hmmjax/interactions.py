"""Odds ratios of a logistic block: how each tool's presence changes another tool's recognition or transitions."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import logistic, lowering
from hmmjax._core.batch import canonical, prepare
from hmmjax._core.sources import Source, observations_of
from hmmjax._core.typing import Float
from hmmjax.em import expectations
from hmmjax.emissions import ToolLogistic
from hmmjax.priors import Priors, check_priors, of_source
from hmmjax.transitions import Interacting
from hmmjax.types import Labels, Observations, Params

NORMAL_95 = 1.959964
"""Half width, in standard errors, of the central interval that holds 95 % of a normal distribution."""


@dataclasses.dataclass(frozen=True)
class OddsRatios:
    """Factors by which the presence of one tool multiplies the odds of another. Printing shows a table.

    Entry [..., k, j] is about tool k given tool j: the odds that k is predicted present (emissions), or is present in
    the next frame (transitions). The diagonal holds the effect of a tool's own presence. 1 means no interaction.

    Attributes:
        block: "tools.emission" or "tools.transition".
        log_ratio: (K, K) natural logarithms of odds ratios, the weights themselves; (L, K, K) for transitions given
            phases, with the phase of the next frame on the first axis.
        standard_error: standard errors of `log_ratio`, in the same shape; infinite without data.
        tool_names: (K,) names.
        phase_names: (L,) names; empty without an axis of phases.
    """

    block: str
    log_ratio: Float[np.ndarray, "*phases K K"]
    standard_error: Float[np.ndarray, "*phases K K"]
    tool_names: tuple[str, ...]
    phase_names: tuple[str, ...] = ()

    @property
    def ratio(self) -> Float[np.ndarray, "*phases K K"]:
        """Odds ratios."""
        return np.exp(self.log_ratio)

    @property
    def interval(self) -> tuple[Float[np.ndarray, "*phases K K"], Float[np.ndarray, "*phases K K"]]:
        """Ends of the 95 % confidence intervals (Wald's): exp(log ratio -+ 1.96 standard errors)."""
        with np.errstate(over="ignore"):
            low, high = (np.exp(self.log_ratio + s * NORMAL_95 * self.standard_error) for s in (-1, 1))
        return low, high

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per pair of different tools, the most significant interaction first.

        Keys: phase (only with an axis of phases), tool, given, odds_ratio, low, high, log_ratio, standard_error, z (log
        ratio in standard errors).
        """
        low, high = self.interval
        out = []
        for at in np.ndindex(self.log_ratio.shape):
            *phase, k, j = at
            if k == j:
                continue
            row: dict[str, Any] = {"phase": self.phase_names[phase[0]]} if phase else {}
            weight, error = float(self.log_ratio[at]), float(self.standard_error[at])
            row |= {"tool": self.tool_names[k], "given": self.tool_names[j], "odds_ratio": float(self.ratio[at])}
            row |= {"low": float(low[at]), "high": float(high[at]), "log_ratio": weight, "standard_error": error}
            out.append(row | {"z": weight / error if error > 0 else 0.0})
        return sorted(out, key=lambda row: -abs(row["z"]))

    def __str__(self) -> str:
        """Return a table of pairs of different tools, the most significant interaction first."""
        rows = self.rows()
        names = [key for key in ("phase", "tool", "given") if rows and key in rows[0]]
        wide = {key: max(len(key), *(len(row[key]) for row in rows)) + 2 for key in names}
        lines = ["".join(f"{key:<{wide[key]}}" for key in names) + f"{'odds ratio':>10}{'95% interval':>24}{'z':>8}"]
        for row in rows:
            interval = f"{row['low']:.3g} to {row['high']:.3g}"
            numbers = f"{row['odds_ratio']:>10.3g}{interval:>24}{row['z']:>8.1f}"
            lines.append("".join(f"{row[key]:<{wide[key]}}" for key in names) + numbers)
        return "\n".join(lines)


def odds_ratios(
    params: Params,
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    block: str = "tools.emission",
    source: int = 0,
    priors: Priors | None = None,
    tool_names: Sequence[str] | None = None,
    phase_names: Sequence[str] | None = None,
    backend: str = "auto",
) -> OddsRatios:
    """Return the odds ratios of a logistic block, with standard errors.

    The weights are those of `params`, usually fitted to the same videos. Their covariance is the inverse of the
    observed information of the weighted regressions that the last M-step solved,

        X' diag(n p (1 - p)) X + diag(ridge),

    where X has a row (1, tools present) for each of the 2**K configurations, n is the expected number of frames in it
    given the videos, and p its probability under the weights. Frames of a tempered emission count as their power.

    These errors treat frames as independent and expected states as observed. They do not include the information lost
    because states are hidden (Louis 1982), nor the effect of correlated errors: they are exact if every frame
    is labeled, and too small if the tools are uncertain.

    Args:
        params: model with `emissions.ToolLogistic` (possibly tempered or fused) or `transitions.Interacting`.
        obs: (B, T, ...) observations, or one video without B.
        mask: (B, T) bool, True where observed; None if all frames are.
        labels: known states; -1 is unknown.
        block: "tools.emission" or "tools.transition".
        source: index of the recognizer among several fused ones, from 0.
        priors: the pseudo-counts with which `params` was learned; their ridge counts as information.
        tool_names: (K,) names, or "cholec80" and the like; by default "tool 0" and so on.
        phase_names: (L,) names, or "cholec80" and the like; by default "phase 0" and so on.
        backend: "auto" or a name in `hmmjax.messages.BACKENDS`.

    Returns:
        `OddsRatios` of the block.

    Raises:
        TypeError: the block has no interactions.
        ValueError: bad input, an unknown block, or emissions of tools without observations.

    Source: the paper's second extension (docs/how-to/interacting-tools.md); McCullagh and Nelder (1989), section 4.4,
    for the information.
    """
    if block not in ("tools.emission", "tools.transition"):
        raise ValueError(f"block={block!r} has no odds ratios; choose 'tools.emission' or 'tools.transition'.")
    priors = Priors() if priors is None else priors
    batch = prepare(params, obs, mask, labels)
    params = canonical(params)
    check_priors(params, priors)
    emission = block == "tools.emission"
    logistic_block = _logistic_emission(params, source) if emission else _interacting_transition(params)
    if emission and observations_of(batch, Source("tools", source)) is None:
        raise ValueError("obs.tools has no observations of this recognizer: pass its labels, 0 or 1 per tool.")
    weights = np.asarray(logistic_block.weights, np.float64)
    phases = _names(phase_names, "phase", weights.shape[0]) if weights.ndim == 3 else ()
    tools = _names(tool_names, "tool", weights.shape[-2])
    if not batch.observed.size:
        raise ValueError("odds_ratios needs videos, but there are no frames.")
    values, expected = _expected(params, batch, lowering.choose_backend(backend, params))
    if (bad := np.flatnonzero(~np.isfinite(np.asarray(values)))).size:
        raise ValueError(
            f"video {bad[0]} is impossible under params (log-likelihood {float(values[bad[0]])}), so its expected "
            "counts are undefined: correct its labels, or use pseudo-counts when estimating the tables (hmmjax.Priors)."
        )
    counts = expected.tool_emission if emission else expected.tool_transition
    counts = counts[source] if isinstance(counts, tuple) else counts
    pseudo_counts = of_source(priors.tool_emission, source) if emission else priors.tool_transition
    ridge = np.asarray(logistic.ridge(pseudo_counts, jnp.asarray(logistic_block.weights)), np.float64)
    errors = logistic.standard_errors(weights, np.asarray(counts), ridge)
    return OddsRatios(block, weights[..., 1:], errors[..., 1:], tools, phases)


def _logistic_emission(params: Params, source: int) -> ToolLogistic:
    """Return the family of one recognizer of tools; raise unless it is logistic."""
    emission = None if params.tools is None else params.tools.emission
    sources = () if emission is None else emission.sources
    if sources and not 0 <= source < len(sources):
        raise ValueError(f"source={source} is out of range: there are {len(sources)} recognizers, numbered from 0.")
    family = sources[source].unwrapped if sources else None
    if not isinstance(family, ToolLogistic):
        raise _no_interactions("tools.emission", family, ToolLogistic)
    return family


def _interacting_transition(params: Params) -> Interacting:
    """Return the transition model of the tools; raise unless tools interact."""
    transition = None if params.tools is None else params.tools.transition
    if not isinstance(transition, Interacting):
        raise _no_interactions("tools.transition", transition, Interacting)
    return transition


def _no_interactions(block: str, found: Any, wanted: type) -> TypeError:
    home = wanted.__module__.rsplit(".", 1)[0]
    return TypeError(
        f"params.{block} is {type(found).__name__}, which has no interactions between tools. Start from "
        f"{home}.{wanted.__name__} and fit it."
    )


@partial(jax.jit, static_argnames="backend")
def _expected(params: Params, data: Any, backend: str) -> Any:
    return expectations(params, data, backend)


def _names(names: Sequence[str] | None, what: str, count: int) -> tuple[str, ...]:
    if isinstance(names, str):
        from hmmjax.io import resolve_names

        names = resolve_names(names, f"{what}s")
    names = [f"{what} {i}" for i in range(count)] if names is None else names
    if len(names) != count:
        raise ValueError(f"{what}_names has {len(names)} names, but the model has {count} {what}s.")
    return tuple(names)

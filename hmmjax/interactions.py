"""Which tool's presence changes another's recognition, or its coming and going: odds ratios of a logistic block."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import logistic, lowering
from hmmjax._core.batch import prepare
from hmmjax._core.typing import Float
from hmmjax.em import expectations
from hmmjax.emissions import Fused, Tempered, ToolLogistic
from hmmjax.priors import Priors, check_priors, of_source
from hmmjax.transitions import Interacting
from hmmjax.types import Labels, Observations, Params

NORMAL_95 = 1.959964
"""Standard errors on either side of a weight that hold 95% of a normal distribution."""


@dataclasses.dataclass(frozen=True)
class OddsRatios:
    """By how much the presence of one tool multiplies the odds of another; printed as a table.

    Entry [..., k, j] is about tool k, given tool j: of k being called present (emissions), or being present in the next
    frame (transitions). On the diagonal is a tool's own presence. 1 is no interaction.

    Attributes:
        block: "tools.emission" or "tools.transition".
        log_ratio: (K, K) natural logarithms of odds ratios, the weights themselves; (L, K, K) of transitions given
            phases, the phase moved into first.
        standard_error: of `log_ratio`, in the same shape; infinite where the data say nothing.
        tool_names: (K,).
        phase_names: (L,); empty where there is no axis over phases.
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
        """Ends of 95% confidence intervals of odds ratios (Wald's): exp(log ratio -+ 1.96 standard errors)."""
        with np.errstate(over="ignore"):
            low, high = (np.exp(self.log_ratio + s * NORMAL_95 * self.standard_error) for s in (-1, 1))
        return low, high

    def rows(self) -> list[dict[str, Any]]:
        """Plain rows of pairs of different tools, the surest interaction first.

        Keys: phase (where there are phases), tool, given, odds_ratio, low, high, log_ratio, standard_error, z (log
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
        """Pairs of different tools, the surest interaction first."""
        rows = self.rows()
        names = [key for key in ("phase", "tool", "given") if rows and key in rows[0]]
        wide = {key: max(len(key), *(len(row[key]) for row in rows)) + 2 for key in names}
        lines = ["".join(f"{key:<{wide[key]}}" for key in names) + f"{'odds ratio':>10}{'95% interval':>24}{'z':>8}"]
        for row in rows:
            interval = f"{row['low']:.3g} to {row['high']:.3g}"
            figures = f"{row['odds_ratio']:>10.3g}{interval:>24}{row['z']:>8.1f}"
            lines.append("".join(f"{row[key]:<{wide[key]}}" for key in names) + figures)
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
    """Odds ratios of a logistic block with standard errors: which tool changes the recognition of which other.

    The weights are those of `params`, usually just fitted to these videos. Their covariance is the inverse of the
    observed information of the weighted regressions that the last M-step solved,

        X' diag(n p (1 - p)) X + diag(ridge),

    where X has a row (1, tools present) for each of the 2**K configurations, n is the expected number of frames in it
    given the videos, and p its probability under the weights. A tempered emission's frames count as their power.

    Those errors take frames for independent and the expected states for seen: what is lost by not seeing them is not
    in there (Louis 1982), nor are errors that come in runs. They are exact where every frame is labeled, and too small
    where the tools are in doubt.

    Args:
        params: with `emissions.ToolLogistic` (tempered or fused, if you like) or `transitions.Interacting`.
        obs: (B, T, ...) observations, or one video without B.
        mask: (B, T) bool, True where observed; None is all.
        labels: known states; -1 is unknown.
        block: "tools.emission" or "tools.transition".
        source: which of several fused recognizers.
        priors: those that `params` was learned with: their ridge is information too.
        tool_names: (K,) names; by default "tool 0" and so on.
        phase_names: (L,) names likewise.
        backend: as in `posterior`.

    Returns:
        `OddsRatios` of the block; ``print`` it.

    Raises:
        TypeError: the block is of another kind.
        ValueError: bad input, an unknown block, or emissions of tools that nobody observes.

    Source: the paper's second extension (docs/interactions.md); McCullagh and Nelder (1989), section 4.4, for the
    information.
    """
    if block not in ("tools.emission", "tools.transition"):
        raise ValueError(f"block={block!r} has no odds ratios; choose 'tools.emission' or 'tools.transition'.")
    priors = Priors() if priors is None else priors
    data = prepare(params, obs, mask, labels)
    check_priors(params, priors)
    emission = block == "tools.emission"
    family: Any = None if params.tools is None else getattr(params.tools, block.split(".")[1])
    families = family.families if isinstance(family, Fused) else (family,)
    if not 0 <= source < len(families):
        raise ValueError(f"source={source} is none of the {len(families)} recognizers, numbered from 0.")
    pseudo = of_source(priors.tool_emission, source) if emission else priors.tool_transition
    chosen = families[source]
    chosen = chosen.family if isinstance(chosen, Tempered) else chosen
    wanted = ToolLogistic if emission else Interacting
    if not isinstance(chosen, wanted):
        raise TypeError(
            f"params.{block} is {type(chosen).__name__}, in which no tool has a say in another's. Start from "
            f"{wanted.__module__.rsplit('.', 1)[0]}.{wanted.__name__} and fit it."
        )
    said = data.tools[source] if isinstance(data.tools, tuple) else data.tools
    if emission and said is None:
        raise ValueError("obs.tools says nothing, so nothing is known of how tools are recognized: give labels 0 or 1.")
    weights = np.asarray(chosen.weights, np.float64)
    phases = _names(phase_names, "phase", weights.shape[0]) if weights.ndim == 3 else ()
    tools = _names(tool_names, "tool", weights.shape[-2])
    if not data.observed.size:
        raise ValueError("odds_ratios needs videos: there is no frame at all.")
    values, expected = _expected(params, data, lowering.choose_backend(backend, params))
    if (bad := np.flatnonzero(~np.isfinite(np.asarray(values)))).size:
        raise ValueError(
            f"video {bad[0]} is impossible under params (log-likelihood {float(values[bad[0]])}), so nothing is "
            "expected in it: correct its labels, or give pseudo-counts where tables were estimated (hmmjax.Priors)."
        )
    counts = expected.tool_emission if emission else expected.tool_transition
    counts = counts[source] if isinstance(counts, tuple) else counts
    penalty = np.asarray(logistic.ridge(pseudo, jnp.asarray(chosen.weights)), np.float64)
    errors = logistic.standard_errors(weights, np.asarray(counts), penalty)
    return OddsRatios(block, weights[..., 1:], errors[..., 1:], tools, phases)


@partial(jax.jit, static_argnames="backend")
def _expected(params: Params, data: Any, backend: str) -> Any:
    return expectations(params, data, backend)


def _names(names: Sequence[str] | None, what: str, count: int) -> tuple[str, ...]:
    names = [f"{what} {i}" for i in range(count)] if names is None else names
    if len(names) != count:
        raise ValueError(f"{what}_names has {len(names)} names, the model {count} {what}s.")
    return tuple(names)

"""Where to start: parameters before anything is known."""

from typing import Any

import jax.numpy as jnp

from hmmjax import emissions as families
from hmmjax import transitions
from hmmjax._core import logistic
from hmmjax.types import Params, PhaseChain, ToolChains


def init_params(
    num_phases: int = 0,
    num_tools: int = 0,
    *,
    emissions: str = "probability",
    stay: float = 0.98,
    interacting: bool = False,
) -> Params:
    """A sensible start: sticky chains, recognizers that are right more often than wrong.

    Args:
        num_phases: L; 0 for a model without phases.
        num_tools: K; 0 for a model without tools.
        emissions: the families, a name of `FAMILIES`.
        stay: probability that a phase or a tool's presence lasts another frame.
        interacting: whether each tool's next state depends on all tools (`transitions.Interacting`), at first not at
            all. Emissions in which tools interact are called "logistic".

    Returns:
        The model: of phases initial (L,) and transition (L, L), of tools initial (K, L), or (K,) without phases, and
        transitions to match.

    Raises:
        ValueError: neither phases nor tools, an unknown kind of emissions, or too many tools to interact.
    """
    if num_phases < 0 or num_tools < 0 or num_phases + num_tools == 0:
        raise ValueError(f"num_phases={num_phases}, num_tools={num_tools}: at least one of them must be positive.")
    phase_family, tool_family = _families(emissions)
    if interacting or tool_family.is_joint:
        logistic.check_size(num_tools)
    phases = tools = None
    if num_phases:
        away = (1 - stay) / max(num_phases - 1, 1)
        same = jnp.eye(num_phases, dtype=bool)
        transition = jnp.where(same, stay if num_phases > 1 else 1.0, away)
        initial = jnp.full((num_phases,), 1 / num_phases)
        phases = PhaseChain(initial, transition, phase_family.default(num_phases))
    if num_tools:
        lead = (num_tools, num_phases) if num_phases else (num_tools,)
        matrix = jnp.broadcast_to(jnp.array([[stay, 1 - stay], [1 - stay, stay]]), (*lead, 2, 2))
        transition = transitions.PhaseConditioned(matrix)
        if interacting:
            transition = transitions.Interacting.from_phase_conditioned(transition)
        tools = ToolChains(jnp.full(lead, 0.5), transition, tool_family.default(num_tools))
    return Params(phases, tools)


FAMILIES: dict[str, tuple[Any, Any]] = {
    "confusion": (families.PhaseConfusion, families.ToolConfusion),
    "probability": (families.PhaseDirichlet, families.ToolBeta),
    "inflated": (families.PhaseInflatedDirichlet, families.ToolInflatedBeta),
    "logit-normal": (families.PhaseLogitNormal, families.ToolLogitNormal),
    "scaled": (families.PhaseScaled, families.ToolScaled),
    "logistic": (families.PhaseConfusion, families.ToolLogistic),
}
"""Pairs of emission families, phases' and tools', by name."""

LABELS = tuple(name for name, pair in FAMILIES.items() if pair[0].observes == "labels")
"""Those that observe labels; the others observe probabilities."""


def _families(kind: str) -> tuple[Any, Any]:
    if kind not in FAMILIES:
        raise ValueError(f"emissions={kind!r} is unknown; choose {' or '.join(map(repr, FAMILIES))}.")
    return FAMILIES[kind]

"""Initial parameters: defaults before anything is known, and estimates by counting labels."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax import transitions
from hmmjax._core import logistic
from hmmjax._core import numerics as num
from hmmjax._core.batch import Batch, collect, dtype_of, pad_lists, prepare
from hmmjax._core.checks import check_array, check_label_dtype, is_concrete
from hmmjax._core.configurations import multiply_over_tools
from hmmjax._core.interpreter import interpretable
from hmmjax._core.typing import Array
from hmmjax.em import Expected, maximize, statistics
from hmmjax.emissions import Emission, PhaseAutoregressive, PhaseConfusion
from hmmjax.emissions.registry import families_named
from hmmjax.priors import Priors, check_priors
from hmmjax.types import Labels, Observations, Params, PhaseChain, ToolChains


def init_params(
    num_phases: int = 0,
    num_tools: int = 0,
    *,
    emissions: str = "probability",
    stay: float = 0.98,
    interacting: bool = False,
) -> Params:
    """Return default parameters: sticky chains, and recognizers that are right more often than wrong.

    Args:
        num_phases: L; 0 for a model without phases.
        num_tools: K; 0 for a model without tools.
        emissions: name of the emission families, one of `hmmjax.emissions.FAMILIES`.
        stay: probability that a phase, or a tool's presence or absence, continues in the next frame.
        interacting: whether each tool's next state depends on all tools (`transitions.Interacting`, with interactions
            of zero). Emissions with interactions are called "logistic".

    Returns:
        The model, with float32 arrays: for phases initial (L,) and transition (L, L); for tools initial (K, L), or (K,)
        without phases, and transitions of the same kind.

    Raises:
        ValueError: neither phases nor tools, an unknown name, or too many tools to interact.
    """
    if num_phases < 0 or num_tools < 0 or num_phases + num_tools == 0:
        raise ValueError(f"num_phases={num_phases}, num_tools={num_tools}: at least one of them must be positive.")
    phase_family, tool_family = families_named(emissions)
    if interacting or tool_family.is_joint:
        logistic.check_size(num_tools)
    if not is_concrete(stay):
        return _default_params(num_phases, num_tools, phase_family, tool_family, stay, interacting)
    return _default_program(num_phases, num_tools, phase_family, tool_family, float(stay), interacting)


def _default_params(
    num_phases: int, num_tools: int, phase_family: Any, tool_family: Any, stay: Any, interacting: bool
) -> Params:
    phases = tools = None
    if num_phases:
        leave = (1 - stay) / max(num_phases - 1, 1)
        same = jnp.eye(num_phases, dtype=bool)
        transition = jnp.where(same, stay if num_phases > 1 else 1.0, leave)
        initial = jnp.full((num_phases,), 1 / num_phases)
        phases = PhaseChain(initial, transition, phase_family.default(num_phases))
    if num_tools:
        lead = (num_tools, num_phases) if num_phases else (num_tools,)
        matrix = jnp.broadcast_to(jnp.array([[stay, 1 - stay], [1 - stay, stay]]), (*lead, 2, 2))
        transition = transitions.PhaseConditioned(matrix)
        if interacting:
            transition = transitions.Interacting.from_phase_conditioned(transition)
        tools = ToolChains(jnp.full(lead, 0.5), transition, tool_family.default(num_tools))
    # Weakly typed arrays would compile again once learning returns strongly typed ones.
    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype), Params(phases, tools))


# One program: operation by operation, JAX would compile some twenty.
_default_program = interpretable(
    _default_params,
    static_argnames=("num_phases", "num_tools", "phase_family", "tool_family", "stay", "interacting"),
)


FamilySpec = str | Emission | tuple[str | Emission, ...]
"""An emission family, by name or as an object, or a tuple with one entry per source."""


def estimate(
    labels: Labels,
    obs: Observations | None = None,
    mask: Any = None,
    *,
    emissions: FamilySpec | Mapping[str, FamilySpec] = "confusion",
    priors: Priors | None = None,
    num_phases: int | None = None,
    num_symbols: int | None = None,
    interacting: bool = False,
) -> Params:
    """Estimate parameters from labeled videos by counting, in one pass without EM: the paper's shortcut.

    Args:
        labels: phases (B, T) and/or tools (B, T, K); -1 is unknown and is not counted, nor are pairs with it.
        obs: (B, T, ...) outputs of the recognizer, from which emissions are estimated. A track without observations
            gets the default emissions of `init_params`.
        mask: (B, T) bool; frames after the last observed one are ignored, and unobserved ones do not count for
            emissions.
        emissions: emission family by name (one of `hmmjax.emissions.FAMILIES`) or as an object, such as
            ``PhaseGaussian.from_data(features, 7)``. If `obs` holds a tuple of sources, it may be a tuple with one
            entry per source. A mapping with the keys "phases" and "tools" gives each track its own. A track
            without an entry, or for which an object of the other track was passed, gets "confusion".
        priors: pseudo-counts, for rare transitions.
        num_phases: L; by default as many as `obs` or the labels show. Needed if the last phase may be absent.
        num_symbols: number of different labels that a "confusion" or "autoregressive" recognizer of phases outputs, if
            it is not L. For tools, pass ``ToolConfusion.default(num_tools, num_symbols)`` as emissions.
        interacting: whether to learn `transitions.Interacting`, from frames in which all tools are known, as "logistic"
            emissions are. Both are regressions on the labels; `priors` are then a ridge.

    Returns:
        `Params` with one track for each that is labeled. Rows without labels are those of `init_params`.

    Raises:
        TypeError, ValueError: bad input, or no labels at all.

    Source: the paper's section 4.2 (e_k, s, B_{k,p}); equals a fully labeled `fit` in all rows with labels.
    """
    obs = Observations() if obs is None else obs
    if not isinstance(labels, Labels) or (labels.phases is None and labels.tools is None):
        raise ValueError("estimate counts labels: pass hmmjax.Labels(phases=..., tools=...), at least one of them.")
    require_labels(labels, obs)
    priors = Priors() if priors is None else priors
    obs, mask, labels, _ = pad_lists(obs, mask, labels)
    for track in ("phases", "tools"):
        if getattr(labels, track) is not None:
            check_array(f"labels.{track}", getattr(labels, track))
    k = 0 if labels.tools is None else labels.tools.shape[-1]
    if num_symbols is not None and num_symbols < 1:
        raise ValueError(f"num_symbols={num_symbols}: a recognizer has at least one label. Pass 1 or more, or None.")
    # Outputs tell the number of phases only if the recognizer has the model's classes.
    seen = obs if num_symbols is None else Observations()
    num_phases = count_phases(labels, seen, mask, emissions, num_phases)
    start = _start(num_phases, k, obs, emissions, num_symbols, interacting)
    batch = prepare(start, obs, mask, labels)
    if is_concrete(priors):
        check_priors(start, priors)
    return _estimate(start, batch, priors)


def _start(
    num_phases: int, num_tools: int, obs: Observations, emissions: Any, num_symbols: int | None, interacting: bool
) -> Params:
    """Return default chains with the families to estimate, fused if a track's observations are a tuple."""
    start = init_params(num_phases, num_tools, emissions="confusion", interacting=interacting)
    chains = {}
    for track, size in (("phases", num_phases), ("tools", num_tools)):
        chain, given = getattr(start, track), getattr(obs, track)
        if chain is not None:
            named = _named_for(track, emissions)
            if isinstance(named, tuple) and not isinstance(given, tuple):
                named = named[0]
            names = named if isinstance(named, tuple) else (named,) * (len(given) if isinstance(given, tuple) else 1)
            if isinstance(given, tuple) and len(names) != len(given):
                raise ValueError(f"emissions has {len(names)} families, but obs.{track} holds {len(given)} sources.")
            families = tuple(_default_family(track, name, size, num_symbols) for name in names)
            chain = dataclasses.replace(chain, emission=families if isinstance(given, tuple) else families[0])
        chains[track] = chain
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), Params(**chains))


def _named_for(track: str, emissions: Any) -> Any:
    """Return the part of `emissions` that applies to a track."""
    if isinstance(emissions, Mapping):
        if unknown := set(emissions) - {"phases", "tools"}:
            raise ValueError(f"emissions has the key {min(unknown)!r}, but only 'phases' and 'tools' are tracks.")
        return emissions.get(track, "confusion")
    families = emissions if isinstance(emissions, tuple) else (emissions,)
    if any(isinstance(family, Emission) and family.track != track for family in families):
        return "confusion"
    return emissions


def _default_family(track: str, named: str | Emission, size: int, num_symbols: int | None) -> Emission:
    if isinstance(named, Emission):
        return named
    phase_family, tool_family = families_named(named)
    if track == "tools":
        if tool_family.is_joint:
            logistic.check_size(size)
        return tool_family.default(size)
    if issubclass(phase_family, PhaseConfusion | PhaseAutoregressive):
        return phase_family.default(size, num_symbols)
    return phase_family.default(size)


def require_labels(labels: Labels, obs: Observations) -> None:
    """Raise ValueError if a track is observed but has no labels."""
    for track in ("phases", "tools"):
        if getattr(labels, track) is None and getattr(obs, track) is not None:
            raise ValueError(
                f"obs.{track} is given but labels.{track} is not: leave out the observations, add labels, or use fit."
            )


def count_phases(labels: Labels, obs: Observations, mask: Any, emissions: Any, num_phases: int | None) -> int:
    """Return the number of phases: the given one, or what families, probabilities or labels show."""
    if labels.phases is None:
        return 0
    check_label_dtype("labels.phases", labels.phases)
    if num_phases is not None:
        return num_phases
    named = _named_for("phases", emissions)
    for family in named if isinstance(named, tuple) else (named,):
        if isinstance(family, Emission):
            return family.size
    for source in jax.tree.leaves(obs.phases):
        if jnp.issubdtype(source.dtype, jnp.floating):
            return source.shape[-1]
    if not is_concrete(labels, obs):
        raise ValueError("estimate needs num_phases inside jax.jit: labels have no values by which to count phases.")
    batch = collect(Observations(phases=obs.phases), mask, Labels(phases=labels.phases))
    known = np.where(batch.valid, batch.phase_labels, -1).max(initial=-1)
    if known < 0:
        raise ValueError("labels.phases has no known phase (all are -1 or padding): label some frames.")
    predicted = [np.where(batch.observed, x, -1).max(initial=-1) for x in jax.tree.leaves(batch.phases)]
    return int(max(known, *predicted)) + 1 if predicted else int(known) + 1


@interpretable
def _estimate(start: Params, batch: Batch, priors: Priors) -> Params:
    dtype, valid = dtype_of(start), batch.valid
    expected: dict[str, Any] = dict.fromkeys(f.name for f in dataclasses.fields(Expected))
    phase = None
    if start.phases is not None:
        # Unknown states and padding become rows of zeros, which add nothing to the counts.
        phase = jnp.where(valid[..., None], jax.nn.one_hot(batch.phase_labels, start.num_phases, dtype=dtype), 0)
        expected["phase_initial"] = phase[:, 0].sum(0)
        expected["phase_transition"] = num.einsum("btp,btq->pq", phase[:, :-1], phase[:, 1:])
        expected["phase_emission"] = statistics(start.phases, batch.phases, phase, batch)
    if start.tools is not None:
        tool = jnp.where(valid[..., None, None], jax.nn.one_hot(batch.tool_labels, 2, dtype=dtype), 0)
        first, next_phase = tool[:, 0], None
        if phase is None:
            expected["tool_initial"] = first.sum(0)
        else:
            expected["tool_initial"] = num.einsum("bkj,bq->kqj", first, phase[:, 0])
            next_phase = phase[:, 1:]
        expected["tool_transition"] = start.tools.transition.count(tool[:, :-1], tool[:, 1:], next_phase)
        expected["tool_emission"] = statistics(
            start.tools, batch.tools, label_weights(start.tools.emission, tool), batch
        )
    params = maximize(start, Expected(**expected), priors, ("phases.emission", "tools.emission"))
    return Params(
        _with_counted_emission(params.phases, expected["phase_emission"], priors.phase_emission),
        _with_counted_emission(params.tools, expected["tool_emission"], priors.tool_emission),
    )


def label_weights(emission: Emission | None, states: Array) -> Array:
    """Return the weights that an emission's statistics take from one-hot states.

    Args:
        emission: the family, or None.
        states: (..., L) one-hot phases or (..., K, 2) one-hot states of tools; zeros if unknown.

    Returns:
        The states; for a joint family (..., K, 2**K) one-hot configurations, zeros unless all tools are known.
    """
    if emission is None or not emission.is_joint:
        return states
    configs = multiply_over_tools(states)
    return jnp.broadcast_to(configs[..., None, :], (*states.shape[:-1], configs.shape[-1]))


def _with_counted_emission(chain: Any, statistics: Any, pseudo_counts: Any) -> Any:
    if chain is None or statistics is None:
        return chain
    return dataclasses.replace(chain, emission=chain.emission.from_counts(statistics, pseudo_counts))

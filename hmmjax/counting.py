"""Parameters of labeled videos by counting, in one pass: the paper's shortcut."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import numerics as num
from hmmjax._core.batch import Batch, collect, dtype_of, pad_lists, prepare
from hmmjax._core.checks import check_array, check_label_dtype, is_concrete
from hmmjax._core.configurations import multiply_over_tools
from hmmjax.em import Expected, maximize, statistics
from hmmjax.initialize import init_params
from hmmjax.priors import Priors, check_priors
from hmmjax.types import Labels, Observations, Params


def estimate(
    labels: Labels,
    obs: Observations | None = None,
    mask: Any = None,
    *,
    emissions: str | tuple[str, ...] = "confusion",
    priors: Priors | None = None,
    num_phases: int | None = None,
    interacting: bool = False,
) -> Params:
    """Parameters of labeled videos by counting, in one pass: the paper's shortcut, no EM.

    Args:
        labels: phases (B, T) and/or tools (B, T, K); -1 is unknown and enters no count (nor do its pairs).
        obs: what the recognizer said, for the emissions; None, or a track that is None, leaves that track's emission
            at its default start (`init_params`).
        mask: (B, T) bool; frames after the last observed one are ignored, unobserved frames do not enter emissions.
        emissions: families by name, see `init_params`; must suit `obs`. A tuple of names, one a source, where `obs` is
            a tuple.
        priors: pseudo-counts, for rare transitions.
        num_phases: L; by default what `obs` or the labels show. Give it when the last phase may be absent.
        interacting: learn `transitions.Interacting`, from frames whose tools are all known, as "logistic" emissions
            are. Both are regressions on the labels; `priors` are then a ridge.

    Returns:
        `Params` with a track for each that is labeled. Rows that no label visits are those of `init_params`.

    Raises:
        TypeError, ValueError: bad input, or no labels at all.

    Source: the paper's section 4.2 (e_k, s, B_{k,p}); equals a fully labeled `fit` where rows are visited.
    """
    obs = Observations() if obs is None else obs
    if not isinstance(labels, Labels) or (labels.phases is None and labels.tools is None):
        raise ValueError("estimate counts labels: give hmmjax.Labels(phases=..., tools=...), at least one of them.")
    if (labels.phases is None and obs.phases is not None) or (labels.tools is None and obs.tools is not None):
        track = "phases" if labels.phases is None else "tools"
        raise ValueError(f"obs.{track} is given but labels.{track} is not: drop the one or add the other, or use fit.")
    priors = Priors() if priors is None else priors
    obs, mask, labels, _ = pad_lists(obs, mask, labels)
    for name in ("phases", "tools"):
        if getattr(labels, name) is not None:
            check_array(f"labels.{name}", getattr(labels, name))
    k = 0 if labels.tools is None else labels.tools.shape[-1]
    start = _start(_count_phases(labels, obs, mask, num_phases), k, obs, emissions, interacting)
    data = prepare(start, obs, mask, labels)
    if is_concrete(priors):
        check_priors(start, priors)
    return _estimate(start, data, priors)


def _start(
    num_phases: int, num_tools: int, obs: Observations, emissions: str | tuple[str, ...], interacting: bool
) -> Params:
    """Initial families, fused where a track's observations are a tuple."""
    names = emissions if isinstance(emissions, tuple) else (emissions,)
    starts = [init_params(num_phases, num_tools, emissions=name, interacting=interacting) for name in names]
    chains = {}
    for track in ("phases", "tools"):
        own, said = [getattr(start, track) for start in starts], getattr(obs, track)
        chains[track] = own[0]
        if own[0] is not None and isinstance(said, tuple):
            if isinstance(emissions, tuple) and len(own) != len(said):
                raise ValueError(f"emissions names {len(own)} families, obs.{track} holds {len(said)} sources.")
            families = (
                tuple(c.emission for c in own) if isinstance(emissions, tuple) else (own[0].emission,) * len(said)
            )
            chains[track] = dataclasses.replace(own[0], emission=families)
    return Params(**chains)


def _count_phases(labels: Labels, obs: Observations, mask: Any, num_phases: int | None) -> int:
    if labels.phases is None:
        return 0
    check_label_dtype("labels.phases", labels.phases)
    if num_phases is not None:
        return num_phases
    for source in jax.tree.leaves(obs.phases):
        if jnp.issubdtype(source.dtype, jnp.floating):
            return source.shape[-1]
    if not is_concrete(labels, obs):
        raise ValueError("Inside jax.jit, estimate needs num_phases: labels have no values to count phases by.")
    data = collect(obs, mask, Labels(phases=labels.phases))
    known = np.where(data.valid, data.phase_labels, -1).max(initial=-1)
    if known < 0:
        raise ValueError("labels.phases holds no known phase (all are -1 or padding): label some frames.")
    said = [np.where(data.observed, source, -1).max(initial=-1) for source in jax.tree.leaves(data.phases)]
    return int(max(known, *said)) + 1 if said else int(known) + 1


@jax.jit
def _estimate(start: Params, data: Batch, priors: Priors) -> Params:
    dtype = dtype_of(start)
    real = data.valid
    expected: dict[str, Any] = dict.fromkeys(f.name for f in dataclasses.fields(Expected))
    phase = tool = None
    if start.phases is not None:
        # A label of -1, or one in the padding, becomes a row of zeros and so enters no count.
        phase = jnp.where(real[..., None], jax.nn.one_hot(data.phase_labels, start.num_phases, dtype=dtype), 0)
        expected["phase_initial"] = phase[:, 0].sum(0)
        expected["phase_transition"] = num.einsum("btp,btq->pq", phase[:, :-1], phase[:, 1:])
        expected["phase_emission"] = statistics(start.phases, data.phases, phase, data)
    if start.tools is not None:
        tool = jnp.where(real[..., None, None], jax.nn.one_hot(data.tool_labels, 2, dtype=dtype), 0)
        first, into = tool[:, 0], None
        if phase is None:
            expected["tool_initial"] = first.sum(0)
        else:
            expected["tool_initial"] = num.einsum("bkj,bq->kqj", first, phase[:, 0])
            into = phase[:, 1:]
        expected["tool_transition"] = start.tools.transition.count(tool[:, :-1], tool[:, 1:], into)
        expected["tool_emission"] = statistics(start.tools, data.tools, labeled(start.tools.emission, tool), data)
    params = maximize(start, Expected(**expected), priors, ("phases.emission", "tools.emission"))
    return Params(
        _count_emission(params.phases, expected["phase_emission"], priors.phase_emission),
        _count_emission(params.tools, expected["tool_emission"], priors.tool_emission),
    )


def labeled(emission: Any, states: Any) -> Any:
    """One-hot states (..., K, 2) of tools, zeros where unknown, as the weights that an emission's statistics take.

    A joint emission takes whole configurations (..., K, 2**K): those of frames in which every tool is known.
    """
    if emission is None or not emission.is_joint:
        return states
    configs = multiply_over_tools(states)
    return jnp.broadcast_to(configs[..., None, :], (*states.shape[:-1], configs.shape[-1]))


def _count_emission(chain: Any, statistics: Any, pseudo_counts: Any) -> Any:
    """Return the chain with its emission estimated from labeled frames."""
    if chain is None or statistics is None:
        return chain
    return dataclasses.replace(chain, emission=chain.emission.from_counts(statistics, pseudo_counts))

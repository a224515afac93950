"""Eager checks of parameters, observations, masks and labels. Every message names the cause and the fix.

They run on concrete arrays only: inside a caller's own `jax.jit` there are no values to look at.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from hmmjax._core.batch import Data, require_observations
from hmmjax._core.checks import (
    check_array,
    check_probabilities,
    check_rows,
    check_shape,
    check_square,
)
from hmmjax.durations import check_stages
from hmmjax.emissions._observations import place
from hmmjax.emissions.base import Emission
from hmmjax.transitions import ToolTransition
from hmmjax.types import Params, PhaseChain, ToolChains


def check_params(params: Params) -> None:
    """Raise unless `params` is a model: shapes that agree, rows that sum to one, emissions of the right track.

    Raises:
        TypeError: a wrong kind of object.
        ValueError: a wrong shape or value.
    """
    if not isinstance(params, Params):
        raise TypeError(f"params must be hmmjax.Params, got {type(params).__name__}.")
    phases, tools = params.phases, params.tools
    if phases is None and tools is None:
        raise ValueError("params has neither phases nor tools; give hmmjax.PhaseChain, hmmjax.ToolChains or both.")
    for name, chain, kind in (("phases", phases, PhaseChain), ("tools", tools, ToolChains)):
        if chain is not None and not isinstance(chain, kind):
            raise TypeError(f"params.{name} must be hmmjax.{kind.__name__}, got {type(chain).__name__}.")
    if phases is not None:
        check_square("phases.transition", phases.transition, 2)
        check_rows("phases.transition", phases.transition, square=True)
        check_shape("phases.initial", phases.initial, (phases.num_phases,), "(L,), as phases.transition is (L, L)")
        check_rows("phases.initial", phases.initial)
        check_stages(phases.stages, phases.num_phases)
        _check_emission("phases", phases.emission, phases.num_phases)
    if tools is not None:
        check_array("tools.initial", tools.initial)
        if tools.initial.ndim == 0:
            raise ValueError("tools.initial is a single number; it needs an axis over tools: (K, L), or (K,) alone.")
        if tools.initial.shape[0] == 0:
            raise ValueError("tools.initial is of no tool at all: leave tools=None.")
        if not isinstance(tools.transition, ToolTransition):
            raise TypeError(
                f"tools.transition is {type(tools.transition).__name__}; wrap the table: "
                "hmmjax.transitions.PhaseConditioned(matrix)."
            )
        k = tools.num_tools
        shape = (k,) if phases is None else (k, phases.num_phases)
        meaning = "(K,) in a model without phases" if phases is None else "(K, L)"
        check_shape("tools.initial", tools.initial, shape, meaning)
        check_probabilities("tools.initial", tools.initial)
        tools.transition.check()
        tools.transition.check_size(k, None if phases is None else phases.num_phases)
        _check_emission("tools", tools.emission, k)


def _check_emission(track: str, emission: Any, size: int) -> None:
    if emission is None:
        return
    if not isinstance(emission, Emission) or emission.track != track:
        raise TypeError(
            f"{track}.emission is {type(emission).__name__}, which is not a family over {track}. "
            f"Families over {track} are in hmmjax.emissions and start with {track[:-1].capitalize()}."
        )
    emission.check()
    if emission.size != size:
        raise ValueError(
            f"{track}.emission {type(emission).__name__} is over {emission.size} {track}, the model has {size}."
        )


def check_data(params: Params, data: Data) -> None:
    """Raise unless observations and labels suit the model, frame by observed frame.

    Raises:
        TypeError: integers where a family wants floats, or the reverse.
        ValueError: out of range, NaN, or of a wrong shape.
    """
    observed = np.asarray(data.observed)
    real = np.arange(observed.shape[1]) < np.asarray(data.lengths)[:, None]
    _check_track("phases", data.phases, params.phases, observed)
    _check_track("tools", data.tools, params.tools, observed)
    _check_labels("phases", data.phase_labels, params.phases, params.num_phases, real)
    if data.tool_labels is not None and params.tools is not None:
        k = data.tool_labels.shape[-1]
        if k != params.num_tools:
            raise ValueError(f"labels.tools has {k} tools in its last axis, the model has {params.num_tools}.")
    _check_labels("tools", data.tool_labels, params.tools, 2, real)


def _check_track(track: str, observations: Any, chain: Any, observed: np.ndarray) -> None:
    if observations is None:
        return
    name = f"obs.{track}"
    if chain is None:
        raise ValueError(f"{name} is given but params.{track} is None. Drop it from hmmjax.Observations.")
    if chain.emission is None:
        raise ValueError(f"{name} is given but params.{track}.emission is None. Give the chain an emission family.")
    chain.emission.check_observations(name, observations, observed)


def _check_labels(track: str, labels: Any, chain: Any, size: int, real: np.ndarray) -> None:
    if labels is None:
        return
    if chain is None:
        raise ValueError(f"labels.{track} is given but params.{track} is None. Drop it from hmmjax.Labels.")
    values = np.asarray(labels)
    where = real if values.ndim == 2 else real[..., None]
    if (bad := where & ((values < -1) | (values >= size))).any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"labels.{track} is {int(values[at])} at {place(at)}: no state satisfies it. "
            f"Labels are 0..{size - 1}, and -1 for unknown."
        )


def check_observations(obs: Any) -> None:
    """TypeError unless `Observations`, of which every array is of integers, booleans or floats."""
    require_observations(obs)
    for name in ("phases", "tools"):
        x = getattr(obs, name, None)
        kinds = [getattr(source, "dtype", None) for source in (x if isinstance(x, tuple) else (x,))]
        for kind in kinds:
            if kind is not None and kind.kind not in "biu" and not jnp.issubdtype(kind, jnp.floating):
                raise TypeError(f"obs.{name} has dtype {kind}; give integer labels or floating point probabilities.")

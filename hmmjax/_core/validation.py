"""Eager checks of parameters, observations and labels. Every message names the cause and the fix.

Checks run on concrete arrays only: inside a caller's own `jax.jit` values are unknown. What an emission family observes
is checked by the family itself.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from hmmjax._core.checks import (
    check_array,
    check_probabilities,
    check_rows,
    check_shape,
    check_square,
    is_float,
)
from hmmjax._core.stages import check_stages
from hmmjax.emissions._observations import check_event_shape, place
from hmmjax.emissions.base import Emission
from hmmjax.emissions.fused import Fused, check_source
from hmmjax.transitions import ToolTransition
from hmmjax.types import Labels, Observations, Params, PhaseChain, ToolChains


def check_params(params: Params) -> None:
    """Raise unless `params` is a valid model: shapes agree, rows sum to one, emissions are of the right track.

    Raises:
        TypeError: an object of the wrong type.
        ValueError: a wrong shape or value.
    """
    if not isinstance(params, Params):
        held = type(params).__name__
        fix = " Pass its attribute `params`." if isinstance(getattr(params, "params", None), Params) else ""
        raise TypeError(f"params must be hmmjax.Params, got {held}.{fix}")
    phases, tools = params.phases, params.tools
    if phases is None and tools is None:
        raise ValueError("params has neither phases nor tools. Pass hmmjax.PhaseChain, hmmjax.ToolChains or both.")
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
            raise ValueError("tools.initial is a single number. It needs an axis of tools: (K, L), or (K,) alone.")
        if tools.initial.shape[0] == 0:
            raise ValueError("tools.initial has no tools (axis 0 is empty). Pass tools=None instead.")
        if not isinstance(tools.transition, ToolTransition):
            raise TypeError(
                f"tools.transition is {type(tools.transition).__name__}, not a transition model. Wrap the table: "
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


def check_data(params: Params, obs: Observations, labels: Labels, observed: np.ndarray, valid: np.ndarray) -> None:
    """Raise unless observations (in observed frames) and labels (in valid frames) suit the model.

    All arrays have an axis of videos; `observed` and `valid` are (B, T).

    Raises:
        TypeError: integers for a family that observes floats, or the reverse.
        ValueError: values out of range or NaN, or a wrong shape.
    """
    _check_track("phases", obs.phases, params.phases, observed)
    _check_track("tools", obs.tools, params.tools, observed)
    _check_labels("phases", labels.phases, params.phases, params.num_phases, valid)
    if labels.tools is not None and params.tools is not None:
        k = labels.tools.shape[-1]
        if k != params.num_tools:
            raise ValueError(f"labels.tools has {k} tools in its last axis, the model has {params.num_tools}.")
    _check_labels("tools", labels.tools, params.tools, 2, valid)


def _check_track(track: str, observations: Any, chain: Any, observed: np.ndarray) -> None:
    if observations is None:
        return
    name = f"obs.{track}"
    if chain is None:
        raise ValueError(f"{name} is given but params.{track} is None. Drop it from hmmjax.Observations.")
    if chain.emission is None:
        raise ValueError(f"{name} is given but params.{track}.emission is None. Set an emission family.")
    if isinstance(chain.emission, Fused) or isinstance(observations, tuple):
        chain.emission.check_observations(name, observations, observed)
        return
    check_source(chain.emission, name, observations, observed)
    values = np.asarray(observations)[observed]
    if len(values) > 1 and is_float(values) and (values != values).all():
        raise ValueError(
            f"{name} is NaN in every observed frame. Pass None if {track} were not observed; if a network diverged, "
            "correct it first."
        )


def check_event_shapes(params: Params, obs: Observations) -> None:
    """Raise ValueError unless observations (B, T, ...) have the shapes that their emission families observe.

    Shapes are known of traced arrays too. Without this check an axis of size one would broadcast.
    """
    for track in ("phases", "tools"):
        chain, observations = getattr(params, track), getattr(obs, track)
        if chain is None or not isinstance(chain.emission, Emission):
            continue
        fused = isinstance(observations, tuple)
        values = observations if fused else (observations,)
        for i, (family, x) in enumerate(zip(chain.emission.sources, values, strict=False)):
            if x is not None:
                name = f"obs.{track}[{i}]" if fused else f"obs.{track}"
                inner = family.unwrapped
                check_event_shape(name, x, type(inner).__name__, track, inner.event_shape)


def _check_labels(track: str, labels: Any, chain: Any, size: int, valid: np.ndarray) -> None:
    if labels is None:
        return
    if chain is None:
        raise ValueError(f"labels.{track} is given but params.{track} is None. Drop it from hmmjax.Labels.")
    values = np.asarray(labels)
    checked = valid if values.ndim == 2 else valid[..., None]
    if (bad := checked & ((values < -1) | (values >= size))).any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"labels.{track} is {int(values[at])} at {place(at)}, which is not a state. "
            f"Labels are 0..{size - 1}, or -1 for unknown."
        )


def require_observations(obs: Any) -> None:
    """Raise TypeError unless `obs` is `Observations`."""
    if not isinstance(obs, Observations):
        raise TypeError(f"obs must be hmmjax.Observations(phases=..., tools=...), got {type(obs).__name__}.")


def check_observations(obs: Any) -> None:
    """Raise TypeError unless `obs` is `Observations` of integers, booleans or floats."""
    require_observations(obs)
    for name in ("phases", "tools"):
        x = getattr(obs, name, None)
        kinds = [getattr(source, "dtype", None) for source in (x if isinstance(x, tuple) else (x,))]
        for kind in kinds:
            if kind is not None and kind.kind not in "biu" and not jnp.issubdtype(kind, jnp.floating):
                raise TypeError(f"obs.{name} has dtype {kind}. Pass integer labels or floating-point numbers.")

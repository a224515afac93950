"""Eager checks of parameters, observations, masks and labels. Every message names the cause and the fix.

They run on concrete arrays only: inside a caller's own `jax.jit` there are no values to look at.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from hmmjax._core.batch import Data, is_float, require_observations
from hmmjax._core.checks import (
    check_array,
    check_probabilities,
    check_rows,
    check_shape,
    check_square,
)
from hmmjax.durations import check_stages
from hmmjax.emissions.fused import Fused, present
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
    if getattr(emission, "track", None) != track:
        raise TypeError(
            f"{track}.emission is {type(emission).__name__}, which is not a family over {track}. "
            f"Families over {track} are in hmmjax.emissions and start with {track[:-1].capitalize()}."
        )
    emission.check()
    own = emission.num_phases if track == "phases" else emission.num_tools
    if own != size:
        raise ValueError(f"{track}.emission {type(emission).__name__} is over {own} {track}, the model has {size}.")


def check_data(params: Params, data: Data) -> None:
    """Raise unless observations and labels suit the model, frame by observed frame.

    Raises:
        TypeError: integers where a family wants floats, or the reverse.
        ValueError: out of range, NaN, or of a wrong shape.
    """
    observed = np.asarray(data.observed)
    real = np.arange(observed.shape[1]) < np.asarray(data.lengths)[:, None]
    _check_track("phases", data.phases, params.phases, params.num_phases, observed)
    _check_track("tools", data.tools, params.tools, params.num_tools, observed)
    _check_labels("phases", data.phase_labels, params.phases, params.num_phases, real)
    if data.tool_labels is not None and params.tools is not None:
        k = data.tool_labels.shape[-1]
        if k != params.num_tools:
            raise ValueError(f"labels.tools has {k} tools in its last axis, the model has {params.num_tools}.")
    _check_labels("tools", data.tool_labels, params.tools, 2, real)


def _check_track(track: str, observations: Any, chain: Any, size: int, observed: np.ndarray) -> None:
    if observations is None:
        return
    name = f"obs.{track}"
    if chain is None:
        raise ValueError(f"{name} is given but params.{track} is None. Drop it from hmmjax.Observations.")
    if chain.emission is None:
        raise ValueError(f"{name} is given but params.{track}.emission is None. Give the chain an emission family.")
    if not isinstance(observations, tuple):
        if isinstance(chain.emission, Fused):
            raise TypeError(f"{name} is one array but params.{track}.emission fuses several sources: give a tuple.")
        check_source(name, track, observations, chain.emission, size, observed)
        return
    families = chain.emission.families if isinstance(chain.emission, Fused) else ()
    if len(families) != len(observations):
        raise TypeError(
            f"{name} is a tuple of {len(observations)} sources, and params.{track}.emission has {len(families)}: give "
            "a tuple of emission families, one a source."
        )
    if all(x is None for x in observations):
        raise ValueError(f"{name} holds no source: give None in place of the tuple.")
    for i, (family, x) in enumerate(zip(families, observations, strict=True)):
        if x is not None:
            _check_silence(f"{name}[{i}]", track, np.asarray(x), observed)
            there, values = present(np.asarray(x), track)
            if track == "phases" and is_float(x):
                values = np.where(there[..., None], values, 1 / size)
            check_source(f"{name}[{i}]", track, values, family, size, observed)


def _check_silence(name: str, track: str, x: np.ndarray, observed: np.ndarray) -> None:
    """ValueError where it is not clear whether a fused source says something: -2, or a softmax half of NaN."""
    if is_float(x):
        missing = np.isnan(x.astype(np.float32))
        if track == "phases" and (bad := observed & missing.any(-1) & ~missing.all(-1)).any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            raise ValueError(f"{name} is NaN in some classes at {_place(at)}: make all of them NaN where it is silent.")
    elif (bad := (observed if x.ndim == 2 else observed[..., None]) & (x < -1)).any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name} is {int(x[at])} at {_place(at)}; only -1 says that it is silent there.")


def check_source(name: str, track: str, x: Any, family: Any, size: int, observed: np.ndarray) -> None:
    """Raise unless one source's observations suit its family."""
    kind = type(family).__name__
    if family.observes == "labels" and is_float(x):
        raise TypeError(
            f"{name} holds {x.dtype} probabilities but {kind} observes integer labels. "
            "Call obs.discretize(), or use a probability family (PhaseDirichlet, ToolBeta)."
        )
    if family.observes == "probabilities" and not is_float(x):
        raise TypeError(
            f"{name} holds {x.dtype} labels but {kind} observes probabilities. Pass the recognizer's softmax or "
            "sigmoid outputs, or use a confusion family (obs.discretize() makes labels of probabilities)."
        )
    if (track == "tools" or is_float(x)) and x.shape[-1] != size:
        raise ValueError(f"{name} has {x.shape[-1]} classes in its last axis, the model has {size} {track}.")
    values = np.asarray(x)
    where = observed if values.ndim == 2 else observed[..., None]
    if not is_float(x):
        top = size if track == "phases" else 2
        bad = where & ((values < 0) | (values >= top))
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            raise ValueError(
                f"{name} is {int(values[at])} at {_place(at)}, but its symbols are 0..{top - 1}. "
                "Renumber the classes, or mark the frame unobserved in mask."
            )
        return
    values = values.astype(np.float64)
    if (bad := where & np.isnan(values)).any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name} is NaN at {_place(at)}, an observed frame. Set mask to False where nothing was seen.")
    if (bad := where & ~((values >= 0) & (values <= 1 + 1e-5))).any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{name} is {values[at]:.6g} at {_place(at)}, outside [0, 1]. Logits must be turned into probabilities "
            "first: softmax for phases, sigmoid for tools."
        )
    if track == "phases":
        total = values.sum(-1)
        if (bad := observed & (np.abs(total - 1) > 0.05)).any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            raise ValueError(f"{name} sums to {total[at]:.4g} at {_place(at)}; a softmax output sums to one.")


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
            f"labels.{track} is {int(values[at])} at {_place(at)}: no state satisfies it. "
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


def _place(at: tuple[int, ...]) -> str:
    names = ("video", "frame", "class")
    return ", ".join(f"{n} {i}" for n, i in zip(names, at, strict=False))

"""Check the observations of single frames, for `hmmjax.Stream`."""

from typing import Any

import numpy as np

from hmmjax._core import validation
from hmmjax._core.arrays import native
from hmmjax._core.batch import Batch
from hmmjax._core.inputs import event_axes
from hmmjax.emissions.base import Emission
from hmmjax.emissions.fused import Fused
from hmmjax.types import Labels, Observations, Params

_INTEGERS, _FLOATS = (np.dtype("int32"), np.dtype("int64")), (np.dtype("float32"), np.dtype("float64"))
#: Advice to callers with a batch and a mask, and what a stream takes in its place.
_ADVICE = (
    (
        ", an observed frame. Set mask to False in frames without an observation.",
        ". Pass None for a track without an output in this frame, or call step() without observations.",
    ),
    ("mark the frame unobserved in mask", "pass None for the track in this frame"),
)
_OBSERVED, _MISSING = np.ones((1, 1), bool), np.zeros((1, 1), bool)


class Frames:
    """Frames of one model. Most are arrays of NumPy with usual values, which takes microseconds to see.

    Args:
        params: the model.
    """

    def __init__(self, params: Params) -> None:
        self._params = params
        self._domains = [_domain_of(chain) for chain in (params.phases, params.tools)]

    def batch(self, obs: Observations | None, frame: int = 0) -> Batch:
        """Return one video of one frame, which is number `frame` of the stream.

        Raises:
            TypeError, ValueError: bad input.
        """
        try:
            return self._batch(obs)
        except (TypeError, ValueError) as error:
            text = str(error).replace("video 0, frame 0", f"frame {frame}")
            for of_batches, of_frames in _ADVICE:
                text = text.replace(of_batches, of_frames)
            raise type(error)(text) from None

    def _batch(self, obs: Observations | None) -> Batch:
        obs = Observations() if obs is None else obs
        validation.require_observations(obs)
        tracks = list(zip((obs.phases, obs.tools), self._domains, strict=True))
        if all(x is None or _is_usual(x, domain) for x, domain in tracks):
            arrays = [_add_axes(x) for x, _ in tracks]
            return Batch(arrays[0], arrays[1], _observed(arrays), None, None)
        validation.check_observations(obs)
        arrays = [self._checked("obs.phases", obs.phases), self._checked("obs.tools", obs.tools)]
        observed = _observed(arrays)
        validation.check_observations(Observations(*arrays))
        validation.check_data(self._params, Observations(*arrays), Labels(), observed, observed)
        return Batch(arrays[0], arrays[1], observed, None, None)

    def _checked(self, name: str, x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(self._checked(f"{name}[{i}]", source) for i, source in enumerate(x))
        if x is None:
            return None
        x = np.asarray(native(name, x))
        axes = event_axes(name, x, self._params)
        if x.ndim != axes:
            needed = ("a single label", "(classes,)", "(K, features)")[axes]
            raise ValueError(f"{name} of one frame must be {needed}, got shape {x.shape}.")
        if x.dtype.kind in "biu" and x.dtype.itemsize >= 4:
            # Values that do not fit int32 are out of range; the cast must not wrap them to valid labels.
            x = np.clip(x, np.iinfo(np.int32).min, np.iinfo(np.int32).max)
        return _add_axes(x)


def _observed(arrays: list[Any]) -> np.ndarray:
    return _OBSERVED if any(x is not None for x in arrays) else _MISSING


def _add_axes(x: Any) -> Any:
    if x is None:
        return None
    return (x.astype(np.int32) if x.dtype.kind in "biu" else np.asarray(x))[None, None]


def _domain_of(chain: Any) -> tuple | None:
    """Return the types, shape and largest value of a track's observations, and whether they sum to one.

    None if there is no simple answer: without emissions, with several sources, and for families with own checks.
    """
    family = None if chain is None else chain.emission
    if not isinstance(family, Emission) or isinstance(family, Fused) or family.observes == "reals":
        return None
    if type(family.unwrapped).check_observations is not Emission.check_observations:
        return None
    if family.observes == "labels":
        return _INTEGERS, family.event_shape, family.num_symbols - 1, False
    return _FLOATS, family.event_shape, 1, family.track == "phases"


def _is_usual(x: Any, domain: Any) -> bool:
    """Return whether an array is within the domain, with nothing missing; False may also mean that it is unknown."""
    if domain is None or not isinstance(x, np.ndarray | np.generic):
        return False
    dtypes, shape, largest, sums = domain
    if x.dtype not in dtypes or x.shape != shape or not (x.min() >= 0 and x.max() <= largest):
        return False
    return not sums or bool(abs(x.sum() - 1) < 0.01)

"""Address the recognizers of a model by track and position, and map functions over their families."""

import dataclasses
from collections.abc import Callable
from typing import Any

from hmmjax._core.batch import Batch
from hmmjax.emissions import Emission, Fused
from hmmjax.types import Params


@dataclasses.dataclass(frozen=True, order=True)
class Source:
    """One recognizer.

    Attributes:
        track: "phases" or "tools".
        index: its position among the recognizers on this track, from 0.
    """

    track: str
    index: int


def observations_of(batch: Batch, source: Source) -> Any:
    """Return the observations of one recognizer; None if it has none."""
    given = getattr(batch, source.track)
    return given[source.index] if isinstance(given, tuple) else given


def map_families(params: Params, function: Callable[[Source, Emission], Emission]) -> Params:
    """Return the model with every recognizer's family replaced by ``function(source, family)``."""

    def replace(track: str, chain: Any) -> Any:
        if chain is None or chain.emission is None:
            return chain
        families = tuple(function(Source(track, i), family) for i, family in enumerate(chain.emission.sources))
        emission = Fused(families) if isinstance(chain.emission, Fused) else families[0]
        return dataclasses.replace(chain, emission=emission)

    return Params(replace("phases", params.phases), replace("tools", params.tools))


def observed_families(params: Params, batch: Batch) -> dict[Source, Emission]:
    """Return the family of every recognizer that has observations."""
    found: dict[Source, Emission] = {}

    def note(source: Source, family: Emission) -> Emission:
        if observations_of(batch, source) is not None:
            found[source] = family
        return family

    map_families(params, note)
    return found


def without_emissions(params: Params) -> Params:
    """Return the chains alone."""
    phases = None if params.phases is None else dataclasses.replace(params.phases, emission=None)
    tools = None if params.tools is None else dataclasses.replace(params.tools, emission=None)
    return Params(phases, tools)

"""Classes of all files in one order, and how many a model has of each track."""

from collections.abc import Sequence
from typing import Any

from hmmjax import io
from hmmjax.io import ModelFile, Track
from hmmjax.stabilize.examples import TRACKS
from hmmjax.types import Observations


def align(
    tracks: Sequence[str], model: ModelFile | None, *sources: Sequence[Track]
) -> tuple[dict[str, Any], list[list[Track]]]:
    """Select tracks and bring the classes of all sources into one order: the model's, or else the first source's."""
    names: dict[str, Any] = {"phases": None, "tools": None}
    result: list[list[Track]] = [[] for _ in sources]
    for track in TRACKS:
        # Annotations (source 1) are kept for the table even if the model lacks the track.
        wanted = [(i, t) for i, source in enumerate(sources) for t in source if t.track == track]
        wanted = [(i, t) for i, t in wanted if track in tracks or i == 1]
        if not wanted:
            continue
        own = None if model is None else getattr(model, f"{track[:-1]}_names")
        if own is None or any(t.names is not None for _, t in wanted):
            aligned, names[track] = io.align_classes([t for _, t in wanted], own)
        else:
            aligned = [t for _, t in wanted]
            names[track] = own
        for (i, _), t in zip(wanted, aligned, strict=True):
            result[i].append(t)
    return names, result


def can_hide_phases(annotations: Sequence[Track], transitions: Sequence[Track], model: ModelFile | None) -> bool:
    """Return whether phases without predictions can be inferred from tools: their transitions must be known."""
    if model is not None:
        return model.params.num_phases > 0
    return any(track.track == "phases" for track in (transitions or annotations))


def count_classes(
    tracks: Sequence[str], names: dict[str, Any], raw: Observations, files: Sequence[Track]
) -> dict[str, int]:
    """Return the number of classes of each track in the model."""
    sizes = {"phases": 0, "tools": 0}
    for track in tracks:
        observed = getattr(raw, track)
        if isinstance(observed, tuple):
            observed = next((x for x in observed if x.ndim == 3), observed[0])
        if names[track] is not None:
            sizes[track] = len(names[track])
        elif observed is not None and (track == "tools" or observed.ndim == 3):
            sizes[track] = observed.shape[-1]
        else:
            own = [t for t in files if t.track == track]
            sizes[track] = max(t.num_classes or int(t.values.max(initial=0)) + 1 for t in own)
    return sizes

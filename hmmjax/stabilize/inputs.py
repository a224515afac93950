"""What the jobs on files share: classes in one order, how many there are, and videos to count transitions in."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax import io
from hmmjax.io import BatchIndex, FormatError, ModelFile, Track
from hmmjax.types import Labels, Observations


def align(
    tracks: Sequence[str], model: ModelFile | None, *sources: Sequence[Track]
) -> tuple[dict[str, Any], list[list[Track]]]:
    """The wanted tracks of each source, classes of all sources in one order: the model's, else the first one's."""
    names: dict[str, Any] = {"phases": None, "tools": None}
    result: list[list[Track]] = [[] for _ in sources]
    for track in ("phases", "tools"):
        # Annotated phases are kept for the table even where the model has none of them.
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
    """Whether phases that nobody predicts can be inferred from the tools: something must say how they follow."""
    if model is not None:
        return model.params.phases is not None
    return any(track.track == "phases" for track in (transitions or annotations))


def count_classes(
    tracks: Sequence[str], names: dict[str, Any], raw: Observations, sources: Sequence[Track]
) -> dict[str, int]:
    """Number of classes of each track in the model."""
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
            own = [t for t in sources if t.track == track]
            counts = [t.num_classes or int(t.values.max(initial=0)) + 1 for t in own]
            sizes[track] = max(counts)
    return sizes


def transition_labels(
    transitions: Sequence[Track], index: BatchIndex
) -> tuple[tuple[str, ...], Labels, np.ndarray] | None:
    """Videos to count transitions in, at the predictions' rate: names, labels and mask; None without any.

    Raises:
        FormatError: probabilities, or rows too far apart.
    """
    if not transitions:
        return None
    videos = [io.sample(video, index.step_seconds) for video in io.join(transitions)]
    obs, _, mask, where = io.to_batch(videos)
    for track in (obs.phases, obs.tools):
        if track is not None and track.dtype.kind == "f":
            raise FormatError("transitions are counted in labels, not probabilities", file=transitions[0].source)
    return where.ids, Labels(obs.phases, obs.tools), mask

"""Check the names and axes of user inputs, and pad lists of videos to (B, T, ...)."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from hmmjax._core import validation
from hmmjax._core.arrays import native
from hmmjax._core.checks import check_array, is_concrete, is_float
from hmmjax.emissions._observations import check_kind
from hmmjax.emissions.base import Emission
from hmmjax.types import Labels, Observations, Params


def pad_lists(
    obs: Observations, mask: Any, labels: Labels | None
) -> tuple[Observations, Any, Any, tuple[int, ...] | None]:
    """Pad lists of videos, one (T_i, ...) array each, to arrays (B, T, ...); other inputs are returned unchanged.

    Returns:
        obs, mask and labels, and the number of frames of each video, or None if no list was given. The padding of
        lists is False in `mask`.

    Raises:
        TypeError: an entry of a list is not an array, some hold floats and others integers, or the mask is labels.
        ValueError: lists alongside arrays, or lists whose videos disagree.
    """
    check_records(obs, labels)
    refuse_labels(mask)
    # Constructors normalize arrays; a tree that `jax.tree.map` rebuilt did not pass through one.
    obs, mask = Observations(obs.phases, obs.tools), native("mask", mask)
    labels = None if labels is None else Labels(labels.phases, labels.tools)
    given = dict(_entries(obs, mask, labels))
    lists = {name: x for name, x in given.items() if isinstance(x, list)}
    if not lists:
        return obs, mask, labels, None
    if arrays := [name for name in given if name not in lists]:
        raise ValueError(
            f"{next(iter(lists))} is a list of videos but {arrays[0]} is one array. Pass lists of (T, ...) arrays for "
            "all of obs, mask and labels, or pad all of them to (B, T, ...)."
        )
    lengths = _list_lengths(lists)

    def pad(videos: Any, fill: int) -> Any:
        xp: Any = np if is_concrete(videos) else jnp
        total = max(lengths)
        rows = [xp.asarray(x) for x in videos]
        fill = fill if rows[0].dtype.kind == "i" else 0
        pads = [[(0, total - len(x)), *[(0, 0)] * (x.ndim - 1)] for x in rows]
        return xp.stack([xp.pad(x, p, constant_values=fill) for x, p in zip(rows, pads, strict=True)])

    def tree(x: Any, fill: int = 0) -> Any:
        if isinstance(x, tuple):
            return tuple(tree(source, fill) for source in x)
        return None if x is None else pad(x, fill)

    mask = np.arange(max(lengths)) < np.array(lengths)[:, None] if mask is None else pad(mask, 0)
    if labels is not None:
        labels = Labels(tree(labels.phases, -1), tree(labels.tools, -1))
    return Observations(tree(obs.phases), tree(obs.tools)), mask, labels, lengths


def refuse_labels(mask: Any) -> None:
    """Raise TypeError if labels or observations were passed as mask, the argument before labels."""
    if isinstance(mask, Labels):
        raise TypeError("labels were passed as mask, the argument before labels. Pass them by name: labels=...")
    if isinstance(mask, Observations):
        raise TypeError(
            "observations were passed as mask. Pass a bool array (B, T), or None if all frames are observed."
        )


def _list_lengths(lists: dict[str, list[Any]]) -> tuple[int, ...]:
    """Return the frames of each video; raise unless all lists agree on them."""
    first, videos = next(iter(lists.items()))
    if not videos:
        raise ValueError(f"{first} is an empty list of videos. Pass arrays (0, T, ...) for a batch without videos.")
    for name, x in lists.items():
        if len(x) != len(videos):
            raise ValueError(f"{name} is a list of {len(x)} videos but {first} of {len(videos)}: all must agree.")
        for i, video in enumerate(x):
            check_array(f"{name}[{i}]", video)
            if not video.ndim or video.shape[1:] != x[0].shape[1:]:
                raise ValueError(
                    f"{name}[{i}] has shape {video.shape} but {name}[0] has {x[0].shape}: videos of a list may differ "
                    "only in the number of frames, their first axis."
                )
            if is_float(video) != is_float(x[0]):
                raise TypeError(f"{name}[{i}] is {video.dtype} but {name}[0] is {x[0].dtype}: cast one of them.")
            if len(video) != len(videos[i]):
                raise ValueError(
                    f"{name}[{i}] has {len(video)} frames but {first}[{i}] has {len(videos[i])}: all arrays of a video "
                    "must have the same number of frames."
                )
    return tuple(len(video) for video in videos)


def check_records(obs: Any, labels: Any) -> None:
    """Raise TypeError unless `obs` is `Observations` and `labels` is `Labels` or None."""
    validation.require_observations(obs)
    if labels is not None and not isinstance(labels, Labels):
        raise TypeError(f"labels must be hmmjax.Labels(phases=..., tools=...), got {type(labels).__name__}.")


def _entries(obs: Observations, mask: Any, labels: Labels | None) -> Iterator[tuple[str, Any]]:
    """Return an iterator over the name and value of every input that is not None."""
    labels = Labels() if labels is None else labels
    named = [("mask", mask), ("labels.phases", labels.phases), ("labels.tools", labels.tools)]
    for track in ("phases", "tools"):
        x = getattr(obs, track)
        if isinstance(x, tuple):
            named += [(f"obs.{track}[{i}]", source) for i, source in enumerate(x)]
        else:
            named.append((f"obs.{track}", x))
    return ((name, x) for name, x in named if x is not None)


def leading_axes(obs: Observations, mask: Any, labels: Labels, params: Params | None) -> tuple[int, ...]:
    """Return (B, T), or (T,) for a single video; raise unless all arrays agree on it."""
    first: tuple[str, tuple[int, ...]] | None = None
    for name, x in _entries(obs, mask, labels):
        check_array(name, x)
        axes = event_axes(name, x, params)
        if x.ndim not in (axes + 1, axes + 2):
            needed = ("(B, T)", "(B, T, classes)", "(B, T, K, features)")[min(axes, 2)]
            raise ValueError(f"{name} has {x.ndim} axes, shape {x.shape}; it needs {needed}, or the same without B.")
        lead = tuple(x.shape[: x.ndim - axes])
        if first is None:
            first = name, lead
        elif lead != first[1]:
            raise ValueError(
                f"{name} has leading axes {lead} but {first[0]} has {first[1]}: all must agree on (B, T), or on (T,) "
                "for a single video. Pad shorter videos and mark the padding False in mask, or pass lists of videos."
            )
    if first is None:
        raise ValueError("obs, mask and labels are all empty, so the number of frames is unknown: pass mask (B, T).")
    return first[1]


def event_axes(name: str, x: Any, params: Params | None) -> int:
    """Return the number of axes of one frame of an input, which its emission family declares if there is one.

    Raises:
        TypeError: integers for a family that observes floats, or the reverse.
    """
    if name in ("mask", "labels.phases"):
        return 0
    if name == "labels.tools":
        return 1
    track, _, source = name.removeprefix("obs.").partition("[")
    chain = getattr(params, track, None)
    sources = chain.emission.sources if chain is not None and isinstance(chain.emission, Emission) else ()
    index = int(source.rstrip("]")) if source else 0
    if index < len(sources):
        family = sources[index]
        # Labels have other axes than numbers, so that the wrong kind would be reported as a wrong shape.
        check_kind(name, x, type(family.unwrapped).__name__, family.observes)
        return len(family.event_shape)
    if track == "phases":
        return int(is_float(x))
    return 2 if x.ndim == 4 else 1

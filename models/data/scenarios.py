"""The paper's labeling scenarios, as labels with -1 for everything that is not labeled.

S_C labels complete videos. S_D labels single frames: a number of positive and of negative frames per tool. S_C+D trains
on both. Networks skip entries of -1, and `hmmjax.fit` takes the same arrays as `hmmjax.Labels`.
"""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from hmmjax.data.splits import check_disjoint
from hmmjax.io import FormatError
from hmmjax.types import Labels
from models.data.annotation import Annotation


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Training videos and their labels.

    Attributes:
        name: "S_C", "S_D" or "S_C+D".
        annotations: one per video, with -1 for unknown labels.
    """

    name: str
    annotations: tuple[Annotation, ...]

    @property
    def cost(self) -> dict[str, int]:
        """The number of labels to annotate: of "phases" and of "tools", and of "frames" that have any label."""
        known_phases = [a.phases >= 0 for a in self.annotations]
        known_tools = [a.tools >= 0 for a in self.annotations]
        frames = sum(int((p | t.any(1)).sum()) for p, t in zip(known_phases, known_tools, strict=True))
        return {
            "phases": sum(int(p.sum()) for p in known_phases),
            "tools": sum(int(t.sum()) for t in known_tools),
            "frames": frames,
        }

    def labels(self) -> tuple[Labels, np.ndarray]:
        """Return the labels as padded arrays for `hmmjax.fit`.

        Returns:
            Labels with phases (B, T) and tools (B, T, K), -1 if unknown and for padding; and mask (B, T), True at valid
            frames.

        Raises:
            FormatError: if the videos have different classes.
        """
        _check_classes(self.annotations)
        longest = max(map(len, self.annotations), default=0)
        phases = np.full((len(self.annotations), longest), -1, np.int32)
        tools = np.full((*phases.shape, self.annotations[0].tools.shape[1] if self.annotations else 0), -1, np.int32)
        mask = np.zeros(phases.shape, bool)
        for row, annotation in enumerate(self.annotations):
            phases[row, : len(annotation)] = annotation.phases
            tools[row, : len(annotation)] = annotation.tools
            mask[row, : len(annotation)] = True
        return Labels(phases, tools), mask


def continuous(annotations: Iterable[Annotation]) -> Scenario:
    """Return the scenario S_C: all annotated labels."""
    return Scenario("S_C", tuple(annotations))


def discrete(
    annotations: Iterable[Annotation],
    positives: int,
    negatives: int,
    *,
    seed: int = 0,
    apart: float = 0.0,
    whole_frames: bool = False,
    at_most: bool = False,
) -> Scenario:
    """Return the scenario S_D: labels of random frames with and without each tool, drawn from all videos.

    With the same seed, a larger number of frames includes those of a smaller one.

    Args:
        annotations: fully annotated videos to draw from.
        positives: number N_p of frames per tool in which it is present.
        negatives: number N_n of frames per tool in which it is absent.
        seed: of the random draw.
        apart: minimum distance in seconds between two frames of one video that are drawn for the same tool with the
            same label.
        whole_frames: label all tools of a drawn frame, not only the one for which it was drawn.
        at_most: accept fewer frames for a tool that does not have enough.

    Returns:
        The scenario; all phases are unknown.

    Raises:
        FormatError: if a tool does not have enough frames, unless `at_most`; if a number of frames is negative or not
            whole; and if the videos have different classes.
    """
    videos = tuple(annotations)
    _check_classes(videos)
    for name, count in (("positives", positives), ("negatives", negatives)):
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
            raise FormatError(f"{name} is {count!r}, expected a number of frames", fix="give a whole number, 0 or more")
    chosen = [np.full_like(video.tools, -1) for video in videos]
    num_tools = videos[0].tools.shape[1] if videos else 0
    for tool in range(num_tools):
        for value, count in ((1, positives), (0, negatives)):
            rng = np.random.default_rng([seed, tool, value])
            for video, frame in _pick(videos, tool, value, count, apart, rng, at_most):
                if whole_frames:
                    chosen[video][frame] = videos[video].tools[frame]
                else:
                    chosen[video][frame, tool] = value
    return Scenario(
        "S_D",
        tuple(
            dataclasses.replace(video, phases=np.full_like(video.phases, -1), tools=tools)
            for video, tools in zip(videos, chosen, strict=True)
        ),
    )


def combined(whole: Scenario, single: Scenario, *, allow_overlap: bool = False) -> Scenario:
    """Return the scenario S_C+D: complete videos and single frames together.

    Args:
        whole: the scenario of complete videos.
        single: the scenario of single frames.
        allow_overlap: accept that both have a recording, under different names.

    Raises:
        FormatError: if both have a recording, under any of its names, unless `allow_overlap`; if two videos have the
            same name; and if the two have different classes.
    """
    _check_classes((*whole.annotations, *single.annotations))
    if not allow_overlap:
        again = " again" if whole.name == single.name else ""
        check_overlap({whole.name: whole, single.name + again: single})
    names = [a.id for a in (*whole.annotations, *single.annotations)]
    if len(set(names)) < len(names):
        raise FormatError("a video is in both scenarios under one name", fix="remove it from one")
    return Scenario(f"{whole.name}+{single.name.removeprefix('S_')}", (*whole.annotations, *single.annotations))


def check_overlap(scenarios: Mapping[str, Scenario | Iterable[str]]) -> None:
    """Raise FormatError if a recording is in two scenarios or lists of videos, such as the test set.

    Args:
        scenarios: by name, for the message.

    Raises:
        FormatError: with the recordings that occur twice.
    """
    check_disjoint({k: [a.id for a in v.annotations] if isinstance(v, Scenario) else v for k, v in scenarios.items()})


def _check_classes(annotations: tuple[Annotation, ...]) -> None:
    """Raise FormatError unless all have the same number of tools and, if named, the same classes in the same order."""
    first: dict[str, tuple[Annotation, object]] = {}
    for annotation in annotations:
        facts = {
            "number of tools": annotation.tools.shape[1],
            "tools": annotation.tool_names or None,
            "phases": annotation.phase_names or None,
        }
        for what, fact in facts.items():
            if fact is None:
                continue
            other, known = first.setdefault(what, (annotation, fact))
            if known != fact:
                raise FormatError(
                    f"the {what} of {annotation.id} and {other.id} differ: {fact} and {known}",
                    fix="open them as collections with the same classes in the same order",
                )


def _pick(
    videos: tuple[Annotation, ...],
    tool: int,
    value: int,
    count: int,
    apart: float,
    rng: np.random.Generator,
    at_most: bool,
) -> list[tuple[int, int]]:
    """Draw `count` pairs (video, frame) at which the tool has this value."""
    places = [(n, int(t)) for n, video in enumerate(videos) for t in np.flatnonzero(video.tools[:, tool] == value)]
    picked: list[tuple[int, int]] = []
    taken: dict[int, list[float]] = {}
    for index in rng.permutation(len(places)):
        if len(picked) == count:
            break
        video, frame = places[index]
        second = float(videos[video].seconds[frame])
        if apart and any(abs(second - other) < apart for other in taken.get(video, ())):
            continue
        taken.setdefault(video, []).append(second)
        picked.append((video, frame))
    if len(picked) < count and not at_most:
        names = videos[0].tool_names
        raise FormatError(
            f"{names[tool] if names else f'tool {tool}'} has only {len(picked)} frames with value {value}"
            + (f" that are {apart:g} s apart" if apart else "")
            + f", but {count} are requested",
            fix="request fewer, or give more videos",
        )
    return picked

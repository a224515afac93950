"""Simulated surgeries as a source of labeled frames, without any files."""

import dataclasses
from functools import cached_property

import numpy as np

from hmmjax.simulate import Departures, Surgery, simulate_surgeries
from models.data.frames import FrameTable, stack_boxes
from models.data.simsurg.render import Renderer
from models.data.simsurg.scene import Scene, boxes, make_scene

FPS = 25


@dataclasses.dataclass(frozen=True, eq=False)
class SimulatedFrames:
    """One frame per second of several surgeries, rendered on access.

    Attributes:
        surgeries: the simulated phases and tools, one per video.
        parts: the part of each video.
        seed: of the images.
        size: (height, width) of the images.
    """

    surgeries: tuple[Surgery, ...]
    parts: tuple[str, ...]
    seed: int
    size: tuple[int, int]

    @cached_property
    def table(self) -> FrameTable:
        """The labels of all frames, with boxes."""
        lengths = [len(surgery) for surgery in self.surgeries]
        return FrameTable(
            videos=np.repeat([surgery.name for surgery in self.surgeries], lengths),
            frames=np.concatenate([FPS * np.arange(length) for length in lengths]),
            phases=np.concatenate([surgery.phases for surgery in self.surgeries]),
            tools=np.concatenate([surgery.tools for surgery in self.surgeries]),
            parts=np.repeat(self.parts, lengths),
            **stack_boxes(*self._boxes),
        )

    def __len__(self) -> int:
        return sum(len(surgery) for surgery in self.surgeries)

    def __getitem__(self, index: int) -> np.ndarray:
        index = range(len(self))[index]
        for surgery, renderer in zip(self.surgeries, self._renderers, strict=True):
            if index < len(surgery):
                return renderer.frame(index)
            index -= len(surgery)
        raise IndexError(index)

    @cached_property
    def _boxes(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The boxes and their tools in every frame; an instrument whose tip is outside the image has no box."""
        found, tools = [], []
        for scene in self._scenes:
            for second in range(len(scene)):
                present, corners = boxes(scene, second)
                visible = (corners[:, 2:] > corners[:, :2]).all(1)
                found.append(corners[visible])
                tools.append(present[visible])
        return found, tools

    @cached_property
    def _renderers(self) -> tuple[Renderer, ...]:
        return tuple(Renderer(scene, *self.size) for scene in self._scenes)

    @cached_property
    def _scenes(self) -> tuple[Scene, ...]:
        height, width = self.size
        return tuple(make_scene(s, self.seed * 1000 + n, width / height) for n, s in enumerate(self.surgeries))


def simulated_frames(
    parts: dict[str, int],
    seed: int = 0,
    *,
    minutes: float = 10.0,
    size: tuple[int, int] = (64, 64),
    departures: Departures | None = None,
) -> SimulatedFrames:
    """Simulate surgeries as a source of frames.

    Args:
        parts: number of videos of each part, such as ``{"train": 8, "val": 2, "test": 4}``.
        seed: of the surgeries and the images.
        minutes: expected length of a video.
        size: (height, width) of the images.
        departures: how surgeries depart from the hidden Markov model; None draws tools from the law that it assumes.

    Returns:
        A source; `models.data.cache.write_cache` stores its frames on disk.
    """
    names = tuple(part for part, count in parts.items() for _ in range(count))
    return SimulatedFrames(
        simulate_surgeries(len(names), seed, minutes=minutes, departures=departures), names, seed, size
    )

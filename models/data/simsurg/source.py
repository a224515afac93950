"""Simulated surgeries as frames that are read at random: training without any file."""

import dataclasses
from functools import cached_property

import numpy as np

from hmmjax.simulate import Surgery, simulate_surgeries
from models.data.frames import FrameTable, stack_boxes
from models.data.simsurg.render import Renderer
from models.data.simsurg.scene import Scene, boxes, make_scene

FPS = 25


@dataclasses.dataclass(frozen=True, eq=False)
class SimulatedFrames:
    """Every second of some surgeries; a picture is drawn when it is asked for.

    Attributes:
        surgeries: hidden truth, one per video.
        parts: for each video the part that it belongs to.
        seed: of the pictures.
        size: (height, width).
    """

    surgeries: tuple[Surgery, ...]
    parts: tuple[str, ...]
    seed: int
    size: tuple[int, int]

    @cached_property
    def table(self) -> FrameTable:
        """What is known of each frame: all of it."""
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
        """Boxes and tools of every frame; an instrument whose tip is still outside the picture has none."""
        found, tools = [], []
        for scene in self._scenes:
            for second in range(len(scene)):
                present, corners = boxes(scene, second)
                seen = (corners[:, 2:] > corners[:, :2]).all(1)
                found.append(corners[seen])
                tools.append(present[seen])
        return found, tools

    @cached_property
    def _renderers(self) -> tuple[Renderer, ...]:
        return tuple(Renderer(scene, *self.size) for scene in self._scenes)

    @cached_property
    def _scenes(self) -> tuple[Scene, ...]:
        height, width = self.size
        return tuple(make_scene(s, self.seed * 1000 + n, width / height) for n, s in enumerate(self.surgeries))


def simulated_frames(
    parts: dict[str, int], seed: int = 0, *, minutes: float = 10.0, size: tuple[int, int] = (64, 64)
) -> SimulatedFrames:
    """Frames of simulated surgeries.

    Args:
        parts: the number of videos of each part, such as ``{"train": 8, "val": 2, "test": 4}``.
        seed: of everything.
        minutes: mean length of a video.
        size: (height, width) of the pictures.

    Returns:
        A source; `models.data.cache.write_cache` keeps its pictures on disk.
    """
    names = tuple(part for part, count in parts.items() for _ in range(count))
    return SimulatedFrames(simulate_surgeries(len(names), seed, minutes=minutes), names, seed, size)

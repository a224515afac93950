"""Simulated surgeries as frames that are read at random: training without any file."""

import dataclasses
from functools import cached_property

import numpy as np

from hmmjax.simulate import Surgery, simulate_surgeries
from models.data.frames import FrameTable
from models.data.simsurg.render import Renderer
from models.data.simsurg.scene import make_scene

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
    def _renderers(self) -> tuple[Renderer, ...]:
        height, width = self.size
        scenes = (make_scene(s, self.seed * 1000 + n, width / height) for n, s in enumerate(self.surgeries))
        return tuple(Renderer(scene, height, width) for scene in scenes)


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

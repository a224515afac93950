"""Estimate what exact inference costs before anything is compiled: joint states, memory and time."""

import contextlib
import functools
import os
from typing import NamedTuple

BYTES = 8
"""Bytes per state and frame: forward and backward messages of one video in float32."""
RATE = 5e8
"""Products per second and core of the compiled recursions, to within a factor of a few."""


class Size(NamedTuple):
    """The cost of one pass over a batch.

    Attributes:
        states: number of joint states per frame.
        memory: bytes that the messages of one video take at least.
        seconds: rough time of one pass over all videos on one core.
    """

    states: int
    memory: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.states:,} joint states, about {_amount(self.memory)} and {self.seconds:,.0f} s per pass"


def model_size(num_phases: int, num_tools: int, num_frames: int, num_videos: int = 1) -> Size:
    """Return the size of a model and a batch.

    Args:
        num_phases: number of phases, 0 without phases. Stages multiply the cost.
        num_tools: K; without phases, the tools are independent chains of two states.
        num_frames: frames of the longest video.
        num_videos: number of videos.
    """
    states = num_phases * 2**num_tools if num_phases else 2 * num_tools
    products = states * ((num_phases + num_tools) if num_phases else 2)
    return Size(states, BYTES * states * num_frames, num_videos * num_frames * products / RATE)


def check_size(num_phases: int, num_tools: int, num_frames: int, num_videos: int = 1) -> Size:
    """Return the size; raise unless the messages of one video fit into memory.

    Raises:
        ValueError: the model is too large, with what to do.
    """
    size, most = model_size(num_phases, num_tools, num_frames, num_videos), memory_limit()
    if most is None or size.memory <= most:
        return size
    fits = num_tools
    while fits and model_size(num_phases, fits, num_frames).memory > most:
        fits -= 1
    groups = f"split the tools into groups of at most {fits}, each with the phases, " if fits else ""
    raise ValueError(
        f"{num_phases} phases with {num_tools} tools are too large for exact inference: {size.states:,} joint states "
        f"per frame, so that one video of {num_frames:,} frames takes {_amount(size.memory)} and this process may use "
        f"{_amount(most)}. Infer the tools alone, without phases (they are then independent and cost next to nothing), "
        f"{groups}or leave out rare tools."
    )


@functools.cache
def memory_limit() -> int | None:
    """Return how much memory this process may use, in bytes; None if the system does not tell."""
    limits: list[int] = []
    with contextlib.suppress(AttributeError, ValueError, OSError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # not on Windows

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        limits += [soft] if soft != resource.RLIM_INFINITY else []
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(file, encoding="ascii") as handle:
            limits.append(int(handle.read()))
    return min(limits) if limits else None


def _amount(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.0f} MiB"

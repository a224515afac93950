"""Estimate what exact inference costs before anything is compiled: joint states, memory and time."""

import contextlib
import functools
import math
import os
from typing import NamedTuple

from hmmjax import native

BYTES = 8
"""Bytes per number of a message."""
LANES = 8
"""Phases are padded to a multiple of this number."""
SCRATCH = 28
"""Memory of intermediate results and inputs, in messages: the measured peaks of large models less what is kept."""
PER_FRAME = 0.5e-6
RATE = 3.5e9
"""Seconds per frame, and products per second, of an E-step of the compiled recursions on one core.

Source: ``benchmarks/results/hmm_cpu.json``, 14 to 896 states. Models beyond a processor's cache (a few thousand states)
take two to eight times as long, slower processors and a batch on several cores differ accordingly.
"""
SHARE = 0.8
"""Share of the memory that a model may take; the rest is for the interpreter, JAX and the data."""
WITHOUT_NATIVE = 50
"""How many times longer the XLA programs take on a CPU. Source: the same file."""


class Size(NamedTuple):
    """The cost of one pass over a batch.

    Attributes:
        states: number of joint states per frame, stages included.
        memory: bytes that inference in one video takes at least.
        seconds: rough time of one E-step over all videos on one core.
    """

    states: int
    memory: int
    seconds: float

    def __str__(self) -> str:
        seconds = f"{self.seconds:,.0f}" if self.seconds >= 10 else f"{self.seconds:.1g}"
        return f"{self.states:,} joint states, about {_amount(self.memory)} and {seconds} s per pass"


def model_size(
    num_phases: int, num_tools: int, num_frames: int, num_videos: int = 1, *, messages: int | None = None
) -> Size:
    """Return the size of a model and a batch.

    Args:
        num_phases: number of phases, or of their stages together; 0 without phases.
        num_tools: K; without phases, the tools are independent chains of two states.
        num_frames: frames of the longest video.
        num_videos: number of videos.
        messages: number of messages that are kept; by default as many as the compiled recursions keep, which compute
            the others twice.
    """
    states = num_phases * 2**num_tools if num_phases else 2 * num_tools
    products = states * ((num_phases + num_tools) if num_phases else 2)
    if messages is None:
        chunk = min(num_frames, max(16, math.isqrt(num_frames) // 2))
        messages = chunk + -(-num_frames // max(chunk, 1))
    padded = states * -(-num_phases // LANES) * LANES // num_phases if num_phases else states
    seconds = num_videos * num_frames * (PER_FRAME + products / RATE) * (1 if native.is_loaded() else WITHOUT_NATIVE)
    return Size(states, BYTES * padded * (messages + SCRATCH), seconds)


def check_size(
    num_phases: int, num_tools: int, num_frames: int, num_videos: int = 1, *, messages: int | None = None
) -> Size:
    """Return the size; raise unless inference in one video fits into memory. Arguments are those of `model_size`.

    Raises:
        ValueError: the model is too large, with what to do.
    """
    size, most = model_size(num_phases, num_tools, num_frames, num_videos, messages=messages), memory_limit()
    if most is None or size.memory <= SHARE * most:
        return size
    fits = num_tools
    while fits and model_size(num_phases, fits, num_frames, messages=messages).memory > SHARE * most:
        fits -= 1
    groups = f"split the tools into groups of at most {fits}, each with the phases, " if fits else ""
    raise ValueError(
        f"{num_phases} phases (stages included) with {num_tools} tools are too large for exact inference: "
        f"{size.states:,} joint states per frame, so that one video of {num_frames:,} frames takes "
        f"{_amount(size.memory)}, more than {SHARE:.0%} of the {_amount(most)} of this process. Infer the tools alone, "
        f"without phases (they are then independent and cost next to nothing), {groups}or leave out rare tools."
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

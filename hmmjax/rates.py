"""Rescale a model to another frame rate, and regularize videos with irregularly spaced frames.

An unobserved frame is a frame with its mask at False: time passes and the chain moves. That is always exact, and
`fill_gaps` inserts such frames according to timestamps. If all frames are equally far apart, a model whose transitions
are matrix powers gives the same results with fewer frames.
"""

import dataclasses
from typing import Any

import jax
import numpy as np

from hmmjax import durations
from hmmjax._core.arrays import as_floats
from hmmjax._core.checks import check_array, check_label_dtype
from hmmjax._core.typing import ArrayLike
from hmmjax._core.validation import check_observations, check_params
from hmmjax.transitions import PhaseConditioned
from hmmjax.types import Labels, Observations, Params

MAX_STEPS_PER_FRAME = 1000
"""`fill_gaps` refuses timestamps further apart than this on average, which are usually in another unit than `step`."""


def rescale(params: Params, factor: float) -> Params:
    """Return the model for frames `factor` times as far apart.

    A factor of 5 converts from one frame per second to one frame every five seconds, 0.2 converts back. For phases
    alone and tools alone this is exact: transitions become matrix powers, and results at the remaining frames equal
    those of the old model with the frames in between unobserved. With both tracks, tools are assumed to spend each
    frame in a single phase. Phases in stages keep their number of stages and their mean duration.

    Args:
        params: the model; the transitions of tools, if it has any, must be `PhaseConditioned`.
        factor: a positive integer, or the reciprocal of one. A reciprocal requires a matrix root, which a chain need
            not have.

    Returns:
        The model, with starts and emissions unchanged.

    Raises:
        ImportError: SciPy is not installed, which matrix roots require.
        TypeError: interacting tools, whose joint transitions have no such power, or emissions with memory.
        ValueError: a factor that is neither an integer nor the reciprocal of one; a chain without such a root, or
            phases that would be shorter than their stages.

    Source: the Chapman-Kolmogorov equation: n steps of a chain are the n-th power of its matrix.
    """
    check_params(params)
    for track, chain in (("phases", params.phases), ("tools", params.tools)):
        if chain is not None and chain.emission is not None and chain.emission.lag:
            raise TypeError(
                f"{track}.emission conditions on the frames before, which a rescaled model does not see. Estimate it "
                "from videos of the new frame rate, or mask the missing frames instead."
            )
    factor = float(factor)
    integer = round(max(factor, 1 / factor)) if 0 < factor < np.inf else 0
    if integer < 1 or not np.isclose(max(factor, 1 / factor), integer, rtol=1e-6):
        raise ValueError(f"factor={factor} must be a positive integer or the reciprocal of one.")
    power = float(integer) if factor >= 1 else 1 / integer
    phases, tools = params.phases, params.tools
    if phases is not None:
        transition = np.asarray(phases.transition, np.float64)
        stages = phases.stages
        if stages is not None:
            # Convert to one stage of the same mean duration; the stages are added again below.
            counts = np.array(stages, float)[:, None]
            transition = np.where(np.eye(len(stages), dtype=bool), 1 - (1 - transition) / counts, transition / counts)
        transition = _power("phases.transition", transition, power).astype(np.asarray(phases.transition).dtype)
        phases = dataclasses.replace(phases, transition=transition, stages=None)
        if stages is not None:
            phases = durations.spread(Params(phases), stages).phases
    if tools is not None:
        old = tools.transition
        if not isinstance(old, PhaseConditioned):
            raise TypeError(f"{type(old).__name__} cannot be rescaled. Mask the missing frames instead.")
        table = np.asarray(old.matrix, np.float64)
        raised = np.stack([_power("tools.transition.matrix", m, power) for m in table.reshape(-1, 2, 2)])
        raised = raised.reshape(table.shape).astype(np.asarray(old.matrix).dtype)
        tools = dataclasses.replace(tools, transition=dataclasses.replace(old, matrix=raised))
    return Params(phases, tools)


def _power(name: str, matrix: np.ndarray, power: float) -> np.ndarray:
    # Rows of float32 sum to one up to rounding, which a high power would amplify.
    matrix = matrix / matrix.sum(-1, keepdims=True)
    if power >= 1:
        return np.linalg.matrix_power(matrix, round(power))
    values = np.linalg.eigvals(matrix)
    possible = (np.abs(np.imag(values)) < 1e-7).all() and (np.real(values) > 0).all()
    # SciPy's root, by the Schur form, also exists for matrices with too few eigenvectors, such as those of chains that
    # only move forward through phases of equal length.
    try:
        from scipy.linalg import fractional_matrix_power
    except ImportError:
        raise ImportError("rescaling to a higher frame rate needs SciPy: pip install scipy.") from None
    root = np.real(fractional_matrix_power(matrix, power)) if possible else matrix * np.nan
    back = np.linalg.matrix_power(root, round(1 / power)) if np.isfinite(root).all() else root
    if not np.allclose(back, matrix, atol=1e-6) or root.min() < -1e-7:
        raise ValueError(
            f"{name} has no root of order {round(1 / power)} with valid probabilities. Learn the model at that rate."
        )
    root = np.maximum(root, 0)
    return root / root.sum(-1, keepdims=True)


def fill_gaps(
    times: ArrayLike, obs: Observations, labels: Labels | None = None, *, step: float = 1.0
) -> tuple[Observations, np.ndarray, Labels, np.ndarray]:
    """Convert a video with irregularly spaced frames to frames one step apart, some of them unobserved.

    Args:
        times: (n,) increasing times in the unit of `step`, each a multiple of the step after the first.
        obs: (n, ...) observations, or tuples of them.
        labels: (n, ...) known states, -1 for unknown.
        step: the model's time step.

    Returns:
        Observations (T, ...), mask (T,), labels (T, ...) with -1 in inserted frames, and (n,) the index of the frame at
        each time, for selecting results: ``posterior.phases[frames]``.

    Raises:
        TypeError: observations or labels that are not arrays, or labels that are not integers.
        ValueError: times that do not increase or lie between steps, or arrays of different lengths.
    """
    check_observations(obs)
    if not (np.isfinite(step) and step > 0):
        raise ValueError(f"step={step} must be a positive number, in the unit of times.")
    times = as_floats("times", times)
    if times.ndim != 1 or not len(times) or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise ValueError("times must be one-dimensional, finite and increasing.")
    frames = np.rint((times - times[0]) / step).astype(int)
    off = np.abs((times - times[0]) / step - frames)
    if off.max() > 0.05 or (np.diff(frames) < 1).any():
        worst = int(off.argmax())
        raise ValueError(f"time {times[worst]:g} is not a multiple of the step {step:g} after the first time.")
    total = frames[-1] + 1
    if total > MAX_STEPS_PER_FRAME * len(times) + 100_000:
        raise ValueError(f"{len(times)} times span {total} steps of {step:g}. Pass `step` in the unit of times.")

    def spread(x: Any, fill: int) -> Any:
        check_array("each of obs and labels", x)
        x = np.asarray(x)
        if len(x) != len(times):
            raise ValueError(f"there are {len(times)} times but {len(x)} frames in an array of obs or labels.")
        out = np.full((total, *x.shape[1:]), fill, x.dtype)
        out[frames] = x
        return out

    labels = Labels() if labels is None else labels
    check_label_dtype("labels.phases", labels.phases)
    check_label_dtype("labels.tools", labels.tools)
    # Booleans and unsigned integers cannot hold -1.
    labels = jax.tree.map(lambda x: np.asarray(x).astype(np.int32), labels)
    mask = np.zeros(total, bool)
    mask[frames] = True
    return (
        jax.tree.map(lambda x: spread(x, 0), obs),
        mask,
        jax.tree.map(lambda x: spread(x, -1), labels),
        frames,
    )

"""The same model at another frame rate, and frames that are not all alike far apart.

A frame that nobody saw is a frame with its mask at False: time passes and the chain moves. That is always exact, and
`fill_gaps` makes such frames from timestamps. Where every frame is equally far from the next, a model whose transitions
are powers of the old ones says the same with fewer frames.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from scipy.linalg import fractional_matrix_power

from hmmjax import durations
from hmmjax._core.checks import check_array, check_label_dtype
from hmmjax._core.validation import check_observations, check_params
from hmmjax.io.batch import MOST_GAPS
from hmmjax.types import Labels, Observations, Params


def rescale(params: Params, factor: float) -> Params:
    """The model for frames `factor` times as far apart: 5 from one frame a second to one in five, 0.2 back again.

    Phases alone and tools alone are exact: transitions become matrix powers, and answers at the remaining frames are
    those of the old model with the frames between unobserved. With both tracks, tools are taken to spend a whole frame
    in its phase. Phases in stages keep their number of stages and their mean duration.

    Args:
        params: the model, with `PhaseConditioned` transitions where it has tools.
        factor: a positive number. A whole number is a power; its reciprocal is a root, which a chain need not have.

    Returns:
        The model; starts and emissions are as before.

    Raises:
        TypeError: interacting tools, whose joint steps have no such power.
        ValueError: a factor that is neither whole nor the reciprocal of a whole number; a chain without such a root,
            or phases that would be shorter than their stages.

    Source: the Chapman-Kolmogorov equation: n steps of a chain are the n-th power of its matrix.
    """
    check_params(params)
    factor = float(factor)
    whole = round(max(factor, 1 / factor)) if 0 < factor < np.inf else 0
    if whole < 1 or not np.isclose(max(factor, 1 / factor), whole, rtol=1e-6):
        raise ValueError(f"factor={factor} must be a positive whole number, or one over a whole number.")
    power = float(whole) if factor >= 1 else 1 / whole
    phases, tools = params.phases, params.tools
    if phases is not None:
        transition = np.asarray(phases.transition, np.float64)
        stages = phases.stages
        if stages is not None:
            # Back to one stage of the same mean duration, and forth again below.
            counts = np.array(stages, float)[:, None]
            transition = np.where(np.eye(len(stages), dtype=bool), 1 - (1 - transition) / counts, transition / counts)
        transition = _power("phases.transition", transition, power).astype(np.asarray(phases.transition).dtype)
        phases = dataclasses.replace(phases, transition=transition, stages=None)
        if stages is not None:
            phases = durations.spread(Params(phases), stages).phases
    if tools is not None:
        matrix = getattr(tools.transition, "matrix", None)
        if matrix is None:
            raise TypeError(f"{type(tools.transition).__name__} cannot be rescaled: mark frames unobserved instead.")
        table = np.asarray(matrix, np.float64)
        raised = np.stack([_power("tools.transition.matrix", m, power) for m in table.reshape(-1, 2, 2)])
        raised = raised.reshape(table.shape).astype(np.asarray(matrix).dtype)
        tools = dataclasses.replace(tools, transition=dataclasses.replace(tools.transition, matrix=raised))
    return Params(phases, tools)


def _power(name: str, matrix: np.ndarray, power: float) -> np.ndarray:
    # Rows of float32 miss one by a rounding, which a high power makes any number.
    matrix = matrix / matrix.sum(-1, keepdims=True)
    if power >= 1:
        return np.linalg.matrix_power(matrix, round(power))
    values = np.linalg.eigvals(matrix)
    possible = (np.abs(np.imag(values)) < 1e-7).all() and (np.real(values) > 0).all()
    # By Schur's form: a chain that only goes forward, all phases as long, has fewer eigenvectors than phases.
    root = np.real(fractional_matrix_power(matrix, power)) if possible else matrix * np.nan
    back = np.linalg.matrix_power(root, round(1 / power)) if np.isfinite(root).all() else root
    if not np.allclose(back, matrix, atol=1e-6) or root.min() < -1e-7:
        raise ValueError(f"{name} has no root of order {round(1 / power)} that is a chain: learn it at that rate.")
    root = np.maximum(root, 0)
    return root / root.sum(-1, keepdims=True)


def fill_gaps(
    times: Any, obs: Observations, labels: Labels | None = None, *, step: float = 1.0
) -> tuple[Observations, np.ndarray, Labels, np.ndarray]:
    """One video with frames at any times, as frames one step apart of which some are unobserved.

    Args:
        times: (n,) increasing, in the unit of `step`, each a whole number of steps after the first.
        obs: (n, ...) observations, or tuples of them.
        labels: (n, ...) known states.
        step: the model's time step.

    Returns:
        Observations and mask (T, ...), labels with -1 between, and (n,) the frame of each time, by which answers are
        picked: ``posterior.phases[frames]``.

    Raises:
        TypeError: observations or labels that are no arrays, or labels that are no integers.
        ValueError: times that do not increase or lie between steps, or lengths that differ.
    """
    check_observations(obs)
    if not (np.isfinite(step) and step > 0):
        raise ValueError(f"step={step} must be a positive number, in the unit of times.")
    times = np.asarray(times, np.float64)
    if times.ndim != 1 or not len(times) or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise ValueError("times must be one increasing list of finite numbers.")
    frames = np.rint((times - times[0]) / step).astype(int)
    off = np.abs((times - times[0]) / step - frames)
    if off.max() > 0.05 or (np.diff(frames) < 1).any():
        where = int(off.argmax())
        raise ValueError(f"time {times[where]:g} is no whole number of steps of {step:g} after the first.")
    total = frames[-1] + 1
    if total > MOST_GAPS * len(times) + 100_000:
        raise ValueError(f"{len(times)} times would be {total} frames of {step:g}: give `step` in the unit of times.")

    def spread(x: Any, fill: int) -> Any:
        check_array("each of obs and labels", x)
        x = np.asarray(x)
        if len(x) != len(times):
            raise ValueError(f"{len(times)} times, but an array of {len(x)} frames.")
        out = np.full((total, *x.shape[1:]), fill, x.dtype)
        out[frames] = x
        return out

    labels = Labels() if labels is None else labels
    check_label_dtype("labels.phases", labels.phases)
    check_label_dtype("labels.tools", labels.tools)
    # Booleans and unsigned integers cannot say that they do not know.
    labels = jax.tree.map(lambda x: np.asarray(x).astype(np.int32), labels)
    mask = np.zeros(total, bool)
    mask[frames] = True
    return (
        jax.tree.map(lambda x: spread(x, 0), obs),
        mask,
        jax.tree.map(lambda x: spread(x, -1), labels),
        frames,
    )

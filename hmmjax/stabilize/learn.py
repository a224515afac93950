"""Learn a model from whatever labels there are: counting where frames are labeled, EM where they are not."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hmmjax import durations
from hmmjax.calibration import Calibration, calibrate
from hmmjax.counting import estimate
from hmmjax.emissions import Fused, Tempered
from hmmjax.initialize import LABELS, init_params
from hmmjax.learning import fit
from hmmjax.priors import Priors
from hmmjax.types import FitResult, Labels, Observations, Params

#: What `stabilize` assumes before it has seen anything. A phase change that no labeled video shows is very unlikely
#: but not impossible; tools and recognizers may do anything once.
PRIORS = Priors(
    phase_initial=0.1,
    phase_transition=1e-8,
    phase_emission=1.0,
    tool_initial=0.5,
    tool_transition=0.5,
    tool_emission=1.0,
)


CALIBRATION_STEPS = 15
"""Quasi-Newton iterations: powers have settled to a few per cent by then."""


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """Parameters and where they come from.

    Attributes:
        params: the model.
        method: in words.
        fit: what EM reports, or None where counting sufficed.
        calibration: what `hmmjax.calibrate` found, or None where it was not asked.
    """

    params: Params
    method: str
    fit: FitResult | None = None
    calibration: Calibration | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Videos to learn from.

    Attributes:
        obs: (B, T, ...) what the recognizer says.
        labels: what is known; -1 is unknown.
        mask: (B, T) bool, observed frames.
    """

    obs: Observations
    labels: Labels
    mask: np.ndarray

    def take(self, positions: Any) -> "Examples":
        """Some of the videos.

        Args:
            positions: of the videos, or a boolean mask (B,).

        Returns:
            Examples of those, on the same T frames.
        """

        def pick(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(map(pick, x))
            return None if x is None else x[positions]

        return Examples(
            Observations(pick(self.obs.phases), pick(self.obs.tools)),
            Labels(pick(self.labels.phases), pick(self.labels.tools)),
            self.mask[positions],
        )


def labeled(examples: Examples, track: str) -> tuple[np.ndarray, np.ndarray]:
    """For each video whether any, and whether every observed frame of `track` is labeled: two (B,) arrays."""
    labels = getattr(examples.labels, track)
    if labels is None:
        return np.zeros(len(examples.mask), bool), np.zeros(len(examples.mask), bool)
    known = (labels >= 0) if labels.ndim == 2 else (labels >= 0).all(-1)
    some = (labels >= 0) if labels.ndim == 2 else (labels >= 0).any(-1)
    return (some & examples.mask).any(1), (known | ~examples.mask).all(1)


def learn(
    examples: Examples,
    *,
    num_phases: int,
    num_tools: int,
    emissions: str = "confusion",
    transitions: tuple[Labels, np.ndarray] | None = None,
    priors: Priors = PRIORS,
    iterations: int | None = None,
    calibrated: bool = False,
    stages: bool = False,
    callback: Callable[[int, float], None] | None = None,
) -> Learned:
    """A model of `num_phases` and `num_tools` (either may be 0).

    Start and transitions are counted in `transitions`, else in the labels of `examples`; emissions are counted in
    their labeled frames. EM then goes on from there, with known labels clamped and transitions that were given left
    alone, unless no EM is needed: when some video's observed tracks are all labeled, or when `iterations` is 0.

    Args:
        examples: the videos.
        num_phases: L.
        num_tools: K.
        emissions: families by name, see `hmmjax.init_params`; must suit the observations.
        transitions: labels (B', T') of other videos and their mask.
        priors: pseudo-counts.
        iterations: EM iterations at most; None is 0 where counting suffices and else 100.
        calibrated: where counting suffices, find the powers at which frames are worth what they claim
            (`hmmjax.calibrate`), on the labeled videos.
        stages: give phases as many stages as their durations ask for (`hmmjax.durations.choose`), in the videos in
            which transitions are counted.
        callback: called after every EM iteration with its number and the objective.

    Returns:
        The model, how it was learned, and what EM and calibration report.

    Raises:
        ValueError: for a video that the starting model finds impossible, or labels in `transitions` that lack a track.
    """
    obs, labels = examples.obs, examples.labels
    observed = [track for track in ("phases", "tools") if getattr(obs, track) is not None]
    params, said = _dynamics(examples, num_phases, num_tools, emissions, transitions, priors)
    for track in observed:
        known = getattr(labels, track) is not None and labeled(examples, track)[0].any()
        alone_obs = getattr(obs, track)
        named = _families(alone_obs, emissions)
        family = getattr(params, track).emission
        if isinstance(named, tuple):
            starts = [init_params(num_phases, num_tools, emissions=name) for name in named]
            family = tuple(getattr(start, track).emission for start in starts)
        if known:
            alone_labels = Labels(**{track: getattr(labels, track)})
            counted = estimate(
                alone_labels,
                Observations(**{track: alone_obs}),
                examples.mask,
                emissions=named,
                priors=priors,
                num_phases=num_phases if track == "phases" else None,
            )
            family = getattr(counted, track).emission
        params = _with_emission(params, track, family)
    for track in {"phases", "tools"} - set(observed):
        if getattr(params, track) is not None:
            params = _with_emission(params, track, None)
    if stages and params.phases is not None:
        where = (labels, examples.mask) if transitions is None else transitions
        if where[0].phases is not None:
            found = durations.choose(where[0], where[1], num_phases=num_phases)
            # Pseudo-counts may have made phases shorter than the labels do.
            leave = 1 - np.diagonal(np.asarray(params.phases.transition, np.float64))
            found = tuple(min(n, max(1, int(1.000001 / max(x, 1e-9)))) for n, x in zip(found, leave, strict=True))
            params = durations.spread(params, found)
            said += f"; phases in {', '.join(map(str, found))} stages"
    # Tracks that the model has none of may be annotated all the same.
    known = Labels(*(None if getattr(params, t) is None else getattr(labels, t) for t in ("phases", "tools")))
    if counts_errors(examples, iterations):
        said += "; recognizer's errors counted in labeled frames"
        if not calibrated or not _has_labels(known, observed):
            return Learned(params, said)
        calibration = calibrate(params, obs, examples.mask, known, priors=priors, iterations=CALIBRATION_STEPS)
        return Learned(calibration.params, f"{said}; {_powers(calibration)}", calibration=calibration)
    result = fit(
        params,
        obs,
        examples.mask,
        known,
        priors=priors,
        freeze=() if transitions is None else _dynamic_blocks(params),
        max_iterations=100 if iterations is None else iterations,
        callback=callback,
    )
    how = f"EM, {result.num_iterations} iterations, {'converged' if result.converged else 'not converged'}"
    return Learned(result.params, f"{said}; {how}", result)


def counts_errors(examples: Examples, iterations: int | None) -> bool:
    """Whether `learn` counts the recognizer's errors in labeled frames, and EM has nothing to do.

    Args:
        examples: the videos.
        iterations: as in `learn`.
    """
    observed = [track for track in ("phases", "tools") if getattr(examples.obs, track) is not None]
    full = np.logical_and.reduce([labeled(examples, track)[1] for track in observed])
    return iterations == 0 or (iterations is None and bool(full.any()))


def _families(said: Any, emissions: str) -> str | tuple[str, ...]:
    """The family by name; of several recognizers each one's own, since those that give labels have no probabilities."""
    if not isinstance(said, tuple):
        return emissions
    suits = (source.dtype.kind == "f" or emissions in LABELS for source in said)
    return tuple(emissions if suited else "confusion" for suited in suits)


def _has_labels(labels: Labels, observed: Sequence[str]) -> bool:
    """Whether some observed track has known labels, by which its errors can be weighed."""
    known = [getattr(labels, track) for track in observed]
    return any(x is not None and (x >= 0).any() for x in known)


def _powers(found: Calibration) -> str:
    """The powers in words."""
    parts = []
    for track, chain in (("phases", found.params.phases), ("tools", found.params.tools)):
        emission = None if chain is None else chain.emission
        families = emission.families if isinstance(emission, Fused) else (emission,)
        powers = [np.ravel(np.asarray(f.power)) for f in families if isinstance(f, Tempered)]
        for i, power in enumerate(powers):
            ends = f"{power.min():.3g}" if power.min() == power.max() else f"{power.min():.3g} to {power.max():.3g}"
            parts.append(f"{ends} for {track}{f' of recognizer {i + 1}' if len(powers) > 1 else ''}")
    how = f"each of {found.folds} parts seen through tables of the others" if found.folds else "in sample"
    return f"calibrated ({how}): one frame's evidence has the weight {', '.join(parts)}, where 1 takes it at its word"


def _dynamics(
    examples: Examples,
    num_phases: int,
    num_tools: int,
    emissions: str,
    transitions: tuple[Labels, np.ndarray] | None,
    priors: Priors,
) -> tuple[Params, str]:
    """Start and transition probabilities, and where they come from."""
    labels, mask = (examples.labels, examples.mask) if transitions is None else transitions
    missing = (num_phases and labels.phases is None) or (num_tools and labels.tools is None)
    if missing:
        if transitions is not None:
            raise ValueError("the videos for transitions must be labeled with every track of the model")
        return init_params(num_phases, num_tools, emissions=emissions), "transitions from a sticky start"
    counts = Labels(labels.phases if num_phases else None, labels.tools if num_tools else None)
    params = estimate(
        counts, None, mask, emissions=emissions, priors=priors, num_phases=num_phases if num_phases else None
    )
    where = "labeled videos" if transitions is None else f"{len(mask)} other videos"
    return params, f"transitions counted in {where}"


def _with_emission(params: Params, track: str, family: Any) -> Params:
    chain = dataclasses.replace(getattr(params, track), emission=family)
    return dataclasses.replace(params, **{track: chain})


def _dynamic_blocks(params: Params) -> tuple[str, ...]:
    tracks = [track for track in ("phases", "tools") if getattr(params, track) is not None]
    return tuple(f"{track}.{block}" for track in tracks for block in ("initial", "transition"))

"""Learn one model from the available labels: by counting if frames are labeled, by EM otherwise, then calibrate it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hmmjax.anchoring import STRENGTH, anchor
from hmmjax.calibration import Calibration, calibrate
from hmmjax.emissions import LABEL_FAMILIES, Fused, Tempered
from hmmjax.emissions.registry import families_named
from hmmjax.ensembles import labels_of
from hmmjax.initialize import estimate, init_params
from hmmjax.learning import fit
from hmmjax.stabilize.coverage import is_partial, shows_classes
from hmmjax.stabilize.dynamics import dynamic_blocks, learn_dynamics, with_stages
from hmmjax.stabilize.examples import TRACKS, Examples, label_coverage
from hmmjax.stabilize.settings import Settings, with_overrides
from hmmjax.types import FitResult, Labels, Observations, Params

#: Maximum number of quasi-Newton iterations of calibration; powers have converged to a few percent by then.
CALIBRATION_ITERATIONS = 15
#: Maximum number of EM iterations unless the settings say otherwise.
EM_ITERATIONS = 100


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """A learned model.

    Attributes:
        params: the model, with tempered emissions if it was calibrated.
        method: how it was learned, in words.
        fit: the result of EM; None if counting sufficed.
        calibration: the result of `hmmjax.calibrate`; None if the model is not calibrated.
        online: the model for the filter; None is `params` without powers.
    """

    params: Any
    method: str
    fit: FitResult | None = None
    calibration: Calibration | None = None
    online: Any = None


def learn_model(
    examples: Examples,
    settings: Settings | None = None,
    *,
    num_phases: int,
    num_tools: int,
    transitions: tuple[Labels, np.ndarray] | None = None,
    held_out: Sequence[int] | np.ndarray | None = None,
    calibration: Mapping[str, Any] | None = None,
    callback: Callable[[int, float], None] | None = None,
    **overrides: Any,
) -> Learned:
    """Learn a model from arrays, and calibrate its emissions if the settings ask for it.

    Initial and transition probabilities are counted in `transitions`, or else in the labels of `examples` if they label
    a video throughout. Emissions are counted in the labeled frames of `examples`, or anchored to a recognizer that is
    mostly right if these hardly show some class. EM continues from there, with known labels clamped and given
    transitions frozen, unless counting suffices: some video is labeled throughout in every observed track, or
    `max_iterations` is 0.

    With ``calibrated=True``, `hmmjax.calibrate` finds powers on videos whose emissions were learned from other videos.
    By default it splits the labeled videos into folds itself and counts the emissions of each fold in the others;
    emissions learned by EM are not calibrated. With `held_out`, a second model is learned from the remaining videos,
    by counting or by EM, its powers are found on the held-out videos from the labels of the observed tracks, and they
    are applied to the model of all videos.

    Args:
        examples: videos with observations that suit the emission family, and their labels.
        settings: emissions, max_iterations, priors, calibrated (None means False here) and stages are used.
        num_phases: L, 0 for a model without phases.
        num_tools: K, 0 for a model without tools.
        transitions: labels (B', T') of other videos and their mask (B', T').
        held_out: positions of the videos on which powers are found. If they are none or all of the videos, powers are
            found on the videos learned from.
        calibration: further arguments of `hmmjax.calibrate`. By default the priors of the settings and at most
            `CALIBRATION_ITERATIONS` iterations.
        callback: called after every EM iteration with its number and the objective.
        overrides: settings by name, in place of those in `settings`.

    Returns:
        The model, how it was learned, and the results of EM and calibration.

    Raises:
        ValueError: a video is impossible under the starting model, or `transitions` lack labels of a track.
        TypeError: an override is not a setting.
    """
    settings = with_overrides(settings, overrides)
    learned = _learn(examples, settings, num_phases, num_tools, transitions, callback)
    observed = [track for track in TRACKS if getattr(examples.obs, track) is not None]
    known = labels_of(learned.params, examples.labels)
    if not settings.calibrated or not _has_labels(known, observed) or (held_out is None and learned.fit is not None):
        return learned
    if calibration is None:
        calibration = {"priors": settings.priors, "max_iterations": CALIBRATION_ITERATIONS}
    reference, part = learned, examples
    if held_out is not None:
        everything = np.arange(len(examples.mask))
        rest = np.setdiff1d(everything, held_out)
        if 0 < rest.size < everything.size:
            part = examples.take(np.asarray(held_out))
            reference = _learn(examples.take(rest), settings, num_phases, num_tools, transitions, callback)
    known = labels_of(reference.params, part.labels)
    if held_out is not None:
        # Powers belong to the observed tracks; labels of hidden ones do not choose them.
        known = Labels(**{track: getattr(known, track) for track in observed})
    found = calibrate(reference.params, part.obs, part.mask, known, **calibration)
    params = found.params if reference is learned else _with_powers(learned.params, found.params)
    method = f"{learned.method}; {_describe_powers(found, held_out is not None)}"
    return Learned(params, method, learned.fit, found)


def _learn(
    examples: Examples,
    settings: Settings,
    num_phases: int,
    num_tools: int,
    transitions: tuple[Labels, np.ndarray] | None,
    callback: Callable[[int, float], None] | None,
) -> Learned:
    """Learn a model without calibrating it."""
    params, method = learn_dynamics(examples, num_phases, num_tools, settings, transitions)
    for track in TRACKS:
        if getattr(params, track) is not None:
            counted = examples if _suffices(examples, params, track, settings) else _unlabeled(examples)
            params = _with_emission(params, track, _count_emission(counted, params, track, settings))
    if settings.stages and params.phases is not None:
        params, stages = with_stages(params, examples, transitions)
        method += stages
    if counting_suffices(examples, settings.max_iterations):
        return Learned(params, f"{method}; recognizer errors counted in labeled frames")
    known = labels_of(params, examples.labels)
    held = anchor(
        params,
        examples.obs,
        examples.mask,
        known,
        priors=settings.priors,
        strength=STRENGTH if settings.anchored else 0.0,
    )
    result = fit(
        held.params,
        examples.obs,
        examples.mask,
        known,
        priors=held.priors,
        freeze=held.freeze + (() if transitions is None else dynamic_blocks(params)),
        max_iterations=EM_ITERATIONS if settings.max_iterations is None else settings.max_iterations,
        callback=callback,
    )
    done = f"{result.num_iterations} iteration{'' if int(result.num_iterations) == 1 else 's'}"
    how = f"EM, {done}, {'converged' if result.converged else 'not converged'}"
    if settings.anchored:
        how += ", recognizer errors learned under the assumption that it is mostly right"
        how += ", and from the annotated frames" if _has_labels(known, TRACKS) else ""
    return Learned(result.params, f"{method}; {how}", result)


def counting_suffices(examples: Examples, max_iterations: int | None) -> bool:
    """Return whether `learn_model` counts recognizer errors in labeled frames and leaves nothing to EM.

    Args:
        examples: the videos.
        max_iterations: maximum number of EM iterations; None leaves the choice to the labels.
    """
    observed = [track for track in TRACKS if getattr(examples.obs, track) is not None]
    full = np.logical_and.reduce([label_coverage(examples, track)[1] for track in observed])
    return max_iterations == 0 or (max_iterations is None and bool(full.any()))


def _count_emission(examples: Examples, params: Params, track: str, settings: Settings) -> Any:
    """Return the emission family of one track, counted in its labeled frames; None if the track is not observed."""
    outputs, labels = getattr(examples.obs, track), getattr(examples.labels, track)
    if outputs is None:
        return None
    names = _family_names(outputs, settings.family)
    if labels is not None and label_coverage(examples, track)[0].any():
        counted = estimate(
            Labels(**{track: labels}),
            Observations(**{track: outputs}),
            examples.mask,
            emissions=names,
            priors=settings.priors,
            num_phases=params.num_phases if track == "phases" else None,
        )
        return getattr(counted, track).emission
    if isinstance(names, tuple):
        starts = [init_params(params.num_phases, params.num_tools, emissions=name) for name in names]
        return tuple(getattr(start, track).emission for start in starts)
    return getattr(params, track).emission


def _suffices(examples: Examples, params: Params, track: str, settings: Settings) -> bool:
    """Return whether a track's emissions are counted in its labels before EM, not left to the anchor of `fit`."""
    outputs = getattr(examples.obs, track)
    if outputs is None or not settings.anchored or settings.max_iterations == 0 or not is_partial(examples, track):
        return True
    names = _family_names(outputs, settings.family)
    families = [families_named(name)[track == "tools"] for name in ((names,) if isinstance(names, str) else names)]
    anchored = all(family.accepts_anchor for family in families)
    return not anchored or shows_classes(examples, track, params.num_phases if track == "phases" else 2)


def _unlabeled(examples: Examples) -> Examples:
    return dataclasses.replace(examples, labels=Labels())


def _family_names(outputs: Any, emissions: str) -> str | tuple[str, ...]:
    """Return the family's name, or one per fused recognizer; "confusion" for labels that the family does not accept."""
    if not isinstance(outputs, tuple):
        return emissions
    suits = (source.dtype.kind == "f" or emissions in LABEL_FAMILIES for source in outputs)
    return tuple(emissions if suited else "confusion" for suited in suits)


def _has_labels(labels: Labels, observed: Sequence[str]) -> bool:
    known = [getattr(labels, track) for track in observed]
    return any(x is not None and (x >= 0).any() for x in known)


def _with_powers(params: Params, calibrated: Params) -> Params:
    """Return the model with the powers of another model of the same structure."""

    def temper(family: Any, other: Any) -> Any:
        if isinstance(other, Fused):
            return Fused(tuple(map(temper, family.families, other.families)))
        return Tempered(family, other.power) if isinstance(other, Tempered) else family

    for track in TRACKS:
        chain, other = getattr(params, track), getattr(calibrated, track)
        if chain is not None and chain.emission is not None:
            params = _with_emission(params, track, temper(chain.emission, other.emission))
    return params


def _describe_powers(found: Calibration, held_out: bool) -> str:
    parts = []
    for track, chain in (("phases", found.params.phases), ("tools", found.params.tools)):
        sources = () if chain is None or chain.emission is None else chain.emission.sources
        powers = [np.ravel(np.asarray(f.power)) for f in sources if isinstance(f, Tempered)]
        for i, power in enumerate(powers):
            ends = f"{power.min():.2g}" if power.min() == power.max() else f"{power.min():.2g} to {power.max():.2g}"
            parts.append(f"{ends} for {track}{f' of recognizer {i + 1}' if len(powers) > 1 else ''}")
    how = "in sample"
    if found.folds:
        how = f"{found.folds} folds, each with emissions learned from the others"
    elif held_out:
        how = "on held-out videos"
    return f"calibrated ({how}): each frame is weighted by {', '.join(parts)} (1 = full weight)"


def _with_emission(params: Params, track: str, family: Any) -> Params:
    chain = dataclasses.replace(getattr(params, track), emission=family)
    return dataclasses.replace(params, **{track: chain})

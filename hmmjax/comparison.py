"""Which emission family suits a recogniser: families ranked on videos that they were not learnt from."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from hmmjax._checks import check_array
from hmmjax._data import count_videos
from hmmjax.calibration import calibrate, plain
from hmmjax.counting import estimate
from hmmjax.inference import log_likelihood
from hmmjax.priors import Priors
from hmmjax.starting import FAMILIES, LABELS
from hmmjax.types import Labels, Observations, Params


@dataclasses.dataclass(frozen=True)
class Rank:
    """One family on held-out videos, in nats per frame that has a label.

    Attributes:
        family: a name of `hmmjax.starting.FAMILIES`.
        conditional: log-probability of the labels given the observations, calibrated; the larger the better.
        uncalibrated: the same with powers of one.
        marginal: log-probability (density) of the observations with powers of one. It compares families that see the
            same numbers: "confusion" sees labels where the others see probabilities, and stands alone. NaN for
            "scaled", which is no density.
        powers: of the phases and of each tool, from all videos.
    """

    family: str
    conditional: float
    uncalibrated: float
    marginal: float
    powers: dict[str, Any]


class Ranking(tuple[Rank, ...]):
    """Ranks, best first; printed as a table."""

    def __str__(self) -> str:
        """Families, best first, with what they are worth."""
        lines = [f"{'family':<14}{'conditional':>13}{'uncalibrated':>14}{'marginal':>11}"]
        for rank in self:
            marginal = "-" if rank.marginal != rank.marginal else f"{rank.marginal:.3f}"
            lines.append(f"{rank.family:<14}{rank.conditional:>13.3f}{rank.uncalibrated:>14.3f}{marginal:>11}")
        return "\n".join([*lines, "held out, nats a frame; larger is better"])


def comparable(floats: bool) -> list[str]:
    """Families that are compared unless others are named: all that outputs of this kind allow but the dear one.

    Args:
        floats: whether the outputs are probabilities, not labels.

    Returns:
        Names of `hmmjax.starting.FAMILIES`.
    """
    return [name for name in (FAMILIES if floats else LABELS) if name != "logistic"]


def compare(
    labels: Labels,
    obs: Observations,
    mask: Any = None,
    *,
    families: Sequence[str] | None = None,
    chains: Params | None = None,
    folds: int = 5,
    priors: Priors | None = None,
    num_phases: int | None = None,
    iterations: int = 15,
) -> Ranking:
    """Rank emission families by how well they explain held-out videos.

    Every folds-th video is held out in turn; emissions and powers are learnt in the others.

    Args:
        labels: phases (B, T) and/or tools (B, T, K); -1 is unknown. At least two videos.
        obs: (B, T, ...) what the recogniser said; probabilities are turned into labels for "confusion" and
            "logistic".
        mask: (B, T) bool, True where observed.
        families: names of `hmmjax.starting.FAMILIES`; by default all that `obs` allows but "logistic", which is dearer.
        chains: start and transitions; by default counted in the videos that are learnt from.
        folds: parts, as many as videos at most.
        priors: pseudo-counts; by default half a count of everything, without which a video may be impossible.
        num_phases: L, as in `estimate`.
        iterations: of `calibrate`.

    Returns:
        `Ranking` by conditional log-likelihood; ``print`` it.

    Raises:
        TypeError, ValueError: bad input, an unknown family, one that does not suit the observations, or one video.
    """
    both = [x for x in (obs.phases, obs.tools) if x is not None]
    if not both:
        raise ValueError("compare needs observations: hmmjax.Observations(phases=..., tools=...).")
    for x in both:
        if isinstance(x, tuple):
            raise TypeError("compare takes one recogniser at a time: give an array, not a tuple of them.")
        check_array("obs", x)
    floats = all(x.dtype.kind == "f" for x in both)
    if families is None:
        families = comparable(floats)
    names = tuple(families)
    for name in names:
        if name not in FAMILIES:
            raise ValueError(f"family {name!r} is unknown; choose from {', '.join(FAMILIES)}.")
        if name not in LABELS and not floats:
            raise ValueError(f"{name!r} needs probabilities, but obs holds labels: choose {' or '.join(LABELS)}.")
    if folds < 2:
        raise ValueError(f"folds={folds}: at least two parts are needed to hold one out.")
    count = count_videos(obs, mask, labels)
    if count < 2:
        raise ValueError("compare holds videos out, so it needs at least two, on a leading axis.")
    if mask is None:
        mask = np.ones(both[0].shape[:2], bool)
    priors = Priors(*[0.5] * 6) if priors is None else priors
    parts = [np.arange(count)[i::folds] for i in range(min(folds, count))]
    options = {"priors": priors, "num_phases": num_phases}
    ranks = [_rank(name, labels, obs, np.asarray(mask), chains, parts, options, iterations) for name in names]
    return Ranking(sorted(ranks, key=lambda rank: -rank.conditional))


def _rank(
    name: str,
    labels: Labels,
    obs: Observations,
    mask: np.ndarray,
    chains: Params | None,
    parts: Sequence[np.ndarray],
    options: dict[str, Any],
    iterations: int,
) -> Rank:
    seen = obs.discretize() if name in LABELS else obs
    totals, frames = np.zeros(3), 0
    free = np.zeros(0)

    def take(videos: np.ndarray) -> tuple[Labels, Observations, np.ndarray]:
        return jax.tree.map(lambda x: x[videos], (labels, seen, mask))

    def learn(videos: np.ndarray) -> Params:
        own, said, observed = take(videos)
        params = estimate(own, said, observed, emissions=name, **options)
        if chains is not None:
            params = _with_chains(params, chains)
        return calibrate(params, said, observed, own, priors=options["priors"], iterations=iterations).params

    for part in parts:
        params = learn(np.setdiff1d(np.arange(len(mask)), part))
        own, said, observed = take(part)
        for i, model in enumerate((params, plain(params))):
            free = np.asarray(log_likelihood(model, said, observed), np.float64)
            clamped = np.asarray(log_likelihood(model, said, observed, own), np.float64)
            # A video that is impossible without its labels is no less so with them.
            totals[i] += (clamped - free).sum() if (free > -np.inf).all() else -np.inf
        totals[2] += free.sum()
        known = [(x >= 0) if x.ndim == 2 else (x >= 0).any(-1) for x in (own.phases, own.tools) if x is not None]
        frames += int((np.logical_or.reduce(known) & observed).sum())
    conditional, uncalibrated, marginal = totals / max(frames, 1)
    whole = learn(np.arange(len(mask)))
    powers = {
        track: np.asarray(chain.emission.power).tolist()
        for track, chain in (("phases", whole.phases), ("tools", whole.tools))
        if chain is not None and hasattr(chain.emission, "power")
    }
    return Rank(name, conditional, uncalibrated, float("nan") if name == "scaled" else marginal, powers)


def _with_chains(params: Params, chains: Params) -> Params:
    """The emissions of the one on the chains of the other."""
    out = {}
    for track in ("phases", "tools"):
        chain, own = getattr(chains, track), getattr(params, track)
        emission = None if own is None else own.emission
        out[track] = None if chain is None else dataclasses.replace(chain, emission=emission)
    return Params(**out)

"""Which emission family suits a recognizer: families ranked on videos that they were not learned from."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from hmmjax._core.batch import count_videos, pad_lists
from hmmjax._core.checks import check_array
from hmmjax.calibration import calibrate, plain
from hmmjax.counting import estimate
from hmmjax.emissions import Tempered
from hmmjax.inference import log_likelihood, posterior
from hmmjax.initialize import FAMILIES, LABELS
from hmmjax.priors import Priors
from hmmjax.types import Labels, Observations, Params


class Agreement(NamedTuple):
    """How far labels agree with the truth, in the frames that have it; NaN for a track that nobody labeled.

    Attributes:
        phase_accuracy: share of frames whose phase is right, all videos pooled.
        tool_f1: F1 of presence at one half, mean over tools.
    """

    phase_accuracy: float
    tool_f1: float


NOWHERE = Agreement(math.nan, math.nan)


@dataclasses.dataclass(frozen=True)
class Rank:
    """One family on held-out videos, in nats per frame that has a label.

    Attributes:
        family: a name of `hmmjax.initialize.FAMILIES`.
        conditional: log-probability of the labels given the observations, calibrated; the larger the better.
        uncalibrated: the same with powers of one.
        marginal: log-probability (density) of the observations with powers of one. It compares families that see the
            same numbers: "confusion" sees labels where the others see probabilities, and stands alone. NaN for
            "scaled", which is no density.
        powers: of the phases and of each tool, from all videos.
        as_it_is: how far posteriors with powers of one agree with the truth.
        calibrated: how far calibrated ones do.
        videos: of each video the sum of which `conditional` is the mean, in nats, and its frames that have a label.
        behind: how much less `conditional` is than the best family's.
        error: standard error of `behind` over videos, each its own difference; NaN where one finds a video impossible.
    """

    family: str
    conditional: float
    uncalibrated: float
    marginal: float
    powers: dict[str, Any]
    as_it_is: Agreement = NOWHERE
    calibrated: Agreement = NOWHERE
    videos: tuple[tuple[float, int], ...] = ()
    behind: float = 0.0
    error: float = 0.0

    @property
    def tied(self) -> bool:
        """Whether these videos do not tell the family from the best: zero is in the 95 % interval of `behind`.

        Student's, for as many videos; of two videos almost everything is tied.
        """
        from scipy import stats  # dear to import, and rarely asked

        return bool(self.behind <= stats.t.ppf(0.975, max(len(self.videos) - 1, 1)) * self.error)


class Ranking(tuple[Rank, ...]):
    """Ranks, best first, each with its distance from the best; printed as a table.

    Attributes:
        recognizer: how far the recognizer's own labels agree with the truth, in the same frames.
    """

    recognizer: Agreement

    def __new__(cls, ranks: Iterable[Rank], recognizer: Agreement) -> "Ranking":
        """Sort ranks of the same videos."""
        ranks = sorted(ranks, key=lambda rank: -rank.conditional)
        ranking = super().__new__(cls, (_behind(rank, ranks[0]) for rank in ranks))
        ranking.recognizer = recognizer
        return ranking

    def rows(self) -> list[tuple[str, ...]]:
        """The table's cells: a row of titles, one of each family, best first, and the recognizer's own."""
        tracks = [name for name in Agreement._fields if not math.isnan(getattr(self.recognizer, name))]
        titles = ["family", "conditional", "behind", "±", "uncalibrated", "marginal"]
        rows = []
        for rank in self:
            nats = (rank.conditional, rank.behind, rank.error, rank.uncalibrated, rank.marginal)
            shares = (getattr(found, name) for name in tracks for found in (rank.as_it_is, rank.calibrated))
            rows.append((rank.family, *map(_nats, nats), *map(_share, shares)))
        for name in tracks:
            titles += [f"{_TITLES[name]} as it is", f"{_TITLES[name]} calibrated"]
        own = (cell for name in tracks for cell in (_share(getattr(self.recognizer, name)), ""))
        return [tuple(titles), *rows, ("recognizer", *[""] * 5, *own)]

    def __str__(self) -> str:
        """Families, best first, with what they are worth."""
        rows = self.rows()
        widths = [2 + max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [row[0].ljust(widths[0]) + "".join(map(str.rjust, row[1:], widths[1:])).rstrip() for row in rows]
        return "\n".join([*lines, "held out, nats a frame, larger is better; ±: standard error of behind, over videos"])


_TITLES = {"phase_accuracy": "accuracy", "tool_f1": "F1"}


def _nats(value: float) -> str:
    """Three digits that count: differences may be far below a hundredth of a nat."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _behind(rank: Rank, best: Rank) -> Rank:
    """The rank with its distance from the best, and that distance's standard error."""
    behind = 0.0 if rank is best else best.conditional - rank.conditional
    if not rank.videos:
        return dataclasses.replace(rank, behind=behind, error=math.nan)
    nats, frames = np.array(rank.videos).T
    with np.errstate(invalid="ignore"):
        less = np.array(best.videos)[:, 0] - nats
        # Of a sum of independent videos, over a number of frames that is known.
        spread = float(np.std(less, ddof=1)) if len(less) > 1 else math.nan
    error = math.sqrt(len(less)) * spread / max(float(frames.sum()), 1.0)
    return dataclasses.replace(rank, behind=behind, error=error)


def comparable(floats: bool) -> list[str]:
    """Families that are compared unless others are named: all that outputs of this kind allow but the dear one.

    Args:
        floats: whether the outputs are probabilities, not labels.

    Returns:
        Names of `hmmjax.initialize.FAMILIES`.
    """
    return [name for name in (FAMILIES if floats else LABELS) if name != "logistic"]


def check_families(names: Sequence[str], floats: bool) -> None:
    """Raise unless families are known and suit the outputs.

    Args:
        names: of families.
        floats: whether the outputs are probabilities, not labels.

    Raises:
        ValueError: an unknown family, or one of probabilities for labels.
    """
    for name in names:
        if name not in FAMILIES:
            raise ValueError(f"family {name!r} is unknown; choose from {', '.join(FAMILIES)}.")
        if name not in LABELS and not floats:
            raise ValueError(f"{name!r} needs probabilities, but obs holds labels: choose {' or '.join(LABELS)}.")


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

    Every folds-th video is held out in turn; emissions and powers are learned in the others.

    Args:
        labels: phases (B, T) and/or tools (B, T, K); -1 is unknown. At least two videos.
        obs: (B, T, ...) what the recognizer said; probabilities are turned into labels for "confusion" and
            "logistic".
        mask: (B, T) bool, True where observed.
        families: names of `hmmjax.initialize.FAMILIES`; by default all that `obs` allows but "logistic", which is dearer.
        chains: start and transitions; by default counted in the videos that are learned from.
        folds: parts, as many as videos at most.
        priors: pseudo-counts; by default half a count of everything, without which a video may be impossible.
        num_phases: L, as in `estimate`.
        iterations: of `calibrate`.

    Returns:
        `Ranking` by conditional log-likelihood; ``print`` it.

    Raises:
        TypeError, ValueError: bad input, an unknown family, one that does not suit the observations, or one video.
    """
    obs, mask, labels, _ = pad_lists(obs, mask, labels)
    both = [x for x in (obs.phases, obs.tools) if x is not None]
    if not both:
        raise ValueError("compare needs observations: hmmjax.Observations(phases=..., tools=...).")
    for x in both:
        if isinstance(x, tuple):
            raise TypeError("compare takes one recognizer at a time: give an array, not a tuple of them.")
        check_array("obs", x)
    floats = all(x.dtype.kind == "f" for x in both)
    names = tuple(comparable(floats) if families is None else families)
    check_families(names, floats)
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
    return Ranking(ranks, agreement(labels, obs.discretize(), np.asarray(mask)))


def agreement(labels: Labels, said: Observations, mask: np.ndarray) -> Agreement:
    """How far labels agree with the truth.

    Args:
        labels: the truth: phases (B, T) and/or tools (B, T, K); -1 is unknown.
        said: labels (B, T), (B, T, K), or of tools probabilities.
        mask: (B, T) bool, True where observed.

    Returns:
        `Agreement`, NaN for a track that either lacks or that is labeled nowhere.
    """
    accuracy = f1 = math.nan
    if labels.phases is not None and said.phases is not None and (known := mask & (labels.phases >= 0)).any():
        accuracy = float((said.phases == labels.phases)[known].mean())
    if labels.tools is not None and said.tools is not None:
        from hmmjax import metrics  # not needed before

        truth = np.where(mask[..., None], labels.tools, -1)
        known = (truth >= 0).any((1, 2))
        f1 = metrics.tool_f1(list(truth[known]), list(said.tools[known])).value if known.any() else math.nan
    return Agreement(accuracy, f1)


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
    count, length = mask.shape
    nats, frames, marginal = np.zeros((2, count)), np.zeros(count, int), 0.0
    phases = np.zeros((2, count, length), int)
    tools = np.zeros((2, *(np.shape(labels.tools) if labels.tools is not None else (count, length, 0))))

    def take(videos: np.ndarray) -> tuple[Labels, Observations, np.ndarray]:
        return jax.tree.map(lambda x: x[videos], (labels, seen, mask))

    def learn(videos: np.ndarray) -> Params:
        own, said, observed = take(videos)
        params = estimate(own, said, observed, emissions=name, **options)
        if chains is not None:
            params = _with_chains(params, chains)
        return calibrate(params, said, observed, own, priors=options["priors"], iterations=iterations).params

    for part in parts:
        params = learn(np.setdiff1d(np.arange(count), part))
        own, said, observed = take(part)
        free = np.zeros(0)
        for i, model in enumerate((params, plain(params))):
            found = posterior(model, said, observed)
            if found.phases is not None:
                phases[i, part] = np.asarray(found.phases).argmax(-1)
            if found.tools is not None:
                tools[i, part] = found.tools
            free = np.asarray(found.log_likelihood, np.float64)
            clamped = np.asarray(log_likelihood(model, said, observed, own), np.float64)
            # A video that is impossible without its labels is no less so with them.
            nats[i, part] = np.where(free > -np.inf, clamped - np.where(free > -np.inf, free, 0), -np.inf)
        marginal += free.sum()
        known = [(x >= 0) if x.ndim == 2 else (x >= 0).any(-1) for x in (own.phases, own.tools) if x is not None]
        frames[part] = (np.logical_or.reduce(known) & observed).sum(1)
    total = max(frames.sum(), 1)
    conditional, uncalibrated = nats.sum(1) / total
    whole = learn(np.arange(count))
    powers = {
        track: np.asarray(chain.emission.power).tolist()
        for track, chain in (("phases", whole.phases), ("tools", whole.tools))
        if chain is not None and isinstance(chain.emission, Tempered)
    }
    calibrated, as_it_is = (agreement(labels, Observations(p, t), mask) for p, t in zip(phases, tools, strict=True))
    return Rank(
        name,
        float(conditional),
        float(uncalibrated),
        math.nan if name == "scaled" else float(marginal / total),
        powers,
        as_it_is,
        calibrated,
        videos=tuple(zip(nats[0].tolist(), frames.tolist(), strict=True)),
    )


def _with_chains(params: Params, chains: Params) -> Params:
    """The emissions of the one on the chains of the other."""
    out = {}
    for track in ("phases", "tools"):
        chain, own = getattr(chains, track), getattr(params, track)
        emission = None if own is None else own.emission
        out[track] = None if chain is None else dataclasses.replace(chain, emission=emission)
    return Params(**out)

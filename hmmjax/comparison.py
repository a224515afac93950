"""Compare emission families on held-out videos."""

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from hmmjax._core import lowering
from hmmjax._core.batch import Batch, count_videos, pad_lists, prepare, require_known
from hmmjax._core.checks import check_array, is_float
from hmmjax._core.deprecation import F, renamed_arguments, warn_renamed
from hmmjax._core.source_tables import Scores, SourceTables, score_labels, without_observations
from hmmjax._core.sources import observed_families, without_emissions
from hmmjax.calibration import (
    Powers,
    find_powers,
    held_out_tables,
    learn_family,
    split_folds,
    table_of,
    unit_powers,
)
from hmmjax.emissions import FAMILIES, LABEL_FAMILIES
from hmmjax.initialize import count_phases, estimate, init_params, require_labels
from hmmjax.priors import Priors, check_priors
from hmmjax.ranking import Agreement, Rank, Ranking
from hmmjax.types import Labels, Observations, Params


def comparable(floats: bool) -> list[str]:
    """Return the default families of `compare`: all that accept these outputs, except the slow "logistic".

    Args:
        floats: whether the outputs are probabilities rather than labels.

    Returns:
        Names in `hmmjax.emissions.FAMILIES`.
    """
    return [name for name in (FAMILIES if floats else LABEL_FAMILIES) if name != "logistic"]


def check_families(names: Sequence[str], floats: bool) -> None:
    """Raise ValueError unless families are known and accept the outputs.

    Args:
        names: names of families.
        floats: whether the outputs are probabilities rather than labels.

    Raises:
        ValueError: an unknown family, or a family of probabilities for labels.
    """
    for name in names:
        if name not in FAMILIES:
            raise ValueError(f"family {name!r} is unknown; choose from {', '.join(FAMILIES)}.")
        if name not in LABEL_FAMILIES and not floats:
            raise ValueError(
                f"family {name!r} needs probabilities, but obs holds labels: choose {' or '.join(LABEL_FAMILIES)}."
            )


def _accept_labels_first(function: F) -> F:
    """Decorate `compare` to accept the deprecated order (labels, obs, mask), which began with the labels."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not 1 <= len(args) <= 3 or not isinstance(args[0], Labels):
            return function(*args, **kwargs)
        warn_renamed("hmmjax.compare(labels, obs, mask)", "hmmjax.compare(obs, mask, labels)")
        return function(**dict(zip(("labels", "obs", "mask"), args, strict=False)), **kwargs)

    return wrapper  # type: ignore[return-value]


@_accept_labels_first
@renamed_arguments(iterations="max_iterations")
def compare(
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    families: Sequence[str] | None = None,
    chains: Params | None = None,
    folds: int = 5,
    priors: Priors | None = None,
    num_phases: int | None = None,
    max_iterations: int = 15,
    callback: Callable[[int], None] | None = None,
) -> Ranking:
    """Rank emission families by how well they predict the labels of held-out videos.

    Videos are split into folds, each of every folds-th video. Each fold is held out once; emissions and powers are
    learned from the others.

    Args:
        obs: (B, T, ...) outputs of one recognizer for at least two videos; "confusion" and "logistic" turn
            probabilities into labels.
        mask: (B, T) bool, True where observed; None if all frames are.
        labels: phases (B, T) and/or tools (B, T, K); -1 is unknown.
        families: names in `hmmjax.emissions.FAMILIES`; by default all that accept `obs`, except the slow "logistic".
        chains: model whose start and transition probabilities are used; by default counted in the training videos.
        folds: number of folds; at most the number of videos.
        priors: pseudo-counts; by default half a count of everything, without which a video may be impossible.
        num_phases: L; by default as many as `obs` or the labels show.
        max_iterations: maximum number of iterations of `calibrate`.
        callback: called after every family with the number of families done.

    Returns:
        `Ranking` by conditional log-likelihood; printing it shows a table.

    Raises:
        TypeError, ValueError: bad input, an unknown family, one that does not accept the observations, or one video.
    """
    obs, mask, labels, _ = pad_lists(obs, mask, labels)
    if labels is None:
        raise ValueError("compare needs labels: pass hmmjax.Labels(phases=..., tools=...) as the third argument.")
    given = [x for x in (obs.phases, obs.tools) if x is not None]
    if not given:
        raise ValueError("compare needs observations: pass hmmjax.Observations(phases=..., tools=...).")
    for x in given:
        if isinstance(x, tuple):
            raise TypeError("compare takes one recognizer at a time: pass an array instead of a tuple of arrays.")
        check_array("obs", x)
    floats = all(map(is_float, given))
    names = tuple(comparable(floats) if families is None else families)
    check_families(names, floats)
    if folds < 2:
        raise ValueError(f"folds={folds}: at least two folds are needed to hold one out.")
    count = count_videos(obs, mask, labels)
    if count < 2:
        raise ValueError("compare holds out videos, so it needs at least two, on a leading axis.")
    require_labels(labels, obs)
    mask = np.ones(given[0].shape[:2], bool) if mask is None else np.asarray(mask)
    priors = Priors(*[0.5] * 6) if priors is None else priors
    num_phases = count_phases(labels, obs, mask, "confusion", num_phases)
    # The last part is empty: a model of all videos is learned as well.
    held_out = np.zeros((min(folds, count) + 1, count), bool)
    for i in range(len(held_out) - 1):
        held_out[i, i :: len(held_out) - 1] = True
    if chains is None:
        own = [mask & ~part[:, None] for part in held_out]
        learned = [estimate(labels, None, x, priors=priors, num_phases=num_phases or None) for x in own]
    else:
        learned = [chains] * len(held_out)
    problem = _Problem(labels, mask, held_out, [without_emissions(x) for x in learned], priors, max_iterations)

    def rank(name: str) -> Rank:
        return _rank(name, obs.discretize() if name in LABEL_FAMILIES else obs, problem)

    # The first family compiles the programs that all share. The others then run side by side, since the recursions of
    # few videos do not occupy all cores.
    ranks = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in itertools.chain([rank(name) for name in names[:1]], pool.map(rank, names[1:])):
            ranks.append(found)
            if callback is not None:
                callback(len(ranks))
    return Ranking(ranks, agreement(labels, obs.discretize(), mask))


def agreement(labels: Labels, predictions: Observations, mask: np.ndarray) -> Agreement:
    """Return how well predictions agree with the true labels.

    Args:
        labels: the truth: phases (B, T) and/or tools (B, T, K); -1 is unknown.
        predictions: labels (B, T) and (B, T, K); of tools also probabilities. Missing ones (-1 or NaN) do not count.
        mask: (B, T) bool, True where observed.

    Returns:
        `Agreement`; NaN for a track without predictions or labels.
    """
    accuracy = f1 = math.nan
    if labels.phases is not None and predictions.phases is not None:
        known = mask & (labels.phases >= 0) & (predictions.phases >= 0)
        if known.any():
            accuracy = float((predictions.phases == labels.phases)[known].mean())
    if labels.tools is not None and predictions.tools is not None:
        from hmmjax import metrics  # the core does not depend on metrics otherwise

        truth = np.where(mask[..., None] & (predictions.tools >= 0), labels.tools, -1)
        known = (truth >= 0).any((1, 2))
        f1 = metrics.tool_f1(list(truth[known]), list(predictions.tools[known])).value if known.any() else math.nan
    return Agreement(accuracy, f1)


class _Problem(NamedTuple):
    """What all families have in common: videos, how they are held out, and how models are learned.

    Attributes:
        labels: of all videos.
        mask: (B, T) bool, True where observed.
        held_out: (P + 1, B) bool, the videos of each part; those of the last part are none.
        chains: P + 1 models without emissions, the model of each part learned from all other videos.
        priors: pseudo-counts of the emissions.
        max_iterations: maximum number of iterations of calibration.
    """

    labels: Labels
    mask: np.ndarray
    held_out: np.ndarray
    chains: list[Params]
    priors: Priors
    max_iterations: int

    def known_frames(self) -> np.ndarray:
        """Return the number of observed frames per video in which some state is known."""
        tracks = [x for x in (self.labels.phases, self.labels.tools) if x is not None]
        known = [(x >= 0) if x.ndim == 2 else (x >= 0).any(-1) for x in tracks]
        return (np.logical_or.reduce(known) & self.mask).sum(1)


def _rank(name: str, obs: Observations, problem: _Problem) -> Rank:
    """Return the results of one family, each part scored with models learned from the others.

    All parts have the shape of the whole batch, so that they share programs; those of `find_powers` and `score_labels`
    are also shared by all families.
    """
    model = _with_default(problem.chains[-1], obs, name)
    batch = prepare(model, obs, problem.mask, problem.labels)
    check_priors(model, problem.priors)
    ones = unit_powers(model, batch)
    # Row 0 is for calibrated models, row 1 for the same models with powers of one.
    scores: list[list[Scores]] = [[], []]
    found = None
    for chains, held_out in zip(problem.chains, problem.held_out, strict=True):
        others, own = _only(batch, ~held_out), without_observations(_only(batch, held_out))
        backend = lowering.choose_backend("auto", chains)
        found, tables = _calibrated(model, chains, batch, others, problem, backend)
        if held_out.any():
            for row, powers in zip(scores, (found.powers, ones), strict=True):
                row.append(jax.tree.map(np.asarray, score_labels(chains, tables, powers, own, backend)))
    length = problem.mask.shape[1]
    calibrated, plain = (_merge(row, problem.held_out) for row in scores)
    frames = problem.known_frames()
    total = max(frames.sum(), 1)
    agreements = []
    for x in (plain, calibrated):
        phases = None if x.phases is None else x.phases[:, :length].argmax(-1)
        tools = None if x.tools is None else x.tools[:, :length]
        agreements.append(agreement(problem.labels, Observations(phases, tools), problem.mask))
    return Rank(
        name,
        float(calibrated.conditional.sum() / total),
        float(plain.conditional.sum() / total),
        math.nan if name == "scaled" else float(plain.log_likelihood.sum() / max(problem.mask.sum(), 1)),
        {} if found is None else {source.track: np.asarray(p).tolist() for source, p in found.powers.items()},
        *agreements,
        videos=tuple(zip(calibrated.conditional.tolist(), frames.tolist(), strict=True)),
    )


def _calibrated(
    model: Params, chains: Params, batch: Batch, others: Batch, problem: _Problem, backend: str
) -> tuple[Powers, SourceTables]:
    """Learn emissions and powers from the videos of `others`; return the powers, and the tables of all videos."""
    require_known(others, "compare")
    priors, videos = problem.priors, np.logical_or.reduce(others.observed, axis=1)
    families = {
        source: learn_family(family, source, model, batch, priors, videos)
        for source, family in observed_families(model, batch).items()
    }
    tables = {source: table_of(family, source, model, batch) for source, family in families.items()}
    parts = split_folds(others, None)
    scored = held_out_tables(families, model, others, parts, priors) if parts else tables
    found = find_powers(
        chains,
        scored,
        unit_powers(model, batch),
        others,
        l2=1.0,
        max_iterations=problem.max_iterations,
        backend=backend,
    )
    return found, tables


def _only(batch: Batch, videos: np.ndarray) -> Batch:
    """Return the batch with all videos but some empty."""
    return dataclasses.replace(batch, observed=np.asarray(batch.observed) & videos[:, None])


def _merge(scores: Sequence[Scores], held_out: np.ndarray) -> Scores:
    """Return the scores of all videos, each from the part in which it was held out."""
    part_of = held_out[:-1].argmax(0)

    def pick(*parts: np.ndarray) -> np.ndarray:
        values = np.stack([parts[part][video] for video, part in enumerate(part_of)])
        return values.astype(np.float64) if values.ndim == 1 else values

    return jax.tree.map(pick, *scores)


def _with_default(chains: Params, obs: Observations, name: str) -> Params:
    """Return a model with the default emissions of a family on the observed tracks."""
    default = init_params(chains.num_phases, chains.num_tools, emissions=name)
    out = {}
    for track in ("phases", "tools"):
        chain, own = getattr(chains, track), getattr(default, track)
        emission = None if chain is None or getattr(obs, track) is None else own.emission
        out[track] = None if chain is None else dataclasses.replace(chain, emission=emission)
    return Params(**out)

"""Can a fit be trusted? Restarts, the price of parameters, held-out likelihood, states that changed places."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax import learning
from hmmjax._core.batch import collect, count_videos, dtype_of, pad_lists
from hmmjax._core.constraints import apply_update, fields
from hmmjax._core.label_switching import find_label_switching
from hmmjax.inference import log_likelihood
from hmmjax.priors import frozen_blocks
from hmmjax.types import FitResult, Labels, Observations, Params

__all__ = ["bic", "find_label_switching", "fit_best", "held_out", "num_parameters"]


def fit_best(
    params: Params,
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    restarts: int = 5,
    spread: float = 0.5,
    seed: int = 0,
    **options: Any,
) -> tuple[FitResult, np.ndarray]:
    """EM from several starts, and the best of them: EM finds the top of the hill that it starts on.

    Args:
        params: the first start; the others are this one with every parameter moved at random (probabilities and
            positive parameters in logarithms), zeros kept.
        obs: (B, T, ...) observations, as in `fit`.
        mask: (B, T) bool, True where observed.
        labels: known states; -1 is unknown.
        restarts: number of starts, the first included.
        spread: standard deviation of the moves.
        seed: of the moves.
        **options: of `fit`; what it freezes is not moved either.

    Returns:
        The `FitResult` with the highest objective, and the objectives (restarts,) that all starts reached. Where they
        differ by more than rounding the likelihood has several tops; where only one start reached the best, there may
        be a better one still.

    Raises:
        TypeError, ValueError: as `fit`; restarts below one.
    """
    if restarts < 1:
        raise ValueError(f"restarts={restarts} must be at least 1.")
    frozen = frozen_blocks(options.get("freeze", ()))
    # What EM does not learn stays: powers, whose objectives cannot be compared, and emissions of which nothing is seen.
    silent = {f"{track}.emission" for track in ("phases", "tools") if getattr(obs, track) is None}
    frozen = frozen | silent
    free = np.concatenate([np.full(np.size(v), space != "power") for v, space in fields(params, frozen)] or [[]])
    generator = np.random.default_rng(seed)
    best, objectives = None, []
    for start in range(restarts):
        step = generator.normal(0, spread, free.size) * free
        first = apply_update(params, jnp.asarray(step, dtype_of(params)), frozen) if start else params
        found = learning.fit(first, obs, mask, labels, **options)
        objectives.append(float(found.history[-1]))
        if best is None or objectives[-1] > max(objectives[:-1]):
            best = found
    assert best is not None
    return best, np.array(objectives)


def num_parameters(params: Params) -> int:
    """Free parameters: a row of n probabilities has n - 1, those that are exactly zero cost nothing.

    Args:
        params: the model, with values (no tracers).

    Returns:
        Their number, powers included. Fields of families without `spaces` (see `hmmjax.emissions.base`) are not
        counted.
    """
    total = 0
    for value, space in fields(params):
        table = np.asarray(value)
        if space == "simplex":
            total += int(np.maximum((table > 0).sum(-1) - 1, 0).sum())
        else:
            total += int(((table > 0) & (table < 1)).sum()) if space == "unit_interval" else table.size
    return total


def bic(params: Params, obs: Observations, mask: Any = None, labels: Labels | None = None, **options: Any) -> float:
    """Bayesian information criterion: parameters times log(observed frames) minus twice the log-likelihood.

    Lower is better, among models of the same observations. Frames of a video are not independent, so that it asks too
    much of each parameter rather than too little; `held_out` asks for no such assumption.

    Args:
        params: fitted model.
        obs: (B, T, ...) observations, as in `log_likelihood`.
        mask: (B, T) bool, True where observed.
        labels: known states; -1 is unknown.
        **options: of `log_likelihood`.

    Returns:
        The criterion; inf where a video is impossible.

    Raises:
        TypeError, ValueError: as `log_likelihood`.

    Source: Schwarz (1978), Estimating the dimension of a model.
    """
    value = float(np.sum(np.asarray(log_likelihood(params, obs, mask, labels, **options), np.float64)))
    return num_parameters(params) * float(np.log(max(_frames(obs, mask, labels), 1))) - 2 * value


def _frames(obs: Observations, mask: Any, labels: Labels | None) -> int:
    return int(np.asarray(collect(obs, mask, labels).observed).sum())


def held_out(
    learn: Callable[[Observations, Any, Labels | None], Params],
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    folds: int = 5,
    **options: Any,
) -> float:
    """Log-likelihood per observed frame of videos that a model has not seen.

    Args:
        learn: ``learn(obs, mask, labels)`` gives a model of some of the videos:
            ``lambda o, m, l: hmmjax.fit(start, o, m, l).params``.
        obs: (B, T, ...) observations of at least as many videos as folds.
        mask: (B, T) bool, True where observed.
        labels: known states, given to `learn` only; the held-out videos are judged by their observations.
        folds: parts of the videos; every folds-th video is one. At most the number of videos.
        **options: of `log_likelihood`.

    Returns:
        Nats per frame; -inf where a held-out video is impossible.

    Raises:
        ValueError: fewer than two videos or folds; whatever `learn` raises.
    """
    obs, mask, labels, _ = pad_lists(obs, mask, labels)
    videos = count_videos(obs, mask, labels)
    folds = min(folds, videos)
    if folds < 2:
        raise ValueError(f"{videos} videos in {folds} folds: at least two are needed to hold one out.")

    def part(tree: Any, chosen: np.ndarray) -> Any:
        return jax.tree.map(lambda x: np.asarray(x)[chosen], tree)

    total, frames = 0.0, 0
    for fold in range(folds):
        out = np.arange(videos) % folds == fold
        model = learn(part(obs, ~out), part(mask, ~out), part(labels, ~out))
        said, seen = part(obs, out), part(mask, out)
        total += float(np.sum(np.asarray(log_likelihood(model, said, seen, **options), np.float64)))
        frames += _frames(said, seen, None)
    return total / max(frames, 1)

"""Checks of a fitted model: restarts, information criterion, held-out likelihood, label switching."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax import learning, native
from hmmjax._core.batch import collect, count_videos, dtype_of, pad_lists
from hmmjax._core.constraints import apply_update, fields
from hmmjax._core.deprecation import renamed
from hmmjax.agreement import find_drift
from hmmjax.anchoring import anchor_options
from hmmjax.emissions.base import Emission
from hmmjax.inference import log_likelihood
from hmmjax.priors import frozen_blocks
from hmmjax.types import FitResult, Labels, Observations, Params

__all__ = ["backend", "bic", "find_drift", "find_label_switching", "fit_best", "held_out", "num_parameters"]


def backend() -> str:
    """Return one line that says which backend "auto" takes here for most models, and why.

    Returns:
        For example, "native: compiled recursions (avx512)" or "gpu: Pallas kernels on NVIDIA H200".
    """
    if jax.default_backend() == "gpu":
        return f"gpu: Pallas kernels on {jax.devices()[0].device_kind}"
    if jax.default_backend() != "cpu":
        return f"scan: XLA loops on {jax.devices()[0].device_kind}"
    return native.describe()


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
    """Run EM from several starting points and keep the best; each run finds only a local optimum.

    Args:
        params: the first starting point. The others are this one with every parameter moved at random (probabilities
            and positive parameters in logarithms); zeros stay zero.
        obs: (B, T, ...) observations.
        mask: (B, T) bool, True where observed.
        labels: known states; -1 is unknown.
        restarts: number of starting points, the first included.
        spread: standard deviation of the moves.
        seed: seed of the moves.
        **options: options of `fit`; blocks that it freezes are not moved.

    Returns:
        The `FitResult` with the highest objective, and the objectives (restarts,) of all runs. If they differ by more
        than rounding, the likelihood has several local optima; if only one run reached the best, there may be a better
        one still.

    Raises:
        TypeError, ValueError: bad input, or fewer than one restart.
    """
    if restarts < 1:
        raise ValueError(f"restarts={restarts} must be at least 1.")
    params, options = anchor_options(params, obs, mask, labels, options)
    frozen = frozen_blocks(options.get("freeze", ()))
    # EM does not learn powers, whose objectives cannot be compared, nor emissions of tracks without observations.
    unobserved = {f"{track}.emission" for track in ("phases", "tools") if getattr(obs, track) is None}
    frozen = frozen | unobserved
    movable = [np.full(np.size(value), constraint != "power") for value, constraint in fields(params, frozen)]
    movable = np.concatenate(movable or [[]])
    generator = np.random.default_rng(seed)
    best, objectives = None, []
    for start in range(restarts):
        step = generator.normal(0, spread, movable.size) * movable
        first = apply_update(params, jnp.asarray(step, dtype_of(params)), frozen) if start else params
        found = learning.fit(first, obs, mask, labels, **options)
        objectives.append(float(found.history[-1]))
        if best is None or objectives[-1] > max(objectives[:-1]):
            best = found
    assert best is not None
    return best, np.array(objectives)


def num_parameters(params: Params) -> int:
    """Return the number of free parameters: n - 1 for a row of n probabilities; exact zeros do not count.

    Args:
        params: the model, with concrete values (no tracers).

    Returns:
        Their number, powers included. Fields without a constraint (see `hmmjax.emissions.Emission`) are not counted.
    """
    total = 0
    for value, constraint in fields(params):
        table = np.asarray(value)
        if constraint == "simplex":
            total += int(np.maximum((table > 0).sum(-1) - 1, 0).sum())
        elif constraint == "unit_interval":
            total += int(((table > 0) & (table < 1)).sum())
        elif constraint == "positive_definite":
            n = table.shape[-1]
            total += table.size // n**2 * n * (n + 1) // 2
        else:
            total += table.size
    return total


def bic(params: Params, obs: Observations, mask: Any = None, labels: Labels | None = None, **options: Any) -> float:
    """Return the Bayesian information criterion: parameters times log(observed frames) minus twice the log-likelihood.

    Lower is better, among models of the same observations. The criterion assumes independent frames; those of a video
    are not, so it penalizes parameters too much rather than too little. `held_out` does not need that assumption.

    Args:
        params: fitted model.
        obs: (B, T, ...) observations.
        mask: (B, T) bool, True where observed.
        labels: known states; -1 is unknown.
        **options: options of `log_likelihood`.

    Returns:
        The criterion; inf if a video is impossible.

    Raises:
        TypeError, ValueError: bad input.

    Source: Schwarz (1978), Estimating the dimension of a model.
    """
    value = float(np.sum(np.asarray(log_likelihood(params, obs, mask, labels, **options), np.float64)))
    return num_parameters(params) * float(np.log(max(_count_frames(params, obs, mask, labels), 1))) - 2 * value


def _count_frames(params: Params, obs: Observations, mask: Any, labels: Labels | None) -> int:
    return int(np.asarray(collect(obs, mask, labels, params).observed).sum())


def held_out(
    learn: Callable[[Observations, Any, Labels | None], Params],
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    folds: int = 5,
    **options: Any,
) -> float:
    """Return the log-likelihood per observed frame of held-out videos.

    Args:
        learn: ``learn(obs, mask, labels)`` returns a model learned from some of the videos, for example
            ``lambda o, m, l: hmmjax.fit(start, o, m, l).params``.
        obs: (B, T, ...) observations of at least two videos.
        mask: (B, T) bool, True where observed.
        labels: known states, passed to `learn` only; held-out videos are scored by their observations.
        folds: number of parts, each of every folds-th video; at most the number of videos.
        **options: options of `log_likelihood`.

    Returns:
        Nats per frame; -inf if a held-out video is impossible.

    Raises:
        ValueError: fewer than two videos or folds, and all that `learn` raises.
    """
    obs, mask, labels, _ = pad_lists(obs, mask, labels)
    videos = count_videos(obs, mask, labels)
    folds = min(folds, videos)
    if folds < 2:
        raise ValueError(f"{videos} videos in {folds} folds: at least two of each are needed to hold one out.")

    def part(tree: Any, chosen: np.ndarray) -> Any:
        return jax.tree.map(lambda x: np.asarray(x)[chosen], tree)

    total, frames = 0.0, 0
    for fold in range(folds):
        out = np.arange(videos) % folds == fold
        model = learn(part(obs, ~out), part(mask, ~out), part(labels, ~out))
        own_obs, own_mask = part(obs, out), part(mask, out)
        total += float(np.sum(np.asarray(log_likelihood(model, own_obs, own_mask, **options), np.float64)))
        frames += _count_frames(model, own_obs, own_mask, None)
    return total / max(frames, 1)


def find_label_switching(params: Params) -> list[str]:
    """Describe the hidden states that seem to be permuted (label switching).

    Without labels EM may find the right states in the wrong order: marginals are then right up to a permutation. The
    check compares emission log-likelihoods: phases are suspect if another assignment of phases to the recognizer's
    classes explains confident outputs better, and a tool is suspect if its absence explains a confident positive output
    better than its presence does.

    Args:
        params: the model, with concrete values (no tracers). Families that are joint, observe real features or have
            other classes than the states are not checked.

    Returns:
        One sentence per suspect state; an empty list if there are none.

    Source: Redner and Walker (1984) on the symmetry of mixtures; Kuhn (1955) for the assignment.
    """
    out = []
    for track in ("phases", "tools"):
        chain = getattr(params, track)
        for family in () if chain is None or chain.emission is None else chain.emission.sources:
            classes = family.size if track == "phases" else 2
            if family.is_joint or family.observes == "reals":
                continue
            if family.observes == "probabilities" or family.num_symbols == classes:
                out += _switched_phases(family) if track == "phases" else _switched_tools(family)
    return list(dict.fromkeys(out))


__getattr__ = renamed(__name__, {"switched": "find_label_switching"})


CONFIDENT = 0.9
"""Probability of the confident outputs under which the states are compared."""


def _switched_phases(family: Emission) -> list[str]:
    n = family.size
    if n < 2:
        return []
    outputs = np.full((n, n), (1 - CONFIDENT) / (n - 1), np.float32)
    np.fill_diagonal(outputs, CONFIDENT)
    outputs = np.arange(n) if family.observes == "labels" else outputs
    scores = np.asarray(family.log_prob(jnp.asarray(outputs)), np.float64)
    scores = np.maximum(scores, -1e3).T  # rows are hidden phases, columns the recognizer's classes
    # Relative to the other phases: a class that is often predicted is no better a name for any of them.
    scores = scores - np.logaddexp.reduce(scores, axis=0, keepdims=True)
    best = _assign(-scores)
    gain = scores[np.arange(n), best].sum() - np.trace(scores)
    if gain <= 1e-3:
        return []
    return [f"phase {p} behaves as the recognizer's phase {q}" for p, q in enumerate(best) if p != q]


def _switched_tools(family: Emission) -> list[str]:
    k = family.size
    if family.observes == "labels":
        yes, no = np.ones(k, np.int32), np.zeros(k, np.int32)
    else:
        yes, no = np.full(k, CONFIDENT, np.float32), np.full(k, 1 - CONFIDENT, np.float32)
    # An output that is impossible in both states tells nothing about either.
    tables = [np.maximum(np.asarray(family.log_prob(jnp.asarray(x)), np.float64), -1e3) for x in (yes, no)]
    odds = [table[:, 1] - table[:, 0] for table in tables]
    return [
        f"tool {i} is called present when it is absent" for i in range(k) if odds[0][i] < 0 and odds[0][i] < odds[1][i]
    ]


def _assign(cost: np.ndarray) -> np.ndarray:
    """Return for each row of a square matrix its column in the assignment of least total cost, in O(n^3)."""
    n = len(cost)
    row_price, column_price = np.zeros(n + 1), np.zeros(n + 1)
    row_of = np.full(n + 1, -1)  # the row assigned to each column; column n holds the row being inserted
    for row in range(n):
        row_of[n], column = row, n
        slack, before = np.full(n, np.inf), np.full(n, n)
        visited = np.zeros(n + 1, bool)
        while row_of[column] >= 0:
            visited[column] = True
            reduced = cost[row_of[column]] - row_price[row_of[column]] - column_price[:n]
            better = ~visited[:n] & (reduced < slack)
            slack[better], before[better] = reduced[better], column
            following = int(np.argmin(np.where(visited[:n], np.inf, slack)))
            delta = slack[following]
            row_price[row_of[visited]] += delta
            column_price[visited] -= delta
            slack[~visited[:n]] -= delta
            column = following
        while column != n:
            row_of[column], column = row_of[before[column]], before[column]
    found = np.empty(n, int)
    found[row_of[:n]] = np.arange(n)
    return found

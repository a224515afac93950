"""Choose the penalty and the length of discriminative training on inner folds of the labeled videos."""

import dataclasses
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from hmmjax._core import lowering
from hmmjax._core.batch import Batch, canonical, count_videos, pad_lists, prepare
from hmmjax._core.minimize import check_options
from hmmjax._core.objectives import Objective
from hmmjax._core.tables import tabulate
from hmmjax._core.typing import Array
from hmmjax.refinement import Refinement, refine_lengths
from hmmjax.types import Labels, Observations, Params

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Values of `l2` that are tried by default."""

LENGTHS = (0, 3, 10, 30)
"""Numbers of iterations that are tried by default; 0 is the starting model, so that training has to be of use."""


class Trial(NamedTuple):
    """A penalty and a length, and how well models trained with them predict the labels of held-out videos.

    Attributes:
        l2: the penalty of `hmmjax.refine`.
        max_iterations: its number of iterations.
        loss: minus the log-probability of a label given the observations, in nats, mean over the labels of a video and
            then over videos; summed over the phases and the tools. Lower is better.
        error: standard error over videos of the difference from the best trial; 0 for the best itself.
    """

    l2: float
    max_iterations: int
    loss: float
    error: float


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The result of `tune_refinement`. Printing it shows the trials.

    Attributes:
        trials: best first. A length of 0 has one trial, since the penalty plays no part.
        refinement: the model trained on all labeled videos, with the penalty and length of the best trial.
    """

    trials: tuple[Trial, ...]
    refinement: Refinement

    @property
    def best(self) -> Trial:
        """The best trial."""
        return self.trials[0]

    def __str__(self) -> str:
        """Return the trials as text."""
        rows = [["l2", "iterations", "loss", "behind", "±"]]
        for x in self.trials:
            numbers = (x.loss, x.loss - self.best.loss, x.error)
            rows.append([f"{x.l2:g}", f"{x.max_iterations}", *(f"{number:.4f}" for number in numbers)])
        lines = ["".join(cell.rjust(12) for cell in row) for row in rows]
        lines += [
            "loss: minus the log-probability of a label of a held-out video, in nats; lower is better",
            "±: standard error of behind, over videos",
        ]
        if ends := self._ends():
            lines.append(f"The best value of {' and of '.join(ends)} is the last one tried: try further ones.")
        return "\n".join(lines)

    def _ends(self) -> list[str]:
        """Return which of the best values is the smallest or largest that was tried, where further ones make sense."""
        trained = [x for x in self.trials if x.max_iterations]
        if self.best.max_iterations == 0:
            return []
        penalties, lengths = {x.l2 for x in trained}, {x.max_iterations for x in self.trials}
        is_end = len(penalties) > 1 and self.best.l2 in (min(penalties), max(penalties))
        found = ["l2"] if is_end else []
        return [*found, "lengths"] if len(lengths) > 1 and self.best.max_iterations == max(lengths) else found


def tune_refinement(
    learn: Callable[[Labels, Observations, Any], Params],
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    l2: Sequence[float] = PENALTIES,
    lengths: Sequence[int] = LENGTHS,
    folds: int = 5,
    seed: int = 0,
    objective: str = "path",
    balanced: bool = False,
    video_weight: float = 30.0,
    freeze: Sequence[str] = (),
    backend: str = "auto",
) -> Tuning:
    """Choose `l2` and `max_iterations` of `refine` on inner folds of the labeled videos, and train with them.

    Each fold of the labeled videos is held out once. From the others a starting model is learned and refined with each
    penalty, and after each number of iterations the labels of the held-out videos are predicted: by `filter` for the
    objective "filter", otherwise by `posterior`. Pass only videos on which the result will not be evaluated.

    Args:
        learn: called with labels, obs and mask, returns the starting point of `refine`. Videos that are held out have
            no observed frames and no labels there. `hmmjax.estimate` does it, with priors and the number of phases. The
            models must have the same families and shapes, and no video may be impossible under them.
        obs: (B, T, ...) observations, or lists of videos.
        mask: (B, T) bool, True where observed.
        labels: known states, of at least two videos; -1 is unknown.
        l2: penalties to try.
        lengths: numbers of iterations to try; 0 is the starting model itself.
        folds: number of folds; at most the number of labeled videos.
        seed: seed of the random order in which videos are split into folds.
        objective: "path", "smoother" or "filter", as in `refine`.
        balanced: as in `refine`; held-out labels all weigh the same.
        video_weight: as in `refine`.
        freeze: as in `refine`.
        backend: as in `refine`.

    Returns:
        `Tuning`: the trials, best first, and the model trained on all labeled videos.

    Raises:
        TypeError, ValueError: bad input, nothing to try, fewer than two labeled videos or folds, or videos that are
            impossible under a starting model.
    """
    obs, mask, labels, _ = pad_lists(obs, mask, labels)
    if labels is None or (labels.phases is None and labels.tools is None):
        raise ValueError("tune_refinement needs labels: pass hmmjax.Labels(phases=..., tools=...) as `labels`.")
    l2, lengths = list(l2), list(lengths)
    if not l2 or not lengths:
        raise ValueError("l2 and lengths must each hold at least one value to try.")
    for penalty, length in itertools.product(l2, lengths):
        check_options(penalty, length)
    if folds < 2:
        raise ValueError(f"folds={folds}: at least two folds are needed to hold one out.")
    goal = Objective(objective, balanced, video_weight)
    goal.check()
    parts = _split(obs, mask, labels, folds, seed)
    train = partial(refine_lengths, goal=goal, freeze=freeze, backend=backend)

    def try_all(part: np.ndarray) -> np.ndarray:
        """Return losses (l2, lengths, videos of the part)."""
        rest = _without(obs, mask, labels, part)
        own = _without(obs, mask, labels, np.setdiff1d(np.arange(count_videos(obs, mask, labels)), part))
        start = learn(rest[2], obs, rest[1])
        losses = []
        for penalty in l2:
            found = train(start, *rest, lengths=lengths, l2=penalty)
            losses.append([_losses(x.params, own, objective, backend)[part] for x in found])
        return np.array(losses)

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the first part compiles the programs that all share
        losses = np.concatenate([try_all(parts[0]), *pool.map(try_all, parts[1:])], -1)
    trials = _rank(l2, lengths, losses)
    start = learn(labels, obs, mask)
    (final,) = train(start, obs, mask, labels, lengths=(trials[0].max_iterations,), l2=trials[0].l2)
    return Tuning(trials, final)


def _split(obs: Observations, mask: Any, labels: Labels, folds: int, seed: int) -> list[np.ndarray]:
    """Return the positions of the labeled videos of each fold."""
    known = np.zeros(count_videos(obs, mask, labels), bool)
    for x in (labels.phases, labels.tools):
        if x is not None:
            some = np.asarray(x) >= 0
            if mask is not None:
                some &= np.asarray(mask).reshape(*np.shape(mask), *[1] * (some.ndim - 2))
            known |= some.reshape(len(known), -1).any(-1)
    videos = np.flatnonzero(known)
    if len(videos) < 2:
        raise ValueError(
            f"tune_refinement holds out labeled videos, so it needs at least two, on a leading axis; {len(videos)} "
            "given. Use refine."
        )
    order = np.random.default_rng(seed).permutation(videos)
    return [np.sort(part) for part in np.array_split(order, min(folds, len(videos)))]


def _without(obs: Observations, mask: Any, labels: Labels, videos: np.ndarray) -> tuple[Observations, Any, Labels]:
    """Return observations, mask and labels in which some videos have no observed frame and no label.

    Shapes stay the same, so that the programs compiled for one fold serve every other; empty videos cost little.
    """
    keep = np.ones(count_videos(obs, mask, labels), bool)
    keep[videos] = False

    def unknown(x: Any) -> Any:
        return None if x is None else np.where(keep.reshape(-1, *[1] * (np.ndim(x) - 1)), np.asarray(x), -1)

    known = next(x for x in (labels.phases, labels.tools) if x is not None)
    mask = np.ones(np.shape(known)[:2], bool) if mask is None else np.asarray(mask)
    return obs, mask & keep[:, None], Labels(unknown(labels.phases), unknown(labels.tools))


def _losses(params: Params, own: tuple[Observations, Any, Labels], objective: str, backend: str) -> np.ndarray:
    """Return the loss (B,) of each video: minus the mean log-probability of its labels, summed over tracks."""
    batch = prepare(params, *own)
    goal = Objective("filter" if objective == "filter" else "smoother", False, 1.0)
    params = canonical(params)
    found = _score(params, batch, goal, lowering.choose_backend(backend, params))
    return -np.asarray(batch.restore(found, None)[0], np.float64)


@partial(jax.jit, static_argnames="backend")
def _score(params: Params, batch: Batch, goal: Objective, backend: str) -> Array:
    return goal.value(params, tabulate(params, batch.without_labels()), batch, backend)


def _rank(l2: Sequence[float], lengths: Sequence[int], losses: np.ndarray) -> tuple[Trial, ...]:
    """Return trials, best first; of equal ones the one with the largest penalty and the fewest iterations.

    Args:
        l2: penalties.
        lengths: numbers of iterations.
        losses: (l2, lengths, videos).
    """
    pairs = itertools.product(enumerate(l2), enumerate(lengths))
    rows = [(float(a), b, losses[i, j]) for (i, a), (j, b) in pairs if b or a == max(l2)]
    rows.sort(key=lambda row: (row[2].mean(), -row[0], row[1]))
    best = rows[0][2]
    scale = 1 / np.sqrt(len(best))
    return tuple(Trial(a, b, float(x.mean()), float((x - best).std(ddof=1) * scale)) for a, b, x in rows)

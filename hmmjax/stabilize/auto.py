"""``emissions="auto"``: train several models, average them, and keep the recognizer where that is no better.

Every choice is made on inner folds. A model for held-out part i is chosen by what models that were learned without the
parts i and j predict of part j; models without i and j serve both i and j.
"""

import dataclasses
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from hmmjax import selection
from hmmjax.ensembles import Ensemble, recognizer
from hmmjax.selection import Choice
from hmmjax.stabilize.candidates import MODES, Candidate, learn_candidates, observed_by
from hmmjax.stabilize.examples import TRACKS, Examples, label_coverage
from hmmjax.stabilize.posteriors import numpy_posterior
from hmmjax.stabilize.strengths import Strength
from hmmjax.types import Labels, Observations, Params

ENOUGH_TO_CHOOSE = 3
"""Fewest labeled videos to learn from with which a choice is made; with fewer, `BEST_ON_OTHERS` is taken."""

BEST_ON_OTHERS = {
    "scores": "tools are smoothed by a model that takes the recognizer's scores as they are, without a threshold",
    "shrunk": "phases are smoothed by a model that takes the recognizer to be right in 90% of the frames unless the "
    "annotated ones say otherwise",
    "counted": "predictions are smoothed by a model of the recognizer's errors as counted in the annotated frames",
    "recognizer": "the recognizer's predictions are left unchanged",
}
"""What is taken with too few videos to choose, first to last, in words: it did best with other recognizers."""

ONLY_WITHOUT_CHOICE = ("online", "shrunk")
"""Mode and name of a model that is for too few videos to choose. With more, the one that is counted in them did better
on seed 0 of the simulated grid."""

INNER_PARTS = 5
"""Largest number of inner parts."""


@dataclasses.dataclass(frozen=True, eq=False)
class Chosen:
    """What was chosen for one part.

    Attributes:
        offline: the model for whole videos, `Params` or `Ensemble`.
        online: the model for the filter.
        choices: by "phases" or "tools" and "offline" or "online".
        videos: number of annotated videos that were not held out, by "phases" or "tools".
    """

    offline: Any
    online: Any
    choices: dict[tuple[str, str], Choice]
    videos: dict[str, int]


@dataclasses.dataclass(frozen=True, eq=False)
class Search:
    """Videos, and how to learn from some of them.

    Attributes:
        examples: all videos, with labels as observations.
        scores: the recognizer's outputs as read.
        num_phases: L, 0 without phases.
        learn: return the model learned from the videos at some positions, with others held out, and the labels and mask
            of the videos in which transitions were counted.
        parts: positions of the videos of each held-out part.
        trained: whether there are enough videos to train phases for single labels.
        strength: of models that are held to a recognizer that is mostly right.
        metric: one of `hmmjax.selection.METRICS`.
        threshold: probability from which on a tool counts as present.
        holds_out: whether to learn without each part too, and not only from all videos.
    """

    examples: Examples
    scores: Observations
    num_phases: int
    learn: Callable[[np.ndarray, np.ndarray], tuple[Params, tuple[Labels, np.ndarray]]]
    parts: Sequence[np.ndarray]
    trained: bool
    strength: Strength
    metric: str
    threshold: float
    holds_out: bool = True

    def run(self, tell: Callable[[int, int], None]) -> tuple[list[Chosen], Chosen]:
        """Return the choice for each part, from all other videos, and that from all videos.

        Args:
            tell: called with the number of models done and of all models.
        """
        known = np.concatenate(self.parts) if len(self.parts) else np.zeros(0, int)
        outer = [tuple(part.tolist()) for part in self.parts] if self.holds_out else []
        chooses = len(known) - max(map(len, outer), default=0) >= ENOUGH_TO_CHOOSE
        inner = self._inner_parts(known) if chooses else []
        wanted = {tuple(sorted(part)): () for part in [(), *outer]}
        for part, own in itertools.product([(), *outer], inner):
            held_out = tuple(sorted({*part, *own}))
            wanted.setdefault(held_out, ())
            wanted[held_out] = tuple(sorted({*wanted[held_out], *(set(own) - set(part))}))
        done = itertools.count(1)

        def learn(item: tuple[tuple[int, ...], tuple[int, ...]]) -> Any:
            models = self._learn(*item, chooses)
            tell(next(done), len(wanted))
            return models

        first, *rest = wanted.items()
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # the first compiles the programs that all share
            found = dict(zip(wanted, itertools.chain([learn(first)], pool.map(learn, rest)), strict=True))
        chosen = [self._choose(tuple(sorted(part)), inner, found) for part in [*outer, ()]]
        return chosen[:-1], chosen[-1]

    def _inner_parts(self, known: np.ndarray) -> list[tuple[int, ...]]:
        """Return the held-out parts if they are few, otherwise parts of consecutive videos."""
        groups = (
            self.parts if 3 <= len(self.parts) <= INNER_PARTS else np.array_split(known, min(INNER_PARTS, len(known)))
        )
        return [tuple(group.tolist()) for group in groups]

    def _learn(
        self, held_out: tuple[int, ...], inferred: tuple[int, ...], chooses: bool
    ) -> tuple[dict[str, Candidate], dict]:
        """Return models learned without some videos, and what they predict of others: by name, mode and video."""
        positions = np.setdiff1d(np.arange(len(self.examples.mask)), held_out)
        base, counts = self.learn(positions, np.asarray(held_out, int))
        labeled = self.examples.only(positions)
        models = learn_candidates(base, labeled, self.scores, counts, self.trained, self.strength, chooses)
        posteriors: dict[tuple[str, str, int], Any] = {}
        if inferred:
            part = self.examples.only(list(inferred))
            for (name, candidate), mode in itertools.product(models.items(), MODES):
                if not candidate.tracks[mode]:
                    continue
                params = getattr(candidate, mode)
                own = observed_by(params, part.obs, self.scores)
                found, _ = numpy_posterior(params, own, part.mask, online=mode == "online")
                for v in inferred:
                    keep = part.mask[v]
                    posteriors[name, mode, v] = {
                        t: getattr(found, t)[v][keep].astype(np.float64) for t in candidate.tracks[mode]
                    }
        return models, posteriors

    def _choose(self, held_out: tuple[int, ...], inner: Sequence[tuple[int, ...]], found: dict) -> Chosen:
        """Return the choice for a held-out part."""
        models = found[held_out][0]
        predicted = {}
        for own in inner:
            posteriors = found[tuple(sorted({*held_out, *own}))][1]
            predicted |= {key: x for key, x in posteriors.items() if key[2] in own and key[2] not in held_out}
        choices, videos = {}, {}
        for track, mode in itertools.product(TRACKS, MODES):
            names = [name for name, candidate in models.items() if track in candidate.tracks[mode]]
            labels = getattr(self.examples.labels, track)
            if names and labels is not None:
                choices[track, mode] = self._choose_track(track, mode, names, labels, predicted)
                known = label_coverage(self.examples, track)[0]
                videos[track] = int(np.delete(known, list(held_out)).sum())
        offline, online = (self._assemble(models, choices, mode) for mode in MODES)
        return Chosen(offline, online, choices, videos)

    def _choose_track(self, track: str, mode: str, names: list[str], labels: np.ndarray, predicted: dict) -> Choice:
        videos = [v for v in sorted({key[2] for key in predicted}) if (labels[v][self.examples.mask[v]] >= 0).any()]
        if len(videos) < ENOUGH_TO_CHOOSE:
            allowed = {*names, "recognizer"} - ({"counted"} if track == "phases" else set())
            best = next(name for name in BEST_ON_OTHERS if name in allowed)
            weights = np.array([float(name == best) for name in names])
            shape = (len(names),) if track == "phases" else (len(names), labels.shape[-1])
            weights = np.broadcast_to(weights.reshape(-1, *[1] * (len(shape) - 1)), shape)
            return Choice(best, weights, np.asarray(1 - weights.sum(0)), {}, 0.0, float("nan"))
        outputs, given = zip(*(self._own(track, v) for v in videos), strict=True)
        truth = [np.where(g, labels[v][self.examples.mask[v]], -1) for v, g in zip(videos, given, strict=True)]
        used = [n for n in names if (mode, n) != ONLY_WITHOUT_CHOICE or "counted" not in names]
        candidates = {n: [predicted[n, mode, v][track] for v in videos] for n in used}
        choose = selection.choose_phases if track == "phases" else selection.choose_tools
        choice = choose(candidates, outputs, truth, metric=self.metric)
        unused = np.zeros_like(choice.share)
        rows = dict(zip(used, choice.weights, strict=True))
        return dataclasses.replace(choice, weights=np.stack([rows.get(n, unused) for n in names]))

    def _own(self, track: str, video: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the recognizer's output of a video as probabilities, and where there is one."""
        values = np.asarray(getattr(self.scores, track)[video][self.examples.mask[video]])
        present: np.ndarray = np.isfinite(values) & (values >= 0)
        values = np.where(present, values, 0)
        if track == "phases" and values.ndim == 1:
            return np.eye(self.num_phases)[values], present
        return values.astype(np.float64), np.asarray(present.all(-1)) if track == "phases" else present

    def _assemble(self, models: dict[str, Candidate], choices: dict, mode: str) -> Any:
        """Return the mixture that was chosen for each track; the counted model itself if it was chosen for all."""
        members = [getattr(candidate, mode) for candidate in models.values()]
        weights: dict[str, Any] = {"phases": None, "tools": None}
        own = []
        for track in TRACKS:
            names = [name for name, candidate in models.items() if track in candidate.tracks[mode]]
            if (choice := choices.get((track, mode))) is None:
                if getattr(members[0], track) is not None:
                    size = () if track == "phases" else (members[0].num_tools,)
                    weights[track] = np.zeros((len(members), *size))
                    weights[track][0] = 1.0
                own.append(None)
                continue
            weights[track] = np.zeros((len(members), *choice.weights.shape[1:]))
            for name, row in zip(names, choice.weights, strict=True):
                weights[track][list(models).index(name)] = row
            own.append(choice.share)
        for track, share in zip(TRACKS, own, strict=True):
            if share is None or not np.any(share > 0):
                continue
            count = {"num_phases" if track == "phases" else "num_tools": getattr(members[0], f"num_{track}")}
            kind = "labels" if np.asarray(getattr(self.scores, track)).dtype.kind != "f" else "probabilities"
            members.append(recognizer(**count, observes=kind))
            for other, rows in weights.items():
                if rows is not None:
                    row = share if other == track else np.zeros(rows.shape[1:])
                    weights[other] = np.concatenate([rows, np.asarray(row)[None]])
        keep = [i for i in range(len(members)) if any(w is not None and np.any(w[i] > 0) for w in weights.values())]
        floats = any(x is not None and np.asarray(x).dtype.kind == "f" for x in (self.scores.phases, self.scores.tools))
        if len(keep) == 1 and not floats:
            return members[keep[0]]
        phases, tools = (None if w is None else w[keep].astype(np.float32) for w in weights.values())
        return Ensemble(tuple(members[i] for i in keep), phases, tools, self.threshold)

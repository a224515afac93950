"""Measure families and rules for the automatic choice: ``python benchmarks/families.py --experiment RUNS``.

On the kept predictions of the simulated grid's networks (``RUNS/simsurg`` and ``RUNS/simsurg_markov``, see
``benchmarks/grid.py``) and on MS-TCN's softmax of videos 71-75: families of probabilities are added one by one to the
models that the choice has today (all seen through `hmmjax.selection` on inner folds of the labeled videos), and the
rules of `hmmjax.selection` are changed one by one. Results are changes of test metrics against today's choice. A family
is taken in if its mean gains on seed 0 are positive and seeds 1 and 2 are not below today's by more than one standard
error. Writes ``benchmarks/results/families.json``; ``--seeds``, ``--systems``, ``--only`` and ``--tracks`` measure a
part and keep the rest of it.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import auto
import numpy as np
import real

from hmmjax import Labels, Observations, Params, estimate, refine, selection
from hmmjax._core.left_out import Gain, gain_of, phase_gains, phase_scores, tool_scores
from hmmjax.emissions import Tempered, ToolMonotone
from hmmjax.stabilize import Settings
from hmmjax.stabilize.auto import MODES, ONLY_WITHOUT_CHOICE, Search
from hmmjax.stabilize.candidates import POWER, Candidate, learn_candidates, observed_by
from hmmjax.stabilize.folds import plan_folds
from hmmjax.stabilize.posteriors import numpy_posterior
from hmmjax.stabilize.settings import PRIORS

RESULTS = Path(__file__).parent / "results" / "families.json"
TRACKS = ("phases", "tools")
FAMILIES = {
    "phases": ("scaled", "inflated", "logit-normal", "autoregressive"),
    "tools": ("scaled", "inflated", "logit-normal", "autoregressive", "Platt"),
}
"""Families that are added, by track. "Platt" is an affine map of log-odds, divided by prior odds."""
POWERS = {"counted": 1.0, "power .3": 0.3, "refined": POWER}
"""Ways of learning, and the power that the emission has (before training, if it is refined)."""
TAKEN_IN = "trained, scores"
"""Name of the model that the choice has because of this measurement: "logit-normal, refined", online. The changes that
are measured are against the choice without it."""
RULES: dict[str, dict[str, Any]] = {
    "phases keep none of the recognizer": {"SHARES": (0.0, 1.0)},
    "phases keep half of the recognizer": {"SHARES": (0.5,)},
    "a single model replaces the mixture when it is better at all": {"CLEARLY": 0.0},
    "never a single model": {"CLEARLY": np.inf},
    "weights of the mixture as they are learned": {"EQUAL_VIDEOS": 1e-6},
    "tools keep none of the recognizer": {"TOOL_SHARES": {"probabilities": (0.0,), "labels": (0.0,)}},
    "tools keep a quarter of the recognizer": {"TOOL_SHARES": {"probabilities": (0.25, 0.5, 0.75), "labels": ()}},
}
"""Changes of constants in `hmmjax.selection`."""


class Case(NamedTuple):
    """Labeled videos to choose from, and test videos with their labels by track."""

    search: Search
    known: list[int]
    test: list[int]
    truth: dict[str, list[np.ndarray]]


class Captured(Exception):
    """Ends `plan_folds` with the search that it prepared."""


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--experiment", type=Path, help="folder with the experiments simsurg and simsurg_markov")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--systems", nargs="+", help="measure only these, such as EndoNet")
    parser.add_argument("--only", nargs="+", help="add these families only, such as 'scaled, power .3'; no rules")
    parser.add_argument("--tracks", nargs="+", choices=TRACKS, default=TRACKS, help="measure only phases or only tools")
    parser.add_argument("--many", action="store_true", help="label half of the test videos too, and test on the others")
    options = parser.parse_args()
    written = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    written["device"] = f"CPU, {os.cpu_count()} cores ({platform.machine()})"
    written["versions"] = {"python": platform.python_version(), **{p: version(p) for p in ("jax", "numpy")}}
    results = written.setdefault("nine labeled videos", {}) if options.many else written
    words = shlex.join(["python", "benchmarks/families.py", *sys.argv[1:]])
    results["command"] = words.replace(str(options.experiment), "runs")
    results |= {key: results.get(key, {}) for key in ("changes", "cells")}
    begin = time.monotonic()
    for group, name, cases in all_cases(options):
        cells = results["cells"].setdefault(group, {})
        merge(cells.setdefault(name, {}), measure(cases, options.only))
        print(f"{time.monotonic() - begin:5.0f} s  {group}  {name}", flush=True)
        results["changes"][group] = summarize(cells.values())
        others = [*results["cells"].get("seed 1", {}).values(), *results["cells"].get("seed 2", {}).values()]
        results["changes"]["seeds 1 and 2"] = summarize(others)
        RESULTS.write_text(json.dumps(written, separators=(",", ":")) + "\n")


def all_cases(options: argparse.Namespace) -> Iterator[tuple[str, str, list[Case]]]:
    """Yield group, name and cases of what is measured."""
    for seed in options.seeds:
        for name, cases in grid_cases(options.experiment, seed, options.systems, options.tracks, options.many):
            yield f"seed {seed}", name, cases
    if options.systems is None and "phases" in options.tracks and not options.many:
        yield "MS-TCN", "softmax", mstcn_cases()


def merge(into: dict[str, dict], changes: dict[str, dict]) -> None:
    """Put changes by metric into those that were measured before."""
    for name, by_metric in changes.items():
        into.setdefault(name, {}).update(by_metric)


def captured(function: Any, *args: Any) -> Search:
    """Return the search that a function runs."""

    def stop(search: Search, _: Any) -> None:
        raise Captured(search)

    with mock.patch.object(Search, "run", stop):
        try:
            function(*args)
        except Captured as found:
            return found.args[0]
    raise ValueError("nothing was searched")


def grid_cases(folder: Path, seed: int, systems: list[str] | None, wanted_tracks: Sequence[str], many: bool) -> Any:
    """Yield the names and cases of the grid's cells (S_C), whose validation videos are labeled throughout.

    With `many`, a cell has two cases: the test videos of either half are labeled too, and those of the other tested.
    """
    from models.experiment.cell import _load
    from models.experiment.choice import choose
    from models.experiment.plan import read_plan
    from models.stabilize import FrameTable, rows_of, videos_of

    for plan_name, file in (("simsurg", "grid"), ("simsurg_markov", "grid_markov")):
        plan = read_plan(f"models/experiment/plans/{plan_name}.yaml")
        plan = dataclasses.replace(plan, out=folder / plan_name)
        measured = json.loads((RESULTS.parent / f"{file}.json").read_text())["cells"]
        wanted = {(c["seed"], c["scenario"], c["system"]) for c in measured}
        for cell in plan.cells():
            if (cell.seed, cell.scenario, cell.name) not in wanted or cell.seed != seed:
                continue
            if cell.scenario != "S_C" or (systems is not None and cell.name not in systems):
                continue
            tracks = json.loads((cell.folder / "predicted.json").read_text())["tracks"]
            if not set(tracks) & set(wanted_tracks):
                continue
            with np.load(cell.folder.parent / "view" / "table.npz", allow_pickle=False) as arrays:
                table = FrameTable.from_arrays(dict(arrays))
            test = videos_of(table, "test")
            predicted = _load(cell.folder / "predictions.npz", table, tracks)
            cases = []
            for part in np.array_split(test, 2) if many else [test]:
                labeled = [v for v in test if v not in part]
                parts = np.where(np.isin(table.videos, labeled), "val", table.parts)
                search = captured(
                    choose, dataclasses.replace(table, parts=parts), predicted, tracks, list(part), plan.dynamics
                )
                known = np.concatenate(search.parts).tolist()
                rest = [v for v in range(len(search.examples.mask)) if v not in known]
                truth = {t: [getattr(table, t)[rows_of(table, v)] for v in part] for t in tracks if t in wanted_tracks}
                cases.append(Case(search, known, rest, truth))
            yield f"{plan_name}, {cell.scenario}, {cell.name}", cases


def mstcn_cases() -> list[Case]:
    """Return a case per video of MS-TCN, with the other four labeled."""
    truth, softmax = real.mstcn_videos()
    prepared = auto.prepare(Observations(softmax), Labels(truth), 7, 0)
    search = captured(plan_folds, prepared, Settings(folds=None), lambda *_: None)
    everything = list(range(len(truth)))
    return [Case(search, [w for w in everything if w != v], [v], {"phases": [truth[v]]}) for v in everything]


def further(
    track: str, base: Params, labeled: Any, scores: Observations, counts: Any, only: list[str] | None
) -> dict[str, Params]:
    """Return models of one track with the families that are added, learned from the labeled videos."""
    outputs, labels = getattr(scores, track), getattr(labeled.labels, track)
    known, found = Labels(**{track: labels}), {}
    if track == "phases":
        chain: Any = base.phases
    else:
        chain = estimate(Labels(tools=counts[0].tools), None, counts[1], priors=PRIORS).tools
    count = dict(num_phases=base.num_phases) if track == "phases" else {}
    for family, (how, power) in itertools.product(FAMILIES[track], POWERS.items()):
        if only is not None and f"{family}, {how}" not in only:
            continue
        given = getattr(labeled.obs, track) if family == "autoregressive" else outputs
        obs = Observations(**{track: given})
        if family == "Platt":
            emission: Any = platt(outputs, labels, labeled.mask)
        else:
            model = estimate(known, obs, labeled.mask, emissions=family, priors=PRIORS, **count)
            emission = getattr(model, track).emission
        shape = () if track == "phases" else (chain.num_tools,)
        emission = Tempered(emission, np.full(shape, power, np.float32))
        params = Params(**{"phases": None, "tools": None, track: dataclasses.replace(chain, emission=emission)})
        if how == "refined":
            if family == "Platt":
                continue  # 200 knots, of which few frames say anything
            params = refine(params, obs, labeled.mask, known, objective="filter", max_iterations=10).params
        found[f"{family}, {how}"] = params
    return found


def platt(scores: np.ndarray, labels: np.ndarray, mask: np.ndarray) -> ToolMonotone:
    """Return an affine map of each tool's log-odds, fitted by logistic regression, divided by the prior odds."""
    from sklearn.linear_model import LogisticRegression

    def logit(x: np.ndarray) -> np.ndarray:
        x = np.clip(x, 1e-3, 1 - 1e-3)
        return np.log(x) - np.log1p(-x)

    default = ToolMonotone.default(labels.shape[-1])
    rows = np.array(default.log_ratios)
    knots = logit(np.linspace(0, 1, rows.shape[1]))
    for k in range(len(rows)):
        keep = mask & (labels[..., k] >= 0)
        y = labels[..., k][keep]
        if 0 < y.sum() < len(y):
            fitted = LogisticRegression(C=1.0).fit(logit(scores[..., k][keep])[:, None], y)
            odds = np.log(y.mean()) - np.log1p(-y.mean())
            rows[k] = max(fitted.coef_[0, 0], 0) * knots + fitted.intercept_[0] - odds
    return dataclasses.replace(default, log_ratios=rows.astype(np.float32))


def predict(case: Case, only: list[str] | None) -> dict[str, dict]:
    """Return inner predictions of labeled videos and predictions of test videos, by track, model and mode."""
    search, tracks = case.search, list(case.truth)
    found: dict[str, dict] = {"inner": {}, "test": {}, "odds": {}}
    for own in [(), *[(v,) for v in case.known]]:
        positions = [v for v in case.known if v not in own]
        labeled = search.examples.only(positions)
        base, counts = search.learn(np.asarray(positions), np.asarray(own or case.test))
        models = learn_candidates(base, labeled, search.scores, counts, search.trained, search.strength)
        models.pop(TAKEN_IN, None)
        for track in tracks:
            added = further(track, base, labeled, search.scores, counts, only)
            models |= {f"{track}: {n}": Candidate(p, p, dict.fromkeys(MODES, (track,))) for n, p in added.items()}
        videos = list(own) or case.test
        part = search.examples.only(videos)
        for (name, candidate), mode in itertools.product(models.items(), MODES):
            seen = [t for t in candidate.tracks[mode] if t in tracks]
            if not seen:
                continue
            params = getattr(candidate, mode)
            obs = observed_by(params, part.obs, search.scores)
            posterior, _ = numpy_posterior(params, obs, part.mask, online=mode == "online")
            for track, v in itertools.product(seen, videos):
                keep, where = part.mask[v], "inner" if own else "test"
                found[where][track, name, mode, v] = getattr(posterior, track)[v][keep].astype(float)
                if track == "tools" and not own:
                    found["odds"][name, mode, v] = posterior.tool_log_odds[v][keep].astype(float)
    return found


def measure(cases: list[Case], only: list[str] | None) -> dict[str, dict[str, list[float]]]:
    """Return changes [value, standard error] by metric against today's choice, by mode and what is changed."""
    predictions = [predict(case, only) for case in cases]
    result: dict[str, dict[str, list[float]]] = {}
    for track, mode in itertools.product(cases[0].truth, MODES):
        names = list(dict.fromkeys(k[1] for k in predictions[0]["inner"] if k[0] == track and k[2] == mode))
        today = [n for n in names if ": " not in n]
        today = [n for n in today if (mode, n) != ONLY_WITHOUT_CHOICE or "counted" not in today]
        changed: dict[str, tuple[list[str], dict]] = {n.split(": ")[1]: ([*today, n], {}) for n in names if ": " in n}
        if only is not None and len(changed) > 1:
            changed[" and ".join(changed)] = (list(dict.fromkeys(n for ns, _ in changed.values() for n in ns)), {})
        if only is None:
            changed |= {
                f"rule: {rule}": (today, constants)
                for rule, constants in RULES.items()
                if track in rule or (track == "phases" and "tools" not in rule)
            }
        truth = [y for case in cases for y in case.truth[track]]
        before = [x for case, p in zip(cases, predictions, strict=True) for x in chosen(case, p, track, mode, today)]
        raw = [own(case, track, v) for case in cases for v in case.test]
        result.setdefault(f"{mode}: today, above the recognizer", {}).update(gains(track, raw, before, truth))
        for name, (used, constants) in changed.items():
            with contextlib.ExitStack() as stack:
                for constant, value in constants.items():
                    stack.enter_context(mock.patch.object(selection, constant, value))
                after = [x for c, p in zip(cases, predictions, strict=True) for x in chosen(c, p, track, mode, used)]
            result.setdefault(f"{mode}: {name}", {}).update(gains(track, before, after, truth))
    return result


def own(case: Case, track: str, video: int) -> np.ndarray:
    """Return the recognizer's probabilities of a video."""
    values = getattr(case.search.scores, track)[video][case.search.examples.mask[video]]
    return np.asarray(values, float)


def chosen(case: Case, predicted: dict[str, dict], track: str, mode: str, names: list[str]) -> list[np.ndarray]:
    """Return predictions of the test videos by the mixture that is chosen on inner folds; log-odds for tools."""
    mask = case.search.examples.mask
    labels = [getattr(case.search.examples.labels, track)[v][mask[v]] for v in case.known]
    inner = {n: [predicted["inner"][track, n, mode, v] for v in case.known] for n in names}
    choose = selection.choose_phases if track == "phases" else selection.choose_tools
    choice = choose(inner, [own(case, track, v) for v in case.known], labels, metric=case.search.metric)
    found = []
    for v in case.test:
        raw = own(case, track, v)
        if track == "phases":
            models = (predicted["test"][track, n, mode, v] for n in names)
            found.append(sum((w * p for w, p in zip(choice.weights, models, strict=True)), choice.share * raw))
            continue
        both = choice.share[:, None] * np.stack([1 - raw, raw], -1)
        for n, w in zip(names, choice.weights, strict=True):
            odds = predicted["odds"][n, mode, v]
            both = both + w[:, None] * np.stack([1 / (1 + np.exp(odds)), 1 / (1 + np.exp(-odds))], -1)
        with np.errstate(divide="ignore"):
            found.append(np.where(choice.share == 1, raw, 1 / (1 + both[..., 0] / both[..., 1])))
    return found


def gains(track: str, before: list[np.ndarray], after: list[np.ndarray], truth: list[np.ndarray]) -> dict[str, Any]:
    """Return changes of accuracy and Jaccard index, or of mAP and F1, with jackknife errors over (groups of) videos."""
    if track == "phases":
        scores = [phase_scores([x.argmax(-1) for x in p], truth, p[0].shape[-1]) for p in (before, after)]
        found: tuple[Gain, ...] = phase_gains(*scores)
    else:
        old, new = (tool_scores(p, truth) for p in (before, after))
        found = tuple(gain_of(np.nanmean(b, -1) - np.nanmean(a, -1)) for a, b in zip(old, new, strict=True))
    names = ("accuracy", "Jaccard") if track == "phases" else ("mAP", "tool F1")
    return {n: [round(g.value, 5), round(g.error, 5)] for n, g in zip(names, found, strict=True)}


def summarize(cells: Any) -> dict[str, Any]:
    """Return mean changes over cells, and in how many they are above and below zero by more than one standard error."""
    rows: dict[str, dict[str, list]] = {}
    for name, metrics in (item for cell in cells for item in cell.items()):
        for metric, pair in metrics.items():
            rows.setdefault(name, {}).setdefault(metric, []).append(pair)
    return {
        name: {
            metric: {
                "mean": round(float(np.mean([g for g, _ in pairs])), 5),
                "above": sum(g > (e if e == e else 0) for g, e in pairs),
                "below": sum(g < -(e if e == e else 0) for g, e in pairs),
                "cells": len(pairs),
            }
            for metric, pairs in metrics.items()
        }
        for name, metrics in rows.items()
    }


if __name__ == "__main__":
    main()

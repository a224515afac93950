"""Self-training: stabilized predictions of unlabeled videos become labels, and the network is trained on.

    python -m models.selftrain RUN CACHE --out FOLDER --rounds 2 epochs=5

The paper's third extension. A round predicts the validation videos and those without any label, learns a hidden Markov
model from what is labeled (`models.experiment.stabilize`), takes its most probable phases and tools of the unlabeled
videos as labels, each with the weight that its calibrated posterior gives it, and trains the network on from its best
parameters. The best round by validation is kept; the first that is no better ends it.

With ``--control`` the network is also trained on without the new labels, for as many updates, so that what the labels
are worth can be told from what training longer is worth.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax import metrics
from hmmjax.types import Observations
from models.commands import count, reported
from models.data.cache import read_cache
from models.data.frames import FrameTable, take
from models.experiment.cell import lessons, predict
from models.experiment.figures import measure
from models.experiment.stabilize import Predictions, apply_model, learn_model, pad, rows_of, seconds
from models.experiment.videos import write_view
from models.runs import read_run
from models.settings import read_config
from models.systems import SYSTEMS
from models.training.feeds import video_rows
from models.training.loop import fit
from models.training.scores import score


def confidence(posterior: Observations) -> Observations:
    """How much better than chance the most probable state is, from 0 to 1: phases (B, T), tools (B, T, K)."""
    phases, tools = posterior.phases, posterior.tools
    if phases is not None:
        count = phases.shape[-1]
        phases = np.clip((phases.max(-1) * count - 1) / max(count - 1, 1), 0, 1)
    return Observations(phases, None if tools is None else np.abs(2 * tools - 1))


def pseudo_label(table: FrameTable, videos: Sequence[str], posterior: Observations) -> FrameTable:
    """The table with the most probable states of some videos as labels, their confidence as weights, to train on.

    Args:
        table: of all frames; labels that it has keep a weight of 1.
        videos: without labels, in the posterior's order.
        posterior: (B, T, ...) on the axis of seconds.
    """
    trust = confidence(posterior)
    phases, tools, parts = (
        table.phases.copy(),
        table.tools.copy(),
        table.parts.astype(np.promote_types(table.parts.dtype, "<U5")),
    )
    weights = {"phase_weights": np.ones(phases.shape, np.float32), "tool_weights": np.ones(tools.shape, np.float32)}
    for number, video in enumerate(videos):
        rows = rows_of(table, video)
        at = seconds(table, rows)
        if posterior.phases is not None:
            phases[rows] = posterior.phases[number, at].argmax(-1)
            weights["phase_weights"][rows] = trust.phases[number, at]
        if posterior.tools is not None:
            tools[rows] = posterior.tools[number, at] >= 0.5
            weights["tool_weights"][rows] = trust.tools[number, at]
        parts[rows] = "train"
    return dataclasses.replace(table, phases=phases, tools=tools, parts=parts, **weights)


@dataclasses.dataclass(frozen=True, eq=False)
class Judged:
    """A run's predictions, stabilized.

    Attributes:
        val_score: of M on the validation frames, see `models.training.scores`.
        calibration: expected calibration error of M_H's posteriors on the validation videos, by track.
        test: figures of M and M_H on the part test, where there is one.
        posterior: of the unlabeled videos.
    """

    val_score: float
    calibration: dict[str, float]
    test: dict[str, dict[str, float]]
    posterior: Observations


def judge(run: Path, cache: Path, unlabeled: list[str], emissions: str) -> Judged:
    """Predict, stabilize and measure with what a run has learned so far."""
    table = read_cache(cache).table
    tracks = [t for t in ("phases", "tools") if t in SYSTEMS[read_run(run).system].heads]
    test = "test" in table.parts
    predicted = predict(run, cache, ["val", "unlabeled", *(["test"] if test else [])], tracks)
    own = {part: [str(table.videos[rows[0]]) for rows in video_rows(table, part)] for part in set(table.parts)}
    val, dynamics, sizes = lessons(table, predicted, tracks)
    kept = [track for track, size in sizes.items() if size]
    model, _ = learn_model(val, dynamics, sizes, emissions)

    def stabilized(videos: list[str]) -> Observations:
        found = apply_model(model, pad(table, videos, predicted, kept), emissions)["M_H"]
        return Observations(**{t: getattr(found, t) for t in tracks})

    answer = stabilized(own["val"])
    calibration: dict[str, float] = {}
    if answer.phases is not None:
        found = metrics.phase_calibration(*_at(val.labels.phases, answer.phases, val.mask))
        calibration["phases"] = round(float(found.value), 4)
    if answer.tools is not None:
        found = metrics.tool_calibration(*_at(val.labels.tools, answer.tools, val.mask))
        calibration["tools"] = round(float(found.value), 4)
    rows = table.rows("val")
    said = {t: _rows(predicted, table, rows, t) for t in tracks}
    figures: dict[str, dict[str, float]] = {}
    if test:
        smooth = stabilized(own["test"])
        answers = {
            video: {t: getattr(smooth, t)[n, seconds(table, rows_of(table, video))] for t in tracks}
            for n, video in enumerate(own["test"])
        }
        figures = {
            "M": measure({video: predicted[video] for video in own["test"]}, table, tracks),
            "M_H": measure(answers, table, tracks),
        }
    return Judged(score(said, take(table, rows))["score"], calibration, figures, stabilized(unlabeled))


def _at(labels: np.ndarray, values: np.ndarray, mask: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    return [x[m] for x, m in zip(labels, mask, strict=True)], [x[m] for x, m in zip(values, mask, strict=True)]


def _rows(predicted: Predictions, table: FrameTable, rows: np.ndarray, track: str) -> np.ndarray:
    found = np.empty((len(rows), next(iter(predicted.values()))[track].shape[1]), np.float32)
    for video in np.unique(table.videos[rows]):
        mine = table.videos[rows] == video
        answer = predicted[str(video)]
        found[mine] = answer[track][np.searchsorted(answer["frames"], table.frames[rows[mine]])]
    return found


def selftrain(
    run: Path,
    cache: Path,
    out: Path,
    *,
    rounds: int = 2,
    emissions: str = "confusion",
    control: bool = False,
    settings: Sequence[str] = (),
    tell: Callable[[str], None] = lambda words: None,
) -> list[dict[str, Any]]:
    """Alternate pseudo-labels and training; what each round did is in ``rounds.json``, the best run's path in ``best``.

    Args:
        run: a trained run, frame-wise or on a frozen backbone.
        cache: its frames; videos all of whose frames are in the part "unlabeled" are learned from.
        out: folder for the rounds.
        rounds: at most.
        emissions: family of the hidden Markov model.
        control: train another run on in each round, without pseudo-labels and for as many updates in whole passes; its
            rows are "control" and decide nothing.
        settings: ``key=value`` words of the rounds' training.
        tell: told what is being done, and what came of it.

    Returns:
        What is in ``rounds.json``, the first of it about `run` itself.

    Raises:
        FileExistsError: when `out` holds rounds already.
        ValueError: when no video is without labels, for settings that there are not, and for a system that learns from
            boxes.
    """
    config = read_run(run)
    read_config(run / "config.yaml", settings)
    if out.is_file() or (out / "rounds.json").exists() or any(out.glob("round*")):
        raise FileExistsError(f"{out} exists already. Fix: give another --out")
    if SYSTEMS[config.system].boxes:
        raise ValueError(
            f"{config.system} learns from boxes, which pseudo-labels do not have. Fix: give a run of {config.system}_l"
        )
    table = read_cache(cache).table
    unlabeled = [v for v in np.unique(table.videos).tolist() if (table.parts[table.videos == v] == "unlabeled").all()]
    if not unlabeled:
        raise ValueError(
            f"{cache} has no video whose frames are all in the part 'unlabeled'. Fix: list videos in its "
            "manifest with part: unlabeled"
        )
    out.mkdir(parents=True, exist_ok=True)
    tell(f"predicting and stabilizing with {run}, {len(unlabeled)} video(s) without labels")
    best, said, other = run, judge(run, cache, unlabeled, emissions), run
    history = [_row(0, said, 0.0, None, "kept")]
    tell(_words(history[-1]))
    for number in range(1, rounds + 1):
        view, now = out / f"view{number}", out / f"round{number}"
        labeled = pseudo_label(table, unlabeled, said.posterior)
        write_view(cache.resolve() / "images.npy", labeled, view)
        words = [f"data.val={cache}", "tensorboard=false", f"seed={config.seed + number}", *settings]
        tell(f"training round {number}")
        took = _train_on(best, now, [*words, f"data.train={view}"])
        again = judge(now, cache, unlabeled, emissions)
        better = again.val_score > said.val_score
        weights = np.concatenate(
            [
                getattr(labeled, f"{t}_weights")[np.isin(labeled.videos, unlabeled)].reshape(-1)
                for t in ("phase", "tool")
            ]
        )
        history.append(_row(number, again, took, float(weights.mean()), "kept" if better else "no better, ended"))
        tell(_words(history[-1]))
        if control:
            # As many updates on fewer frames, to the nearest whole pass.
            more = len(labeled.rows("train")) / len(table.rows("train"))
            epochs = max(1, round(read_config(now / "config.yaml").epochs * more))
            before, other = other, out / f"control{number}"
            tell(f"training round {number} without the new labels")
            took = _train_on(before, other, [*words, f"data.train={cache}", f"epochs={epochs}"])
            history.append(_row(number, judge(other, cache, unlabeled, emissions), took, None, "control"))
            tell(_words(history[-1]))
        (out / "rounds.json").write_text(json.dumps(history, indent=1) + "\n", encoding="utf-8")
        if not better:
            break
        best, said = now, again
    (out / "best").write_text(f"{best}\n", encoding="utf-8")
    return history


def _train_on(start: Path, run: Path, words: Sequence[str]) -> float:
    """Train a new run from another's best parameters; seconds."""
    begin = time.perf_counter()
    fit(read_config(start / "config.yaml", [*words, f"run={run}", f"start={start}"]), quiet=True)
    return time.perf_counter() - begin


def _row(number: int, said: Judged, took: float, weight: float | None, verdict: str) -> dict[str, Any]:
    return {
        "round": number,
        "verdict": verdict,
        "validation score of M": said.val_score,
        "calibration error of M_H": said.calibration,
        "mean weight of pseudo-labels": weight,
        "train_seconds": round(took, 1),
        "test": said.test,
    }


def _words(row: dict[str, Any]) -> str:
    parts = [f"round {row['round']}: {row['verdict']}, validation {row['validation score of M']:.4f}"]
    for version, figures in row["test"].items():
        parts += [f"{version} {key} {figures[key]:.4f}" for key in ("mAP", "accuracy") if key in figures]
    return ", ".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m models.selftrain", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("run", type=Path, help="folder of a training run")
    parser.add_argument("cache", type=Path, help="its frames, with videos in the part 'unlabeled'")
    parser.add_argument("--out", type=Path, required=True, help="folder for the rounds")
    parser.add_argument("--rounds", type=count, default=2, help="at most (2)")
    parser.add_argument(
        "--emissions",
        choices=("confusion", "probability"),
        default="confusion",
        help="of the hidden Markov model: the network's labels (the default), or its probabilities",
    )
    parser.add_argument(
        "--control", action="store_true", help="train another run on without the new labels, to compare with"
    )
    parser.add_argument("settings", nargs="*", metavar="key=value", help="of the rounds' training, such as epochs=5")
    options = parser.parse_intermixed_args(arguments)
    with reported():
        selftrain(
            options.run,
            options.cache,
            options.out,
            rounds=options.rounds,
            emissions=options.emissions,
            control=options.control,
            settings=options.settings,
            tell=lambda words: print(words, flush=True),
        )
        print(f"the best run is {(options.out / 'best').read_text(encoding='utf-8').strip()}")


if __name__ == "__main__":
    main()

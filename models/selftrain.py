"""Self-training: stabilized predictions of unlabeled videos become labels, on which the network is trained further.

    python -m models.selftrain RUN CACHE --out FOLDER --rounds 2 epochs=5

This is the paper's third extension. Each round predicts the validation videos and the unlabeled videos, learns a hidden
Markov model from the labels (`models.stabilize`), labels the unlabeled videos with its most probable phases and tools,
weighted by its calibrated posterior, and continues training from the best parameters so far. The best round by
validation is kept; the first round without improvement is the last.

With ``--control``, the network is also trained further without the new labels, for the same number of updates, to tell
the effect of the labels from that of longer training.
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
from hmmjax.types import Observations, Posterior
from models.commands import count, reported
from models.data.cache import read_cache
from models.data.frames import FrameTable, Source, take
from models.experiment.measure import measure
from models.experiment.videos import write_view
from models.pseudo_labels import pseudo_label
from models.settings import Config, read_config
from models.stabilize import Predictions, apply_hmm, gather_lessons, learn_hmm, pad, unpad, videos_of
from models.systems import SYSTEMS
from models.training.feeds import score
from models.training.loop import fit
from models.training.recognizer import predict_cached
from models.training.run import read_run

#: The verdict on a round without improvement, in ``rounds.json``.
_ENDED = "no better, ended"


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """A run's predictions, stabilized and measured.

    Attributes:
        val_score: of M on the validation frames, see `models.training.feeds.score`.
        calibration: by track, expected calibration error of M_H's posteriors on the validation videos.
        test: metrics of M and M_H on the part test; empty without it.
        posterior: of the unlabeled videos.
    """

    val_score: float
    calibration: dict[str, float]
    test: dict[str, dict[str, float]]
    posterior: Observations


def evaluate(run: Path, source: Source, unlabeled: list[str], emissions: str) -> Evaluation:
    """Predict, stabilize and measure with the best parameters of a run.

    Args:
        run: folder of the run.
        source: the frames, with the parts "val", "unlabeled" and optionally "test".
        unlabeled: names of the unlabeled videos.
        emissions: family of the hidden Markov model.
    """
    table = source.table
    tracks = [t for t in ("phases", "tools") if t in SYSTEMS[read_run(run).system].heads]
    has_test = "test" in table.parts
    predicted = predict_cached(run, source, ["val", "unlabeled", *(["test"] if has_test else [])], tracks)
    lessons = gather_lessons(table, predicted, tracks)
    model, _ = learn_hmm(lessons, emissions)

    def infer(videos: list[str]) -> Posterior:
        return apply_hmm(model, pad(table, videos, predicted, lessons.tracks), emissions)["M_H"]

    def stabilized(videos: list[str]) -> Observations:
        posterior = infer(videos)
        return Observations(**{t: getattr(posterior, t) for t in tracks})

    test: dict[str, dict[str, float]] = {}
    if has_test:
        videos = videos_of(table, "test")
        smoothed = unpad(table, videos, infer(videos), tracks)
        test = {
            "M": measure({video: predicted[video] for video in videos}, table, tracks),
            "M_H": measure(smoothed, table, tracks),
        }
    rows = table.rows("val")
    raw = {t: _rows(predicted, table, rows, t) for t in tracks}
    calibration = _calibration(lessons.val, stabilized(videos_of(table, "val")))
    return Evaluation(score(raw, take(table, rows))["score"], calibration, test, stabilized(unlabeled))


def _calibration(val: Any, posterior: Observations) -> dict[str, float]:
    """Return the expected calibration error by track."""
    errors: dict[str, float] = {}
    for track, measure_error in (("phases", metrics.phase_calibration), ("tools", metrics.tool_calibration)):
        labels, values = getattr(val.labels, track), getattr(posterior, track)
        if values is not None:
            valid = [[x[m] for x, m in zip(arrays, val.mask, strict=True)] for arrays in (labels, values)]
            errors[track] = round(float(measure_error(*valid).value), 4)
    return errors


def _rows(predicted: Predictions, table: FrameTable, rows: np.ndarray, track: str) -> np.ndarray:
    """Return the predictions of one track at some rows of the table."""
    found = np.empty((len(rows), next(iter(predicted.values()))[track].shape[1]), np.float32)
    for video in np.unique(table.videos[rows]):
        mine = table.videos[rows] == video
        arrays = predicted[str(video)]
        found[mine] = arrays[track][np.searchsorted(arrays["frames"], table.frames[rows[mine]])]
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
    tell: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Alternate pseudo-labeling and training; write ``rounds.json``, and the path of the best run to ``best``.

    Args:
        run: a trained run, frame-wise or on a frozen backbone.
        cache: its frames. Videos with all frames in the part "unlabeled" are pseudo-labeled.
        out: output folder of the rounds.
        rounds: maximum number of rounds.
        emissions: family of the hidden Markov model.
        control: in each round, also train a run without pseudo-labels for the same number of updates, rounded to whole
            epochs. Its rows in ``rounds.json`` have the verdict "control" and do not affect the choice of the best run.
        settings: ``key=value`` words for the training of each round.
        tell: called with a line of text on the progress.

    Returns:
        The rows of ``rounds.json``; the first is about `run` itself.

    Raises:
        FileExistsError: if `out` already holds rounds.
        ValueError: without any unlabeled video, for unknown settings, and for a system that learns from boxes.
    """
    config, source, unlabeled = _open(run, cache, out, settings)
    table = source.table
    out.mkdir(parents=True, exist_ok=True)
    tell(f"predicting and stabilizing with {run}, {len(unlabeled)} unlabeled video(s)")
    best, current, other = run, evaluate(run, source, unlabeled, emissions), run
    history = [_row(0, current, 0.0, None, "kept")]
    tell(_summary(history[-1]))
    for number in range(1, rounds + 1):
        now = out / f"round{number}"
        words = [f"data.val={cache}", "tensorboard=false", f"seed={config.seed + number}", *settings]
        labeled = pseudo_label(table, unlabeled, current.posterior)
        write_view(cache.resolve() / "images.npy", labeled, out / f"view{number}")
        tell(f"training round {number}")
        took = _continue_training(best, now, [*words, f"data.train={out / f'view{number}'}"])
        new = evaluate(now, source, unlabeled, emissions)
        better = new.val_score > current.val_score
        history.append(_row(number, new, took, _mean_weight(labeled, unlabeled), "kept" if better else _ENDED))
        tell(_summary(history[-1]))
        if control:
            # The same number of updates on fewer frames, to the nearest whole epoch.
            ratio = len(labeled.rows("train")) / len(table.rows("train"))
            epochs = max(1, round(read_config(now / "config.yaml").epochs * ratio))
            before, other = other, out / f"control{number}"
            tell(f"training round {number} without the new labels")
            took = _continue_training(before, other, [*words, f"data.train={cache}", f"epochs={epochs}"])
            history.append(_row(number, evaluate(other, source, unlabeled, emissions), took, None, "control"))
            tell(_summary(history[-1]))
        (out / "rounds.json").write_text(json.dumps(history, indent=1) + "\n", encoding="utf-8")
        if not better:
            break
        best, current = now, new
    (out / "best").write_text(f"{best}\n", encoding="utf-8")
    return history


def _open(run: Path, cache: Path, out: Path, settings: Sequence[str]) -> tuple[Config, Source, list[str]]:
    """Check the arguments of `selftrain`; return the run's configuration, the frames, and the unlabeled videos."""
    config = read_run(run)
    read_config(run / "config.yaml", settings)
    if out.is_file() or (out / "rounds.json").exists() or any(out.glob("round*")):
        raise FileExistsError(f"{out} exists already. Fix: choose another --out")
    if SYSTEMS[config.system].boxes:
        raise ValueError(
            f"{config.system} learns from boxes, which pseudo-labels do not have. Fix: give a run of {config.system}_l"
        )
    source = read_cache(cache)
    table = source.table
    unlabeled = [v for v in np.unique(table.videos).tolist() if (table.parts[table.videos == v] == "unlabeled").all()]
    if not unlabeled:
        raise ValueError(
            f"{cache} has no video with all frames in the part 'unlabeled'. Fix: list videos in its manifest with "
            "part: unlabeled"
        )
    return config, source, unlabeled


def _mean_weight(labeled: FrameTable, unlabeled: list[str]) -> float:
    rows = np.isin(labeled.videos, unlabeled)
    weights = [getattr(labeled, f"{track}_weights")[rows].reshape(-1) for track in ("phase", "tool")]
    return float(np.concatenate(weights).mean())


def _continue_training(start: Path, run: Path, words: Sequence[str]) -> float:
    """Train a new run from another's best parameters and return the seconds it took."""
    begin = time.perf_counter()
    fit(read_config(start / "config.yaml", [*words, f"run={run}", f"start={start}"]), quiet=True)
    return time.perf_counter() - begin


def _row(number: int, found: Evaluation, took: float, weight: float | None, verdict: str) -> dict[str, Any]:
    return {
        "round": number,
        "verdict": verdict,
        "validation score of M": found.val_score,
        "calibration error of M_H": found.calibration,
        "mean weight of pseudo-labels": weight,
        "train_seconds": round(took, 1),
        "test": found.test,
    }


def _summary(row: dict[str, Any]) -> str:
    parts = [f"round {row['round']}: {row['verdict']}, validation {row['validation score of M']:.4f}"]
    for version, found in row["test"].items():
        parts += [f"{version} {key} {found[key]:.4f}" for key in ("mAP", "accuracy") if key in found]
    return ", ".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m models.selftrain", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("run", type=Path, help="folder of a training run")
    parser.add_argument("cache", type=Path, help="its frames, with videos in the part 'unlabeled'")
    parser.add_argument("--out", type=Path, required=True, help="output folder of the rounds")
    parser.add_argument("--rounds", type=count, default=2, help="maximum number of rounds (2)")
    parser.add_argument(
        "--emissions",
        choices=("confusion", "probability"),
        default="confusion",
        help="what the hidden Markov model observes: the network's labels (the default), or its probabilities",
    )
    parser.add_argument("--control", action="store_true", help="also train without the new labels, for comparison")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="training settings, such as epochs=5")
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
            tell=lambda text: print(text, flush=True),
        )
        print(f"the best run is {(options.out / 'best').read_text(encoding='utf-8').strip()}")


if __name__ == "__main__":
    main()

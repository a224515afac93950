"""M_H of the grid as ``hmmjax stabilize --emissions auto`` chooses it, and its gains over M with standard errors."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hmmjax.ensembles import Ensemble, recognizer
from hmmjax.io import Layout, Track, read_annotations, video_id
from hmmjax.selection import choose_tools
from hmmjax.stabilize import learn_from_single_frames, numpy_posterior
from hmmjax.stabilize import stabilize as stabilize_tracks
from hmmjax.types import Labels, Observations
from models.data.frames import FrameTable
from models.experiment.measure import measure
from models.stabilize import (
    Lessons,
    Predictions,
    all_videos,
    fully_labeled,
    gather_lessons,
    pad,
    rows_of,
    unpad,
    videos_of,
)

MODES = {"M_H": False, "M_H online": True}
"""By version, whether it sees the past only."""

GAINS = ("mAP", "tool F1", "accuracy", "Jaccard")
"""Metrics in which M_H should not be below M."""


def choose(
    table: FrameTable, predicted: Predictions, tracks: list[str], test: list[str], others: str | None = None
) -> tuple[dict[str, Predictions], str]:
    """Stabilize the test videos by the models that inner folds of the validation videos choose.

    With videos that are labeled throughout, this is `hmmjax.stabilize.stabilize` with ``emissions="auto"``: the
    validation videos are annotated, and transitions are counted in all labeled videos. With single frames only, it is a
    choice per tool among `hmmjax.stabilize.learn_from_single_frames`, mixtures of it with the recognizer, and the
    recognizer.

    Args:
        table: labels as the scenario knows them.
        predicted: the network's predictions of the validation and test videos.
        tracks: the tracks that the network learned.
        test: names of the test videos.
        others: annotations of other videos in which transitions are counted, see `models.experiment.plan.Plan`.

    Returns:
        Predictions of the test videos by version, see `MODES`, and what was chosen in words.
    """
    lessons = gather_lessons(table, predicted, tracks, others)
    if lessons.dynamics is None and lessons.tracks == ["tools"]:
        return _choose_single_frames(table, lessons, predicted, test)
    val = videos_of(table, "val")
    outputs = [_track(table, video, track, predicted[video][track]) for video in [*val, *test] for track in tracks]
    known = [_track(table, video, track) for video in val for track in lessons.tracks]
    complete = fully_labeled(table, [*val, *np.unique(table.videos[table.parts == "train"]).tolist()])
    counts = [_track(table, video, track) for video in complete for track in lessons.tracks]
    if others is not None:
        own = {video_id(video) for video in np.unique(table.videos).tolist()}
        read = read_annotations(others, phase_names=table.phase_names, tool_names=table.tool_names)
        counts = [t for t in read if t.track in lessons.tracks and video_id(t.video) not in own]
    result = stabilize_tracks(outputs, known, transitions=counts, emissions="auto", folds=None, step=int(table.fps))
    place = {name: i for i, name in enumerate(result.ids)}
    fields = [*tracks, *(["tool_log_odds"] if "tools" in tracks else [])]
    found = {
        version: {
            video: {field: np.asarray(getattr(system, field)[place[video]]) for field in fields} for video in test
        }
        for version, system in zip(MODES, (result.smoothed, result.filtered), strict=True)
    }
    return found, next(notice for notice in result.notices if "counted" in notice)


def _track(table: FrameTable, video: str, track: str, values: np.ndarray | None = None) -> Track:
    """Return predictions of a video as `hmmjax.io.read` would, or its labels if no values are given."""
    rows = rows_of(table, video)
    names = getattr(table, f"{track[:-1]}_names")
    kind = "labels" if values is None else "probabilities"
    known: np.ndarray = getattr(table, track)[rows].astype(np.int32) if values is None else values.astype(np.float64)
    return Track(video, track, table.frames[rows], known, names, table.fps, Layout("npz", kind), video)


def _choose_single_frames(
    table: FrameTable, lessons: Lessons, predicted: Predictions, test: list[str]
) -> tuple[dict[str, Predictions], str]:
    """Choose among the model of single frames, mixtures of it with the recognizer, and the recognizer, per tool."""
    videos, count = all_videos(lessons, "probability"), lessons.sizes["tools"]
    labels, scores = np.asarray(videos.labels.tools), np.asarray(videos.obs.tools)
    own = recognizer(num_tools=count, observes="probabilities")
    candidates: dict[str, list[np.ndarray]] = {version: [] for version in MODES}
    order = np.arange(len(lessons.val.mask))
    for part in np.array_split(order, 2):
        hidden = labels.copy()
        hidden[part] = -1
        without = dataclasses.replace(videos, labels=Labels(tools=hidden))
        model = learn_from_single_frames(without, num_tools=count, emissions="probability").params
        for version, online in MODES.items():
            found = numpy_posterior(model, Observations(tools=scores[part]), videos.mask[part], online=online)[0]
            candidates[version] += [x[m] for x, m in zip(np.asarray(found.tools), videos.mask[part], strict=True)]
    outputs, known = ([x[i][videos.mask[i]] for i in order] for x in (scores, labels))
    model = learn_from_single_frames(videos, num_tools=count, emissions="probability")
    batch, result, words = pad(table, test, predicted, ["tools"]), {}, []
    for version, online in MODES.items():
        choice = choose_tools({"single frames": candidates[version]}, outputs, known, strict=False)
        weight = choice.weights[0]
        mixture = Ensemble((model.params, own), None, np.stack([weight, 1 - weight]).astype(np.float32))
        found, _ = numpy_posterior(mixture, batch.obs, batch.mask, online=online)
        result[version] = unpad(table, test, found, ["tools"])
        words.append(f"{version}: weights of the model {', '.join(f'{x:.3g}' for x in weight)}")
    return result, "; ".join([model.method, *words])


def gains(raw: Predictions, found: Predictions, table: FrameTable, tracks: list[str]) -> dict[str, list[float | None]]:
    """Return gains over M and their jackknife standard errors over videos (None of a single video), by metric.

    Args:
        raw: predictions of M.
        found: those of M_H, of the same videos.
        table: all labels of these videos.
        tracks: the tracks to measure.

    Source: Efron and Stein (1981), the jackknife estimate of variance.
    """

    def difference(videos: Sequence[str]) -> dict[str, float]:
        before, after = (measure({v: x[v] for v in videos}, table, tracks) for x in (raw, found))
        return {name: after[name] - before[name] for name in GAINS if name in before}

    videos = list(raw)
    whole = difference(videos)
    if len(videos) == 1:
        return {name: [gain, None] for name, gain in whole.items()}
    without = [difference([v for v in videos if v != left]) for left in videos]
    result: dict[str, list[float | None]] = {}
    for name, gain in whole.items():
        values = np.array([x[name] for x in without])
        error = np.sqrt((len(values) - 1) / len(values) * np.sum((values - values.mean()) ** 2))
        result[name] = [gain, float(error)]
    return result

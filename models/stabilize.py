"""From tables of frames and a network's predictions to `hmmjax`: batches on an axis of seconds, a calibrated model.

The experiment and self-training use these functions. M stands for the network, M_H for its stabilized predictions.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax.calibration import without_powers
from hmmjax.emissions import Tempered
from hmmjax.emissions.registry import families_named
from hmmjax.io import align_classes, join, read_annotations, sample, to_batch, video_id
from hmmjax.stabilize import Examples, learn_from_single_frames, learn_model, numpy_posterior
from hmmjax.types import Labels, Observations, Params, Posterior
from models.data.frames import FrameTable
from models.training.feeds import video_rows

#: Predictions by video: track to (n, ...), and "frames" (n,).
Predictions = dict[str, dict[str, np.ndarray]]

TRACKS = ("phases", "tools")


@dataclasses.dataclass(frozen=True, eq=False)
class Lessons:
    """What a hidden Markov model is learned from; no test video is part of it.

    Attributes:
        val: validation videos with predictions, in which the network's errors are counted.
        dynamics: videos with all labels, in which transitions are counted; None if there are none.
        unlabeled: further videos with predictions, whose labels are not used; None if there are none.
        sizes: number of classes by track, 0 for a track that the model lacks.
    """

    val: Examples
    dynamics: Examples | None
    sizes: dict[str, int]
    unlabeled: Examples | None = None

    @property
    def tracks(self) -> list[str]:
        """The tracks of the model."""
        return [track for track, size in self.sizes.items() if size]


def rows_of(table: FrameTable, video: str) -> np.ndarray:
    """Return the row numbers of a video's frames, by time."""
    rows = np.flatnonzero(table.videos == video)
    return rows[np.argsort(table.frames[rows], kind="stable")]


def seconds(table: FrameTable, rows: np.ndarray) -> np.ndarray:
    """Return the times of frames of one video in whole seconds after the first of them."""
    return np.rint((table.frames[rows] - table.frames[rows[0]]) / table.fps).astype(int)


def videos_of(table: FrameTable, part: str) -> list[str]:
    """Return the names of the videos with a frame in a part, sorted."""
    return [str(table.videos[rows[0]]) for rows in video_rows(table, part)]


def pad(table: FrameTable, videos: list[str], predicted: Predictions | None, tracks: list[str]) -> Examples:
    """Return videos as one batch on an axis of seconds; a second without a frame is missing, and time passes.

    Args:
        table: labels of the frames, -1 unknown.
        videos: names of the videos.
        predicted: the network's predictions; None leaves the observations out.
        tracks: the tracks of observations and labels; others are left out.

    Returns:
        Observations (B, T, ...), labels (B, T, ...), mask (B, T).
    """
    rows = {video: rows_of(table, video) for video in videos}
    times = {video: seconds(table, mine) for video, mine in rows.items()}
    # A multiple of 512, so that few lengths occur and few programs compile.
    length = -(-max(int(t[-1]) + 1 for t in times.values()) // 512) * 512
    mask = np.zeros((len(videos), length), bool)
    sizes = {"phases": len(table.phase_names), "tools": len(table.tool_names)}
    labels: dict[str, Any] = {
        "phases": np.full(mask.shape, -1, np.int32),
        "tools": np.full((*mask.shape, sizes["tools"]), -1, np.int32),
    }
    given: Predictions = {video: {} for video in videos} if predicted is None else predicted
    observed: dict[str, Any] = {
        track: np.zeros((*mask.shape, sizes[track]), np.float32) for track in tracks if track in given[videos[0]]
    }
    for number, video in enumerate(videos):
        at = times[video]
        mask[number, at] = True
        labels["phases"][number, at] = table.phases[rows[video]]
        labels["tools"][number, at] = table.tools[rows[video]]
        for track, array in observed.items():
            array[number, at] = given[video][track]
    return Examples(Observations(**observed), Labels(**{track: labels[track] for track in tracks}), mask)


def unpad(table: FrameTable, videos: list[str], values: Posterior, tracks: Sequence[str]) -> Predictions:
    """Return posteriors (B, T, ...) on the axis of seconds as predictions at the frames of each video.

    Those of tools come with "tool_log_odds", which rank frames without ties.
    """
    names = [*tracks, *(["tool_log_odds"] if "tools" in tracks else [])]
    return {
        video: {name: getattr(values, name)[number, seconds(table, rows_of(table, video))] for name in names}
        for number, video in enumerate(videos)
    }


def gather_lessons(table: FrameTable, predicted: Predictions, tracks: list[str], others: str | None = None) -> Lessons:
    """Gather what a hidden Markov model is learned from.

    Args:
        table: labels of the frames, -1 unknown; its parts include "train" and "val".
        predicted: the network's predictions of at least the validation videos; those of others, such as the test
            videos, may teach how long tools stay if no video is labeled throughout.
        tracks: the tracks that the network predicts.
        others: annotations of other videos, in which to count transitions instead.
    """
    val = videos_of(table, "val")
    complete = fully_labeled(table, [*val, *(str(v) for v in np.unique(table.videos[table.parts == "train"]))])
    # Labeled phases join the model even if the network does not predict them.
    kept = [t for t in TRACKS if t in tracks or (t == "phases" and (complete or others))]
    counts = {"phases": len(table.phase_names), "tools": len(table.tool_names)}
    dynamics = pad(table, complete, None, kept) if complete else None
    if others is not None:
        dynamics = read_dynamics(others, table, kept)
    sizes = {t: n if t in kept else 0 for t, n in counts.items()}
    rest = [video for video in predicted if video not in val] if dynamics is None and kept == ["tools"] else []
    return Lessons(pad(table, val, predicted, kept), dynamics, sizes, _without_labels(table, rest, predicted, kept))


def _without_labels(table: FrameTable, videos: list[str], predicted: Predictions, tracks: list[str]) -> Examples | None:
    """Return the predictions of videos, with all their labels unknown."""
    if not videos:
        return None
    found = pad(table, videos, predicted, tracks)
    labels = {t: None if (x := getattr(found.labels, t)) is None else np.full_like(x, -1) for t in TRACKS}
    return dataclasses.replace(found, labels=Labels(**labels))


def fully_labeled(table: FrameTable, videos: Sequence[str]) -> list[str]:
    """Return the videos in which the phase and all tools of every frame are known."""
    known = (table.phases >= 0) & (table.tools >= 0).all(1)
    return [video for video in dict.fromkeys(videos) if known[table.videos == video].all()]


def read_dynamics(path: str, table: FrameTable, tracks: list[str]) -> Examples:
    """Read labels, one per second, of videos that the table does not contain.

    Raises:
        FormatError: if the files are not annotations of the table's classes.
    """
    names = {"phase_names": table.phase_names, "tool_names": table.tool_names}
    found = [track for track in read_annotations(path, **names) if track.track in tracks]
    own = {video_id(video) for video in np.unique(table.videos).tolist()}
    aligned = []
    for track in tracks:
        others = [x for x in found if x.track == track and video_id(x.video) not in own]
        aligned += align_classes(others, getattr(table, f"{track[:-1]}_names"))[0]
    obs, _, mask, _ = to_batch([sample(video, 1.0) for video in join(aligned)])
    return Examples(Observations(), Labels(obs.phases, obs.tools), mask)


def observations(obs: Observations, emissions: str) -> Observations:
    """Return observations that suit an emission family: labels for "confusion", else probabilities."""
    return obs.discretize() if emissions == "confusion" else obs


def learn_hmm(lessons: Lessons, emissions: str) -> tuple[Params, dict[str, Any]]:
    """Learn a calibrated hidden Markov model.

    Initial and transition probabilities are counted in the labels of `dynamics`, or without these learned by EM from
    the validation videos, with their labels clamped. The network's errors are counted in the validation videos, which
    it was not trained on. The powers of `hmmjax.calibrate` are found on every other validation video, with errors
    counted in the rest, so that the errors are not tested on the videos in which they were counted.

    Without videos that are labeled throughout, a model of tools (scenario S_D) is
    `hmmjax.stabilize.learn_from_single_frames` of the validation and unlabeled videos, without powers.

    Args:
        lessons: the videos to learn from.
        emissions: "confusion" or "probability".

    Returns:
        The model; and for the record, the "method" in words and the "powers" by track.
    """
    if lessons.dynamics is None and lessons.tracks == ["tools"] and families_named(emissions)[1].accepts_anchor:
        videos, count = all_videos(lessons, emissions), lessons.sizes["tools"]
        learned = learn_from_single_frames(videos, num_tools=count, emissions=emissions)
        return learned.params, {"method": learned.method, "powers": {}}
    learned = learn_model(
        dataclasses.replace(lessons.val, obs=observations(lessons.val.obs, emissions)),
        emissions=emissions,
        calibrated=True,
        transitions=None if lessons.dynamics is None else (lessons.dynamics.labels, lessons.dynamics.mask),
        held_out=np.arange(len(lessons.val.mask))[1::2],
        calibration={},
        num_phases=lessons.sizes["phases"],
        num_tools=lessons.sizes["tools"],
    )
    powers = {}
    for track in lessons.tracks:
        emission = getattr(learned.params, track).emission
        if isinstance(emission, Tempered):
            powers[track] = np.round(np.asarray(emission.power, np.float64), 4).tolist()
    return learned.params, {"method": learned.method, "powers": powers}


#: Versions of M_H: posteriors given whole videos by the calibrated model, the same by counted errors alone, and
#: posteriors given past and present. Powers that suit whole videos make a filter react too late, so it has none.
VERSIONS = {"M_H": (True, False), "M_H counted": (False, False), "M_H online": (False, True)}


def all_videos(lessons: Lessons, emissions: str) -> Examples:
    """Return the tools of validation and unlabeled videos in one batch."""
    parts = [part for part in (lessons.val, lessons.unlabeled) if part is not None]
    length = max(part.mask.shape[1] for part in parts)

    def join(arrays: Sequence[np.ndarray], value: int) -> np.ndarray:
        padded = [
            np.pad(x, [(0, 0), (0, length - x.shape[1]), (0, 0)][: x.ndim], constant_values=value) for x in arrays
        ]
        return np.concatenate(padded)

    tools = [np.asarray(observations(part.obs, emissions).tools) for part in parts]
    labels = Labels(tools=join([np.asarray(part.labels.tools) for part in parts], -1))
    return Examples(Observations(tools=join(tools, 0)), labels, join([part.mask for part in parts], 0))


def apply_hmm(params: Params, test: Examples, emissions: str) -> dict[str, Posterior]:
    """Return the posteriors (B, T, ...) of every version of M_H, see `VERSIONS`.

    Raises:
        ValueError: if a video is impossible under the model.
    """
    obs, plain = observations(test.obs, emissions), without_powers(params)
    found = {}
    for name, (calibrated, online) in VERSIONS.items():
        found[name], log_likelihood = numpy_posterior(params if calibrated else plain, obs, test.mask, online=online)
        if not np.isfinite(log_likelihood).all():
            raise ValueError(
                "a video is impossible under the hidden Markov model, although its pseudo-counts exclude nothing. Fix: "
                "check that the predictions are finite"
            )
    return found

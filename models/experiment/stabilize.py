"""M_H of M: a hidden Markov model learned from training and validation labels, on predictions never trained on."""

import dataclasses
from typing import Any

import numpy as np

import hmmjax
from hmmjax.emissions import Tempered
from hmmjax.io import align_classes, join, read_annotations, sample, to_batch, video_id
from hmmjax.stabilize import Examples
from hmmjax.stabilize import learn_model as learn
from hmmjax.types import Labels, Observations, Params
from models.data.frames import FrameTable

#: Predictions of some videos: track to (n, ...) for each video by name.
Predictions = dict[str, dict[str, np.ndarray]]


def pad(table: FrameTable, videos: list[str], predicted: Predictions | None, tracks: list[str]) -> Examples:
    """Videos as one batch on a regular axis of seconds: a second without a frame is unobserved, and time passes.

    Args:
        table: labels of the frames, -1 unknown.
        videos: which.
        predicted: what the network says of each; None leaves the observations out.
        tracks: of the observations and labels, others are left out.

    Returns:
        Observations (B, T, ...), labels (B, T, ...), mask (B, T).
    """
    rows = {video: rows_of(table, video) for video in videos}
    times = {video: seconds(table, mine) for video, mine in rows.items()}
    length = -(-max(int(t[-1]) + 1 for t in times.values()) // 512) * 512
    mask = np.zeros((len(videos), length), bool)
    sizes = {"phases": len(table.phase_names), "tools": len(table.tool_names)}
    labels: dict[str, Any] = {
        "phases": np.full(mask.shape, -1, np.int32),
        "tools": np.full((*mask.shape, sizes["tools"]), -1, np.int32),
    }
    said: dict[str, Any] = {}
    if predicted is not None:
        said = {
            track: np.zeros((*mask.shape, sizes[track]), np.float32)
            for track in tracks
            if track in predicted[videos[0]]
        }
    for number, video in enumerate(videos):
        at = times[video]
        mask[number, at] = True
        labels["phases"][number, at] = table.phases[rows[video]]
        labels["tools"][number, at] = table.tools[rows[video]]
        for track, array in said.items():
            array[number, at] = predicted[video][track]
    return Examples(Observations(**said), Labels(**{track: labels[track] for track in tracks}), mask)


def rows_of(table: FrameTable, video: str) -> np.ndarray:
    """A video's row numbers in order of time."""
    rows = np.flatnonzero(table.videos == video)
    return rows[np.argsort(table.frames[rows], kind="stable")]


def seconds(table: FrameTable, rows: np.ndarray) -> np.ndarray:
    """Whole seconds from the first of some frames of a video."""
    return np.rint((table.frames[rows] - table.frames[rows[0]]) / table.fps).astype(int)


def read_dynamics(path: str, table: FrameTable, tracks: list[str]) -> Examples:
    """Labels of videos that the table lacks, one a second.

    Raises:
        FormatError: for files that are no annotations of the table's classes.
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


def learn_model(
    val: Examples, dynamics: Examples | None, sizes: dict[str, int], emissions: str
) -> tuple[Params, dict[str, Any]]:
    """A calibrated model.

    Start and transitions are counted in the labels of `dynamics` where there are any, and learned by EM (from the
    validation videos, with their single labels clamped) where there are not. The recognizer's errors are counted in
    the validation videos, on which it was not trained. How much a frame of it is worth (`hmmjax.calibrate`) is found
    on every other validation video with errors counted in the rest, so that it is not judged by itself.

    Args:
        val: validation videos with their predictions and labels.
        dynamics: videos that are labeled throughout.
        sizes: number of classes by track, 0 for tracks that the model lacks.
        emissions: "confusion" or "probability".

    Returns:
        The model, and what was found, for the record.
    """
    obs = val.obs.discretize() if emissions == "confusion" else val.obs
    val = dataclasses.replace(val, obs=obs)
    transitions = None if dynamics is None else (dynamics.labels, dynamics.mask)

    def taught(part: Examples) -> Any:
        return learn(
            part, num_phases=sizes["phases"], num_tools=sizes["tools"], emissions=emissions, transitions=transitions
        )

    whole = taught(val)
    count = len(val.mask)
    some, others = (np.arange(count)[::2], np.arange(count)[1::2]) if count > 1 else (np.arange(count),) * 2
    held = val.take(others)
    known = {t: getattr(held.labels, t) for t in ("phases", "tools") if getattr(held.obs, t) is not None}
    found = hmmjax.calibrate(taught(val.take(some)).params, held.obs, held.mask, Labels(**known))
    params, powers = whole.params, {}
    for track in known:
        power = getattr(found.params, track).emission.power
        powers[track] = np.round(np.asarray(power, np.float64), 4).tolist()
        chain = getattr(params, track)
        chain = dataclasses.replace(chain, emission=Tempered(chain.emission, power))
        params = dataclasses.replace(params, **{track: chain})
    return params, {"method": whole.method, "powers": powers}


def apply_model(params: Params, test: Examples, emissions: str) -> dict[str, Observations]:
    """Posteriors (B, T, ...) given whole videos ("M_H") and given the past alone ("M_H online")."""
    obs = test.obs.discretize() if emissions == "confusion" else test.obs
    found = {}
    for name, infer in (("M_H", hmmjax.posterior), ("M_H online", hmmjax.filter)):
        answer = infer(params, obs, test.mask)
        if not np.isfinite(answer.log_likelihood).all():
            raise ValueError("a test video is impossible under the model, although pseudo-counts forbid nothing")
        # Sums of float32 probabilities may pass one by a rounding error.
        clipped = {
            t: None if (x := getattr(answer, t)) is None else np.clip(np.asarray(x), 0, 1) for t in ("phases", "tools")
        }
        found[name] = Observations(**clipped)
    return found

"""Write a folder of results: predictions in the layouts of the files read, posteriors, model, table and pictures."""

import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hmmjax import io
from hmmjax.io import Layout, Track
from hmmjax.stabilize.draw import picture
from hmmjax.stabilize.pipeline import Stabilized
from hmmjax.stabilize.settings import Progress, ignore_progress
from hmmjax.stabilize.systems import System
from hmmjax.stabilize.table import Row

if TYPE_CHECKING:
    pass

#: Layout of inferred phases for which there are no prediction files: that of Cholec80's annotations.
_CHOLEC80 = Layout("text", "labels", header="Frame\tPhase", header_columns=2, columns=(1,))


#: Fields of `System` that rank frames where probabilities near one are tied.
LOGARITHMS = ("tool_log_odds", "phase_log_probs")


def write_results(
    result: Stabilized,
    folder: str | os.PathLike[str],
    *,
    like: Sequence[Track],
    online: bool = False,
    pictures: bool = True,
    force: bool = False,
    progress: Progress | None = None,
) -> list[Path]:
    """Write the results of `stabilize` to a folder.

    - ``phases/``, ``tools/`` (``both/``): predictions under the names and in the layouts of the files in `like`;
      ``inferred-phases/``: phases that were inferred from tools alone, in Cholec80's layout;
    - ``stabilized.npz``: posteriors (see `hmmjax.io.write_posteriors`), with ``tool_log_odds_*`` and
      ``phase_log_probs_*`` (see `hmmjax.Posterior`), ``filtered_*`` of the online filter,
      ``raw_*`` as read (``raw2_*`` ... of further recognizers), ``truth_*`` (-1 for unlabeled), and ``fold_*``, the
      fold in which the video was held out (-1: none);
    - ``model.npz``: the model of all videos, for `hmmjax.io.load_params`;
    - ``table.csv``, ``table.json``: the metrics, if there is truth;
    - ``pictures/<video>.png``.

    Args:
        result: from `stabilize`.
        folder: the output folder.
        like: the predictions as they were read; for several recognizers see `hmmjax.stabilize.originals`.
        online: write the online filter's predictions in place of the smoother's.
        pictures: draw each video.
        force: overwrite existing files.
        progress: called with a stage's name, the number of parts done, and the number of parts.

    Returns:
        The files written.

    Raises:
        FileExistsError: a file exists and `force` is False.
    """
    tell = progress or ignore_progress
    folder = Path(folder)
    if force:
        _clear(folder)
    system = result.filtered if online else result.smoothed
    tracks = result_tracks(result, system)
    predicted = {t.track for t in like}
    own = [t for t in tracks if t.track in predicted]
    files = io.write(_at_frames_of(like, own) if result.fused else own, folder, like=like, force=force)
    hidden = [t for t in tracks if t.track not in predicted]
    if hidden:
        files += _write_hidden(hidden, folder / "inferred-phases", force)
    posteriors, model = folder / "stabilized.npz", folder / "model.npz"
    write_stabilized(result, posteriors, force=force)
    files.append(posteriors)
    for path, m in ((model, result.model), (folder / "model_online.npz", result.online_model)):
        if m is None:
            continue
        names = {"phase_names": m.phase_names, "tool_names": m.tool_names}
        io.save_params(path, m.params, **names, fps=m.fps, metadata=m.metadata, force=force)
        files.append(path)
    if result.table:
        io.write_csv(folder / "table.csv", records(result.table), force=force)
        with io.write_atomically(folder / "table.json", force=force) as temporary:
            Path(temporary).write_text(as_json(result.table, result.notices), encoding="utf-8")
        files += [folder / "table.csv", folder / "table.json"]
    for i, video in enumerate(result.ids if pictures else ()):
        tell("pictures", i, len(result.ids))
        path = folder / "pictures" / f"{video}.png"
        picture(result, i, path, online=online, force=force)
        files.append(path)
    if pictures:
        tell("pictures", len(result.ids), len(result.ids))
    return files


def write_stabilized(result: Stabilized, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write the posteriors of all videos to one NPZ, ``stabilized.npz`` of `write_results`.

    Args:
        result: from `stabilize`.
        path: the file.
        force: overwrite an existing file.

    Raises:
        FileExistsError: the file exists and `force` is False.
    """
    likelihood = dict(zip(result.ids, result.log_likelihood.tolist(), strict=True))
    tracks = result_tracks(result, result.smoothed)
    io.write_posteriors(path, tracks, log_likelihood=likelihood, extra=_extra(result), force=force)


def _clear(folder: Path) -> None:
    """Remove an earlier run's table and pictures, which this run may not overwrite, and nothing else."""
    earlier = folder / "stabilized.npz"
    if not earlier.is_file():
        return
    try:
        with np.load(earlier, allow_pickle=False) as arrays:
            ids = [io.video_id(key.removeprefix("fold_")) for key in arrays.files if key.startswith("fold_")]
    except (OSError, ValueError, zipfile.BadZipFile):
        return  # damaged: unknown which files belong to that run
    for file in ("table.csv", "table.json", "model_online.npz", *(f"pictures/{video}.png" for video in ids)):
        (folder / file).unlink(missing_ok=True)


def _at_frames_of(like: Sequence[Track], tracks: Sequence[Track]) -> list[Track]:
    """Restrict results to the frames of the files in `like`; other recognizers may have predicted more frames."""
    originals, out = {(t.video, t.track): t for t in like}, []
    for track in tracks:
        if original := originals.get((track.video, track.track)):
            track = track.at_fps(original.fps)
            out.append(track.take(np.isin(track.frames, original.frames)))
    return out


def result_tracks(result: Stabilized, system: System) -> list[Track]:
    """Return a system's posteriors as tracks.

    Args:
        result: from `stabilize`.
        system: one of the result's systems, such as ``result.smoothed``.

    Returns:
        One track per video and kind.
    """
    tracks = []
    for name, arrays, names in (
        ("phases", system.phases, result.phase_names),
        ("tools", system.tools, result.tool_names),
    ):
        for video, frames, values in zip(result.ids, result.frames, arrays or [], strict=bool(arrays)):
            layout = Layout("npz", "probabilities")
            tracks.append(Track(video, name, frames, values, names, result.fps, layout, "result"))
    return tracks


def _extra(result: Stabilized) -> dict[str, Any]:
    """Return the arrays that `read_results` needs in addition to the posteriors."""
    truth = System("truth", result.truth_phases, result.truth_tools)
    more = [(f"raw{i}", system) for i, system in enumerate(result.fused, 2)]
    extra: dict[str, Any] = {
        f"{what}_{t.track}_{io.array_suffix(t.video)}": t.values
        for what, system in (("filtered", result.filtered), ("raw", result.raw), ("truth", truth), *more)
        for t in result_tracks(result, system)
    }
    for prefix, system in (("", result.smoothed), ("filtered_", result.filtered)):
        for name in LOGARITHMS:
            videos = getattr(system, name)
            for video, values in zip(result.ids, videos or [], strict=bool(videos)):
                extra[f"{prefix}{name}_{io.array_suffix(video)}"] = values
    extra |= {f"fold_{io.array_suffix(v)}": f for v, f in zip(result.ids, result.folds, strict=True)}
    return extra | {
        "step_seconds": np.float64(result.step_seconds),
        "protocol": np.array(result.protocol),
        "notices": np.array(result.notices, dtype=np.str_),
    }


def _write_hidden(tracks: Sequence[Track], folder: Path, force: bool) -> list[Path]:
    files = []
    for track in tracks:
        path = folder / f"{track.video}-phase.txt"
        names = track.names
        phases = [names[i] if names else str(i) for i in track.labels()]
        lines = [str(_CHOLEC80.header), *(f"{f}\t{name}" for f, name in zip(track.frames, phases, strict=True))]
        with io.write_atomically(path, force=force) as temporary:
            Path(temporary).write_text("\n".join(lines) + "\n", encoding="utf-8")
        files.append(path)
    return files


def records(table: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the table as plain rows.

    Args:
        table: from `compare_systems`.

    Returns:
        One row per metric and system, see `Row.records`.
    """
    return [record for row in table for record in row.records()]


def as_json(table: Sequence[Row], notices: Sequence[str]) -> str:
    """Return the table and the notices as JSON.

    Args:
        table: from `compare_systems`.
        notices: messages for the user.

    Returns:
        An object with the rows of `records` under "table", and "notices".
    """
    content = {"table": records(table), "notices": list(notices)}
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)

"""The videos of an experiment, and the labels that each scenario has of them."""

import dataclasses
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax.data.splits import check_disjoint
from hmmjax.simulate import Departures
from models.data.cache import ArrayImages, read_cache
from models.data.collections import Annotation
from models.data.frames import FrameTable
from models.data.scenarios import Scenario, combined, continuous, discrete
from models.data.simsurg import simulated_frames


def prepare_videos(data: dict[str, Any], seed: int, folder: Path, *, workers: int = 1) -> ArrayImages:
    """Return the frames of one seed: those of a cache, or rendered simulated surgeries, which are kept in `folder`.

    Args:
        data: the field `data` of `models.experiment.plan.Plan`.
        seed: of the surgeries and their images.
        folder: for rendered images.
        workers: number of processes that render.
    """
    if "cache" in data:
        source = read_cache(data["cache"])
        return source if "parts" not in data else ArrayImages(_divide(source.table, data["parts"]), source.images)
    if not (folder / "table.npz").exists():
        size = tuple(data.get("size", (64, 64)))
        options = {"minutes": float(data.get("minutes", 10)), "size": size, "departures": departures_of(data)}
        source = simulated_frames(data["simsurg"], seed, **options)
        folder.mkdir(parents=True, exist_ok=True)
        shape = (len(source), *size, 3)
        np.lib.format.open_memmap(folder / "images.npy", "w+", np.uint8, shape).flush()
        ends = np.cumsum([len(surgery) for surgery in source.surgeries])
        tasks = [(data["simsurg"], seed, options, str(folder / "images.npy"), a, b) for a, b in _spans(ends)]
        if workers > 1:
            # Spawn, because a fork would copy a process in which JAX may run threads.
            with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
                list(pool.map(_render, tasks))
        else:
            list(map(_render, tasks))
        np.savez(folder / "table.npz", allow_pickle=False, **source.table.arrays())
    return read_cache(folder)


def departures_of(data: dict[str, Any]) -> Departures | None:
    """Return how simulated surgeries depart from the hidden Markov model: `law` is episodes (default) or markov.

    Raises:
        ValueError: for another law.
    """
    law = data.get("law", "episodes")
    if law not in ("episodes", "markov"):
        raise ValueError(f"data: law is {law!r}. Fix: choose episodes, or markov, the law that the model assumes")
    return Departures() if law == "episodes" else None


def _divide(table: FrameTable, parts: dict[str, list[str]]) -> FrameTable:
    """Assign whole videos to parts; videos that no part lists belong to none.

    Raises:
        FormatError: if a recording is in two parts.
    """
    check_disjoint(parts)
    found = np.full(len(table), "", dtype="<U10")
    for part, videos in parts.items():
        found[np.isin(table.videos, videos)] = part
    return dataclasses.replace(table, parts=found)


def _spans(ends: np.ndarray) -> list[tuple[int, int]]:
    return list(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True))


def _render(task: tuple) -> None:
    parts, seed, options, path, start, stop = task
    source = simulated_frames(parts, seed, **options)
    images = np.load(path, mmap_mode="r+")
    for row in range(start, stop):
        images[row] = source[row]
    images.flush()


def annotations(table: FrameTable, part: str) -> list[Annotation]:
    """Return all labels of the videos of a part, sorted by name and time."""
    rows = table.rows(part)
    found = []
    for video in np.unique(table.videos[rows]):
        mine = rows[table.videos[rows] == video]
        mine = mine[np.argsort(table.frames[mine], kind="stable")]
        frames = table.frames[mine]
        known = table.phases[mine], table.tools[mine]
        names = {"phase_names": table.phase_names, "tool_names": table.tool_names}
        found.append(Annotation(str(video), frames, frames / table.fps, *known, **names))
    return found


def label(
    table: FrameTable,
    scenario: str,
    *,
    seed: int = 0,
    positives: int = 50,
    negatives: int = 50,
    val_positives: int = 15,
    val_negatives: int = 15,
    apart: float = 2.0,
    whole_frames: bool = False,
    draw: str = "single",
) -> tuple[FrameTable, Scenario]:
    """Reduce the labels of a table to those of a scenario.

    S_C labels the videos of the parts whole and val throughout. S_D labels single frames of the parts single and val,
    or with ``draw="whole"``, as in the paper, of the videos that S_C labels throughout. S_C+D labels the parts whole
    and val throughout, and single frames of the part single.

    Args:
        table: all labels; its parts are whole, single, val and test.
        scenario: "S_C", "S_D" or "S_C+D".
        seed: of the choice of single frames.
        positives: number of frames of the part single labeled with each tool present, or all such frames if fewer.
        negatives: number of frames of the part single labeled with each tool absent.
        val_positives: number of frames of the part val labeled with each tool present, in S_D.
        val_negatives: number of frames of the part val labeled with each tool absent, in S_D.
        apart: minimum distance of single frames, see `models.data.scenarios.discrete`.
        whole_frames: label all tools of single frames, see `models.data.scenarios.discrete`.
        draw: the part whose single frames S_D labels, "single" or "whole".

    Returns:
        The table, with parts "train", "val", "test" (with all labels) and "unlabeled"; and the scenario with everything
        that was labeled, for its cost.
    """
    options = {"seed": seed, "apart": apart, "whole_frames": whole_frames, "at_most": True}
    if scenario == "S_D":
        learn = discrete(annotations(table, draw), positives, negatives, **options)
        val = discrete(annotations(table, "val"), val_positives, val_negatives, **options)
    else:
        learn, val = continuous(annotations(table, "whole")), continuous(annotations(table, "val"))
        if scenario == "S_C+D":
            learn = combined(learn, discrete(annotations(table, "single"), positives, negatives, **options))
    phases, tools = np.full_like(table.phases, -1), np.full_like(table.tools, -1)
    parts = np.full(len(table), "unlabeled", dtype="<U10")
    test = table.rows("test")
    phases[test], tools[test], parts[test] = table.phases[test], table.tools[test], "test"
    for name, known in (("train", learn), ("val", val)):
        for annotation in known.annotations:
            rows = np.flatnonzero(table.videos == annotation.id)
            rows = rows[np.argsort(table.frames[rows], kind="stable")]
            phases[rows], tools[rows] = annotation.phases, annotation.tools
            some = (annotation.phases >= 0) | (annotation.tools >= 0).any(1)
            parts[rows[some]] = name
    labeled = dataclasses.replace(table, phases=phases, tools=tools, parts=parts)
    return labeled, dataclasses.replace(learn, name=scenario, annotations=(*learn.annotations, *val.annotations))


def write_view(images: Path, table: FrameTable, folder: Path) -> None:
    """Write a cache with other labels for the images of an existing cache, to which it links."""
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "images.npy"
    if not link.exists():
        os.symlink(os.path.relpath(images, folder.resolve()), link)
    np.savez(folder / "table.npz", allow_pickle=False, **table.arrays())

"""Find the prediction and annotation files among paths."""

import os
from collections.abc import Sequence
from pathlib import Path

from hmmjax.io.errors import FormatError
from hmmjax.io.folder import is_unfinished
from hmmjax.io.videos import natural

PathLike = str | os.PathLike[str]

TEXT = (".txt", ".csv", ".tsv")
ARRAYS = (".npz", ".npy")
DOCUMENTS = (".json", ".xml", ".eaf")
PICKLES = (".pkl", ".pickle", ".p", ".pt", ".pth")
"""Pickles of plain data; nothing in them is executed."""

PACKED = (".gz", ".bz2", ".xz", ".zip", ".tar", ".xlsx", ".xls", ".ods")
"""Archives and workbooks, which are not read."""

_TABLES_OF_NAMES = ("map_steps.csv", "map_instruments.csv", "label_mapping.txt", "mapping.txt")
"""Names of classes next to the annotations of PitVis, CholecT50 and MS-TCN."""

RESULTS = "stabilized.npz"
"""The file of posteriors by which a folder of results is recognized."""

_ANNOTATIONS = ("phase_annotations", "tool_annotations")
"""The folders of annotations in a copy of Cholec80."""


def find_files(paths: PathLike | Sequence[PathLike], *, annotations: bool = False) -> tuple[list[str], list[str]]:
    """List the prediction files among paths; folders are searched without their subfolders.

    Args:
        paths: a file, a folder, or several of either. A folder of results stands for its file of posteriors.
        annotations: look for annotations, which a copy of Cholec80 holds in phase_annotations/ and tool_annotations/.

    Returns:
        The files, those of a folder in natural order, and notices about files in folders that were ignored.

    Raises:
        FormatError: if a path does not exist, a folder has no readable file, or a file is given twice.
    """
    found: list[str] = []
    notices: list[str] = []
    for path in map(Path, [paths] if isinstance(paths, str | os.PathLike) else paths):
        if path.is_dir():
            inside = [path / name for name in _ANNOTATIONS if annotations and (path / name).is_dir()]
            if inside:
                notices.append(f"{path}: annotations are read from {' and '.join(f'{p.name}/' for p in inside)}")
            for folder in inside or [path]:
                files, more = _search(folder)
                found += files
                notices += more
        elif path.exists():
            found.append(str(path))
        else:
            raise FormatError("the file or folder does not exist", file=path, fix="check the path")
    unique = {os.path.realpath(file): file for file in found}
    if len(unique) < len(found):
        twice = next(f for f in found if found.count(f) > 1 or f not in unique.values())
        other = unique[os.path.realpath(twice)]
        cause = "the file is given twice" if other == twice else f"the file is the same as {other}"
        raise FormatError(cause, file=twice, fix="pass it once")
    return found, notices


def _search(folder: Path) -> tuple[list[str], list[str]]:
    """Return the files of a folder, and notices."""
    if (folder / RESULTS).is_file():
        # A folder written by `hmmjax stabilize`: this file holds all its results.
        unfinished = [f"{folder}: results of a run that has not finished"] if is_unfinished(folder) else []
        return [str(folder / RESULTS)], unfinished
    # Hidden files are not predictions: operating systems and killed writers leave them.
    shown = sorted((p for p in folder.iterdir() if not p.name.startswith(".")), key=lambda p: natural(p.name))
    readable = (*TEXT, *ARRAYS, *DOCUMENTS, *PICKLES)
    if lost := [p for p in shown if not p.exists() and p.suffix.lower() in readable]:
        raise FormatError(
            f"the link leads to no file, as do {len(lost) - 1} others"
            if len(lost) > 1
            else "the link leads to no file",
            file=lost[0],
            fix="restore or download the file, or remove the link",
        )
    inside = [p for p in shown if p.is_file()]
    files = [p for p in inside if p.suffix.lower() in (*TEXT, *ARRAYS) and "timestamp" not in p.name]
    files = [p for p in files if p.name not in _TABLES_OF_NAMES]
    # Documents among tables are settings or results of other programs.
    files = files or [p for p in inside if p.suffix.lower() in DOCUMENTS]
    files = files or [p for p in inside if p.suffix.lower() in PICKLES]
    # MS-TCN names its predictions like the videos, without a suffix.
    files = files or [p for p in inside if not p.suffix and p.read_bytes()[:3] == b"###"]
    if not files:
        packed = [p.name for p in inside if p.suffix.lower() in PACKED]
        raise FormatError(
            "the folder has no txt, csv, tsv, npz, npy, json, xml, eaf or pkl file",
            file=folder,
            fix=f"unpack {packed[0]} or save it as csv" if packed else "check the path",
        )
    ignored = [p.name for p in inside if p not in files]
    more = " ..." if len(ignored) > 5 else ""
    notices = [f"{folder}: ignored {', '.join(ignored[:5])}{more}"] if ignored else []
    return [str(p) for p in files], notices

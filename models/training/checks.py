"""Whether the parts of a run are about the same classes: what would go wrong in silence is said before it starts."""

import json
from pathlib import Path

from hmmjax.io import FormatError, load_params
from models.data.frames import FrameTable

_TRACKS = ("phases", "tools")


def check_tables(train: FrameTable, val: FrameTable) -> None:
    """See that two tables name the same classes in the same order.

    Args:
        train: of the frames to learn from.
        val: of the frames to judge by.

    Raises:
        FormatError: when they do not.
    """
    for track in _TRACKS:
        _same(names_of(train)[track], names_of(val)[track], track, "data.train", "data.val")


def check_classes(run: str | Path, table: FrameTable) -> None:
    """See that a run that goes on, or is begun with, has learned the classes of a table, in their order.

    Args:
        run: its folder.
        table: of the frames to learn from.

    Raises:
        FormatError: when it has not.
    """
    path = Path(run) / "classes.json"
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        found = {track: kept[track] for track in _TRACKS}
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"the classes of a run cannot be read ({error})", file=path) from error
    for track in _TRACKS:
        _same(found[track], names_of(table)[track], track, str(run), "data.train")


def check_model(path: str | Path, table: FrameTable) -> None:
    """See that a hidden Markov model is one of a table's classes, in their order; a model without names passes.

    Args:
        path: the model file.
        table: of the frames to learn from.

    Raises:
        FormatError: when it is not.
    """
    model = load_params(path)
    for track, known in names_of(table).items():
        names, count = getattr(model, f"{track[:-1]}_names"), getattr(model.params, f"num_{track}")
        if names is not None:
            _same(list(names), known, track, str(path), "data.train")
        elif count not in (0, len(known)):
            raise FormatError(f"{count} {track}, and the frames have {len(known)}", file=path)


def names_of(table: FrameTable) -> dict[str, list[str]]:
    """Names of a table's classes by track."""
    return {"phases": list(table.phase_names), "tools": list(table.tool_names)}


def _same(first: list[str], second: list[str], track: str, here: str, there: str) -> None:
    if list(first) != list(second):
        raise FormatError(
            f"the {track} of {here} are {', '.join(first) or 'none'}, and those of {there} are "
            f"{', '.join(second) or 'none'}",
            fix="give both the same classes in the same order",
        )

"""Class names: the usual sets, and matching that ignores case, spaces, underscores and hyphens."""

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from hmmjax.io.errors import FormatError

CHOLEC80_PHASES: tuple[str, ...] = (
    "Preparation",
    "CalotTriangleDissection",
    "ClippingCutting",
    "GallbladderDissection",
    "GallbladderPackaging",
    "CleaningCoagulation",
    "GallbladderRetraction",
)
#: The index order of CAMMA's TF-Cholec80: 4 and 6 change places.
TF_CHOLEC80_PHASES: tuple[str, ...] = (
    "Preparation",
    "CalotTriangleDissection",
    "ClippingCutting",
    "GallbladderDissection",
    "GallbladderRetraction",
    "CleaningCoagulation",
    "GallbladderPackaging",
)
M2CAI16_PHASES: tuple[str, ...] = ("TrocarPlacement", *CHOLEC80_PHASES)
CHOLEC80_TOOLS: tuple[str, ...] = ("Grasper", "Bipolar", "Hook", "Scissors", "Clipper", "Irrigator", "SpecimenBag")
CHOLECT50_TOOLS: tuple[str, ...] = ("Grasper", "Bipolar", "Hook", "Scissors", "Clipper", "Irrigator")

#: Names by which a class order can be asked for, per track.
PRESETS: dict[str, dict[str, tuple[str, ...]]] = {
    "phases": {"cholec80": CHOLEC80_PHASES, "tf-cholec80": TF_CHOLEC80_PHASES, "m2cai16": M2CAI16_PHASES},
    "tools": {"cholec80": CHOLEC80_TOOLS, "m2cai16": CHOLEC80_TOOLS, "cholect50": CHOLECT50_TOOLS},
}

Names = str | Sequence[str]


def fold(name: str) -> str:
    """The form in which two spellings of one class are equal."""
    return re.sub(r"[\s_\-]+", "", name).casefold()


def resolve_names(names: Names | None, track: str) -> tuple[str, ...] | None:
    """A class order from a preset's name, a list, a comma-separated string, or a text file with one name a line.

    Args:
        names: for instance ``"cholec80"``, ``["Grasper", "Hook"]``, ``"Grasper,Hook"``, ``"classes.txt"``.
        track: "phases" or "tools": where presets are looked up.

    Returns:
        The names in order, or None for None.

    Raises:
        FormatError: for an unknown preset and for repeated names.
    """
    if names is None:
        return None
    if isinstance(names, str):
        if names.lower() in PRESETS[track]:
            return PRESETS[track][names.lower()]
        if os.path.isfile(names):
            # m2cai16's class_list.txt numbers its lines ("1 Grasper").
            try:
                lines = Path(names).read_bytes().decode("utf-8-sig").splitlines()
            except UnicodeDecodeError:
                raise FormatError("this is no text file in UTF-8", file=names, fix="save the names as UTF-8") from None
            names = [re.sub(r"^\s*\d+\s+", "", line).strip() for line in lines if line.strip()]
        elif "," in names:
            names = [part.strip() for part in names.split(",")]
        else:
            presets = ", ".join(PRESETS[track])
            raise FormatError(
                f"unknown class order {names!r} for {track}",
                fix=f"give one of {presets}, a comma-separated list, or a file with one name a line",
            )
    result = tuple(names)
    seen: dict[str, str] = {}
    for name in result:
        if not name:
            raise FormatError(f"the class order for {track} has an empty name: {', '.join(map(repr, result))}")
        if fold(name) in seen:
            raise FormatError(f"the class order for {track} names {name!r} twice (also as {seen[fold(name)]!r})")
        seen[fold(name)] = name
    return result


def find_name(name: str, known: Sequence[str]) -> int | None:
    """Position of `name` in `known`, however it is spelled; None when it is not there."""
    folded = fold(name)
    return next((i for i, other in enumerate(known) if fold(other) == folded), None)


def unknown_name(name: str, known: Sequence[str], track: str, *, file: object = None, line: int | None = None):
    """The error for a class that is not in `known`: it lists the known names and guesses what was meant."""
    close = difflib.get_close_matches(fold(name), [fold(other) for other in known], n=1)
    guess = f" ({known[[fold(o) for o in known].index(close[0])]} was perhaps meant)" if close else ""
    option = "phase_names" if track == "phases" else "tool_names"
    return FormatError(
        f"unknown {track[:-1]} {name!r}{guess}",
        file=None if file is None else str(file),
        line=line,
        fix=f"known names are {', '.join(known)}; pass {option} if this file uses other classes",
    )


def permutation(have: Sequence[str], want: Sequence[str], track: str, source: str) -> list[int]:
    """For each wanted class, its position in `have`: ``values[..., permutation]`` is then in the wanted order.

    Raises:
        FormatError: when the two sets of names differ.
    """
    for name in have:
        if find_name(name, want) is None:
            raise unknown_name(name, want, track, file=source)
    result = []
    for name in want:
        position = find_name(name, have)
        if position is None:
            raise FormatError(
                f"no {track[:-1]} {name!r} among {', '.join(have)}",
                file=source,
                fix=f"all files must have the same {track}; add the missing one or name the classes explicitly",
            )
        result.append(position)
    return result

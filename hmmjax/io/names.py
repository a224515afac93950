"""Class names of common datasets, and matching that ignores case, spaces, underscores and hyphens."""

import difflib
import os
import re
import unicodedata
from collections.abc import Sequence

from hmmjax.io.decode import read_text_file
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
#: The index order of CAMMA's TF-Cholec80, in which phases 4 and 6 are swapped.
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

AUTOLAPARO_PHASES: tuple[str, ...] = (
    "Preparation",
    "Dividing Ligament and Peritoneum",
    "Dividing Uterine Vessels and Ligament",
    "Transecting the Vagina",
    "Specimen Removal",
    "Suturing",
    "Washing",
)
CATARACTS_PHASES: tuple[str, ...] = (
    "Idle",
    "Toric Marking",
    "Implant Ejection",
    "Incision",
    "Viscodilatation",
    "Capsulorhexis",
    "Hydrodissection",
    "Nucleus Breaking",
    "Phacoemulsification",
    "Vitrectomy",
    "Irrigation/Aspiration",
    "Preparing Implant",
    "Manual Aspiration",
    "Implantation",
    "Positioning",
    "OVD Aspiration",
    "Suturing",
    "Sealing Control",
    "Wound Hydration",
)
CATARACTS_TOOLS: tuple[str, ...] = (
    "Biomarker",
    "Charleux Cannula",
    "Hydrodissection Cannula",
    "Rycroft Cannula",
    "Viscoelastic Cannula",
    "Cotton",
    "Capsulorhexis Cystotome",
    "Bonn Forceps",
    "Capsulorhexis Forceps",
    "Troutman Forceps",
    "Needle Holder",
    "Irrigation/Aspiration Handpiece",
    "Phacoemulsifier Handpiece",
    "Vitrectomy Handpiece",
    "Implant Injector",
    "Primary Incision Knife",
    "Secondary Incision Knife",
    "Micromanipulator",
    "Suture Needle",
    "Mendez Ring",
    "Vannas Scissors",
)
PITVIS_PHASES: tuple[str, ...] = (
    "nasal_corridor_creation",
    "anterior_sphenoidotomy",
    "septum_displacement",
    "sphenoid_sinus_clearance",
    "sellotomy",
    "durotomy",
    "tumour_excision",
    "haemostasis",
    "synthetic_graft_placement",
    "fat_graft_placement",
    "gasket_seal_construct",
    "dural_sealant",
    "nasal_packing",
    "debris_clearance",
)
PITVIS_TOOLS: tuple[str, ...] = (
    "bipolar_forceps",
    "cottle",
    "cup_forceps",
    "dural_scissors",
    "freer_elevator",
    "haemostatic_foam",
    "irrigation_syringe",
    "kerrisons",
    "micro_doppler",
    "nasal_cutting_forceps",
    "pituitary_rongeurs",
    "retractable_knife",
    "ring_curette",
    "spatula_dissector",
    "stealth_pointer",
    "suction",
    "surgical_drill",
    "tissue_glue",
)

#: Named class orders, by track.
PRESETS: dict[str, dict[str, tuple[str, ...]]] = {
    "phases": {
        "cholec80": CHOLEC80_PHASES,
        "tf-cholec80": TF_CHOLEC80_PHASES,
        "m2cai16": M2CAI16_PHASES,
        "autolaparo": AUTOLAPARO_PHASES,
        "cataracts": CATARACTS_PHASES,
        "pitvis": PITVIS_PHASES,
    },
    "tools": {
        "cholec80": CHOLEC80_TOOLS,
        "m2cai16": CHOLEC80_TOOLS,
        "cholect50": CHOLECT50_TOOLS,
        "cataracts": CATARACTS_TOOLS,
        "pitvis": PITVIS_TOOLS,
    },
}

Names = str | Sequence[str]


def fold(name: str) -> str:
    """Return the form in which all spellings of a class name are equal: case, blanks (also without width), accents."""
    return re.sub(r"[\s_\-\u200b-\u200d\u2060\ufeff\u00ad]+", "", unicodedata.normalize("NFKC", name)).casefold()


def names_for(names: Names | None, track: str, count: int, *, more: bool = False) -> tuple[str, ...] | None:
    """Return the names of so many classes, given as in `resolve_names`.

    Args:
        names: as in `resolve_names`.
        track: "phases" or "tools".
        count: number of classes.
        more: accept names of further classes, which do not occur.

    Returns:
        The names in order, or None if `names` is None.

    Raises:
        FormatError: if `resolve_names` refuses them, or their number is another.
    """
    found = resolve_names(names, track)
    if found is not None and (len(found) < count or (len(found) > count and not more)):
        raise FormatError(
            f"{track[:-1]}_names has {len(found)} names, but there are {count} {track}",
            fix=f"name every {track[:-1]}, in the order of the indices",
        )
    return found


def resolve_names(names: Names | None, track: str) -> tuple[str, ...] | None:
    """Return a class order given as a preset, a list, a comma-separated string, or a text file with one name per line.

    Args:
        names: for instance ``"cholec80"``, ``["Grasper", "Hook"]``, ``"Grasper,Hook"`` or ``"classes.txt"``.
        track: "phases" or "tools", which determines the presets.

    Returns:
        The names in order, or None if `names` is None.

    Raises:
        FormatError: if the preset is unknown, or a name is empty or repeated.
    """
    if names is None:
        return None
    if isinstance(names, str):
        if names.lower() in PRESETS[track]:
            return PRESETS[track][names.lower()]
        if os.path.isfile(names):
            # m2cai16's class_list.txt numbers its lines ("1 Grasper").
            lines = read_text_file(names).splitlines()
            names = [re.sub(r"^\s*\d+\s+", "", line).strip() for line in lines if line.strip()]
        elif "," in names:
            names = [part.strip() for part in names.split(",")]
        else:
            presets = ", ".join(PRESETS[track])
            raise FormatError(
                f"unknown class order {names!r} for {track}",
                fix=f"pass one of {presets}, a comma-separated list, or a file with one name per line",
            )
    result = tuple(names)
    seen: dict[str, str] = {}
    for name in result:
        if not name:
            raise FormatError(
                f"the class order for {track} has an empty name: {', '.join(map(repr, result))}",
                fix="remove it, or name the class",
            )
        if fold(name) in seen:
            raise FormatError(
                f"the class order for {track} lists {name!r} twice (also as {seen[fold(name)]!r})",
                fix="keep one of them",
            )
        seen[fold(name)] = name
    return result


def find_name(name: str, known: Sequence[str]) -> int | None:
    """Return the position of a name among known ones in any spelling, or None if it is not among them."""
    folded = fold(name)
    return next((i for i, other in enumerate(known) if fold(other) == folded), None)


def unknown_name(
    name: str, known: Sequence[str], track: str, *, file: object = None, line: int | None = None
) -> FormatError:
    """Return the error for an unknown class name, which lists the known names and suggests the closest."""
    close = difflib.get_close_matches(fold(name), [fold(other) for other in known], n=1)
    guess = f" (did you mean {known[[fold(o) for o in known].index(close[0])]}?)" if close else ""
    option = "phase_names" if track == "phases" else "tool_names"
    return FormatError(
        f"unknown {track[:-1]} {name!r}{guess}",
        file=None if file is None else str(file),
        line=line,
        fix=f"use one of {', '.join(known)}, or pass {option} if this file has other classes",
    )


def permutation(have: Sequence[str], want: Sequence[str], track: str, source: str) -> list[int]:
    """Return the position in `have` of each class in `want`: ``values[..., permutation]`` is in the order of `want`.

    Raises:
        FormatError: if the two sets of names differ.
    """
    for name in have:
        if find_name(name, want) is None:
            raise unknown_name(name, want, track, file=source)
    result = []
    for name in want:
        position = find_name(name, have)
        if position is None:
            raise FormatError(
                f"{track[:-1]} {name!r} is not among {', '.join(have)}",
                file=source,
                fix=f"give all files the same {track}, or declare the class names",
            )
        result.append(position)
    return result

"""A manifest: one YAML or CSV file that lists a collection's videos and their annotations.

    name: lobectomy
    phases: [Exploration, Dissection, Stapling, Extraction]
    tools: [Grasper, Hook, Stapler]
    fps: 25          # frames per second of Frame columns and videos; may be given per video
    rate: 1          # frames per second to use
    videos:
      - {id: case001, video: videos/case001.mp4, phases: labels/case001-phase.txt, tools: labels/case001-tool.txt}
      - {id: case002, video: videos/case002.mp4, tools: labels/case002-tool.txt, partial: true}
      - {id: case003, images: frames/case003, naming: second, part: test}

Paths are relative to the manifest. A CSV file has the columns id, video, images, naming, phases, tools, partial, fps,
part and first_index (only id is required); class names are in phases.txt and tools.txt in the same folder, one name per
line. The collection is named like the file, fps is 25 if blank, and one frame per second from 0 is used: setting name,
rate and offset requires YAML. Annotation files have Cholec80's format (Frame, then a phase name, or one column per
tool), or any other that `hmmjax.io` reads; phases that are numbered from 1, as AutoLaparo's, need ``first_index: 1``.
In a partial annotation rows may be missing, and -1 is unknown.
"""

import csv
import dataclasses
import io
import math
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hmmjax.data.splits import check_disjoint
from hmmjax.io import FormatError, natural, resolve_names
from models.data.collections import Collection, Recording

_FILES = ("video", "images", "phases", "tools")
_FIELDS = tuple(field.name for field in dataclasses.fields(Recording))
_TOP = ("name", "phases", "tools", "fps", "rate", "offset", "videos")


def read_manifest(path: str | os.PathLike[str], *, allow_overlap: bool = False) -> Collection:
    """Read a collection from its manifest.

    Args:
        path: a .yaml, .yml or .csv file.
        allow_overlap: whether one recording may be in several parts.

    Raises:
        FormatError: for unknown or repeated fields, missing files, repeated videos, a recording in two parts,
            annotations without class names, and invalid numbers; with the manifest and the line or video.
    """
    path = Path(path)
    if not path.is_file():
        raise FormatError("no such manifest", file=path, fix="check the path")
    if path.suffix.lower() == ".csv":
        top, rows = _read_csv(path)
    elif path.suffix.lower() in (".yaml", ".yml"):
        top, rows = _read_yaml(path)
    else:
        raise FormatError("not a manifest", file=path, fix="give a .yaml or .csv file")
    fps = _number(top.get("fps", 25), "fps", path)
    recordings = [_recording(row, line, fps, path) for line, row in rows]
    if not recordings:
        raise FormatError("the manifest lists no videos", file=path, fix="add videos")
    parts: dict[str, list[str]] = {}
    for recording in recordings:
        parts.setdefault(recording.part, []).append(recording.id)
    names = [recording.id for recording in recordings]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FormatError(f"{twice} is listed twice", file=path, fix="give every video a different id")
    if not allow_overlap:
        check_disjoint({part or "no part": ids for part, ids in parts.items()})
    phases, tools = (resolve_names(top.get(kind), kind) or () for kind in ("phases", "tools"))
    offset = _number(top.get("offset", 0), "offset", path)
    if not offset.is_integer():
        raise FormatError(f"offset is {offset:g}, expected a frame number", file=path, fix="give a whole number")
    for recording in recordings:
        for kind, have in (("phases", phases), ("tools", tools)):
            if getattr(recording, kind) is not None and not have:
                raise FormatError(
                    f"{recording.id} has annotated {kind}, but the manifest does not name any",
                    file=path,
                    fix=f"list the names of the {kind} in the manifest",
                )
    return Collection(
        name=str(top.get("name", path.stem)),
        recordings=tuple(sorted(recordings, key=lambda r: natural(r.id))),
        phase_names=phases,
        tool_names=tools,
        rate=_number(top.get("rate", 1), "rate", path),
        offset=int(offset),
    )


def _read_yaml(path: Path) -> tuple[dict[str, Any], list[tuple[int | None, dict[str, Any]]]]:
    import yaml

    try:
        top = yaml.load(_text(path), _strict_loader())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise FormatError(f"damaged YAML ({getattr(error, 'problem', error)})", file=path, line=line) from None
    if not isinstance(top, Mapping) or not isinstance(top.get("videos"), list):
        raise FormatError("the manifest has no list called videos", file=path, fix="add one")
    _only_known(top, _TOP, "", None, path)
    for kind in ("phases", "tools"):
        names = top.get(kind)
        if isinstance(names, list):
            for name in names:
                if isinstance(name, bool) or not isinstance(name, str | int | float):
                    raise FormatError(
                        f"{kind} contains {name!r}, expected a name", file=path, fix="put names in quotes"
                    )
            top = {**top, kind: [str(name) for name in names]}
        elif not isinstance(names, str | None):
            raise FormatError(f"{kind} is {names!r}, expected a list of names", file=path)
    rows = []
    for position, row in enumerate(top["videos"], 1):
        if not isinstance(row, Mapping):
            raise FormatError(f"video {position} should be a mapping with an id, found {row!r}", file=path)
        rows.append((None, dict(row)))
    return dict(top), rows


def _strict_loader() -> type:
    """Return a YAML loader that rejects repeated keys, of which the last would win, and aliases, which can expand a
    small file without bound.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark
                raise yaml.MarkedYAMLError(problem="an alias is not allowed: repeat the value", problem_mark=mark)
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: list[Any] = []
            for key, _ in node.value:
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} is repeated", problem_mark=key.start_mark
                    )
                seen.append(key.value)
            return super().construct_mapping(node, deep)

    return Loader


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise FormatError("not a text file in UTF-8", file=path, fix="save it as UTF-8") from None


def _read_csv(path: Path) -> tuple[dict[str, Any], list[tuple[int | None, dict[str, Any]]]]:
    reader = csv.DictReader(io.StringIO(_text(path), newline=""))
    columns = [column.strip() for column in reader.fieldnames or ()]
    if len(columns) == 1 and ";" in columns[0]:
        raise FormatError(
            "cells are separated by ';'",
            file=path,
            line=1,
            fix="export with commas as separators and points in numbers",
        )
    if "id" not in columns:
        raise FormatError("the column id is missing", file=path, line=1, fix=f"columns are {', '.join(_FIELDS)}")
    if twice := [column for column, count in Counter(columns).items() if count > 1]:
        raise FormatError(f"the column {twice[0]} is repeated", file=path, line=1, fix="keep one")
    rows: list[tuple[int | None, dict[str, Any]]] = []
    for row in reader:
        if None in row or None in row.values():
            raise FormatError("the number of cells differs from that of columns", file=path, line=reader.line_num)
        rows.append((reader.line_num, {k.strip(): v.strip() for k, v in row.items() if v.strip()}))
    top = {kind: str(path.parent / f"{kind}.txt") for kind in ("phases", "tools")}
    return {kind: file for kind, file in top.items() if os.path.isfile(file)}, rows


def _recording(row: dict[str, Any], line: int | None, fps: float, path: Path) -> Recording:
    name = row.get("id", "")
    if not isinstance(name, str):
        raise FormatError(
            f"the id {name!r} is not text", file=path, fix=f'put it in quotes, such as "{name}", with leading zeros'
        )
    if not name.strip():
        raise FormatError("a video has no id", file=path, line=line)
    _only_known(row, _FIELDS, f"{name}: ", line, path)
    values: dict[str, Any] = {"fps": fps, **row, "id": name.strip()}
    for kind in _FILES:
        if values.get(kind) is not None:
            target = path.parent / str(values[kind])
            if not target.exists():
                raise FormatError(f"{name}: no such {kind} {values[kind]}", file=path, line=line)
            values[kind] = str(target)
    if values.get("images") is not None and values.get("naming") is None:
        raise FormatError(
            f"{name}: the meaning of the numbers in the image names is not declared",
            file=path,
            line=line,
            fix="declare naming: frame, second or counter",
        )
    partial = values.get("partial", False)
    if isinstance(partial, str):
        if partial.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise FormatError(f"{name}: partial is {partial!r}, expected true or false", file=path, line=line)
        partial = partial.lower() in ("true", "yes", "1")
    values["partial"] = bool(partial)
    values["fps"] = _number(values["fps"], f"{name}: fps", path, line)
    first = str(values.get("first_index", 0))
    if first not in ("0", "1"):
        raise FormatError(f"{name}: first_index is {first!r}, expected 0 or 1", file=path, line=line)
    values["first_index"] = int(first)
    values["part"] = "" if values.get("part") is None else str(values["part"])
    return Recording(**values)


def _only_known(row: Mapping[str, Any], known: tuple[str, ...], of: str, line: int | None, path: Path) -> None:
    for field in row:
        if field not in known:
            fix = f"fields are {', '.join(known)}"
            raise FormatError(f"{of}unknown field {field!r}", file=path, line=line, fix=fix)


def _number(value: Any, what: str, path: Path, line: int | None = None) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        raise FormatError(f"{what} should be a number, found {value!r}", file=path, line=line) from None
    if not math.isfinite(number) or number < 0 or (number == 0 and "offset" not in what):
        raise FormatError(
            f"{what} is {value}, expected a {'number from 0' if 'offset' in what else 'positive number'}",
            file=path,
            line=line,
        )
    return number

"""Read annotations in JSON and XML: Label Studio, ELAN (.eaf), CVAT, MultiBypass140 and CholecT50."""

import json
import xml.etree.ElementTree as ElementTree
from typing import Any

from hmmjax.io.errors import FormatError
from hmmjax.io.segment_files import KNOWN_TOOLS
from hmmjax.io.segments import Segment, tracks_of
from hmmjax.io.spec import Spec
from hmmjax.io.tracks import Track
from hmmjax.io.triplets import read_triplets
from hmmjax.io.videos import ids_of_paths, video_id

_FIX = "export segments as csv with the columns start, end and label, or one row per frame (Frame, Phase)"


def read_document(file: str, text: str, spec: Spec) -> list[Track]:
    """Read the annotations of a JSON or XML file.

    Raises:
        FormatError: the file is damaged, or of no known layout.
    """
    if text.lstrip()[:1] == "<":
        return tracks_of(file, _read_xml(file, text), spec)
    try:
        content = json.loads(text)
    except ValueError as error:
        raise FormatError(f"the file is not valid JSON ({error})", file=file, fix="export it again") from None
    if isinstance(content, list) and content and all(isinstance(task, dict) for task in content):
        return tracks_of(file, _label_studio(file, content), spec)
    if isinstance(content, dict) and {"annotations", "categories"} <= set(content):
        return read_triplets(file, content, spec)
    if isinstance(content, dict) and content and all(key.isdigit() for key in content):
        return tracks_of(file, _frames(file, content), spec)
    raise FormatError(
        "this JSON layout is not known (Label Studio, CholecT50 and MultiBypass140 are)", file=file, fix=_FIX
    )


def _label_studio(file: str, tasks: list[dict[str, Any]]) -> list[Segment]:
    """Timeline labels are ranges of frames, from 1 on, the last one included; regions of audio are in seconds."""
    found = []
    contents = [task.get("data") or {} for task in tasks]
    names = [[v for key, v in c.items() if isinstance(v, str) and "video" in key.lower()] for c in contents]
    videos = ids_of_paths(file, [(i, own[0] if own else "") for i, own in enumerate(names, 1)])
    for i, (task, data, video) in enumerate(zip(tasks, contents, videos, strict=True), 1):
        video = video or video_id(file)
        for a, b in data.get(KNOWN_TOOLS) or []:
            found.append(Segment(video, a - 1, b - 1, "", i, tier="tools"))
        for result in _results(task):
            value = result.get("value") or {}
            labels = value.get("timelinelabels") or value.get("labels") or []
            try:
                if "ranges" in value:
                    spans = [(int(r["start"]) - 1, int(r["end"]) - 1, None) for r in value["ranges"]]
                else:
                    spans = [(float(value["start"]), float(value["end"]), 1.0)] if labels else []
            except (KeyError, TypeError, ValueError):
                raise FormatError(
                    f"a range of task {i} has no start and end", file=file, fix="export it again"
                ) from None
            found += [Segment(video, a, b, str(label), i, fps) for a, b, fps in spans for label in labels]
    if not found:
        raise FormatError("no task has timeline labels", file=file, fix=_FIX)
    return found


def _results(task: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        result
        for annotation in task.get("annotations") or task.get("completions") or []
        for result in annotation.get("result") or []
        if isinstance(result, dict)
    ]


def _frames(file: str, content: dict[str, Any]) -> list[Segment]:
    """MultiBypass140: a phase (and a step, which is not read) of every frame."""
    rows: list[tuple[int, str]] = []
    for key in sorted(content, key=int):
        row = content[key]
        phase = row.get("phase") if isinstance(row, dict) else row
        if not isinstance(phase, int | str):
            raise FormatError(f"frame {key} has no phase", file=file, fix=_FIX)
        rows.append((int(key), str(phase)))
    return _runs(video_id(file), rows)


def _runs(video: str, rows: list[tuple[int, str]]) -> list[Segment]:
    """Return the runs of frames with one label, from rows of frame and label in order."""
    found: list[Segment] = []
    for frame, label in rows:
        if found and found[-1].label == label and found[-1].end == frame - 1:
            found[-1] = found[-1]._replace(end=frame)
        else:
            found.append(Segment(video, frame, frame, label, 1))
    return found


def _read_xml(file: str, text: str) -> list[Segment]:
    if "<!ENTITY" in text:
        raise FormatError("the file defines entities, which are not read", file=file, fix="export it again")
    try:
        root = ElementTree.fromstring(text.encode())
    except ElementTree.ParseError as error:
        raise FormatError(f"the file is not valid XML ({error})", file=file, fix="export it again") from None
    if root.tag == "ANNOTATION_DOCUMENT":
        return _elan(file, root)
    if root.tag == "annotations":
        return _cvat(file, root)
    raise FormatError("this XML layout is not known (ELAN and CVAT are)", file=file, fix=_FIX)


def _elan(file: str, root: ElementTree.Element) -> list[Segment]:
    """Alignable annotations of all tiers; times are milliseconds."""
    times = {slot.get("TIME_SLOT_ID"): slot.get("TIME_VALUE") for slot in root.iter("TIME_SLOT")}
    found = []
    items = [(tier.get("TIER_ID") or "", x) for tier in root.iter("TIER") for x in tier.iter("ALIGNABLE_ANNOTATION")]
    for tier, item in items:
        start, end = (times.get(item.get(name)) for name in ("TIME_SLOT_REF1", "TIME_SLOT_REF2"))
        label = (item.findtext("ANNOTATION_VALUE") or "").strip()
        if start is None or end is None:
            raise FormatError(f"the annotation {label!r} has no time", file=file, fix="align it in ELAN")
        found.append(Segment(video_id(file), int(start) / 1e3, int(end) / 1e3, label, 1, 1.0, tier))
    return found


def _cvat(file: str, root: ElementTree.Element) -> list[Segment]:
    """Tags of images; the image's id is its frame."""
    rows: dict[str, list[tuple[int, str]]] = {}
    for image in root.iter("image"):
        frame = image.get("id") or ""
        if not frame.isdigit():
            raise FormatError("an image has no number", file=file, fix="export 'CVAT for images'")
        for tag in image.iter("tag"):
            label = tag.get("label") or ""
            rows.setdefault(label, []).append((int(frame), label))
    found = [segment for own in rows.values() for segment in _runs(video_id(file), sorted(own))]
    if not found:
        raise FormatError("no image has a tag", file=file, fix="export 'CVAT for images' with tags of phases")
    return found

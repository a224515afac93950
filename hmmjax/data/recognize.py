"""Recognize the layouts of annotation files that `hmmjax data formats` lists, by contents and the data sets' names."""

import re
from collections.abc import Callable
from pathlib import Path

from hmmjax.data.formats import FORMATS, Format
from hmmjax.io.challenges import is_mstcn, is_pitvis
from hmmjax.io.columns import column_of
from hmmjax.io.decode import read_text_file
from hmmjax.io.find import PICKLES
from hmmjax.io.names import (
    CATARACTS_TOOLS,
    CHOLEC80_PHASES,
    CHOLEC80_TOOLS,
    M2CAI16_PHASES,
    find_name,
)
from hmmjax.io.segment_rows import is_segments
from hmmjax.io.table import delimiter_of, is_number, split_cells

_BY_NAME = {layout.name: layout for layout in FORMATS}


class _Head:
    """The beginning of a file: its name, first line, and the cells of its first two lines."""

    def __init__(self, path: Path, text: str) -> None:
        self.name, self.folder, self.text = path.name.lower(), path.parent.name.lower(), text
        lines = [line for line in text.splitlines() if line.strip(" \t,;")] or [""]
        self.first = lines[0]
        self.delimiter = delimiter_of(lines[0], lines[min(1, len(lines) - 1)])
        self.title = split_cells(self.first, self.delimiter if self.delimiter in self.first else " ")
        self.row = split_cells(lines[min(1, len(lines) - 1)], self.delimiter)
        self.has_title = not is_number(self.title[0])

    def named(self, pattern: str) -> bool:
        """Whether the file's name, in lower case, is as in a data set whose layout others use too."""
        return re.fullmatch(pattern, self.name) is not None

    def names(self, known: tuple[str, ...]) -> int:
        """Return how many titles after the first are among known names."""
        return sum(find_name(cell, known) is not None for cell in self.title[1:] if cell)

    def phases(self, known: tuple[str, ...]) -> bool:
        """Whether this is a column of frames and one of phases, the first of which is among known names."""
        one = self.has_title and len(self.title) == 2 and column_of(self.title[0]).role == "frame"
        return one and find_name(self.row[1], known) is not None


#: Names of layouts and tests of a file's beginning, the most particular first.
_TESTS: tuple[tuple[str, Callable[[_Head], bool]], ...] = (
    ("CholecT50", lambda h: '"categories"' in h.text and h.text.lstrip().startswith("{")),
    ("Label Studio", lambda h: h.text.lstrip().startswith("[") and '"annotations"' in h.text),
    ("MultiBypass140", lambda h: re.match(r'\s*\{\s*"\d+"\s*:', h.text) is not None),
    ("ELAN, tab-delimited text", lambda h: "<ANNOTATION_DOCUMENT" in h.text),
    ("CVAT for images", lambda h: "<annotations" in h.text),
    ("PitVis", lambda h: is_pitvis(h.first)),
    ("MS-TCN", lambda h: is_mstcn(h.first)),
    ("BORIS", lambda h: {"time", "label"} <= {column_of(c).role for c in h.title} and "status" in h.first.lower()),
    ("ELAN, tab-delimited text", lambda h: len(re.findall(r"\t\d+:\d\d:\d\d\.\d+(?=\t)", h.first)) >= 2),
    ("JIGSAWS", lambda h: is_segments(h.first) and is_number(h.title[0]) and len(h.title) == 3),
    ("timecodes", lambda h: is_segments(h.first) and ":" in h.title[0]),
    ("Cataract-101", lambda h: is_segments(h.first) and "frame" in {column_of(c).role for c in h.title}),
    ("segments", lambda h: is_segments(h.first)),
    ("M2CAI16-tool", lambda h: h.names(CHOLEC80_TOOLS) == 7 and ("tool_video" in h.name or h.first.endswith("\t"))),
    ("Cholec80, tools", lambda h: h.names(CHOLEC80_TOOLS) == 7 and h.named(r"video\d+-tool\.txt")),
    ("CATARACTS, tools", lambda h: h.has_title and h.names(CATARACTS_TOOLS) >= max(len(h.title) - 1, 1)),
    ("CATARACTS, steps", lambda h: [c.lower() for c in h.title] in (["frame", "steps"], ["frame", "step"])),
    ("M2CAI16-workflow", lambda h: "workflow" in h.name or h.phases(M2CAI16_PHASES[:1])),
    ("Cholec80, phases", lambda h: h.phases(CHOLEC80_PHASES) and h.named(r"video\d+-phase\.txt")),
    (
        "AutoLaparo",
        lambda h: h.has_title and h.named(r"label_?\d+\.txt") and len(h.row) == 2 and all(map(is_number, h.row)),
    ),
    ("HeiChole, phases", lambda h: h.named(r"hei-?chole.*") and len(h.title) == 2 and is_number(h.first[0])),
    (
        "HeiChole, instruments",
        lambda h: h.named(r"hei-?chole.*") and h.delimiter == "," and all(map(is_number, h.title)),
    ),
    ("CholecT45", lambda h: h.delimiter == "," and len(h.title) == 7 and all(map(is_number, h.title))),
    ("MS-TCN", lambda h: len(h.title) == len(h.row) == 1 and find_name(h.first, M2CAI16_PHASES) is not None),
)


def recognize(file: str) -> Format | None:
    """Return the layout of an annotation file, None if it is none of those that `hmmjax data formats` lists.

    Args:
        file: the file's path; of layouts that look alike, the data sets' own file names tell which it is.

    Raises:
        FormatError: the file cannot be read, or is not text.
    """
    path = Path(file)
    if path.suffix.lower() in PICKLES:
        return _BY_NAME["TeCNO"]
    if path.suffix.lower() in (".npz", ".npy"):
        return None
    head = _Head(path, read_text_file(file))
    return next((_BY_NAME[name] for name, matches in _TESTS if matches(head)), None)

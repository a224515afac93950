"""Every layout that `hmmjax data formats` lists is read with the options that it names."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from commands import run

from hmmjax import io
from hmmjax.data.formats import FORMATS

#: Frames of each phase or tool in the examples, and their counter, by hand.
COUNTS = {
    "Cholec80, phases": [3, 1],
    "Cholec80, tools": [2, 0, 2],
    "M2CAI16-workflow": [2, 2],
    "AutoLaparo": [2, 2],
    "HeiChole, phases": [2, 2],
    "HeiChole, instruments": [3, 0, 2],
    "Cataract-101": [500, 900, 1],
    "MultiBypass140": [2, 1],
    "JIGSAWS": [205, 108, 150],
    "segments": [4105, 19745],
    "timecodes": [4100, 19750, 1],
    "ELAN, tab-delimited text": [4105, 19745],
    "BORIS": [4105],
    "Label Studio": [4105],
    "CVAT for images": [2],
}


@pytest.mark.parametrize("layout", FORMATS, ids=lambda f: f.name)
def test_a_layout_is_read_as_its_command_says(layout, tmp_path):
    path = tmp_path / layout.file
    path.write_text(layout.lines)
    options = shlex.split(" ".join(layout.options))
    read = {
        key.removeprefix("--").replace("-", "_"): value for key, value in zip(options[::2], options[1::2], strict=True)
    }
    for name, kind in (("fps", float), ("first_index", int)):
        if name in read:
            read[name] = kind(read[name])
    track = io.read_annotations(path, **read)[0]
    known = track.values if track.track == "tools" else np.eye(60, dtype=int)[track.values[track.values >= 0]]
    counts = known.sum(0)
    wanted = COUNTS[layout.name]
    assert counts[: len(wanted)].tolist() == wanted and not counts[len(wanted) :].any()


def test_the_page_shows_them():
    page = Path("docs/how-to/layouts.md").read_text()
    for layout in FORMATS:
        assert f"## {layout.name}\n" in page and f"```text\n{layout.lines}```" in page and layout.command in page


def test_the_command_lists_them():
    text = run("data", "formats").stdout
    assert all(f.name in text and f.command in text for f in FORMATS)
    assert [f["name"] for f in json.loads(run("data", "formats", "--json").stdout)] == [f.name for f in FORMATS]

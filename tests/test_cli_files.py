"""Files as people have them, from the command line: the same video in many forms gives the same metrics."""

import json

import numpy as np
import pytest
from commands import run

P = ("Preparation", "CalotTriangleDissection", "ClippingCutting")
#: Predicted phases of twelve seconds; the annotations differ in three.
PREDICTED = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
TRUE = np.array([0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 1])


def rows(separator, labels=TRUE, end="\n", names=P, frame="{}", head=("Frame", "Phase"), tail=""):
    """Return a table of the annotations with one row per second."""
    lines = [separator.join(head) + tail]
    lines += [frame.format(25 * i) + separator + names[p] + tail for i, p in enumerate(labels)]
    return end.join(lines) + end


UPPER = [name.upper() for name in P]
FORMS = {
    "Excel, semicolons": ("video01.csv", "\ufeff" + rows(";", end="\r\n", tail=";;")),
    "quoted by R": ("video01.csv", rows(",", names=[f'"{n}"' for n in P], head=('"Frame"', '"Phase"'))),
    "an index by pandas": (
        "video01.csv",
        ",Frame,Phase\n" + "".join(f"{i},{25.0 * i},{P[p]}\n" for i, p in enumerate(TRUE)),
    ),
    "upper case, padded": ("VIDEO01.TXT", rows("\t", names=[f" {n} " for n in UPPER])),
    "words apart": ("Video 1.txt", rows("\t", names=["preparation", "calot triangle dissection", "Clipping-Cutting"])),
    "UTF-16 without a mark": ("video01.txt", rows("\t").encode("utf-16-le")),
    "spaces between cells": ("video_01-phase.txt", rows(" ")),
    "more rows than needed": ("video01.csv", rows(",") + ",\n\n,,\n"),
    "segments with stops": (
        "video01.csv",
        "Video name;Phase name;Start time;Stop time\n"
        "video01.mp4;Preparation;0:00;0:03\nvideo01.mp4;CalotTriangleDissection;0:03;0:09\n"
        "video01.mp4;ClippingCutting;0:09;0:11\nvideo01.mp4;CalotTriangleDissection;0:11;0:12\n",
    ),
    "starts, and a comma as the decimal": (
        "video01.csv",
        "Phase\tStart (s)\nPreparation\t0,0\nCalotTriangleDissection\t3,0\nClippingCutting\t9,0\n"
        "CalotTriangleDissection\t11,0\n",
    ),
    "timecodes": (
        "video01.txt",
        "00:00:00:00 Preparation\n00:00:03:00 CalotTriangleDissection\n00:00:09:00 ClippingCutting\n"
        "00:00:11:00 CalotTriangleDissection\n",
    ),
}


@pytest.fixture
def predicted(tmp_path):
    folder = tmp_path / "predictions of Müller"
    folder.mkdir()
    (folder / "video01-phase.txt").write_text(rows("\t", PREDICTED))
    return f"{folder}/"


@pytest.mark.parametrize("form", FORMS)
def test_annotations_in_any_form(tmp_path, predicted, form):
    name, text = FORMS[form]
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    found = json.loads(run("evaluate", predicted, "--truth", f"{tmp_path}/labels/", "--json").stdout)
    (row,) = [r for r in found["table"] if r["figure"] == "phase accuracy, pooled"]
    assert (row["value"], row["frames"]) == ((PREDICTED == TRUE).mean(), 12)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the file is empty"),
        ("Frame,Phase\n", "a header but no rows"),
        (rows(",") + "275,Preparation\n", "frame 275 is listed twice (first on line 13)"),
        (rows(",").replace("\n25,", "\n25"), "expected 2 columns"),
        (rows(";").replace("\n25;", "\n1.025;"), "write 1025, without separators of thousands"),
        (rows(",").replace("ClippingCutting", "Cliping", 1), "did you mean ClippingCutting?"),
        (rows(",").encode("utf-16-le") + b"x", "is not UTF-8 text"),
        (rows(",", names=["Pr\u00e9paration", *P[1:]]).encode("latin-1"), "In Windows-1252 (Latin-1) the line reads"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(tmp_path, predicted, text, what):
    file = tmp_path / "video01.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    error = run("evaluate", predicted, "--truth", file, code=2).stderr
    assert what in error and "Fix: " in error and error.count("\n") == 1


def test_a_video_of_one_row(tmp_path, predicted):
    (tmp_path / "video01.csv").write_text("Frame,Phase\n275,ClippingCutting\n")
    found = json.loads(run("evaluate", predicted, "--truth", tmp_path / "video01.csv", "--json").stdout)
    (row,) = [r for r in found["table"] if r["figure"] == "phase accuracy, pooled"]
    assert (row["value"], row["frames"]) == (1, 1)

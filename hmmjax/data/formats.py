"""Layouts of annotations and predictions that `hmmjax` reads: some lines of each, and the command that reads it."""

import shlex
from typing import Any, NamedTuple


class Format(NamedTuple):
    """One layout.

    Attributes:
        name: the data set or program.
        file: name of the example's file.
        lines: the beginning of a file; of a pickle, the Python code that writes one.
        options: options of the commands that such files need.
        note: what to know about it.
    """

    name: str
    file: str
    lines: str
    options: tuple[str, ...] = ()
    note: str = ""

    @property
    def command(self) -> str:
        """The command that explores such annotations."""
        return " ".join(("hmmjax explore", self.file, *self.options, "--out explored"))

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `hmmjax.io.read` that stand for the options."""
        words = shlex.split(" ".join(self.options))
        found: dict[str, Any] = {
            key.removeprefix("--").replace("-", "_"): value for key, value in zip(words[::2], words[1::2], strict=True)
        }
        return found | {
            name: kind(found[name]) for name, kind in (("fps", float), ("first_index", int)) if name in found
        }


_GESTURES = "G1,G2,G3"

FORMATS: tuple[Format, ...] = (
    Format(
        "Cholec80, phases",
        "video01-phase.txt",
        "Frame\tPhase\n0\tPreparation\n1\tPreparation\n2\tPreparation\n3\tCalotTriangleDissection\n",
        note="every frame at 25 per second",
    ),
    Format(
        "Cholec80, tools",
        "video01-tool.txt",
        "Frame\tGrasper\tBipolar\tHook\tScissors\tClipper\tIrrigator\tSpecimenBag\n0\t1\t0\t0\t0\t0\t0\t0\n"
        "25\t1\t0\t1\t0\t0\t0\t0\n50\t0\t0\t1\t0\t0\t0\t0\n",
        note="every 25th frame",
    ),
    Format(
        "M2CAI16-workflow",
        "workflow_video_01.txt",
        "Frame\tPhase\n0\tTrocarPlacement\n1\tTrocarPlacement\n2\tPreparation\n3\tPreparation\n",
        ("--phase-names m2cai16",),
    ),
    Format(
        "M2CAI16-tool",
        "tool_video_01.txt",
        "Frame\tGrasper\tBipolar\tHook\tScissors\tClipper\tIrrigator\tSpecimenBag\t\n0\t1\t0\t0\t0\t0\t0\t0\t\n"
        "25\t1\t0\t1\t0\t0\t0\t0\t\n50\t0\t0\t1\t0\t0\t0\t0\t\n",
        note="where names differ from those of other files: --rename tool_video_11=video61",
    ),
    Format(
        "CholecT50",
        "VID01.json",
        '{"fps": 1, "categories": {"instrument": {"0": "grasper", "1": "bipolar", "2": "hook"},\n'
        ' "phase": {"0": "preparation", "1": "carlot-triangle-dissection"}}, "annotations": {\n'
        ' "0": [[17, 0, 1, 0.1, 0.2, 0.3, 0.4, 1, 0, 1, -1, -1, -1, -1, 0]],\n'
        ' "1": [[60, 2, 1, 0.1, 0.2, 0.3, 0.4, 2, 0, 1, -1, -1, -1, -1, 1],\n'
        "       [94, -1, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1]]}}\n",
        note="instruments and phases, these with Cholec80's names; verbs and targets are not read",
    ),
    Format(
        "CholecT45",
        "VID01.txt",
        "0,1,0,0,0,0,0\n1,1,0,1,0,0,0\n2,0,0,1,0,0,0\n",
        ("--tool-names cholect50", "--fps 1"),
        "the folder instrument/; triplets, verbs and targets are not read",
    ),
    Format(
        "AutoLaparo",
        "label_01.txt",
        "Frame\tPhase\n1\t1\n2\t1\n3\t2\n4\t2\n",
        ("--phase-names autolaparo", "--fps 1", "--first-index 1"),
        "seconds and phases are both numbered from 1",
    ),
    Format(
        "PitVis",
        "annotations_01.csv",
        "int_video,int_time,int_step,int_instrument1,int_instrument2\n1,0,-1,-1,-2\n1,1,1,0,-2\n1,2,1,13,16\n1,3,2,16,-2\n",
        note="seconds; steps are read as phases, and outside of the patient (-1) both are unknown",
    ),
    Format(
        "CATARACTS, tools",
        "train01.csv",
        "Frame,biomarker,Charleux cannula,hydrodissection cannula\n1,0,0,0\n2,0,1,0\n3,0,0.5,0\n4,0,1,1\n",
        ('--tool-names "biomarker,Charleux cannula,hydrodissection cannula"', "--fps 30"),
        "the name cataracts stands for all 21 tools of the original files; 0.5, where annotators disagree, is unknown",
    ),
    Format(
        "CATARACTS, steps",
        "train01.csv",
        "Frame,Steps\n1,0\n2,0\n3,3\n4,3\n",
        ("--phase-names cataracts", "--fps 30"),
    ),
    Format(
        "HeiChole, phases",
        "Hei-Chole1_Annotation_Phase.csv",
        "0,0\n1,0\n2,1\n3,1\n",
        ("--phase-names cholec80",),
    ),
    Format(
        "HeiChole, instruments",
        "Hei-Chole1_Annotation_Instrument.csv",
        "0,1,0,0\n1,1,0,0\n2,1,0,1\n3,0,0,1\n",
        ('--tool-names "grasper,clipper,coagulation"',),
        "name all columns, 31 in the original files",
    ),
    Format(
        "Cataract-101",
        "annotations.csv",
        "VideoID;FrameNo;Phase\n269;0;1\n269;500;2\n269;1400;3\n270;0;1\n",
        ("--first-index 1",),
        "each phase lasts until the next row",
    ),
    Format(
        "MultiBypass140",
        "BBP01.json",
        '{"0": {"phase": 0, "step": 3},\n "1": {"phase": 0, "step": 3},\n "2": {"phase": 1, "step": 4}}\n',
        note="steps are not read",
    ),
    Format(
        "JIGSAWS",
        "Suturing_B001.txt",
        "80 284 G1 \n285 392 G2 \n393 542 G3 \n",
        (f"--phase-names {_GESTURES}", "--fps 30"),
        "first and last frame of each gesture",
    ),
    Format(
        "TeCNO",
        "video_41_1.0fps.pkl",
        "import pickle, numpy\n"
        "features, labels = numpy.zeros((3, 2048)), numpy.array([0, 0, 1])\n"
        "scores = numpy.array([[3.1, -2.0], [0.4, 0.1], [-1.3, 2.2]])  # before the softmax\n"
        'with open("video_41_1.0fps.pkl", "wb") as file:\n'
        "    pickle.dump([features, scores, labels], file)\n",
        ('--phase-names "Preparation,CalotTriangleDissection"',),
        "annotations are its labels, predictions its scores (--kind logits); nothing in a pickle is executed",
    ),
    Format(
        "MS-TCN",
        "video41",
        "### Frame level recognition: ###\nPreparation Preparation CalotTriangleDissection\n",
        note="rows of features, --row-step frames apart; annotations with one name per line are read too",
    ),
    Format(
        "segments",
        "video01.csv",
        "video,label,start,end\nvideo01.mp4,Preparation,0.0,164.2\nvideo01.mp4,CalotTriangleDissection,164.2,954.0\n",
        note="seconds, with decimals; if all are whole numbers, titles tell the unit: start_seconds, start_ms or "
        "start_frame, and so the end",
    ),
    Format(
        "timecodes",
        "video02.txt",
        "00:00 Preparation\n02:44 CalotTriangleDissection\n15:54 ClippingCutting\n",
        note="each phase lasts until the next row",
    ),
    Format(
        "ELAN, tab-delimited text",
        "video03.txt",
        "phases\t\t00:00:00.000\t00:02:44.200\tPreparation\nphases\t\t00:02:44.200\t00:15:54.000\tCalotTriangleDissection\n",
        note="also .eaf files",
    ),
    Format(
        "BORIS",
        "video04.tsv",
        "Time\tMedia file path\tBehavior\tStatus\n"
        "0.0\tvideo04.mp4\tPreparation\tSTART\n164.2\tvideo04.mp4\tPreparation\tSTOP\n",
        note="tabular events",
    ),
    Format(
        "Label Studio",
        "export.json",
        '[{"data": {"video": "video05.mp4"}, "annotations": [{"result": [{"type": "timelinelabels",\n'
        '  "value": {"ranges": [{"start": 1, "end": 4105}], "timelinelabels": ["Preparation"]}}]}]}]\n',
        note="frames from 1",
    ),
    Format(
        "CVAT for images",
        "video06.xml",
        '<annotations>\n<image id="0" name="0"><tag label="Preparation"/></image>\n'
        '<image id="1" name="1"><tag label="Preparation"/></image>\n</annotations>\n',
        note="tags of images",
    ),
)
"""All layouts, data sets first."""

"""The options of the commands, each declared once."""

import dataclasses
import math
from pathlib import Path
from typing import Annotated

import typer

from hmmjax.priors import Priors
from hmmjax.stabilize import PRIORS

_READ, _TRUTH, _LEARN, _OUT = "Reading predictions", "Annotations", "Learning", "Output"

Predictions = Annotated[
    list[Path] | None,
    typer.Argument(help="Prediction files or folders: txt, csv, npz, npy; phases and tools are told apart by content."),
]
Phases = Annotated[
    list[Path] | None, typer.Option("--phases", help="Files or folders that hold phases.", rich_help_panel=_READ)
]
Tools = Annotated[
    list[Path] | None, typer.Option("--tools", help="Files or folders that hold tools.", rich_help_panel=_READ)
]
Fuse = Annotated[
    list[Path] | None,
    typer.Option("--fuse", help="Files or a folder of another recognizer of the same videos, whose evidence is added; "
                 "repeatable, one each. Frames and videos may be missing in some.", rich_help_panel=_READ),
]  # fmt: skip
FuseKind = Annotated[
    list[str] | None,
    typer.Option(help="--kind of the --fuse files, if not --kind: once, or once for each.", rich_help_panel=_READ),
]
FusePhaseNames = Annotated[
    list[str] | None,
    typer.Option(help="--phase-names of the --fuse files, likewise.", rich_help_panel=_READ),
]
FuseFps = Annotated[
    list[float] | None, typer.Option(help="--fps of the --fuse files, likewise.", rich_help_panel=_READ)
]
Kind = Annotated[
    str | None,
    typer.Option(help="What scores are: labels, probabilities or logits. Left out: 0/1 are labels, the rest "
                 "probabilities, and what is neither is refused.", rich_help_panel=_READ),
]  # fmt: skip
PhaseKind = Annotated[str | None, typer.Option(help="--kind for phases only.", rich_help_panel=_READ)]
ToolKind = Annotated[str | None, typer.Option(help="--kind for tools only.", rich_help_panel=_READ)]
PhaseNames = Annotated[
    str | None,
    typer.Option(help="Phase classes; the order of indices where files have no names: cholec80, tf-cholec80, m2cai16, "
                 "a comma-separated list, or a file with one name a line.", rich_help_panel=_READ),
]  # fmt: skip
ToolNames = Annotated[
    str | None, typer.Option(help="Tool classes, likewise: cholec80, cholect50, ...", rich_help_panel=_READ)
]
Fps = Annotated[
    float | None,
    typer.Option(help="Frame numbers per second: 25 on Cholec80 (the default), also when only each 25th frame is "
                 "there; 1 where they count seconds.", rich_help_panel=_READ),
]  # fmt: skip
RowStep = Annotated[
    int, typer.Option(help="Frames from row to row in files without a Frame column.", rich_help_panel=_READ)
]
Offset = Annotated[int | None, typer.Option(help="Frame number of their first row.", rich_help_panel=_READ)]
Header = Annotated[str, typer.Option(help="Header line in text files: yes, no or auto.", rich_help_panel=_READ)]
Lenient = Annotated[
    bool, typer.Option("--lenient", help="Leave out damaged detection rows and say so.", rich_help_panel=_READ)
]
Rename = Annotated[
    list[str] | None, typer.Option(help="old=new, e.g. tool_video_11=video61; repeatable.", rich_help_panel=_READ)
]
Videos = Annotated[str | None, typer.Option(help="Only these videos, e.g. 41-60,62.", rich_help_panel=_READ)]
TimeStep = Annotated[
    int | None,
    typer.Option(help="Frame numbers per time step of the model; left out: the spacing of the predictions.",
                 rich_help_panel=_READ),
]  # fmt: skip

Annotations = Annotated[
    list[Path] | None,
    typer.Option("--annotations", help="Ground truth of some or all videos; files or folders.", rich_help_panel=_TRUTH),
]
Truth = Annotated[list[Path], typer.Option("--truth", help="Ground truth; files or folders.", rich_help_panel=_TRUTH)]
TruthFps = Annotated[
    float | None, typer.Option("--annotations-fps", help="--fps of the annotations.", rich_help_panel=_TRUTH)
]
TruthPhaseNames = Annotated[
    str | None,
    typer.Option("--annotations-phase-names", help="Their phases, if not --phase-names.", rich_help_panel=_TRUTH),
]
TruthToolNames = Annotated[
    str | None,
    typer.Option("--annotations-tool-names", help="Their tools, if not --tool-names.", rich_help_panel=_TRUTH),
]

Transitions = Annotated[
    list[Path] | None,
    typer.Option("--transitions-from", help="Annotations in which transitions are counted, in place of --annotations.",
                 rich_help_panel=_LEARN),
]  # fmt: skip
TransitionVideos = Annotated[
    str | None, typer.Option(help="Only these videos of --transitions-from, e.g. 1-40.", rich_help_panel=_LEARN)
]
Model = Annotated[Path | None, typer.Option(help="Use this model.npz and learn nothing.", rich_help_panel=_LEARN)]
Emissions = Annotated[
    str,
    typer.Option(help="How the recognizer errs: confusion (of labels; probabilities become labels first), "
                 "probability (Dirichlet and Beta), inflated (these with point masses, for scores cut at a "
                 "threshold), logit-normal, scaled (probabilities over class frequencies), or logistic (labels of "
                      "tools whose recognition depends on the other tools).", rich_help_panel=_LEARN),
]  # fmt: skip
Folds = Annotated[
    int, typer.Option(help="Annotated videos are split into so many parts; each is inferred by a model learned from "
                      "the others.", rich_help_panel=_LEARN),
]  # fmt: skip
LeaveOneOut = Annotated[
    bool, typer.Option("--leave-one-out", help="Hold out one video at a time.", rich_help_panel=_LEARN)
]
Iterations = Annotated[
    int | None,
    typer.Option(min=0, help="EM iterations at most. Left out: none where counting suffices (some video is labeled "
                 "throughout), else 100.", rich_help_panel=_LEARN),
]  # fmt: skip
Calibrate = Annotated[
    bool | None,
    typer.Option("--calibrate/--no-calibrate",
                 help="Find out how much a frame's evidence is worth: networks err in runs. Left out: where at least "
                      "eight annotated videos are left to learn from. The online filter never is.",
                 rich_help_panel=_LEARN),
]  # fmt: skip
Durations = Annotated[
    bool,
    typer.Option("--durations", help="Also model how long phases last; takes several times as long.",
                 rich_help_panel=_LEARN),
]  # fmt: skip
NoHiddenPhases = Annotated[
    bool,
    typer.Option("--no-hidden-phases", help="With tools only: independent tools, phases are not inferred.",
                 rich_help_panel=_LEARN),
]  # fmt: skip
UnseenPhaseChange = Annotated[
    float,
    typer.Option(help="Pseudo-count of a phase change that no labeled video shows; 0 forbids it.",
                 rich_help_panel=_LEARN),
]  # fmt: skip
Threshold = Annotated[
    float, typer.Option(help="At or above it a tool's probability becomes 'present' for confusion emissions.",
                        rich_help_panel=_LEARN),
]  # fmt: skip

Out = Annotated[Path, typer.Option("--out", help="Folder for the results.", rich_help_panel=_OUT)]
Online = Annotated[
    bool,
    typer.Option("--online", help="Write predictions of the online filter, which never looks ahead.",
                 rich_help_panel=_OUT),
]  # fmt: skip
NoPictures = Annotated[bool, typer.Option("--no-pictures", help="Draw nothing.", rich_help_panel=_OUT)]
Relaxed = Annotated[
    bool,
    typer.Option("--relaxed", help="Also figures with relaxed boundaries (10 s), official script and repaired.",
                 rich_help_panel=_OUT),
]  # fmt: skip
Force = Annotated[bool, typer.Option("--force", help="Overwrite.", rich_help_panel=_OUT)]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Read everything, say what would be done, write nothing.", rich_help_panel=_OUT),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the answer as JSON, and nothing else, on standard output.",
                       rich_help_panel=_OUT),
]  # fmt: skip
Csv = Annotated[Path | None, typer.Option("--csv", help="Also write the table to this csv.", rich_help_panel=_OUT)]
Traceback = Annotated[bool, typer.Option("--traceback", help="Show where an error was raised.")]

Results = Annotated[Path, typer.Argument(help="A folder that hmmjax stabilize wrote.")]
ReportOut = Annotated[
    Path | None, typer.Option("--out", help="Folder for the report; left out: report/ in the results.",
                              rich_help_panel=_OUT),
]  # fmt: skip
Title = Annotated[str, typer.Option(help="Title of the page.", rich_help_panel=_OUT)]
Frames = Annotated[
    Path | None,
    typer.Option("--frames", help="A folder with a folder of pictures for each video, named by frame number "
                 "(video41/000025.jpg): thumbnails beside what the model changed.", rich_help_panel=_OUT),
]  # fmt: skip
Costs = Annotated[
    Path | None,
    typer.Option("--costs", help="A csv with name, cost, value (and low, high, cost_unit, figure): adds the figure of "
                 "cost against benefit.", rich_help_panel=_OUT),
]  # fmt: skip
NoIntervals = Annotated[
    bool, typer.Option("--no-intervals", help="No intervals of minutes: much faster on long coupled videos.",
                       rich_help_panel=_OUT),
]  # fmt: skip
AnnotationFiles = Annotated[list[Path], typer.Argument(help="Annotation files or folders: phases, tools or both.")]


def priors(unseen_phase_change: float) -> Priors:
    """The pseudo-counts of the commands.

    Raises:
        ValueError: one that is none.
    """
    if not 0 <= unseen_phase_change < math.inf:
        raise ValueError(f"--unseen-phase-change {unseen_phase_change:g}: a pseudo-count is 0 or more")
    return dataclasses.replace(PRIORS, phase_transition=unseen_phase_change)

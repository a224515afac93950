"""The options of the commands, each declared once; options that several commands share are blocks of fields.

Nothing heavy may be imported here: `hmmjax --help` reads this file.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

EMISSIONS = (
    "confusion",
    "autoregressive",
    "probability",
    "inflated",
    "logit-normal",
    "autoregressive-logit-normal",
    "scaled",
    "logistic",
)
"""Names of emission families, as in `hmmjax.emissions.FAMILIES`, which would import JAX."""

SEGMENT_FORMATS = ("segments", "elan", "label-studio")
"""As in `hmmjax.io.write_segments`, which would import NumPy."""

_READ, _TRUTH, _LEARN, _OUT = "Reading predictions", "Annotations", "Learning", "Output"


def expand(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: each parameter annotated with a block becomes one option per field of the block.

    A block is a dataclass whose fields are annotated as Typer options. The command receives an instance of it.
    """
    blocks: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        block = parameter.annotation
        if not (isinstance(block, type) and dataclasses.is_dataclass(block)):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        blocks[parameter.name] = block
        for field in dataclasses.fields(block):
            default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            parameters.append(
                inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.type)
            )

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, block in blocks.items():
            values[name] = block(**{field.name: values.pop(field.name) for field in dataclasses.fields(block)})
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


_read = functools.partial(typer.Option, rich_help_panel=_READ)
_truth = functools.partial(typer.Option, rich_help_panel=_TRUTH)
_learn = functools.partial(typer.Option, rich_help_panel=_LEARN)
_write = functools.partial(typer.Option, rich_help_panel=_OUT)


Kind = Annotated[
    str | None,
    _read(
        help="Kind of the scores: labels, probabilities or logits. By default 0/1 are labels and other numbers "
        "probabilities; numbers that are neither are an error."
    ),
]
PhaseNames = Annotated[
    str | None,
    _read(
        help="Phase classes, in the order of indices if files have no names: cholec80, tf-cholec80, m2cai16, "
        "autolaparo, cataracts, pitvis, a comma-separated list, or a file with one name per line."
    ),
]
ToolNames = Annotated[
    str | None,
    _read(
        help="Tool classes: cholec80, cholect50, cataracts, pitvis, a comma-separated list, or a file with one name "
        "per line."
    ),
]


def rate(text: str) -> float:
    """Return a frame rate given as a number or a ratio, such as 30000/1001."""
    from fractions import Fraction  # not needed by most commands

    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise typer.BadParameter(f"{text!r} is not a rate; write a number or a ratio, such as 30000/1001") from None


Fps = Annotated[
    float | None,
    _read(
        parser=rate,
        metavar="RATE",
        help="Frame numbers per second: 25 for Cholec80 (the default), also if only every 25th frame is in the file; 1 "
        "if frame numbers count seconds; 30000/1001. Applies to annotations too, unless they have --annotations-fps.",
    ),
]
Rows = Annotated[
    str,
    _read(
        help="What a row of a phase table is: a frame (frames), or the beginning of a phase that lasts until the next "
        "row (changes). By default (auto) frames; tables that look like changes are refused."
    ),
]
FirstIndex = Annotated[
    int | None,
    _read(help="Index of the first phase class in files with indices: 0 (the default), or 1.", min=0),
]
Videos = Annotated[str | None, _read(help="Use only these videos, e.g. 41-60,62.")]
Json = Annotated[bool, _write("--json", help="Print the result as JSON, and nothing else, on standard output.")]
Traceback = Annotated[bool, typer.Option("--traceback", help="Show where in the code an error was raised.")]


@dataclasses.dataclass(frozen=True)
class Names:
    """Classes, frame rate and videos, for commands that read few kinds of files."""

    phase_names: PhaseNames = None
    tool_names: ToolNames = None
    fps: Fps = None
    first_index: FirstIndex = None
    rows: Rows = "auto"
    videos: Videos = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `hmmjax.io.read` and `hmmjax.io.read_annotations`."""
        names = {"phase_names": self.phase_names, "tool_names": self.tool_names}
        return {**names, "fps": self.fps, "first_index": self.first_index or 0, "rows": self.rows}


@dataclasses.dataclass(frozen=True)
class PredictionFiles:
    """Prediction files of one recognizer, and how to read them."""

    predictions: Annotated[
        list[Path] | None,
        typer.Argument(help="Prediction files or folders (txt, csv, npz, npy, pkl), of phases, tools or both."),
    ] = None
    phases: Annotated[list[Path] | None, _read("--phases", help="Files or folders of phases.")] = None
    tools: Annotated[list[Path] | None, _read("--tools", help="Files or folders of tools.")] = None
    kind: Kind = None
    phase_kind: Annotated[str | None, _read(help="--kind for phases only.")] = None
    tool_kind: Annotated[str | None, _read(help="--kind for tools only.")] = None
    phase_names: PhaseNames = None
    tool_names: ToolNames = None
    fps: Fps = None
    first_index: FirstIndex = None
    rows: Rows = "auto"
    row_step: Annotated[int, _read(help="Frames from one row to the next in files without a Frame column.")] = 25
    offset: Annotated[int | None, _read(help="Frame number of the first row in files without a Frame column.")] = None
    header: Annotated[str, _read(help="Header line in text files: yes, no or auto.")] = "auto"
    lenient: Annotated[
        bool, _read("--lenient", help="Skip damaged rows of detections with a note, instead of stopping.")
    ] = False
    rename: Annotated[
        list[str] | None, _read(help="old=new name of a video, e.g. tool_video_11=video61; repeatable.")
    ] = None
    videos: Videos = None


@dataclasses.dataclass(frozen=True)
class FuseFiles:
    """Prediction files of further recognizers."""

    fuse: Annotated[
        list[Path] | None,
        _read(
            "--fuse",
            help="Files or a folder of another recognizer of the same videos, to combine with "
            "the first; repeatable, one per recognizer. Some frames and videos may be missing.",
        ),
    ] = None
    fuse_kind: Annotated[
        list[str] | None, _read(help="--kind of the --fuse files: once for all, or once per --fuse.")
    ] = None
    fuse_phase_names: Annotated[
        list[str] | None, _read(help="--phase-names of the --fuse files: once for all, or once per --fuse.")
    ] = None
    fuse_fps: Annotated[
        list[float] | None,
        _read(parser=rate, metavar="RATE", help="--fps of the --fuse files: once for all, or once per --fuse."),
    ] = None


@dataclasses.dataclass(frozen=True)
class AnnotationFormat:
    """How to read annotations; what is not given is as for the predictions."""

    annotations_fps: Annotated[
        float | None,
        _truth(parser=rate, metavar="RATE", help="Frame numbers per second of the annotations, if not --fps."),
    ] = None
    annotations_first_index: Annotated[
        int | None, _truth(help="Index of the first phase class in the annotations, if not --first-index.", min=0)
    ] = None
    annotations_shift: Annotated[
        int, _truth(help="Number to add to the frame numbers of the annotations, if they do not start at 0.")
    ] = 0
    annotations_phase_names: Annotated[
        str | None, _truth("--annotations-phase-names", help="Phase classes of the annotations, if not --phase-names.")
    ] = None
    annotations_tool_names: Annotated[
        str | None, _truth("--annotations-tool-names", help="Tool classes of the annotations, if not --tool-names.")
    ] = None


@dataclasses.dataclass(frozen=True)
class Learning:
    """What to learn from, and how videos are held out."""

    transitions_from: Annotated[
        list[Path] | None,
        _learn("--transitions-from", help="Annotations in which transitions are counted, in place of --annotations."),
    ] = None
    transition_videos: Annotated[str | None, _learn(help="Use only these videos of --transitions-from, e.g. 1-40.")] = (
        None
    )
    folds: Annotated[
        int,
        _learn(
            help="Number of parts into which annotated videos are split; each part is inferred by a model learned from "
            "the others."
        ),
    ] = 5
    leave_one_out: Annotated[bool, _learn("--leave-one-out", help="Hold out one video at a time.")] = False
    training_videos: Annotated[
        bool,
        _learn("--training-videos", help="Learn from and score videos on which the recognizer was trained, too."),
    ] = False
    no_hidden_phases: Annotated[
        bool, _learn("--no-hidden-phases", help="With tools only: do not infer phases; tools are independent.")
    ] = False
    unseen_phase_change: Annotated[
        float, _learn(help="Pseudo-count of a phase change that no labeled video shows; 0 forbids it.")
    ] = 1e-8
    time_step: Annotated[
        int | None,
        _learn(help="Number of frames per time step of the model. Default: the spacing of the predictions.", min=1),
    ] = None


@dataclasses.dataclass(frozen=True)
class Split:
    """Which videos are learned from and stabilized, in place of cross-validation."""

    learn_from: Annotated[
        str | None,
        _learn(
            "--learn-from",
            metavar="VIDEOS",
            help="Learn from these videos only, and stabilize and score others: a part that the predictions name "
            "(val), numbers and names (33-40,62), or a file with their names. Default with --apply-to: all others.",
        ),
    ] = None
    apply_to: Annotated[
        str | None,
        _learn(
            "--apply-to",
            metavar="VIDEOS",
            help="Stabilize and score these videos only, given in the same way (test). Nothing is learned from them. "
            "Default with --learn-from: all others.",
        ),
    ] = None


@dataclasses.dataclass(frozen=True)
class Modeling:
    """Which model stabilizes predictions."""

    model: Annotated[Path | None, _learn(help="Use this model.npz and learn nothing.")] = None
    online_model: Annotated[
        Path | None, _learn("--online-model", help="With --model: use this model_online.npz for the filter.")
    ] = None
    emissions: Annotated[
        str,
        _learn(
            help="How the recognizer errs. auto: models are trained, averaged and compared with the recognizer on "
            "inner folds, and nothing is changed where that does not help; without annotations, confusion is taken. "
            "Otherwise a family: confusion (of labels; "
            "probabilities are turned into labels first), autoregressive (the same, given the label of the frame "
            "before), probability (Dirichlet and Beta), inflated (the same with point masses, for scores cut at a "
            "threshold), logit-normal, autoregressive-logit-normal (given the frame before), scaled (probabilities "
            "over class frequencies), or logistic (labels of tools, each of which depends on the other tools)."
        ),
    ] = "auto"
    learn: Annotated[
        str,
        _learn(
            help="count the tables in labeled frames, calibrate them too, refine them for single labels (offline and "
            "online apart), tune (refine, with the penalty and the number of iterations chosen on inner folds of the "
            "videos learned from; takes minutes), or auto: as --emissions auto chooses, and for named families as "
            "--calibrate says."
        ),
    ] = "auto"
    metric: Annotated[
        str, _learn(help="What --emissions auto compares on inner folds: log-loss (of single labels) or accuracy.")
    ] = "log-loss"
    iterations: Annotated[
        int | None,
        _learn(
            help="Maximum number of EM iterations. Default: 0 if counting suffices (at least 99% of some video's "
            "frames are labeled), else 100.",
            min=0,
        ),
    ] = None
    calibrate: Annotated[
        bool | None,
        _learn(
            "--calibrate/--no-calibrate",
            help="Weight each frame by a learned power, because a network's errors are correlated over time. Default "
            "for named families: if each model learns from at least eight annotated videos, except for families with "
            "memory (autoregressive). The online filter is never calibrated.",
        ),
    ] = None
    durations: Annotated[
        bool, _learn("--durations", help="Also model how long phases last; takes several times as long.")
    ] = False
    threshold: Annotated[
        float, _learn(help="Probability at or above which a tool is present, for confusion emissions.")
    ] = 0.5


@dataclasses.dataclass(frozen=True)
class Common:
    """Options of every command."""

    force: Annotated[bool, _write("--force", help="Overwrite existing files.")] = False
    json: Json = False
    traceback: Traceback = False


Annotations = Annotated[
    list[Path] | None, _truth("--annotations", help="Annotations of some or all videos; files or folders.")
]
RequiredAnnotations = Annotated[
    list[Path], _truth("--annotations", help="Annotations of at least two of the videos; files or folders.")
]
Truth = Annotated[list[Path], _truth("--truth", "--annotations", help="Annotations to compare with; files or folders.")]
AnnotationFiles = Annotated[list[Path], typer.Argument(help="Annotation files or folders: phases, tools or both.")]
Families = Annotated[
    list[str] | None,
    _learn(
        help=f"Rank only this family; repeatable: {', '.join(EMISSIONS)}. Default: all that accept the "
        "predictions, except logistic."
    ),
]
Out = Annotated[Path, _write("--out", help="Folder for the results.")]
Online = Annotated[
    bool, _write("--online", help="Write predictions of the online filter, which uses past and present frames only.")
]
Write = Annotated[
    list[str] | None,
    _write(
        "--write",
        help="Also write the results as segments: segments (csv with start and end), elan (tab-delimited text) or "
        "label-studio (JSON); repeatable.",
    ),
]
NoPictures = Annotated[bool, _write("--no-pictures", help="Do not draw the videos.")]
Relaxed = Annotated[
    bool, _write("--relaxed", help="Add metrics with relaxed boundaries (10 s), by the official script and corrected.")
]
DryRun = Annotated[bool, _write("--dry-run", help="Read all files and report what would be done; write nothing.")]
Csv = Annotated[Path | None, _write("--csv", help="Also write the table to this csv file.")]
Title = Annotated[str, _write(help="Title of the page.")]

"""`hmmjax suggest`: which frames should a person label next?"""

import json as json_
from pathlib import Path
from typing import Annotated

import typer

from hmmjax import io
from hmmjax import suggest as ranking
from hmmjax.cli import console
from hmmjax.cli import options as o
from hmmjax.io import FormatError


@console.friendly
def suggest(
    predictions: Annotated[list[Path], typer.Argument(help="What the recognizer says; files or folders.")],
    stabilized: Annotated[Path, typer.Option(help="stabilized.npz, as hmmjax stabilize writes it.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for index.html and answers.csv.")],
    annotations: Annotated[
        list[Path] | None, typer.Option("--annotations", help="Labels that there are already; files or folders.")
    ] = None,
    pictures: Annotated[Path | None, typer.Option(help="Holds a folder of pictures per video, called like it.")] = None,
    naming: Annotated[
        str | None,
        typer.Option(
            help="What the numbers in the pictures' names count: frame (000025.jpg is frame 25; taken unless they "
            "follow one another), second (from 0) or counter (ffmpeg's, from 1)."
        ),
    ] = None,
    picture_rate: Annotated[float, typer.Option(min=1e-6, help="Pictures per second, for --naming counter.")] = 1.0,
    count: Annotated[int, typer.Option(min=1, help="Frames per tool and reason.")] = 10,
    apart: Annotated[float, typer.Option(min=0, help="Least seconds between two questions about one tool.")] = 10.0,
    reason: Annotated[
        list[str] | None, typer.Option(help=f"Only this reason; repeatable: {', '.join(ranking.REASONS)}.")
    ] = None,
    kind: o.Kind = None,
    phase_names: o.PhaseNames = None,
    tool_names: o.ToolNames = None,
    fps: o.Fps = None,
    videos: o.Videos = None,
    force: o.Force = False,
    json: o.Json = False,
    traceback: o.Traceback = False,
) -> None:
    """Choose frames for a person to label, and write a page to look at and a file to fill in.

    For each tool: frames that probably show it, frames where recognizer and stabilized result disagree, frames of which
    the posterior is unsure; never two of one tool within --apart seconds. Give the filled-in answers.csv back as
    --annotations, beside the labels that there were.
    """
    for word in reason or ():
        if word not in ranking.REASONS:
            raise FormatError(f"unknown reason {word!r}", fix=f"choose among {', '.join(ranking.REASONS)}")
    names = {"phase_names": phase_names, "tool_names": tool_names, "fps": fps}
    if naming is not None and pictures is None:
        raise FormatError("--naming without pictures", fix="give --pictures")
    with console.Stages() as stages:
        said = io.select(
            io.read(list(predictions), kind=kind, progress=stages.files("reading predictions"), **names), videos
        )
        smooth = io.select(io.read(stabilized), videos)
        known = (
            []
            if annotations is None
            else io.read_annotations(list(annotations), progress=stages.files("reading annotations"), **names)
        )
    rates = {track.video: track.fps for track in said}
    picture = None
    if pictures is not None:
        picture = ranking.find_pictures(pictures, naming=naming, fps=rates, rate=picture_rate)
    asked = ranking.rank(said, smooth, known, count=count, apart=apart, reasons=reason or ranking.REASONS)
    page, answers = ranking.write(out, asked, picture=picture, force=force)
    frames = {(s.video, s.frame) for s in asked}
    lost = [] if picture is None else picture.missing(sorted(frames))
    if lost:
        fix = "check --naming, and that folders are called like the videos"
        first = f"the first is frame {lost[0][1]} of {lost[0][0]}"
        console.notices([f"{len(lost)} of {len(frames)} frames without picture, {first}: {fix}"])
    if json:
        told = {"questions": len(asked), "page": str(page), "answers": str(answers), "without_picture": len(lost)}
        print(json_.dumps(told, indent=1))
    else:
        print(f"{len(asked)} questions. Look at {page}, fill in {answers}.")

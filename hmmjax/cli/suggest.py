"""`hmmjax suggest`: choose frames to label next."""

import json as json_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hmmjax.cli import console
from hmmjax.cli import options as o

if TYPE_CHECKING:
    from hmmjax.io import Track

REASONS = ("positive", "disagreement", "uncertain")
"""As in `hmmjax.suggest`, which would import NumPy."""


@console.friendly
@o.expand
def suggest(
    *,
    predictions: Annotated[
        list[Path],
        typer.Argument(
            help="The recognizer's predictions, files or folders; or a folder of results, which holds everything."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for index.html and answers.csv.")],
    reading: o.Names,
    common: o.Common,
    stabilized: Annotated[
        Path | None,
        typer.Option(help="The stabilized.npz that hmmjax stabilize wrote; not needed with a folder of results."),
    ] = None,
    kind: o.Kind = None,
    annotations: Annotated[
        list[Path] | None, typer.Option("--annotations", help="Labels that are already known; files or folders.")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="A folder with one folder of pictures per video, named like the video.")
    ] = None,
    naming: Annotated[
        str | None,
        typer.Option(
            help="What the numbers in the pictures' names count: frame (000025.jpg is frame 25; the default, unless "
            "the numbers are consecutive), second (from 0) or counter (ffmpeg's, from 1)."
        ),
    ] = None,
    picture_rate: Annotated[float, typer.Option(min=1e-6, help="Pictures per second, for --naming counter.")] = 1.0,
    count: Annotated[int, typer.Option(min=1, help="Number of frames per reason, for each tool and for phases.")] = 10,
    apart: Annotated[
        float, typer.Option(min=0, help="Minimum number of seconds between two questions about one tool, or the phase.")
    ] = 10.0,
    reason: Annotated[
        list[str] | None, typer.Option(help=f"Only for this reason; repeatable: {', '.join(REASONS)}.")
    ] = None,
) -> None:
    """Choose the most useful frames to label; write a page that shows them and a file to fill in.

    Questions are about tools and phases, as far as they are predicted. For each tool, three kinds of frames: the tool
    is probably present (positive), the recognizer and the stabilized result disagree (disagreement), or the posterior
    is uncertain (uncertain). For the phase, the last two. Two questions about one tool, or about the phase, are at
    least --apart seconds apart.

    Pass the filled-in answers.csv as --annotations to the other commands, in addition to earlier annotations.
    """
    from hmmjax import io
    from hmmjax import suggest as job

    for word in reason or ():
        if word not in REASONS:
            raise console.unknown("--reason", word, REASONS)
    if naming is not None and pictures is None:
        raise ValueError("--naming describes pictures, but there are none. Fix: give --pictures")
    names = reading.arguments()
    with console.Stages() as stages:
        known: list[Track] = []
        if stabilized is not None:
            raw = io.read(list(predictions), kind=kind, progress=stages.files("reading predictions"), **names)
            smooth = io.read(stabilized)
        elif len(predictions) == 1 and (predictions[0] / "stabilized.npz").is_file():
            raw, smooth, known = _of_results(predictions[0])
        else:
            raise ValueError(
                "there are no stabilized predictions. Fix: give --stabilized results/stabilized.npz, or only the "
                "folder of results"
            )
        raw, smooth = (io.select(tracks, reading.videos, option="--videos") for tracks in (raw, smooth))
        if annotations is not None:
            more = io.read_annotations(list(annotations), progress=stages.files("reading annotations"), **names)
            known = io.merge_labels([*known, *more]) if known else more
    picture = None
    if pictures is not None:
        rates = {track.video: track.fps for track in raw}
        picture = job.find_pictures(pictures, naming=naming, fps=rates, rate=picture_rate)
    console.notices(notice for track in (*raw, *smooth, *known) for notice in track.notices)
    questions = job.rank(raw, smooth, known, count=count, apart=apart, reasons=reason or REASONS)
    page, answers = job.write(out, questions, picture=picture, force=common.force)
    frames = {(s.video, s.frame) for s in questions}
    missing = [] if picture is None else picture.missing(sorted(frames))
    if missing:
        first = f"the first is frame {missing[0][1]} of {missing[0][0]}"
        fix = "check --naming, and that each folder is named like its video"
        console.notices([f"{len(missing)} of {len(frames)} frames have no picture; {first}. Fix: {fix}"])
    if common.json:
        values = {"questions": len(questions), "page": str(page), "answers": str(answers)}
        print(json_.dumps(values | {"without_picture": len(missing)}, indent=1))
    else:
        print(_answer(len(questions), f"Open {page} and fill in {answers}", raw, known))


def _answer(count: int, todo: str, raw: "list[Track]", known: "list[Track]") -> str:
    """Say what to do with the questions; without any, why there are none."""
    if count:
        return f"{count} questions. {todo}."
    complete = {(t.video, t.track) for t in known if (t.values >= 0).all()}
    if {(t.video, t.track) for t in raw} <= complete:
        return "0 questions: every frame is labeled already, so there is nothing to fill in."
    return (
        "0 questions: no unlabeled frame qualifies. Give further videos, or fewer --reason options (without any, "
        "all kinds of frames are asked about)."
    )


def _of_results(folder: Path) -> "tuple[list[Track], list[Track], list[Track]]":
    """Return raw, stabilized and annotated tracks of a folder of results."""
    from hmmjax import stabilize as job

    found = job.read_results(folder)
    truth = job.System("truth", found.truth_phases, found.truth_tools)
    raw, smooth, known = (job.result_tracks(found, system) for system in (found.raw, found.smoothed, truth))
    return raw, smooth, known

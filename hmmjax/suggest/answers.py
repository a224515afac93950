"""Write the file of questions to fill in, and read it back as partial labels.

One row per frame: video, frame, fps, second, why; then Phase (a name) and one column per tool (0 or 1). A "?" marks a
question; other cells may be filled in too, and cells that are blank or "?" stay unlabeled. If phases are asked for, the
last column names the phases to choose from.
"""

import csv
import os
from collections.abc import Sequence

from hmmjax.io import FormatError, Track, answers, natural, write_atomically
from hmmjax.io.answers import BAR, FIXED, PHASE, PHASES
from hmmjax.io.names import fold
from hmmjax.suggest.ranking import Suggestion

PathLike = str | os.PathLike[str]


def write_answers(path: PathLike, suggestions: Sequence[Suggestion], *, force: bool = False) -> None:
    """Write the file to fill in, one row per frame.

    Args:
        path: the csv file.
        suggestions: from `rank`.
        force: overwrite an existing file, which may have been filled in.

    Raises:
        FileExistsError: the file exists and `force` is False.
        FormatError: a class has the name of one of the file's own columns.
    """
    tools = next((s.names for s in suggestions if s.track == "tools"), ())
    phases = next((s.names for s in suggestions if s.track == "phases"), ())
    columns = (*FIXED, *([PHASE] if phases else []), *tools, *([PHASES] if phases else []))
    own = {fold(column): column for column in (*FIXED, PHASE, PHASES)}
    for name in tools:
        if fold(name) in own:
            raise FormatError(
                f"a tool has the name {name!r}, which is also a column of answers.csv", fix="rename the tool"
            )
    if split := [name for name in phases if BAR.strip() in name]:
        raise FormatError(
            f"the name of the phase {split[0]!r} contains {BAR.strip()!r}, which separates phases in answers.csv",
            fix="rename the phase",
        )
    rows: dict[tuple[str, int], dict[str, str]] = {}
    for s in suggestions:
        start = {"video": s.video, "frame": str(s.frame), "fps": f"{s.fps:g}", "second": f"{s.second:.2f}", "why": ""}
        row = rows.setdefault((s.video, s.frame), dict.fromkeys(columns, "") | start)
        row["why"] += ("; " if row["why"] else "") + f"{s.reason} {s.name} {s.stabilized:.2f}"
        row[PHASE if s.track == "phases" else s.name] = "?"
        if s.track == "phases":
            row[PHASES] = BAR.join(phases)
    with write_atomically(path, force=force) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows[key] for key in sorted(rows, key=lambda k: (natural(k[0]), k[1])))


def read_answers(path: PathLike, *, phase_names: str | Sequence[str] = ()) -> list[Track]:
    """Read a filled-in file. `hmmjax.io.read_annotations` reads it too, together with other annotations.

    Args:
        path: the csv file.
        phase_names: names of the phases in order, or "cholec80" and the like, for files without a column of phases.

    Returns:
        Tracks of labels, -1 for unlabeled, for the videos with any answer; their `notices` list open questions.

    Raises:
        FormatError: the file cannot be read, or has a column twice; or, with its line: a cell that is not an answer, a
            repeated frame, an unknown phase, or a frame rate that is not the video's.
    """
    name = os.fspath(path)
    try:
        with open(name, newline="", encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"the file cannot be read ({error})", file=name) from None
    tracks = answers.read_answers(name, text, answers.answers_spec(phase_names))
    return sorted(tracks, key=lambda track: (natural(track.video), track.track))

"""The file that a person fills in, and reading it back as partial labels.

One row per frame: video, frame, fps, second, why; then Phase (a name) and a column per tool (0 or 1). A "?" marks what
is asked; every other cell may be filled in as well, and whatever is left blank or "?" stays unknown. Where phases are
asked for, the last column names those to choose among.
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
    """Write the file to fill in, a row for each frame.

    Args:
        path: the file.
        suggestions: from `rank`.
        force: overwrite.

    Raises:
        FileExistsError: when it exists and `force` is False; somebody may have filled it in.
        FormatError: when a class is called like one of the file's own columns.
    """
    tools = next((s.names for s in suggestions if s.track == "tools"), ())
    phases = next((s.names for s in suggestions if s.track == "phases"), ())
    columns = (*FIXED, *([PHASE] if phases else []), *tools, *([PHASES] if phases else []))
    own = {fold(column): column for column in (*FIXED, PHASE, PHASES)}
    for name in tools:
        if fold(name) in own:
            raise FormatError(f"a tool is called {name!r}, like a column of the file to fill in", fix="rename it")
    if split := [name for name in phases if BAR.strip() in name]:
        raise FormatError(f"the phase {split[0]!r} has a {BAR.strip()!r} in its name", fix="rename it")
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
    """Read a filled-in file; `hmmjax.io.read_annotations` reads it too, together with other annotations.

    Args:
        path: the file.
        phase_names: the phases' names and order, for files that do not say (and "cholec80" and the like); the others
            have them in their last column.

    Returns:
        Tracks of labels with -1 for unknown, for the videos with any answer; `notices` say what is still open.

    Raises:
        FormatError: naming the line of a cell that is no answer, of a repeated frame, of an unknown phase, of a frame
            rate other than the video's; a column that is there twice; or a file that cannot be read.
    """
    name = os.fspath(path)
    try:
        with open(name, newline="", encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"the file cannot be read ({error})", file=name) from None
    tracks = answers.read_answers(name, text, answers.answers_spec(phase_names))
    return sorted(tracks, key=lambda track: (natural(track.video), track.track))

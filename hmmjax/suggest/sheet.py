"""The page of questions: one card per question, with the picture of the frame if there is one."""

import base64
import html
import io
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hmmjax.io import refuse_existing, write_atomically
from hmmjax.suggest.answers import write_answers
from hmmjax.suggest.ranking import Suggestion

#: Function of a video and a frame number that returns a picture (H, W, 3) uint8, or None.
Picture = Callable[[str, int], Any]

_EXPLAIN = {
    "positive": "probably present, and few positive labels are known",
    "disagreement": "the recognizer and the stabilized result differ",
    "uncertain": "the stabilized result is uncertain",
}
_STYLE = """
body{font:15px/1.4 system-ui,sans-serif;margin:0;padding:1rem clamp(.8rem,4vw,2rem);color:#222;background:#fafafa}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin:2rem 0 .6rem}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(230px,1fr));gap:.8rem}
figure{margin:0;background:#fff;border:1px solid #ddd;border-radius:6px;overflow:hidden}
img,.none{display:block;width:100%;aspect-ratio:16/9;object-fit:contain;background:#f0f0f0}
.none{color:#666;display:flex;align-items:center;justify-content:center}
figcaption{padding:.5rem .7rem}b{font-weight:600}small{color:#666}
"""


def write(
    folder: str | os.PathLike[str],
    suggestions: Sequence[Suggestion],
    *,
    picture: Picture | None = None,
    force: bool = False,
) -> tuple[Path, Path]:
    """Write index.html, which shows the questions, and answers.csv, to fill in.

    Args:
        folder: the output folder, created if missing.
        suggestions: from `rank`.
        picture: returns the picture (H, W, 3) uint8 of a video's frame, or None; see `find_pictures`.
        force: overwrite existing files, which may have been filled in.

    Returns:
        Both paths.

    Raises:
        FileExistsError: one of the files exists and `force` is False.
    """
    root = Path(folder)
    refuse_existing(root, ("answers.csv", "index.html"), force=force)
    root.mkdir(parents=True, exist_ok=True)
    # The file to fill in is written last, so that a run whose page failed can be repeated without --force.
    with write_atomically(root / "answers.csv", force=force) as temporary:
        write_answers(temporary, suggestions, force=True)
        write_sheet(root / "index.html", suggestions, picture=picture, force=True)
    return root / "index.html", root / "answers.csv"


def write_sheet(
    path: str | os.PathLike[str],
    suggestions: Sequence[Suggestion],
    *,
    picture: Picture | None = None,
    width: int = 320,
    force: bool = False,
) -> None:
    """Write the page of questions as one file that contains the pictures.

    Args:
        path: the HTML file.
        suggestions: from `rank`.
        picture: returns the picture (H, W, 3) uint8 of a video's frame, or None; see `find_pictures`.
        width: maximum width of pictures, in pixels.
        force: overwrite an existing file.

    Raises:
        FileExistsError: `path` exists and `force` is False.
    """
    groups: dict[tuple[str, str], list[Suggestion]] = {}
    for s in suggestions:
        groups.setdefault((s.reason, s.name if s.track == "tools" else "phase"), []).append(s)
    frames = {(s.video, s.frame) for s in suggestions}
    bare = picture is None
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Frames to label</title>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<style>{_STYLE}</style></head><body><main><h1>Frames to label</h1>",
        f"<p>{len(suggestions)} questions about {len(frames)} frames. Fill in answers.csv in the folder of this page: "
        "it has one row per frame and a ? for each question. Replace the ?, or leave it if you are unsure. You may "
        "fill in other cells too.</p>",
        *_explain(suggestions),
        *(["<p>There are no pictures: open the videos at the times below, or pass --pictures.</p>"] if bare else []),
    ]
    for (reason, name), members in groups.items():
        parts.append(f"<h2>{html.escape(name)}: {_EXPLAIN[reason]}</h2><div class='cards'>")
        parts += [_card(s, picture, width) for s in members]
        parts.append("</div>")
    with write_atomically(path, force=force) as temporary:
        Path(temporary).write_text("\n".join([*parts, "</main></body></html>"]), encoding="utf-8")


def _explain(suggestions: Sequence[Suggestion]) -> list[str]:
    """Explain what to write, for each kind of question."""
    texts = {
        "tools": "In the column of a tool, write 1 if the tool is visible in the picture, and 0 if it is not. Tools: ",
        "phases": "In the column Phase, write the name of the phase that the picture belongs to. Phases: ",
    }
    names = {s.track: s.names for s in suggestions}
    return [f"<p>{texts[track]}{html.escape(', '.join(names[track]))}.</p>" for track in texts if track in names]


def _card(s: Suggestion, picture: Picture | None, width: int) -> str:
    shown = None if picture is None else picture(s.video, s.frame)
    minutes, seconds = divmod(s.second, 60)
    image = "" if picture is None else "<div class='none'>no picture</div>"
    if shown is not None:
        source = f"data:image/jpeg;base64,{_jpeg(shown, width)}"
        image = f"<img alt='frame {s.frame} of {html.escape(s.video)}' src='{source}'>"
    raw = "" if math.isnan(s.raw) else f"recognizer {s.raw:.2f}, "
    question = f"{s.name}?" if s.track == "tools" else f"which phase? ({s.name}?)"
    return (
        f"<figure>{image}<figcaption><b>{html.escape(question)}</b> {raw}stabilized {s.stabilized:.2f}<br>"
        f"<small>{html.escape(s.video)}, {int(minutes)}:{seconds:04.1f}, frame {s.frame}</small></figcaption></figure>"
    )


def _jpeg(picture: Any, width: int) -> str:
    from PIL import Image

    image = Image.fromarray(picture)
    if image.width > width:
        image = image.resize((width, max(1, round(image.height * width / image.width))))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return base64.b64encode(buffer.getvalue()).decode("ascii")

"""What all pictures share: colors that color-blind readers can tell apart, names for reading, saving."""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's colors, which color-blind readers can tell apart, ordered so that phases that follow each other
#: contrast; then grays and browns for more than seven classes.
PHASE_COLORS = (
    "#CC79A7", "#0072B2", "#F0E442", "#009E73", "#E69F00", "#56B4E9", "#D55E00",
    "#000000", "#8C6D31", "#7B4173", "#BDBDBD", "#31527B",
)  # fmt: skip
#: One color for each row of a tool: the truth, what the recognizer says, what comes out. None is a phase's, beside
#: which it may stand; they differ in lightness, for every eye.
ROW_COLORS = {"truth": "#111111", "raw": "#8C8C8C", "online": "#B79FDB", "stabilized": "#5E2CA5"}
UNLABELED = "#EDEDED"
TEXT, FAINT = "#222222", "#767676"
#: From light to dark: reads the same in gray, on paper and to every eye.
SHADES = "Blues"


def words(name: str) -> str:
    """A class name for reading: "CalotTriangleDissection" is "Calot triangle dissection".

    Args:
        name: as files have it.

    Returns:
        Words with spaces between; those all in capitals stay so.
    """
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])|[_\-]+", " ", name).split()
    return " ".join([*parts[:1], *(part if part.isupper() else part.lower() for part in parts[1:])])


def new_figure(width: float, height: float) -> "Figure":
    """An empty white figure, inches; no pyplot, so no global state and no display."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), facecolor="white", layout="constrained")


def clean(axis: "Axes", *, grid: str | None = None) -> None:
    """Only the lines that carry something."""
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color("#999999")
    axis.tick_params(color="#999999", labelcolor=TEXT, labelsize=9)
    if grid is not None:
        axis.grid(axis=grid, color="#E3E3E3", linewidth=0.8)  # type: ignore[arg-type]
        axis.set_axisbelow(True)


def readable_on(color: Any) -> str:
    """Black or white, whichever reads better on an RGB(A) color."""
    red, green, blue = color[:3]
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else TEXT


@contextlib.contextmanager
def literal(figure: "Figure") -> Iterator[None]:
    """While a figure is drawn, its text is what files say: a dollar sign in a name begins no formula."""
    import matplotlib
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # type: ignore[attr-defined]
    with matplotlib.rc_context({"text.parse_math": False}):
        yield


def save_figure(figure: "Figure", path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Save as a picture, atomically, at 100 dots per inch.

    Args:
        figure: any of matplotlib's.
        path: the file; its suffix says the format.
        force: overwrite.

    Raises:
        FileExistsError: when `path` exists and `force` is False.
        ValueError: a suffix that matplotlib does not know.
    """
    from hmmjax.io import write_atomically

    with write_atomically(path, force=force) as temporary, literal(figure):
        figure.savefig(temporary, dpi=100, facecolor="white")

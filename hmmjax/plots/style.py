"""Colors, text and saving shared by all plots."""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The colors of Okabe and Ito, which are distinguishable for color-blind readers, ordered so that consecutive phases
#: contrast; then grays and browns for more than seven classes.
PHASE_COLORS = (
    "#CC79A7", "#0072B2", "#F0E442", "#009E73", "#E69F00", "#56B4E9", "#D55E00",
    "#000000", "#8C6D31", "#7B4173", "#BDBDBD", "#31527B",
)  # fmt: skip
#: Colors of truth, recognizer and stabilized predictions. They differ from the phase colors, and from each other in
#: lightness.
ROW_COLORS = {"truth": "#111111", "raw": "#8C8C8C", "online": "#B79FDB", "stabilized": "#5E2CA5"}
UNLABELED = "#EDEDED"
TEXT, FAINT = "#222222", "#767676"
#: A colormap from light to dark, which also works in gray.
SHADES = "Blues"


def words(name: str) -> str:
    """Format a class name as words: "CalotTriangleDissection" becomes "Calot triangle dissection".

    Args:
        name: the name in files.

    Returns:
        Words separated by spaces; words in capitals are kept.
    """
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])|[_\-]+", " ", name).split()
    return " ".join([*parts[:1], *(part if part.isupper() else part.lower() for part in parts[1:])])


def new_figure(width: float, height: float) -> "Figure":
    """Create an empty white figure of a size in inches, without pyplot."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), facecolor="white", layout="constrained")


def clean(axis: "Axes", *, grid: str | None = None) -> None:
    """Remove the frame's upper and right lines, and style the axes."""
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color("#999999")
    axis.tick_params(color="#999999", labelcolor=TEXT, labelsize=9)
    if grid is not None:
        axis.grid(axis=grid, color="#E3E3E3", linewidth=0.8)  # type: ignore[arg-type]
        axis.set_axisbelow(True)


def readable_on(color: Any) -> str:
    """Return the text color that is readable on an RGB(A) color."""
    red, green, blue = color[:3]
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else TEXT


@contextlib.contextmanager
def literal(figure: "Figure") -> Iterator[None]:
    """Draw text literally inside the block: dollar signs in names do not start formulas."""
    import matplotlib
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # type: ignore[attr-defined]
    with matplotlib.rc_context({"text.parse_math": False}):
        yield


def save_figure(figure: "Figure", path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Save a figure atomically at 100 dots per inch.

    Args:
        figure: a matplotlib figure.
        path: the file; its suffix determines the format.
        force: overwrite an existing file.

    Raises:
        FileExistsError: if `path` exists and `force` is False.
        ValueError: if matplotlib does not support the suffix.
    """
    from hmmjax.io import write_atomically

    # Of the time to save a PNG, compression at the default level takes a third and gains little on plain areas.
    options: dict[str, Any] = {"pil_kwargs": {"compress_level": 1}} if os.fspath(path).lower().endswith(".png") else {}
    with write_atomically(path, force=force) as temporary, literal(figure):
        figure.savefig(temporary, dpi=100, facecolor="white", **options)

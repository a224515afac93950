"""The appearance of the seven instruments: a table, and one function per shape.

A shape is a function of the instrument's own coordinates: u is the distance from its tip toward the port and v the
lateral distance, both in image heights. It returns the opacity of the tip at every pixel.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

Array = np.ndarray


@dataclasses.dataclass(frozen=True)
class Look:
    """An instrument's shape and colors.

    Attributes:
        shape: maps (u, v, opening 0 to 1, look, pixels per height) to the opacity of the tip, 0 to 1.
        shaft: RGB color, 0 to 1.
        tip: RGB color, 0 to 1.
        tip_length: distance from the tip to the shaft, in image heights.
        shaft_width: half the width of the shaft.
        limb_width: half the width of a jaw or rod.
        reach: lateral extent of open jaws, the hook's foot or the bag's rim.
        opacity: of the tip.
        beyond: extent of the shape beyond its tip.
    """

    shape: Callable[[Array, Array, float, "Look", float], Array]
    shaft: tuple[float, float, float]
    tip: tuple[float, float, float]
    tip_length: float
    shaft_width: float
    limb_width: float
    reach: float
    opacity: float = 1.0
    beyond: float = 0.0

    @property
    def half_height(self) -> float:
        """The maximum lateral extent of the instrument."""
        return max(self.shaft_width, self.reach + self.limb_width)


def edge(distance: Array, pixels: float) -> Array:
    """Return the opacity at a distance inside an outline, antialiased over one pixel."""
    return np.clip(distance * pixels + 0.5, 0, 1)


def jaws(u: Array, v: Array, opening: float, look: Look, pixels: float) -> Array:
    """Draw two limbs with a hinge at the end of the shaft."""
    spread = opening * look.reach * (1 - u / look.tip_length)
    limbs = edge(look.limb_width - np.abs(np.abs(v) - spread), pixels)
    return limbs * edge(u, pixels) * edge(look.tip_length - u, pixels)


def hook(u: Array, v: Array, opening: float, look: Look, pixels: float) -> Array:
    """Draw a rod whose end is bent to one side."""
    rod = edge(look.limb_width - np.abs(v), pixels) * edge(u, pixels) * edge(look.tip_length - u, pixels)
    foot = edge(look.limb_width - np.abs(u - look.limb_width), pixels) * edge(v, pixels) * edge(look.reach - v, pixels)
    return np.maximum(rod, foot)


def tube(u: Array, v: Array, opening: float, look: Look, pixels: float) -> Array:
    """Draw a blunt tube with holes near its end."""
    holes = edge(0.35 * look.limb_width - np.hypot(v, (u + 0.02) % 0.04 - 0.02), pixels)
    pipe = edge(look.limb_width - np.abs(v), pixels) * edge(u, pixels) * edge(look.tip_length - u, pixels)
    return pipe * (1 - holes)


def bag(u: Array, v: Array, opening: float, look: Look, pixels: float) -> Array:
    """Draw a crumpled, translucent pouch with visible folds."""
    radius = look.reach + look.limb_width
    angle = np.arctan2(v, u)
    outline = 0.82 + 0.1 * np.sin(3 * angle + 4 * opening) + 0.06 * np.sin(7 * angle)
    distance = np.hypot(v, u) / radius
    folds = 0.75 + 0.25 * np.sin(60 * u + 3 * np.sin(25 * v + 6 * opening))
    return edge((outline - distance) * radius, pixels) * folds


STEEL, WHITE, BLACK = (0.62, 0.64, 0.68), (0.86, 0.87, 0.90), (0.13, 0.13, 0.15)
BLUE, YELLOW = (0.20, 0.32, 0.62), (0.75, 0.68, 0.40)

#: In the order of `hmmjax.simulate.TOOLS`.
LOOKS = (
    Look(jaws, BLACK, STEEL, tip_length=0.20, shaft_width=0.040, limb_width=0.020, reach=0.08),
    Look(jaws, BLUE, STEEL, tip_length=0.16, shaft_width=0.036, limb_width=0.013, reach=0.05),
    Look(hook, BLACK, YELLOW, tip_length=0.17, shaft_width=0.038, limb_width=0.014, reach=0.07),
    Look(jaws, STEEL, WHITE, tip_length=0.15, shaft_width=0.036, limb_width=0.010, reach=0.10),
    Look(jaws, STEEL, STEEL, tip_length=0.13, shaft_width=0.056, limb_width=0.028, reach=0.04),
    Look(tube, STEEL, STEEL, tip_length=0.22, shaft_width=0.038, limb_width=0.034, reach=0.0),
    Look(bag, BLACK, WHITE, tip_length=0.02, shaft_width=0.018, limb_width=0.02, reach=0.19, opacity=0.8, beyond=0.21),
)

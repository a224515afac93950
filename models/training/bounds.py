"""Which numbers a setting may be, written as intervals."""

import math
from collections.abc import Mapping
from typing import Any


def check_bounds(settings: Any, bounds: Mapping[str, str], prefix: str = "") -> None:
    """See that settings lie in their intervals.

    Args:
        settings: an object with the settings as attributes; one that is None is passed over, and of one that holds
            several numbers each is looked at.
        bounds: name to interval, such as "[1, inf)" or "(0, 1]".
        prefix: of the names in messages, such as "optimizer.".

    Raises:
        ValueError: for the first that does not, with its name and interval; NaN lies in none. And for a setting of
            several numbers that has none.
    """
    for name, interval in bounds.items():
        value = getattr(settings, name)
        several = isinstance(value, tuple)
        if several and not value:
            raise ValueError(f"{prefix}{name} is empty: give at least one number in {interval}")
        if not all(_inside(x, interval) for x in (value if several else (value,)) if x is not None):
            raise ValueError(f"{prefix}{name} is {value}: give {'numbers' if several else 'a number'} in {interval}")


def _inside(value: float, interval: str) -> bool:
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    return above and below and math.isfinite(value)

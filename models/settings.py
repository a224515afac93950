"""Bounds of settings, written as intervals."""

import math
from collections.abc import Mapping
from typing import Any


def check_bounds(settings: Any, bounds: Mapping[str, str], prefix: str = "") -> None:
    """Raise ValueError unless settings lie in their intervals.

    Args:
        settings: an object with the settings as attributes. A setting that is None is skipped; in a tuple, each number
            is checked.
        bounds: name to interval, such as "[1, inf)" or "(0, 1]".
        prefix: of the names in messages, such as "optimizer.".

    Raises:
        ValueError: for the first setting outside its interval, with its name and the interval; NaN lies in no interval.
            Also for an empty tuple.
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

"""Conversion between plain values (YAML, command-line words) and dataclasses of settings, with bounds on numbers."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

import yaml


def parse_yaml(text: str, where: str) -> Any:
    """Return the value of a YAML text.

    Args:
        text: the YAML.
        where: its origin, for the error message: a file name or a ``key=value`` word.

    Raises:
        ValueError: if the text is not valid YAML.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from error


def without_tuples(value: Any) -> Any:
    """Return nested dictionaries and lists with every tuple replaced by a list, as YAML writes them."""
    if isinstance(value, dict):
        return {key: without_tuples(item) for key, item in value.items()}
    return [without_tuples(item) for item in value] if isinstance(value, (tuple, list)) else value


def build(cls: type, values: Any, prefix: str = "") -> Any:
    """Build a dataclass from values by field name.

    Args:
        cls: the dataclass; its fields may be dataclasses too.
        values: field name to value; fields that are left out keep their defaults.
        prefix: of the names in messages, such as "optimizer.".

    Raises:
        ValueError: for an unknown name (the message suggests the closest known one) or a value of the wrong type.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{prefix.rstrip('.') or 'the configuration'} takes settings by name, not {values!r}")
    hints = typing.get_type_hints(cls)
    for key in values:
        if key not in hints:
            close = difflib.get_close_matches(str(key), hints, 1)
            guess = f": was {prefix}{close[0]} meant?" if close else f": choose one of {', '.join(hints)}"
            raise ValueError(f"unknown setting {prefix}{key}{guess}")
    return cls(**{key: _convert(hints[key], value, prefix + key) for key, value in values.items()})


def _convert(hint: Any, value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), value, name + ".")
    options = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        return _convert(next(option for option in options if option is not type(None)), value, name)
    if typing.get_origin(hint) is tuple and options[-1] is Ellipsis and isinstance(value, (list, tuple)):
        return tuple(_convert(options[0], item, name) for item in value)
    if typing.get_origin(hint) is tuple and isinstance(value, (list, tuple)) and len(value) == len(options):
        return tuple(_convert(option, item, name) for option, item in zip(options, value, strict=True))
    if typing.get_origin(hint) is dict and isinstance(value, Mapping):
        return dict(value)
    if hint is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)  # YAML reads 1e-3 as a string
        except ValueError:
            pass
    elif hint in (int, bool, str) and type(value) is hint:
        return value
    raise ValueError(f"{name} cannot be {value!r}: it takes {getattr(hint, '__name__', hint)}")


def check_bounds(settings: Any, bounds: Mapping[str, str], prefix: str = "") -> None:
    """Raise ValueError unless settings lie in their intervals.

    Args:
        settings: an object with the settings as attributes. None is accepted; of a tuple, every number is checked.
        bounds: name to interval, such as "[1, inf)" or "(0, 1]".
        prefix: of the names in messages, such as "optimizer.".

    Raises:
        ValueError: for the first setting outside its interval (NaN is outside all), and for an empty tuple.
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

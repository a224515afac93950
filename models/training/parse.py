"""Words and plain values to dataclasses of settings, and back."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from typing import Any

import yaml


def parse_yaml(text: str, where: str) -> Any:
    """What YAML says.

    Args:
        text: to read.
        where: it is from, for the message.

    Raises:
        ValueError: when it is none.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{where} is no YAML: {' '.join(str(error).split())}") from error


def plain(value: Any) -> Any:
    """Dictionaries, lists and what is in them, without tuples."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def build(cls: type, values: Any, prefix: str = "") -> Any:
    """A dataclass from its fields by name.

    Args:
        cls: of the dataclass; fields may be dataclasses themselves.
        values: by name; what is left out has its default.
        prefix: of the names in messages, such as "optimizer.".

    Raises:
        ValueError: for an unknown name, with a guess at what was meant, and for a value of the wrong type.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{prefix.rstrip('.') or 'the configuration'} holds settings by name, not {values!r}")
    hints = typing.get_type_hints(cls)
    for key in values:
        if key not in hints:
            close = difflib.get_close_matches(str(key), hints, 1)
            guess = f": was {prefix}{close[0]} meant?" if close else f": there are {', '.join(hints)}"
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
            return float(value)  # YAML takes 1e-3 for a word
        except ValueError:
            pass
    elif hint in (int, bool, str) and type(value) is hint:
        return value
    raise ValueError(f"{name} cannot be {value!r}: it takes {getattr(hint, '__name__', hint)}")

"""Settings of training runs: the dataclass `Config`, read from YAML or Python files and ``key=value`` words."""

import dataclasses
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from models.settings.fields import Augment, Config, Data, Detection, Loss, Optimizer
from models.settings.parse import build, parse_yaml, without_tuples

__all__ = [
    "Augment",
    "Config",
    "Data",
    "Detection",
    "Loss",
    "Optimizer",
    "config_text",
    "parse_yaml",
    "read_config",
    "write_config",
]


def read_config(path: str | Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read a configuration from a file, with ``key=value`` words that override it.

    Args:
        path: YAML with the names of `Config`'s fields, or a Python file that sets ``config``; None for the defaults.
        overrides: such as ``optimizer.learning_rate=1e-4`` and ``size=[160,284]``.

    Raises:
        ValueError: for an unknown name, a value of the wrong type or outside its bounds, and a file that is not valid
            YAML.
    """
    values: dict[str, Any] = {}
    if path is not None and Path(path).suffix == ".py":
        found = runpy.run_path(str(path)).get("config")
        if not isinstance(found, Config):
            raise ValueError(
                f"{path} does not set config to a models.settings.Config. Fix: add config = Config(...) to the file"
            )
        values = dataclasses.asdict(found)
    elif path is not None:
        values = parse_yaml(Path(path).read_text(encoding="utf-8"), str(path)) or {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ValueError(f"{override!r} is not a setting: write key=value")
        place, parents = values, key.split(".")
        for depth, name in enumerate(parents):
            if not isinstance(place, dict):
                where = ".".join(parents[:depth]) or "the configuration"
                raise ValueError(f"{override!r}: {where} takes settings by name, not {place!r}")
            if depth < len(parents) - 1:
                place = place.setdefault(name, {})
        place[parents[-1]] = parse_yaml(text, override)
    return build(Config, values)


def write_config(config: Config, path: str | Path) -> None:
    """Write a configuration as YAML that `read_config` reads back."""
    Path(path).write_text(config_text(config), encoding="utf-8")


def config_text(config: Config) -> str:
    """Return a configuration as YAML."""
    return yaml.safe_dump(without_tuples(dataclasses.asdict(config)), sort_keys=False)

"""Keep renamed public names and arguments working for one release."""

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module that resolves old names with a DeprecationWarning.

    Args:
        module: the module's `__name__`.
        names: new names by old name, with their module if that is another one.
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = (names[name] if "." in names[name] else f"{module}.{names[name]}").rpartition(".")
        warn_renamed(f"{module}.{name}", f"{home}.{new}")
        return getattr(importlib.import_module(home), new)

    return __getattr__


def renamed_arguments(**names: str) -> Callable[[F], F]:
    """Decorate a function to accept old keyword arguments with a DeprecationWarning.

    Args:
        names: new names by old name.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            for old in names.keys() & kwargs.keys():
                if names[old] in kwargs:
                    raise TypeError(f"{function.__name__}() got both {old!r} (deprecated) and {names[old]!r}")
                warn_renamed(f"{function.__name__}({old}=...)", f"{names[old]}=...")
                kwargs[names[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]

    return decorate


def warn_renamed(old: str, new: str) -> None:
    """Warn the caller of the calling function that `old` is now `new`."""
    message = f"{old} is deprecated and will be removed in the next release. Use {new} instead."
    warnings.warn(message, DeprecationWarning, stacklevel=3)

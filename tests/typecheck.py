"""The type checker that jaxtyping's import hook applies to every function of the library."""

from typing import Any, Self

from beartype import BeartypeConf, FrozenDict, beartype

# jaxtyping decorates methods one by one, so beartype cannot resolve Self.
# The numeric tower accepts an int for an annotated float, as static type checkers do.
check = beartype(conf=BeartypeConf(hint_overrides=FrozenDict({Self: Any}), is_pep484_tower=True))

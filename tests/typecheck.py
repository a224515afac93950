"""The type checker that jaxtyping's import hook applies to every function of the library."""

from typing import Any, Self

from beartype import BeartypeConf, FrozenDict, beartype

# jaxtyping decorates methods one by one, where beartype cannot know what Self is.
# The numeric tower: an int is welcome where a float is annotated, as every type checker has it.
check = beartype(conf=BeartypeConf(hint_overrides=FrozenDict({Self: Any}), is_pep484_tower=True))

"""Type annotations of arrays. Those with shapes work without jaxtyping.

With jaxtyping installed (it is in the ``dev`` extra) `Bool`, `Float`, `Int` and `Num` are jaxtyping's and the tests
enforce them; without it they all mean "an array".
"""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

Array = jax.Array | np.ndarray
"""An array of JAX or NumPy, as the library returns it."""

ArrayLike = Any
"""User input: an array of JAX or NumPy, possibly traced, or another form that the argument's docstring allows.

Such inputs are checked by `hmmjax._core.validation`, whose errors name the argument, its value and the fix.
"""

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Num
else:
    try:
        from jaxtyping import Bool, Float, Int, Num
    except ImportError:

        class _Any:
            def __class_getitem__(cls, item: Any) -> Any:
                return Array

        Bool = Float = Int = Num = _Any

__all__ = ["Array", "ArrayLike", "Bool", "Float", "Int", "Num"]

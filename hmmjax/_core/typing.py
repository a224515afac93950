"""Shape-carrying array annotations that cost a core install nothing.

With jaxtyping installed (it is in the ``dev`` extra) the names below are jaxtyping's and the tests enforce them;
without it they all mean "an array".
"""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

Array = jax.Array | np.ndarray

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

__all__ = ["Array", "Bool", "Float", "Int", "Num"]

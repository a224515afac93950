"""What an emission family with memory sees of the frames before each frame."""

from typing import Any

from hmmjax._core.pytree import pytree


@pytree
class Past:
    """The observations of the `lag` frames before each frame, the closest first.

    ``...`` are the leading axes of the observations that it comes with. The axis of lags comes first, so that
    ``past.values[0]`` has the shape of the observations themselves.

    Attributes:
        values: (lag, ..., *event_shape); ``values[0]`` belongs to the frame before, ``values[1]`` to the one before
            that. Where nothing was observed they hold some valid observation, which must not be used.
        observed: (lag, ...) bool of phases, (lag, ..., K) bool of tools: False before a video's first frame, in frames
            that the mask hides, and where the output of one of several recognizers is missing.
    """

    values: Any
    observed: Any

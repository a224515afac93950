"""Models of sequences of frame features, which know nothing of the backbone; `build` makes one by name."""

from collections.abc import Callable

from flax import nnx

from models.temporal.attention import CausalTransformer, lapformer
from models.temporal.base import Temporal
from models.temporal.conv_lstm import ConvLSTM, MapAttention
from models.temporal.last import Last
from models.temporal.lstm import LSTM
from models.temporal.penalties import Correlation, SequenceVAE

TEMPORAL: dict[str, Callable[..., Temporal]] = {
    "lstm": LSTM,
    "lapformer": lapformer,
    "last": Last,
    # Of maps; they are told their shape.
    "conv_lstm": ConvLSTM,
    "map_attention": MapAttention,
}

#: What a system may add to its losses; see `models.temporal.penalties`.
PENALTIES: dict[str, Callable[..., nnx.Module]] = {"correlation": Correlation, "vae": SequenceVAE}


def build(name: str, inputs: int, *, rngs: nnx.Rngs, **options) -> Temporal:
    """A temporal model by name.

    Args:
        name: a key of `TEMPORAL`.
        inputs: length D of the features that it reads.
        rngs: for the initial parameters.
        options: of the model, such as `width` and `band`.

    Raises:
        ValueError: for a name that is not there.
    """
    if name not in TEMPORAL:
        raise ValueError(f"unknown temporal model {name!r}: choose one of {', '.join(TEMPORAL)}")
    return TEMPORAL[name](inputs, rngs=rngs, **options)


__all__ = [
    "LSTM",
    "PENALTIES",
    "TEMPORAL",
    "CausalTransformer",
    "ConvLSTM",
    "Correlation",
    "Last",
    "MapAttention",
    "SequenceVAE",
    "Temporal",
    "build",
]

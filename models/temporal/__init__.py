"""Sequence models over frame features of any backbone; `build` makes one by name."""

from collections.abc import Callable, Mapping

from flax import nnx

from models.backbones.base import Cells
from models.temporal.asformer import ASFormer
from models.temporal.attention import CausalTransformer, lapformer
from models.temporal.base import Temporal
from models.temporal.conv_lstm import ConvLSTM, MapAttention
from models.temporal.last import Last
from models.temporal.lstm import LSTM, BiLSTM
from models.temporal.penalties import Correlation, SequenceVAE
from models.temporal.stages import Staged, smoothing_loss
from models.temporal.tcn import MSTCN, tecno

TEMPORAL: dict[str, Callable[..., Temporal]] = {
    "lstm": LSTM,
    "bilstm": BiLSTM,
    "lapformer": lapformer,
    "last": Last,
    "conv_lstm": ConvLSTM,
    "map_attention": MapAttention,
    "mstcn": MSTCN,
    "tecno": tecno,
    "asformer": ASFormer,
}

#: Models that read flattened maps and need their shape.
OF_MAPS = ("conv_lstm", "map_attention")

#: Models that compute logits themselves, in stages, and need the number of classes.
STAGED = ("mstcn", "tecno", "asformer")

#: Terms that a system may add to its loss; see `models.temporal.penalties`.
PENALTIES: dict[str, Callable[..., nnx.Module]] = {"correlation": Correlation, "vae": SequenceVAE}


def build(
    name: str,
    inputs: int,
    *,
    cells: Cells | None = None,
    sizes: Mapping[str, int] | None = None,
    rngs: nnx.Rngs,
    **options,
) -> Temporal:
    """Build a temporal model by name.

    Args:
        name: a key of `TEMPORAL`.
        inputs: length D of its input features.
        cells: rows, columns and channels if these are flattened maps, else None.
        sizes: number of classes by track; only models that compute logits in stages need it.
        rngs: for the initial parameters.
        options: of the model, such as `width` and `band`.

    Raises:
        ValueError: for an unknown name, for a model of maps on features that are not maps, for a model in stages
            without `sizes`, and for options that the model does not take.
    """
    if name not in TEMPORAL:
        raise ValueError(f"unknown temporal model {name!r}: choose one of {', '.join(TEMPORAL)}")
    if name in OF_MAPS:
        if cells is None:
            raise ValueError(
                f"{name} reads feature maps, but these features are vectors. Fix: use a system of maps, such as fcn_l"
            )
        options["cells"] = cells
    if name in STAGED:
        if sizes is None:
            raise ValueError(f"{name} computes logits itself. Fix: pass sizes, the number of classes by track")
        options["sizes"] = sizes
    try:
        return TEMPORAL[name](inputs, rngs=rngs, **options)
    except TypeError as error:
        raise ValueError(f"{name} cannot be built with the options {', '.join(options)}: {error}") from error


__all__ = [
    "LSTM",
    "MSTCN",
    "PENALTIES",
    "TEMPORAL",
    "ASFormer",
    "BiLSTM",
    "CausalTransformer",
    "ConvLSTM",
    "Correlation",
    "Last",
    "MapAttention",
    "SequenceVAE",
    "Staged",
    "Temporal",
    "build",
    "smoothing_loss",
]

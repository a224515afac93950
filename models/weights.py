"""Conversion between a network's parameters and torch's state dict.

A parameter's path in a backbone is its name in the state dict of torchvision or of the published code, and in a
temporal model in stages its name in the published implementation; only the order of axes and the last part of the name
(weight, running_mean) differ. `models.published` knows the names of other libraries.
"""

import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx

from hmmjax.io import write_atomically
from models.backbones import Backbone
from models.backbones.attention import WindowAttention, relative_position_index
from models.backbones.bicubic import resize_grid
from models.backbones.layers import BatchNorm
from models.published import translate
from models.torchfile import read_torch

State = dict[str, np.ndarray]

_NAMES = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}
#: torch's buffers that are not parameters: a counter that is never read, what follows from the shapes, and masks.
_IMPLIED = ("num_batches_tracked", "relative_position_index", "rope_embed.periods", "inv_freq", "bias_mask")
#: Maximum number of names of a kind in a message.
_SHOWN = 5


class WeightsError(ValueError):
    """A state dict does not fit a network.

    Attributes:
        missing: names in the network that the state dict lacks.
        unexpected: names in the state dict that the network lacks.
        misshaped: name to (shape in the network, shape in the state dict).
    """

    def __init__(self, missing: list[str], unexpected: list[str], misshaped: dict[str, tuple[tuple, tuple]]):
        self.missing = missing
        self.unexpected = unexpected
        self.misshaped = misshaped
        parts = ["the state dict does not fit the network"]
        for kind, names in (("missing", missing), ("unexpected", unexpected)):
            if names:
                shown = f"{', '.join(names[:_SHOWN])}{', ...' * (len(names) > _SHOWN)}"
                parts.append(f"{kind} ({len(names)}): {shown}")
        for name, (want, have) in list(misshaped.items())[:_SHOWN]:
            parts.append(f"{name} has shape {have}, expected {want}")
        parts.append("Fix: build the network that the weights belong to, with its options")
        super().__init__("\n  ".join(parts))


class Entry(NamedTuple):
    """A variable of a network and its counterpart in torch.

    Attributes:
        name: in torch's state dict.
        variable: of the network.
        axes: the variable's axes in torch's order.
    """

    name: str
    variable: nnx.Variable
    axes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in torch's layout."""
        return tuple(self.variable.shape[axis] for axis in self.axes)


def entries(network: nnx.Module) -> Iterator[Entry]:
    """Yield every variable of a network."""
    for path, variable in nnx.to_flat_state(nnx.state(network)):
        *parents, last = map(str, path)
        rank = len(variable.shape)
        # HWIO to OIHW, WIO to OIW, and (inputs, outputs) to (outputs, inputs).
        axes = {4: (3, 2, 0, 1), 3: (2, 1, 0), 2: (1, 0)}[rank] if last == "kernel" else tuple(range(rank))
        yield Entry(".".join([*parents, _NAMES.get(last, last)]), variable, axes)


def load_state(network: nnx.Module, state: Mapping[str, np.ndarray]) -> list[str]:
    """Load a state dict into a network, in place.

    Prefixes of names and the layouts of other libraries are recognized (`models.published`). Ignored are counters of
    batches, indices that follow from the shapes, and masks of constant biases. Left out, with a notice, are entries
    outside the network: other networks of a checkpoint, projectors, and the classifier if a backbone was built without
    classes. Learned positions are resized to the network's grid.

    Args:
        network: a backbone, or a temporal model in stages, whose `published_names` say which parts of names differ from
            the published implementation's; changed in place, and unchanged if the state dict does not fit.
        state: name to array in torch's layout, of any floating-point type.

    Returns:
        Notices about what was left out or resized.

    Raises:
        WeightsError: lists missing, unexpected and misshaped entries.
        ValueError: for entries that are not floating-point numbers, such as quantized weights.
    """
    ours = {entry.name: entry for entry in entries(network)}
    given = {name: value for name, value in state.items() if not name.endswith(_IMPLIED)}
    for published, own in getattr(network, "published_names", ()):
        given = {name.replace(published, own): value for name, value in given.items()}
    given, outside, layout = translate(given, ours)
    notices = [f"names of {layout}"] if layout != "own" else []
    parts = {name.partition(".")[0] for name in ours}
    unexpected = sorted(given.keys() - ours.keys())
    # A further block of one of the network's own parts belongs to another network; another part need not be used.
    head = f"{network.head_name}." if isinstance(network, Backbone) else None
    foreign = [n for n in unexpected if n.partition(".")[0] in parts and not (head and n.startswith(head))]
    missing = sorted(ours.keys() - given.keys())
    for name in ours.keys() & given.keys():
        given[name] = _fitted(name, np.asarray(given[name]), ours[name].shape, notices)
    misshaped = {
        name: (entry.shape, np.shape(given[name]))
        for name, entry in ours.items()
        if name in given and np.shape(given[name]) != entry.shape
    }
    if missing or foreign or misshaped:
        raise WeightsError(missing, sorted([*unexpected, *outside]), misshaped)
    kinds = {name: np.asarray(given[name]).dtype for name in ours}
    if wrong := {name: kind for name, kind in kinds.items() if not jnp.issubdtype(kind, jnp.floating)}:
        listed = ", ".join(f"{name} ({kind})" for name, kind in wrong.items())
        raise ValueError(f"these weights are not floating-point numbers: {listed}. Fix: save them as float32")
    for name, entry in ours.items():
        value = np.transpose(np.asarray(given[name]), np.argsort(entry.axes))
        entry.variable.set_value(jnp.asarray(value, entry.variable.dtype))
    if left := [*unexpected, *outside]:
        notices.append(f"left out {len(left)}: {', '.join(left[:_SHOWN])}{', ...' * (len(left) > _SHOWN)}")
    return notices


def _fitted(name: str, value: np.ndarray, shape: tuple[int, ...], notices: list[str]) -> np.ndarray:
    """Return an array in a network's shape if only axes of length one, or the grid of its positions, differ."""
    if value.shape != shape and [n for n in value.shape if n > 1] == [n for n in shape if n > 1]:
        return value.reshape(shape)
    if name != "pos_embed" or value.ndim != 3 or value.shape[::2] != shape[::2]:
        return value
    side = math.isqrt(shape[1] - 1)
    for classes in (1, 0):
        own = math.isqrt(value.shape[1] - classes)
        if own * own == value.shape[1] - classes:
            # Where timm has no position of the class token, it is part of the token.
            first = value[:, :1] if classes else np.zeros_like(value[:, :1])
            grid = value[0, classes:].astype(np.float32).reshape(own, own, -1)
            if own != side:
                notices.append(f"resized positions from {own}x{own} to {side}x{side}")
                grid = np.asarray(resize_grid(grid, side, side))
            return np.concatenate([first, grid.reshape(1, side * side, -1)], 1)
    return value


def export_state(network: Backbone) -> State:
    """Return a backbone's weights as torchvision's state dict: name to array in torch's layout.

    It includes all buffers, so ``network.load_state_dict`` in torch accepts it with ``strict=True``.
    """
    state = {
        entry.name: np.ascontiguousarray(np.transpose(np.asarray(entry.variable[...]), entry.axes))
        for entry in entries(network)
    }
    for path, module in nnx.iter_modules(network):
        prefix = "".join(f"{part}." for part in path)
        if isinstance(module, BatchNorm):
            state[prefix + "num_batches_tracked"] = np.zeros((), np.int64)
        elif isinstance(module, WindowAttention):
            state[prefix + "relative_position_index"] = relative_position_index(module.window).reshape(-1)
    return state


def read_state(path: str | Path) -> State:
    """Read a state dict from ``.safetensors``, or from torch's ``.pth`` without executing code in it.

    Raises:
        ValueError: for another kind of file, a damaged file, and a pickle that contains anything but tensors.
        OSError: if the file cannot be opened.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        path.open("rb").close()  # raises OSError with Python's message if the file cannot be opened
        try:
            return load_file(path)
        except (SafetensorError, AttributeError, KeyError) as error:  # the last two: a dtype that numpy lacks
            raise ValueError(f"{path} is not a readable safetensors file: {error}. Fix: save it again") from error
    if path.suffix in (".pth", ".pt", ".ckpt", ".bin", ".tar"):
        return read_torch(path)
    raise ValueError(f"{path} is not a file of weights. Fix: pass a .pth, .pt, .ckpt, .bin or .safetensors file")


def save_state(path: str | Path, state: State) -> None:
    """Write a state dict as ``.safetensors``; an existing file is replaced."""
    from safetensors.numpy import save_file

    with write_atomically(path, force=True) as temporary:
        save_file(state, temporary)


def load_weights(network: nnx.Module, path: str | Path) -> None:
    """Read a state dict from a file and load it into a network, see `read_state` and `load_state`; print notices."""
    for notice in load_state(network, read_state(path)):
        print(f"{path}: {notice}", file=sys.stderr)

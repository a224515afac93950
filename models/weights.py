"""Conversion between a network's parameters and torch's state dict.

A parameter's path in a backbone is its name in torchvision's state dict, and in a temporal model in stages its name in
the published implementation, so no table of names is needed; only the order of axes and the last part of the name
(weight, running_mean) differ.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx

from hmmjax.io import write_atomically
from models.backbones import Backbone
from models.backbones.attention import WindowAttention, relative_position_index
from models.backbones.layers import BatchNorm
from models.torchfile import read_torch

State = dict[str, np.ndarray]

_NAMES = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}
#: torch's buffers that are not parameters: a counter that is never read, and an index that follows from the shapes.
_IMPLIED = ("num_batches_tracked", "relative_position_index")
#: Prefix that torch's DataParallel and DistributedDataParallel add to every name.
_WRAPPER = "module."


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
        if missing:
            parts.append(f"missing ({len(missing)}): {', '.join(missing)}")
        if unexpected:
            parts.append(f"unexpected ({len(unexpected)}): {', '.join(unexpected)}")
        for name, (want, have) in misshaped.items():
            parts.append(f"{name} has shape {have}, expected {want}")
        parts.append("Fix: build the network that the weights belong to")
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


def load_state(network: nnx.Module, state: Mapping[str, np.ndarray]) -> None:
    """Load a state dict into a network, in place.

    Ignored are the classifier's entries if a backbone was built without classes, counters of batches, indices of
    relative positions, and the prefix "module." that torch's DataParallel adds to every name.

    Args:
        network: a backbone, or a temporal model in stages, whose `published_names` say which parts of names differ from
            the published implementation's; changed in place, and unchanged if the state dict does not fit.
        state: name to array in torch's layout, of any floating-point type.

    Raises:
        WeightsError: lists every missing, unexpected and misshaped entry.
        ValueError: for entries that are not floating-point numbers, such as quantized weights.
    """
    ours = {entry.name: entry for entry in entries(network)}
    if state and all(name.startswith(_WRAPPER) for name in state):
        state = {name.removeprefix(_WRAPPER): value for name, value in state.items()}
    given = {name: value for name, value in state.items() if not name.endswith(_IMPLIED)}
    for published, own in getattr(network, "published_names", ()):
        given = {name.replace(published, own): value for name, value in given.items()}
    if isinstance(network, Backbone):
        head = network.head_name + "."
        if not any(name.startswith(head) for name in ours):
            given = {name: value for name, value in given.items() if not name.startswith(head)}
    misshaped = {
        name: (entry.shape, np.shape(given[name]))
        for name, entry in ours.items()
        if name in given and np.shape(given[name]) != entry.shape
    }
    missing, unexpected = sorted(ours.keys() - given.keys()), sorted(given.keys() - ours.keys())
    if missing or unexpected or misshaped:
        raise WeightsError(missing, unexpected, misshaped)
    kinds = {name: np.asarray(given[name]).dtype for name in ours}
    if wrong := {name: kind for name, kind in kinds.items() if not jnp.issubdtype(kind, jnp.floating)}:
        listed = ", ".join(f"{name} ({kind})" for name, kind in wrong.items())
        raise ValueError(f"these weights are not floating-point numbers: {listed}. Fix: save them as float32")
    for name, entry in ours.items():
        value = np.transpose(np.asarray(given[name]), np.argsort(entry.axes))
        entry.variable.set_value(jnp.asarray(value, entry.variable.dtype))


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
    if path.suffix in (".pth", ".pt"):
        return read_torch(path)
    raise ValueError(f"{path} is not a file of weights. Fix: pass a .pth, .pt or .safetensors file")


def save_state(path: str | Path, state: State) -> None:
    """Write a state dict as ``.safetensors``; an existing file is replaced."""
    from safetensors.numpy import save_file

    with write_atomically(path, force=True) as temporary:
        save_file(state, temporary)


def load_weights(network: nnx.Module, path: str | Path) -> None:
    """Read a state dict from a file and load it into a network, see `read_state` and `load_state`."""
    load_state(network, read_state(path))

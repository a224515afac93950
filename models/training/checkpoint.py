"""Checkpoints of the last and the best state of a run, written by Orbax.

Arrays are saved under their paths in the tree, so that a checkpoint does not depend on the classes that hold them. The
model and the optimizer's state are separate items, because prediction reads the model only.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from flax import nnx

from models.systems import System
from models.training.processes import to_devices
from models.training.step import TrainState


class Checkpoints:
    """The checkpoints of a run.

    Args:
        folder: holds ``last`` and ``best``.
        write: create missing folders, and remove what killed processes have left; False changes nothing on disk.
    """

    def __init__(self, folder: str | Path, *, write: bool = True):
        root = Path(folder).resolve()
        options = ocp.CheckpointManagerOptions(max_to_keep=1, create=write, cleanup_tmp_directories=write)
        self._managers = {name: ocp.CheckpointManager(root / name, options=options) for name in ("last", "best")}

    def save(self, which: str, state: TrainState, progress: dict[str, Any]) -> None:
        """Save a state as "last" or "best", in place of the previous one.

        Args:
            which: "last" or "best".
            state: to save.
            progress: further plain values that the run needs to resume.
        """
        manager, step = self._managers[which], int(state.step)
        if step in manager.all_steps():
            return
        items = ocp.args.Composite(
            model=ocp.args.StandardSave(_named({"params": state.params, "rest": state.rest})),
            optimizer=ocp.args.StandardSave(_named(state.optimizer)),
            progress=ocp.args.JsonSave(progress),
        )
        manager.save(step, args=items, force=True)
        manager.wait_until_finished()

    def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """Restore the newest state and its progress, sharded as `like` is; return None without any checkpoint.

        "best" is saved before "last", so a run that was killed in between resumes from "best".

        Raises:
            ValueError: for a state of another network, and for a damaged one.
        """
        steps = {name: manager.latest_step() for name, manager in self._managers.items()}
        which = max(steps, key=lambda name: -1 if (number := steps[name]) is None else number)
        step = steps[which]
        if step is None:
            return None
        model, optimizer, progress = self._read(which, step, {"params": like.params, "rest": like.rest}, like.optimizer)
        at = to_devices(np.int32(step), like.step.sharding)
        return TrainState(at, model["params"], model["rest"], optimizer), progress

    def restore_model(self, which: str, model: System) -> int:
        """Restore the variables of a model in place and return its number of updates.

        Raises:
            FileNotFoundError: if there is no such checkpoint.
            ValueError: for a checkpoint of another network, and for a damaged one.
        """
        manager = self._managers[which]
        step = manager.latest_step()
        if step is None:
            raise FileNotFoundError(f"no {which} checkpoint in {manager.directory}. Fix: train the run first")
        _, params, rest = nnx.split(model, nnx.Param, ...)
        tree, *_ = self._read(which, step, {"params": params, "rest": rest})
        nnx.update(model, tree["params"], tree["rest"])
        return step

    def _read(self, which: str, step: int, model: Any, optimizer: Any = None) -> tuple[Any, Any, dict[str, Any]]:
        """Read a model; and, if a state of the optimizer is given, also that and the progress."""
        manager = self._managers[which]

        def read(rename: Callable[[str], str]) -> tuple[Any, Any, dict[str, Any]]:
            items: dict[str, Any] = {"model": ocp.args.StandardRestore(_shapes(model, rename))}
            if optimizer is not None:
                items["optimizer"] = ocp.args.StandardRestore(_shapes(optimizer, rename))
                items["progress"] = ocp.args.JsonRestore()
            kept = manager.restore(step, args=ocp.args.Composite(**items))
            if optimizer is None:
                return _rebuild(model, kept["model"], rename), None, {}
            found = _rebuild(model, kept["model"], rename), _rebuild(optimizer, kept["optimizer"], rename)
            return *found, dict(kept["progress"])

        try:
            return read(str)
        except Exception as error:  # Orbax raises many kinds of error for other networks and damaged files
            if any(_old_name(name) != name for name in _named(model)):
                with contextlib.suppress(Exception):
                    return read(_old_name)
            cause = " ".join(str(error).split())
            raise ValueError(
                f"{manager.directory}/{step} is damaged, or belongs to another network than the settings describe "
                f"({cause[:300]}). Fix: restore the settings of the network with which the run was trained"
            ) from error

    def close(self) -> None:
        """Wait until all checkpoints are written."""
        for manager in self._managers.values():
            manager.close()


def any_checkpoint(folder: str | Path) -> bool:
    """Return whether a folder of checkpoints holds a complete one."""
    return any(path.name.isdigit() for which in ("last", "best") for path in (Path(folder) / which).glob("*"))


def _old_name(name: str) -> str:
    """Return the name of an array in checkpoints of older versions, which spelled FCN's layer "localise"."""
    return name.replace("localize", "localise")


def _named(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _shapes(tree: Any, rename: Callable[[str], str]) -> dict[str, Any]:
    return {rename(n): jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for n, x in _named(tree).items()}


def _rebuild(like: Any, named: dict[str, Any], rename: Callable[[str], str]) -> Any:
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    return jax.tree_util.tree_unflatten(structure, [named[rename(jax.tree_util.keystr(path))] for path, _ in paths])

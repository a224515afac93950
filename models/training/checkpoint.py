"""The last and the best state of a run, by Orbax.

Arrays are kept under the paths of their places in the tree, so that a checkpoint does not depend on the classes that
held them. The model and the optimizer's state are two items: prediction reads the first alone.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from flax import nnx

from models.training.step import TrainState


class Checkpoints:
    """The checkpoints of a run.

    Args:
        folder: holds ``last`` and ``best``.
        write: make the folders where there are none; False leaves no trace.
    """

    def __init__(self, folder: str | Path, *, write: bool = True):
        root = Path(folder).resolve()
        options = ocp.CheckpointManagerOptions(max_to_keep=1, create=write)
        self._managers = {name: ocp.CheckpointManager(root / name, options=options) for name in ("last", "best")}

    def save(self, which: str, state: TrainState, progress: dict[str, Any]) -> None:
        """Keep a state under "last" or "best", in place of the one before it.

        Args:
            which: "last" or "best".
            state: to keep.
            progress: what else the run has to remember; plain values.
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
        """The newest kept state with its progress, placed as `like` is; None when there is none.

        "best" is written first: a run that was cut off between the two goes on from there.

        Raises:
            ValueError: for a state of another network, and a damaged one.
        """
        steps = {name: manager.latest_step() for name, manager in self._managers.items()}
        which = max(steps, key=lambda name: -1 if steps[name] is None else steps[name])
        step = steps[which]
        if step is None:
            return None
        model = {"params": like.params, "rest": like.rest}
        kept = self._read(
            which,
            step,
            model=ocp.args.StandardRestore(_shapes(_named(model))),
            optimizer=ocp.args.StandardRestore(_shapes(_named(like.optimizer))),
            progress=ocp.args.JsonRestore(),
        )
        model = _rebuild(model, kept["model"])
        at = jax.device_put(np.int32(step), like.step.sharding)
        return TrainState(at, model["params"], model["rest"], _rebuild(like.optimizer, kept["optimizer"])), dict(
            kept["progress"]
        )

    def restore_model(self, which: str, model: nnx.Module) -> int:
        """Put a kept model's variables into `model`, and answer the number of updates it had.

        Raises:
            FileNotFoundError: when there is none.
            ValueError: for one of another network, and a damaged one.
        """
        manager = self._managers[which]
        step = manager.latest_step()
        if step is None:
            raise FileNotFoundError(f"no {which} checkpoint in {manager.directory}. Fix: train the run first")
        graph, params, rest = nnx.split(model, nnx.Param, ...)
        del graph
        tree = {"params": params, "rest": rest}
        kept = self._read(which, step, model=ocp.args.StandardRestore(_shapes(_named(tree))))
        tree = _rebuild(tree, kept["model"])
        nnx.update(model, tree["params"], tree["rest"])
        return step

    def _read(self, which: str, step: int, **items: Any) -> Any:
        manager = self._managers[which]
        try:
            return manager.restore(step, args=ocp.args.Composite(**items))
        except Exception as error:  # what other networks and damaged files make Orbax raise has no end
            said = " ".join(str(error).split())
            raise ValueError(
                f"{manager.directory}/{step} is damaged, or of another network than the settings describe "
                f"({said[:300]}). Fix: leave the settings of the network as they were"
            ) from error

    def close(self) -> None:
        """Wait for writing to end."""
        for manager in self._managers.values():
            manager.close()


def any_checkpoint(folder: str | Path) -> bool:
    """Whether a folder of checkpoints holds a finished one."""
    return any(path.name.isdigit() for which in ("last", "best") for path in (Path(folder) / which).glob("*"))


def _named(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _shapes(named: dict[str, Any]) -> dict[str, Any]:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), named)


def _rebuild(like: Any, named: dict[str, Any]) -> Any:
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    return jax.tree_util.tree_unflatten(structure, [named[jax.tree_util.keystr(path)] for path, _ in paths])

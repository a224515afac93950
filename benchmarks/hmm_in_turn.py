"""Sections of `hmm.py` that time versions of the library in turn on one device, each in a process of its own.

A worker imports hmmjax from its tree, compiles everything, and answers commands: a line in, a line of JSON out. The
process that asks computes the E-step in float64 first, on the CPU by the plain scan (itself compared with NumPy), and
workers compare their results with it before anything is timed.
"""

import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from hmm_model import draw, e_step, log_likelihood64, model

HERE = Path(__file__).parent
CALLS = ("e_step", "log_likelihood", "posterior", "filter", "decode")
ROUNDS, REPEATS = 10, 20
WITHOUT_GRAPHS = {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}
BLOCKS = ("phase initial", "phase transition", "phase emission", "tool initial", "tool transition", "tool emission")


def problem(small: bool) -> tuple[Any, Any]:
    """Return the model and the observations of 80 videos of 2,300 frames, or of few short ones."""
    params = model(3, 2) if small else model()
    return params, draw(params, [30] * 3 if small else [2300] * 80)


class Worker:
    """A process that runs one version of the library.

    Args:
        tree: the folder that holds its hmmjax/.
        small: whether to rehearse.
        environment: further variables.
    """

    def __init__(self, tree: Path, small: bool, environment: dict[str, str]) -> None:
        environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONPATH": str(tree.resolve()), **environment}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "small" if small else "large"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment},
        )  # fmt: skip

    def send(self, *command: Any) -> None:
        """Send a command; several workers may be at work."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        """Return the answer to the command."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended with status {self._process.wait()}; its message is above")
        return json.loads(line)

    def ask(self, *command: Any) -> Any:
        """Send a command and return the answer."""
        self.send(*command)
        return self.receive()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def start_workers(args: Any, *, graphs: bool) -> dict[str, Worker]:
    """Start a worker per version; with `graphs` one more for this version without CUDA graphs, if there is a GPU."""
    versions: dict[str, tuple[Path, dict[str, str]]] = {"now": (HERE.parent, {})}
    if args.before:
        versions["before"] = Path(args.before), {}
    if graphs and jax.default_backend() == "gpu":
        versions["now, without CUDA graphs"] = HERE.parent, WITHOUT_GRAPHS
    return {name: Worker(tree, args.small, extra) for name, (tree, extra) in versions.items()}


def videos(args: Any) -> dict[str, Any]:
    """Time every call on 80 videos of 2,300 frames, L = K = 7, for each version in turn."""
    workers, rounds = start_workers(args, graphs=True), 2 if args.small else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        exact = Path(folder) / "exact.npz"
        for worker in workers.values():
            worker.send("compile")
        np.savez(exact, *_exact(args.small))
        for worker in workers.values():
            worker.receive()
        differences = {name: worker.ask("check", str(exact)) for name, worker in workers.items()}
    assert max(max(x.values()) for x in differences.values()) < 1e-5, differences
    seconds: dict[str, dict[str, list[float]]] = {name: {call: [] for call in CALLS} for name in workers}
    for call in CALLS:
        for _ in range(rounds):
            for name, worker in workers.items():
                seconds[name][call] += worker.ask("time", call, REPEATS)
    out = {}
    for name, worker in workers.items():
        out[name] = {
            "ms": {call: round(1e3 * min(x), 3) for call, x in seconds[name].items()},
            f"ms, median of {rounds * REPEATS} calls": {
                call: round(1e3 * statistics.median(x), 3) for call, x in seconds[name].items()
            },
            "differences from float64": differences[name],
            "e_step, microseconds on the GPU": worker.ask("profile"),
        }
        worker.close()
    return out


def cholec80(args: Any) -> dict[str, Any]:
    """Run EM on Cholec80's label tracks by each version, one after the other."""
    out = {}
    for name, worker in start_workers(args, graphs=False).items():
        out[name] = worker.ask("cholec80", args.tracks)
        worker.close()
    return out


def kernels(args: Any) -> dict[str, Any]:
    """Time the kernels alone, [best, median] in ms, with other numbers of warps and of frames per program."""
    worker = Worker(HERE.parent, args.small, {})
    out = worker.ask("kernels", 1 if args.small else 100)
    worker.close()
    return out


def _exact(small: bool) -> list[np.ndarray]:
    """Return log-likelihoods and fitted parameters of one EM step in float64."""
    params, obs = problem(small)
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        wide = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
        value, fitted = jax.tree.map(np.asarray, e_step("scan")(wide, obs))
    independent = log_likelihood64(params, jax.tree.map(lambda x: x[0], obs))
    assert abs(value[0] - independent) < 1e-9 * abs(independent), (value[0], independent)
    return [value, *jax.tree.leaves(fitted)]


# The worker. ------------------------------------------------------------------------------------------------------


class Commands:
    """What a worker does, by name."""

    def __init__(self, small: bool) -> None:
        import hmmjax

        self._small = small
        params, obs = problem(small)
        self._device = jax.tree.map(jax.numpy.asarray, (params, obs))
        runs = {name: jax.jit(getattr(hmmjax, name)) for name in CALLS[1:]}
        self._runs: dict[str, Callable[[], Any]] = {
            name: partial(run, *self._device) for name, run in {"e_step": e_step(), **runs}.items()
        }

    def compile(self) -> int:
        """Compile every call."""
        for run in self._runs.values():
            jax.block_until_ready(run())
        return len(self._runs)

    def check(self, path: str) -> dict[str, float]:
        """Return the largest differences from the E-step in float64: relative ones of log-likelihoods."""
        with np.load(path) as file:
            value, *tables = (file[name] for name in file.files)
        ours, fitted = self._runs["e_step"]()
        out = {"log_likelihood": float(np.abs(np.asarray(ours, np.float64) / value - 1).max())}
        for name, have, want in zip(BLOCKS, jax.tree.leaves(fitted), tables, strict=True):
            out[name] = float(np.abs(np.asarray(have, np.float64) - want).max())
        return out

    def time(self, name: str, repeats: int) -> list[float]:
        """Return the seconds of each call."""
        return _times(self._runs[name], repeats)

    def profile(self) -> dict[str, float]:
        """Return the time of an E-step on the GPU, and how often and how long kernels run; nothing without a GPU."""
        repeats, run = 10, self._runs["e_step"]
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                for _ in range(repeats):
                    jax.block_until_ready(run())
            (path,) = Path(folder).rglob("*.trace.json.gz")
            with gzip.open(path) as file:
                events = json.load(file)["traceEvents"]
        threads = {(e["pid"], e.get("tid")): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
        kernels = [
            (e["name"], e["dur"])
            for e in events
            if e.get("ph") == "X"
            and threads.get((e["pid"], e.get("tid")), "").startswith("Stream")
            and not e["name"].startswith("Mem")
        ]
        if not kernels:
            return {}
        out = {"total": sum(t for _, t in kernels) / repeats, "launches": len(kernels) / repeats}
        for part, key in (("sweep", "sweep"), ("pair", "pairs")):
            out[key] = sum(t for name, t in kernels if part in name) / repeats
        return {name: round(x, 1) for name, x in out.items()}

    def cholec80(self, tracks: str | None) -> dict[str, Any]:
        """Return what `hmm.cholec80` measures."""
        import hmm

        return hmm.cholec80(SimpleNamespace(tracks=tracks, small=self._small))

    def kernels(self, repeats: int) -> dict[str, list[float]]:
        """Return best and median ms of each kernel, with several numbers of warps and of frames per program."""
        from hmmjax._core import lowering
        from hmmjax._core.batch import collect
        from hmmjax._core.tables import tabulate
        from hmmjax.messages import gpu
        from hmmjax.messages.gpu import pairs, sweep

        params, obs = self._device
        batch = collect(obs, None, None)
        p = lowering.lower(params, tabulate(params, batch), batch.lengths).packed()
        likelihoods, table, blocks, initial = gpu._prepare(p)
        weight = jax.numpy.ones(len(p.lengths), initial.dtype)
        given, out = (likelihoods, table, blocks, initial, p.packing), {}

        def measure(name: str, function: Callable, *inputs: Any) -> Any:
            # A function of its own, so that JAX traces it again with the constants of the module.
            run = partial(jax.jit(lambda *x: function(*x)), *inputs)
            result = jax.block_until_ready(run())
            times = _times(run, repeats)
            out[name] = [round(1e3 * x, 3) for x in (min(times), statistics.median(times))]
            return result

        both = partial(sweep.sweep, backwards_too=True, save=True)
        for warps in (4, 16, 8):
            sweep.WARPS = warps
            rows, scale, *_ = measure(f"sweep, {warps} warps", both, *given)
        for warps, frames in ((4, 32), (4, 128), (2, 64), (8, 64), (4, 16), (4, 64)):
            pairs.PAIR_WARPS, pairs.FRAMES = warps, frames
            name = f"pairs, {warps} warps, {frames} frames"
            measure(name, pairs.statistics, rows, scale, table, blocks, initial, p.packing, weight)
        return out


def _times(run: Callable[[], Any], repeats: int) -> list[float]:
    out = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(run())
        out.append(time.perf_counter() - started)
    return out


def main() -> None:
    """Answer commands until there are no more."""
    commands = Commands(sys.argv[1] == "small")
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(commands, name)(*arguments)), flush=True)


if __name__ == "__main__":
    main()

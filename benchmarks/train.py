"""Compare training throughput on one accelerator with torchvision in one run.

    python benchmarks/train.py --out results.json

Each network is trained by several processes on the same accelerator: torchvision under torch.compile (bfloat16
autocast, channels_last, fused AdamW), for some networks also timm, and each variant by Flax. They are timed in turn, so
that a change of clock frequency affects all. Before that they must agree on the number of parameters and, from the same
weights in float32, on the loss and the norm of the gradient.

They compile at the same time, which saves minutes; ``--apart`` compiles one after the other, so that none chooses its
kernels while another computes.
"""

import argparse
import dataclasses
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BATCH = {"resnet18": 256, "resnet50": 256, "swin_b": 128, "convnext_base": 128, "vit_base": 256}
#: Names in torchvision that differ from ours, and the same networks in timm.
TORCHVISION, TIMM = {"vit_base": "vit_b_16"}, {"vit_base": "vit_base_patch16_224"}
#: Largest relative differences from equal weights. Gradients of networks with ReLUs are discontinuous.
LOSS_TOLERANCE, GRADIENT_TOLERANCE = 1e-4, 2e-2


class Worker:
    """A process that trains one network and replies in JSON lines."""

    def __init__(self, python: str, script: str, arguments: dict[str, Any], environment: dict[str, str] | None = None):
        command = [python, str(HERE / script), json.dumps(arguments)]
        paths = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(environment or {})}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def read(self) -> dict[str, Any]:
        """Return the next reply.

        Raises:
            RuntimeError: if the process has ended without one.
        """
        for line in self.process.stdout or ():
            if line.startswith("@"):
                return json.loads(line[1:])
        raise RuntimeError(f"{self.process.args[1]} ended with status {self.process.wait()}")

    def ask(self, command: str, **values: Any) -> dict[str, Any]:
        """Send a command and return the reply."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"command": command, **values}) + "\n")
        self.process.stdin.flush()
        return self.read()

    def stop(self) -> None:
        """End the process and free its memory."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def check(torch: dict[str, Any], jax: dict[str, Any]) -> dict[str, Any]:
    """Compare parameters, loss and gradient; raise RuntimeError unless both sides do the same work."""
    checks = {}
    for name, tolerance in (("parameters", 0.0), ("loss", LOSS_TOLERANCE), ("gradient", GRADIENT_TOLERANCE)):
        difference = abs(jax[name] - torch[name]) / abs(torch[name])
        checks[name] = {"torch": torch[name], "jax": jax[name], "relative_difference": difference}
        if not difference <= tolerance:
            raise RuntimeError(f"Unequal work: {name} is {torch[name]} in torch and {jax[name]} in jax.")
    return checks


def rivals(name: str, arguments: dict[str, Any], options: argparse.Namespace) -> dict[str, Worker]:
    """Start the processes of torch, by the name of the library."""
    folder = Path(arguments["folder"])
    sides = {"torch": TORCHVISION.get(name, name)}
    if name in TIMM and not options.without_timm:
        sides["timm"] = TIMM[name]
    return {
        side: Worker(
            options.torch_python,
            "train_torch.py",
            {**arguments, "library": side, "network": own, "weights": str(folder / f"{side}.pth")},
        )
        for side, own in sides.items()
    }


def variant_of(words: str, arguments: dict[str, Any], sides: list[str], count: int, python: str) -> Worker:
    """Start the process of one variant of the JAX side, one of `count` processes that share the card."""
    pairs = dict(word.split("=", 1) for word in shlex.split(words))
    environment = {key: value for key, value in pairs.items() if key.isupper()}
    settings = {key: json.loads(value) for key, value in pairs.items() if not key.isupper()}
    environment.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 / count:.3f}")
    weights = {side: str(Path(arguments["folder"]) / f"{side}.pth") for side in sides}
    return Worker(python, "train_jax.py", {**arguments, "options": settings, "weights": weights}, environment)


@dataclasses.dataclass
class Comparison:
    """The processes of one network, and what each replied when it was ready."""

    name: str
    batch: int
    variants: list[str]
    workers: dict[str, Worker]
    sides: list[str]
    ready: dict[str, dict[str, Any]]


def start(
    name: str, batch: int, variants: list[str], options: argparse.Namespace, folder: Path, count: int
) -> Comparison:
    """Start the processes of one network, of `count` that share the card."""
    folder.mkdir()
    arguments = {
        "network": name,
        "batch": batch,
        "image": options.image,
        "folder": str(folder),
        "compile": not options.eager,
    }
    workers, ready = rivals(name, arguments, options), {}
    sides = list(workers)
    if options.apart:
        ready = {side: worker.read() for side, worker in workers.items()}
    for words in variants:
        workers[words] = variant_of(words, arguments, sides, count, options.jax_python)
        if options.apart:
            ready[words] = attempt(workers[words].read)
    return Comparison(name, batch, variants, workers, sides, ready)


def wait(comparison: Comparison, until: float) -> None:
    """Wait until all processes are compiled; those that are not by a time are stopped."""
    for side, worker in comparison.workers.items():
        if side not in comparison.ready:
            alarm = threading.Timer(max(until - time.time(), 0), worker.process.kill)
            alarm.start()
            reply = comparison.ready[side] = attempt(worker.read)
            alarm.cancel()
            print(f"{comparison.name} {side or 'default'}: {reply.get('error') or reply['build_seconds']}", flush=True)


def measure(comparison: Comparison, options: argparse.Namespace) -> dict[str, Any]:
    """Time one network in torch and in each variant in JAX."""
    batch, sides, ready = comparison.batch, comparison.sides, comparison.ready
    working = {side: worker for side, worker in comparison.workers.items() if "error" not in ready[side]}
    rounds: dict[str, list[float]] = {side: [] for side in working}
    for _ in range(options.rounds):
        for side, worker in working.items():
            seconds = worker.ask("time", steps=options.steps)["seconds"]
            rounds[side].append(batch * options.steps / seconds)
    if options.profile:
        for side, worker in working.items():
            ready[side]["profile"] = worker.ask("profile", steps=3)["kernels"]
    result: dict[str, Any] = {"batch": batch, "image": options.image, **{s: ready[s] for s in sides}, "jax": []}
    for words in comparison.variants:
        result["jax"].append({"variant": words, **summary(words, sides, ready, rounds)})
        print(f"{comparison.name} batch {batch} {words or 'default'}: {line(result['jax'][-1])}", flush=True)
    return result


def attempt(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a reply, or the error of a process that ended."""
    try:
        return read()
    except RuntimeError as error:
        return {"error": str(error)}


def summary(words: str, sides: list[str], ready: dict[str, Any], rounds: dict[str, list[float]]) -> dict[str, Any]:
    """Return the rates of one variant and of torch, and what was checked."""
    if "error" in ready[words]:
        return ready[words]
    checks: dict[str, Any] = {}
    try:
        for side in sides:
            if "error" not in ready[side]:
                checks[side] = check(ready[side], ready[words]["checks"][side])
    except RuntimeError as error:
        return {"error": str(error), **ready[words]}
    own = {side: rounds[side] for side in sides if side in rounds} | {"jax": rounds[words]}
    rates = {side: statistics.median(values) for side, values in own.items()}
    ratios = {side: rates["jax"] / rate for side, rate in rates.items() if side != "jax"}
    return {**ready[words], "images_per_second": rates, "ratio": ratios, "rounds": own, "checks": checks}


def line(entry: dict[str, Any]) -> str:
    """Return the summary of a variant in words."""
    if "error" in entry:
        return entry["error"]
    rates = ", ".join(f"{side} {rate:.0f}" for side, rate in entry["images_per_second"].items())
    ratios = ", ".join(f"{ratio:.3f} of {side}" for side, ratio in entry["ratio"].items())
    off = ", ".join(f"{c['loss']['relative_difference']:.1e}" for c in entry["checks"].values())
    return f"{rates} images/s: {ratios} (losses differ by {off})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", required=True, help="JSON to write; kept up to date after each network")
    parser.add_argument("--networks", default=",".join(BATCH), help="such as resnet50,vit_base@64: 64 images a batch")
    parser.add_argument(
        "--variant",
        action="append",
        help="settings of the JAX side as key=value words: backbone options in lower case, environment variables in "
        "upper case, such as 'XLA_FLAGS=...'; 'swin_b:align=8' is for one network; may be repeated; '' is the "
        "default",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30, help="updates in each timed round")
    parser.add_argument("--profile", action="store_true", help="add each side's longest kernels")
    parser.add_argument("--apart", action="store_true", help="compile one process after the other")
    parser.add_argument("--patience", type=float, default=600, help="seconds after which compilation is given up (600)")
    parser.add_argument("--without-timm", action="store_true", help="compare with torchvision only")
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--eager", action="store_true", help="do not compile torch, to try the script")
    parser.add_argument("--torch-python", default=sys.executable, help="interpreter that has torch")
    parser.add_argument("--jax-python", default=sys.executable, help="interpreter that has jax")
    options = parser.parse_args()
    begin = time.time()
    results: dict[str, Any] = {"command": sys.argv, "python": platform.python_version(), "networks": {}}
    networks = [word.partition("@") for word in options.networks.split(",")]
    with tempfile.TemporaryDirectory() as folder:

        def started(name: str, batch: str, count: int) -> Comparison:
            mine = [v.partition(":") for v in options.variant or [""]]
            variants = [words if colon else network for network, colon, words in mine if not colon or network == name]
            place = Path(folder) / f"{name}{batch}"
            return start(name, int(batch or BATCH[name]), variants, options, place, count)

        def finish(comparison: Comparison) -> None:
            try:
                wait(comparison, begin + options.patience)
                results["networks"][f"{comparison.name}@{comparison.batch}"] = measure(comparison, options)
            finally:
                stop(comparison)
            results["seconds"] = time.time() - begin
            Path(options.out).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

        if options.apart:
            for name, _, batch in networks:
                finish(started(name, batch, 4))
        else:
            together = [started(name, batch, 4 * len(networks)) for name, _, batch in networks]
            for comparison in together:
                wait(comparison, begin + options.patience)
            for comparison in together:
                finish(comparison)
    print(f"{options.out} written after {results['seconds']:.0f} s")


def stop(comparison: Comparison) -> None:
    """End the processes of one network."""
    for worker in comparison.workers.values():
        worker.stop()


if __name__ == "__main__":
    main()

"""Compare training throughput on one accelerator with torchvision in one run.

    python benchmarks/train.py --out results.json

Each network is trained by two processes on the same accelerator: torchvision under torch.compile (bfloat16 autocast,
channels_last, fused AdamW), and by Flax. They compile one after the other and are then timed alternately, so that a
change of clock frequency affects both. Before that they must agree on the number of parameters and, from the same
weights in float32, on the loss and the norm of the gradient.
"""

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BATCH = {"resnet18": 256, "resnet50": 256, "swin_b": 128}
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


def compare(name: str, variants: list[str], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Time one network in torch and in each variant in JAX."""
    batch = options.batch or BATCH[name]
    arguments = {
        "network": name,
        "batch": batch,
        "image": options.image,
        "weights": str(folder / f"{name}.pth"),
        "compile": not options.eager,
    }
    torch = Worker(options.torch_python, "train_torch.py", arguments)
    result: dict[str, Any] = {"batch": batch, "image": options.image, "torch": torch.read(), "jax": []}
    print(f"{name}: torch ready in {result['torch']['build_seconds']:.0f} s", flush=True)
    try:
        for variant in variants:
            words = dict(word.split("=", 1) for word in shlex.split(variant))
            environment = {key: value for key, value in words.items() if key.isupper()}
            settings = {key: json.loads(value) for key, value in words.items() if not key.isupper()}
            # Both processes share the card.
            environment.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.45")
            jax = Worker(options.jax_python, "train_jax.py", {**arguments, "options": settings}, environment)
            try:
                ready = jax.read()
                checks = check(result["torch"], ready)
                rounds: dict[str, list[float]] = {"torch": [], "jax": []}
                for _ in range(options.rounds):
                    for side, worker in (("torch", torch), ("jax", jax)):
                        seconds = worker.ask("time", steps=options.steps)["seconds"]
                        rounds[side].append(batch * options.steps / seconds)
                rates = {side: statistics.median(values) for side, values in rounds.items()}
                entry = {
                    "variant": variant,
                    "images_per_second": rates,
                    "ratio": rates["jax"] / rates["torch"],
                    "rounds": rounds,
                    "checks": checks,
                    **ready,
                }
                if options.profile:
                    entry["profile"] = jax.ask("profile", steps=3)["kernels"]
                result["jax"].append(entry)
                print(
                    f"{name} batch {batch} {variant or 'default'}: torch {rates['torch']:.0f}, jax {rates['jax']:.0f} "
                    f"images/s, ratio {entry['ratio']:.3f} (compiled in {ready['build_seconds']:.0f} s, loss differs "
                    f"by {checks['loss']['relative_difference']:.1e})",
                    flush=True,
                )
            except RuntimeError as error:
                result["jax"].append({"variant": variant, "error": str(error)})
                print(f"{name} {variant or 'default'}: {error}", flush=True)
            finally:
                jax.stop()
        if options.profile:
            result["torch"]["profile"] = torch.ask("profile", steps=3)["kernels"]
    finally:
        torch.stop()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", required=True, help="JSON to write; kept up to date after each network")
    parser.add_argument("--networks", default=",".join(BATCH))
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
    parser.add_argument("--batch", type=int, help="batch size of every network")
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--eager", action="store_true", help="do not compile torch, to try the script")
    parser.add_argument("--torch-python", default=sys.executable, help="interpreter that has torch")
    parser.add_argument("--jax-python", default=sys.executable, help="interpreter that has jax")
    options = parser.parse_args()
    start = time.time()
    results: dict[str, Any] = {"command": sys.argv, "python": platform.python_version(), "networks": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.networks.split(","):
            mine = [v.partition(":") for v in options.variant or [""]]
            variants = [words if colon else network for network, colon, words in mine if not colon or network == name]
            results["networks"][name] = compare(name, variants, options, Path(folder))
            results["seconds"] = time.time() - start
            Path(options.out).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"{options.out} written after {results['seconds']:.0f} s")


if __name__ == "__main__":
    main()

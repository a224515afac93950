"""The JAX side of benchmarks/train.py: a Flax network, trained by one compiled step."""

import fcntl
import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import flax
import jax
import numpy as np
import optax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from models.backbones import Backbone, build
from models.backbones.layers import Dropout
from models.weights import load_weights


def main() -> None:
    settings = json.loads(sys.argv[1])
    start = time.perf_counter()

    def make(dtype: Any, weights: str) -> Backbone:
        net = nnx.eval_shape(
            lambda: build(settings["network"], classes=1000, dtype=dtype, rngs=nnx.Rngs(0), **settings["options"])
        )
        while not os.path.exists(weights):
            time.sleep(0.1)
        load_weights(net, weights)
        net.train()
        return net

    net = make(jnp.bfloat16, settings["weights"]["torch"])
    checks, measure = {}, None
    lock = open(Path(settings["folder"]) / "lock", "w")  # noqa: SIM115
    # One variant at a time chooses its kernels.
    fcntl.flock(lock, fcntl.LOCK_EX)
    for side, weights in settings["weights"].items():
        exact = make(jnp.float32, weights)
        if hasattr(net, "fold_stem"):
            # The default depends on the dtype; check the variant that is timed.
            exact.fold_stem = net.fold_stem
        checks[side], measure = reference(exact, settings, measure)
        note(start, f"{side}'s loss is checked")
    graph, params, rest = nnx.split(net, nnx.Param, ...)
    del net, exact
    optimizer = optax.adamw(1e-3, weight_decay=0.05)

    def step(state: Any, images: Array, labels: Array) -> tuple[Any, Array]:
        count, params, rest, moments = state
        key = jax.random.fold_in(jax.random.key(0), count)
        (loss, rest), grads = jax.value_and_grad(forward, has_aux=True)(params, rest, graph, images, labels, key)
        updates, moments = optimizer.update(grads, moments, params)
        return (count + 1, optax.apply_updates(params, updates), rest, moments), loss

    rng = np.random.default_rng(1)
    shape = (settings["batch"], 3, settings["image"], settings["image"])
    batches = [
        (
            jnp.asarray(rng.standard_normal(shape, np.float32).transpose(0, 2, 3, 1)),
            jnp.asarray(rng.integers(0, 1000, settings["batch"])),
        )
        for _ in range(4)
    ]
    state = (jnp.zeros((), jnp.int32), params, rest, optimizer.init(params))
    compiled = jax.jit(step, donate_argnums=0).lower(state, *batches[0]).compile()
    memory = compiled.memory_analysis()
    note(start, "the update is compiled")

    def run(steps: int) -> float:
        nonlocal state
        jax.block_until_ready(state)
        begin = time.perf_counter()
        for i in range(steps):
            state, _ = compiled(state, *batches[i % len(batches)])
        jax.block_until_ready(state)
        return time.perf_counter() - begin

    state, first = compiled(state, *batches[0])
    run(5)
    lock.close()
    # As in `models.training.loop`: garbage collection must not stall the accelerator.
    gc.collect()
    gc.freeze()
    reply(
        {
            "checks": checks,
            "first_loss": float(first),
            "build_seconds": time.perf_counter() - start,
            "device": jax.devices()[0].device_kind,
            "temporary_bytes": getattr(memory, "temp_size_in_bytes", None),
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
            "versions": {"jax": jax.__version__, "flax": flax.__version__, "optax": optax.__version__},
        }
    )
    for line in sys.stdin:
        request = json.loads(line)
        if request["command"] == "time":
            reply({"seconds": run(request["steps"])})
        else:
            reply({"kernels": profile(run, request["steps"])})


def note(start: float, what: str) -> None:
    """Say on standard error how far this process is."""
    print(f"jax {sys.argv[1]}: {what} after {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)


def forward(
    params: nnx.State, rest: nnx.State, graph: nnx.GraphDef, images: Array, labels: Array, key: Array
) -> tuple[Array, nnx.State]:
    """Return the cross-entropy and the updated running statistics."""
    net = nnx.merge(graph, params, rest, copy=True)
    logits = net.classify(images, key=key).astype(jnp.float32)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return loss, nnx.split(net, nnx.Param, ...)[2]


def reference(net: Backbone, settings: dict[str, Any], measure: Any = None) -> tuple[dict[str, Any], Any]:
    """Return loss and gradient norm of a few images in float32, without stochastic depth, and the compiled program."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((8, 3, settings["image"], settings["image"]), np.float32).transpose(0, 2, 3, 1)
    labels = rng.integers(0, 1000, 8)
    for _, module in nnx.iter_modules(net):
        if isinstance(module, Dropout):
            module.rate = 0.0
    graph, params, rest = nnx.split(net, nnx.Param, ...)
    # Runs once: autotuning would take longer than it saves.
    options = {"xla_gpu_autotune_level": 0} if jax.default_backend() == "gpu" else None
    measure = measure or jax.jit(jax.value_and_grad(forward, has_aux=True), static_argnums=2, compiler_options=options)
    with jax.default_matmul_precision("highest"):
        (loss, _), grads = measure(params, rest, graph, images, labels, jax.random.key(0))
    count = sum(p.size for p in jax.tree.leaves(params))
    return {"parameters": count, "loss": float(loss), "gradient": float(optax.tree.norm(grads))}, measure


def profile(run: Any, steps: int) -> list[dict[str, Any]]:
    """Return the longest kernels, in milliseconds per step."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run(steps)
        (trace,) = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(trace))
    total: dict[str, list[float]] = {}
    for plane in data.planes:
        device = "/device:GPU" in plane.name
        for line in plane.lines:
            # On a GPU the streams list kernels; other lines repeat them by operation.
            if (device and line.name.startswith("Stream")) or (not device and "XLAPjRtCpuClient" in line.name):
                for event in line.events:
                    entry = total.setdefault(event.name, [0.0, 0])
                    entry[0] += event.duration_ns / 1e6 / steps
                    entry[1] += 1 / steps
    longest = sorted(total.items(), key=lambda item: -item[1][0])[:40]
    return [{"kernel": name[:160], "ms": ms, "calls": calls} for name, (ms, calls) in longest]


def reply(values: dict[str, Any]) -> None:
    """Send one reply."""
    print("@" + json.dumps(values), flush=True)


if __name__ == "__main__":
    main()

"""One side of benchmarks/train.py: our network, trained by one compiled step."""

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
    told = json.loads(sys.argv[1])
    start = time.perf_counter()

    def make(dtype: Any) -> Backbone:
        net = nnx.eval_shape(
            lambda: build(told["network"], classes=1000, dtype=dtype, rngs=nnx.Rngs(0), **told["options"])
        )
        load_weights(net, told["weights"])
        net.train()
        return net

    net, exact = make(jnp.bfloat16), make(jnp.float32)
    if hasattr(net, "fold_stem"):
        # Its default depends on the type; what is checked is what is timed.
        exact.fold_stem = net.fold_stem
    checks = reference(exact, told)
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
    shape = (told["batch"], 3, told["image"], told["image"])
    batches = [
        (
            jnp.asarray(rng.standard_normal(shape, np.float32).transpose(0, 2, 3, 1)),
            jnp.asarray(rng.integers(0, 1000, told["batch"])),
        )
        for _ in range(4)
    ]
    state = (jnp.zeros((), jnp.int32), params, rest, optimizer.init(params))
    compiled = jax.jit(step, donate_argnums=0).lower(state, *batches[0]).compile()
    memory = compiled.memory_analysis()

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
    # As `models.training.loop` does: nothing to search for garbage while the card waits.
    gc.collect()
    gc.freeze()
    answer(
        {
            **checks,
            "first_loss": float(first),
            "build_seconds": time.perf_counter() - start,
            "device": jax.devices()[0].device_kind,
            "temporary_bytes": getattr(memory, "temp_size_in_bytes", None),
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
            "versions": {"jax": jax.__version__, "flax": flax.__version__, "optax": optax.__version__},
        }
    )
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["command"] == "time":
            answer({"seconds": run(asked["steps"])})
        else:
            answer({"kernels": profile(run, asked["steps"])})


def forward(
    params: nnx.State, rest: nnx.State, graph: nnx.GraphDef, images: Array, labels: Array, key: Array
) -> tuple[Array, nnx.State]:
    """Cross-entropy, and the running statistics after it."""
    net = nnx.merge(graph, params, rest, copy=True)
    logits = net.classify(images, key=key).astype(jnp.float32)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return loss, nnx.split(net, nnx.Param, ...)[2]


def reference(net: Backbone, told: dict[str, Any]) -> dict[str, Any]:
    """Loss and norm of the gradient of a few images in plain float32, without stochastic depth."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((8, 3, told["image"], told["image"]), np.float32).transpose(0, 2, 3, 1)
    labels = rng.integers(0, 1000, 8)
    for _, module in nnx.iter_modules(net):
        if isinstance(module, Dropout):
            module.rate = 0.0
    graph, params, rest = nnx.split(net, nnx.Param, ...)
    # Run once: the search for the fastest kernels would take longer than it saves.
    options = {"xla_gpu_autotune_level": 0} if jax.default_backend() == "gpu" else None
    measure = jax.jit(jax.value_and_grad(forward, has_aux=True), static_argnums=2, compiler_options=options)
    with jax.default_matmul_precision("highest"):
        (loss, _), grads = measure(params, rest, graph, images, labels, jax.random.key(0))
    count = sum(p.size for p in jax.tree.leaves(params))
    return {"parameters": count, "loss": float(loss), "gradient": float(optax.tree.norm(grads))}


def profile(run: Any, steps: int) -> list[dict[str, Any]]:
    """The kernels that take longest, in milliseconds a step."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run(steps)
        (trace,) = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(trace))
    total: dict[str, list[float]] = {}
    for plane in data.planes:
        device = "/device:GPU" in plane.name
        for line in plane.lines:
            # On a GPU the streams hold kernels; other lines repeat them under the names of operations.
            if (device and line.name.startswith("Stream")) or (not device and "XLAPjRtCpuClient" in line.name):
                for event in line.events:
                    entry = total.setdefault(event.name, [0.0, 0])
                    entry[0] += event.duration_ns / 1e6 / steps
                    entry[1] += 1 / steps
    longest = sorted(total.items(), key=lambda item: -item[1][0])[:40]
    return [{"kernel": name[:160], "ms": ms, "calls": calls} for name, (ms, calls) in longest]


def answer(values: dict[str, Any]) -> None:
    """One line to the other side."""
    print("@" + json.dumps(values), flush=True)


if __name__ == "__main__":
    main()

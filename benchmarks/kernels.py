"""Check and time the layers with kernels of their own on an NVIDIA GPU: ``python benchmarks/kernels.py --out FILE``.

Depthwise convolutions at the sizes of ConvNeXt-B's stages, and attention at the lengths of ViT-B. Each is compared in
bfloat16 with the plain form, forward and backward, and both with the plain form in float32.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from models.backbones import depthwise

STAGES = ((56, 128), (28, 256), (14, 512), (7, 1024))
#: Tokens: 224x224 pixels in patches of 16; with registers as in DINOv3; in patches of 14, as in DINOv2.
LENGTHS = (197, 201, 257)


def plain_convolution(x: Array, kernel: Array) -> Array:
    """Convolve by XLA."""
    side = kernel.shape[0] // 2
    return jax.lax.conv_general_dilated(
        x,
        kernel[:, :, None],
        (1, 1),
        ((side, side), (side, side)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1],
    )


def fused_attention(q: Array, k: Array, v: Array) -> Array:
    """Attend by cuDNN, with a token more than an odd number, to which none attends, as `ViT` does."""
    count = q.shape[1]
    q, k, v = (jnp.pad(x, ((0, 0), (0, count % 2), (0, 0), (0, 0))) for x in (q, k, v))
    lengths = jnp.full(q.shape[0], count, jnp.int32) if count % 2 else None
    out = jax.nn.dot_product_attention(q, k, v, implementation="cudnn", key_value_seq_lengths=lengths)
    return out[:, :count]


def both(function: Callable[..., Array], grad: Array, *arrays: Array) -> tuple[Array, ...]:
    """Return the output and the gradients with respect to all arrays."""
    out, back = jax.vjp(function, *arrays)
    return out, *back(grad)


def difference(found: tuple[Array, ...], exact: tuple[Array, ...]) -> list[float]:
    """Return the relative difference of each array in norm."""
    pairs = zip(found, exact, strict=True)
    wide = ((np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs)
    return [float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in wide]


def seconds(run: Callable[[], Any], repeats: int) -> float:
    """Return the median time of a call."""
    jax.block_until_ready(run())
    taken = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(repeats):
            out = run()
        jax.block_until_ready(out)
        taken.append((time.perf_counter() - begin) / repeats)
    return statistics.median(taken)


def compare(forms: dict[str, Callable[..., Array]], arrays: list[np.ndarray], repeats: int) -> dict[str, Any]:
    """Time each form in bfloat16, and compare it with the first in float32; the last array is the gradient."""
    exact = jax.jit(partial(both, next(iter(forms.values()))))
    with jax.default_matmul_precision("highest"):
        rounded = [jnp.asarray(x, jnp.bfloat16).astype(jnp.float32) for x in arrays]
        want = exact(rounded[-1], *rounded[:-1])
    result = {}
    for name, form in forms.items():
        given = [jnp.asarray(x, jnp.bfloat16) for x in arrays]
        try:
            forward, whole = jax.jit(form), jax.jit(partial(both, form))
            result[name] = {
                "forward ms": 1e3 * seconds(lambda: forward(*given[:-1]), repeats),  # noqa: B023
                "forward and backward ms": 1e3 * seconds(lambda: whole(given[-1], *given[:-1]), repeats),  # noqa: B023
                "relative differences": difference(whole(given[-1], *given[:-1]), want),
            }
        except Exception as error:  # a form that this device lacks is a result too
            result[name] = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(name, [x.shape for x in arrays], result[name], flush=True)
    return result


def main() -> None:
    """Check, time, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--stages", default="0,1,2,3", help="of ConvNeXt-B")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="of attention, in tokens")
    parser.add_argument("--tiles", default="", help="further tiles of pixels x channels, such as 64x64,16x128")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    device = jax.devices()[0].device_kind
    results: dict[str, Any] = {"command": sys.argv, "device": device, "jax": jax.__version__, "batch": options.batch}
    results["depthwise"], results["attention"] = {}, {}
    tiles = [(depthwise.PIXELS, depthwise.CHANNELS)]
    tiles += [tuple(map(int, tile.split("x"))) for tile in options.tiles.split(",") if tile]
    for side, channels in (STAGES[int(stage)] for stage in options.stages.split(",")):
        shape = (options.batch, side, side, channels)
        arrays = [rng.standard_normal(s, np.float32) for s in (shape, (7, 7, channels), shape)]
        for number, tile in enumerate(tiles):
            depthwise.PIXELS, depthwise.CHANNELS = tile
            jax.clear_caches()
            forms = {"plain": plain_convolution} if number == 0 else {}
            forms[f"kernel {tile[0]}x{tile[1]}"] = depthwise.convolve
            kept = results["depthwise"].setdefault(f"{side}x{side}x{channels}", {})
            kept.update(
                compare(forms, arrays, options.repeats) if number == 0 else timed(forms, arrays, options.repeats)
            )
            options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for length in map(int, options.lengths.split(",")):
        arrays = [rng.standard_normal((options.batch, length, 12, 64), np.float32) for _ in range(4)]
        forms = {"plain": partial(jax.nn.dot_product_attention, implementation="xla"), "fused": fused_attention}
        results["attention"][length] = compare(forms, arrays, options.repeats)
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def timed(forms: dict[str, Callable[..., Array]], arrays: list[np.ndarray], repeats: int) -> dict[str, Any]:
    """Time forms in bfloat16 without a check."""
    given = [jnp.asarray(x, jnp.bfloat16) for x in arrays]
    result = {}
    for name, form in forms.items():
        forward, whole = jax.jit(form), jax.jit(partial(both, form))
        try:
            result[name] = {
                "forward ms": 1e3 * seconds(lambda: forward(*given[:-1]), repeats),  # noqa: B023
                "forward and backward ms": 1e3 * seconds(lambda: whole(given[-1], *given[:-1]), repeats),  # noqa: B023
            }
        except Exception as error:
            result[name] = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(name, result[name], flush=True)
    return result


if __name__ == "__main__":
    main()

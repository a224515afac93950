"""Inference and EM compared with dynamax, hmmlearn and plain JAX, after checking that all give the same results.

    python benchmarks/hmm.py pack .device/cholec80.npz    # real label tracks, for a machine without ../shared
    JAX_PLATFORMS=cpu taskset -c 0,1 python benchmarks/hmm.py cpu
    JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES=2 python benchmarks/hmm.py cpu --only cholec80    # half the videos per core
    python benchmarks/hmm.py gpu --tracks .device/cholec80.npz --before .device/before    # another tree in turn
    python benchmarks/hmm.py gpu --only videos,kernels    # sections whose names contain one of these; keeps the others
    python benchmarks/hmm.py gpu --small --out small.json    # a rehearsal in minutes, also without a GPU
    python benchmarks/hmm.py plot

To the other libraries, a coupled model of L phases and K tools is one chain of S = L 2^K states, and the recognizer's
hard predictions become one symbol per frame. Each part writes ``benchmarks/results/hmm_<part>.json`` (or --out). Times
are the best of several calls after compilation; all libraries run in the same process.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hmm_gpu
import hmm_in_turn
import jax
import jax.numpy as jnp
import numpy as np
from hmm_model import draw, e_step, log_likelihood64, model
from hmm_peers import clock, has, peers, relative

import hmmjax
from hmmjax import emissions, learning
from hmmjax._core import lowering
from hmmjax._core.batch import canonical, prepare

HERE = Path(__file__).parent
DATA = Path(os.environ.get("HMMJAX_DATA", "../shared/data"))


def main() -> None:
    """Run one part of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["cpu", "gpu", "pack", "plot", "memory"])
    parser.add_argument("path", nargs="?", help="file that `pack` writes")
    parser.add_argument("--tracks", help="packed Cholec80 labels (default: the shared data)")
    parser.add_argument("--out", help="results file (default: benchmarks/results/hmm_<part>.json)")
    parser.add_argument("--only", help="comma-separated parts of the names of sections to run (default: all)")
    parser.add_argument("--before", help="gpu: a folder with another version of hmmjax/, timed in turn with this one")
    parser.add_argument("--small", action="store_true", help="gpu: few short videos, to rehearse")
    args = parser.parse_args()
    if args.part == "pack":
        pack(Path(args.path))
    elif args.part == "plot":
        plot()
    elif args.part == "memory":
        memory()
    else:
        out = Path(args.out) if args.out else HERE / "results" / f"hmm_{args.part}.json"
        sections = CPU if args.part == "cpu" else GPU
        wanted = args.only.split(",") if args.only else [""]
        names = [name for name in sections if any(part in name for part in wanted)]
        if args.part == "gpu":
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share the GPU
        kept = json.loads(out.read_text()) if args.only and out.exists() else {}
        results: dict[str, Any] = kept | about(" ".join(sys.argv[1:]))
        for name in names:
            started = time.time()
            results[name] = sections[name](args)
            print(name, f"{time.time() - started:.0f} s", json.dumps(results[name]), flush=True)
            out.write_text(json.dumps(results, indent=1) + "\n")


def about(arguments: str) -> dict[str, Any]:
    """Return the command, the device and the versions."""
    device = jax.devices()[0]
    names = ["jax", "jaxlib", "numpy"] + [n for n in ("dynamax", "hmmlearn", "cuthbert") if has(n)]
    cores = len(os.sched_getaffinity(0))
    described = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((x.split(":")[1].strip() for x in described if x.startswith("model name")), "")
    return {
        "backend": hmmjax.diagnostics.backend(),
        "command": f"python benchmarks/hmm.py {arguments}",
        "device": f"{device.device_kind}" if device.platform == "gpu" else f"CPU, {cores} cores ({model})",
        "versions": {"python": platform.python_version(), **{n: version(n) for n in names}},
    }


# Sections. --------------------------------------------------------------------------------------------------------


def one_video(_: Any) -> dict[str, Any]:
    """Compare libraries with L = K = 7 on one video of 1,000 frames."""
    params = model()
    return peers(params, draw(params, 1000))


def over_states(_: Any) -> list[dict[str, Any]]:
    """Compare libraries with 7 phases and K = 1 to 7 tools on 1,000 frames."""
    out = []
    for num_tools in range(1, 8):
        params = model(7, num_tools)
        out.append(peers(params, draw(params, 1000), path=num_tools < 6))
    return out


def over_frames(_: Any) -> list[dict[str, Any]]:
    """Measure the time per frame of one video of 100 to 1,000,000 frames, L = K = 7, and the error against float64."""
    params, out, step = model(), [], e_step()
    for num_frames in (100, 1000, 10_000, 150_000, 1_000_000):
        obs = draw(params, num_frames)
        device = jax.tree.map(jnp.asarray, (params, obs))
        first, best = clock(partial(step, *device), 5, 30.0)
        value = hmmjax.log_likelihood(params, obs)
        micro = round(1e6 * best / num_frames, 2)
        filtered = round(1e6 * clock(partial(jax.jit(hmmjax.filter), *device), 5, 20.0)[1] / num_frames, 2)
        reference = log_likelihood64(params, obs)
        out.append(
            {"frames": num_frames, "e_step, microseconds per frame": micro, "filter, microseconds per frame": filtered,
             "first call, seconds": round(first, 2), "log-likelihood": float(value),
             "relative error": relative(value, reference)}
        )  # fmt: skip
        assert out[-1]["relative error"] < 1e-6, out[-1]
    return out


def over_batches(_: Any) -> list[dict[str, Any]]:
    """Measure batches of videos of 1,000 frames, L = K = 7."""
    params, out, step = model(), [], e_step()
    for videos in (1, 8, 40):
        device = jax.tree.map(jnp.asarray, (params, draw(params, [1000] * videos)))
        best = clock(partial(step, *device), 3)[1]
        out.append({"videos": videos, "e_step, microseconds per frame": round(1e6 * best / videos / 1000, 2)})
    return out


def single_tracks(_: Any) -> dict[str, Any]:
    """Compare backends for tools alone and phases alone, on 40 videos of 2,000 frames; phases also on one video."""
    full, out = model(), {}
    backends = ("auto", "scan", "parallel") if jax.default_backend() == "gpu" else ("auto", "scan")
    obs = draw(full, [2000] * 40)
    alone = hmmjax.transitions.PhaseConditioned(full.tools.transition.matrix[:, 0])
    tools = hmmjax.Params(None, hmmjax.ToolChains(full.tools.initial[:, 0], alone, full.tools.emission))
    for name, params, outputs in (
        ("tools", tools, hmmjax.Observations(None, obs.tools)),
        ("phases", hmmjax.Params(full.phases, None), hmmjax.Observations(obs.phases, None)),
    ):
        device = jax.tree.map(jnp.asarray, (params, outputs))
        steps = {b: e_step(b) for b in backends}
        values = {b: np.float64(step(*device)[0]).sum() for b, step in steps.items()}
        assert max(relative(v, values["scan"]) for v in values.values()) < 1e-5, values
        out[name] = {f"{b}, ms": round(1e3 * clock(partial(s, *device), 5)[1], 2) for b, s in steps.items()}
    out["phases of one video, microseconds per frame"] = {}
    for length in (1000, 10000):
        device = jax.tree.map(jnp.asarray, (params, hmmjax.Observations(draw(full, [length]).phases)))
        seconds = clock(partial(steps["auto"], *device), 50)[1]
        out["phases of one video, microseconds per frame"][f"{length} frames"] = round(1e6 * seconds / length, 3)
    return out


def cholec80(args: Any) -> dict[str, Any]:
    """Run EM to convergence on the 80 real label tracks of Cholec80, corrupted by simulated recognizer errors."""
    data, mask, lengths = corrupted_tracks(args.tracks, args.small)
    # Without pseudo-counts EM produces zeros, for which only the compiled recursions for CPUs are exact and fast.
    priors, seconds = hmmjax.Priors(*[0.01] * 6), []
    for _ in range(2):
        began = time.perf_counter()
        fitted = hmmjax.fit(*data, mask, priors=priors, max_iterations=200, tolerance=1e-6)
        seconds.append(time.perf_counter() - began)
    first, second = seconds
    steps = int(fitted.num_iterations) + 1
    return {
        "devices": len(jax.devices()), "videos": len(lengths),
        "frames": int(lengths.sum()), "padded to": int(len(lengths) * lengths.max()),
        "iterations": int(fitted.num_iterations), "converged": bool(fitted.converged),
        "log-likelihood": float(fitted.log_likelihood[-1]),
        "first fit, seconds": round(first, 2), "second fit, seconds": round(second, 2),
        "ms per iteration": round(1e3 * second / steps, 1),
        "ms per part of the second fit": parts_of_fit(*data, mask, priors, steps),
    }  # fmt: skip


def parts_of_fit(start: Any, outputs: Any, mask: Any, priors: Any, steps: int) -> dict[str, float]:
    """Measure what a fit consists of, each part by itself, after one that has compiled everything."""
    parts: dict[str, float] = {}

    def measure(name: str, run: Callable[[], Any]) -> Any:
        parts[name] = round(1e3 * clock(run, 3)[1], 1)
        return run()

    batch = measure("input checks and copies to the host", lambda: prepare(start, outputs, mask, None))
    params = canonical(start)
    packed = measure("packing", lambda: lowering.pack(batch, "auto"))
    packed = packed if packed.split is not None else jax.device_put(packed)
    if packed.split is not None:
        params, priors = packed.split.replicate(params, priors)
    name = lowering.choose_backend("auto", params)
    step = partial(learning._em_step, params, packed, priors, name, frozenset())
    measure(f"{steps} EM steps", lambda: [float(step()[1]) for _ in range(steps)])
    measure(
        f"choice of the backend, {steps} times",
        lambda: [lowering.choose_backend("auto", params) for _ in range(steps)] and 0,
    )
    return parts


def corrupted_tracks(tracks: str | None, small: bool) -> tuple[tuple, Any, np.ndarray]:
    """Return (start, outputs), the mask and the lengths of Cholec80's videos; `small`: of three, cut short."""
    with np.load(tracks or DATA / "cholec80" / "labels_1fps.npz") as file:
        phases = [file[f"phase_{v:02d}"].astype(np.int32) for v in range(1, 81)]
        tools = [file[f"tools_{v:02d}"].astype(np.int32) for v in range(1, 81)]
    if small:
        phases, tools = [p[:200] for p in phases[:3]], [t[:200] for t in tools[:3]]
    rng, noise = np.random.default_rng(0), model()
    lengths = np.array([len(p) for p in phases])
    shape = (len(lengths), lengths.max())
    outputs = hmmjax.Observations(np.zeros(shape, np.int32), np.zeros((*shape, 7), np.int32))
    for i, n in enumerate(lengths):
        u = rng.random(n)[:, None]
        known = np.maximum(phases[i], 0)
        outputs.phases[i, :n] = (u > np.cumsum(noise.phases.emission.matrix[known], -1)).sum(1).clip(0, 6)
        present = np.take_along_axis(noise.tools.emission.matrix[..., 1].T, np.maximum(tools[i], 0), 0)
        outputs.tools[i, :n] = rng.random((n, 7)) < present
    mask = np.arange(shape[1]) < lengths[:, None]
    # Learned without labels, from a rough start: sticky chains and recognizers that are mostly right.
    start = hmmjax.init_params(7, 7)
    sticky = np.float32(0.99 * np.eye(7) + 0.01 / 7)
    start = hmmjax.Params(
        hmmjax.PhaseChain(
            np.full(7, 1 / 7, np.float32), sticky, emissions.PhaseConfusion(np.float32(0.7 * np.eye(7) + 0.3 / 7))
        ),
        hmmjax.ToolChains(
            np.full((7, 7), 0.3, np.float32),
            hmmjax.transitions.PhaseConditioned(np.tile(np.float32([[0.98, 0.02], [0.02, 0.98]]), (7, 7, 1, 1))),
            emissions.ToolConfusion(np.broadcast_to(np.float32([[0.8, 0.2], [0.2, 0.8]]), (7, 2, 2))),
        ),
    )  # fmt: skip
    if len(jax.devices()) > 1:
        # Spread videos over the processor's cores (JAX_NUM_CPU_DEVICES), longest first for an equal load.
        order = np.argsort(-lengths, kind="stable")
        order = np.concatenate([order[i :: len(jax.devices())] for i in range(len(jax.devices()))])
        outputs, mask, _ = hmmjax.shard(jax.tree.map(lambda x: x[order], outputs), mask[order])
    data = jax.tree.map(jnp.asarray, (start, outputs)) if jax.default_backend() == "gpu" else (start, outputs)
    return data, mask, lengths


def peak_memory(_: Any) -> dict[str, Any]:
    """Measure the peak resident memory of a fresh process that runs one EM step, with and without compiling."""
    out = {}
    with tempfile.TemporaryDirectory() as cache:
        environment = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        for name, num_frames in (
            ("imports alone", 0), ("1000 frames, compiled first", 1000), ("1000 frames", 1000),
            ("2000 frames, compiled first", 2000), ("2000 frames", 2000),
        ):  # fmt: skip
            command = [sys.executable, __file__, "memory", str(num_frames)]
            run = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
            out[f"{name}, MiB"] = round(float(run.stdout))
    return out


def memory() -> None:
    """Run one EM step and print the process's peak resident memory in MiB."""
    num_frames = int(sys.argv[2])
    if num_frames:
        params = model()
        jax.block_until_ready(e_step()(params, draw(params, num_frames)))
    # Not getrusage: a child's maximum there starts at its parent's.
    (peak,) = (x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    print(int(peak.split()[1]) / 1024)


CPU: dict[str, Callable] = {
    "one video": one_video, "states": over_states, "frames": over_frames, "batches": over_batches,
    "single tracks": single_tracks, "cholec80": cholec80, "peak memory": peak_memory,
}  # fmt: skip
GPU: dict[str, Callable] = {
    "80 videos": hmm_in_turn.videos, "cholec80": hmm_in_turn.cholec80, "kernels": hmm_in_turn.kernels,
    "80 videos, other ways": hmm_gpu.many_videos, "single tracks": single_tracks, "frames": over_frames,
    "one video": one_video, "devices": hmm_gpu.devices,
}  # fmt: skip


def pack(path: Path) -> None:
    """Pack Cholec80's 1 fps labels into one small file, for a machine without the shared data."""
    path.parent.mkdir(exist_ok=True)
    with np.load(DATA / "cholec80" / "labels_1fps.npz") as file:
        names = [f"{track}_{v:02d}" for track in ("phase", "tools") for v in range(1, 81)]
        tracks = {name: file[name].astype(np.int8) for name in names}
    np.savez_compressed(path, **tracks)


def plot() -> None:
    """Plot the time per frame against the number of states, from the CPU results."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = json.loads((HERE / "results" / "hmm_cpu.json").read_text())
    # The section "one video" replaces that of 7 tools: it also has the Viterbi paths of the other libraries.
    rows = [*results["states"], results["one video"]]
    rows = [r for r in rows if r["states"] < rows[-1]["states"]] + rows[-1:]
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
    colors = {"hmmjax": "#0072B2", "dynamax": "#D55E00", "hmmlearn": "#009E73"}
    for axis, (key, title) in zip(
        axes, {"filter": "Filter", "e_step": "EM step", "viterbi": "Viterbi"}.items(), strict=True
    ):
        for name, color in colors.items():
            points = [
                (r["states"], v)
                for r in rows
                for n, v in r["microseconds per frame"][key].items()
                if n.split()[0].strip(",") == name and "plain" not in n and "alone" not in n
            ]
            if points:
                axis.loglog(*zip(*points, strict=True), marker="o", color=color, label=name)
        axis.set(title=title, xlabel="joint states S = 7 · 2ᴷ")
        axis.grid(True, which="major", alpha=0.3)
    axes[0].set_ylabel("microseconds per frame")
    axes[0].legend(frameon=False)
    figure.suptitle(f"Time per frame; {results['device']}", fontsize=10)
    (HERE.parent / "docs" / "images").mkdir(exist_ok=True)
    figure.savefig(HERE.parent / "docs" / "images" / "hmm_cost.png", dpi=150)


if __name__ == "__main__":
    main()

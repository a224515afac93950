"""Inference and EM side by side with dynamax, hmmlearn and plain JAX, after checking that all give the same answers.

    python benchmarks/hmm.py pack .device/cholec80.npz    # real label tracks, for a machine without ../shared
    JAX_PLATFORMS=cpu taskset -c 0,1 python benchmarks/hmm.py cpu
    python benchmarks/hmm.py gpu --tracks .device/cholec80.npz
    python benchmarks/hmm.py plot

A coupled model of L phases and K tools is one chain of S = L 2^K states to the other libraries: hard recogniser
outputs become one symbol a frame. Each part writes ``benchmarks/results/hmm_<part>.json`` (or --out). Times are the
best of several calls after compilation; peers run in the same process.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import hmmjax
from hmmjax import em, emissions
from hmmjax._data import collect
from hmmjax.priors import Priors

HERE = Path(__file__).parent
DATA = Path(os.environ.get("HMMJAX_DATA", "../shared/data"))


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["cpu", "gpu", "pack", "plot", "memory"])
    parser.add_argument("path", nargs="?", help="where `pack` writes")
    parser.add_argument("--tracks", help="packed Cholec80 labels; default the shared data")
    parser.add_argument("--out", help="results file")
    parser.add_argument("--only", help="comma-separated sections")
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
        names = args.only.split(",") if args.only else list(sections)
        results: dict[str, Any] = about(args.part)
        for name in names:
            started = time.time()
            results[name] = sections[name](args.tracks)
            print(name, f"{time.time() - started:.0f} s", json.dumps(results[name]), flush=True)
            out.write_text(json.dumps(results, indent=1) + "\n")


def about(part: str) -> dict[str, Any]:
    """Command, device and versions."""
    device = jax.devices()[0]
    names = ["jax", "jaxlib", "numpy"] + [n for n in ("dynamax", "hmmlearn") if _has(n)]
    cores = len(os.sched_getaffinity(0))
    described = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((x.split(":")[1].strip() for x in described if x.startswith("model name")), "")
    return {
        "command": f"python benchmarks/hmm.py {part}",
        "device": f"{device.device_kind}" if device.platform == "gpu" else f"CPU, {cores} cores ({model})",
        "versions": {"python": platform.python_version(), **{n: version(n) for n in names}},
    }


def _has(name: str) -> bool:
    try:
        version(name)
    except ModuleNotFoundError:
        return False
    return True


# The model and its data. ------------------------------------------------------------------------------------------


def model(num_phases: int = 7, num_tools: int = 7, seed: int = 0) -> hmmjax.Params:
    """Sticky phases and tools with confusions like a real recogniser's."""
    rng = np.random.default_rng(seed)
    stay = 0.995

    def sticky(n: int, *shape: int) -> np.ndarray:
        move = rng.dirichlet(np.ones(n), (*shape, n))
        return (stay * np.eye(n) + (1 - stay) * move).astype(np.float32)

    def confusion(n: int, *shape: int) -> np.ndarray:
        return (0.85 * np.eye(n) + 0.15 * rng.dirichlet(np.ones(n), (*shape, n))).astype(np.float32)

    start = hmmjax.init_params(num_phases, num_tools)
    phases = hmmjax.PhaseChain(
        np.full(num_phases, 1 / num_phases, np.float32),
        sticky(num_phases),
        emissions.PhaseConfusion(confusion(num_phases)),
    )
    tools = hmmjax.ToolChains(
        np.asarray(rng.uniform(0.1, 0.5, start.tools.initial.shape), np.float32),
        hmmjax.transitions.PhaseConditioned(sticky(2, num_tools, num_phases)),
        emissions.ToolConfusion(confusion(2, num_tools)),
    )
    return hmmjax.Params(phases, tools)


def dense(params: hmmjax.Params) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same model as one chain in float64: start (S,), transition (S, S), emission (S, symbols)."""
    phases, tools = params.phases, params.tools
    start, symbols = np.float64(phases.initial)[:, None], np.float64(phases.emission.matrix)
    steps = [np.ones((1, 1))] * len(start)
    tool_symbols = np.ones((1, 1))
    for k in range(params.num_tools):
        p = np.float64(tools.initial[k])
        start = (start[:, :, None] * np.stack([1 - p, p], -1)[:, None, :]).reshape(len(p), -1)
        steps = [np.kron(a, np.float64(tools.transition.matrix[k, q])) for q, a in enumerate(steps)]
        tool_symbols = np.kron(tool_symbols, np.float64(tools.emission.matrix[k]))
    move = np.stack(steps)  # (q, c*, c)
    n = move.shape[1]
    transition = np.einsum("pq,qab->paqb", np.float64(phases.transition), move).reshape(len(steps) * n, -1)
    transition /= transition.sum(1, keepdims=True)
    emission = np.kron(symbols, tool_symbols)
    return start.reshape(-1) / start.sum(), transition, emission / emission.sum(1, keepdims=True)


def draw(params: hmmjax.Params, lengths: Any, seed: int = 0) -> hmmjax.Observations:
    """Hard outputs of the recogniser."""
    _, obs, _ = hmmjax.sample(params, jax.random.key(seed), lengths)
    return jax.tree.map(np.asarray, obs)


def codes(obs: hmmjax.Observations) -> np.ndarray:
    """One symbol a frame."""
    k = obs.tools.shape[-1]
    return np.asarray(obs.phases) * 2**k + (np.asarray(obs.tools) << np.arange(k - 1, -1, -1)).sum(-1)


def e_step(backend: str = "auto") -> Callable:
    """Posteriors and every expected count, as one EM iteration computes them."""

    @jax.jit
    def run(params: hmmjax.Params, obs: hmmjax.Observations) -> Any:
        data, _ = collect(obs, None, None)
        value, expected = em.expectations(params, data, backend)
        return value, em.maximise(params, expected, Priors(), frozenset())

    return run


def log_likelihood64(params: hmmjax.Params, obs: hmmjax.Observations) -> float:
    """Structured forward recursion of one video in float64 with NumPy: shares no code with the library."""
    phases, tools = params.phases, params.tools
    k, size = params.num_tools, len(phases.initial)
    start = np.float64(phases.initial)[:, None]
    for p in np.float64(tools.initial):
        start = (start[:, :, None] * np.stack([1 - p, p], -1)[:, None, :]).reshape(size, -1)
    move, steps = np.float64(phases.transition).T.copy(), np.float64(tools.transition.matrix)
    seen_phase, seen_tool = np.float64(phases.emission.matrix), np.float64(tools.emission.matrix)
    table = {}
    total, message = 0.0, start
    for t in range(len(obs.phases)):
        key = tuple(obs.tools[t].tolist())
        if key not in table:
            likelihood = np.ones(1)
            for j, y in enumerate(key):
                likelihood = np.kron(likelihood, seen_tool[j][:, y])
            table[key] = likelihood
        if t:
            message = move @ message
            for j in range(k):
                x = message.reshape(size, 2**j, 2, -1)
                message = np.einsum("qlir,qij->qljr", x, steps[j]).reshape(size, -1)
        message = message * seen_phase[:, obs.phases[t]][:, None] * table[key]
        norm = message.sum()
        message, total = message / norm, total + np.log(norm)
    return float(total)


# Measuring. -------------------------------------------------------------------------------------------------------


def clock(run: Callable[[], Any], repeats: int = 7, budget: float = 20.0) -> tuple[float, float]:
    """Seconds of the first call, and of the best of `repeats` more (fewer when they take longer than `budget`)."""
    started = time.perf_counter()
    jax.block_until_ready(run())
    first, best, spent = time.perf_counter() - started, np.inf, 0.0
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(run())
        took = time.perf_counter() - started
        best, spent = min(best, took), spent + took
        if spent > budget:
            break
    return first, best


def peers(params: hmmjax.Params, obs: hmmjax.Observations, *, path: bool = True) -> dict[str, Any]:
    """All libraries on one video: microseconds a frame, ratios to ours, and how far answers differ."""
    num_frames, num_phases, num_tools = len(obs.phases), params.num_phases, params.num_tools
    start, move, see = dense(params)
    symbols = codes(obs)
    params, obs = jax.tree.map(jnp.asarray, (params, obs))
    ours: dict[str, Callable[[], Any]] = {
        "filter": lambda: hmmjax.filter(params, obs),
        "e_step": lambda: step(params, obs),
        "viterbi": lambda: hmmjax.decode(params, obs),
    }
    step = e_step()
    times: dict[str, dict[str, float]] = {}
    for name, run in ours.items():
        first, best = clock(run, 15)
        times[name] = {"hmmjax": best, "hmmjax first call": first}
    posterior, decoded = hmmjax.posterior(params, obs), hmmjax.decode(params, obs)
    differences: dict[str, float] = {}
    plain = e_step("logspace")
    times["e_step"]["hmmjax, plain log-space scan"] = clock(lambda: plain(params, obs), 3)[1]
    differences["log-likelihood, float64"] = _relative(posterior.log_likelihood, log_likelihood64(params, obs))

    if _has("dynamax"):
        from dynamax.hidden_markov_model import inference

        dense32 = [jnp.asarray(x, jnp.float32) for x in (start, move)]
        seen = jnp.log(jnp.asarray(see[:, symbols].T, jnp.float32))
        # jitted whole, which the library leaves to its users
        smoother, filtered, mode = (
            jax.jit(f) for f in (inference.hmm_smoother, inference.hmm_filter, inference.hmm_posterior_mode)
        )
        times["filter"]["dynamax"] = clock(lambda: filtered(*dense32, seen), 3)[1]
        times["e_step"]["dynamax"] = clock(lambda: smoother(*dense32, seen), 3)[1]
        theirs = smoother(*dense32, seen)
        states = np.asarray(theirs.smoothed_probs, np.float64).reshape(num_frames, num_phases, 2**num_tools)
        differences["log-likelihood, dynamax"] = _relative(posterior.log_likelihood, theirs.marginal_loglik)
        differences["phase posteriors, dynamax"] = float(np.abs(states.sum(2) - posterior.phases).max())
        if path:
            times["viterbi"]["dynamax"] = clock(lambda: mode(*dense32, seen), 1)[1]
            best = np.asarray(mode(*dense32, seen))
            differences["path log-probability, dynamax"] = _relative(
                decoded.log_prob, _score(start, move, see, symbols, best)
            )
    if _has("hmmlearn"):
        from hmmlearn.hmm import CategoricalHMM

        learner = CategoricalHMM(
            len(start), n_iter=1, init_params="", params="ste", tol=-np.inf, implementation="scaling"
        )
        learner.n_features = see.shape[1]

        def reset() -> None:
            learner.startprob_, learner.transmat_, learner.emissionprob_ = start, move, see

        def em_step() -> None:
            reset()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                learner.fit(symbols[:, None])

        times["e_step"]["hmmlearn"] = clock(em_step, 1)[1]
        reset()
        times["filter"]["hmmlearn (score)"] = clock(lambda: learner.score(symbols[:, None]), 1)[1]
        differences["log-likelihood, hmmlearn"] = _relative(posterior.log_likelihood, learner.score(symbols[:, None]))
        if path:
            times["viterbi"]["hmmlearn"] = clock(lambda: learner.decode(symbols[:, None]), 1)[1]
            differences["path log-probability, hmmlearn"] = _relative(
                decoded.log_prob, learner.decode(symbols[:, None])[0]
            )
    worst = max(v for v in differences.values())
    assert worst < 1e-3, differences
    micro = {k: {n: round(1e6 * t / num_frames, 2) for n, t in v.items() if "first" not in n} for k, v in times.items()}
    ratios = {
        k: {n: round(t / v["hmmjax"], 1) for n, t in v.items() if n != "hmmjax" and "first" not in n}
        for k, v in times.items()
    }
    first = {k: round(v["hmmjax first call"], 2) for k, v in times.items()}
    return {
        "states": len(start), "frames": num_frames, "microseconds a frame": micro, "times slower than hmmjax": ratios,
        "first call, seconds": first, "differences": differences,
    }  # fmt: skip


def _relative(a: Any, b: Any) -> float:
    return float(abs(np.float64(a) - np.float64(b)) / max(1.0, abs(np.float64(b))))


def _score(start: np.ndarray, move: np.ndarray, see: np.ndarray, symbols: np.ndarray, path: np.ndarray) -> float:
    log = np.log(start[path[0]]) + np.log(see[path, symbols]).sum() + np.log(move[path[:-1], path[1:]]).sum()
    return float(log)


# Sections. --------------------------------------------------------------------------------------------------------


def one_video(_: Any) -> dict[str, Any]:
    """L = K = 7, one video of 1,000 frames."""
    params = model()
    return peers(params, draw(params, 1000))


def over_states(_: Any) -> list[dict[str, Any]]:
    """K from 1 to 8 tools and 7 phases, 1,000 frames."""
    out = []
    for num_tools in range(1, 8):
        params = model(7, num_tools)
        out.append(peers(params, draw(params, 1000), path=num_tools < 6))
    return out


def over_frames(_: Any) -> list[dict[str, Any]]:
    """L = K = 7, one video of 100 to 150,000 frames: cost a frame, and the log-likelihood against float64."""
    params, out, step = model(), [], e_step()
    for num_frames in (100, 1000, 10_000, 150_000):
        obs = draw(params, num_frames)
        device = jax.tree.map(jnp.asarray, (params, obs))
        first, best = clock(partial(step, *device), 5, 30.0)
        value = hmmjax.log_likelihood(params, obs)
        micro = round(1e6 * best / num_frames, 2)
        filtered = round(1e6 * clock(partial(hmmjax.filter, *device), 5, 20.0)[1] / num_frames, 2)
        reference = log_likelihood64(params, obs)
        out.append(
            {"frames": num_frames, "e_step, microseconds a frame": micro, "filter, microseconds a frame": filtered,
             "first call, seconds": round(first, 2), "log-likelihood": float(value),
             "relative error": _relative(value, reference)}
        )  # fmt: skip
        assert out[-1]["relative error"] < 1e-6, out[-1]
    return out


def over_batches(_: Any) -> list[dict[str, Any]]:
    """L = K = 7, batches of videos of 1,000 frames."""
    params, out, step = model(), [], e_step()
    for videos in (1, 8, 40):
        device = jax.tree.map(jnp.asarray, (params, draw(params, [1000] * videos)))
        best = clock(partial(step, *device), 3)[1]
        out.append({"videos": videos, "e_step, microseconds a frame": round(1e6 * best / videos / 1000, 2)})
    return out


def single_tracks(_: Any) -> dict[str, Any]:
    """Tools alone and phases alone, 40 videos of 2,000 frames: associative scan against the recursion."""
    full, out = model(), {}
    obs = draw(full, [2000] * 40)
    alone = hmmjax.transitions.PhaseConditioned(full.tools.transition.matrix[:, 0])
    tools = hmmjax.Params(None, hmmjax.ToolChains(full.tools.initial[:, 0], alone, full.tools.emission))
    for name, params, said in (
        ("tools", tools, hmmjax.Observations(None, obs.tools)),
        ("phases", hmmjax.Params(full.phases, None), hmmjax.Observations(obs.phases, None)),
    ):
        device = jax.tree.map(jnp.asarray, (params, said))
        steps = {b: e_step(b) for b in ("auto", "scan", "parallel")}
        values = {b: np.float64(step(*device)[0]).sum() for b, step in steps.items()}
        assert max(_relative(v, values["scan"]) for v in values.values()) < 1e-5, values
        out[name] = {f"{b}, ms": round(1e3 * clock(partial(s, *device), 5)[1], 2) for b, s in steps.items()}
    return out


def cholec80(tracks: str | None) -> dict[str, Any]:
    """EM to convergence on the 80 real label tracks of Cholec80 seen through simulated recogniser noise."""
    with np.load(tracks or DATA / "cholec80" / "labels_1fps.npz") as file:
        phases = [file[f"phase_{v:02d}"].astype(np.int32) for v in range(1, 81)]
        tools = [file[f"tools_{v:02d}"].astype(np.int32) for v in range(1, 81)]
    rng, noise = np.random.default_rng(0), model()
    lengths = np.array([len(p) for p in phases])
    shape = (80, lengths.max())
    said = hmmjax.Observations(np.zeros(shape, np.int32), np.zeros((*shape, 7), np.int32))
    for i, n in enumerate(lengths):
        u = rng.random(n)[:, None]
        known = np.maximum(phases[i], 0)
        said.phases[i, :n] = (u > np.cumsum(noise.phases.emission.matrix[known], -1)).sum(1).clip(0, 6)
        present = np.take_along_axis(noise.tools.emission.matrix[..., 1].T, np.maximum(tools[i], 0), 0)
        said.tools[i, :n] = rng.random((n, 7)) < present
    mask = np.arange(shape[1]) < lengths[:, None]
    # Learnt without labels, from a rough start: sticky chains and recognisers that are mostly right.
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
    data = jax.tree.map(jnp.asarray, (start, said)) if jax.default_backend() == "gpu" else (start, said)
    began = time.perf_counter()
    fitted = hmmjax.fit(*data, mask, max_iterations=200, tolerance=1e-6)
    first = time.perf_counter() - began
    began = time.perf_counter()
    fitted = hmmjax.fit(*data, mask, max_iterations=200, tolerance=1e-6)
    second = time.perf_counter() - began
    return {
        "videos": 80, "frames": int(lengths.sum()), "padded to": int(shape[0] * shape[1]),
        "iterations": fitted.num_iterations, "converged": fitted.converged,
        "log-likelihood": float(fitted.log_likelihoods[-1]),
        "first fit, seconds": round(first, 2), "second fit, seconds": round(second, 2),
        "an iteration, ms": round(1e3 * second / max(1, fitted.num_iterations + 1), 1),
    }  # fmt: skip


def peak_memory(_: Any) -> dict[str, Any]:
    """Peak resident memory of a fresh process that runs one EM step, S = 896, T = 1,000 and 2,000."""
    out = {}
    for num_frames in (0, 1000, 2000):
        run = subprocess.run(
            [sys.executable, __file__, "memory", str(num_frames)], capture_output=True, text=True, check=True
        )
        out["imports alone, MiB" if not num_frames else f"{num_frames} frames, MiB"] = float(run.stdout)
    return out


def memory() -> None:
    """One EM step; prints the process's peak MiB."""
    num_frames = int(sys.argv[2])
    if num_frames:
        params = model()
        jax.block_until_ready(e_step()(params, draw(params, num_frames)))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def many_videos(_: Any) -> dict[str, Any]:
    """80 videos of 2,300 frames, L = K = 7: E-step beside the dense matrix-product scan with pair counts."""
    params, videos, num_frames = model(), 80, 2300
    obs = draw(params, [num_frames] * videos)
    device = jax.tree.map(jnp.asarray, (params, obs))
    step = e_step()
    first, best = clock(lambda: step(*device), 10)
    start, move, see = (jnp.asarray(x, jnp.float32) for x in dense(params))
    symbols = jnp.asarray(codes(obs))
    gemm = jax.jit(_dense_e_step)
    dense_best = clock(lambda: gemm(start, move, see, symbols), 3)[1]
    value, counts, _ = gemm(start, move, see, symbols)
    ours, fitted = step(*device)
    exact = np.array([log_likelihood64(params, jax.tree.map(lambda x, i=i: x[i], obs)) for i in range(0, videos, 16)])
    posterior = hmmjax.posterior(*device)
    again = np.asarray(counts).reshape(7, 128, 7, 128).sum((1, 3))
    again = again / again.sum(1, keepdims=True)
    times = {
        "e_step": best,
        "log_likelihood": clock(lambda: hmmjax.log_likelihood(*device), 5)[1],
        "posterior": clock(lambda: hmmjax.posterior(*device), 5)[1],
        "filter": clock(lambda: hmmjax.filter(*device), 5)[1],
        "viterbi": clock(lambda: hmmjax.decode(*device), 5)[1],
        "dense e_step": dense_best,
    }
    scan = e_step("scan")
    times["e_step, XLA scan"] = clock(lambda: scan(*device), 1)[1]
    differences = {
        "log-likelihood, float64": max(_relative(a, b) for a, b in zip(np.asarray(ours)[::16], exact, strict=True)),
        "log-likelihood, dense": max(_relative(a, b) for a, b in zip(ours, value, strict=True)),
        "phase transitions, dense": float(np.abs(fitted.phases.transition - again).max()),
        "posterior, XLA scan": float(
            jnp.abs(posterior.phases - hmmjax.posterior(*device, backend="scan").phases).max()
        ),
        "path log-probability, log-space scan": max(
            _relative(a, b)
            for a, b in zip(
                hmmjax.decode(*device).log_prob, hmmjax.decode(*device, backend="logspace").log_prob, strict=True
            )
        ),
    }
    return {
        "ms": {k: round(1e3 * t, 2) for k, t in times.items()},
        "first call, seconds": round(first, 2), "dense over hmmjax": round(dense_best / best, 1),
        "differences": differences,
    }  # fmt: skip


def _dense_e_step(start: Any, move: Any, see: Any, symbols: Any) -> tuple[Any, Any, Any]:
    """What a careful user writes: batched scans of matrix products over all S states, pair counts as one product."""
    product = lambda a, b: jnp.matmul(a, b, precision=lax.Precision.HIGHEST)  # noqa: E731
    evidence = jnp.moveaxis(see.T[symbols], 1, 0)  # (T, B, S)

    def forward(predicted: Any, seen: Any) -> tuple:
        joint = predicted * seen
        norm = joint.sum(-1, keepdims=True)
        alpha = joint / norm
        return product(alpha, move), (alpha, norm[:, 0])

    first = jnp.broadcast_to(start, evidence.shape[1:])
    _, (alpha, norms) = lax.scan(forward, first, evidence)

    def backward(carry: tuple, inputs: tuple) -> tuple:
        after, counts = carry
        alpha, seen, norm = inputs
        beta = product(after, move.T)
        counts = counts + product(alpha.T, after)
        return (seen * beta / norm[:, None], counts), (alpha * beta).sum(-1)

    last = (evidence[-1] / norms[-1][:, None], jnp.zeros_like(move))
    (_, counts), sums = lax.scan(backward, last, (alpha[:-1], evidence[:-1], norms[:-1]), reverse=True)
    return jnp.log(norms).sum(0), counts * move, sums


CPU: dict[str, Callable] = {
    "one video": one_video, "states": over_states, "frames": over_frames, "batches": over_batches,
    "single tracks": single_tracks, "cholec80": cholec80, "peak memory": peak_memory,
}  # fmt: skip
GPU: dict[str, Callable] = {
    "80 videos": many_videos, "single tracks": single_tracks, "cholec80": cholec80, "frames": over_frames,
    "one video": one_video,
}  # fmt: skip


def pack(path: Path) -> None:
    """Copy Cholec80's 1 fps labels into one small file outside the repository's history."""
    path.parent.mkdir(exist_ok=True)
    with np.load(DATA / "cholec80" / "labels_1fps.npz") as file:
        names = [f"{track}_{v:02d}" for track in ("phase", "tools") for v in range(1, 81)]
        kept = {k: file[k].astype(np.int8) for k in names}
    np.savez_compressed(path, **kept)


def plot() -> None:
    """Cost a frame against the number of states, from the CPU results."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = json.loads((HERE / "results" / "hmm_cpu.json").read_text())
    rows = results["states"]
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
    colours = {"hmmjax": "#0072B2", "dynamax": "#D55E00", "hmmlearn": "#009E73"}
    for axis, (key, title) in zip(
        axes, {"filter": "Filter", "e_step": "EM step", "viterbi": "Viterbi"}.items(), strict=True
    ):
        for name, colour in colours.items():
            points = [
                (r["states"], v)
                for r in rows
                for n, v in r["microseconds a frame"][key].items()
                if n.split()[0].strip(",") == name and "plain" not in n
            ]
            if points:
                axis.loglog(*zip(*points, strict=True), marker="o", color=colour, label=name)
        axis.set(title=title, xlabel="joint states S = 7 · 2ᴷ")
        axis.grid(True, which="major", alpha=0.3)
    axes[0].set_ylabel("microseconds a frame")
    axes[0].legend(frameon=False)
    figure.suptitle(f"Cost of a frame; {results['device']}", fontsize=10)
    figure.savefig(HERE.parent / "docs" / "images" / "hmm_cost.png", dpi=150)


if __name__ == "__main__":
    main()

"""`hmmjax bench`: time the library on this machine."""

import json as json_
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from hmmjax.cli import console
from hmmjax.cli import options as o


@console.friendly
@o.expand
def bench(
    *,
    common: o.Common,
    videos: Annotated[int, typer.Option(min=1, help="Number of simulated videos in the batch.")] = 4,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="Mean length of a video in minutes, at one frame per second.")
    ] = 38.4,
    repeats: Annotated[int, typer.Option(min=1, help="Number of timed runs; the median is reported.")] = 3,
    iterations: Annotated[int, typer.Option(min=1, help="Number of EM iterations in a timed fit.")] = 2,
    out: Annotated[Path | None, typer.Option("--out", help="Also write the times to this JSON file.")] = None,
    dry_run: o.DryRun = False,
) -> None:
    """Time smoother, filter, decoder and EM on simulated surgeries: 7 phases, 7 tools, the coupled model."""
    console.refuse_existing(out, "--out", common.force)
    if dry_run:
        plan = {"videos": videos, "minutes": minutes, "repeats": repeats, "iterations": iterations}
        text = f"would time {console.videos(videos)} of {minutes:g} minutes, {repeats} times each"
        console.answer(plan, text, common.json)
        return
    import jax

    import hmmjax
    from hmmjax import stabilize
    from hmmjax.simulate import simulate_surgeries, stack

    labels, obs, mask = stack(simulate_surgeries(videos, 0, minutes=minutes))
    outputs = obs.discretize()
    params = hmmjax.estimate(labels, outputs, mask, priors=stabilize.PRIORS)
    frames = int(mask.sum())
    jobs: dict[str, Callable[[], Any]] = {
        "posterior": lambda: hmmjax.posterior(params, outputs, mask),
        "filter": lambda: hmmjax.filter(params, outputs, mask),
        "decode": lambda: hmmjax.decode(params, outputs, mask),
        f"fit, {iterations} EM iterations": lambda: (
            hmmjax.fit(params, outputs, mask, max_iterations=iterations, tolerance=0.0, priors=stabilize.PRIORS).history
        ),
    }
    rows = []
    with console.Stages() as stages:
        for i, (name, job) in enumerate(jobs.items()):
            stages("timing", i, len(jobs))
            first, times = _time(job), [_time(job) for _ in range(repeats)]
            seconds = sorted(times)[len(times) // 2]
            rows.append({"what": name, "seconds": seconds, "frames_per_second": frames / seconds, "first_call": first})
        stages("timing", len(jobs), len(jobs))
    device = jax.devices()[0]
    answer = {
        "device": describe_device(device.platform, device.device_kind),
        "backend": hmmjax.diagnostics.backend(),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("jax", "numpy")}},
        "model": "7 phases, 7 tools, confusion emissions",
        "videos": videos,
        "frames": frames,
        "repeats": repeats,
        "timings": rows,
    }
    if out is not None:
        from hmmjax import io

        with io.write_atomically(out, force=common.force) as temporary:
            Path(temporary).write_text(json_.dumps(answer, indent=1) + "\n", encoding="utf-8")
    lines = [f"{answer['device']}; {console.videos(videos)}, {frames:,} frames; median of {repeats}", answer["backend"]]
    lines += [
        f"{r['what']:<24}{r['seconds']:>9.3f} s{r['frames_per_second']:>14,.0f} frames/s   (first call "
        f"{r['first_call']:.1f} s)"
        for r in rows
    ]
    console.answer(answer, "\n".join(lines), common.json)


def describe_device(name: str, kind: str) -> str:
    """Describe the device that JAX uses, and the processor; JAX calls the kind of every CPU "cpu"."""
    own = name if kind.lower() == name.lower() else f"{name} {kind}"
    return f"{own}, {os.cpu_count()} cores ({platform.machine()})"


def _time(job: Callable[[], Any]) -> float:
    import jax

    start = time.perf_counter()
    jax.block_until_ready(job())
    return time.perf_counter() - start

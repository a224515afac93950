"""`hmmjax simulate`: write simulated surgeries as files."""

import json as json_
from pathlib import Path
from typing import Annotated

import typer

from hmmjax.cli import console
from hmmjax.cli import options as o

MEAN_MINUTES = 38.4
"""As in `hmmjax.simulate`, which would import JAX."""


@console.friendly
@o.expand
def simulate(
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder for annotations and predictions.")],
    common: o.Common,
    videos: Annotated[int, typer.Option(min=1, help="Number of surgeries.")] = 10,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="Mean length in minutes. Default: Cholec80's.")
    ] = MEAN_MINUTES,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")] = 0,
    noise: Annotated[
        float, typer.Option(min=0, help="How often the recognizer errs: 0 never, 1 as networks usually do.")
    ] = 1.0,
) -> None:
    """Simulate surgeries with Cholec80's statistics, and a recognizer with realistic errors.

    Writes annotations in Cholec80's layout (phase_annotations/, tool_annotations/) and the recognizer's
    predictions.npz, for trying out the other commands. models.data.simsurg simulates pictures.
    """
    from hmmjax.data.simulated import write_simulation
    from hmmjax.simulate import Recognizer, simulate_surgeries

    surgeries = simulate_surgeries(videos, seed, minutes=minutes, recognizer=Recognizer(noise=noise))
    files = write_simulation(out, surgeries, force=common.force)
    hours = sum(map(len, surgeries)) / 3600
    if common.json:
        print(json_.dumps({"videos": videos, "hours": round(hours, 2), "files": [str(f) for f in files]}, indent=1))
        return
    print(f"{videos} surgeries, {hours:.1f} hours: {len(files)} files written to {out}")
    kinds = " ".join(f"--annotations {out / f'{kind}_annotations'}" for kind in ("phase", "tool"))
    print(f"Stabilize them: hmmjax stabilize {files[-1]} {kinds} --out {out / 'results'}")

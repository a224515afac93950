"""`hmmjax simulate`: surgeries that never were, as files."""

import json as json_
from pathlib import Path
from typing import Annotated

import typer

from hmmjax.cli import console
from hmmjax.cli import options as o
from hmmjax.data.simulated import write_simulation
from hmmjax.simulate import MEAN_MINUTES, Recognizer, simulate_surgeries


@console.friendly
def simulate(
    out: Annotated[Path, typer.Option("--out", help="Folder for annotations and predictions.")],
    videos: Annotated[int, typer.Option(min=1, help="How many surgeries.")] = 10,
    minutes: Annotated[float, typer.Option(min=0.1, help="Their mean length; Cholec80's by default.")] = MEAN_MINUTES,
    seed: Annotated[int, typer.Option(min=0, help="Of all randomness.")] = 0,
    noise: Annotated[float, typer.Option(min=0, help="How badly the recognizer sees: 0 not at all, 1 usual.")] = 1.0,
    force: o.Force = False,
    json: o.Json = False,
    traceback: o.Traceback = False,
) -> None:
    """Simulate surgeries with Cholec80's statistics and a recognizer that errs as real ones do.

    Writes annotations laid out like Cholec80's (phase_annotations/, tool_annotations/) and the recognizer's
    predictions.npz, to try the other commands on. Pictures are simulated by models.data.simsurg.
    """
    surgeries = simulate_surgeries(videos, seed, minutes=minutes, recognizer=Recognizer(noise=noise))
    files = write_simulation(out, surgeries, force=force)
    hours = sum(map(len, surgeries)) / 3600
    if json:
        print(json_.dumps({"videos": videos, "hours": round(hours, 2), "files": [str(f) for f in files]}, indent=1))
        return
    print(f"{videos} surgeries, {hours:.1f} hours: {len(files)} files written to {out}")
    kinds = " ".join(f"--annotations {out / f'{kind}_annotations'}" for kind in ("phase", "tool"))
    print(f"Stabilize them: hmmjax stabilize {files[-1]} {kinds} --out {out / 'results'}")

"""Write simulated surgeries as files: annotations in the layout of Cholec80, and predictions."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax.io import claim, save_npz
from hmmjax.simulate import PHASES, TOOLS, Surgery

FPS = 25


def write_simulation(
    directory: str | os.PathLike[str], surgeries: Sequence[Surgery], *, force: bool = False
) -> list[Path]:
    """Write surgeries as annotation files and one predictions file.

    Args:
        directory: the output folder, in which phase_annotations/, tool_annotations/ and predictions.npz are created.
        surgeries: from `hmmjax.simulate.simulate_surgeries`; the first becomes video01.
        force: accept a folder that is not empty, and overwrite an earlier simulation.

    Returns:
        The files written, predictions last.

    Raises:
        FileExistsError: if the folder is not empty and `force` is False, or another process is writing to it.
    """
    with claim(directory, force=force) as overwrite:
        return _write(Path(directory), surgeries, overwrite)


def _write(root: Path, surgeries: Sequence[Surgery], overwrite: bool) -> list[Path]:
    files: list[Path] = []
    for kind in ("phase", "tool"):
        folder = root / f"{kind}_annotations"
        for file in sorted(folder.glob(f"video*-{kind}.txt")):
            file.unlink()  # of an earlier, perhaps longer, simulation
        folder.mkdir(parents=True, exist_ok=True)
    predictions: dict[str, Any] = {
        "fps": np.float64(FPS),
        "phase_names": np.array(PHASES),
        "tool_names": np.array(TOOLS),
    }
    for n, surgery in enumerate(surgeries, 1):
        files += write_annotations(root, f"video{n:02d}", surgery)
        predictions[f"phases_{n:02d}"] = surgery.phase_probabilities
        predictions[f"tools_{n:02d}"] = surgery.tool_probabilities
        predictions[f"frames_{n:02d}"] = FPS * np.arange(len(surgery), dtype=np.int64)
    save_npz(root / "predictions.npz", predictions, force=overwrite)
    return [*files, root / "predictions.npz"]


def write_annotations(root: Path, name: str, surgery: Surgery, newline: str = "\n") -> list[Path]:
    """Write the phase file (every frame at 25 fps) and tool file (every 25th) of a video; return their paths."""
    files = [root / f"{kind}_annotations" / f"{name}-{kind}.txt" for kind in ("phase", "tool")]
    phases = np.append(np.repeat(surgery.phases, FPS), surgery.phases[-1:])
    lines = ["Frame\tPhase", *(f"{frame}\t{PHASES[phase]}" for frame, phase in enumerate(phases))]
    write_lines(files[0], lines, newline)
    lines = ["\t".join(("Frame", *TOOLS))]
    lines += ["\t".join(map(str, (FPS * second, *row))) for second, row in enumerate(surgery.tools.tolist())]
    write_lines(files[1], lines, newline)
    return files


def write_lines(path: Path, lines: Sequence[str], newline: str = "\n") -> None:
    """Write lines of ASCII text."""
    path.write_text("".join(line + newline for line in lines), encoding="ascii", newline="")

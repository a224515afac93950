"""What a system's labels cost: labels, frames that were inspected for them, and boxes."""

import json
from collections.abc import Sequence

import numpy as np

from models.data.frames import FrameTable
from models.data.scenarios import Scenario
from models.experiment.plan import Cell
from models.settings import Config
from models.systems import SYSTEMS


def cost(scenario: Scenario, tracks: Sequence[str]) -> dict[str, int]:
    """Count the "labels" that a system's tracks needed, and the "frames" that were inspected for them."""
    counts, frames = scenario.cost, 0
    for a in scenario.annotations:
        known = {"phases": a.phases >= 0, "tools": (a.tools >= 0).any(1)}
        frames += int(np.any([known[track] for track in tracks], axis=0).sum())
    return {"labels": sum(counts[track] for track in tracks), "frames": frames}


def boxes_seen(cell: Cell, config: Config, table: FrameTable) -> dict[str, int]:
    """Count the "boxes" that a detector, or the frozen detector of a cell, learned from; empty for other systems."""
    if SYSTEMS[config.system].boxes and table.box_tools is not None:
        return {"boxes": int((table.box_tools[table.parts == "train"] >= 0).sum())}
    if cell.on is None:
        return {}
    about = json.loads((cell.folder.parent / cell.on / "predicted.json").read_text(encoding="utf-8"))
    return {name: count for name, count in about["cost"].items() if name == "boxes"}

"""Recognition systems: a backbone, optionally a temporal model, and heads; and Faster R-CNN.

ToolNet, PhaseNet, EndoNet, SwinNet and FCN, alone, with a recurrent memory (_l) or with attention (_a), differ in their
parts and not in code: `SYSTEMS` lists the parts. All of them, and Faster R-CNN, implement `System`.
"""

from models.systems.base import Criterion, Logits, Outputs, System, Terms, probabilities
from models.systems.build import build_system, make_system
from models.systems.network import ComposedSystem
from models.systems.specs import SYSTEMS, HeadSpec, SystemSpec
from models.systems.staged import StagedSystem

__all__ = [
    "SYSTEMS",
    "ComposedSystem",
    "Criterion",
    "HeadSpec",
    "Logits",
    "Outputs",
    "StagedSystem",
    "System",
    "SystemSpec",
    "Terms",
    "build_system",
    "make_system",
    "probabilities",
]

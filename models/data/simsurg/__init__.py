"""SimSurg: simulated surgeries with pictures.

`hmmjax.simulate` draws the hidden phases and tools, `make_scene` sets instruments and tissue in motion, `Renderer`
draws any second at any size, `simulated_frames` is a source to train from, and `write_cholec80` writes a folder in
Cholec80's own layout.
"""

from hmmjax.data.simulated import write_annotations
from models.data.simsurg.cholec80 import video_scene, write_cholec80
from models.data.simsurg.render import Renderer
from models.data.simsurg.scene import Scene, boxes, make_scene
from models.data.simsurg.source import SimulatedFrames, simulated_frames

__all__ = [
    "Renderer",
    "Scene",
    "SimulatedFrames",
    "boxes",
    "make_scene",
    "simulated_frames",
    "video_scene",
    "write_annotations",
    "write_cholec80",
]

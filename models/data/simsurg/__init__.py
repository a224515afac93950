"""SimSurg: simulated surgical videos.

`hmmjax.simulate` samples the hidden phases and tools, `make_scene` moves instruments and tissue, `Renderer` renders any
time at any size, `simulated_frames` is a source of frames for training, and `write_cholec80` writes videos and
annotations in Cholec80's layout.
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

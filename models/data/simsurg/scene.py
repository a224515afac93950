"""The scene of a simulated surgery, once per second: instruments, camera, smoke and blood.

Positions are fractions of the image's height, with x to the right and y downwards, so a scene is the same at every
resolution; `Scene.aspect` is the image's width in these units.
"""

import dataclasses

import numpy as np

from hmmjax.simulate import PHASES, TOOLS, Surgery
from models.data.simsurg.tools import LOOKS

#: Where each instrument enters, outside the image, as fractions of width and height. Instruments of the right hand
#: share a port, as in reality, so they are hard to distinguish if only the shaft is visible.
PORTS = np.array([[-0.1, 0.7], [1.1, 0.75], [1.1, 0.7], [1.12, 0.65], [1.1, 0.8], [1.05, 0.9], [0.45, 1.15]])

#: Amount of smoke (from coagulation) and of blood by phase.
PHASE_SMOKE = np.array([0.0, 0.25, 0.05, 0.35, 0.0, 0.25, 0.0])
PHASE_BLOOD = np.array([0.0, 0.1, 0.15, 0.3, 0.3, 0.55, 0.2])


@dataclasses.dataclass(frozen=True)
class Scene:
    """The moving parts of one video, with one row per second.

    Attributes:
        surgery: the simulated phases and tools, and the name of the video.
        seed: of the textures and colors.
        aspect: width divided by height.
        ports: (K, 2) x and y where each instrument enters.
        tips: (T, K, 2) x and y of each instrument's tip; meaningless while it is absent.
        opening: (T, K) opening of the jaws, 0 to 1.
        hidden: (T, K) bool, whether the tip is behind tissue and only the shaft is visible.
        camera: (T, 2) displacement of the tissue.
        phase_mix: (T, L) weight of each phase's appearance, which follows the phase within seconds.
        smoke: (T,) amount of smoke, 0 to 1.
        blood: (T,) amount of blood, 0 to 1.
        blur: (T,) radius of the blur as a fraction of the height.
    """

    surgery: Surgery
    seed: int
    aspect: float
    ports: np.ndarray
    tips: np.ndarray
    opening: np.ndarray
    hidden: np.ndarray
    camera: np.ndarray
    phase_mix: np.ndarray
    smoke: np.ndarray
    blood: np.ndarray
    blur: np.ndarray

    def __len__(self) -> int:
        return len(self.surgery)


def make_scene(surgery: Surgery, seed: int = 0, aspect: float = 1.0) -> Scene:
    """Build the scene of a surgery of at least one second; the same seed gives the same scene."""
    rng = np.random.default_rng([seed, 7])
    phases, tools = surgery.content
    length, num_tools = tools.shape
    ports = (PORTS + rng.normal(0, 0.05, PORTS.shape)) * [aspect, 1.0]
    goal = np.array([0.5 * aspect, 0.5]) + _wander(rng, (length, num_tools, 2), 5) * [0.14 * aspect, 0.14]
    goal = np.clip(goal, 0.12, [aspect - 0.12, 0.88])
    inserted = _follow(tools.astype(float), 1.2)[..., None] * 0.6 + 0.4
    one_phase = np.eye(len(PHASES))[phases]
    smoke = _follow(PHASE_SMOKE[phases] * (0.3 + tools[:, TOOLS.index("Hook")]), 8)
    hazy = np.zeros(length) if surgery.obscured is None else surgery.obscured
    return Scene(
        surgery=surgery,
        seed=seed,
        aspect=aspect,
        ports=ports,
        tips=ports + inserted * (goal - ports),
        opening=np.clip(0.5 + 0.5 * _wander(rng, (length, num_tools), 2), 0, 1),
        hidden=_wander(rng, (length, num_tools), 5) > 1.4,
        camera=0.3 * _wander(rng, (length, 2), 25) + 0.02 * np.sin(np.arange(length) * 1.6)[:, None],
        phase_mix=_follow(one_phase, 6),
        smoke=np.clip(np.maximum(smoke * (1 + 1.2 * _wander(rng, (length,), 6)), 0.9 * hazy), 0, 0.85),
        blood=np.clip(_follow(PHASE_BLOOD[phases], 30) * (1 + _wander(rng, (length,), 40)), 0, 1),
        blur=np.clip(np.maximum(0.03 * (_wander(rng, (length,), 4) - 1.3), 0.05 * (hazy - 0.5)), 0, 0.04),
    )


def boxes(scene: Scene, second: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the boxes of the instruments at one second.

    Args:
        scene: of the surgery.
        second: from 0 to T - 1.

    Returns:
        tools: (N,) int, indices into `TOOLS`, ascending; N is 0 without instruments.
        boxes: (N, 4) float, xmin, ymin, xmax, ymax as fractions of width and height, clipped to the image. A box
        contains the tip and the part of the shaft next to it.
    """
    present = np.flatnonzero(scene.surgery.content[1][second])
    found = np.zeros((len(present), 4))
    for row, tool in enumerate(present):
        tip, port, look = scene.tips[second, tool], scene.ports[tool], LOOKS[tool]
        axis = (port - tip) / np.linalg.norm(port - tip)
        ends = np.stack([tip - axis * look.beyond, tip + axis * (look.tip_length + 0.08)])
        corners = np.concatenate([ends.min(0) - look.half_height, ends.max(0) + look.half_height])
        found[row] = np.clip(corners / [scene.aspect, 1, scene.aspect, 1], 0, 1)
    return present, found


def _wander(rng: np.random.Generator, shape: tuple[int, ...], seconds: float) -> np.ndarray:
    """Sample a stationary AR(1) process of unit variance with time constant `seconds`, along the first axis."""
    decay = np.exp(-1 / seconds)
    steps = rng.standard_normal(shape)
    steps[1:] *= np.sqrt(1 - decay**2)
    for t in range(1, len(steps)):
        steps[t] += decay * steps[t - 1]
    return steps


def _follow(track: np.ndarray, seconds: float) -> np.ndarray:
    """Smooth `track` by an exponential lag of `seconds`, along the first axis."""
    gain = 1 - np.exp(-1 / seconds)
    out = track.astype(float)
    for t in range(1, len(out)):
        out[t] = out[t - 1] + gain * (out[t] - out[t - 1])
    return out

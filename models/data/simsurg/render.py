"""Rendering of scenes: tissue, organ, instruments, light, smoke, blood and blur."""

import dataclasses
from functools import cached_property

import numpy as np

from models.data.simsurg.scene import Scene
from models.data.simsurg.tools import LOOKS, edge

#: RGB of the dark and light parts of the tissue, by phase; consecutive phases look similar.
DARK = np.array(
    [
        [0.34, 0.16, 0.10],
        [0.40, 0.20, 0.10],
        [0.42, 0.20, 0.12],
        [0.36, 0.11, 0.09],
        [0.28, 0.11, 0.09],
        [0.33, 0.07, 0.07],
        [0.38, 0.20, 0.16],
    ],
    np.float32,
)
LIGHT = np.array(
    [
        [0.78, 0.60, 0.36],
        [0.82, 0.60, 0.34],
        [0.84, 0.64, 0.44],
        [0.74, 0.42, 0.32],
        [0.62, 0.38, 0.32],
        [0.70, 0.30, 0.28],
        [0.84, 0.58, 0.52],
    ],
    np.float32,
)
#: Radius of the gallbladder by phase, in image heights: it shrinks during dissection and is gone at the end.
ORGAN_RADIUS = np.array([0.40, 0.34, 0.31, 0.24, 0.10, 0.06, 0.0])
ORGAN = np.array([0.50, 0.56, 0.34], np.float32)
BLOOD = np.array([0.35, 0.01, 0.02], np.float32)
SMOKE = np.array([0.75, 0.75, 0.76], np.float32)


@dataclasses.dataclass(frozen=True)
class Renderer:
    """Renderer of a scene at one size.

    Attributes:
        scene: to render.
        height: of the images in pixels.
        width: of the images in pixels; must match the scene's aspect.
    """

    scene: Scene
    height: int
    width: int

    def __post_init__(self) -> None:
        if self.height < 8 or self.width < 8:
            raise ValueError(f"images of {self.width}x{self.height} pixels are too small: give at least 8x8.")
        if abs(self.width / self.height - self.scene.aspect) > 0.51 / self.height:
            raise ValueError(
                f"the aspect of the scene is {self.scene.aspect:.3f}, which does not match {self.width}x{self.height} "
                f"pixels: make the scene with aspect={self.width}/{self.height}."
            )

    def _rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.scene.seed, 11, stream])

    @cached_property
    def _grid(self) -> tuple[np.ndarray, np.ndarray]:
        """The pixel centers y (height, 1) and x (1, width), in image heights."""
        ys = (np.arange(self.height, dtype=np.float32) + 0.5) / self.height
        xs = (np.arange(self.width, dtype=np.float32) + 0.5) / self.height
        return ys[:, None], xs[None]

    @cached_property
    def _lamp(self) -> np.ndarray:
        """The brightness (height, width, 1), which decreases toward the edges."""
        ys, xs = self._grid
        falloff = (xs - self.scene.aspect / 2) ** 2 / self.scene.aspect + (ys - 0.5) ** 2
        return (1.08 - 1.1 * falloff)[..., None].astype(np.float32)

    @cached_property
    def _textures(self) -> np.ndarray:
        return tissue_texture(self._rng(0), self.height)

    @cached_property
    def _tints(self) -> tuple[np.ndarray, np.ndarray]:
        """The dark and light tissue colors (L, 3), with a random tint per patient and white balance."""
        tint = self._rng(1).normal(1, 0.08, 3).astype(np.float32)
        return DARK * tint, LIGHT * tint

    @cached_property
    def _organ_at(self) -> np.ndarray:
        return np.array([0.5 * self.scene.aspect, 0.42]) + self._rng(2).normal(0, 0.06, 2)

    def frame(self, second: float) -> np.ndarray:
        """Render the image (height, width, 3) uint8 RGB at any time in seconds from 0 to the end of the scene."""
        scene, now = self.scene, min(int(second), len(self.scene) - 1)
        after = min(now + 1, len(scene) - 1)
        part = float(second) - now

        def between(track: np.ndarray) -> np.ndarray:
            return track[now] if part == 0 else (1 - part) * track[now] + part * track[after]

        picture = self._tissue(between(scene.camera), between(scene.phase_mix), float(between(scene.blood)))
        shown = scene.surgery.content[1]
        for tool in np.flatnonzero(shown[now]):
            stays = shown[after, tool] if part else 1
            tip = between(scene.tips)[tool] if stays else scene.tips[now, tool]
            self._draw_tool(picture, int(tool), tip, float(between(scene.opening)[tool]), bool(scene.hidden[now, tool]))
        picture *= self._lamp
        smoke = float(between(scene.smoke))
        if smoke > 0.02:
            haze = self._sample(self._textures[2], -between(scene.camera) + second * 0.05)
            picture += (smoke * haze)[..., None] * (SMOKE - picture)
        blur = round(float(between(scene.blur)) * self.height)
        if blur:
            picture = _box_blur(_box_blur(picture, blur, 0), blur, 1)
        picture *= 255
        return np.clip(picture, 0, 255, out=picture).astype(np.uint8)

    def _sample(self, texture: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """Return the visible part of a periodic texture after a shift in image heights."""
        size = len(texture)
        x0, y0 = (round(float(s) * self.height) % size for s in np.broadcast_to(shift, 2))
        rows = (np.arange(self.height) + y0) % size
        columns = (np.arange(self.width) + x0) % size
        return texture[rows].take(columns, axis=1)

    def _tissue(self, camera: np.ndarray, mix: np.ndarray, blood: float) -> np.ndarray:
        mix = mix.astype(np.float32)
        grain = self._sample(self._textures[0], camera)
        dark, light = (mix @ tint for tint in self._tints)
        picture = grain[..., None] * (light - dark)
        picture += dark
        radius = float(mix @ ORGAN_RADIUS)
        ys, xs = self._grid
        if radius > 0.05:
            x, y = self._organ_at - 0.4 * camera
            inside = 1 - ((xs - np.float32(x)) ** 2 * np.float32(0.7) + (ys - np.float32(y)) ** 2) / radius**2
            organ = np.clip(inside * 4, 0, 0.75)
            gloss = np.clip(inside, 0, 1) * np.float32(0.5) + np.float32(0.4) + grain * np.float32(0.45)
            picture += organ[..., None] * (gloss[..., None] * ORGAN - picture)
        if blood > 0.05:
            pool = np.clip((self._sample(self._textures[2], camera) - (1 - blood)) * 4, 0, 0.8)
            picture += pool[..., None] * (BLOOD - picture)
        # Glints on wet tissue do not move with it.
        glint = np.clip((self._sample(self._textures[1], 0.6 * camera) - 0.955) * 24, 0, 0.9)
        picture += glint[..., None] * (1 - picture)
        return picture

    def _draw_tool(self, picture: np.ndarray, tool: int, tip: np.ndarray, opening: float, hidden: bool) -> None:
        """Draw one instrument on `picture`, inside the rectangle that can contain it."""
        look, port = LOOKS[tool], self.scene.ports[tool]
        reach = max(look.half_height, look.beyond) + 1.5 / self.height
        low, high = np.minimum(tip, port) - reach, np.maximum(tip, port) + reach
        left, top = np.clip((low * self.height).astype(int), 0, [self.width, self.height])
        right, bottom = np.clip((high * self.height).astype(int) + 1, 0, [self.width, self.height])
        if left >= right or top >= bottom:
            return
        ys, xs = self._grid[0][top:bottom], self._grid[1][:, left:right]
        axis = ((port - tip) / np.linalg.norm(port - tip)).astype(np.float32)
        dx, dy = xs - np.float32(tip[0]), ys - np.float32(tip[1])
        u, v = dx * axis[0] + dy * axis[1], dy * axis[0] - dx * axis[1]
        region = picture[top:bottom, left:right]
        shade = 1.15 - 0.5 * np.minimum(np.abs(v) / look.shaft_width - 0.2, 1.2) ** 2
        shaft = edge(look.shaft_width - np.abs(v), self.height) * edge(u - look.tip_length, self.height)
        region += shaft[..., None] * (shade[..., None] * np.array(look.shaft, np.float32) - region)
        if not hidden:
            opacity = look.opacity * look.shape(u, v, opening, look, self.height)
            region += opacity[..., None] * (np.array(look.tip, np.float32) - region)


def _box_blur(picture: np.ndarray, radius: int, axis: int) -> np.ndarray:
    """Compute the mean over 2 * radius + 1 pixels along an axis, with repeated edges."""
    padding = [(0, 0)] * 3
    padding[axis] = (radius + 1, radius)
    total = np.pad(picture, padding, mode="edge").cumsum(axis, dtype=np.float32)
    length, window = picture.shape[axis], 2 * radius + 1
    upper, lower = [slice(None)] * 3, [slice(None)] * 3
    upper[axis], lower[axis] = slice(window, window + length), slice(0, length)
    return (total[tuple(upper)] - total[tuple(lower)]) / np.float32(window)


def tissue_texture(rng: np.random.Generator, height: int) -> np.ndarray:
    """Return three periodic textures for images of `height` pixels.

    Returns:
        (3, 2 * height, 2 * height) float32 from 0 to 1: tissue (lobes and fine grain), glints (small and sharp) and
        clouds (large and soft). Details have the same size in image heights at every resolution.
    """
    size = 2 * height
    tissue = cloud(rng, size, (4, 7, 13, 25, 49), (1.0, 0.8, 0.6, 0.4, 0.25))
    glints = cloud(rng, size, (10, 40, 80), (0.9, 1.0, 0.5))
    clouds = cloud(rng, size, (2, 4, 8), (1.0, 0.6, 0.3))
    return np.stack([tissue, glints, clouds])


def cloud(rng: np.random.Generator, size: int, frequencies: tuple[int, ...], weights: tuple[float, ...]) -> np.ndarray:
    """Return uniform periodic noise (size, size) float32: a weighted sum of random grids, interpolated."""
    total = np.zeros((size, size))
    for frequency, weight in zip(frequencies, weights, strict=True):
        grid = rng.standard_normal((frequency, frequency))
        total += weight * _stretch(_stretch(grid, size).T, size).T
    # Ranks instead of values: a threshold then covers a known fraction of the image.
    order = np.argsort(total, axis=None, kind="stable")
    ranks = np.empty(size * size, np.float32)
    ranks[order] = np.linspace(0, 1, size * size, dtype=np.float32)
    return ranks.reshape(size, size)


def _stretch(grid: np.ndarray, size: int) -> np.ndarray:
    """Interpolate the first axis to `size` rows, smoothly and periodically."""
    at = np.arange(size) * len(grid) / size
    low = at.astype(int)
    part = at - low
    part = (part * part * (3 - 2 * part))[:, None]
    return (1 - part) * grid[low] + part * grid[(low + 1) % len(grid)]

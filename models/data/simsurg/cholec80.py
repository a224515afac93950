"""Simulated surgeries on disk, in Cholec80's layout."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax.data.simulated import FPS, write_annotations, write_lines
from hmmjax.simulate import TOOLS, Surgery, simulate_surgeries
from models.data.simsurg.render import Renderer
from models.data.simsurg.scene import Scene, boxes, make_scene
from models.data.video import write_video


def write_cholec80(
    directory: str | os.PathLike[str],
    num_videos: int = 4,
    seed: int = 0,
    *,
    minutes: float = 2.0,
    size: tuple[int, int] = (64, 64),
    first: int = 1,
    border: int = 0,
    moving_fps: int = 1,
    workers: int = 1,
    force: bool = False,
    progress: bool = False,
) -> tuple[Surgery, ...]:
    """Write simulated surgeries in Cholec80's layout: videos at 25 fps, and phase, tool and box annotations.

    As in Cholec80, phase files have one row per frame and tool files one per 25 frames, and a video ends one frame
    after the second of its last tool row.

    Args:
        directory: gets videos/, phase_annotations/, tool_annotations/ and box_annotations/.
        num_videos: number of videos.
        seed: of the surgeries and the images.
        minutes: expected length; single videos are a third to three times as long. A phase lasts at least five seconds,
            so videos are longer than this if it is below a minute.
        size: (height, width) of the images, both even.
        first: number of the first video.
        border: width in pixels of the black border on each side, inside `size`.
        moving_fps: number of different images per second: 1, 5 or 25; fewer are faster to render.
        workers: number of processes that render and encode; the files do not depend on it. With more than one, a script
            must call this under ``if __name__ == "__main__":``, because each process imports the script.
        force: overwrite videos with these numbers; others are kept.
        progress: show a progress bar.

    Returns:
        The simulated surgeries, in order.

    Raises:
        FileExistsError: if a file to be written exists and `force` is False; nothing is written then.
        ValueError: if `border` leaves no image, or `moving_fps` is not 1, 5 or 25.
    """
    if moving_fps not in (1, 5, 25):
        raise ValueError(f"moving_fps is {moving_fps}: give 1, 5 or 25, which divide the video's 25 frames per second.")
    if border < 0 or 2 * border >= min(size):
        raise ValueError(
            f"a border of {border} pixels leaves nothing of {size[1]}x{size[0]}: give 0 to {(min(size) - 1) // 2}."
        )
    root = Path(directory)
    names = [f"video{number:02d}" for number in range(first, first + num_videos)]
    there = next((path for name in names for path in _files(root, name).values() if path.exists()), None)
    if there is not None and not force:
        raise FileExistsError(
            f"{there} exists already. Fix: choose another folder or first={first + num_videos}, or overwrite with force"
        )
    surgeries = simulate_surgeries(num_videos, seed, minutes=minutes)
    for kind in ("videos", "phase_annotations", "tool_annotations", "box_annotations"):
        (root / kind).mkdir(parents=True, exist_ok=True)
    videos = [
        partial(_write_video, root, surgery, number, seed, size, border, moving_fps)
        for number, surgery in enumerate(surgeries, first)
    ]
    # Spawn, because a fork copies locks held by threads of the caller.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) if workers > 1 else None
    with pool or nullcontext():
        done = pool.map(_call, videos) if pool else map(_call, videos)
        for _ in _track(done, len(videos), progress):
            pass
    return surgeries


def _files(root: Path, name: str) -> dict[str, Path]:
    """Return the files of one video."""
    return {
        "video": root / "videos" / f"{name}.mp4",
        "times": root / "videos" / f"{name}-timestamp.txt",
        "phases": root / "phase_annotations" / f"{name}-phase.txt",
        "tools": root / "tool_annotations" / f"{name}-tool.txt",
        "boxes": root / "box_annotations" / f"{name}-boxes.txt",
    }


def _call(job: Callable[[], None]) -> None:
    job()


def video_scene(surgery: Surgery, number: int, seed: int, size: tuple[int, int]) -> Scene:
    """Return the scene that `write_cholec80` renders for a video at a size (height, width) without border."""
    return make_scene(surgery, seed * 1000 + number, aspect=size[1] / size[0])


def _write_video(
    root: Path, surgery: Surgery, number: int, seed: int, size: tuple[int, int], border: int, moving_fps: int
) -> None:
    name = f"video{number:02d}"
    height, width = size[0] - 2 * border, size[1] - 2 * border
    scene = video_scene(surgery, number, seed, (height, width))
    pictures = _pictures(Renderer(scene, height, width), border, moving_fps)
    files = _files(root, name)
    count = write_video(files["video"], pictures, fps=FPS)
    write_annotations(root, name, surgery)
    _write_boxes(files["boxes"], scene)
    _write_times(files["times"], count)


def _write_boxes(path: Path, scene: Scene) -> None:
    lines = ["Frame\tTool\txmin\tymin\txmax\tymax"]
    for second in range(len(scene)):
        for tool, box in zip(*boxes(scene, second), strict=True):
            lines.append("\t".join((str(FPS * second), TOOLS[tool], *(f"{edge:.4f}" for edge in box))))
    write_lines(path, lines)


def _write_times(path: Path, count: int) -> None:
    lines = ["Frame\tTimeStamp"]
    for frame in range(0, count, FPS):
        minutes, seconds = divmod(frame // FPS, 60)
        lines.append(f"{frame}\t{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}.00")
    write_lines(path, lines)


def _pictures(renderer: Renderer, border: int, moving_fps: int) -> Iterator[np.ndarray]:
    pad = [(border, border), (border, border), (0, 0)]
    for step in range(len(renderer.scene) * moving_fps):
        picture = np.pad(renderer.frame(step / moving_fps), pad)
        yield from repeat(picture, FPS // moving_fps)
    yield picture


def _track(items: Iterable[Any], total: int, progress: bool) -> Iterable[Any]:
    if not progress:
        return items
    from rich.progress import track

    return track(items, "rendering", total=total)

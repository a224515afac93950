"""Time the extraction of one picture per second from a 40-minute video: ``python benchmarks/extract.py``.

The video is 854x480 at 25 frames per second: 20 seconds of simulated surgery, every frame different and with camera
noise, encoded as H.264 and repeated without re-encoding. Pictures are written as JPEG. For comparison, the plain
method decodes every frame, keeps each 25th and writes none. Results go to ``benchmarks/results/extract.json``.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import av
import numpy as np

from hmmjax.simulate import simulate_surgeries
from models.data.simsurg import Renderer, make_scene
from models.data.video import write_video
from models.data.video_extract import extract

FPS, SECONDS, HEIGHT, WIDTH = 25, 20, 480, 854
REPEATS = 120  # 40 minutes
NOISE = 2.5  # standard deviation in gray levels


def main() -> None:
    """Make the video, time, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "extract.json")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        clip, video = Path(folder) / "clip.mp4", Path(folder) / "video01.mp4"
        write_video(clip, pictures(), fps=FPS, quality=20)
        repeat(clip, video)
        length = SECONDS * REPEATS

        results: dict[str, Any] = {
            "command": "python benchmarks/extract.py",
            "device": f"CPU, {cores} cores ({platform.machine()})",
            "versions": {
                "python": platform.python_version(),
                **{name: version(name) for name in ("av", "numpy", "pillow")},
            },
            "video": {
                "minutes": length / 60,
                "frames": length * FPS,
                "size": f"{WIDTH}x{HEIGHT}",
                "codec": "H.264, x264's preset veryfast, a key frame every 250",
                "megabits per second": round(video.stat().st_size * 8e-6 / length, 2),
            },
            "extracted, written as JPEG": timed(lambda: extract(video, Path(folder) / "out", progress=True), length),
            "every frame decoded, none written": timed(lambda: decode_all(video), length),
        }
    text = json.dumps(results, indent=1) + "\n"
    options.out.write_text(text)
    print(text)


def pictures() -> Iterator[np.ndarray]:
    """Yield every frame of the first seconds of a surgery, (480, 854, 3) uint8."""
    surgery = simulate_surgeries(1, seed=3, minutes=10)[0]
    renderer = Renderer(make_scene(surgery, 1, WIDTH / HEIGHT), HEIGHT, WIDTH)
    rng = np.random.default_rng(0)
    noise = rng.normal(0, NOISE, (9, HEIGHT, WIDTH, 1))
    for n in range(SECONDS * FPS):
        yield np.clip(renderer.frame(30 + n / FPS) + noise[n % 9], 0, 255).astype(np.uint8)


def repeat(clip: Path, video: Path) -> None:
    """Repeat the packets of a clip into a longer video."""
    with av.open(str(video), "w", options={"movflags": "+faststart"}) as long:
        stream: Any = None
        for n in range(REPEATS):
            with av.open(str(clip)) as short:
                source = short.streams.video[0]
                stream = stream or long.add_stream_from_template(source)
                shift = round(n * SECONDS / source.time_base)
                for packet in short.demux(source):
                    if packet.dts is not None:
                        packet.pts, packet.dts, packet.stream = packet.pts + shift, packet.dts + shift, stream
                        long.mux(packet)


def decode_all(video: Path) -> int:
    """Decode every frame, convert each 25th, write none."""
    kept = 0
    with av.open(str(video)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        for n, frame in enumerate(container.decode(stream)):
            if n % FPS == 0:
                frame.to_ndarray(format="rgb24")
                kept += 1
    return kept


def timed(job: Callable[[], int], length: int) -> dict[str, float]:
    """Return wall-clock and CPU seconds, and the speed relative to playback."""
    wall, used = time.perf_counter(), time.process_time()
    count = job()
    wall, used = time.perf_counter() - wall, time.process_time() - used
    assert count == length, f"{count} pictures were extracted from {length} seconds"
    return {"seconds": round(wall, 1), "cpu seconds": round(used, 1), "times real time": round(length / wall, 1)}


if __name__ == "__main__":
    main()

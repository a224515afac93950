"""Extract features of videos with an encoder of transformers: one file per video, for ``models.train features=FOLDER``.

    python transformers_features.py facebook/dinov2-base cholec80/videos/*.mp4 --out features/

It needs torch, transformers, av and safetensors, and nothing of this project, so that it runs in an environment of its
own. Each video's file holds `features` (n, D) in half precision, `frames` (n,), the numbers of the frames in the video,
and `fps`, what these numbers count per second. A file appears when it is complete, so that the same command continues
after an interruption.

In place of the name or folder of a checkpoint, a configuration with random weights is accepted to try things out:
``'{"model_type": "dinov2", "hidden_size": 48}'``.
"""

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import av
import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

# ImageNet's, for encoders that state no normalization of their own.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def load(encoder: str) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """Return an encoder, and the mean and the standard deviation (3, 1, 1) of the images that it expects."""
    mean, std = MEAN, STD
    if encoder.startswith("{"):
        torch.manual_seed(0)
        net = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**json.loads(encoder)))
    else:
        net = transformers.AutoModel.from_pretrained(encoder)
        processor = transformers.AutoImageProcessor.from_pretrained(encoder)
        mean, std = processor.image_mean, processor.image_std
    return net.eval(), *(torch.tensor(x).reshape(3, 1, 1) for x in (mean, std))


def sampled(container: av.container.InputContainer, step: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number and the image (H, W, 3) of every `step`-th frame of a video."""
    stream = container.streams.video[0]
    for frame in container.decode(stream):
        # Of the time stamp: a decoder that drops a frame would shift a count.
        number = round(float((frame.pts - (stream.start_time or 0)) * stream.time_base * stream.average_rate))
        if number % step == 0:
            yield number, frame.to_ndarray(format="rgb24")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("encoder", help="name or folder of a checkpoint, or a configuration in JSON")
    parser.add_argument("videos", nargs="+")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="gets one file per video")
    parser.add_argument("--size", type=int, nargs=2, default=(224, 224), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--rate", type=float, default=1.0, help="frames per second (1)")
    parser.add_argument("--batch", type=int, default=64, help="frames per call of the network (64)")
    options = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net, mean, std = load(options.encoder)
    net, mean, std = net.to(device), mean.to(device), std.to(device)

    @torch.inference_mode()
    def encode(images: Sequence[np.ndarray]) -> np.ndarray:
        """Return the class tokens of a batch of images, or the means of the maps of a convolutional encoder."""
        pixels = torch.from_numpy(np.stack(images)).to(device).permute(0, 3, 1, 2) / 255
        # The whole image, as wide as it is: what happens at its border matters.
        pixels = torch.nn.functional.interpolate(pixels, tuple(options.size), mode="bilinear", antialias=True)
        hidden = net(pixel_values=(pixels - mean) / std).last_hidden_state
        found = hidden[:, 0] if hidden.ndim == 3 else hidden.mean((2, 3))
        return found.float().clamp(-65504, 65504).half().cpu().numpy()

    options.out.mkdir(parents=True, exist_ok=True)
    for path in options.videos:
        file = options.out / f"{Path(path).stem}.safetensors"
        if file.exists():
            print(f"{file}: exists", flush=True)
            continue
        rows, numbers, images = [], [], []
        with av.open(path) as container:
            fps = float(container.streams.video[0].average_rate)
            for number, image in sampled(container, round(fps / options.rate)):
                numbers.append(number)
                images.append(image)
                if len(images) == options.batch:
                    rows.append(encode(images))
                    images = []
        if images:
            rows.append(encode(images))
        arrays = {"features": np.concatenate(rows), "frames": np.array(numbers), "fps": np.array([fps])}
        unfinished = file.with_name(f".{file.name}")
        save_file(arrays, unfinished)
        os.replace(unfinished, file)
        print(f"{file}: {len(numbers)} frames, {arrays['features'].shape[1]} channels", flush=True)


if __name__ == "__main__":
    main()

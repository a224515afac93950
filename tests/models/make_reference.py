"""Write reference.npz: torchvision's outputs at sizes that no stride divides, with weights derived from their names.

Needs torch and torchvision (the committed file was made with 2.11 and 0.26); the tests need neither.
"""

import zlib
from pathlib import Path

import numpy as np

#: Heights and widths that no stride divides.
SIZES = {
    "alexnet": (100, 150),
    "vgg16": (50, 67),
    "resnet18": (97, 130),
    "resnet34": (63, 97),
    "resnet50": (65, 96),
    "swin_t": (117, 202),
    "swin_s": (100, 64),
    "swin_b": (64, 63),
}
CLASSES = 10


def weights_for(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the weights of a state dict's entry, in torch's layout."""
    rng = np.random.default_rng(zlib.crc32(name.encode()) + 1)
    if name.endswith("running_var") or (len(shape) == 1 and not name.endswith(("bias", "running_mean"))):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    spread = 0.1 if len(shape) == 1 or name.endswith("table") else np.prod(shape[1:]) ** -0.5
    return rng.standard_normal(shape, np.float32) * np.float32(spread)


def images_for(name: str) -> np.ndarray:
    """Return images (2, H, W, 3)."""
    return np.random.default_rng(len(name)).standard_normal((2, *SIZES[name], 3), np.float32)


def main() -> None:
    import torch
    import torchvision

    out = {}
    for name in SIZES:
        net = getattr(torchvision.models, name)(weights=None, num_classes=CLASSES)
        buffers = ("num_batches_tracked", "relative_position_index")
        shapes = {k: tuple(v.shape) for k, v in net.state_dict().items() if not k.endswith(buffers)}
        net.load_state_dict({k: torch.from_numpy(weights_for(k, s)) for k, s in shapes.items()}, strict=False)
        for module in net.modules():
            if isinstance(module, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
                module.p = 0.0
        images = torch.from_numpy(images_for(name)).permute(0, 3, 1, 2)
        with torch.no_grad():
            out[f"{name}/eval"] = net.eval()(images).numpy()
            out[f"{name}/train"] = net.train()(images).numpy()
        out[f"{name}/names"] = np.array([f"{k} {' '.join(map(str, s))}" for k, s in shapes.items()])
        print(name, len(shapes))
    np.savez_compressed(Path(__file__).with_name("reference.npz"), **out)


if __name__ == "__main__":
    main()

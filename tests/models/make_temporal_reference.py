"""Write temporal_reference.npz: outputs of published temporal models, with weights derived from their names.

Needs torch (the committed file was made with 2.14) and the repositories yabufarha/ms-tcn (commit 33ed91c),
tobiascz/TeCNO (0c4313f) and ChinaYi/ASFormer (e1bbe4f), none of which the tests need:

    python make_temporal_reference.py FOLDER_OF_MS_TCN FOLDER_OF_TECNO FOLDER_OF_ASFORMER
"""

import copy
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from make_reference import weights_for

#: Number of input features, channels, layers and classes.
INPUTS, WIDTH, LAYERS, CLASSES = 6, 8, 4, 3


def features_for(name: str) -> np.ndarray:
    """Return features (1, T, INPUTS), of a length that no dilation divides, and for ASFormer of several blocks."""
    length = 150 if name == "asformer" else 23
    return np.random.default_rng(len(name)).standard_normal((1, length, INPUTS), np.float32)


def state_for(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Return a state dict with weights derived from their names.

    ASFormer's softmax leaves masked frames 1e-6 of their weight, which models.temporal does not copy. Small queries
    make all weights alike, so that this stays below rounding.
    """
    return {key: weights_for(key, s) * np.float32(0.3 if "query_conv" in key else 1) for key, s in shapes.items()}


def classes_of(path: Path) -> SimpleNamespace:
    """Return what a model's file defines before its trainer, without its imports of other files."""
    import torch

    source = path.read_text(encoding="utf-8").split("class Trainer")[0].replace("from eval import", "# ")
    space = {"torch": torch, "copy": copy, "np": np, "math": math}
    exec(source, space)
    return SimpleNamespace(**space)


def main() -> None:
    import torch

    mstcn, tecno, asformer = (Path(folder) for folder in sys.argv[1:])
    hparams = {"mstcn_stages": 2, "mstcn_layers": LAYERS, "mstcn_f_maps": WIDTH, "mstcn_f_dim": INPUTS}
    hparams |= {"out_features": CLASSES, "mstcn_causal_conv": True}
    networks = {
        "bilstm": torch.nn.LSTM(INPUTS, WIDTH, bidirectional=True, batch_first=True),
        "mstcn": classes_of(mstcn / "model.py").MultiStageModel(4, LAYERS, WIDTH, INPUTS, CLASSES),
        "tecno": classes_of(tecno / "models" / "mstcn.py").MultiStageModel(SimpleNamespace(**hparams)),
        "asformer": classes_of(asformer / "model.py").MyTransformer(3, LAYERS, 2, 2, WIDTH, INPUTS, CLASSES, 0.3),
    }
    out = {}
    for name, network in networks.items():
        shapes = {key: tuple(value.shape) for key, value in network.state_dict().items()}
        network.load_state_dict({key: torch.from_numpy(value) for key, value in state_for(shapes).items()})
        network.eval()
        features = torch.from_numpy(features_for(name))
        with torch.no_grad():
            if name == "bilstm":
                out[f"{name}/outputs"] = network(features)[0].numpy()
            else:
                x = features.transpose(1, 2)
                answer = network(x) if name == "tecno" else network(x, torch.ones_like(x))
                # Stages, videos, frames, classes.
                out[f"{name}/outputs"] = answer.numpy().transpose(0, 1, 3, 2)
        out[f"{name}/names"] = np.array([f"{key} {' '.join(map(str, shape))}" for key, shape in shapes.items()])
        print(name, len(shapes), out[f"{name}/outputs"].shape, np.abs(out[f"{name}/outputs"]).max())
    np.savez_compressed(Path(__file__).with_name("temporal_reference.npz"), **out)


if __name__ == "__main__":
    main()

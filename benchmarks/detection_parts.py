"""Compare RoIAlign and suppression with torchvision's on random boxes: ``python benchmarks/detection_parts.py``.

Needs torch and torchvision. CI compares both with plain loops.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from models.detection.nms import suppress
from models.detection.roi_align import roi_align
from models.training.run import environment


def main() -> None:
    import torch
    import torchvision

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--out")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    worst, equal = 0.0, 0
    height, width = 380, 664
    for bins, samples in ((7, 2), (14, 2), (3, 1)):
        features = rng.normal(size=(24, 42, 16)).astype(np.float32)
        corner = rng.uniform(-0.2, 1.1, (200, 2))
        boxes = np.concatenate([corner, rng.uniform(corner, 1.3)], 1).astype(np.float32)
        ours = roi_align(features, boxes, bins, (height / 16, width / 16), samples=samples, exact=True)
        pixels = torch.tensor(boxes * np.float32([width, height, width, height]))
        maps = torch.tensor(features).permute(2, 0, 1)[None]
        theirs = torchvision.ops.roi_align(maps, [pixels], bins, 1 / 16, samples, aligned=True)
        worst = max(worst, float(np.abs(np.asarray(ours) - theirs.permute(0, 2, 3, 1).numpy()).max()))
    for number in range(50):
        corner = rng.uniform(0, 0.7, (300, 2))
        boxes = np.concatenate([corner, corner + rng.uniform(0.05, 0.3, (300, 2))], 1).astype(np.float32)
        scores, threshold = rng.permutation(300).astype(np.float32), (0.3, 0.5, 0.7)[number % 3]
        rows, kept = map(np.asarray, suppress(boxes, scores, threshold, 300))
        theirs = torchvision.ops.nms(torch.tensor(boxes), torch.tensor(scores), threshold)
        equal += rows[kept].tolist() == theirs.tolist()
    results = {
        "RoIAlign, largest difference over 3 x 200 boxes on maps of unit variance": worst,
        "suppression, equal of 50 runs of 300 boxes": equal,
        "torchvision": torchvision.__version__,
        "environment": environment(),
    }
    print(json.dumps(results, indent=1))
    if options.out:
        Path(options.out).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

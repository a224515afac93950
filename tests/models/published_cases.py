"""Small networks in other libraries' names: what reference and test share. Weights follow from names and shapes."""

import zlib

import numpy as np

#: Our options for each case: a small ConvNeXt, or a small ViT.
WIDTHS, DEPTHS = (8, 16, 24, 32), (1, 1, 2, 1)
VIT = {"width": 32, "depth": 2, "heads": 2}
CASES = {
    "torchvision/convnext": {"widths": WIDTHS, "depths": DEPTHS},
    "timm/convnext": {"widths": WIDTHS, "depths": DEPTHS},
    "timm/convnextv2": {"widths": WIDTHS, "depths": DEPTHS, "v2": True},
    "transformers/convnext": {"widths": WIDTHS, "depths": DEPTHS},
    "transformers/convnextv2": {"widths": WIDTHS, "depths": DEPTHS, "v2": True},
    "torchvision/vit": {**VIT, "patch": 16, "grid": 4},
    "timm/vit": {**VIT, "patch": 16, "grid": 4},
    "timm/dinov2_reg": {**VIT, "patch": 14, "grid": 4, "registers": 4, "scale": 1.0},
    "timm/swiglu": {**VIT, "patch": 14, "grid": 4, "swiglu": True, "scale": 1.0},
    "transformers/vit": {**VIT, "patch": 16, "grid": 4, "epsilon": 1e-12},
    "transformers/dinov2": {**VIT, "patch": 14, "grid": 4, "scale": 1.0},
    "transformers/dinov2_swiglu": {**VIT, "patch": 14, "grid": 4, "scale": 1.0, "swiglu": True},
    "transformers/dinov2_reg": {**VIT, "patch": 14, "grid": 4, "scale": 1.0, "registers": 4},
    "transformers/dinov3": {**VIT, "patch": 16, "scale": 1.0, "registers": 4, "rope": 100.0, "epsilon": 1e-5},
}
#: Cases on images whose grid of patches is not that of the learned positions: height and width in pixels.
SIZES = {"transformers/dinov2": (70, 98), "transformers/dinov3": (48, 80)}


def weights_for(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the weights of a state dict's entry, in torch's layout."""
    rng = np.random.default_rng(zlib.crc32(name.encode()) + 1)
    values = rng.standard_normal(shape).astype(np.float32)
    wide = [n for n in shape if n > 1]
    if name.endswith(("token", "tokens", "embeddings", "embed", "embedding")) or len(wide) <= 1:
        # Scales and biases are near one or zero; those of ConvNeXt's branches too, so that they matter.
        scales = ("norm", "ln_", "gamma", "lambda1", "layer_scale", ".ln.", "classifier.0", "features.")
        scale = any(word in name for word in scales) and not name.endswith("bias") and len(wide) <= 1
        return (1.0 if scale else 0.0) + 0.2 * values
    return values * np.float32(np.prod(shape[1:]) ** -0.5)


def images_for(case: str) -> np.ndarray:
    """Return normalized images (2, H, W, 3)."""
    height, width = SIZES.get(case, (4 * CASES[case].get("patch", 16),) * 2)
    return np.random.default_rng(len(case)).standard_normal((2, height, width, 3)).astype(np.float32)

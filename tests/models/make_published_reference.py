"""Write published_reference.npz: outputs of small networks of torchvision, timm and transformers, by names of weights.

Needs torch, torchvision, timm and transformers (the committed file was made with 2.14, 0.29, 1.0.31 and 5.24); the
tests need none of them.
"""

from pathlib import Path

import numpy as np
from published_cases import CASES, DEPTHS, WIDTHS, images_for, weights_for


def networks():
    """Return by case a network and its feature of images (N, 3, H, W)."""
    import timm.layers
    import torch
    import transformers as tf
    from timm.models.convnext import ConvNeXt
    from timm.models.vision_transformer import VisionTransformer
    from torchvision.models.convnext import CNBlockConfig
    from torchvision.models.convnext import ConvNeXt as TorchvisionConvNeXt
    from torchvision.models.vision_transformer import VisionTransformer as TorchvisionViT

    outs = [*WIDTHS[1:], None]
    blocks = [CNBlockConfig(*x) for x in zip(WIDTHS, outs, DEPTHS, strict=True)]
    small = {"depths": DEPTHS, "dims": WIDTHS, "num_classes": 0}
    vit = {"embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 0}
    hidden = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56, "patch_size": 14}
    plain = {**hidden, "image_size": 64, "patch_size": 16, "intermediate_size": 128}
    next_ = {"hidden_sizes": list(WIDTHS), "depths": list(DEPTHS)}
    swiglu = {"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": torch.nn.SiLU, "mlp_ratio": 88 * 2 / 32}
    of_56 = {"img_size": 56, "patch_size": 14, "init_values": 1e-5}
    v1 = TorchvisionConvNeXt(blocks, num_classes=3)
    tv = TorchvisionViT(64, 16, 2, 2, 32, 128, num_classes=3)

    def pooled(net):
        return lambda x: net(pixel_values=x).pooler_output

    def token(net):
        return lambda x: net(pixel_values=x).last_hidden_state[:, 0]

    def torchvision_vit(x):
        x = tv._process_input(x)
        return tv.encoder(torch.cat([tv.class_token.expand(len(x), -1, -1), x], 1))[:, 0]

    yield "torchvision/convnext", v1, lambda x: v1.classifier[:2](v1.avgpool(v1.features(x)))
    for name, more in (("convnext", {}), ("convnextv2", {"use_grn": True, "ls_init_value": None})):
        net = ConvNeXt(**small, **more)
        yield f"timm/{name}", net, net
    for name, config, cls in (
        ("convnext", tf.ConvNextConfig, tf.ConvNextModel),
        ("convnextv2", tf.ConvNextV2Config, tf.ConvNextV2Model),
    ):
        net = cls(config(**next_))
        yield f"transformers/{name}", net, pooled(net)
    yield "torchvision/vit", tv, torchvision_vit
    for name, more in (
        ("vit", {"img_size": 64}),
        ("dinov2_reg", {**of_56, "reg_tokens": 4, "no_embed_class": True}),
        ("swiglu", {**of_56, **swiglu}),
    ):
        net = VisionTransformer(**vit, **more)
        yield f"timm/{name}", net, net
    net = tf.ViTModel(tf.ViTConfig(**plain), add_pooling_layer=False)
    yield "transformers/vit", net, token(net)
    for name, more in (("dinov2", {}), ("dinov2_swiglu", {"use_swiglu_ffn": True})):
        net = tf.Dinov2Model(tf.Dinov2Config(**hidden, **more))
        yield f"transformers/{name}", net, token(net)
    net = tf.Dinov2WithRegistersModel(tf.Dinov2WithRegistersConfig(**hidden))
    yield "transformers/dinov2_reg", net, token(net)
    net = tf.DINOv3ViTModel(tf.DINOv3ViTConfig(**{**plain, "num_register_tokens": 4}))
    yield "transformers/dinov3", net, token(net)


def main() -> None:
    """Write the file next to this script."""
    import torch

    out = {}
    for case, net, feature in networks():
        shapes = {k: tuple(v.shape) for k, v in net.state_dict().items() if v.is_floating_point()}
        weights = {k: torch.from_numpy(np.asarray(weights_for(k, s))) for k, s in shapes.items()}
        net.load_state_dict(weights, strict=False)
        net.eval()
        with torch.no_grad():
            out[f"{case}/features"] = feature(torch.from_numpy(images_for(case)).permute(0, 3, 1, 2)).numpy()
        out[f"{case}/names"] = np.array([f"{k} {' '.join(map(str, s))}" for k, s in shapes.items()])
        print(case, len(shapes), out[f"{case}/features"].shape, float(np.abs(out[f"{case}/features"]).mean()))
    assert {name.rpartition("/")[0] for name in out} == set(CASES)
    np.savez_compressed(Path(__file__).with_name("published_reference.npz"), **out)


if __name__ == "__main__":
    main()

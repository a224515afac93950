"""The names of published checkpoints: prefixes, layouts of other libraries, and parts that a network lacks.

A layout is a list of rules that turn one library's names into ours. It need not be stated: that layout and that prefix
are taken under which most names fit the network.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

State = dict[str, np.ndarray]
Rules = tuple[tuple[str, str], ...]


def _transformers_vit(*mlp: tuple[str, str]) -> Rules:
    """Return the rules of transformers' ViT, DINOv2 and DINOv3, before and since its version 5, and of their MLPs."""
    own = (
        (r"(?:layernorm_before|norm1)\.(.+)", r"norm1.\2"),
        (r"(?:layernorm_after|norm2)\.(.+)", r"norm2.\2"),
        *(
            (rf"attention\.(?:attention\.{long}|{long[0]}_proj)\.(.+)", rf"attn.qkv.\2#{number}/3")
            for number, long in enumerate(("query", "key", "value"))
        ),
        (r"attention\.(?:output\.dense|o_proj)\.(.+)", r"attn.proj.\2"),
        (r"layer_scale([12])\.lambda1", r"ls\2.gamma"),
        *mlp,
    )
    return (
        (r"embeddings\.cls_token", r"cls_token"),
        (r"embeddings\.register_tokens", r"register_tokens"),
        (r"embeddings\.position_embeddings", r"pos_embed"),
        (r"embeddings\.patch_embeddings\.(?:projection\.)?(weight|bias)", r"patch_embed.proj.\1"),
        *((rf"(?:encoder\.|model\.)?layers?\.(\d+)\.{theirs}", rf"blocks.\1.{ours}") for theirs, ours in own),
        (r"(?:layernorm|norm)\.(.+)", r"norm.\1"),
        (r"classifier\.(.+)", r"head.\1"),
    )


#: Rules of each layout by name; patterns apply to whole names, the first that matches wins.
LAYOUTS: dict[str, Rules] = {
    "own": (),
    "torchvision ConvNeXt": (
        (r"features\.0\.([01])\.(.+)", r"downsample_layers.0.\1.\2"),
        (r"features\.2\.([01])\.(.+)", r"downsample_layers.1.\1.\2"),
        (r"features\.4\.([01])\.(.+)", r"downsample_layers.2.\1.\2"),
        (r"features\.6\.([01])\.(.+)", r"downsample_layers.3.\1.\2"),
        *(
            rule
            for stage in range(4)
            for rule in (
                (rf"features\.{2 * stage + 1}\.(\d+)\.layer_scale", rf"stages.{stage}.\1.gamma"),
                *(
                    (rf"features\.{2 * stage + 1}\.(\d+)\.block\.{place}\.(.+)", rf"stages.{stage}.\1.{name}.\2")
                    for place, name in ((0, "dwconv"), (2, "norm"), (3, "pwconv1"), (5, "pwconv2"))
                ),
            )
        ),
        (r"classifier\.0\.(.+)", r"norm.\1"),
        (r"classifier\.2\.(.+)", r"head.\1"),
    ),
    "timm ConvNeXt": (
        (r"stem\.([01])\.(.+)", r"downsample_layers.0.\1.\2"),
        (r"stages\.(\d)\.downsample\.([01])\.(.+)", r"downsample_layers.\1.\2.\3"),
        (r"stages\.(\d)\.blocks\.(\d+)\.conv_dw\.(.+)", r"stages.\1.\2.dwconv.\3"),
        (r"stages\.(\d)\.blocks\.(\d+)\.mlp\.fc([12])\.(.+)", r"stages.\1.\2.pwconv\3.\4"),
        (r"stages\.(\d)\.blocks\.(\d+)\.mlp\.grn\.weight", r"stages.\1.\2.grn.gamma"),
        (r"stages\.(\d)\.blocks\.(\d+)\.mlp\.grn\.bias", r"stages.\1.\2.grn.beta"),
        (r"stages\.(\d)\.blocks\.(\d+)\.(.+)", r"stages.\1.\2.\3"),
        (r"(?:head\.norm|norm_pre)\.(.+)", r"norm.\1"),
        (r"head\.fc\.(.+)", r"head.\1"),
    ),
    "transformers ConvNeXt": (
        (r"embeddings\.patch_embeddings\.(.+)", r"downsample_layers.0.0.\1"),
        (r"embeddings\.layernorm\.(.+)", r"downsample_layers.0.1.\1"),
        (r"encoder\.stages\.(\d)\.downsampling_layer\.([01])\.(.+)", r"downsample_layers.\1.\2.\3"),
        (r"encoder\.stages\.(\d)\.layers\.(\d+)\.layernorm\.(.+)", r"stages.\1.\2.norm.\3"),
        (r"encoder\.stages\.(\d)\.layers\.(\d+)\.layer_scale_parameter", r"stages.\1.\2.gamma"),
        (r"encoder\.stages\.(\d)\.layers\.(\d+)\.grn\.weight", r"stages.\1.\2.grn.gamma"),
        (r"encoder\.stages\.(\d)\.layers\.(\d+)\.grn\.bias", r"stages.\1.\2.grn.beta"),
        (r"encoder\.stages\.(\d)\.layers\.(\d+)\.(.+)", r"stages.\1.\2.\3"),
        (r"layernorm\.(.+)", r"norm.\1"),
        (r"classifier\.(.+)", r"head.\1"),
    ),
    "torchvision ViT": (
        (r"class_token", r"cls_token"),
        (r"conv_proj\.(.+)", r"patch_embed.proj.\1"),
        (r"encoder\.pos_embedding", r"pos_embed"),
        (r"encoder\.layers\.encoder_layer_(\d+)\.ln_([12])\.(.+)", r"blocks.\1.norm\2.\3"),
        (r"encoder\.layers\.encoder_layer_(\d+)\.self_attention\.in_proj_(\w+)", r"blocks.\1.attn.qkv.\2"),
        (r"encoder\.layers\.encoder_layer_(\d+)\.self_attention\.out_proj\.(.+)", r"blocks.\1.attn.proj.\2"),
        (r"encoder\.layers\.encoder_layer_(\d+)\.mlp\.(?:0|linear_1)\.(.+)", r"blocks.\1.mlp.fc1.\2"),
        (r"encoder\.layers\.encoder_layer_(\d+)\.mlp\.(?:3|linear_2)\.(.+)", r"blocks.\1.mlp.fc2.\2"),
        (r"encoder\.ln\.(.+)", r"norm.\1"),
        (r"heads\.head\.(.+)", r"head.\1"),
    ),
    # Blocks in chunks, as in DINOv2's training, and the names of timm and of DINOv3 next to DINOv2's.
    "DINO or timm ViT": (
        (r"blocks\.\d+\.(\d+)\.(.+)", r"blocks.\1.\2"),
        (r"(?:reg_token|storage_tokens)", r"register_tokens"),
    ),
    "timm ViT with SwiGLU": (
        (r"blocks\.(\d+)\.mlp\.fc1\.(.+)", r"blocks.\1.mlp.w12.\2"),
        (r"blocks\.(\d+)\.mlp\.fc2\.(.+)", r"blocks.\1.mlp.w3.\2"),
        (r"reg_token", r"register_tokens"),
    ),
    "transformers ViT": _transformers_vit(
        (r"(?:intermediate\.dense|mlp\.fc1|mlp\.up_proj)\.(.+)", r"mlp.fc1.\2"),
        (r"(?:output\.dense|mlp\.fc2|mlp\.down_proj)\.(.+)", r"mlp.fc2.\2"),
    ),
    "transformers ViT with SwiGLU": _transformers_vit(
        (r"mlp\.weights_in\.(.+)", r"mlp.w12.\2"),
        (r"mlp\.gate_proj\.(.+)", r"mlp.w12.\2#0/2"),
        (r"mlp\.up_proj\.(.+)", r"mlp.w12.\2#1/2"),
        (r"mlp\.(?:weights_out|down_proj)\.(.+)", r"mlp.w3.\2"),
    ),
}

#: Parts of a name by which one of several copies of a network is preferred: DINO's teacher, and running averages.
_PREFERRED = ("teacher", "ema")


def rename(name: str, rules: Rules) -> str:
    """Return a name as a layout's rules change it; unchanged if none applies."""
    for pattern, own in rules:
        if match := re.fullmatch(pattern, name):
            return match.expand(own)
    return name


def whole(name: str) -> str:
    """Return the name of the entry that a name belongs to: queries, keys and values are parts of one, "#0/3" first."""
    return name.partition("#")[0]


def find_layout(names: Iterable[str], wanted: Iterable[str]) -> tuple[str, str]:
    """Return the prefix and the layout under which most names of a checkpoint fit a network.

    Args:
        names: of the checkpoint.
        wanted: of the network.

    Returns:
        The prefix, which ends in a dot or is empty, and a key of `LAYOUTS`.
    """
    own = set(wanted)
    votes: Counter[tuple[str, str]] = Counter()
    for name in names:
        starts = [0, *(match.end() for match in re.finditer(r"\.", name))]
        for layout, rules in LAYOUTS.items():
            for start in starts:
                if whole(rename(name[start:], rules)) in own:
                    votes[name[:start], layout] += 1
    order = list(LAYOUTS)

    def rank(candidate: tuple[str, str]) -> tuple[int, bool, int, int]:
        prefix, layout = candidate
        liked = any(word in prefix.split(".") for word in _PREFERRED)
        return votes[candidate], liked, -len(prefix), -order.index(layout)

    return max(votes, key=rank) if votes else ("", "own")


def translate(state: Mapping[str, np.ndarray], wanted: Iterable[str]) -> tuple[State, list[str], str]:
    """Rename the entries of a checkpoint to those of a network.

    Args:
        state: name to array, in torch's layout.
        wanted: names in the network.

    Returns:
        The entries under the prefix by our names, the names outside it, and the layout.
    """
    prefix, layout = find_layout(state, wanted)
    rules = LAYOUTS[layout]
    inside: State = {}
    pieces: dict[str, dict[str, np.ndarray]] = {}
    for name, value in state.items():
        if not name.startswith(prefix):
            continue
        own = rename(name.removeprefix(prefix), rules)
        if "#" in own:
            pieces.setdefault(whole(own), {})[own.partition("#")[2]] = value
        else:
            inside[own] = value
    for name, parts in pieces.items():
        first, count = next(iter(parts.values())), int(next(iter(parts)).partition("/")[2])
        # DINOv3 has no bias of keys.
        inside[name] = np.concatenate([parts.get(f"{i}/{count}", np.zeros_like(first)) for i in range(count)])
    return inside, [name for name in state if not name.startswith(prefix)], layout

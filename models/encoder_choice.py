"""Which encoder computes features: the arguments of the commands that extract them.

Flax is imported when an encoder is loaded: `models.beam` has these arguments in environments without it as well.
"""

import argparse
import dataclasses
from typing import Any

from models.commands import count
from models.digests import file_digest, run_digest

Channels = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class EncoderChoice:
    """An encoder by its name and settings; small, hashable, and the same on every machine.

    Attributes:
        name: folder of a training run, or a key of `models.backbones.BACKBONES`.
        pretrained: file of the backbone's weights.
        random: allow a backbone without weights.
        options: of the backbone, as YAML.
        size: (height, width) of the network's input; None is a run's own, or 224 x 224.
        mean: of RGB in [0, 1], subtracted from images; None takes that of the weights.
        std: of RGB in [0, 1], by which images are divided; None takes that of the weights.
    """

    name: str
    pretrained: str | None = None
    random: bool = False
    options: str = "{}"
    size: tuple[int, int] | None = None
    mean: Channels | None = None
    std: Channels | None = None

    def check(self) -> bool:
        """Return whether the encoder is that of a training run, and raise ValueError for settings that do not fit."""
        from models.backbones import BACKBONES

        is_run = self.name not in BACKBONES
        if is_run and any((self.pretrained, self.options != "{}", self.mean, self.std)):
            raise ValueError(
                f"{self.name} is a run, which has its own weights and options. Fix: leave --pretrained, --options, "
                f"--mean and --std out, or give one of {', '.join(BACKBONES)}"
            )
        if not is_run and self.pretrained is None and not self.random:
            raise ValueError(f"{self.name} has no weights. Fix: give --pretrained FILE, or --random to try things out")
        self._options()
        return is_run

    def load(self) -> Any:
        """Load the encoder, a `models.encoders.Encoder`.

        Raises:
            ValueError: for settings that do not go together, and for weights that do not fit.
            FormatError: if the folder holds no training run, or the weights cannot be read.
        """
        from models.encoders import encoder_of_backbone, encoder_of_run

        if self.check():
            return encoder_of_run(self.name, self.size)
        own = {"options": self._options(), "mean": self.mean, "std": self.std}
        return encoder_of_backbone(self.name, self.pretrained, size=self.size or (224, 224), **own)

    def digests(self) -> dict[str, str]:
        """Return, by name, what identifies the files on which the features depend.

        Raises:
            ValueError: for settings that do not go together.
            FormatError: for files that cannot be read.
        """
        from models.encoders import published_normalization

        if self.check():
            return {"run": run_digest(self.name, "best")}
        weights = {} if self.pretrained is None else {"pretrained": file_digest(self.pretrained)}
        return {**weights, "normalization": str(published_normalization(self.pretrained))}

    def _options(self) -> dict[str, Any]:
        from models.settings import parse_yaml

        found = parse_yaml(self.options, "--options")
        if not isinstance(found, dict):
            raise ValueError(f"--options {self.options} is not a mapping. Fix: write '{{name: value}}'")
        return found


def add_encoder(parser: Any) -> None:
    """Add the arguments of `EncoderChoice`, except its name, to a parser or a group of one."""
    parser.add_argument("--pretrained", metavar="FILE", help="weights of a backbone, .pth or .safetensors")
    parser.add_argument("--random", action="store_true", help="allow a backbone without weights, to try things out")
    parser.add_argument("--options", default="{}", metavar="YAML", help="of the backbone, such as '{pool: mean}'")
    parser.add_argument(
        "--size",
        type=count,
        nargs=2,
        metavar=("HEIGHT", "WIDTH"),
        help="of the network's input (a run's own, 224 224 for a backbone)",
    )
    for name in ("mean", "std"):
        parser.add_argument(
            f"--{name}",
            type=float,
            nargs=3,
            metavar=("R", "G", "B"),
            help=f"{name} of images in [0, 1], per channel (that of the file next to the weights, or ImageNet's)",
        )


def encoder_choice(name: str, options: argparse.Namespace) -> EncoderChoice:
    """Return the encoder that the arguments of `add_encoder` describe."""
    size, mean, std = (None if x is None else tuple(x) for x in (options.size, options.mean, options.std))
    return EncoderChoice(name, options.pretrained, options.random, options.options, size, mean, std)

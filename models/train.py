"""Train a recogniser: ``python -m models.train --config FILE key=value ...``, or ``--resume RUN``."""

import argparse
import os
import sys
from pathlib import Path

from models.training.config import Config, read_config


def parse(arguments: list[str] | None = None) -> tuple[Config, bool, bool]:
    """The configuration of the command line, whether to resume, and whether to be quiet."""
    parser = argparse.ArgumentParser(prog="python -m models.train", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--config", help="YAML, or a Python file that sets config")
    parser.add_argument("--resume", metavar="RUN", help="go on with the run in this folder")
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="go before the file, such as optimizer.clip=0")
    options = parser.parse_intermixed_args(arguments)
    if options.config and options.resume:
        parser.error("--resume takes the configuration of the run: give one of the two")
    try:
        if options.resume:
            path = Path(options.resume) / "config.yaml"
            # The folder may have moved, and what stopped the run must not stop it again.
            config = read_config(path, [f"run={options.resume}", "stop_after=0", *options.settings])
        else:
            config = read_config(options.config, options.settings)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    return config, bool(options.resume), options.quiet


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    config, resume, quiet = parse(arguments)
    if config.deterministic:
        # Read when JAX first touches a device, which is later.
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".strip()
    from models.training.loop import fit

    try:
        figures = fit(config, resume=resume, quiet=quiet)
    except (ValueError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    shown = ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
    print(f"{config.run}: best validation: {shown}" if shown else f"{config.run}: no validation yet")


if __name__ == "__main__":
    main()

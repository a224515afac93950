"""Train a recognizer: ``python -m models.train --config FILE key=value ...``, or ``--resume RUN``."""

import argparse
import os
from pathlib import Path

from hmmjax.io import FormatError
from models.commands import explain, reported
from models.runs import read_run
from models.settings import Config, read_config

_EPILOG = """Settings are the fields of Config in models/settings/fields.py, which says what each does; files to start
from are in models/recipes. A run needs data.train and data.val at least."""


def parse(arguments: list[str] | None = None) -> tuple[Config, bool, bool]:
    """The configuration of the command line, whether to resume, and whether to be quiet."""
    parser = argparse.ArgumentParser(
        prog="python -m models.train", description=(__doc__ or "").partition(":")[0], epilog=_EPILOG
    )
    parser.add_argument("--config", metavar="FILE", help="settings in YAML, or a Python file that sets config")
    parser.add_argument("--resume", metavar="RUN", help="go on with the run in this folder")
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="key=value",
        help="settings that go before those of the file, such as epochs=5 or optimizer.clip=0",
    )
    options = parser.parse_intermixed_args(arguments)
    if options.config and options.resume:
        parser.error("--resume takes the configuration of the run: give one of the two")
    try:
        if options.resume:
            read_run(options.resume)
            path = Path(options.resume) / "config.yaml"
            # The folder may have moved, and what stopped the run must not stop it again.
            config = read_config(path, [f"run={options.resume}", "stop_after=0", *options.settings])
        else:
            config = read_config(options.config, options.settings)
    except (ValueError, OSError) as error:
        parser.error(explain(error))
    return config, bool(options.resume), options.quiet


def _check_places(config: Config, *, resume: bool) -> None:
    """See that what a configuration names is said and there.

    Raises:
        ValueError: for frames that are not said, and folders that hold no run.
        FileNotFoundError: for a file that is not there.
    """
    for name in ("train", "val"):
        if not getattr(config.data, name):
            raise ValueError(
                f"data.{name} is not set. Fix: give a cache that models.data.cache wrote, such as "
                f"data.{name}=caches/m2cai16"
            )
    runs = {"frozen": config.frozen, "start": None if resume else config.start}
    for name, folder in runs.items():
        if folder is not None:
            try:
                read_run(folder)
            except FormatError as error:
                raise ValueError(f"{name}={folder}: {error.cause}. Fix: give the folder of a trained run") from error
    # Weights that another run's replace need not be there any more.
    replaced = resume or config.start is not None
    files = {"pretrained": None if replaced else config.pretrained, "loss.hmm_model": config.loss.hmm_model}
    for name, path in files.items():
        if path is not None and not Path(path).is_file():
            raise FileNotFoundError(f"{name}={path}: no such file")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    config, resume, quiet = parse(arguments)
    if config.deterministic:
        # Read when JAX first touches a device, which is later.
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".strip()
    from models.training.loop import fit

    with reported(f"stopped; python -m models.train --resume {config.run} goes on from its last checkpoint, if any"):
        _check_places(config, resume=resume)
        figures = fit(config, resume=resume, quiet=quiet)
    shown = ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
    print(f"{config.run}: best validation: {shown}" if shown else f"{config.run}: no validation yet")


if __name__ == "__main__":
    main()

"""Train a recognizer: ``python -m models.train --config FILE key=value ...``, or ``--resume RUN``."""

import argparse
import os
from pathlib import Path

from hmmjax.io import FormatError
from models.commands import count, explain, reported
from models.settings import Config, read_config
from models.training.run import read_run

_EPILOG = """The settings are the fields of Config, documented in models/settings/fields.py; models/recipes has files to
start from. Every run needs data.train and data.val."""


def parse(arguments: list[str] | None = None) -> tuple[Config, argparse.Namespace]:
    """Parse the command line: the configuration, and all options."""
    parser = argparse.ArgumentParser(
        prog="python -m models.train", description=(__doc__ or "").partition(":")[0], epilog=_EPILOG
    )
    parser.add_argument("--config", metavar="FILE", help="settings in YAML, or a Python file that sets config")
    parser.add_argument("--resume", metavar="RUN", help="continue the run in this folder")
    parser.add_argument("--quiet", action="store_true", help="do not show a progress bar")
    several = parser.add_argument_group("several processes (docs/how-to/gpus.md)")
    several.add_argument("--distributed", action="store_true", help="join the processes that the cluster has started")
    several.add_argument("--coordinator", metavar="HOST:PORT", help="address of the first process, without a cluster")
    several.add_argument("--processes", type=count, metavar="N", help="their number")
    several.add_argument("--process", type=int, metavar="I", help="number of this one, from 0")
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="key=value",
        help="settings that override those of the file, such as epochs=5 or optimizer.clip=0",
    )
    options = parser.parse_intermixed_args(arguments)
    if options.config and options.resume:
        parser.error("--config and --resume exclude each other: --resume uses the configuration of the run")
    try:
        if options.resume:
            read_run(options.resume)
            path = Path(options.resume) / "config.yaml"
            # The folder may have moved, and stop_after must not stop the run again.
            config = read_config(path, [f"run={options.resume}", "stop_after=0", *options.settings])
        else:
            config = read_config(options.config, options.settings)
    except (ValueError, OSError) as error:
        parser.error(explain(error))
    return config, options


def _check_places(config: Config, *, resume: bool) -> None:
    """Raise unless the files and folders of a configuration are set and exist.

    Raises:
        ValueError: for data that is not set, and for folders without a training run.
        FileNotFoundError: for a missing file.
    """
    for name in ("train", "val"):
        if not getattr(config.data, name):
            raise ValueError(
                f"data.{name} is not set. Fix: give a cache that models.data.cache wrote, such as "
                f"data.{name}=caches/m2cai16, or with features=FOLDER also labels, such as data.{name}=cholec80:FOLDER"
            )
    runs = {"frozen": config.frozen, "start": None if resume else config.start}
    for name, folder in runs.items():
        if folder is not None:
            try:
                read_run(folder)
            except FormatError as error:
                raise ValueError(f"{name}={folder}: {error.cause}. Fix: give the folder of a trained run") from error
    if config.features is not None and not Path(config.features).exists():
        raise FileNotFoundError(f"features={config.features}: no such folder. Fix: give a folder of features")
    # Weights that a checkpoint replaces need not exist any more.
    replaced = resume or config.start is not None
    files = {"pretrained": None if replaced else config.pretrained, "loss.hmm_model": config.loss.hmm_model}
    for name, path in files.items():
        if path is not None and not Path(path).is_file():
            raise FileNotFoundError(f"{name}={path}: no such file. Fix: give the path of an existing file")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    config, options = parse(arguments)
    resume = bool(options.resume)
    if config.deterministic:
        # Set before JAX first uses a device, which is when it reads this variable.
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".strip()
    from models.training.processes import is_first, join

    with reported(f"stopped; continue with: python -m models.train --resume {config.run}"):
        _check_places(config, resume=resume)
        addresses = (options.coordinator, options.processes, options.process)
        if options.distributed or any(x is not None for x in addresses):
            join(*addresses)
        from models.training.loop import fit

        metrics = fit(config, resume=resume, quiet=options.quiet)
    if not is_first():
        return
    shown = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
    print(f"{config.run}: best validation: {shown}" if shown else f"{config.run}: no validation yet")


if __name__ == "__main__":
    main()

"""Apply a model to a collection of videos: ``python -m models.beam OPERATION MODEL COLLECTION --out FOLDER``.

OPERATION is stabilize (MODEL is a model.npz), predict (MODEL is the folder of a training run) or extract (MODEL is such
a folder, or a backbone). COLLECTION is a folder, or a list of videos (csv, json, jsonl) with the columns video and
path. Words after -- are options of Apache Beam. The same command continues after an interruption.
"""

import argparse
import collections
import os
import sys
from collections.abc import Sequence
from typing import Any

from hmmjax.cli.compilation_cache import keep_programs
from hmmjax.cli.console import as_options
from models.commands import count, rate, reported
from models.encoder_choice import add_encoder, encoder_choice

NOTICES = 5
"""Different notices that are printed."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; videos that could not be processed are listed at the end, with exit code 1."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    own, more = words[:end], words[end + 1 :]
    options = _parser().parse_intermixed_args(own)
    with reported("stopped; the same command continues"):
        try:
            import apache_beam  # noqa: F401
        except ImportError:
            raise ImportError("Apache Beam is not installed. Fix: pip install -e '.[beam]'") from None
        from models.beam.entries import find_entries
        from models.beam.pipeline import FAILURES, VIDEOS, local_copy, run

        operation = _operation(options)
        with local_copy(options.collection) as collection:
            entries = find_entries(collection, operation.suffixes, options.collection, options.out)
        found = run(entries, operation, options.out, [f"--runner={options.runner}", *_workers(options), *more])
    frames = sum(line["frames"] for line in (*found.written, *found.kept))
    counts = f"{len(found.written)} video(s) written, {len(found.kept)} were there, {len(found.failed)} failed"
    print(f"{options.out}: {counts}; {frames:,} frames")
    shown = collections.Counter(notice for line in (*found.written, *found.kept) for notice in line["notices"])
    for notice, videos in shown.most_common(NOTICES):
        print(f"note, {videos} video(s): {as_options(notice)}", file=sys.stderr)
    if len(shown) > NOTICES:
        print(f"{len(shown) - NOTICES} more notes are in {options.out}/{VIDEOS}", file=sys.stderr)
    if found.others:
        print(
            f"note: {options.out} also holds {len(found.others)} video(s) that are not in {options.collection}: "
            f"{', '.join(found.others[:5])}",
            file=sys.stderr,
        )
    for line in found.failed:
        print(f"error: {line['video']}: {line['error']}", file=sys.stderr)
    if found.failed:
        print(f"the list is in {options.out}/{FAILURES}; the same command tries these again", file=sys.stderr)
        sys.exit(1)


def _workers(options: argparse.Namespace) -> list[str]:
    """Return the options of the runner for several videos at a time, in threads that share the model.

    Raises:
        ValueError: for another runner than the DirectRunner.
    """
    if options.workers == 1:
        return []
    if options.runner != "DirectRunner":
        raise ValueError(
            f"--workers is for the DirectRunner. Fix: give the option of {options.runner} after --, such as "
            "--parallelism or --max_num_workers"
        )
    return [f"--direct_num_workers={options.workers}", "--direct_running_mode=multi_threading"]


def _operation(options: argparse.Namespace) -> Any:
    """Return the operation that the arguments ask for."""
    from models.beam import operations

    # All cores together, however many videos are decoded at a time.
    threads = max((os.cpu_count() or 1) // options.workers, 1) if options.workers > 1 else 0
    if options.operation == "predict":
        return operations.Predict(options.model, options.checkpoint, options.rate, options.batch, threads)
    if options.operation == "extract":
        return operations.Extract(encoder_choice(options.model, options), options.rate, options.batch, threads)
    own = ("online_model", "kind", "phase_names", "tool_names", "fps", "first_index", "row_step", "threshold")
    return operations.Stabilize(options.model, **{name: getattr(options, name) for name in own})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models.beam", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("operation", choices=("stabilize", "predict", "extract"))
    parser.add_argument("model", help="model.npz, the folder of a training run, or a backbone")
    parser.add_argument("collection", help="a folder, or a list of videos (csv, tsv, json, jsonl)")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="gets one file per video")
    parser.add_argument("--runner", default="DirectRunner", help="of Apache Beam (DirectRunner)")
    parser.add_argument(
        "--workers", type=count, default=1, help="videos at a time on this machine, with the DirectRunner (1)"
    )
    read = parser.add_argument_group("stabilize")
    read.add_argument("--online-model", metavar="FILE", help="model_online.npz, for the filter")
    read.add_argument("--kind", choices=("labels", "probabilities", "logits"), help="kind of the scores")
    read.add_argument("--phase-names", help="as of hmmjax stabilize")
    read.add_argument("--tool-names", help="as of hmmjax stabilize")
    read.add_argument("--fps", type=rate, help="frame numbers per second, as of hmmjax stabilize")
    read.add_argument("--first-index", type=int, default=0, help="index of the first phase class (0)")
    read.add_argument("--row-step", type=count, default=25, help="frames per row in files without frame numbers (25)")
    read.add_argument("--threshold", type=float, default=0.5, help="probability from which a tool is present (0.5)")
    network = parser.add_argument_group("predict and extract")
    network.add_argument("--checkpoint", choices=("best", "last"), default="best", help="of a run (best)")
    network.add_argument("--rate", type=rate, default=1.0, help="frames per second to read from a video (1)")
    network.add_argument(
        "--batch", type=count, help="frames per call of the network, on all GPUs together (64 per GPU)"
    )
    add_encoder(parser.add_argument_group("extract"))
    return parser


if __name__ == "__main__":
    keep_programs()
    main()

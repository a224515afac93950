"""Apply a model to a collection of videos: ``python -m models.beam OPERATION MODEL COLLECTION --out FOLDER``.

OPERATION is stabilize (MODEL is a model.npz), predict (MODEL is the folder of a training run) or extract (MODEL is such
a folder, or a backbone). COLLECTION is a folder, or a list of videos (csv, json, jsonl) with the columns video and
path. Words after -- are options of Apache Beam. The same command continues after an interruption.
"""

import argparse
import collections
import sys
from collections.abc import Sequence
from typing import Any

from hmmjax.cli.compilation_cache import keep_programs
from hmmjax.cli.console import as_options
from models.commands import count, rate, reported

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
        found = run(entries, operation, options.out, [f"--runner={options.runner}", *more])
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


def _operation(options: argparse.Namespace) -> Any:
    """Return the operation that the arguments ask for."""
    from models.beam import operations

    size = None if options.size is None else tuple(options.size)
    if options.operation == "predict":
        return operations.Predict(options.model, options.checkpoint, options.rate, options.batch)
    if options.operation == "extract":
        return operations.Extract(options.model, options.pretrained, size, options.rate, options.batch, options.random)
    own = ("online_model", "kind", "phase_names", "tool_names", "fps", "first_index", "row_step", "threshold")
    return operations.Stabilize(options.model, **{name: getattr(options, name) for name in own})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models.beam", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("operation", choices=("stabilize", "predict", "extract"))
    parser.add_argument("model", help="model.npz, the folder of a training run, or a backbone")
    parser.add_argument("collection", help="a folder, or a list of videos (csv, tsv, json, jsonl)")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="gets one file per video")
    parser.add_argument("--runner", default="DirectRunner", help="of Apache Beam (DirectRunner)")
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
    network.add_argument("--batch", type=count, default=64, help="frames per call of the network (64)")
    network.add_argument("--pretrained", metavar="FILE", help="weights of a backbone")
    network.add_argument("--random", action="store_true", help="allow a backbone without weights")
    network.add_argument("--size", type=count, nargs=2, metavar=("HEIGHT", "WIDTH"), help="of the network's input")
    return parser


if __name__ == "__main__":
    keep_programs()
    main()

"""The pipeline: each video of a collection on some worker, one file per video, and the list of those that failed.

A video is finished when its record, ``.records/<video>.json``, is written after its files. The record holds a digest of
the video's input and of the operation: the video is skipped as long as both are the same, and done again otherwise.
"""

import contextlib
import json
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from hmmjax.io import FormatError, lock, natural
from hmmjax.io.atomic_write import remove_partial_files
from models.beam.entries import Entry
from models.beam.operations import Apply, Done, Operation
from models.commands import explain
from models.digests import input_digest

VIDEOS, FAILURES, RECORDS = "videos.jsonl", "failures.jsonl", ".records"
"""Written to the output: a line per video, the lines of those that failed, and the folder of records."""


class Summary(NamedTuple):
    """What a run did: lines of `VIDEOS`, by their status.

    Attributes:
        written: videos that were processed.
        kept: videos that an earlier run has finished.
        failed: videos that could not be processed.
        others: names of videos that earlier runs finished and that are not in the collection.
    """

    written: list[dict[str, Any]]
    kept: list[dict[str, Any]]
    failed: list[dict[str, Any]]
    others: list[str]


def run(entries: Sequence[Entry], operation: Operation, out: str, options: Sequence[str] = ()) -> Summary:
    """Apply an operation to all videos.

    Args:
        entries: the videos.
        operation: what to do.
        out: folder for the results, which all workers reach; also an address such as gs://bucket/folder.
        options: of Apache Beam, such as ``--runner=FlinkRunner``.

    Returns:
        What was done. `VIDEOS` and `FAILURES` in the folder hold the same.

    Raises:
        FormatError: a file of the operation is missing.
        FileExistsError: another run on this machine writes to the folder.
    """
    fingerprint = operation.fingerprint()
    if not FileSystems.exists(out):
        FileSystems.mkdirs(out)
    with contextlib.nullcontext() if "://" in out else lock(out):
        if "://" not in out:
            remove_partial_files(out)
            for folder in Path(out).glob("beam-temp-*"):  # of a run that was killed
                shutil.rmtree(folder, ignore_errors=True)
        return _run(entries, operation, fingerprint, out, options)


def _run(entries: Sequence[Entry], operation: Operation, fingerprint: str, out: str, options: Sequence[str]) -> Summary:
    """Run the pipeline in a folder that exists and that no other run writes to."""
    stale = [path for name in (VIDEOS, FAILURES) if FileSystems.exists(path := FileSystems.join(out, name))]
    if stale:
        FileSystems.delete(stale)
    with beam.Pipeline(options=PipelineOptions(list(options))) as pipeline:
        lines = (
            pipeline
            | "videos" >> beam.Create([tuple(entry) for entry in entries])
            # Without it, a runner may fuse the steps and give all videos to one worker.
            | "spread" >> beam.Reshuffle()
            | operation.name >> beam.ParDo(Work(operation, fingerprint, out))
        )
        _write(lines, "list", FileSystems.join(out, VIDEOS))
        _write(
            lines | beam.Filter(lambda line: line["status"] == "failed"), "failures", FileSystems.join(out, FAILURES)
        )
    with FileSystems.open(FileSystems.join(out, VIDEOS)) as file:
        found = [json.loads(line) for line in file.read().decode("utf-8").splitlines()]
    (records,) = FileSystems.match([FileSystems.join(out, RECORDS, "*.json")])
    there = {record.path.rpartition("/")[2].removesuffix(".json") for record in records.metadata_list}
    others = sorted(there - {entry.video for entry in entries}, key=natural)
    written, kept, failed = ([x for x in found if x["status"] == status] for status in ("written", "kept", "failed"))
    return Summary(written, kept, failed, others)


def _write(lines: Any, label: str, path: str) -> None:
    """Write lines as one file, ordered by video."""
    _ = (
        lines
        | f"gather {label}" >> beam.combiners.ToList()
        | f"order {label}" >> beam.FlatMap(lambda found: [json.dumps(x) for x in sorted(found, key=_by_video)])
        | f"write {label}" >> beam.io.WriteToText(path, num_shards=1, shard_name_template="")
    )


def _by_video(line: dict[str, Any]) -> str:
    return line["video"]


_LOCK = threading.Lock()
_loaded: dict[tuple[Operation, str], Apply] = {}
"""What was loaded in this process, by operation and fingerprint."""


def _load(operation: Operation, fingerprint: str) -> Apply:
    """Load an operation once per process, whatever number of threads a worker has."""
    with _LOCK:
        if (operation, fingerprint) not in _loaded:
            _loaded.clear()  # an earlier pipeline's model would stay in memory
            _loaded[operation, fingerprint] = operation.load()
        return _loaded[operation, fingerprint]


class Work(beam.DoFn):
    """Process a video, unless it is finished; an error becomes a line of the list, and the next video follows.

    Args:
        operation: what to do.
        fingerprint: of the operation.
        out: folder for the results.
    """

    def __init__(self, operation: Operation, fingerprint: str, out: str):
        self._operation, self._fingerprint, self._out = operation, fingerprint, out
        self._apply: Apply | None = None

    def setup(self) -> None:
        """Load the operation's model."""
        self._apply = _load(self._operation, self._fingerprint)

    def process(self, element: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
        """Yield the line of one video: its name, status, frames, notices and seconds, or its error."""
        entry, start = Entry(*element), time.monotonic()
        line: dict[str, Any] = {"video": entry.video}
        digest = f"{self._fingerprint} "
        try:
            with _local(entry) as own:
                digest += input_digest(own.paths)
                kept = _finished(self._out, entry.video, digest)
                done = self._process(own, digest) if kept is None else kept
            line |= {"status": "written" if kept is None else "kept", **done._asdict()}
        except Exception as error:  # whatever is wrong with a video, the others do not depend on it
            kind = type(error).__name__
            line |= {"status": "failed", "error": explain(error) or kind, "kind": kind}
            line["files"] = [path for _, path in entry.paths]
            self._remove_stale(entry.video, digest)
        yield line | {"seconds": round(time.monotonic() - start, 3)}

    def _remove_stale(self, video: str, digest: str) -> None:
        """Remove the files of a video that failed, if another model, other settings or another input made them."""
        record = _record(self._out, video)
        if record is not None and not record["digest"].startswith(digest):
            own = [name for name in record["files"] if name not in self._operation.shared]
            paths = [FileSystems.join(self._out, *p) for p in ((RECORDS, f"{video}.json"), *((name,) for name in own))]
            FileSystems.delete([path for path in paths if FileSystems.exists(path)])

    def _process(self, entry: Entry, digest: str) -> Done:
        assert self._apply is not None
        with tempfile.TemporaryDirectory() as scratch:
            done = self._apply(entry, Path(scratch))
            files = sorted(path.name for path in Path(scratch).iterdir())
            for name in files:
                content = (Path(scratch) / name).read_bytes()
                if name in self._operation.shared:
                    _require_same(content, self._out, name)
                _publish(content, self._out, name)
        record = {"digest": digest, **done._asdict(), "files": files}
        _publish(json.dumps(record).encode(), FileSystems.join(self._out, RECORDS), f"{entry.video}.json")
        return done


def _finished(out: str, video: str, digest: str) -> Done | None:
    """Return what was done to a video that is finished with this digest, None for others."""
    record = _record(out, video)
    if record is None or record["digest"] != digest:
        return None
    there = all(FileSystems.exists(FileSystems.join(out, name)) for name in record["files"])
    return Done(record["frames"], tuple(record["notices"])) if there else None


def _record(out: str, video: str) -> dict[str, Any] | None:
    """Return the record of a video that an earlier run finished, None for others."""
    path = FileSystems.join(out, RECORDS, f"{video}.json")
    if not FileSystems.exists(path):
        return None
    try:
        with FileSystems.open(path) as file:
            record = json.loads(file.read())
        whole = all(name in record for name in ("digest", "frames", "notices", "files"))
        return record if whole else None
    except (ValueError, TypeError):
        return None  # damaged: the video is done again


def _require_same(content: bytes, folder: str, name: str) -> None:
    """Raise FormatError if a file that all videos write alike is there with another content."""
    path = FileSystems.join(folder, name)
    if not FileSystems.exists(path):
        return
    with FileSystems.open(path) as file:
        if (kept := file.read()) != content:
            told = f"{kept.decode(errors='replace').strip()}, now {content.decode(errors='replace').strip()}"
            raise FormatError(
                f"the results of other videos were made differently: {told}", file=path, fix="choose another --out"
            )


def _publish(content: bytes, folder: str, name: str) -> None:
    """Write a file atomically: under another name first."""
    with contextlib.suppress(OSError):  # another worker may create it at the same time
        if not FileSystems.exists(folder):
            FileSystems.mkdirs(folder)
    temporary = FileSystems.join(folder, f".{name}.{uuid.uuid4().hex[:8]}")
    try:
        with FileSystems.create(temporary, mime_type="application/octet-stream") as file:
            file.write(content)
        FileSystems.rename([temporary], [FileSystems.join(folder, name)])
    except BaseException:
        with contextlib.suppress(Exception):
            FileSystems.delete([temporary])
        raise


@contextlib.contextmanager
def local_copy(path: str) -> Iterator[str]:
    """Yield a file's path on this machine: an address such as gs://bucket/file is copied for the time of the block."""
    if "://" not in path:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.rsplit("/", 1)[-1]
        with FileSystems.open(path, compression_type="uncompressed") as source, open(copy, "wb") as target:
            shutil.copyfileobj(source, target, 2**20)
        yield str(copy)


@contextlib.contextmanager
def _local(entry: Entry) -> Iterator[Entry]:
    """Yield an entry whose files are on this machine."""
    with contextlib.ExitStack() as stack:
        paths = tuple((what, stack.enter_context(local_copy(path))) for what, path in entry.paths)
        yield Entry(entry.video, paths)

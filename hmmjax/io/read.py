"""Detect the layouts of files, and read them into tracks."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from hmmjax.io.answers import ANSWERS, is_answers, read_answers
from hmmjax.io.arrays import read_arrays
from hmmjax.io.cadene import is_cadene, read_cadene
from hmmjax.io.challenges import is_mstcn, is_pitvis, read_mstcn, read_pitvis
from hmmjax.io.decode import read_encoded
from hmmjax.io.detections import is_detections, read_detections
from hmmjax.io.doubts import check_not_doubled, doubts_of, missing_outputs
from hmmjax.io.errors import FormatError
from hmmjax.io.find import ARRAYS, DOCUMENTS, PICKLES, PathLike, find_files
from hmmjax.io.frame_tables import is_frame_table, read_frame_table
from hmmjax.io.labels import merge_labels
from hmmjax.io.names import Names, resolve_names
from hmmjax.io.segment_rows import is_segments
from hmmjax.io.segments import read_segments
from hmmjax.io.spec import KINDS, TRACKS, Spec
from hmmjax.io.text import read_text
from hmmjax.io.tracks import Track, with_notices
from hmmjax.io.videos import check_no_duplicates, natural, renamed

#: Text layouts other than plain tables: a test of the first line, and the reader. To add a layout, add its pair here.
_LAYOUTS: tuple[tuple[Callable[[str], bool], Callable[[str, str, Spec], list[Track]]], ...] = (
    (is_answers, read_answers),
    (is_pitvis, read_pitvis),
    (is_mstcn, read_mstcn),
    (is_segments, read_segments),
    (is_cadene, read_cadene),
    (is_detections, read_detections),
    (is_frame_table, read_frame_table),
)


def read(
    paths: PathLike | Sequence[PathLike],
    *,
    track: str | None = None,
    kind: str | Mapping[str, str | None] | None = None,
    phase_names: Names | None = None,
    tool_names: Names | None = None,
    fps: float | None = None,
    step: int = 25,
    offset: int | None = None,
    header: str = "auto",
    strict: bool = True,
    unknown: bool = False,
    first_index: int = 0,
    shift: int = 0,
    rows: str = "auto",
    rename: Mapping[str, str] | None = None,
    progress: Callable[[Iterable[str]], Iterable[str]] | None = None,
) -> list[Track]:
    """Read predictions or annotations, one track per video and file (or array).

    Args:
        paths: a file, a folder, or several of either. Layouts are detected from the content: Cholec80 and M2CAI16 txt,
            MTRCNet, TMRNet and Surgformer txt, csv with a Frame column, NPZ (`hmmjax.io.arrays`), NPY (one video per
            file), Cadene's csv, Faster R-CNN detection csv, PitVis and MS-TCN (`hmmjax.io.challenges`), tables of
            segments or changes (`hmmjax.io.segments`), JSON and XML of annotation tools (`hmmjax.io.documents`),
            pickles and torch files of plain data (`hmmjax.io.pickles`), and, among annotations, answers to
            `hmmjax suggest`.
        track: "phases" or "tools", if the file does not tell.
        kind: "labels", "probabilities" or "logits" (softmax over phases, sigmoid per tool), for both tracks or as
            ``{"phases": ..., "tools": ...}``. With None, whole-number tools and single columns of phases are labels;
            everything else must be probabilities in [0, 1].
        phase_names: the phase classes. For files with indices, their order; for files with names, the names to expect
            (default: Cholec80's). A list, "cholec80", "tf-cholec80", "m2cai16", "autolaparo", "cataracts", "pitvis", or
            a file with one name per line.
        tool_names: the tool classes, as a list, "cholec80", "cholect50", "cataracts", "pitvis", or a file with one name
            per line.
        fps: frames per second of the counter in the Frame column: 25 on Cholec80, even if only every 25th frame is
            listed; 1 if frames count seconds. None means 25, or the value stored in an NPZ.
        step: frames between rows in files without a Frame column (NPY, most NPZ, Cadene).
        offset: frame number of their first row. None means 0, and 24 for Cadene.
        header: whether text files have a header: "yes", "no" or "auto".
        strict: raise an error for damaged rows of a detection csv. With False, drop their frames and report them in
            `Track.notices`.
        unknown: read annotations, of which any part may be unknown. Of predictions, the label -1, NaN and blank cells
            mark a phase, or a single tool, as missing in a frame; a notice counts them.
        first_index: index of the first phase class in files with indices; AutoLaparo and PitVis count from 1.
        rows: "frames" if each row of a phase table is a frame, "changes" if each phase lasts until the next row; "auto"
            means frames, and refuses tables in which most rows, ten seconds or more apart, begin another phase.
        shift: number that is added to all frame numbers, for files whose counter starts elsewhere.
        rename: new video names by old name, for instance ``{"tool_video_11": "video61"}``.
        progress: wraps the iteration over files, for a progress bar.

    Returns:
        Tracks in natural order of video, phases before tools.

    Raises:
        FormatError: if an option is invalid or a file cannot be used; the message names file, line, cause and fix.
    """
    spec = _spec(track, kind, phase_names, tool_names, fps, step, offset, header, strict, unknown)
    if first_index < 0:
        raise FormatError(f"first_index is {first_index}", fix="pass the index of the first class, 0 or 1")
    if rows not in ("auto", "frames", "changes"):
        raise FormatError(f"unknown rows option {rows!r}", fix="pass 'auto', 'frames' or 'changes'")
    spec = dataclasses.replace(spec, first_index=int(first_index), shift=int(shift), rows=rows)
    files, notices = find_files(paths, annotations=unknown)
    tracks: list[Track] = []
    for file in files if progress is None else progress(files):
        tracks += [_shifted(track, spec) for track in _read_file(file, spec)]
    notices += [
        *doubts_of(tracks, fps=fps, first_index=spec.first_index),
        *([] if unknown else missing_outputs(tracks)),
    ]
    tracks = renamed(tracks, rename or {})
    given = [track for track in tracks if track.layout.format != ANSWERS]
    check_no_duplicates(given)
    check_not_doubled(given)
    if any(track.layout.format == ANSWERS for track in tracks):
        tracks = merge_labels(tracks)
    if not tracks:
        raise FormatError("the sheet has no answers yet", file=files[0], fix="fill it in, or leave it out")
    return sorted(with_notices(tracks, notices), key=lambda t: (natural(t.video), t.track))


def read_annotations(paths: PathLike | Sequence[PathLike], **options: object) -> list[Track]:
    """Read annotations: labels only, of which -1 means unknown.

    Args:
        paths: a file, a folder, or several of either. Answer sheets of `hmmjax suggest` may be among them; their
            answers are merged with other annotations of the same video.
        **options: options of `read` except `unknown`; `kind` defaults to "labels".

    Returns:
        Tracks of labels, in natural order of video, phases before tools.

    Raises:
        FormatError: if an option is invalid or a file cannot be used.
    """
    options.setdefault("kind", "labels")
    return read(paths, unknown=True, **options)  # type: ignore[arg-type]


def _spec(
    track: str | None,
    kind: str | Mapping[str, str | None] | None,
    phase_names: Names | None,
    tool_names: Names | None,
    fps: float | None,
    step: int,
    offset: int | None,
    header: str,
    strict: bool,
    unknown: bool,
) -> Spec:
    """Check the options of `read`."""
    if track not in (None, *TRACKS):
        raise FormatError(f"unknown track {track!r}", fix="pass 'phases' or 'tools'")
    if header not in ("yes", "no", "auto"):
        raise FormatError(f"unknown header option {header!r}", fix="pass 'yes', 'no' or 'auto'")
    if fps is not None and not fps > 0:
        raise FormatError(f"fps is {fps:g}", fix="pass a positive number of frames per second")
    if step < 1:
        raise FormatError(f"step is {step}", fix="pass a number of frames, at least 1")
    kinds: dict[str, str | None] = dict(kind) if isinstance(kind, Mapping) else {name: kind for name in TRACKS}
    for name, value in kinds.items():
        if value not in (None, *KINDS) or name not in TRACKS:
            raise FormatError(f"unknown kind {value!r} of {name}", fix=f"pass one of {', '.join(KINDS)}")
    names = {"phases": resolve_names(phase_names, "phases"), "tools": resolve_names(tool_names, "tools")}
    return Spec(track, kinds, names, fps, step, offset, header, strict, unknown)


def _read_file(file: str, spec: Spec) -> list[Track]:
    suffix = Path(file).suffix.lower()
    if suffix in PICKLES:
        from hmmjax.io.pickles import read_pickled  # imports pickle, which few commands need

        return read_pickled(file, spec)
    if suffix in ARRAYS:
        return read_arrays(file, spec)
    text, encoding = read_encoded(file)
    # Excel's line on separators; the blank line in its place keeps the numbers of the others.
    text = re.sub(r'\A"?sep=[^\n"]"?(?=\r?\n)', "", text, flags=re.IGNORECASE)
    if suffix in DOCUMENTS or text.lstrip()[:1] in ("<", "{", "["):
        from hmmjax.io.documents import read_document  # imports an XML parser, which few commands need

        return read_document(file, text, spec)
    first = next((line for line in text.splitlines() if line.strip()), "")
    reader = next((read_layout for matches, read_layout in _LAYOUTS if matches(first)), read_text)
    tracks = reader(file, text, spec)
    return [dataclasses.replace(t, layout=dataclasses.replace(t.layout, encoding=encoding)) for t in tracks]


def _shifted(track: Track, spec: Spec) -> Track:
    """Return a track with frame numbers and indices counted as declared; its layout remembers the file's own."""
    layout = dataclasses.replace(track.layout, shift=spec.shift)
    if track.track == "phases" and layout.kind == "labels" and layout.spelling is None:
        layout = dataclasses.replace(layout, first_index=layout.first_index or spec.first_index)
    frames = track.frames + spec.shift
    if spec.shift and frames.size and frames[0] < 0:
        raise FormatError(
            f"frame {track.frames[0]} would be {frames[0]}", file=track.source, fix="correct the shift of frame numbers"
        )
    return dataclasses.replace(track, frames=frames, layout=layout)

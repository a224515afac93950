"""The records that readers return: a track per video and file, and the joined tracks of a video."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hmmjax.io.decode import UTF_8, Encoding
from hmmjax.io.errors import FormatError
from hmmjax.io.names import permutation


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a file stores a track, so that results can be written in the same layout.

    Attributes:
        format: "text" (tabs or spaces), "csv", "npz", "npy", "cadene", "detections" or "answers".
        kind: what the file holds: "labels", "probabilities" or "logits".
        delimiter: the separator between the cells of a row.
        header: the header line as read, or None if the file has none.
        header_columns: number of columns in the table, including the Frame column.
        frame_column: position of the Frame column.
        columns: positions of this track's columns.
        newline: line ending.
        trailing: number of blank columns after the last one.
        decimal: what separates the whole part of a number from its fraction, a point or a comma.
        spelling: phase names as spelled in the file; None if the file holds indices.
        key: name of the array in an NPZ, or None.
        frames_key: name of the array of frame numbers in an NPZ, or None.
        heads: (n,) beginnings of rows that are copied unchanged.
        first_index: index of the first phase class in the file.
        shift: number that was added to the file's frame numbers.
        encoding: encoding of a text file.
        video: position and content of the cells that name the video, in a table of several; None without such a column.
        times: unit of the times of segments: "seconds", "ms", "frames" or "clock" (hh:mm:ss).
    """

    format: str
    kind: str
    delimiter: str = "\t"
    header: str | None = None
    header_columns: int = 0
    frame_column: int = 0
    columns: tuple[int, ...] = ()
    newline: str = "\n"
    trailing: int = 0
    decimal: str = "."
    spelling: tuple[str, ...] | None = None
    key: str | None = None
    frames_key: str | None = None
    heads: tuple[str, ...] = ()
    first_index: int = 0
    shift: int = 0
    encoding: Encoding = UTF_8
    times: str = "seconds"
    video: tuple[int, str] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Track:
    """The phases or the tools of one video, per frame, as read from one file.

    Attributes:
        video: the video's identifier, for instance "video41" (see `hmmjax.io.video_id`).
        track: "phases" or "tools".
        frames: (n,) int64 frame numbers from the file, strictly increasing.
        values: for phases, int32 labels (n,) with -1 for unknown, or float64 probabilities (n, L); for tools, int32
            presence (n, K) with -1 for unknown, or float64 probabilities of presence (n, K). NaN marks a missing
            probability: of a single tool, or of all phases of a frame.
        names: class names in the order of `values`, or None if the file holds indices only.
        fps: frames per second of the frame counter: 25 on Cholec80, even if only every 25th frame is listed.
        layout: how the file stores the track.
        source: the file's path.
        notices: messages for the user about how the file was read.
        part: the part that the video had in the recognizer's training: "train" in any spelling of it, "val", "test",
            "unlabeled" or the file's own word; None if the file does not tell.
    """

    video: str
    track: str
    frames: np.ndarray
    values: np.ndarray
    names: tuple[str, ...] | None
    fps: float
    layout: Layout
    source: str
    notices: tuple[str, ...] = ()
    part: str | None = None

    @property
    def is_labels(self) -> bool:
        """Whether `values` are labels rather than probabilities."""
        return self.values.dtype.kind == "i"

    @property
    def num_classes(self) -> int | None:
        """L or K; None for phase indices without names, since the file does not tell how many phases there are."""
        if self.names is not None:
            return len(self.names)
        return self.values.shape[1] if self.values.ndim == 2 else None

    @property
    def seconds(self) -> np.ndarray:
        """(n,) float64 times in seconds."""
        return self.frames / self.fps

    def labels(self, threshold: float = 0.5) -> np.ndarray:
        """Return labels: those read, or the most probable phase and the tools at or above a threshold.

        Args:
            threshold: the probability from which a tool counts as present.

        Returns:
            int32 phases (n,) or tools (n, K), -1 if missing.
        """
        if self.is_labels:
            return self.values
        missing = np.isnan(self.values)
        if self.track == "phases":
            return np.where(missing.any(-1), -1, np.nan_to_num(self.values).argmax(-1)).astype(np.int32)
        return np.where(missing, -1, self.values >= threshold).astype(np.int32)

    def take(self, rows: np.ndarray) -> "Track":
        """Return a track with some of the rows.

        Args:
            rows: row positions, or a boolean mask (n,).

        Returns:
            The track at those frames.
        """
        layout = self.layout
        if layout.heads:
            layout = dataclasses.replace(layout, heads=tuple(np.array(layout.heads, dtype=object)[rows]))
        return dataclasses.replace(self, frames=self.frames[rows], values=self.values[rows], layout=layout)

    def reorder(self, names: Sequence[str]) -> "Track":
        """Return the track with its classes in another order, matched by name.

        Args:
            names: the classes in the desired order; case, spaces, underscores and hyphens are ignored.

        Returns:
            The track, with `names` as its class names.

        Raises:
            FormatError: if the sets of names differ, or if the file holds indices whose order was not declared.
        """
        if self.names is None:
            option = "phase_names" if self.track == "phases" else "tool_names"
            raise FormatError(
                f"{self.track} are stored as indices, but other files use class names",
                file=self.source,
                fix=f"declare the class of each index: {option}='cholec80', or a list of names in this file's order",
            )
        order = permutation(self.names, names, self.track, self.source)
        if order == list(range(len(order))):
            return dataclasses.replace(self, names=tuple(names))
        if self.values.ndim == 2:
            values = self.values[:, order]
        else:
            place = np.argsort(order).astype(np.int32)
            values = np.where(self.values < 0, -1, place[np.maximum(self.values, 0)]).astype(np.int32)
        return dataclasses.replace(self, values=values, names=tuple(names))

    def at_fps(self, fps: float) -> "Track":
        """Renumber the frames for a counter at another rate; times in seconds do not change.

        Args:
            fps: frames per second of the new counter, positive.

        Returns:
            The track, each row at the nearest number of the new counter. Of several rows with one number only the
            nearest is kept, so rows are lost only if the new counter is slower than the rows are dense.
        """
        if fps == self.fps:
            return self
        exact = self.frames * (fps / self.fps)
        frames = np.floor(exact + 0.5).astype(np.int64)
        # Of each number, the nearest row; rows are sorted by number, and then by distance.
        order = np.lexsort((np.abs(exact - frames), frames))
        first = np.append(True, np.diff(frames[order]) > 0) if frames.size else np.zeros(0, bool)
        keep = np.sort(order[first])
        return dataclasses.replace(self.take(keep), frames=frames[keep], fps=fps)


@dataclasses.dataclass(frozen=True, eq=False)
class Video:
    """Phases and tools of one video at the same frames.

    Attributes:
        id: the video's identifier.
        frames: (n,) int64 frame numbers common to both tracks.
        fps: frames per second of the frame counter.
        phases: the phase track at `frames`, or None.
        tools: the tool track at `frames`, or None.
        notices: messages about rows that were dropped to match the two tracks.
    """

    id: str
    frames: np.ndarray
    fps: float
    phases: Track | None = None
    tools: Track | None = None
    notices: tuple[str, ...] = ()

    @property
    def tracks(self) -> tuple[Track, ...]:
        """The tracks that are present, phases first."""
        return tuple(track for track in (self.phases, self.tools) if track is not None)


def with_notices(tracks: Sequence[Track], notices: Sequence[str]) -> list[Track]:
    """Return tracks with further notices, with each of them: a selection of the tracks then keeps the notices.

    Args:
        tracks: the tracks that the notices are about.
        notices: messages for the user; those that a track has already are not repeated.
    """
    if not notices:
        return list(tracks)
    return [dataclasses.replace(t, notices=tuple(dict.fromkeys((*t.notices, *notices)))) for t in tracks]


def frame_span(frames: np.ndarray) -> str:
    """Describe the range of frame numbers, for messages."""
    return f"frame {frames[0]}" if frames.size == 1 else f"frames {frames[0]} to {frames[-1]}"

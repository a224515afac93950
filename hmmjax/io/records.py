"""What a file says about one video, and what several files say of it together."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.names import permutation


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a track was written in its file, so that results can be written the same way.

    Attributes:
        format: "text" (tabs or spaces), "csv", "npz", "npy", "cadene", "detections" or "answers".
        kind: "labels", "probabilities" or "logits", as they stand in the file.
        delimiter: between cells of a row.
        header: the header line as read, or None without one.
        header_columns: the number of columns in the table, Frame included.
        frame_column: the position of the Frame column.
        columns: the positions of this track's columns.
        newline: line ending.
        trailing: whether rows end with a delimiter.
        spelling: phase names as this file spells them, for files that hold names; None for indices.
        key: the array's name in an npz, or None.
        frames_key: the name of its frames' array, or None where there is none.
        heads: (n,) beginnings of rows that are copied through unread.
    """

    format: str
    kind: str
    delimiter: str = "\t"
    header: str | None = None
    header_columns: int = 0
    frame_column: int = 0
    columns: tuple[int, ...] = ()
    newline: str = "\n"
    trailing: bool = False
    spelling: tuple[str, ...] | None = None
    key: str | None = None
    frames_key: str | None = None
    heads: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Track:
    """One video's phases or tools, frame by frame, from one file.

    Attributes:
        video: the video's identifier, for instance "video41" (see `hmmjax.io.video_id`).
        track: "phases" or "tools".
        frames: (n,) int64 frame numbers as on disk, strictly increasing.
        values: phases are int32 labels (n,), -1 unknown, or float64 probabilities (n, L); tools are int32 0, 1 or -1
            (n, K), or float64 probabilities of presence (n, K).
        names: the classes in the order of `values`, or None where the file only has indices.
        fps: how many of the counter's frames make a second (25 on Cholec80, also when only each 25th is there).
        layout: how the file was written.
        source: the file.
        notices: what the reader thinks a person should know.
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

    @property
    def is_labels(self) -> bool:
        """Whether `values` are labels and not probabilities."""
        return self.values.dtype.kind == "i"

    @property
    def num_classes(self) -> int | None:
        """L or K; None for phase indices without names, whose number is not in the file."""
        if self.names is not None:
            return len(self.names)
        return self.values.shape[1] if self.values.ndim == 2 else None

    @property
    def seconds(self) -> np.ndarray:
        """(n,) float64 times in seconds."""
        return self.frames / self.fps

    def labels(self, threshold: float = 0.5) -> np.ndarray:
        """Labels as read, or of probabilities the most probable phase and the tools at or above `threshold`.

        Args:
            threshold: of tools' probabilities.

        Returns:
            int32 phases (n,) or tools (n, K).
        """
        if self.is_labels:
            return self.values
        if self.track == "phases":
            return self.values.argmax(-1).astype(np.int32)
        return (self.values >= threshold).astype(np.int32)

    def take(self, rows: np.ndarray) -> "Track":
        """The given rows only.

        Args:
            rows: positions, or a boolean mask (n,).

        Returns:
            The track of those frames.
        """
        layout = self.layout
        if layout.heads:
            layout = dataclasses.replace(layout, heads=tuple(np.array(layout.heads, dtype=object)[rows]))
        return dataclasses.replace(self, frames=self.frames[rows], values=self.values[rows], layout=layout)

    def reorder(self, names: Sequence[str]) -> "Track":
        """The same track with its classes in the order of `names`, matched by name.

        Args:
            names: the classes in the wanted order; spelling may differ in case, spaces, underscores and hyphens.

        Returns:
            The track, with `names` for its own.

        Raises:
            FormatError: when the names differ, or when this file has indices only and their order was not given.
        """
        if self.names is None:
            option = "phase_names" if self.track == "phases" else "tool_names"
            raise FormatError(
                f"{self.track} are given by index only, and other files name theirs",
                file=self.source,
                fix=f"say which class each index means: {option}='cholec80' or a list in the file's own order",
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
        """The same track with frame numbers on a counter of `fps` frames per second; times do not change.

        Args:
            fps: frames per second of the new counter, positive.

        Returns:
            The track; frames that fall between two numbers of the new counter are left out.
        """
        if fps == self.fps:
            return self
        exact = self.frames * (fps / self.fps)
        frames = np.rint(exact).astype(np.int64)
        keep = np.abs(exact - frames) < 1e-6
        return dataclasses.replace(self.take(keep), frames=frames[keep], fps=fps)


@dataclasses.dataclass(frozen=True, eq=False)
class Video:
    """Phases and tools of one video, on the same frames.

    Attributes:
        id: the video's identifier.
        frames: (n,) int64 frame numbers common to both tracks.
        fps: the counter's frames per second.
        phases: the phase track, with exactly `frames`; None without one.
        tools: the tool track, likewise.
        notices: what was left out to make them agree.
    """

    id: str
    frames: np.ndarray
    fps: float
    phases: Track | None = None
    tools: Track | None = None
    notices: tuple[str, ...] = ()

    @property
    def tracks(self) -> tuple[Track, ...]:
        """The tracks there are, phases first."""
        return tuple(track for track in (self.phases, self.tools) if track is not None)

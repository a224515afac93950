"""Which videos a model is learned from, and which it is applied to: by part, by name, or by a file of names."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from hmmjax.data.splits import check_disjoint, recording
from hmmjax.io import FormatError, Track, natural, select, video_id
from hmmjax.io.choose import absent_numbers, did_you_mean, in_words, spans
from hmmjax.io.manifest import SUFFIXES, read_names
from hmmjax.io.parts import TRAIN, part_name
from hmmjax.stabilize.settings import Choice, Settings


@dataclasses.dataclass(frozen=True)
class Split:
    """Videos to learn from and videos to stabilize; no recording is in both.

    Attributes:
        learn_from: names of the videos to learn from, in natural order; empty with a given model.
        apply_to: names of the videos to stabilize and to score.
        words: what was asked for, in words, such as "val"; "51-65 without 61-65" if some of it is not predicted.
        doubts: notices about videos that are not predicted, and about choices that contradict the recorded parts.
    """

    learn_from: tuple[str, ...]
    apply_to: tuple[str, ...]
    words: tuple[str, str]
    doubts: tuple[str, ...] = ()

    @property
    def protocol(self) -> str:
        """How the scored videos relate to the videos learned from, in words."""
        first, second = (f" ({word})" if word else "" for word in self.words)
        learned, applied = len(self.learn_from), len(self.apply_to)
        return f"learned from {_videos(learned)}{first}, applied to {applied} other{'s' * (applied != 1)}{second}"

    @property
    def notice(self) -> str:
        """Which videos are used for what, by name."""
        learned, applied = spans(self.learn_from), spans(self.apply_to)
        return f"the model was learned from {learned} and applied to {applied}; only the latter are written and scored"

    def learning(
        self,
        predictions: Sequence[Track],
        annotations: Sequence[Track],
        fuse: Sequence[Sequence[Track]],
        transitions: Sequence[Track],
    ) -> dict[str, Any]:
        """Return the arguments of `prepare_inputs` for learning: nothing of the videos to stabilize is among them.

        Args:
            predictions: of the first recognizer.
            annotations: of some of the videos.
            fuse: predictions of further recognizers.
            transitions: labeled tracks in which transitions are to be counted.

        Raises:
            FormatError: none of the videos to learn from is annotated although others are, or all videos in which
                transitions should be counted are to be stabilized.
        """
        own, held_out = set(self.learn_from), {recording(video) for video in self.apply_to}
        known, others = _of(annotations, own), [t for t in transitions if recording(t.video) not in held_out]
        if annotations and not known:
            raise FormatError(
                f"none of the videos to learn from is annotated: {spans(self.learn_from)}",
                fix="annotate some of them, or choose others (learn_from, --learn-from)",
            )
        if transitions and not others:
            raise FormatError(
                "transitions would be counted in the videos that are scored, and in no others",
                fix="give annotations of further videos (--transitions-from), or none: then the videos to learn from "
                "are counted",
            )
        sources = [found for source in fuse if (found := _of(source, own))]
        if len(sources) < len(fuse) or not _of(predictions, own):
            raise FormatError(
                "a recognizer predicts none of the videos to learn from",
                fix="give its predictions of these videos, or leave the recognizer out",
            )
        return {"predictions": _of(predictions, own), "annotations": known, "fuse": sources, "transitions": others}

    def applying(
        self, predictions: Sequence[Track], annotations: Sequence[Track], fuse: Sequence[Sequence[Track]]
    ) -> dict[str, Any]:
        """Return the arguments of `prepare_inputs` for the videos to stabilize.

        Args:
            predictions: of the first recognizer.
            annotations: of some of the videos.
            fuse: predictions of further recognizers.

        Raises:
            FormatError: a recognizer predicts none of them.
        """
        own = set(self.apply_to)
        sources = [_of(source, own) for source in (predictions, *fuse)]
        if not all(sources):
            raise FormatError(
                "a recognizer predicts none of the videos to stabilize",
                fix="give its predictions of these videos, or leave the recognizer out",
            )
        return {
            "predictions": sources[0],
            "annotations": _of(annotations, own),
            "fuse": sources[1:],
            "learns": False,
        }


def find_split(sources: Sequence[Sequence[Track]], settings: Settings, *, learns: bool = True) -> Split | None:
    """Return the videos that the settings ask for; None if they leave both to cross-validation.

    If only one of `learn_from` and `apply_to` is set, the other is all further videos.

    Args:
        sources: the predictions of each recognizer.
        settings: `learn_from` and `apply_to` are used.
        learns: whether a model is learned, and not given.

    Raises:
        FormatError: a choice names no video, a video that is not predicted, or both name the same recording.
        ValueError: `learn_from` is set, but the model is given.
    """
    tracks = [track for source in sources for track in source]
    if not learns and settings.learn_from is not None:
        raise ValueError(
            "a given model learns nothing, so learn_from (--learn-from) cannot apply. Leave out one or the other"
        )
    if settings.learn_from is None and settings.apply_to is None:
        return None
    every = {track.video for track in tracks}
    first = choose_videos(tracks, settings.learn_from, "learn_from (--learn-from)")
    second = choose_videos(tracks, settings.apply_to, "apply_to (--apply-to)")
    if not learns:
        first = set()
    elif first is None:
        first = every - (second or set())
    elif second is None:
        second = every - first
    for name, found in (("learn from", first if learns else every), ("apply the model to", second)):
        if not found:
            raise FormatError(f"no video is left to {name}", fix="choose fewer videos for the other")
    try:
        check_disjoint({"learn_from": first or (), "apply_to": second or ()})
    except FormatError as error:
        raise FormatError(
            f"{error.cause}, so that the scores would be of videos that were learned from",
            fix="remove them from one of the two",
        ) from None
    words = (_describe(tracks, settings.learn_from), _describe(tracks, settings.apply_to))
    learned, applied = (tuple(sorted(videos or (), key=natural)) for videos in (first, second))
    asked = [word for word in words if " without " in word]
    doubts = [f"no predictions: {'; '.join(asked)}"] if asked else []
    return Split(learned, applied, words, (*doubts, *_contradictions(tracks, settings, learned, applied)))


def _contradictions(
    tracks: Sequence[Track], settings: Settings, learned: Sequence[str], applied: Sequence[str]
) -> list[str]:
    """Return notices about videos that are used otherwise than the predictions record; parts by name are intended."""
    recorded = _parts(tracks)
    notices = []
    for videos, choice, others, use in (
        (learned, settings.learn_from, (TRAIN, "test"), "the model is learned from them"),
        (applied, settings.apply_to, (TRAIN, "val"), "the model is applied to them"),
    ):
        if isinstance(choice, str) and part_name(choice) in recorded:
            continue
        for part in others:
            found = recorded.get(part, set()) & set(videos)
            if found and not (part == TRAIN and settings.training_videos):
                notices.append(f"{spans(found)} {_are(found)} {part} in the predictions' file, but {use}")
    return notices


def _are(videos: set[str]) -> str:
    return "is" if len(videos) == 1 else "are"


def check_classes(tracks: Sequence[Track], num_phases: int) -> None:
    """Raise FormatError if predictions without class names have phases that the videos learned from do not have.

    Args:
        tracks: predictions of the videos to stabilize.
        num_phases: L of the model that was learned.

    Raises:
        FormatError: a phase has a greater index than any that was learned.
    """
    for track in tracks:
        if (
            track.track == "phases"
            and track.num_classes is None
            and (largest := track.values.max(initial=-1)) >= num_phases
        ):
            raise FormatError(
                f"phase {largest} is predicted in {track.video}, but the videos to learn from have phases 0 to "
                f"{num_phases - 1} only",
                file=track.source,
                fix="name all phases (phase_names, --phase-names), or learn from videos that show all of them",
            )


def choose_videos(tracks: Sequence[Track], choice: Choice, option: str) -> set[str] | None:
    """Return the videos that a choice names.

    Args:
        tracks: the predictions.
        choice: names of videos; or a string: a part that the predictions name ("val"), numbers and names as in
            `hmmjax.io.select` ("33-40,62"), or a file of names (`hmmjax.io.manifest.read_names`). None is no choice.
        option: the choice's name, for messages.

    Returns:
        Names of videos; None without a choice.

    Raises:
        FormatError: the choice names no video, or one that is not predicted.
    """
    if choice is None:
        return None
    if isinstance(choice, os.PathLike):
        choice = os.fspath(choice)
    if not isinstance(choice, str):
        return _named(tracks, choice, option)
    parts = _parts(tracks)
    if found := parts.get(part_name(choice)):
        return found
    if choice.endswith(SUFFIXES) or os.path.isfile(choice):
        return _named(tracks, read_names(choice), f"{option}, {choice}")
    try:
        return {track.video for track in select(tracks, choice)}
    except FormatError as error:
        told = ", ".join(f"{part or 'no name'} ({_videos(len(videos))})" for part, videos in sorted(parts.items()))
        told = f"their parts are {told}" if parts else "they do not tell parts (part_<video> of an NPZ)"
        raise FormatError(
            f"{option}={choice!r}: {error.cause} of the predictions; {told}",
            fix=f"give predictions of these videos too, or {error.fix}",
        ) from None


def _parts(tracks: Sequence[Track]) -> dict[str, set[str]]:
    """Return the videos of each part that the predictions record."""
    parts: dict[str, set[str]] = {}
    for track in tracks:
        if track.part is not None:
            parts.setdefault(part_name(track.part), set()).add(track.video)
    return parts


def _named(tracks: Sequence[Track], names: Sequence[str], option: str) -> set[str]:
    """Return the videos of these names; each must be predicted."""
    every = {track.video for track in tracks}
    found = {name: name if name in every else video_id(name) for name in names}
    missing = [name for name, video in found.items() if video not in every]
    if missing:
        listed = f"{', '.join(missing[:5])}{', ...' * (len(missing) > 5)}"
        raise FormatError(
            f"{option} names {_videos(len(missing))} without predictions: {listed}{did_you_mean(missing[0], every)}",
            fix=f"choose among {spans(every)}",
        )
    return set(found.values())


def _of(tracks: Sequence[Track], videos: set[str]) -> list[Track]:
    return [track for track in tracks if track.video in videos]


def _describe(tracks: Sequence[Track], choice: Choice) -> str:
    """Return a choice in words: itself, unless it lists names, and which of its numbers are not predicted."""
    if choice is None or not isinstance(choice, str):
        return ""
    named = part_name(choice) in _parts(tracks) or os.path.isfile(choice)
    absent = [] if named else absent_numbers({track.video for track in tracks}, choice)
    return os.path.basename(choice) + (f" without {in_words(absent)}" if absent else "")


def _videos(count: int) -> str:
    return f"{count} video{'s' * (count != 1)}"

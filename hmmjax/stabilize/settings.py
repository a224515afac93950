"""The settings of `stabilize`, in one immutable object that every step takes."""

import dataclasses
import difflib
import numbers
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hmmjax.emissions.registry import families_named
from hmmjax.priors import Priors
from hmmjax.selection import METRICS

#: Called with a stage's name, the number of parts done, and the number of parts (0: unknown).
Progress = Callable[[str, int, int], None]

#: Pseudo-counts for a model of which nothing is known in advance. A phase change that no labeled video shows is very
#: unlikely but not impossible; tools and recognizers behave as if every event had been seen about once.
PRIORS = Priors(
    phase_initial=0.1,
    phase_transition=1e-8,
    phase_emission=1.0,
    tool_initial=0.5,
    tool_transition=0.5,
    tool_emission=1.0,
)

AUTO = "auto"
"""The value of `Settings.emissions` that leaves the choice to inner folds."""

#: What `Settings.learn_from` and `Settings.apply_to` take: a string or a path, or names. Kept as a string or a tuple.
Choice = str | os.PathLike[str] | Sequence[str] | None

LEARN = ("auto", "count", "calibrate", "refine", "tune")
"""Values of `Settings.learn`."""

_RENAMED = {"iterations": "max_iterations"}


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to learn, hold out and stabilize.

    Attributes:
        emissions: name of the emission family, one of `hmmjax.emissions.FAMILIES`, or "auto": models are trained for
            the labels one by one and mixed, and the recognizer is kept where that is no better on inner folds
            (`hmmjax.stabilize.auto`); where there is nothing to choose by, "confusion" is taken and a notice says so.
            "confusion" and "logistic" turn probabilities into labels first.
        folds: number of parts into which the annotated videos are split. Each part is stabilized by a model learned
            from the others. None holds out one video at a time.
        max_iterations: maximum number of EM iterations. None means 0 if counting labeled frames suffices (some video
            is labeled throughout: no more than 1% of its frames lack a label), and 100 otherwise.
        priors: pseudo-counts of the model's probabilities.
        hidden_phases: with tool predictions only, and phases among the labels: keep the phases in the model and infer
            them from the tools. False models independent tools.
        calibrated: weight the emission log-likelihood of each frame with powers found by `hmmjax.calibrate`, because
            a network's errors are correlated over time. Needs labels and no EM. None calibrates if each model learns
            from at least `ENOUGH_VIDEOS` annotated videos, unless the emissions have memory: those already account
            for errors that last. The online filter is never calibrated.
        anchored: hold emissions that EM learns to the labeled frames and to a recognizer that is mostly right
            (`hmmjax.anchor`). False lets unlabeled frames change what a recognizer's classes mean.
        stages: model how long phases last, with the number of stages that `hmmjax.durations` chooses for each phase.
            Takes several times as long.
        step: frame numbers per time step of the model. None uses the spacing of the predictions.
        threshold: probability at or above which a tool is present, for families of labels.
        relaxed: add metrics with relaxed boundaries to the table. They need the phases of Cholec80.
        learn: "count" the tables in labeled frames, "calibrate" them too, "refine" them for single labels (offline
            and online apart), "tune" (the same, with the penalty and the number of iterations chosen on inner folds of
            the videos learned from; takes minutes), or "auto": what "auto" emissions choose, and for named families
            `calibrated`.
        metric: what "auto" emissions compare on inner folds, one of `hmmjax.selection.METRICS`. Cannot be given with
            a named family or a way of learning, for which nothing is compared.
        training_videos: learn from and score annotated videos that the recognizer was trained on, as far as the
            predictions tell. Otherwise they are refused, because a recognizer's errors there are fewer than elsewhere.
        learn_from: videos that the model is learned from, in place of cross-validation: names; or a string: the part
            that they had in the recognizer's training, as the predictions tell it ("val"), numbers and names
            ("33-40,62"), or a file of names (`hmmjax.io.manifest.read_names`). Nothing of other videos reaches the
            model, except that transitions may be counted in further ones.
        apply_to: videos that are stabilized and scored, in the same form ("test"); no others are part of the result.
            If only one of the two is set, the other is all further videos. None for both holds out folds.
    """

    emissions: str = "auto"
    folds: int | None = 5
    max_iterations: int | None = None
    priors: Priors = PRIORS
    hidden_phases: bool = True
    calibrated: bool | None = None
    anchored: bool = True
    stages: bool = False
    step: int | None = None
    threshold: float = 0.5
    relaxed: bool = False
    learn: str = "auto"
    metric: str = "log-loss"
    training_videos: bool = False
    learn_from: Choice = None
    apply_to: Choice = None

    @property
    def has_split(self) -> bool:
        """Whether the videos to learn from and to stabilize are given, rather than held out in turn."""
        return self.learn_from is not None or self.apply_to is not None

    @property
    def chooses(self) -> bool:
        """Whether models are to be chosen on inner folds, if the videos allow it."""
        return self.emissions == AUTO and self.learn == AUTO and self.calibrated is None and not self.stages

    @property
    def calibrates(self) -> bool | None:
        """What the settings say together about powers: yes, no, or None by the number of videos."""
        by_learn = {"count": False, "calibrate": True, "refine": False, "tune": False}
        if self.calibrated is not None or self.learn in by_learn:
            return by_learn.get(self.learn) if self.calibrated is None else self.calibrated
        return False if self.has_memory else None

    @property
    def has_memory(self) -> bool:
        """Whether the emissions condition on earlier outputs, and so account for errors that last without powers."""
        return any(family.lag for family in families_named(self.family))

    @property
    def spared_by_memory(self) -> bool:
        """Whether models are left uncalibrated because of the emissions alone."""
        return self.calibrated is None and self.learn == AUTO and self.has_memory

    @property
    def family(self) -> str:
        """Name of the emission family that is counted; "auto" starts from "confusion"."""
        return "confusion" if self.emissions == AUTO else self.emissions

    def named(self, **changes: Any) -> "Settings":
        """Return settings with changes by which nothing is chosen, and hence no metric to compare by.

        Args:
            changes: new values by name.
        """
        return dataclasses.replace(self, metric="log-loss", **changes)

    def __post_init__(self) -> None:
        if self.emissions != AUTO:
            families_named(self.emissions)
        for name, allowed in (("learn", LEARN), ("metric", METRICS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r} is unknown. Choose {', '.join(allowed)}.")
        for name in ("learn_from", "apply_to"):
            object.__setattr__(self, name, _as_choice(name, getattr(self, name)))
        if self.folds is None and self.has_split:
            raise ValueError(
                "folds=None (--leave-one-out) holds out one video at a time, but learn_from or apply_to (--learn-from, "
                "--apply-to) say which videos are held out. Leave out one or the other."
            )
        for name in ("folds", "max_iterations", "step"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Integral)):
                raise TypeError(f"{name}={value!r} is not an integer. Give a whole number, or None.")
        if self.learn != "auto" and self.calibrated is not None and self.calibrated != (self.learn == "calibrate"):
            option = "calibrated=True (--calibrate)" if self.calibrated else "calibrated=False (--no-calibrate)"
            raise ValueError(f"learn={self.learn!r} and {option} contradict each other. Leave out one of them.")
        if self.metric != "log-loss" and not self.chooses:
            raise ValueError(
                f'metric={self.metric!r} (--metric) is what emissions="auto" compares, but a family or a way of '
                "learning was given (emissions, learn, calibrated or stages; --emissions, --learn, --calibrate or "
                "--durations), so that nothing is compared. Leave out one or the other."
            )
        if self.learn in ("refine", "tune") and self.stages:
            raise ValueError(
                f"learn={self.learn!r} trains phases without stages. Leave out stages (--durations) or learn."
            )
        if self.folds is not None and self.folds < 2:
            raise ValueError(
                f"folds={self.folds} leaves nothing to learn from. Give at least 2 parts, or folds=None "
                "(--leave-one-out) to hold out one video at a time."
            )
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold={self.threshold:g} is not a probability. Give a number from 0 to 1.")
        if self.max_iterations is not None and self.max_iterations < 0:
            raise ValueError(f"max_iterations={self.max_iterations} is negative. Give 0 or more, or None.")
        if self.step is not None and self.step < 1:
            raise ValueError(f"step={self.step} is not a number of frames. Give 1 or more, or None.")


def _as_choice(name: str, value: Any) -> str | tuple[str, ...] | None:
    """Return a choice of videos as a string or a tuple of names."""
    if value is None:
        return None
    if isinstance(value, str | os.PathLike):
        value = os.fspath(value)
    elif isinstance(value, Iterable):
        value = tuple(value)
    if not isinstance(value, str | tuple) or not all(isinstance(video, str) for video in value):
        raise TypeError(f'{name}={value!r} names no videos. Give names, or a string: a part, such as "val", or a file.')
    if not value:
        raise ValueError(f"{name}={value!r} is empty. Give at least one video, or None.")
    return value


def with_overrides(settings: Settings | None, overrides: Mapping[str, Any]) -> Settings:
    """Return settings with some fields replaced.

    Args:
        settings: the settings to start from; None starts from the defaults.
        overrides: new values by field name.

    Raises:
        TypeError: a name is not a field of `Settings`.
    """
    names = [field.name for field in dataclasses.fields(Settings)]
    found: dict[str, Any] = {}
    for name, value in overrides.items():
        if name in _RENAMED:
            message = f"{name}= is deprecated and will be removed in the next release. Use {_RENAMED[name]}= instead."
            warnings.warn(message, DeprecationWarning, stacklevel=3)
            name = _RENAMED[name]
            if name in overrides:
                raise TypeError(f"{name}= is given twice, the second time under its old name. Give it once.")
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Settings are {', '.join(names)}."
            raise TypeError(f"there is no setting {name!r}. {hint}")
        found[name] = value
    return dataclasses.replace(settings or Settings(), **found)


def ignore_progress(stage: str, done: int, total: int) -> None:
    """Report nothing."""

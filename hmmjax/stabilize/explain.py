"""Say in words what `hmmjax.stabilize.auto` chose, and how sure that is."""

from collections.abc import Sequence

import numpy as np

from hmmjax.selection import Choice
from hmmjax.stabilize.auto import BEST_ON_OTHERS, ENOUGH_TO_CHOOSE, Chosen
from hmmjax.types import Observations

IN_WORDS = {
    "counted": "a model of the recognizer's errors as counted",
    "counted, restarts": "a model of the recognizer's errors as counted, which can recover from a wrong phase",
    "shrunk": "a model that takes the recognizer to be mostly right",
    "slow": "a model that ignores errors of the recognizer even if they last",
    "trained": "a model trained on the labels of single frames",
    "trained, restarts": "a model trained on the labels of single frames, which can recover from a wrong phase",
    "trained, scores": "a model of the recognizer's scores, trained on the labels of single frames",
    "scores": "a model of the recognizer's scores",
    "mixture": "the average of {count} models",
    "mean": "the average of {count} models",
}
"""Options in words."""

TRIED_ON = {"phases": "TMRNet and MS-TCN", "tools": "Faster R-CNN"}
"""Recognizers on which the models of `BEST_ON_OTHERS` were tried."""

MOST_NAMED = 8
"""Largest number of tools that are named one by one."""


def describe(
    parts: Sequence[Chosen], final: Chosen, scores: Observations, tools: Sequence[str] | None = None
) -> list[str]:
    """Describe what was chosen from all videos, one sentence per track and mode.

    Args:
        parts: what was chosen with each fold held out.
        final: what was chosen from all videos. Videos without annotations get it.
        scores: the recognizer's outputs.
        tools: names of the tools; None if no file names them.
    """
    found = []
    for (track, mode), choice in final.choices.items():
        kind = "labels" if np.asarray(getattr(scores, track)).dtype.kind != "f" else "scores"
        text = f"{track}, {mode}: {_option(choice, track, kind, tools)}"
        if choice.losses:
            text += _exceptions(parts, final, (track, mode))
        else:
            text += _too_few(final.videos[track], [part.videos[track] for part in parts])
        found.append(text)
    return found


def _option(choice: Choice, track: str, kind: str, tools: Sequence[str] | None) -> str:
    """Return what was chosen, and how much better it is than the recognizer."""
    if not choice.losses:
        return _taken(choice, track)
    if _is_unchanged(choice):
        return (
            "no model was reliably better than the recognizer on annotated videos held out, so its predictions are "
            "left unchanged"
        )
    chosen = _in_words(str(choice.option), choice) if track == "phases" else _tools(choice, tools)
    share = np.atleast_1d(choice.share)
    kept = sorted({f"{x:.0%}" for x in share[share < 1] if x}, key=lambda text: int(text[:-1]))
    if kept:
        own = "prediction" if track == "phases" else kind
        chosen += f", mixed with {' to '.join(dict.fromkeys((kept[0], kept[-1])))} of the recognizer's own {own}"
    left = [k for k in range(share.size) if share[k] == 1]
    if left:
        chosen += f"; {_named(left, tools)} {'stays' if len(left) == 1 else 'stay'} as predicted"
    return f"{chosen} ({_gain(choice, track)})"


def _tools(choice: Choice, names: Sequence[str] | None) -> str:
    """Return which model each tool gets."""
    groups = {name: [k for k, x in enumerate(choice.option) if x == name] for name in dict.fromkeys(choice.option)}
    groups.pop("recognizer", None)
    if len(groups) == 1 and len(next(iter(groups.values()))) == len(choice.option) > 1:
        return f"{_in_words(next(iter(groups)), choice)} for all {len(choice.option)} tools"
    return ", and ".join(f"{_in_words(name, choice)} for {_named(which, names)}" for name, which in groups.items())


def _named(which: Sequence[int], names: Sequence[str] | None) -> str:
    """Return the names of tools, or how many they are if no file names them or they are many."""
    if names is None or len(which) > MOST_NAMED:
        return f"{len(which)} tool{'' if len(which) == 1 else 's'}"
    return ", ".join(names[k] for k in which)


def _too_few(videos: int, left: Sequence[int]) -> str:
    """Say why no choice was made.

    Args:
        videos: number of annotated videos.
        left: how many of them are left with each fold held out.
    """
    text = f"too few annotated videos to choose by: {ENOUGH_TO_CHOOSE} are needed, and "
    if not left:
        return f" ({text}there {'is' if videos == 1 else 'are'} {videos})"
    text += f"with a fold held out {min(left)} of {videos} {'is' if min(left) == 1 else 'are'} left"
    return f" ({text}{', so that no other video gets a choice either' if videos >= ENOUGH_TO_CHOOSE else ''})"


def _exceptions(parts: Sequence[Chosen], final: Chosen, key: tuple[str, str]) -> str:
    """Say in which folds no choice was made, or the recognizer left unchanged though it is not with all videos."""
    choices, text = [part.choices[key] for part in parts], ""
    if without := [i for i, choice in enumerate(choices) if not choice.losses]:
        left = max(parts[i].videos[key[0]] for i in without)
        text += (
            f" ({_folds(without)} held out, {left} annotated video{' is' if left == 1 else 's are'} left to choose by, "
            f"{ENOUGH_TO_CHOOSE} are needed, and the videos held out get another model: "
            f"{_taken(choices[without[0]], key[0])})"
        )
    own = _is_unchanged(final.choices[key])
    if unlike := [i for i, choice in enumerate(choices) if choice.losses and _is_unchanged(choice) != own]:
        what = "a model was better, and changes the videos of that fold" if own else "nothing is changed"
        text += f" (but {_folds(unlike)} held out, {what})"
    return text


def _folds(which: Sequence[int]) -> str:
    return f"with fold{'' if len(which) == 1 else 's'} {', '.join(str(i + 1) for i in which)}"


def _is_unchanged(choice: Choice) -> bool:
    return bool((np.asarray(choice.share) == 1).all())


def _taken(choice: Choice, track: str) -> str:
    return f"{BEST_ON_OTHERS[str(choice.option)]}, which worked best in our tests on {TRIED_ON[track]}"


def _gain(choice: Choice, track: str) -> str:
    """Return the gain over the recognizer and its standard error over videos, in a metric that readers know."""
    assert choice.comparison is not None
    metric, own, chosen, error = choice.comparison
    gain = 100 * (chosen - own)
    change = f"a {'gain' if gain >= 0 else 'loss'} of {abs(gain):.1f}"
    change += f" ± {100 * error:.1f} percentage points, one standard error over videos" if error == error else " points"
    what = "frames are" if track == "phases" else "decisions on tools are"
    if metric == "average precision":
        text = f"the mean average precision is {chosen:.1%}, that of the recognizer {own:.1%}"
    else:
        text = f"{chosen:.1%} of the {what} right, {own:.1%} in the recognizer's prediction"
    return f"on annotated videos held out, {text}: {change}"


def _in_words(name: str, choice: Choice) -> str:
    return IN_WORDS[name].format(count=len(choice.weights))

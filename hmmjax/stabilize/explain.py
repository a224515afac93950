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
    "scores": "a model of the recognizer's scores",
    "mixture": "the average of {count} models",
    "mean": "the average of {count} models",
}
"""Options in words."""


def describe(parts: Sequence[Chosen], final: Chosen, scores: Observations, metric: str) -> list[str]:
    """Describe what was chosen from all videos, one sentence per track and mode.

    Args:
        parts: what was chosen with each fold held out.
        final: what was chosen from all videos.
        scores: the recognizer's outputs.
        metric: by which was chosen, one of `hmmjax.selection.METRICS`.
    """
    found = []
    for (track, mode), choice in final.choices.items():
        is_certain = np.asarray(getattr(scores, track)).dtype.kind != "f"
        text = f"{track}, {mode}: {_option(choice, track, metric, is_certain)}"
        without = [i for i, part in enumerate(parts) if not part.choices[track, mode].losses]
        if choice.losses and not without:
            found.append(text + _exceptions([part.choices[track, mode] for part in parts], choice))
            continue
        if not choice.losses and final.videos[track] < ENOUGH_TO_CHOOSE:
            text += f" (only {_count(final.videos[track])} to choose from, {ENOUGH_TO_CHOOSE} are needed)"
        elif without:
            fold = min(without, key=lambda i: parts[i].videos[track])
            left = _count(parts[fold].videos[track])
            text += f" (with fold {fold + 1} held out, only {left} left to choose from, {ENOUGH_TO_CHOOSE} are needed"
            text += f"; there, {_taken(parts[fold].choices[track, mode])})" if choice.losses else ")"
        found.append(text)
    return found


def _option(choice: Choice, track: str, metric: str, is_certain: bool) -> str:
    """Return what was chosen, and how much better it is than the recognizer."""
    if not choice.losses:
        return _taken(choice)
    if _is_unchanged(choice):
        return (
            "no model was reliably better than the recognizer on annotated videos held out, so its predictions are "
            "left unchanged"
        )
    share = np.atleast_1d(choice.share)
    proof = f"on annotated videos held out, {_gain(choice, track, metric, is_certain)}"
    if track == "phases":
        kept = f", mixed with {float(share[0]):.0%} of the recognizer's own prediction" if share[0] else ""
        return f"{_in_words(str(choice.option), choice)}{kept} ({proof})"
    counts = {name: choice.option.count(name) for name in dict.fromkeys(choice.option) if name != "recognizer"}
    taken = ", ".join(f"{_in_words(name, choice)} for {count}" for name, count in counts.items())
    kept = share[share < 1]
    mixed = f", mixed with {kept.min():.0%} to {kept.max():.0%} of the recognizer's own scores" if kept.any() else ""
    return f"{(share < 1).sum()} of {share.size} tools change ({taken}){mixed}; the others stay as predicted ({proof})"


def _exceptions(parts: Sequence[Choice], final: Choice) -> str:
    """Say in which folds the recognizer was left unchanged though it is not with all videos, or the reverse."""
    unlike = [i + 1 for i, part in enumerate(parts) if _is_unchanged(part) != _is_unchanged(final)]
    if not unlike:
        return ""
    where = f"fold{'' if len(unlike) == 1 else 's'} {', '.join(map(str, unlike))}"
    what = "a model was better, and changes the videos of that fold" if _is_unchanged(final) else "nothing is changed"
    return f" (but with {where} held out, {what})"


def _is_unchanged(choice: Choice) -> bool:
    return bool((np.asarray(choice.share) == 1).all())


def _taken(choice: Choice) -> str:
    return f"{BEST_ON_OTHERS[str(choice.option)]}, which worked best for other recognizers"


def _count(videos: int) -> str:
    return f"{videos} annotated video{'' if videos == 1 else 's'}"


def _gain(choice: Choice, track: str, metric: str, is_certain: bool) -> str:
    """Return the gain over the recognizer and its standard error over videos, for readers who know no log-loss."""
    own, margin = choice.losses["recognizer"], choice.margin
    knows = choice.error == choice.error
    if metric == "accuracy":
        error = f" ± {100 * choice.error:.1f} (one standard error)" if knows else ""
        what = "frames" if track == "phases" else "decisions on tools"
        return (
            f"{1 - own + margin:.1%} of the {what} are right, of the recognizer's {1 - own:.1%}: "
            f"{100 * margin:.1f}{error} percentage points more"
        )
    what = "the true phase" if track == "phases" else "the truth about each tool"
    certain = ", whose labels count as certain," if is_certain else ""
    few, many = np.exp(margin - choice.error), np.exp(margin + choice.error)
    error = f" ({few:.3g} to {many:.3g} times within one standard error)" if knows else ""
    return (
        f"{what} typically gets a probability of {np.exp(margin - own):.2f}, from the recognizer{certain} "
        f"{np.exp(-own):.2f}: {np.exp(margin):.3g} times as much{error}"
    )


def _in_words(name: str, choice: Choice) -> str:
    return IN_WORDS[name].format(count=len(choice.weights))

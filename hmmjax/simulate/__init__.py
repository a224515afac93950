"""Simulate surgeries and the predictions of a recognizer with realistic errors.

Needs only NumPy; the result depends only on the seed. The surgeries follow published statistics of the Cholec80 videos
(frequencies of phase orders, durations of phases, prevalence and persistence of tools); no label file is read. By
default tools are drawn from the law that the hidden Markov model assumes; with `Departures` they come in episodes, a
phase may return, annotations are late, and smoke and blur obscure several tools at a time. The recognizer uses one
formula for both tracks:

    score_t       = score of the true state + drift of the video + correlated noise + flicker
    probability_t = softmax or sigmoid of gain * score_t

Correlated noise causes runs of errors, flicker causes spurious changes, and a large gain causes overconfidence. Phases
are recognized from a window of time, as by recurrent networks: changes are detected late, and flicker is weaker than
for tools, which are recognized per frame. The confidence of the tool recognizer depends only weakly on the distance of
its score from the decision boundary, so that wrong predictions can be confident, too.
"""

from typing import TYPE_CHECKING

from hmmjax._core.deprecation import renamed
from hmmjax.simulate.episodes import Departures, episodic_tools
from hmmjax.simulate.recognizer import Recognizer, recognize_phases, recognize_tools
from hmmjax.simulate.surgeries import (
    MEAN_MINUTES,
    PHASE_ORDERS,
    PHASE_SECONDS,
    PHASE_VIDEOS,
    PHASES,
    TOOL_MISSING,
    TOOL_PERSISTENCE,
    TOOL_USE,
    TOOLS,
    Surgery,
    simulate_phases,
    simulate_surgeries,
    simulate_tools,
    stack,
)

__all__ = [
    "MEAN_MINUTES",
    "PHASES",
    "PHASE_ORDERS",
    "PHASE_SECONDS",
    "PHASE_VIDEOS",
    "TOOLS",
    "TOOL_MISSING",
    "TOOL_PERSISTENCE",
    "TOOL_USE",
    "Departures",
    "Recognizer",
    "Surgery",
    "episodic_tools",
    "recognize_phases",
    "recognize_tools",
    "simulate_phases",
    "simulate_surgeries",
    "simulate_tools",
    "stack",
]

if not TYPE_CHECKING:
    _RENAMED = {
        "Recogniser": "Recognizer",
        "recognise_phases": "recognize_phases",
        "recognise_tools": "recognize_tools",
    }
    __getattr__ = renamed(__name__, _RENAMED)

"""Transition models of the tools given the phase. One file per model."""

from hmmjax.transitions.base import ToolTransition
from hmmjax.transitions.interacting import Interacting
from hmmjax.transitions.phase_conditioned import PhaseConditioned

__all__ = ["Interacting", "PhaseConditioned", "ToolTransition"]

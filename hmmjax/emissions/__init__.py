"""Emission families: what a recognizer says, given what is there. One file per family."""

from hmmjax.emissions.base import Emission, PhaseEmission, ToolEmission
from hmmjax.emissions.beta import ToolBeta
from hmmjax.emissions.confusion import PhaseConfusion, ToolConfusion
from hmmjax.emissions.dirichlet import PhaseDirichlet
from hmmjax.emissions.fused import Fused
from hmmjax.emissions.inflated_beta import ToolInflatedBeta
from hmmjax.emissions.inflated_dirichlet import PhaseInflatedDirichlet
from hmmjax.emissions.logistic import ToolLogistic
from hmmjax.emissions.logit_normal import PhaseLogitNormal, ToolLogitNormal
from hmmjax.emissions.scaled import PhaseScaled, ToolScaled
from hmmjax.emissions.tempered import Tempered

__all__ = [
    "Emission",
    "Fused",
    "PhaseConfusion",
    "PhaseDirichlet",
    "PhaseEmission",
    "PhaseInflatedDirichlet",
    "PhaseLogitNormal",
    "PhaseScaled",
    "Tempered",
    "ToolBeta",
    "ToolConfusion",
    "ToolEmission",
    "ToolInflatedBeta",
    "ToolLogistic",
    "ToolLogitNormal",
    "ToolScaled",
]

"""Emission families: the probability of a recognizer's outputs given the hidden state. One file per family."""

from hmmjax.emissions.anchor import Anchor
from hmmjax.emissions.autoregressive import PhaseAutoregressive, ToolAutoregressive
from hmmjax.emissions.autoregressive_logit_normal import PhaseAutoregressiveLogitNormal, ToolAutoregressiveLogitNormal
from hmmjax.emissions.base import Emission, PhaseEmission, ToolEmission
from hmmjax.emissions.beta import ToolBeta
from hmmjax.emissions.confusion import PhaseConfusion, ToolConfusion
from hmmjax.emissions.dirichlet import PhaseDirichlet
from hmmjax.emissions.fused import Fused
from hmmjax.emissions.gaussian import PhaseGaussian, ToolGaussian
from hmmjax.emissions.inflated_beta import ToolInflatedBeta
from hmmjax.emissions.inflated_dirichlet import PhaseInflatedDirichlet
from hmmjax.emissions.logistic import ToolLogistic
from hmmjax.emissions.logit_normal import PhaseLogitNormal, ToolLogitNormal
from hmmjax.emissions.monotone import ToolMonotone
from hmmjax.emissions.past import Past
from hmmjax.emissions.registry import FAMILIES, LABEL_FAMILIES
from hmmjax.emissions.scaled import PhaseScaled, ToolScaled
from hmmjax.emissions.tempered import Tempered

__all__ = [
    "FAMILIES",
    "LABEL_FAMILIES",
    "Anchor",
    "Emission",
    "Fused",
    "Past",
    "PhaseAutoregressive",
    "PhaseAutoregressiveLogitNormal",
    "PhaseConfusion",
    "PhaseDirichlet",
    "PhaseEmission",
    "PhaseGaussian",
    "PhaseInflatedDirichlet",
    "PhaseLogitNormal",
    "PhaseScaled",
    "Tempered",
    "ToolAutoregressive",
    "ToolAutoregressiveLogitNormal",
    "ToolBeta",
    "ToolConfusion",
    "ToolEmission",
    "ToolGaussian",
    "ToolInflatedBeta",
    "ToolLogistic",
    "ToolLogitNormal",
    "ToolMonotone",
    "ToolScaled",
]

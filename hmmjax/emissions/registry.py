"""Emission families by name, for `hmmjax.init_params`, `hmmjax.estimate` and the command line."""

from hmmjax.emissions.autoregressive import PhaseAutoregressive, ToolAutoregressive
from hmmjax.emissions.autoregressive_logit_normal import PhaseAutoregressiveLogitNormal, ToolAutoregressiveLogitNormal
from hmmjax.emissions.base import PhaseEmission, ToolEmission
from hmmjax.emissions.beta import ToolBeta
from hmmjax.emissions.confusion import PhaseConfusion, ToolConfusion
from hmmjax.emissions.dirichlet import PhaseDirichlet
from hmmjax.emissions.inflated_beta import ToolInflatedBeta
from hmmjax.emissions.inflated_dirichlet import PhaseInflatedDirichlet
from hmmjax.emissions.logistic import ToolLogistic
from hmmjax.emissions.logit_normal import PhaseLogitNormal, ToolLogitNormal
from hmmjax.emissions.scaled import PhaseScaled, ToolScaled

FAMILIES: dict[str, tuple[type[PhaseEmission], type[ToolEmission]]] = {
    "confusion": (PhaseConfusion, ToolConfusion),
    "autoregressive": (PhaseAutoregressive, ToolAutoregressive),
    "probability": (PhaseDirichlet, ToolBeta),
    "inflated": (PhaseInflatedDirichlet, ToolInflatedBeta),
    "logit-normal": (PhaseLogitNormal, ToolLogitNormal),
    "autoregressive-logit-normal": (PhaseAutoregressiveLogitNormal, ToolAutoregressiveLogitNormal),
    "scaled": (PhaseScaled, ToolScaled),
    "logistic": (PhaseConfusion, ToolLogistic),
}
"""Pairs of emission families, one for phases and one for tools, over a recognizer's labels or probabilities.

Families over real features (`PhaseGaussian`, `ToolGaussian`) have no name here, because the number of classes does not
determine their number of features: pass the family itself.
"""

LABEL_FAMILIES = tuple(name for name, pair in FAMILIES.items() if pair[0].observes == "labels")
"""Names of the families that observe labels; the others observe probabilities."""


def families_named(name: str) -> tuple[type[PhaseEmission], type[ToolEmission]]:
    """Return the families of phases and of tools with this name; raise ValueError for an unknown one."""
    if name not in FAMILIES:
        raise ValueError(f"emissions={name!r} is unknown; choose {' or '.join(map(repr, FAMILIES))}.")
    return FAMILIES[name]

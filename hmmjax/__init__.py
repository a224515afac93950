"""Exact coupled hidden Markov models over surgical phases and tools.

`fit(params, obs, mask, labels=...)` learns, `posterior`, `filter` and `decode` infer. Emission families and transition
models are objects inside `Params`; replace the object to change the family.

Everything is imported when it is first used, so that ``import hmmjax`` and ``hmmjax --help`` do not import JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hmmjax import (
        checkpoint,
        data,
        diagnostics,
        draws,
        durations,
        dynamax,
        emissions,
        ensembles,
        explore,
        io,
        metrics,
        plots,
        rates,
        report,
        simulate,
        stabilize,
        streaming,
        suggest,
        transitions,
    )
    from hmmjax._core.pytree import pytree, static
    from hmmjax.anchoring import Anchored, anchor
    from hmmjax.calibration import Calibration, calibrate
    from hmmjax.comparison import compare
    from hmmjax.draws import sample_posterior
    from hmmjax.ensembles import Ensemble
    from hmmjax.inference import conditional_log_likelihood, decode, filter, log_likelihood, posterior
    from hmmjax.initialize import estimate, init_params
    from hmmjax.interactions import OddsRatios, odds_ratios
    from hmmjax.learning import fit
    from hmmjax.priors import Priors
    from hmmjax.refinement import Refinement, refine
    from hmmjax.sampling import sample
    from hmmjax.sharding import shard
    from hmmjax.streaming import Stream
    from hmmjax.tuning import Tuning, tune_refinement
    from hmmjax.types import Decoded, FitResult, Labels, Observations, Params, PhaseChain, Posterior, ToolChains

__version__ = "0.1.0"

#: Public functions and classes, by the module that defines them.
_MEMBERS = {
    "_core.pytree": (
        "pytree",
        "static",
    ),
    "anchoring": (
        "Anchored",
        "anchor",
    ),
    "calibration": (
        "Calibration",
        "calibrate",
    ),
    "comparison": ("compare",),
    "draws": ("sample_posterior",),
    "ensembles": ("Ensemble",),
    "inference": (
        "conditional_log_likelihood",
        "decode",
        "filter",
        "log_likelihood",
        "posterior",
    ),
    "initialize": ("estimate", "init_params"),
    "interactions": (
        "OddsRatios",
        "odds_ratios",
    ),
    "learning": ("fit",),
    "priors": ("Priors",),
    "refinement": (
        "Refinement",
        "refine",
    ),
    "sampling": ("sample",),
    "sharding": ("shard",),
    "streaming": ("Stream",),
    "tuning": (
        "Tuning",
        "tune_refinement",
    ),
    "types": (
        "Decoded",
        "FitResult",
        "Labels",
        "Observations",
        "Params",
        "PhaseChain",
        "Posterior",
        "ToolChains",
    ),
}
_MODULE_OF = {name: module for module, names in _MEMBERS.items() for name in names}

__all__ = [
    "Anchored",
    "Calibration",
    "Decoded",
    "Ensemble",
    "FitResult",
    "Labels",
    "Observations",
    "OddsRatios",
    "Params",
    "PhaseChain",
    "Posterior",
    "Priors",
    "Refinement",
    "Stream",
    "ToolChains",
    "Tuning",
    "anchor",
    "calibrate",
    "checkpoint",
    "compare",
    "conditional_log_likelihood",
    "data",
    "decode",
    "diagnostics",
    "draws",
    "durations",
    "dynamax",
    "emissions",
    "ensembles",
    "estimate",
    "explore",
    "filter",
    "fit",
    "init_params",
    "io",
    "log_likelihood",
    "metrics",
    "odds_ratios",
    "plots",
    "posterior",
    "pytree",
    "rates",
    "refine",
    "report",
    "sample",
    "sample_posterior",
    "shard",
    "simulate",
    "stabilize",
    "static",
    "streaming",
    "suggest",
    "transitions",
    "tune_refinement",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    elif name in __all__:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names only."""
    return [*__all__, "__version__"]

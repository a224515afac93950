"""Exact coupled hidden Markov models over surgical phases and tools.

`fit(params, obs, mask, labels=...)` learns, `posterior`, `filter` and `decode` infer. Emission families and transition
models are objects inside `Params`; replace the object to change the family.

Submodules such as `hmmjax.io`, `hmmjax.metrics` and `hmmjax.stabilize` are imported when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from hmmjax import diagnostics, draws, durations, emissions, rates, transitions
from hmmjax._core.pytree import pytree, static
from hmmjax.calibration import Calibration, calibrate
from hmmjax.comparison import compare
from hmmjax.counting import estimate
from hmmjax.draws import sample_posterior
from hmmjax.inference import conditional_log_likelihood, decode, filter, log_likelihood, posterior
from hmmjax.initialize import init_params
from hmmjax.interactions import OddsRatios, odds_ratios
from hmmjax.learning import fit
from hmmjax.priors import Priors
from hmmjax.refinement import Refinement, refine
from hmmjax.sampling import sample
from hmmjax.sharding import shard
from hmmjax.streaming import Stream
from hmmjax.types import Decoded, FitResult, Labels, Observations, Params, PhaseChain, Posterior, ToolChains

if TYPE_CHECKING:
    from hmmjax import (
        checkpoint,
        data,
        dynamax,
        explore,
        io,
        metrics,
        plots,
        report,
        simulate,
        stabilize,
        streaming,
        suggest,
    )

__version__ = "0.1.0"

__all__ = [
    "Calibration",
    "Decoded",
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
]


def __getattr__(name: str) -> Any:
    """Import a public submodule on first use."""
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names only."""
    return [*__all__, "__version__"]

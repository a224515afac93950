"""Exact coupled hidden Markov models over surgical phases and tools.

`fit(params, obs, mask, labels=...)` learns, `posterior`, `filter` and `decode` infer; emission families and
transition models are objects inside `Params`, swapped by swapping the object.
"""

from hmmjax import diagnostics, draws, durations, emissions, rates, transitions
from hmmjax._core.pytree import pytree, static
from hmmjax.calibration import Calibration, calibrate
from hmmjax.comparison import compare
from hmmjax.counting import estimate
from hmmjax.draws import sample_posterior
from hmmjax.inference import decode, filter, log_likelihood, posterior
from hmmjax.initialize import init_params
from hmmjax.interactions import OddsRatios, odds_ratios
from hmmjax.learning import fit
from hmmjax.priors import Priors
from hmmjax.refinement import Refinement, refine
from hmmjax.sampling import sample
from hmmjax.sharding import shard
from hmmjax.streaming import Stream
from hmmjax.types import Decoded, FitResult, Labels, Observations, Params, PhaseChain, Posterior, ToolChains

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
    "compare",
    "decode",
    "diagnostics",
    "draws",
    "durations",
    "emissions",
    "estimate",
    "filter",
    "fit",
    "init_params",
    "log_likelihood",
    "odds_ratios",
    "posterior",
    "pytree",
    "rates",
    "refine",
    "sample",
    "sample_posterior",
    "shard",
    "static",
    "transitions",
]

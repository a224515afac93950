"""Learn tools from a few labeled frames per tool: the paper's scenario S_D.

Thirty labels per tool tell how often a recognizer errs, hardly how long a tool stays, and nothing about which errors
come in runs. Each is therefore learned from what knows it best. Recognizer errors come from the labels alone, shrunk
towards those of all tools together; unlabeled frames would let them drift. Dwell times come from all videos, labeled or
not, first for all tools together and then for each tool, held to what the tools have in common.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from hmmjax.anchoring import learn_emissions
from hmmjax.emissions.registry import families_named
from hmmjax.initialize import init_params
from hmmjax.learning import fit
from hmmjax.priors import Priors
from hmmjax.stabilize.examples import Examples
from hmmjax.stabilize.learn import Learned
from hmmjax.types import Labels, Observations, Params

#: Pseudo-frames of all tools' errors for each state of a tool; of a recognizer that is mostly right, for all tools.
TOOL_FRAMES, COMMON_FRAMES = 300.0, 5.0
#: Pseudo-transitions of all tools' dwell times for each tool. Labels are too few to contradict them; videos are not.
TRANSITIONS = 1000.0
#: Maximum number of EM iterations.
ITERATIONS = 30


def learn_from_single_frames(
    examples: Examples,
    *,
    num_tools: int,
    emissions: str = "confusion",
    error_frames: float = TOOL_FRAMES,
    transitions: float = TRANSITIONS,
    max_iterations: int = ITERATIONS,
    callback: Callable[[int, float], None] | None = None,
) -> Learned:
    """Learn a model of tools from single labeled frames and all videos.

    EM runs over all videos with their labels clamped, and learns starts and transitions. Emissions are learned from the
    labeled frames before, and frozen: label frames that the recognizer was not trained on. The model is not tempered:
    so few labels do not tell the power.

    Args:
        examples: videos with observations of tools that suit the emission family, and labels (B, T, K) of some frames,
            -1 elsewhere. Videos without labels are of use.
        num_tools: K.
        emissions: name of a family that takes an anchor: "confusion" or "probability".
        error_frames: pseudo-frames of the errors of all tools together in each state of a tool.
        transitions: pseudo-transitions of the dwell times of all tools together in each state of a tool.
        max_iterations: maximum number of EM iterations, of all tools together and of each.
        callback: called after every EM iteration with its number and the objective.

    Returns:
        The model, how it was learned, and the result of EM.

    Raises:
        ValueError: no tool is observed or labeled, or the family takes no anchor.

    Source: the paper's scenario S_D; priors from related groups, Gelman et al., Bayesian Data Analysis, chapter 5.
    """
    family = families_named(emissions)[1]
    if not family.accepts_anchor:
        raise ValueError(f"emissions={emissions!r} takes no anchor: use 'confusion' or 'probability'.")
    outputs, known = examples.obs.tools, examples.labels.tools
    if outputs is None or isinstance(outputs, tuple) or known is None or not (known[examples.mask] >= 0).any():
        raise ValueError(
            "single frames need observations of tools from one recognizer, and some labels of tools in frames that the "
            "mask keeps."
        )
    obs, labels = Observations(tools=outputs), Labels(tools=known)
    common = _learn_common(examples, emissions, max_iterations)
    start = jax.tree.map(lambda x: np.repeat(np.asarray(x), num_tools, 0), common)
    start = learn_emissions(start, obs, examples.mask, labels, frames=error_frames)
    priors = Priors(tool_initial=1.0, tool_transition=transitions * _transition(start))
    options: dict[str, Any] = {"freeze": ("tools.emission",), "max_iterations": max_iterations, "callback": callback}
    result = fit(start, obs, examples.mask, labels, priors=priors, **options)
    count = int((known[examples.mask] >= 0).sum())
    method = (
        f"recognizer errors counted in {count} labels of single frames, held to those of all tools; dwell times by EM "
        f"over {int(examples.mask.any(1).sum())} videos ({result.status}), held to those of all tools"
    )
    return Learned(result.params, method, result)


def _learn_common(examples: Examples, emissions: str, max_iterations: int) -> Params:
    """Return the model (K = 1) of all tools together, each tool of each video a video of its own."""

    def apart(x: Any) -> Any:
        return np.moveaxis(np.asarray(x), 2, 1).reshape(-1, x.shape[1], 1)

    obs, labels = Observations(tools=apart(examples.obs.tools)), Labels(tools=apart(examples.labels.tools))
    mask = np.repeat(examples.mask, examples.obs.tools.shape[2], 0)
    start = learn_emissions(init_params(0, 1, emissions=emissions), obs, mask, labels, frames=COMMON_FRAMES)
    # Ten transitions as the default expects them keep rows that no video visits.
    priors = Priors(tool_initial=1.0, tool_transition=10 * _transition(start))
    options: dict[str, Any] = {"freeze": ("tools.emission",), "max_iterations": max_iterations}
    return fit(start, obs, mask, labels, priors=priors, **options).params


def _transition(params: Params) -> np.ndarray:
    """Return the probabilities (K, 2, 2) of each tool's next state."""
    chain: Any = params.tools
    return np.asarray(chain.transition.matrix)

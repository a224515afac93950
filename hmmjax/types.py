"""The pytrees that the library takes and returns: parameters, observations, labels and results.

Shapes use B videos, T frames, L phases, K tools. A single video may leave out B.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from hmmjax._core.checks import is_float
from hmmjax._core.pytree import pytree, static
from hmmjax._core.typing import Array, ArrayLike
from hmmjax.emissions.base import Emission
from hmmjax.emissions.fused import Fused
from hmmjax.transitions.base import ToolTransition


def _fuse(chain: Any) -> None:
    """Replace a tuple of families, the short form, by `emissions.Fused`."""
    if isinstance(chain.emission, tuple):
        object.__setattr__(chain, "emission", Fused(chain.emission))


@pytree
class PhaseChain:
    """The Markov chain of phases, and the emission family of its observations.

    Attributes:
        initial: (L,) probabilities of the first frame's phase.
        transition: (L, L) probabilities of the next phase (column) given the current one (row); rows sum to one.
        emission: a phase emission family of `hmmjax.emissions`, or a tuple with one per recognizer; None if phases are
            not observed.
        stages: (L,) number of stages per phase, see `hmmjax.durations`; a row of `transition` then belongs to each
            stage of the phase. None is one stage per phase: durations are geometric.

    Source: alpha (start) and A of the paper's phase model.
    """

    initial: Array
    transition: Array
    emission: Emission | Any = None
    stages: tuple[int, ...] | None = static(default=None)

    def __post_init__(self) -> None:
        _fuse(self)

    @property
    def num_phases(self) -> int:
        """L."""
        return self.transition.shape[-1]

    @property
    def num_stages(self) -> int:
        """Number of stages of all phases together, L without stages."""
        return self.num_phases if self.stages is None else sum(self.stages)


@pytree
class ToolChains:
    """K chains of tool presence, absent or present, that depend on the phase if the model has phases.

    Attributes:
        initial: (K, L) probability that tool k is present in the first frame given its phase; (K,) without phases.
        transition: a transition model of `hmmjax.transitions`.
        emission: a tool emission family of `hmmjax.emissions`, or a tuple with one per recognizer; None if tools are
            not observed.

    Source: beta (start) of the paper's tool model; for transitions see `hmmjax.transitions`.
    """

    initial: Array
    transition: ToolTransition | Any
    emission: Emission | Any = None

    def __post_init__(self) -> None:
        _fuse(self)

    @property
    def num_tools(self) -> int:
        """K."""
        return self.initial.shape[0]


@pytree
class Params:
    """The coupled hidden Markov model.

    Attributes:
        phases: the chain of phases; None in a model of tools only.
        tools: the chains of tools; None in a model of phases only.
    """

    phases: PhaseChain | None = None
    tools: ToolChains | None = None

    @property
    def num_phases(self) -> int:
        """L, or 0 without phases."""
        return 0 if self.phases is None else self.phases.num_phases

    @property
    def num_stages(self) -> int:
        """Number of stages of all phases together, L if phases have none, or 0 without phases."""
        return 0 if self.phases is None else self.phases.num_stages

    @property
    def num_tools(self) -> int:
        """K, or 0 without tools."""
        return 0 if self.tools is None else self.tools.num_tools


@pytree
class Observations:
    """The outputs of recognizers, or other observations, per frame.

    Attributes:
        phases: int labels (B, T), probabilities (B, T, L), or what the phases' emission family observes; None if
            nothing was observed.
        tools: int labels (B, T, K), probabilities of presence (B, T, K), or what the tools' emission family observes;
            None if nothing was observed.

    A list of (T_i, ...) arrays, one per video, may replace each padded array. Arrays may be of NumPy, JAX, PyTorch or
    pandas, or anything with ``__array__`` or ``__dlpack__``; masked entries count as missing. NaN in probabilities or
    features and -1 in labels mark the output for a phase, or for a single tool, as missing in a frame: the rest of the
    frame counts. A track that several recognizers observe is a tuple with one entry per recognizer (see
    `hmmjax.emissions.Fused`), of which some may be None.
    """

    phases: ArrayLike = None
    tools: ArrayLike = None

    def discretize(self, threshold: float = 0.5) -> "Observations":
        """Convert probabilities to labels: the most probable phase, and tools at or above `threshold`.

        Args:
            threshold: probability from which on a tool counts as present.

        Returns:
            Observations with phases (B, T) and tools (B, T, K), int32. Labels pass through unchanged. NaN becomes -1;
            both mark a missing output.
        """

        def phases(x: Any) -> Any:
            xp = np if isinstance(x, np.ndarray) else jnp
            return xp.argmax(xp.nan_to_num(x), -1).astype(np.int32)

        def tools(x: Any) -> Any:
            return (x >= threshold).astype(np.int32)

        return Observations(_discretize(self.phases, phases), _discretize(self.tools, tools))


def _discretize(x: Any, labels_of: Callable[[Any], Any]) -> Any:
    """Apply `labels_of` to every array of probabilities in a track."""
    if isinstance(x, tuple):
        return tuple(_discretize(source, labels_of) for source in x)
    if isinstance(x, list):
        return [_discretize(video, labels_of) for video in x]
    if x is None or not is_float(x):
        return x
    labels = labels_of(x)
    xp = np if isinstance(x, np.ndarray) else jnp
    missing = xp.isnan(x)
    return xp.where(missing.any(-1) if labels.ndim < x.ndim else missing, -1, labels).astype(np.int32)


@pytree
class Labels:
    """Hidden states that are known.

    Attributes:
        phases: int (B, T), -1 for unknown; None if all are unknown.
        tools: int (B, T, K), 0, 1, or -1 for unknown; None if all are unknown.

    A list of (T_i, ...) arrays, one per video, may replace each padded array.
    """

    phases: ArrayLike = None
    tools: ArrayLike = None


@pytree
class Posterior:
    """Marginal distributions of the hidden states, and the log-likelihood of the observations.

    Attributes:
        phases: (B, T, L) probability of each phase; None without phases.
        tools: (B, T, K) probability that each tool is present; None without tools.
        log_likelihood: (B,) natural logarithm, in nats.
        phase_log_probs: (B, T, L) logarithm of `phases`; None without phases.
        tool_log_odds: (B, T, K) logarithm of P(present) / P(absent); None without tools.

    Given lists of videos, all but log_likelihood are lists of (T_i, ...) arrays. Frames after a video's last observed
    one are zero in all of them, and so are all frames of an impossible video, whose log-likelihood is -inf.

    Rank frames by logarithms and log-odds, not by probabilities: float32 has no number between 1 - 6e-8 and 1, so that
    the surest frames are tied. Both are computed from the small probabilities (of the other phases, of absence), which
    keep their digits down to 1e-38; smaller ones count as 1e-38, so that both are always finite.
    """

    phases: Array | list[Array] | None
    tools: Array | list[Array] | None
    log_likelihood: Array
    phase_log_probs: Array | list[Array] | None = None
    tool_log_odds: Array | list[Array] | None = None


@pytree
class Decoded:
    """The jointly most probable path.

    Attributes:
        phases: (B, T) int32; None without phases.
        tools: (B, T, K) int32 0 or 1; None without tools.
        log_prob: (B,) log-probability of that path together with the observations, in nats.

    Given lists of videos, phases and tools are lists of (T_i, ...) arrays. Frames after a video's last observed one
    are -1, and so are all frames of an impossible video, whose log_prob is -inf.
    """

    phases: Array | list[Array] | None
    tools: Array | list[Array] | None
    log_prob: Array


@pytree
class FitResult:
    """The result of `fit`.

    Attributes:
        params: the fitted parameters.
        history: (num_iterations + 1,) the objective (log-likelihood plus log-prior, summed over videos, in nats) at
            the starting parameters and after each iteration; the last entry belongs to `params`. Inside `jax.jit`
            its length is fixed and unused entries are NaN.
        log_likelihood: the log-likelihood alone, in the shape of `history`.
        num_iterations: () int32 number of EM iterations.
        converged: () bool, whether the last iteration gained less than the tolerance; False if `max_iterations` was
            reached first.
    """

    params: Params
    history: Array
    log_likelihood: Array
    num_iterations: Array
    converged: Array

    @property
    def status(self) -> str:
        """Why EM stopped, in a sentence (not inside `jax.jit`)."""
        count = f"{int(self.num_iterations)} iteration{'' if self.num_iterations == 1 else 's'}"
        if self.converged:
            return f"converged after {count}"
        return f"reached the maximum of {count}; the objective was still rising"

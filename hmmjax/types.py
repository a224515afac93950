"""The pytrees that go in and come out: parameters, observations, labels, posteriors.

Shapes use B videos, T frames, L phases, K tools. A single video may leave out B.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from hmmjax._core.pytree import pytree, static
from hmmjax._core.typing import Array
from hmmjax.emissions.fused import Fused


def _fuse(chain: Any) -> None:
    """A tuple of families is short for `emissions.Fused`."""
    if isinstance(chain.emission, tuple):
        object.__setattr__(chain, "emission", Fused(chain.emission))


@pytree
class PhaseChain:
    """The phases' Markov chain and what the recognizer says of it.

    Attributes:
        initial: (L,) probabilities of the first frame's phase.
        transition: (L, L) probabilities of the next phase (column) given the current one (row); rows sum to one.
        emission: a phase emission family of `hmmjax.emissions`, or a tuple of them where several recognizers watch;
            None where none does.
        stages: (L,) stages that each phase goes through, see `hmmjax.durations`; a row of `transition` is then that of
            a stage. None is one stage each: durations are geometric.

    Source: alpha (start) and A of the paper's phase model.
    """

    initial: Array
    transition: Array
    emission: Any = None
    stages: tuple[int, ...] | None = static(default=None)

    def __post_init__(self) -> None:
        _fuse(self)

    @property
    def num_phases(self) -> int:
        """L."""
        return self.transition.shape[-1]


@pytree
class ToolChains:
    """K two-state chains of tool presence, driven by the phase where the model has one.

    Attributes:
        initial: (K, L) probability that tool k is present in the first frame given its phase; (K,) without phases.
        transition: a transition model of `hmmjax.transitions`.
        emission: a tool emission family of `hmmjax.emissions`, or a tuple of them where several recognizers watch; None
            where none does.

    Source: beta (start) of the paper's tool model; for transitions see theirs.
    """

    initial: Array
    transition: Any
    emission: Any = None

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
        phases: the phases' chain; None in a model of tools only.
        tools: the tools' chains; None in a model of phases only.
    """

    phases: PhaseChain | None = None
    tools: ToolChains | None = None

    @property
    def num_phases(self) -> int:
        """L, or 0 without phases."""
        return 0 if self.phases is None else self.phases.num_phases

    @property
    def num_tools(self) -> int:
        """K, or 0 without tools."""
        return 0 if self.tools is None else self.tools.num_tools


@pytree
class Observations:
    """What a recognizer says, frame by frame.

    Attributes:
        phases: int labels (B, T), or probabilities (B, T, L); None when nobody looks at the phase.
        tools: int labels (B, T, K), or probabilities of presence (B, T, K); None when nobody looks at the tools.

    Where several recognizers watch a track it is a tuple with one entry each (see `hmmjax.emissions.Fused`), in which
    an entry may be None, and a frame NaN or -1 where that recognizer says nothing.
    """

    phases: Any = None
    tools: Any = None

    def discretize(self, threshold: float = 0.5) -> "Observations":
        """Probabilities to labels: the most probable phase, and each tool at or above `threshold`.

        Args:
            threshold: of tools' probabilities.

        Returns:
            Observations with phases (B, T) and tools (B, T, K), int32. Labels pass through unchanged. Undefined (NaN)
            frames become label 0 and must be masked, as before; of several recognizers on one track, where NaN is a
            frame in which one says nothing, they become -1, which says the same.
        """

        def is_float(x: Any) -> bool:
            return x is not None and jnp.issubdtype(x.dtype, jnp.floating)

        def phases(x: Any) -> Any:
            if not is_float(x):
                return x
            xp = np if isinstance(x, np.ndarray) else jnp
            return xp.argmax(xp.nan_to_num(x), -1).astype(np.int32)

        def tools(x: Any) -> Any:
            return (x >= threshold).astype(np.int32) if is_float(x) else x

        def silent(x: Any, labels: Any) -> Any:
            if not is_float(x):
                return labels
            xp = np if isinstance(x, np.ndarray) else jnp
            missing = xp.isnan(x)
            return xp.where(missing.any(-1) if labels.ndim < x.ndim else missing, -1, labels).astype(np.int32)

        def each(function: Any, x: Any) -> Any:
            return tuple(silent(s, function(s)) for s in x) if isinstance(x, tuple) else function(x)

        return dataclasses.replace(self, phases=each(phases, self.phases), tools=each(tools, self.tools))


@pytree
class Labels:
    """What is known for certain.

    Attributes:
        phases: int (B, T), -1 is unknown; None is all unknown.
        tools: int (B, T, K), 0, 1 or -1; likewise.
    """

    phases: Any = None
    tools: Any = None


@pytree
class Posterior:
    """Marginals of the hidden states, and how well the model explains the observations.

    Attributes:
        phases: (B, T, L) probability of each phase; None without phases.
        tools: (B, T, K) probability that each tool is present; None without tools.
        log_likelihood: (B,) natural logarithm, in nats.

    Frames after a video's last observed one are zero in both tracks, and so is all of an impossible video, whose
    log-likelihood is -inf.
    """

    phases: Array | None
    tools: Array | None
    log_likelihood: Array


@pytree
class Decoded:
    """The jointly most probable path.

    Attributes:
        phases: (B, T) int32; None without phases.
        tools: (B, T, K) int32 0 or 1; None without tools.
        log_prob: (B,) log-probability of that path together with the observations, in nats.

    Frames after a video's last observed one are -1, and so is all of an impossible video, whose log_prob is -inf.
    """

    phases: Array | None
    tools: Array | None
    log_prob: Array


@pytree
class FitResult:
    """What `fit` found.

    Attributes:
        params: the fitted parameters.
        history: (num_iterations + 1,) the objective (log-likelihood plus log-prior, summed over videos, in nats) at
            the starting parameters and after each iteration; the last entry belongs to `params`. Inside `jax.jit`
            its length is fixed and unused entries are NaN.
        log_likelihood: the same for the log-likelihood alone.
        num_iterations: EM iterations done.
        converged: whether the last iteration gained less than the tolerance; False when iterations ran out.
    """

    params: Params
    history: Array
    log_likelihood: Array
    num_iterations: Any
    converged: Any

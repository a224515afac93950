"""Mixtures of trained models: an average of posteriors varies less than the posterior of any single model.

Example::

    ensemble = hmmjax.Ensemble((plain, lasting, hmmjax.ensembles.recognizer(7, observes="labels")))
    hmmjax.posterior(ensemble, obs, mask)    # also filter, decode, Stream, io.save_params
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import numerics as num
from hmmjax._core.checks import is_concrete, is_float
from hmmjax._core.pytree import pytree, static
from hmmjax._core.typing import Array
from hmmjax._core.validation import check_observations, check_params
from hmmjax.emissions import PhaseConfusion, PhaseScaled, ToolConfusion, ToolScaled
from hmmjax.transitions import PhaseConditioned
from hmmjax.types import Decoded, Labels, Observations, Params, PhaseChain, Posterior, ToolChains

CERTAINTY = 1 - 1e-6
"""Probability that `recognizer` gives to a predicted label."""


@pytree
class Ensemble:
    """Models whose posteriors are averaged: P(state) = sum over members of weight times P(state | member).

    Functions that take `Params` to infer (`hmmjax.posterior`, `filter`, `decode`, `Stream`) and files
    (`hmmjax.io.save_params`) take an ensemble too. It has no joint distribution: its most probable path is that of
    single frames, and `log_likelihood`, `sample` and training take its members.

    Attributes:
        members: the models. A member may lack a track that others have, if its weight there is zero.
        phase_weights: (N,) weights of the members for phases, which sum to one; None weighs all with phases equally.
        tool_weights: (N, K) or (N,) weights for each tool, which sum to one over members; None weighs all with tools
            equally.
        threshold: probability at or above which a tool is present, for members that observe labels while the
            observations are probabilities.

    A video that is impossible under a member is left to the others. In a stream, a member that finds a frame impossible
    takes it as unobserved and has no weight in the result of that step; the weights of the others are divided by their
    sum. A tool of which only such members have weight keeps their prediction from the frames before.

    Source: linear opinion pools (Stone 1961).
    """

    members: tuple[Params, ...]
    phase_weights: Any = None
    tool_weights: Any = None
    threshold: float = static(default=0.5)

    def __post_init__(self) -> None:
        if isinstance(self.members, list):
            object.__setattr__(self, "members", tuple(self.members))
        for name in ("phase_weights", "tool_weights"):
            if isinstance(getattr(self, name), list | tuple):
                object.__setattr__(self, name, np.asarray(getattr(self, name), np.float32))

    @property
    def num_phases(self) -> int:
        """L, or 0 without phases."""
        return max((member.num_phases for member in self.members), default=0)

    @property
    def num_stages(self) -> int:
        """Largest number of stages of a member's phases together, see `Params.num_stages`."""
        return max((member.num_stages for member in self.members), default=0)

    @property
    def num_tools(self) -> int:
        """K, or 0 without tools."""
        return max((member.num_tools for member in self.members), default=0)

    def weights(self, track: str) -> Any:
        """Return the weights (N,) of phases or (N, K) of tools; None without the track.

        Args:
            track: "phases" or "tools".
        """
        present = np.array([getattr(member, track) is not None for member in self.members])
        if not present.any():
            return None
        given = self.phase_weights if track == "phases" else self.tool_weights
        weights = jnp.asarray(present / present.sum() if given is None else given, float)
        if track == "tools" and weights.ndim == 1:
            weights = weights[:, None] * jnp.ones(self.num_tools)
        return weights

    def shares(self) -> Any:
        """Return the mean weight (N,) of each member, over tracks and tools."""
        found = [self.weights(track) for track in ("phases", "tools")]
        means = [w.mean(-1) if w.ndim > 1 else w for w in found if w is not None]
        return sum(means) / len(means)

    def check(self) -> None:
        """Raise unless members are valid models of the same states and weights are distributions over them.

        Raises:
            TypeError: a member is not `Params`.
            ValueError: no members, members of different sizes, or weights of a wrong shape or value.
        """
        if not isinstance(self.members, tuple) or not self.members:
            raise ValueError("members must be a tuple of at least one model. Pass Ensemble((first, second, ...)).")
        for member in self.members:
            if not isinstance(member, Params) or is_concrete(member):
                check_params(member)
        for track, size in (("phases", self.num_phases), ("tools", self.num_tools)):
            sizes = [getattr(member, f"num_{track}") for member in self.members]
            if any(n not in (0, size) for n in sizes):
                raise ValueError(f"members have different numbers of {track} ({sizes}). Use models of the same states.")
            self._check_weights(track, sizes)

    def _check_weights(self, track: str, sizes: Sequence[int]) -> None:
        name, given = f"{track[:-1]}_weights", getattr(self, f"{track[:-1]}_weights")
        if given is None or not is_concrete(given):
            return
        weights, count = np.asarray(given, np.float64), len(self.members)
        shapes = [(count,)] if track == "phases" else [(count,), (count, self.num_tools)]
        if weights.shape not in shapes:
            raise ValueError(f"{name} has shape {weights.shape}. Give {' or '.join(map(str, shapes))}: one per member.")
        if not ((weights >= 0).all() and np.allclose(weights.sum(0), 1, atol=1e-4)):
            raise ValueError(f"{name} must be non-negative and sum to one over members. Divide them by their sum.")
        if any(not size and np.any(w > 0) for size, w in zip(sizes, weights, strict=True)):
            raise ValueError(f"{name} gives weight to a member without {track}. Set it to zero.")

    def observed_by(self, member: Params, obs: Observations) -> Observations:
        """Return the observations as a member takes them: labels for families of labels, None for a track it lacks.

        Args:
            member: one of the members.
            obs: labels or probabilities.
        """
        check_observations(obs)
        labels = obs.discretize(self.threshold)
        return Observations(*(_suited(member, track, obs, labels) for track in ("phases", "tools")))


def _suited(member: Params, track: str, obs: Observations, labels: Observations) -> Any:
    chain, given = getattr(member, track), getattr(obs, track)
    if chain is None or chain.emission is None or given is None:
        return None
    if isinstance(given, tuple):
        pairs = zip(given, getattr(labels, track), chain.emission.observes, strict=True)
        return tuple(y if observes == "labels" else x for x, y, observes in pairs)
    return getattr(labels, track) if chain.emission.observes == "labels" else given


def main_member(model: "Params | Ensemble", track: str) -> Params:
    """Return the model itself, or the member of an ensemble with the largest weight: what tables of a model show.

    Args:
        model: a model or an ensemble.
        track: "phases" or "tools", whose weights count. Members without memory, such as `recognizer`, are returned
            only if no other has weight.
    """
    if not isinstance(model, Ensemble):
        return model
    weights = model.weights(track)
    if weights is None:
        return model.members[int(np.argmax(model.shares()))]
    weights = np.asarray(weights).reshape(len(model.members), -1).mean(1)
    lasting = [w > 0 and _has_memory(member, track) for w, member in zip(weights, model.members, strict=True)]
    return model.members[int(np.argmax(weights + lasting))]


def _has_memory(member: Params, track: str) -> bool:
    """Return whether the next state of a track depends on the present one."""
    transition: Any = getattr(member, track).transition
    if track == "tools" and not isinstance(transition, PhaseConditioned):
        return True
    rows = np.asarray(transition if track == "phases" else transition.matrix)
    return bool(np.ptp(rows, axis=-2).max() > 1e-6)


def labels_of(member: Params, labels: Labels) -> Labels:
    """Return the labels of the tracks that a member has.

    Args:
        member: a model.
        labels: of both tracks.
    """
    return Labels(*(None if getattr(member, t) is None else getattr(labels, t) for t in ("phases", "tools")))


def all_frames(obs: Observations) -> Any:
    """Return a mask of ones for observations of labels or probabilities, in their form; None if there are none.

    Args:
        obs: arrays or lists of videos.
    """
    for track, x in (("phases", obs.phases), ("tools", obs.tools)):
        x = next((source for source in x if source is not None), None) if isinstance(x, tuple) else x
        if x is not None:
            videos = x if isinstance(x, list) else [x]
            masks = [np.ones(np.shape(v)[: np.ndim(v) - (track == "tools" or is_float(v))], bool) for v in videos]
            return masks if isinstance(x, list) else masks[0]
    return None


def recognizer(num_phases: int = 0, num_tools: int = 0, *, observes: str) -> Params:
    """Return the recognizer itself as a model: it has no memory, and its posterior is the recognizer's output.

    Args:
        num_phases: L, 0 without phases.
        num_tools: K, 0 without tools; tools are independent of phases.
        observes: "labels" or "probabilities".

    Returns:
        A model without memory. Predicted labels have the probability `CERTAINTY`; other probabilities are clipped at
        1e-6. States without a prediction have equal probability.

    Raises:
        ValueError: `observes` is neither.
    """
    if observes not in ("labels", "probabilities"):
        raise ValueError(f"observes={observes!r} must be 'labels' or 'probabilities'.")
    phases = tools = None
    if num_phases:
        equal = jnp.full((num_phases, num_phases), 1 / num_phases)
        other = (1 - CERTAINTY) / max(num_phases - 1, 1)
        sure = jnp.where(jnp.eye(num_phases, dtype=bool), CERTAINTY if num_phases > 1 else 1.0, other)
        phases = PhaseChain(
            equal[0], equal, PhaseConfusion(sure) if observes == "labels" else PhaseScaled.default(num_phases)
        )
    if num_tools:
        half = jnp.full((num_tools, 2, 2), 0.5)
        sure = jnp.where(jnp.eye(2, dtype=bool), CERTAINTY, 1 - CERTAINTY) * jnp.ones((num_tools, 1, 1))
        emission = ToolConfusion(sure) if observes == "labels" else ToolScaled.default(num_tools)
        if num_phases:
            shape = num_tools, num_phases
            tools = ToolChains(jnp.full(shape, 0.5), PhaseConditioned(jnp.full((*shape, 2, 2), 0.5)), emission)
        else:
            tools = ToolChains(jnp.full(num_tools, 0.5), PhaseConditioned(half), emission)
    return Params(phases, tools)


def mix(ensemble: Ensemble, found: Sequence[Posterior]) -> Posterior:
    """Return the average of the members' posteriors, of arrays with or without leading axes, or of lists of videos.

    Args:
        ensemble: the weights.
        found: each member's posterior, from `hmmjax.posterior` or `hmmjax.filter`.

    Returns:
        `Posterior`. Its log_likelihood is the mean of the members' by weight, for comparison only; -inf if the video is
        impossible under all members.
    """
    values = jnp.stack([x.log_likelihood for x in found])
    possible = values > -jnp.inf
    out: dict[str, Any] = {}
    for track, probs, logs in (("phases", "phases", "phase_log_probs"), ("tools", "tools", "tool_log_odds")):
        weights = ensemble.weights(track)
        if weights is None:
            out |= {probs: None, logs: None}
            continue
        of_track = _mix_phases if track == "phases" else _mix_tools
        having = [i for i, x in enumerate(found) if getattr(x, probs) is not None]
        weights = weights[jnp.array(having)]
        parts = [(getattr(found[i], probs), getattr(found[i], logs)) for i in having]
        usable = possible[jnp.array(having)]
        if isinstance(parts[0][0], list):
            videos = [
                of_track(weights, usable[:, v], [(p[v], x[v]) for p, x in parts]) for v in range(len(parts[0][0]))
            ]
            out |= {probs: [video[0] for video in videos], logs: [video[1] for video in videos]}
        else:
            out[probs], out[logs] = of_track(weights, usable, parts)
    share = jnp.where(possible, ensemble.shares().reshape(-1, *[1] * (values.ndim - 1)), 0)
    mean = (share * jnp.where(possible, values, 0)).sum(0) / jnp.maximum(share.sum(0), 1e-30)
    mean = jnp.where(possible.any(0), mean, -jnp.inf)
    return Posterior(out["phases"], out["tools"], mean, out["phase_log_probs"], out["tool_log_odds"])


@jax.jit
def _mix_phases(weights: Array, possible: Array, parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    p = jnp.stack([probs for probs, _ in parts])
    mixed = jnp.sum(_spread(weights, possible, p) * p, 0)
    keep = mixed.sum(-1, keepdims=True) > 0
    return num.as_probability(mixed), jnp.where(keep, num.log_marginal(mixed), 0)


@jax.jit
def _mix_tools(weights: Array, possible: Array, parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    p, odds = (jnp.stack(x) for x in zip(*parts, strict=True))
    # Both tails from log-odds, with all their digits. In padding, and only there, both arrays are zero.
    both = jnp.stack([jax.nn.sigmoid(-odds), jax.nn.sigmoid(odds)], -1)
    mixed = jnp.sum(_spread(weights, possible, p)[..., None] * both, 0)
    keep = ((p != 0) | (odds != 0)).any(0)
    return jnp.where(keep, num.as_probability(mixed[..., 1]), 0), jnp.where(keep, num.log_odds(mixed), 0)


def _spread(weights: Array, possible: Array, like: Array) -> Array:
    """Return weights (N,) or (N, K) for arrays (N, ..., T, states), among the members that allow the video."""
    per_state = weights.ndim > 1
    weights = weights.reshape(len(weights), *[1] * (like.ndim - 1 - per_state), *weights.shape[1:])
    weights = jnp.where(possible.reshape(*possible.shape, 1, 1), weights, 0)
    return (weights / jnp.maximum(weights.sum(0), 1e-30)).astype(like.dtype)


def among(weights: np.ndarray, voting: np.ndarray) -> np.ndarray:
    """Return weights among the members that vote, which sum to one; unchanged where none of them has weight.

    Args:
        weights: (N,) or (N, K).
        voting: (N,) bool.
    """
    kept = weights * voting.reshape(-1, *[1] * (weights.ndim - 1))
    total = kept.sum(0)
    return np.where(total > 0, kept / np.where(total > 0, total, 1), weights).astype(weights.dtype)


def decode_frames(found: Posterior) -> Decoded:
    """Return the most probable state of each frame by itself, from posteriors.

    Args:
        found: posteriors of arrays, or lists of videos.

    Returns:
        `Decoded`, -1 in padding and in impossible videos; log_prob is the sum over frames of the log-probabilities of
        the states.
    """
    fields = (found.phases, found.phase_log_probs, found.tools, found.tool_log_odds)
    lists = [x for x in fields if isinstance(x, list)]
    if not lists:
        phases, tools, value = _decode(*fields)
        return Decoded(phases, tools, value)
    videos = [_decode(*(None if x is None else x[v] for x in fields)) for v in range(len(lists[0]))]
    phases, tools, values = (list(x) for x in zip(*videos, strict=True)) if videos else ([], [], [])
    return Decoded(
        None if found.phases is None else phases,
        None if found.tools is None else tools,
        jnp.stack(values) if videos else found.log_likelihood,
    )


def _decode(phases: Any, logs: Any, tools: Any, odds: Any) -> tuple[Any, Any, Array]:
    total: Any = 0
    if phases is not None:
        keep = phases.sum(-1) > 0
        total = jnp.where(keep, logs.max(-1), 0).sum(-1)
        phases = jnp.where(keep, logs.argmax(-1), -1).astype(jnp.int32)
    if tools is not None:
        keep = (tools != 0) | (odds != 0)
        total = total + jnp.where(keep, jax.nn.log_sigmoid(jnp.abs(odds)), 0).sum((-2, -1))
        tools = jnp.where(keep, odds >= 0, -1).astype(jnp.int32)
    return phases, tools, total

"""Posterior, filter, most probable path and likelihoods of given parameters."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax import ensembles, messages
from hmmjax._core import lowering
from hmmjax._core.batch import Batch, canonical, prepare
from hmmjax._core.checks import is_concrete, is_float
from hmmjax._core.interpreter import interpretable
from hmmjax._core.split import Split
from hmmjax._core.tables import tabulate
from hmmjax._core.typing import Array, ArrayLike
from hmmjax.ensembles import Ensemble
from hmmjax.types import Decoded, Labels, Observations, Params, Posterior


def _call(run: Callable, params: Params, obs: Observations, mask: Any, labels: Labels | None, backend: str) -> Any:
    """Return `run(params, batch, backend)`, results per video and per frame, in the form of the input."""
    batch = prepare(params, obs, mask, labels)
    name = lowering.choose_backend(backend, params)
    if is_concrete(params, batch):
        batch = lowering.pack(batch, name)
    params = canonical(params)
    if batch.split is not None:
        results = _on_split(run, batch.split, name)(*batch.split.replicate(params), batch)
    elif len(batch.observed) == 0:
        # Run one blank video to get the shapes of results.
        blank = jax.tree.map(lambda x: np.zeros((1, *x.shape[1:]), x.dtype), batch)
        results = jax.tree.map(lambda x: x[:0], run(params, blank, backend=name))
    else:
        results = run(params, batch, backend=name)
    return batch.restore(*results)


@lru_cache(maxsize=64)
def _on_split(run: Callable, split: Split, backend: str) -> Callable:
    return jax.jit(split.map(partial(run, backend=backend)))


@interpretable(static_argnames="backend")
def _log_likelihood(params: Params, batch: Batch, backend: str) -> tuple[Array, None]:
    return lowering.log_normalizer(params, tabulate(params, batch), batch.lengths, backend), None


@interpretable(static_argnames="backend")
def _conditional(params: Params, batch: Batch, backend: str) -> tuple[Array, None]:
    free = tabulate(params, batch.without_labels())
    return lowering.conditional(params, free, batch, backend), None


def _differentiable(run: Any) -> Callable:
    """Return `run`, whose derivative is one more interpretable function if it is taken outside of `jax.jit`."""

    @partial(interpretable, static_argnames="backend")
    def pull_back(params: Params, batch: Batch, cotangent: Array, backend: str) -> tuple:
        leaves, tree = jax.tree.flatten((params, batch))
        floats = [i for i, x in enumerate(leaves) if is_float(x)]

        def value(given: list[Array]) -> Array:
            every = dict(enumerate(leaves)) | dict(zip(floats, given, strict=True))
            # The function itself: to differentiate a jitted one takes JAX twice as long.
            return run.__wrapped__(*jax.tree.unflatten(tree, every.values()), backend=backend)[0]

        (found,) = jax.vjp(value, [leaves[i] for i in floats])[1](cotangent)
        gradients = dict(zip(floats, found, strict=True))
        return jax.tree.unflatten(tree, [gradients.get(i) for i in range(len(leaves))])

    @partial(jax.custom_vjp, nondiff_argnums=(2,))
    def function(params: Params, batch: Batch, backend: str) -> tuple[Array, None]:
        return run(params, batch, backend=backend)

    def forward(params: Params, batch: Batch, backend: str) -> tuple:
        if is_concrete(params, batch):
            return run(params, batch, backend=backend), (params, batch)
        return jax.vjp(partial(run, backend=backend), params, batch)

    def backward(backend: str, saved: Any, cotangent: tuple) -> tuple:
        if isinstance(saved, tuple):
            return pull_back(*saved, cotangent[0], backend=backend)
        return saved(cotangent)

    function.defvjp(forward, backward)
    return lambda params, batch, backend: function(params, batch, backend)


_log_likelihood_differentiable = _differentiable(_log_likelihood)
_conditional_differentiable = _differentiable(_conditional)


@interpretable(static_argnames="backend")
def _posterior(params: Params, batch: Batch, backend: str) -> tuple[Array, tuple]:
    value, *marginals = lowering.smooth(params, tabulate(params, batch), batch.lengths, backend)
    return value, _keep_possible(lowering.report(*marginals), batch, value)


@interpretable(static_argnames="backend")
def _filter(params: Params, batch: Batch, backend: str) -> tuple[Array, tuple]:
    table = tabulate(params, batch)
    structure = lowering.structure_of(params, table)
    p = lowering.lower(params, table, batch.lengths)
    out = structure.map(lambda p: messages.filter(p, backend=backend), p)
    value = structure.lift_log_prob(out.log_normalizer)
    marginals = lowering.report(*structure.lift_states(out.phases, out.tools))
    return value, _keep_possible(marginals, batch, value)


def _keep_possible(results: Any, batch: Batch, value: Array, fill: int = 0) -> Any:
    """Return results per frame as (B, T, ...), with `fill` in padding and in impossible videos.

    A video is impossible if one of several independent tools is, although the other tools' marginals exist.
    """
    results = batch.spread(results)
    keep = batch.spread(batch.valid) & (value > -jnp.inf)[:, None]
    return jax.tree.map(lambda x: jnp.where(keep.reshape(*keep.shape, *[1] * (x.ndim - 2)), x, fill), results)


@interpretable(static_argnames="backend")
def _decode(params: Params, batch: Batch, backend: str) -> tuple[Array, tuple]:
    table = tabulate(params, batch)
    structure = lowering.structure_of(params, table)
    p = lowering.lower(params, table, batch.lengths)
    path = structure.map(lambda p: messages.viterbi(p, backend=backend), p)
    value = structure.lift_log_prob(path.log_prob)
    return value, _keep_possible(structure.lift_path(path.phases, path.configs), batch, value, fill=-1)


def _of_members(
    infer: Callable, ensemble: Ensemble, obs: Observations, mask: Any, *args: Any, backend: str
) -> Posterior:
    """Return the average of what `infer` returns for each member of an ensemble."""
    ensemble.check()
    mask = ensembles.all_frames(obs) if mask is None else mask
    members = ensemble.members
    known = [[None if x is None else ensembles.labels_of(member, x) for x in args] for member in members]
    found = [
        infer(member, ensemble.observed_by(member, obs), mask, *own, backend=backend)
        for member, own in zip(members, known, strict=True)
    ]
    return ensembles.mix(ensemble, found)


def log_likelihood(
    params: Params, obs: Observations, mask: ArrayLike = None, labels: Labels | None = None, *, backend: str = "auto"
) -> Array:
    """Return the log-probability of the observations (and labels), in nats.

    Args:
        params: the model, L phases and K tools.
        obs: (B, T, ...) observations, a list of (T_i, ...) arrays, or (T, ...) for a single video.
        mask: (B, T) bool, True where observed; None if all frames are. Frames after a video's last observed one are
            padding and ignored.
        labels: known states, -1 for unknown; the probability is then that of observations and labels together.
        backend: "auto" or a name in `hmmjax.messages.BACKENDS`. "auto" selects the compiled recursions on CPUs,
            which are exact for every model. Elsewhere it selects the fast scaled recursions if they are exact for the
            model, and recursions in logarithms if some transitions or starts of tools have probability (nearly) zero;
            inside `jax.jit` or `jax.grad` it cannot see the parameters: pass "logspace" for such models there.

    Returns:
        (B,), or a scalar for a single video; -inf for an impossible video, 0 for one with no observed frame.
        Differentiable in `params` and in probability observations, at the cost of one E-step; in reverse mode only
        (`jax.grad`, not `jax.jvp` or `jax.jacfwd`).

    Raises:
        TypeError, ValueError: bad input, with cause and fix (concrete arrays only).

    Source: the paper's likelihood; the sum over the coupled chain's paths by the forward recursion.
    """
    return _call(_log_likelihood_differentiable, params, obs, mask, labels, backend)[0]


def conditional_log_likelihood(
    params: Params, obs: Observations, mask: ArrayLike = None, labels: Labels | None = None, *, backend: str = "auto"
) -> Array:
    """Return the log-probability of the labels given the observations, in nats.

    This is the objective of `calibrate` and `refine`: `log_likelihood` with labels less `log_likelihood` without.

    Args:
        params: the model, L phases and K tools.
        obs: (B, T, ...) observations, a list of (T_i, ...) arrays, or (T, ...) for a single video.
        mask: (B, T) bool, True where observed; None if all frames are.
        labels: known states, -1 for unknown.
        backend: "auto" or a name in `hmmjax.messages.BACKENDS`, see `log_likelihood`.

    Returns:
        (B,), or a scalar for a single video; 0 for a video without known states, -inf for one whose labels or
        observations are impossible. Differentiable as `log_likelihood`.

    Raises:
        TypeError, ValueError: bad input, with cause and fix (concrete arrays only).

    Source: Bahl et al. (1986), maximum mutual information estimation of hidden Markov models.
    """
    return _call(_conditional_differentiable, params, obs, mask, labels, backend)[0]


def posterior(
    params: Params | Ensemble,
    obs: Observations,
    mask: ArrayLike = None,
    labels: Labels | None = None,
    *,
    backend: str = "auto",
) -> Posterior:
    """Return the marginal distribution of every hidden state given all frames of the video (smoothing).

    Args:
        params: the model, L phases and K tools; or an `Ensemble` of models, whose marginals are averaged.
        obs: (B, T, ...) observations, a list of (T_i, ...) arrays, or (T, ...) for a single video.
        mask: (B, T) bool, True where observed; None if all frames are.
        labels: known states, -1 for unknown.
        backend: "auto" or a name in `hmmjax.messages.BACKENDS`, see `log_likelihood`.

    Returns:
        `Posterior` with phases (B, T, L), tools (B, T, K) = P(tool present), their logarithms and log-odds, and
        log_likelihood (B,). Frames after the last observed one are 0. Given lists, marginals are lists of (T_i, ...)
        arrays.

    Raises:
        TypeError, ValueError: bad input, with cause and fix (concrete arrays only).

    Source: the paper's E-step (Appendix S2.2, with misprints corrected), as derivatives of the log-likelihood with
    respect to emission log-likelihoods.
    """
    if isinstance(params, Ensemble):
        return _of_members(posterior, params, obs, mask, labels, backend=backend)
    value, (phases, tools, *logs) = _call(_posterior, params, obs, mask, labels, backend)
    return Posterior(phases, tools, value, *logs)


def filter(params: Params | Ensemble, obs: Observations, mask: ArrayLike = None, *, backend: str = "auto") -> Posterior:
    """Return the marginal distribution of every hidden state given the frames up to its own (filtering).

    Args:
        params: the model, L phases and K tools; or an `Ensemble` of models, whose marginals are averaged.
        obs: (B, T, ...) observations, a list of (T_i, ...) arrays, or (T, ...) for a single video.
        mask: (B, T) bool, True where observed; None if all frames are.
        backend: "auto" or a name in `hmmjax.messages.BACKENDS`, see `log_likelihood`.

    Returns:
        `Posterior` in the shapes of `posterior`. It is causal: a frame's marginals do not depend on later frames,
        except that all frames of a video found to be impossible are zero (`hmmjax.Stream` returns the frames before).

    Raises:
        TypeError, ValueError: bad input, with cause and fix (concrete arrays only).

    Source: the forward recursion of Appendix S2.2.
    """
    if isinstance(params, Ensemble):
        return _of_members(filter, params, obs, mask, backend=backend)
    value, (phases, tools, *logs) = _call(_filter, params, obs, mask, None, backend)
    return Posterior(phases, tools, value, *logs)


def decode(
    params: Params | Ensemble,
    obs: Observations,
    mask: ArrayLike = None,
    labels: Labels | None = None,
    *,
    backend: str = "auto",
) -> Decoded:
    """Return the jointly most probable path of phases and tools.

    Args:
        params: the model, L phases and K tools; or an `Ensemble` of models, whose marginals are averaged.
        obs: (B, T, ...) observations, a list of (T_i, ...) arrays, or (T, ...) for a single video.
        mask: (B, T) bool, True where observed; None if all frames are.
        labels: known states, -1 for unknown; the path agrees with them.
        backend: "auto" or a name in `hmmjax.messages.BACKENDS`, see `log_likelihood`.

    Returns:
        `Decoded` with phases (B, T) and tools (B, T, K) int32, -1 after the last observed frame, and log_prob (B,), the
        log-probability of that path together with the observations. Given lists, phases and tools are lists of
        (T_i, ...) arrays. If phases have stages, the path is the most probable one over stages. Of an `Ensemble`, the
        most probable state of each frame by itself, and log_prob is the sum of their log-probabilities.

    Raises:
        TypeError, ValueError: bad input, with cause and fix (concrete arrays only).

    Source: Viterbi (1967), over the coupled chain's joint states.
    """
    if isinstance(params, Ensemble):
        return ensembles.decode_frames(posterior(params, obs, mask, labels, backend=backend))
    value, (phases, tools) = _call(_decode, params, obs, mask, labels, backend)
    return Decoded(phases, tools, value)

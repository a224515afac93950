"""Sections of `hmm.py` for GPUs: the dense scan that others would write, and several devices."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hmm_in_turn import problem
from hmm_model import codes, dense, draw, e_step, log_likelihood64, model
from hmm_peers import clock, relative
from jax import lax

import hmmjax


def many_videos(args: Any) -> dict[str, Any]:
    """Compare the E-step with a dense matrix-product scan with pair counts, on 80 videos of 2,300 frames, L = K = 7."""
    params, obs = problem(args.small)
    videos = len(obs.phases)
    device = jax.tree.map(jnp.asarray, (params, obs))
    step = e_step()
    first, best = clock(lambda: step(*device), 10)
    start, move, see = (jnp.asarray(x, jnp.float32) for x in dense(params))
    symbols = jnp.asarray(codes(obs))
    gemm = jax.jit(_dense_e_step)
    dense_best = clock(lambda: gemm(start, move, see, symbols), 3)[1]
    value, counts, _ = gemm(start, move, see, symbols)
    ours, fitted = step(*device)
    exact = np.array([log_likelihood64(params, jax.tree.map(lambda x, i=i: x[i], obs)) for i in range(0, videos, 16)])
    posterior = hmmjax.posterior(*device)
    num_phases = len(params.phases.initial)
    transition = np.asarray(counts).reshape(num_phases, -1, num_phases, 2**params.num_tools).sum((1, 3))
    transition = transition / transition.sum(1, keepdims=True)
    times = {"e_step": best}
    for name in ("log_likelihood", "posterior", "filter", "decode"):
        call = getattr(hmmjax, name)
        times[name] = clock(partial(jax.jit(call), *device), 5)[1]
        times[f"{name}, not jitted: with input checks"] = clock(partial(call, *device), 5)[1]
    times["dense e_step"] = dense_best
    scan = e_step("scan")
    times["e_step, XLA scan"] = clock(lambda: scan(*device), 1)[1]
    differences = {
        "log-likelihood, float64": max(relative(a, b) for a, b in zip(np.asarray(ours)[::16], exact, strict=True)),
        "log-likelihood, dense": max(relative(a, b) for a, b in zip(ours, value, strict=True)),
        "phase transitions, dense": float(np.abs(fitted.phases.transition - transition).max()),
        "posterior, XLA scan": float(
            jnp.abs(posterior.phases - hmmjax.posterior(*device, backend="scan").phases).max()
        ),
        "path log-probability, log-space scan": max(
            relative(a, b)
            for a, b in zip(
                hmmjax.decode(*device).log_prob, hmmjax.decode(*device, backend="logspace").log_prob, strict=True
            )
        ),
    }
    return {
        "ms": {k: round(1e3 * t, 2) for k, t in times.items()},
        "first call, seconds": round(first, 2), "dense over hmmjax": round(dense_best / best, 1),
        "differences": differences,
    }  # fmt: skip


def _dense_e_step(start: Any, move: Any, see: Any, symbols: Any) -> tuple[Any, Any, Any]:
    """Run an E-step as a careful user would write it: batched scans of matrix products over all S states."""
    product = lambda a, b: jnp.matmul(a, b, precision=lax.Precision.HIGHEST)  # noqa: E731
    likelihoods = jnp.moveaxis(see.T[symbols], 1, 0)  # (T, B, S)

    def forward(predicted: Any, seen: Any) -> tuple:
        joint = predicted * seen
        norm = joint.sum(-1, keepdims=True)
        alpha = joint / norm
        return product(alpha, move), (alpha, norm[:, 0])

    first = jnp.broadcast_to(start, likelihoods.shape[1:])
    _, (alpha, norms) = lax.scan(forward, first, likelihoods)

    def backward(carry: tuple, inputs: tuple) -> tuple:
        after, counts = carry
        alpha, seen, norm = inputs
        beta = product(after, move.T)
        counts = counts + product(alpha.T, after)
        return (seen * beta / norm[:, None], counts), (alpha * beta).sum(-1)

    last = (likelihoods[-1] / norms[-1][:, None], jnp.zeros_like(move))
    (_, counts), sums = lax.scan(backward, last, (alpha[:-1], likelihoods[:-1], norms[:-1]), reverse=True)
    return jnp.log(norms).sum(0), counts * move, sums


def devices(_: Any) -> dict[str, Any]:
    """Compare a fit of 161 videos on one device with the same fit spread over all devices."""
    noise = np.random.default_rng(0)
    lengths = np.append(2300, noise.integers(500, 2300, 160))
    start, obs = model(seed=1), draw(model(), lengths)
    mask = np.arange(2300) < lengths[:, None]
    # With a tolerance of zero, rounding would decide on which devices EM stops before ten iterations.
    options = {"max_iterations": 10, "tolerance": -1.0, "priors": hmmjax.Priors(*[0.01] * 6)}
    one, spread = jax.tree.map(jnp.asarray, (obs, mask)), hmmjax.shard(obs, mask)[:2]
    assert all(len(x.sharding.device_set) == len(jax.devices()) for x in jax.tree.leaves(spread))
    seconds, fits = {}, {}
    for name, data in (("one device", one), ("all devices", spread)):
        run = lambda data=data: hmmjax.fit(start, *data, **options)  # noqa: E731
        seconds[name] = round(clock(run, 3)[1], 3)
        fits[name] = run()
    a, b = fits.values()
    posteriors = [np.asarray(hmmjax.posterior(a.params, *data).phases)[:161] for data in (one, spread)]
    leaves = zip(jax.tree.leaves(a.params), jax.tree.leaves(b.params), strict=True)
    return {
        "devices": len(jax.devices()), "seconds of 10 iterations": seconds,
        "history, relative difference": float(np.max(np.abs(a.history / b.history - 1))),
        "parameters, largest difference": max(float(np.abs(np.asarray(x) - np.asarray(y)).max()) for x, y in leaves),
        "posterior, largest difference": float(np.abs(posteriors[0] - posteriors[1]).max()),
    }  # fmt: skip

"""The compiled recursions against dense recursions in float64 logarithms, over thousands of nats and with zeros."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from hmmjax import messages, native
from hmmjax.messages import Potentials

pytestmark = pytest.mark.skipif(not native.is_loaded(), reason=native.describe())
LENGTHS = np.array([12, 1, 7], np.int32)


def dense(p, video):
    """Return the log-normalizer, marginals (n, L, C), filtered marginals, and expected transitions of phases (L, L)."""
    n, (num_phases, num_configs) = int(p.lengths[video]), p.initial.shape
    with np.errstate(divide="ignore"):
        initial, moves = np.log(np.float64(p.initial)), np.log(np.float64(p.transition))
        blocks = [np.log(np.float64(b)) for b in p.blocks]
    tools = np.zeros((num_phases, 1, 1))
    for b in blocks:
        size = tools.shape[1] * b.shape[1]
        tools = (tools[:, :, None, :, None] + b[:, None, :, None, :]).reshape(num_phases, size, size)
    step = (moves[:, None, :, None] + tools.transpose(1, 0, 2)).reshape(2 * [num_phases * num_configs])
    seen = np.float64(p.phases[video])[:n, :, None] + np.float64(p.configs[video])[:n, None]
    seen = seen.reshape(n, -1)
    forward, backward = [initial.ravel() + seen[0]], [np.zeros(seen.shape[1])]
    for t in range(1, n):
        forward.append(np.logaddexp.reduce(forward[-1][:, None] + step, 0) + seen[t])
        backward.append(np.logaddexp.reduce(step + seen[n - t] + backward[-1], 1))
    forward, backward = np.array(forward), np.array(backward[::-1])
    value, past = np.logaddexp.reduce(forward[-1]), np.logaddexp.reduce(forward, 1, keepdims=True)
    shape, counts = (n, num_phases, num_configs), np.zeros((num_phases, num_phases))
    for t in range(1, n):
        pairs = np.exp(forward[t - 1][:, None] + step + seen[t] + backward[t] - value)
        counts += pairs.reshape(2 * [num_phases, num_configs]).sum((1, 3))
    return value, np.exp(forward + backward - value).reshape(shape), np.exp(forward - past).reshape(shape), counts


def derivatives(p, backend):
    value, pull_back = jax.vjp(lambda p: messages.log_normalizer(p, backend), p)
    return value, pull_back(jnp.ones_like(value))[0]


def table(rng, shape, zeros):
    x = rng.dirichlet(np.ones(shape[-1]), shape[:-1])
    rare = (rng.random(shape) < zeros) & (x < x.max(-1, keepdims=True))
    x = np.where(rare, rng.choice([0, 1e-30]), x)
    return jnp.asarray(x / x.sum(-1, keepdims=True), jnp.float32)


def model(rng, num_phases=3, num_tools=2, frames=12):
    num_configs, zeros = 2**num_tools, rng.choice([0, 0.25], 3)
    logs = []
    for width in (num_phases, num_configs):
        scale = rng.choice([1.0, 30, 300, 1000, 5000])
        x = rng.normal(0, scale, (len(LENGTHS), frames, width))
        denied = rng.random(x.shape) < rng.choice([0, 0.15])
        x[denied & (np.arange(width) > 0)] = -np.inf  # some state of every frame stays possible
        logs.append(jnp.asarray(x, jnp.float32))
    initial = table(rng, (1, num_phases * num_configs), zeros[0]).reshape(num_phases, num_configs)
    blocks = tuple(table(rng, (num_phases, 2, 2), zeros[2]) for _ in range(num_tools))
    return messages.Potentials(
        initial, table(rng, (num_phases, num_phases), zeros[1]), blocks, logs[0], logs[1], jnp.asarray(LENGTHS)
    )


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_lost_over_thousands_of_nats(seed):
    p = model(np.random.default_rng(seed))
    values, gradient = derivatives(p, "native")
    filtered, total = messages.filter(p, "native"), np.zeros(p.transition.shape)
    for video, n in enumerate(LENGTHS):
        value, marginals, past, counts = dense(p, video)
        assert_allclose(values[video], value, rtol=2e-6, atol=2e-3)
        assert_allclose(filtered.log_normalizer[video], value, rtol=2e-6, atol=2e-3)
        if not np.isfinite(value):
            continue
        total += counts
        assert_allclose(gradient.phases[video, :n], marginals.sum(2), atol=1e-4)
        assert_allclose(gradient.configs[video, :n], marginals.sum(1), atol=1e-4)
        assert_allclose(filtered.phases[video, :n], past.sum(2), atol=1e-4)
        for tool, states in enumerate(([2, 3], [1, 3])):
            assert_allclose(filtered.tools[video, :n, tool, 1], past.sum(1)[:, states].sum(1), atol=1e-4)
    # The derivative in a probability of 1e-30 does not fit into float32.
    likely = np.asarray(p.transition) > 1e-20
    assert_allclose((np.asarray(gradient.transition) * p.transition)[likely], total[likely], rtol=1e-4, atol=1e-3)


def test_labels_that_clamp_an_improbable_phase_leave_the_frames_before():
    seen = np.zeros((1, 3, 2), np.float32)
    seen[0, 1] = -np.inf, -1000
    half = jnp.full((2, 2), 0.5)
    p = messages.Potentials(half[:, :1], half, (), jnp.asarray(seen), None, jnp.array([3]))
    value, gradient = derivatives(p, "native")
    assert_allclose(value, [-1000 + np.log(0.5)], rtol=1e-6)
    assert_allclose(gradient.phases[0], [[0.5, 0.5], [0, 1], [0.5, 0.5]], atol=1e-6)


@pytest.mark.parametrize("nats", [100.0, 700.0, 2000.0])
def test_a_first_frame_may_favor_a_tool_that_cannot_be_there(nats):
    tools = np.zeros((1, 3, 1, 2), np.float32)
    tools[0, 0, 0, 1] = nats
    stay = jnp.array([[[0.9, 0.1], [0.1, 0.9]]])
    tables = jnp.array([[1.0, 0]]), jnp.ones((1, 1)), (stay,)
    p = messages.Potentials(*tables, jnp.zeros((1, 3, 1)), None, jnp.array([3]), jnp.asarray(tools))
    value, gradient = derivatives(p, "native")
    assert_allclose(value, [0], atol=1e-5)
    assert_allclose(gradient.tools[0, :, 0, 1], [0, 0.1, 0.18], atol=1e-6)
    filtered = messages.filter(p, "native")
    assert_allclose(filtered.log_normalizer, [0], atol=1e-5)
    assert_allclose(filtered.tools[0, :, 0, 1], [0, 0.1, 0.18], atol=1e-6)


def test_observations_of_an_unreachable_phase_add_no_counts():
    seen = np.zeros((1, 6, 2), np.float32)
    seen[0, 1:, 1] = 1000
    tables = jnp.array([[1.0], [0.0]]), jnp.eye(2)
    _, gradient = derivatives(messages.Potentials(*tables, (), jnp.asarray(seen), None, jnp.array([6])), "native")
    assert_allclose(np.diagonal(gradient.transition), [5, 0], rtol=1e-6)


@pytest.mark.parametrize("gap", [100.0, 500.0, 690.0, 1000.0, 3000.0])
def test_a_phase_reached_by_way_of_an_improbable_one_is_not_lost(gap):
    """Phase 2 is first reached from a phase that is `gap` nats behind, and later frames allow no other."""
    initial, transition = np.array([1.0, 0, 0]), np.array([[0.9, 0.1, 0], [0, 0.9, 0.1], [0, 0, 1]])
    seen = np.zeros((8, 3), np.float32)
    seen[1:4, 1], seen[4:, :2] = -gap, -10 * gap
    with np.errstate(divide="ignore"):
        start, moves = np.log(initial), np.log(transition)
    forward, backward = [start + seen[0]], [np.zeros(3)]
    for t in range(1, 8):
        forward.append(np.logaddexp.reduce(forward[-1][:, None] + moves, 0) + seen[t])
        backward.append(np.logaddexp.reduce(moves + seen[-t] + backward[-1], 1))
    value = np.logaddexp.reduce(forward[-1])
    marginals = np.exp(np.array(forward) + np.array(backward[::-1]) - value)
    tables = (jnp.asarray(initial[:, None], jnp.float32), jnp.asarray(transition, jnp.float32), ())
    p = messages.Potentials(*tables, jnp.asarray(seen[None]), None, jnp.array([8]))
    found, gradient = derivatives(p, "native")
    assert_allclose(found, value, rtol=1e-6)
    assert_allclose(gradient.phases[0], marginals, atol=1e-5)
    assert_allclose(messages.filter(p, "native").log_normalizer, [value], rtol=1e-6)


@pytest.mark.parametrize("tiny", [1e-60, 1e-120, 1e-240, 1e-290])
def test_tiny_probabilities_of_phases_in_double_precision(tiny):
    """Marginals and expected counts against the sum over all paths, where products leave the range of doubles."""
    initial = np.array([0.5, 0.5, tiny])
    transition = np.array([[0.5, 0.5, tiny / 2], [tiny, 1.0, tiny], [tiny, 1.0, tiny]])
    no = -np.inf
    seen = np.array([[-30.0, 0, -100], [no, no, -30], [no, -30, -30], [-100, no, no]])
    paths = np.stack(np.meshgrid(*[range(3)] * 4, indexing="ij"), -1).reshape(-1, 4)
    weights = np.log(initial)[paths[:, 0]] + np.log(transition)[paths[:, :-1], paths[:, 1:]].sum(1)
    weights = weights + seen[range(4), paths].sum(1)
    value = np.logaddexp.reduce(weights)
    share = np.exp(weights - value)
    marginals, counts = np.zeros((4, 3)), np.zeros((3, 3))
    for path, s in zip(paths, share, strict=True):
        marginals[range(4), path] += s
        np.add.at(counts, (path[:-1], path[1:]), s)
    with jax.enable_x64(True):
        arrays = jnp.array(initial[:, None]), jnp.array(transition), jnp.array(seen[None])

        def log_normalizer(start, moves, frames):
            p = Potentials(start, moves, (), frames, None, jnp.array([4], jnp.int32))
            return messages.log_normalizer(p, "native")[0]

        run = jax.value_and_grad(log_normalizer, (0, 1, 2))
        found, (start, moves, frames) = jax.tree.map(np.asarray, run(*arrays))
    assert_allclose(found, value, rtol=1e-10)
    assert_allclose(frames[0], marginals, atol=1e-9)
    assert_allclose(moves * transition, counts, atol=1e-9)
    assert_allclose(start[:, 0] * initial, marginals[0], atol=1e-9)

"""Slow reference implementations in NumPy float64 and SciPy, which share no code with the library.

`enumerate_paths` adds up every hidden path and fits on a page; `dense` runs log-space forward-backward over the joint
space of L * 2^K states and reaches real sizes. Both take the parameters as arrays in the library's axis order and the
emission log-likelihoods as tables, such as those of `emission_oracles`, and return one `Answer`. Without phases a dummy
phase is used, without tools K = 0.
"""

import dataclasses
import itertools

import numpy as np
from scipy.special import expit, logsumexp


@dataclasses.dataclass
class Model:
    """Initial (L,), transition (L, L), tool_initial (K, L) or (K,), tool_transition (K, L, 2, 2) or (K, 2, 2).

    `interactions` (L, K, K + 1) or (K, K + 1), where given, are log-odds that replace tool_transition: only
    `enumerate_paths` knows them.
    """

    initial: np.ndarray | None = None
    transition: np.ndarray | None = None
    tool_initial: np.ndarray | None = None
    tool_transition: np.ndarray | None = None
    interactions: np.ndarray | None = None

    def full(self) -> "Model":
        """The same model with both tracks: one dummy phase, or no tools."""
        initial, transition = self.initial, self.transition
        if initial is None:
            initial, transition = np.ones(1), np.ones((1, 1))
        num_phases = len(initial)
        if self.tool_initial is None:
            beta, tools = np.zeros((0, num_phases)), np.zeros((0, num_phases, 2, 2))
        else:
            beta, tools = self.tool_initial, self.tool_transition
            if beta.ndim == 1:
                beta, tools = beta[:, None], tools[:, None]
        weights = self.interactions
        if weights is not None:
            weights = np.asarray(weights, np.float64).reshape(num_phases, len(beta), -1)
        return Model(*(np.asarray(x, np.float64) for x in (initial, transition, beta, tools)), weights)


@dataclasses.dataclass
class EmissionTable:
    """Log-likelihoods of a video: phases (T, L), tools (T, K, 2), configurations (T, 2^K) or None."""

    phases: np.ndarray
    tools: np.ndarray
    configs: np.ndarray | None = None

    def __getitem__(self, frames: slice) -> "EmissionTable":
        configs = None if self.configs is None else self.configs[frames]
        return EmissionTable(self.phases[frames], self.tools[frames], configs)

    def __len__(self) -> int:
        return len(self.phases)


@dataclasses.dataclass
class Answer:
    """The exact results for one video; counts are expected counts, all in float64.

    phases (T, L), tools (T, K) = P(present), filter_* the same given the past only, path_* the most probable path,
    count_initial (L,), count_transition (L, L), count_tool_initial (K, L, 2), count_tool_transition (K, L, 2, 2).
    """

    log_likelihood: float
    phases: np.ndarray
    tools: np.ndarray
    filter_phases: np.ndarray
    filter_tools: np.ndarray
    path_phases: np.ndarray
    path_tools: np.ndarray
    path_log_prob: float
    count_initial: np.ndarray
    count_transition: np.ndarray
    count_tool_initial: np.ndarray
    count_tool_transition: np.ndarray


def safe_log(x):
    with np.errstate(divide="ignore"):
        return np.log(x)


def emission_table(num_frames, num_phases, num_tools, phases=None, tools=None, mask=None, labels=None) -> EmissionTable:
    """Return log-likelihood tables of one video from emission tables, a mask and labels, up to the last observed frame.

    `phases` (T, L) and `tools` (T, K, 2) are log-densities or None; `labels` a pair of int arrays, -1 unknown.
    """
    mask = np.ones(num_frames, bool) if mask is None else np.asarray(mask, bool)
    length = int(np.flatnonzero(mask)[-1]) + 1 if mask.any() else 0
    log_phases = np.zeros((num_frames, max(num_phases, 1)))
    log_tools = np.zeros((num_frames, num_tools, 2))
    if phases is not None:
        log_phases[mask] = np.asarray(phases, np.float64)[mask]
    if tools is not None:
        log_tools[mask] = np.asarray(tools, np.float64)[mask]
    known_phases, known_tools = labels if labels is not None else (None, None)
    if known_phases is not None:
        for t, p in enumerate(known_phases):
            if p >= 0:
                log_phases[t, np.arange(num_phases) != p] = -np.inf
    if known_tools is not None:
        for t, row in enumerate(known_tools):
            for k, d in enumerate(row):
                if d >= 0:
                    log_tools[t, k, 1 - d] = -np.inf
    return EmissionTable(log_phases[:length], log_tools[:length])


def path_log_prob(model: Model, table: EmissionTable, phases, tools) -> np.ndarray:
    """Log-probability of hidden paths together with the observations: phases (..., T), tools (..., T, K)."""
    m = model.full()
    phases, tools = np.asarray(phases), np.asarray(tools)
    if model.initial is None:
        phases = np.zeros(tools.shape[:-1], int)
    if model.tool_initial is None:
        tools = np.zeros((*phases.shape, 0), int)
    num_frames, num_tools = len(table), tools.shape[-1]
    frames, k = np.arange(num_frames), np.arange(num_tools)
    first = m.tool_initial[k, phases[..., :1]]
    total = safe_log(m.initial[phases[..., 0]]) + safe_log(np.where(tools[..., 0, :] == 1, first, 1 - first)).sum(-1)
    total = total + safe_log(m.transition[phases[..., :-1], phases[..., 1:]]).sum(-1)
    if m.interactions is None:
        moves = m.tool_transition[k, phases[..., 1:, None], tools[..., :-1, :], tools[..., 1:, :]]
    else:
        eta = m.interactions[phases[..., 1:]]  # (..., T - 1, K, K + 1)
        present = expit(eta[..., 0] + (eta[..., 1:] * tools[..., :-1, None, :]).sum(-1))
        moves = np.where(tools[..., 1:, :] == 1, present, 1 - present)
    total = total + safe_log(moves).sum((-1, -2))
    if table.configs is not None:
        total = total + table.configs[frames, config_of(tools)].sum(-1)
    return total + table.phases[frames, phases].sum(-1) + table.tools[frames[:, None], k, tools].sum((-1, -2))


def config_of(tools) -> np.ndarray:
    """Numbers of configurations (...,) from tools (..., K), tool 0 the highest bit."""
    return sum(2 ** (tools.shape[-1] - 1 - k) * tools[..., k] for k in range(tools.shape[-1]))


def config_counts(model: Model, table: EmissionTable) -> tuple[np.ndarray, np.ndarray]:
    """Posteriors of configurations (T, C) and expected counts of their moves into each phase (L, C, C)."""
    m = model.full()
    num_configs = 2 ** len(m.tool_initial)
    phases, tools, log_prob = _enumerate(m, table)
    weight = np.exp(log_prob - logsumexp(log_prob))
    config = np.eye(num_configs)[config_of(tools)]  # (N, T, C)
    into = np.eye(len(m.initial))[phases[:, 1:]]
    return (
        np.einsum("n,ntc->tc", weight, config),
        np.einsum("n,ntq,ntc,ntd->qcd", weight, into, config[:, :-1], config[:, 1:]),
    )


def _enumerate(model: Model, table: EmissionTable):
    """Every path: phases (N, T), tools (N, T, K), log-probability (N,)."""
    m = model.full()
    num_phases, num_tools = len(m.initial), len(m.tool_initial)
    states = list(itertools.product(range(num_phases), *[range(2)] * num_tools))
    paths = np.array(list(itertools.product(states, repeat=len(table))), int)
    phases, tools = paths[..., 0], paths[..., 1:]
    return phases, tools, path_log_prob(m, table, phases, tools)


def enumerate_paths(model: Model, table: EmissionTable) -> Answer:
    """Sum over every hidden path. There are (L * 2^K)^T of them: keep that under a few hundred thousand."""
    m = model.full()
    num_phases, num_tools, num_frames = len(m.initial), len(m.tool_initial), len(table)
    phases, tools, log_prob = _enumerate(m, table)
    log_likelihood = logsumexp(log_prob)
    weight = np.exp(log_prob - log_likelihood)
    onehot = np.eye(num_phases)[phases]  # (N, T, L)
    bits = np.eye(2)[tools]  # (N, T, K, 2)
    filtered = []
    for t in range(num_frames):
        head_phases, head_tools, head = _enumerate(m, table[: t + 1])
        head = np.exp(head - logsumexp(head))
        filtered.append((head @ np.eye(num_phases)[head_phases[:, -1]], np.tensordot(head, head_tools[:, -1], 1)))
    best = int(np.argmax(log_prob))
    return Answer(
        log_likelihood=float(log_likelihood),
        phases=np.einsum("n,ntp->tp", weight, onehot),
        tools=np.einsum("n,ntk->tk", weight, tools),
        filter_phases=np.array([f[0] for f in filtered]),
        filter_tools=np.array([f[1] for f in filtered]).reshape(num_frames, num_tools),
        path_phases=phases[best],
        path_tools=tools[best],
        path_log_prob=float(log_prob[best]),
        count_initial=weight @ onehot[:, 0],
        count_transition=np.einsum("n,ntp,ntq->pq", weight, onehot[:, :-1], onehot[:, 1:]),
        count_tool_initial=np.einsum("n,np,nki->kpi", weight, onehot[:, 0], bits[:, 0]),
        count_tool_transition=np.einsum("n,ntq,ntki,ntkj->kqij", weight, onehot[:, 1:], bits[:, :-1], bits[:, 1:]),
    )


def joint_transition(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Initial (S,) and transition (S, S) over joint states p * 2^K + code, tool 0 the highest bit of the code."""
    m = model.full()
    num_phases, num_tools = len(m.initial), len(m.tool_initial)
    initial, columns = [], []
    for q in range(num_phases):
        start, move = np.ones(1), np.ones((1, 1))
        for k in range(num_tools):
            start = np.kron(start, [1 - m.tool_initial[k, q], m.tool_initial[k, q]])
            move = np.kron(move, m.tool_transition[k, q])
        initial.append(m.initial[q] * start)
        columns.append(np.kron(m.transition[:, q : q + 1], move))
    return np.concatenate(initial), np.concatenate(columns, axis=1)


def dense(model: Model, table: EmissionTable) -> Answer:
    """Forward-backward, filter, Viterbi and expected counts over the whole joint space, in log-space."""
    m = model.full()
    num_phases, num_tools, num_frames = len(m.initial), len(m.tool_initial), len(table)
    codes = (np.arange(2**num_tools)[:, None] >> np.arange(num_tools)[::-1]) & 1  # (2^K, K)
    state_phase = np.repeat(np.arange(num_phases), 2**num_tools)
    state_tools = np.tile(codes, (num_phases, 1))
    initial, transition = (safe_log(x) for x in joint_transition(m))
    emission = table.phases[:, state_phase] + table.tools[:, np.arange(num_tools), state_tools].sum(-1)

    forward = np.empty_like(emission)
    best = np.empty_like(emission)
    forward[0] = best[0] = initial + emission[0]
    for t in range(1, num_frames):
        forward[t] = _logsumexp0(forward[t - 1][:, None] + transition) + emission[t]
        best[t] = (best[t - 1][:, None] + transition).max(0) + emission[t]
    log_likelihood = logsumexp(forward[-1])
    backward = np.zeros_like(emission)
    pairs = np.zeros_like(transition)
    path = [int(np.argmax(best[-1]))]
    for t in range(num_frames - 1, 0, -1):
        ahead = transition + (emission[t] + backward[t])
        pairs += np.exp(forward[t - 1][:, None] + ahead - log_likelihood)
        backward[t - 1] = _logsumexp0(ahead.T)
        path.append(int(np.argmax(best[t - 1] + transition[:, path[-1]])))
    path = np.array(path[::-1])
    posterior = np.exp(forward + backward - log_likelihood)
    filtered = np.exp(forward - logsumexp(forward, axis=1, keepdims=True))

    of_phase = np.eye(num_phases)[state_phase]  # (S, L)
    of_bit = np.eye(2)[state_tools]  # (S, K, 2)
    into_phase = np.stack([pairs * of_phase[:, q] for q in range(num_phases)])  # (L, S, S), columns of phase q
    tool_pairs = [np.einsum("qst,si,tj->qij", into_phase, of_bit[:, k], of_bit[:, k]) for k in range(num_tools)]
    return Answer(
        log_likelihood=float(log_likelihood),
        phases=posterior @ of_phase,
        tools=posterior @ state_tools,
        filter_phases=filtered @ of_phase,
        filter_tools=filtered @ state_tools,
        path_phases=state_phase[path],
        path_tools=state_tools[path],
        path_log_prob=float(best[-1].max()),
        count_initial=posterior[0] @ of_phase,
        count_transition=of_phase.T @ pairs @ of_phase,
        count_tool_initial=np.einsum("s,sp,ski->kpi", posterior[0], of_phase, of_bit),
        count_tool_transition=np.array(tool_pairs).reshape(num_tools, num_phases, 2, 2),
    )


def _logsumexp0(x):
    """Compute logsumexp over the first axis, several times faster than SciPy's on the large arrays here."""
    top = x.max(0)
    top = np.where(np.isfinite(top), top, 0.0)
    return safe_log(np.exp(x - top).sum(0)) + top


def random_model(rng: np.random.Generator, num_phases: int, num_tools: int, sticky: float = 0.0) -> Model:
    """Random tables; `sticky` is the weight of the identity in every transition matrix. 0 phases or tools: no track."""

    def transition(*shape):
        rows = rng.dirichlet(np.ones(shape[-1]), shape[:-1])
        return (1 - sticky) * rows + sticky * np.eye(shape[-1])

    phases, tools = (), ()
    if num_phases:
        phases = rng.dirichlet(np.ones(num_phases)), transition(num_phases, num_phases)
    if num_tools:
        by_phase = (num_phases,) if num_phases else ()
        tools = rng.uniform(0.05, 0.95, (num_tools, *by_phase)), transition(num_tools, *by_phase, 2, 2)
    return Model(*(phases or (None, None)), *(tools or (None, None)))


def simulate(rng: np.random.Generator, model: Model, num_frames: int):
    """One hidden path: phases (T,) and tools (T, K)."""
    m = model.full()
    num_phases, num_tools = len(m.initial), len(m.tool_initial)
    k = np.arange(num_tools)
    phases, tools = np.zeros(num_frames, int), np.zeros((num_frames, num_tools), int)
    for t in range(num_frames):
        phases[t] = rng.choice(num_phases, p=m.transition[phases[t - 1]] if t else m.initial)
        present = m.tool_transition[k, phases[t], tools[t - 1], 1] if t else m.tool_initial[k, phases[t]]
        tools[t] = rng.uniform(size=num_tools) < present
    return phases, tools

"""Emission log-densities of one video in NumPy float64 and SciPy, and recognizers to draw outputs from."""

import itertools

import numpy as np
from oracles import safe_log
from scipy import stats
from scipy.special import expit


def tool_logistic(weights, labels) -> np.ndarray:
    """(T, K, 2^K) log-probability of labels (T, K) under every configuration, from weights (K, K + 1)."""
    weights, labels = np.asarray(weights, np.float64), np.asarray(labels)
    out = np.empty((*labels.shape, 2 ** len(weights)))
    for c, tools in enumerate(itertools.product(range(2), repeat=len(weights))):
        present = expit(weights[:, 0] + weights[:, 1:] @ np.array(tools))
        out[..., c] = safe_log(np.where(labels == 1, present, 1 - present))
    return out


def phase_confusion(matrix, labels) -> np.ndarray:
    """(T, L) from matrix (L, L) and labels (T,)."""
    return safe_log(np.asarray(matrix, np.float64)[:, labels].T)


def tool_confusion(matrix, labels) -> np.ndarray:
    """(T, K, 2) from matrix (K, 2, 2) and labels (T, K)."""
    matrix, labels = np.asarray(matrix, np.float64), np.asarray(labels)
    return np.stack([safe_log(matrix[k, :, labels[:, k]]) for k in range(len(matrix))], 1)


def phase_dirichlet(concentration, probabilities, eps=1e-6) -> np.ndarray:
    """(T, L) from concentration (L, L) and probabilities (T, L), clipped and brought back to sum one."""
    x = np.clip(np.asarray(probabilities, np.float64), eps, 1 - eps)
    x = x / x.sum(-1, keepdims=True)
    if x.shape[-1] == 1:
        return np.zeros_like(x)
    rows = np.asarray(concentration, np.float64)
    return np.stack([np.atleast_1d(stats.dirichlet.logpdf(x.T, row)) for row in rows], -1)


def tool_beta(concentration, probabilities, eps=1e-6) -> np.ndarray:
    """(T, K, 2) from concentration (K, 2, 2) and probabilities (T, K), clipped."""
    x = np.clip(np.asarray(probabilities, np.float64), eps, 1 - eps)
    c = np.asarray(concentration, np.float64)
    return stats.beta.logpdf(x[..., None], c[..., 0], c[..., 1])


def tool_inflated_beta(tables, probabilities) -> np.ndarray:
    """(T, K, 2) from mass (K, 2, 3), concentration (K, 2, 2) and probabilities (T, K)."""
    mass, concentration = (np.asarray(t, np.float64) for t in tables)
    x = np.asarray(probabilities, np.float64)[..., None]
    inside = safe_log(mass[..., 1]) + tool_beta(concentration, x[..., 0])
    return np.where(x <= 1e-6, safe_log(mass[..., 0]), np.where(x >= 1 - 1e-6, safe_log(mass[..., 2]), inside))


def phase_inflated_dirichlet(tables, probabilities) -> np.ndarray:
    """(T, L) from mass (L, L + 1), concentration (L, L) and probabilities (T, L)."""
    mass, concentration = (np.asarray(t, np.float64) for t in tables)
    table = safe_log(mass[:, -1]) + phase_dirichlet(concentration, probabilities)
    for t, row in enumerate(np.asarray(probabilities)):
        if row.max() >= 1 - 1e-6:
            table[t] = safe_log(mass[:, row.argmax()])
    return table


def phase_logit_normal(tables, probabilities, eps=1e-6) -> np.ndarray:
    """(T, L) from mean (L, L - 1), scale (L, L - 1): the density on the simplex, Jacobian by the definition."""
    mean, scale = (np.asarray(t, np.float64) for t in tables)
    x = np.clip(np.asarray(probabilities, np.float64), eps, 1 - eps)
    x = x / x.sum(-1, keepdims=True)
    ratios = np.log(x[:, :-1] / x[:, -1:])
    density = stats.norm.logpdf(ratios[:, None], mean, scale).sum(-1)
    return density - np.log(x).sum(-1)[:, None]


def tool_logit_normal(tables, probabilities, eps=1e-6) -> np.ndarray:
    """(T, K, 2) from mean (K, 2), scale (K, 2): the density of a score whose logit is normal."""
    mean, scale = (np.asarray(t, np.float64) for t in tables)
    x = np.clip(np.asarray(probabilities, np.float64), eps, 1 - eps)[..., None]
    return stats.norm.logpdf(np.log(x / (1 - x)), mean, scale) - np.log(x * (1 - x))


def _by_past(alone: np.ndarray, after: np.ndarray, past) -> np.ndarray:
    """Of each frame (and tool): log-densities `after` where the frame before was observed, `alone` elsewhere."""
    return np.where(np.asarray(past.observed)[0][..., None], after, alone)


def phase_autoregressive(tables, labels, past=None) -> np.ndarray:
    """(T, L) from matrix (L, M) and after (L, M, M), the rows by the label before."""
    matrix, after = (np.asarray(t, np.float64) for t in tables)
    alone = phase_confusion(matrix, labels)
    if past is None:
        return alone
    pairs = zip(past.values[0], labels, strict=True)
    return _by_past(alone, np.log([[row[n, m] for row in after] for n, m in pairs]), past)


def tool_autoregressive(tables, labels, past=None) -> np.ndarray:
    """(T, K, 2) from matrix (K, 2, M) and after (K, 2, M, M)."""
    matrix, after = (np.asarray(t, np.float64) for t in tables)
    alone = tool_confusion(matrix, labels)
    if past is None:
        return alone
    frames = zip(past.values[0], labels, strict=True)
    table = [[after[k, :, n[k], m[k]] for k in range(len(after))] for n, m in frames]
    return _by_past(alone, np.log(table), past)


def phase_autoregressive_logit_normal(tables, probabilities, past=None) -> np.ndarray:
    """(T, L): the mean and scale of each logit are those of a regression on the logit before."""
    mean, scale, intercept, slope, residual = (np.asarray(t, np.float64) for t in tables)
    alone = phase_logit_normal((mean, scale), probabilities)
    if past is None:
        return alone
    y = np.clip(np.asarray(past.values[0], np.float64), 1e-6, 1 - 1e-6)
    means = intercept + slope * np.log(y[:, None, :-1] / y[:, None, -1:])
    frames = zip(means, probabilities, strict=True)
    after = np.concatenate([phase_logit_normal((m, residual), p[None]) for m, p in frames])
    return _by_past(alone, after, past)


def tool_autoregressive_logit_normal(tables, probabilities, past=None) -> np.ndarray:
    """(T, K, 2), as `phase_autoregressive_logit_normal`."""
    mean, scale, intercept, slope, residual = (np.asarray(t, np.float64) for t in tables)
    alone = tool_logit_normal((mean, scale), probabilities)
    if past is None:
        return alone
    y = np.clip(np.asarray(past.values[0], np.float64), 1e-6, 1 - 1e-6)
    means = intercept + slope * np.log(y / (1 - y))[..., None]
    frames = zip(means, probabilities, strict=True)
    after = np.concatenate([tool_logit_normal((m, residual), p[None]) for m, p in frames])
    return _by_past(alone, after, past)


def phase_gaussian(tables: list, observations: np.ndarray) -> np.ndarray:
    """(T, L) log-densities of features (T, D), from means (L, D) and full covariances (L, D, D)."""
    density = stats.multivariate_normal.logpdf
    return np.stack([np.reshape(density(observations, m, c), -1) for m, c in zip(*tables, strict=True)], -1)


def tool_gaussian(tables: list, observations: np.ndarray) -> np.ndarray:
    """(T, K, 2) log-densities of features (T, K, D), from means (K, 2, D) and full covariances (K, 2, D, D)."""
    tools = zip(*tables, strict=True)
    return np.stack([phase_gaussian(list(tool), observations[:, k]) for k, tool in enumerate(tools)], 1)


def log_densities(family: str, table: np.ndarray, observations: np.ndarray, *past) -> np.ndarray:
    """The family's table of log-densities: (T, L) or (T, K, 2), given the `hmmjax.emissions.Past` of each frame."""
    functions = {
        "PhaseConfusion": phase_confusion,
        "ToolConfusion": tool_confusion,
        "PhaseDirichlet": phase_dirichlet,
        "ToolBeta": tool_beta,
        "PhaseInflatedDirichlet": phase_inflated_dirichlet,
        "ToolInflatedBeta": tool_inflated_beta,
        "PhaseLogitNormal": phase_logit_normal,
        "ToolLogitNormal": tool_logit_normal,
        "ToolLogistic": tool_logistic,
        "PhaseGaussian": phase_gaussian,
        "ToolGaussian": tool_gaussian,
        "PhaseAutoregressive": phase_autoregressive,
        "ToolAutoregressive": tool_autoregressive,
        "PhaseAutoregressiveLogitNormal": phase_autoregressive_logit_normal,
        "ToolAutoregressiveLogitNormal": tool_autoregressive_logit_normal,
    }
    return functions[family](table, observations, *past)


def observe(rng: np.random.Generator, family: str, table: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Draw the output of a recognizer of `family` with parameters `table` for hidden `states` (T,) or (T, K)."""
    if family == "PhaseConfusion":
        return np.array([rng.choice(table.shape[1], p=table[p]) for p in states], np.int32)
    if family == "PhaseDirichlet":
        return np.array([rng.dirichlet(table[p]) for p in states], np.float32)
    k = np.arange(states.shape[-1])
    if family == "ToolConfusion":
        return (rng.uniform(size=states.shape) < table[k, states, 1]).astype(np.int32)
    return rng.beta(table[k, states, 0], table[k, states, 1]).astype(np.float32)


def random_emissions(rng: np.random.Generator, num_phases: int, num_tools: int) -> dict[str, np.ndarray]:
    """Parameters of the four families, informative and overlapping."""
    diagonal = np.eye(num_phases)
    return {
        "PhaseConfusion": 0.5 * diagonal + 0.5 * rng.dirichlet(np.ones(max(num_phases, 1)), num_phases),
        "ToolConfusion": 0.5 * np.eye(2) + 0.5 * rng.dirichlet(np.ones(2), (num_tools, 2)),
        "PhaseDirichlet": 3.0 * diagonal + rng.uniform(0.7, 2.0, (num_phases, num_phases)),
        "ToolBeta": np.array([[1.0, 3.0], [3.0, 1.0]]) + rng.uniform(0.0, 1.0, (num_tools, 2, 2)),
    }

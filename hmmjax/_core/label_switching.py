"""States that EM found under each other's names."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import linear_sum_assignment

from hmmjax.types import Params


def find_label_switching(params: Params) -> list[str]:
    """States that look as if they had changed places.

    Without labels EM may find the right states under wrong names: every answer is then right but for the names. The
    recognizers' words are compared: a phase is suspect where another assignment of phases to the classes that a
    recognizer says explains certain outputs better, and a tool where its absence explains a certain yes better than
    its presence does.

    Args:
        params: the model, with values (no tracers). Families that are `joint` are not looked at.

    Returns:
        A sentence for each suspect state; empty where there is none.

    Source: Redner and Walker (1984) on the symmetry of mixtures; Kuhn's assignment by `scipy`.
    """
    out = []
    for track in ("phases", "tools"):
        emission = getattr(getattr(params, track), "emission", None)
        for family in () if emission is None else emission.sources:
            if family.observes in ("labels", "probabilities") and not family.is_joint:
                out += _phases(family) if track == "phases" else _tools(family)
    return list(dict.fromkeys(out))


SURE = 0.9
"""What a recognizer says in the outputs by which states are told apart."""


def _phases(family: Any) -> list[str]:
    n = family.num_phases
    if n < 2:
        return []
    said = np.arange(n) if family.observes == "labels" else _sure(n)
    scores = np.asarray(family.log_prob(jnp.asarray(said)), np.float64)
    scores = np.maximum(scores, -1e3).T  # rows are hidden phases, columns what is said
    # How much more is this said here than elsewhere: a class that is often said is no better a name for that.
    scores = scores - np.logaddexp.reduce(scores, axis=0, keepdims=True)
    _, best = linear_sum_assignment(-scores)
    gain = scores[np.arange(n), best].sum() - np.trace(scores)
    if gain <= 1e-3:
        return []
    return [f"phase {p} behaves as the recognizer's phase {q}" for p, q in enumerate(best) if p != q]


def _sure(n: int) -> np.ndarray:
    rows = np.full((n, n), (1 - SURE) / (n - 1), np.float32)
    np.fill_diagonal(rows, SURE)
    return rows


def _tools(family: Any) -> list[str]:
    k = family.num_tools
    if family.observes == "labels":
        yes, no = np.ones(k, np.int32), np.zeros(k, np.int32)
    else:
        yes, no = np.full(k, SURE, np.float32), np.full(k, 1 - SURE, np.float32)
    # What is impossible in both states says nothing of either.
    odds = [np.maximum(np.asarray(family.log_prob(jnp.asarray(x)), np.float64), -1e3) for x in (yes, no)]
    odds = [table[:, 1] - table[:, 0] for table in odds]
    return [
        f"tool {i} is called present when it is absent" for i in range(k) if odds[0][i] < 0 and odds[0][i] < odds[1][i]
    ]

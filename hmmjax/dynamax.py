"""Conversion to and from dynamax's `CategoricalHMM`.

Needs dynamax (the ``bench`` extra). Models with confusion emissions have an exact counterpart: one chain over their
L * 2**K joint states, phase slowest and tool 0 the highest bit of the configuration.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from hmmjax._core import configurations, lowering
from hmmjax._core.batch import Batch
from hmmjax._core.stages import phase_of_stage
from hmmjax._core.tables import tabulate
from hmmjax._core.typing import Array
from hmmjax._core.validation import check_params
from hmmjax.emissions import PhaseConfusion, ToolConfusion
from hmmjax.transitions import PhaseConditioned
from hmmjax.types import Observations, Params, PhaseChain, ToolChains

DynamaxModel = Any
"""A `dynamax.hidden_markov_model.CategoricalHMM`; dynamax is imported only when needed."""

DynamaxParams = Any
"""The parameters of a `DynamaxModel`."""

MAX_STATES = 1024
"""Maximum number of joint states, whose dense transition matrix is built."""


def to_dynamax(params: Params) -> tuple[DynamaxModel, DynamaxParams]:
    """Convert a model to dynamax.

    Args:
        params: the model, with `PhaseConfusion` and `ToolConfusion` emissions without powers, and at most `MAX_STATES`
            joint states.

    Returns:
        A `CategoricalHMM` and its parameters. Its states are joint states (see `joint_states`), its emissions those of
        `to_emissions`: the phase label if the model has phases with an emission, then each tool's.

    Raises:
        ImportError: dynamax is not installed.
        TypeError: emissions of another family.
        ValueError: too many joint states, or a model without emissions.
    """
    from dynamax.hidden_markov_model import CategoricalHMM

    check_params(params)
    phases, tools, owner = joint_states(params)
    if len(phases) > MAX_STATES:
        raise ValueError(
            f"the model has {len(phases)} joint states, whose dense transition matrix is too large. Use at most "
            f"{MAX_STATES}."
        )
    initial, transition = _expand(params, owner)
    tables = []
    for track, kind in (("phases", PhaseConfusion), ("tools", ToolConfusion)):
        chain = getattr(params, track)
        if chain is None or chain.emission is None:
            continue
        if not isinstance(chain.emission, kind):
            raise TypeError(
                f"{track}.emission is {type(chain.emission).__name__}; only {kind.__name__} is categorical."
            )
        matrix = np.asarray(chain.emission.matrix, np.float64)
        tables += [matrix[phases]] if track == "phases" else [matrix[k, tools[:, k]] for k in range(len(matrix))]
    if not tables:
        raise ValueError("the model has no emissions; set one on phases or tools.")
    classes = max(table.shape[1] for table in tables)
    probabilities = np.stack([np.pad(t, ((0, 0), (0, classes - t.shape[1]))) for t in tables], 1)
    model = CategoricalHMM(len(phases), len(tables), classes)
    given, _ = model.initialize(
        initial_probs=jnp.asarray(initial, jnp.float32),
        transition_matrix=jnp.asarray(transition, jnp.float32),
        emission_probs=jnp.asarray(probabilities, jnp.float32),
    )
    return model, given


def to_emissions(obs: Observations) -> Array:
    """Return one video's labels in the order of the emissions of `to_dynamax`.

    Args:
        obs: labels of a single video, phases (T,) and/or tools (T, K).

    Returns:
        (T, columns) int, the phase first and then each tool.

    Raises:
        TypeError: probabilities, or several recognizers.
        ValueError: a batch of videos, no observations, or tracks of different lengths.
    """
    columns = []
    for name, axes in (("phases", 1), ("tools", 2)):
        if (x := getattr(obs, name)) is None:
            continue
        if isinstance(x, tuple) or (x := np.asarray(x)).dtype.kind not in "biu":
            raise TypeError(
                f"obs.{name} must hold the labels of one recognizer. obs.discretize() converts probabilities to labels."
            )
        if x.ndim != axes:
            meaning = "(T,)" if axes == 1 else "(T, K)"
            raise ValueError(f"obs.{name} has shape {x.shape}, but must be {meaning}: one video at a time.")
        columns.append(x.reshape(len(x), -1).astype(np.int32))
    if not columns:
        raise ValueError("obs is empty. Pass labels of phases, tools or both.")
    if len({len(x) for x in columns}) != 1:
        raise ValueError(f"obs.phases and obs.tools have {[len(x) for x in columns]} frames; they must agree.")
    return jnp.asarray(np.concatenate(columns, 1))


def joint_states(params: Params) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the phase, tools and stage of each of the S joint states.

    Args:
        params: the model.

    Returns:
        phase: (S,) int; 0 throughout without phases.
        tools: (S, K) 0 or 1.
        stage: (S,) int, counted over phases.
    """
    chain = params.phases
    stages = (1,) if chain is None else chain.stages or (1,) * chain.num_phases
    bits = np.asarray(configurations.bits(params.num_tools)) if params.num_tools else np.zeros((1, 0), int)
    stage = np.repeat(np.arange(sum(stages)), len(bits))
    return phase_of_stage(tuple(stages))[stage], np.tile(bits, (sum(stages), 1)), stage


def _expand(params: Params, stage: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return initial (S,) and transition (S, S) probabilities over joint states, from the tables of inference."""
    p = lowering.lower(params, tabulate(params, Batch.unobserved(1)), np.zeros(1, np.int32))
    if lowering.structure_of(params).independent:
        initial, transition = np.ones(1), np.ones((1, 1))
        for start, move in zip(np.asarray(p.initial)[..., 0], np.asarray(p.transition), strict=True):
            initial, transition = np.kron(initial, start), np.kron(transition, move)
        return initial, transition
    columns = []
    for q in range(p.transition.shape[0]):
        move = np.ones((1, 1))
        for block in p.blocks:
            move = np.kron(move, np.asarray(block[q], np.float64))
        columns.append(np.kron(np.asarray(p.transition, np.float64)[:, q : q + 1], move))
    return np.asarray(p.initial, np.float64).reshape(-1), np.concatenate(columns, 1)


def from_dynamax(params: DynamaxParams) -> Params:
    """Convert dynamax's `ParamsCategoricalHMM` to a model of phases; for tools see `tool_from_dynamax`.

    Args:
        params: parameters with a single emission column, over as many classes as there are states.

    Returns:
        The model, with `PhaseConfusion`.

    Raises:
        TypeError: parameters of another model.
        ValueError: another number of emission columns or classes.
    """
    if not hasattr(getattr(params, "emissions", None), "probs"):
        raise TypeError(
            f"{type(params).__name__} is not a ParamsCategoricalHMM. Pass the parameters that "
            "CategoricalHMM.initialize returns."
        )
    emission = np.asarray(params.emissions.probs)
    states, columns, classes = emission.shape
    if columns != 1 or classes != states:
        raise ValueError(
            f"the model has {states} states and {columns} emission columns of {classes} classes. Only a model with one "
            "column, of one class per state, can be converted."
        )
    transition = jnp.asarray(params.transitions.transition_matrix)
    return Params(
        PhaseChain(jnp.asarray(params.initial.probs), transition, PhaseConfusion(jnp.asarray(emission[:, 0])))
    )


def tool_from_dynamax(*params: DynamaxParams) -> Params:
    """Convert dynamax models, one per tool, to a model of tools.

    Args:
        *params: a `ParamsCategoricalHMM` of two states, one column and two classes each; state 1 is presence.

    Returns:
        The model without phases, with `PhaseConditioned` and `ToolConfusion`.

    Raises:
        ValueError: a model of another size, or no model.
    """
    chains: list[Any] = [from_dynamax(p).phases for p in params]
    if not chains or any(chain.num_phases != 2 for chain in chains):
        raise ValueError("pass one dynamax model per tool, each with two states: absent and present.")
    matrix = jnp.stack([c.transition for c in chains])
    confusion = jnp.stack([c.emission.matrix for c in chains])
    initial = jnp.stack([c.initial[1] for c in chains])
    return Params(tools=ToolChains(initial, PhaseConditioned(matrix), ToolConfusion(confusion)))


__all__ = ["from_dynamax", "joint_states", "to_dynamax", "to_emissions", "tool_from_dynamax"]

"""Bad input gets an error that names the cause and the fix."""

import dataclasses
import inspect

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hmmjax
from hmmjax import emissions, transitions

# Users run without the type checker; so do these tests.
pytestmark = pytest.mark.usefixtures("unchecked")

L, K, T = 2, 2, 5
CONFUSION = cases.make(1, L, K, T, families=("PhaseConfusion", "ToolConfusion"))
PROBABILITY = cases.make(1, L, K, T)
CALLS = [hmmjax.posterior, hmmjax.filter, hmmjax.decode, hmmjax.log_likelihood, hmmjax.fit]


def phases(**changes):
    return dataclasses.replace(PROBABILITY.params, phases=dataclasses.replace(PROBABILITY.params.phases, **changes))


def tools(**changes):
    return dataclasses.replace(PROBABILITY.params, tools=dataclasses.replace(PROBABILITY.params.tools, **changes))


def refused(kind, *words, params=PROBABILITY.params, obs=PROBABILITY.obs, mask=None, labels=None, call=None):
    """Every entry point raises `kind` with all `words` in its message."""
    for function in CALLS if call is None else [call]:
        options = {} if labels is None else {"labels": labels}
        if function is hmmjax.filter and options:
            continue
        with pytest.raises(kind) as error:
            function(params, obs, mask, **options)
        for word in words:
            assert word in str(error.value), str(error.value)


# Parameters.


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (phases(transition=jnp.array([[2.0, 2.0], [0.5, 0.5]])), ["phases.transition", "[0, 1]"]),
        (
            phases(transition=jnp.array([[0.5, 0.6], [0.5, 0.5]])),
            ["phases.transition", "row (0,)", "1.1", "sum to one"],
        ),
        (phases(transition=jnp.ones((2, 3)) / 3), ["phases.transition", "square", "(2, 3)"]),
        (phases(transition=jnp.log(jnp.full((2, 2), 0.5))), ["phases.transition", "logs"]),
        (phases(initial=jnp.array([0.5, 0.6])), ["phases.initial", "1.1", "sum to one"]),
        (phases(initial=jnp.ones(3) / 3), ["phases.initial", "(3,)", "(2,)"]),
        (phases(initial=jnp.array([np.nan, 1.0])), ["phases.initial", "nan"]),
        (phases(emission=emissions.PhaseConfusion(jnp.array([[0.9, 0.2], [0.1, 0.9]]))), ["matrix", "sum to one"]),
        (phases(emission=emissions.PhaseDirichlet(jnp.ones((3, 3)))), ["PhaseDirichlet", "3", "2"]),
        (phases(emission=emissions.PhaseDirichlet(jnp.zeros((2, 2)))), ["concentration", "positive"]),
        (tools(initial=jnp.full((2, 2), 1.5)), ["tools.initial", "[0, 1]"]),
        (tools(initial=jnp.full(2, 0.5)), ["tools.initial", "(2,)", "(K, L)"]),
        (
            tools(transition=transitions.PhaseConditioned(jnp.full((2, 2, 2), 0.5))),
            ["tools.transition", "(2, 2, 2, 2)"],
        ),
        (
            tools(transition=transitions.PhaseConditioned(jnp.full((2, 2, 2, 2), 0.6))),
            ["tools.transition", "1.2", "sum to one"],
        ),
        (tools(emission=emissions.ToolBeta(jnp.full((3, 2, 2), 1.0))), ["ToolBeta", "3", "2"]),
    ],
)
def test_parameters(params, words):
    refused(ValueError, *words, params=params)


def test_kinds_of_parameters():
    refused(ValueError, "neither phases nor tools", params=hmmjax.Params())
    refused(TypeError, "hmmjax.Params", params={"phases": 1})
    refused(
        TypeError, "phases.emission", "ToolBeta", "Phase", params=phases(emission=PROBABILITY.params.tools.emission)
    )


def test_rows_may_miss_one_by_float32_rounding():
    """Rows that sum to one up to float32 rounding are accepted."""
    rows = np.random.default_rng(0).dirichlet(np.ones(2), 2).astype(np.float32) * np.float32(1 + 3e-7)
    hmmjax.log_likelihood(phases(transition=jnp.asarray(rows)), PROBABILITY.obs)


# Observations.


def test_family_and_observations_must_suit():
    """The error names the fix."""
    refused(TypeError, "obs.phases", "PhaseConfusion", "discretize", params=CONFUSION.params)
    refused(TypeError, "obs.phases", "PhaseDirichlet", "probabilities", obs=CONFUSION.obs)
    mixed = hmmjax.Observations(PROBABILITY.obs.phases, CONFUSION.obs.tools)
    refused(TypeError, "obs.tools", "ToolBeta", obs=mixed)
    mixed = dataclasses.replace(CONFUSION.obs, tools=PROBABILITY.obs.tools)
    refused(TypeError, "obs.tools", "ToolConfusion", "discretize", params=CONFUSION.params, obs=mixed)
    hmmjax.log_likelihood(CONFUSION.params, PROBABILITY.obs.discretize())  # the named fix works


@pytest.mark.parametrize("symbol", [2, -2, 99])
def test_symbols_out_of_range(symbol):
    outputs = CONFUSION.obs.phases.copy()
    outputs[1, 3] = symbol
    obs = dataclasses.replace(CONFUSION.obs, phases=outputs)
    refused(ValueError, "obs.phases", str(symbol), "video 1", "frame 3", params=CONFUSION.params, obs=obs)
    hmmjax.log_likelihood(CONFUSION.params, obs, np.array([[True] * 5, [True, True, True, False, True]]))
    outputs = CONFUSION.obs.tools.copy()
    outputs[1, 3, 0] = symbol
    refused(
        ValueError,
        "obs.tools",
        "video 1",
        "frame 3",
        params=CONFUSION.params,
        obs=dataclasses.replace(CONFUSION.obs, tools=outputs),
    )


@pytest.mark.parametrize("track", ["phases", "tools"])
@pytest.mark.parametrize(
    ("value", "words"),
    [(1.5, ["outside [0, 1]", "softmax"]), (-0.5, ["outside [0, 1]"]), (np.inf, ["inf"])],
)
def test_probabilities_out_of_range(track, value, words):
    outputs = getattr(PROBABILITY.obs, track).copy()
    outputs[0, 2, 1] = value
    refused(
        ValueError,
        f"obs.{track}",
        "video 0",
        "frame 2",
        *words,
        obs=dataclasses.replace(PROBABILITY.obs, **{track: outputs}),
    )


def test_half_of_a_softmax_is_missing():
    outputs = PROBABILITY.obs.phases.copy()
    outputs[0, 2, 1] = np.nan
    obs = dataclasses.replace(PROBABILITY.obs, phases=outputs)
    refused(ValueError, "obs.phases", "NaN in some classes", "video 0", "frame 2", obs=obs)


def test_a_network_that_diverged():
    obs = dataclasses.replace(PROBABILITY.obs, tools=np.full_like(PROBABILITY.obs.tools, np.nan))
    refused(ValueError, "obs.tools", "NaN in every observed frame", "Pass None", obs=obs)


def test_softmax_outputs_sum_to_one():
    obs = dataclasses.replace(PROBABILITY.obs, phases=np.full((2, T, L), 0.9, np.float32))
    refused(ValueError, "obs.phases", "1.8", "softmax", obs=obs)


def test_shapes_disagree():
    p, d = PROBABILITY.obs.phases, PROBABILITY.obs.tools
    refused(ValueError, "obs.tools", "(2, 4)", "(2, 5)", obs=hmmjax.Observations(p, d[:, :4]))
    refused(
        ValueError, "obs.phases", "3 entries", "2", obs=hmmjax.Observations(np.full((2, T, 3), 1 / 3, np.float32), d)
    )
    refused(ValueError, "obs.tools", "1 entries", "2", obs=hmmjax.Observations(p, d[..., :1]))
    refused(ValueError, "mask", "(2, 4)", mask=np.ones((2, 4), bool))
    refused(ValueError, "obs.tools", "axes", obs=hmmjax.Observations(p, d[0, 0]))
    refused(ValueError, "number of frames", obs=hmmjax.Observations())


def test_kinds_of_observations_and_masks():
    refused(TypeError, "bool", "astype(bool)", mask=np.ones((2, T)))
    refused(TypeError, "obs", "Observations", obs=PROBABILITY.obs.phases)
    refused(TypeError, "array", obs=hmmjax.Observations([[0, 1]], None))


def test_track_that_the_model_lacks():
    only_phases = dataclasses.replace(PROBABILITY.params, tools=None)
    refused(ValueError, "obs.tools", "params.tools is None", params=only_phases)
    blind = phases(emission=None)
    refused(ValueError, "obs.phases", "emission is None", params=blind)


# Labels.


@pytest.mark.parametrize("bad", [2, -2])
def test_labels_that_no_state_can_satisfy(bad):
    known = np.full((2, T), -1)
    known[1, 2] = bad
    refused(ValueError, "labels.phases", str(bad), "video 1", "frame 2", labels=hmmjax.Labels(phases=known))
    known = np.full((2, T, K), -1)
    known[1, 2, 0] = bad
    refused(ValueError, "labels.tools", str(bad), "video 1", "frame 2", labels=hmmjax.Labels(tools=known))


def test_kinds_and_shapes_of_labels():
    refused(TypeError, "labels.phases", "integers", labels=hmmjax.Labels(phases=np.full((2, T), np.nan)))
    refused(ValueError, "labels.phases", "(2, 4)", labels=hmmjax.Labels(phases=np.full((2, 4), -1)))
    refused(ValueError, "labels.tools", "3 tools", "2", labels=hmmjax.Labels(tools=np.full((2, T, 3), -1)))
    refused(TypeError, "labels", "hmmjax.Labels", labels=np.full((2, T), -1))
    only_tools = hmmjax.Params(
        tools=dataclasses.replace(
            PROBABILITY.params.tools,
            initial=jnp.full(K, 0.5),
            transition=transitions.PhaseConditioned(jnp.full((K, 2, 2), 0.5)),
        )
    )
    refused(
        ValueError,
        "labels.phases",
        "params.phases is None",
        params=only_tools,
        obs=hmmjax.Observations(tools=PROBABILITY.obs.tools),
        labels=hmmjax.Labels(phases=np.full((2, T), -1)),
    )


# Options.


def test_options_of_fit_and_the_starts():
    case = PROBABILITY
    with pytest.raises(ValueError, match=r"phases\.emmission.*phases\.emission"):
        hmmjax.fit(case.params, case.obs, freeze=("phases.emmission",))
    with pytest.raises(ValueError, match="backend"):
        hmmjax.posterior(case.params, case.obs, backend="fast")
    with pytest.raises(ValueError, match="emissions"):
        hmmjax.init_params(2, 2, emissions="gaussian")
    with pytest.raises(ValueError, match="positive"):
        hmmjax.init_params(0, 0)
    with pytest.raises(ValueError, match="Labels"):
        hmmjax.estimate(hmmjax.Labels())
    with pytest.raises(TypeError, match=r"labels.tools\[0\] must be an array, got list"):
        hmmjax.estimate(hmmjax.Labels(tools=[[0, 1], [1, 0]]))


def test_a_family_of_which_one_table_is_alike_is_not_warned_of():
    """Logit-normal phases start with different means and equal scales."""
    start = hmmjax.init_params(2, 1, emissions="logit-normal")
    _, obs, mask = hmmjax.sample(start, jax.random.key(0), [4])
    hmmjax.fit(start, obs, mask, max_iterations=0)


def test_equal_emissions_are_warned_of():
    """EM cannot tell identical states apart."""
    start = phases(emission=emissions.PhaseDirichlet(jnp.ones((2, 2))))
    with pytest.warns(UserWarning, match=r"phases\.emission is the same for every state.*init_params"):
        hmmjax.fit(start, PROBABILITY.obs, max_iterations=1)


def test_checks_stand_aside_inside_jit():
    """Inside jit, values are unknown."""
    value = jax.jit(hmmjax.log_likelihood)(phases(initial=jnp.array([0.5, 0.6])), PROBABILITY.obs)
    assert np.isfinite(value).all()


def test_a_family_that_declares_too_little_is_named():
    @hmmjax.pytree
    class PhaseOne(emissions.PhaseEmission):
        scale: jax.Array
        observes = "probabilities"
        num_phases = 2

        def log_prob(self, observations):
            return self.scale * observations.sum(-1)

    start = hmmjax.init_params(2)
    params = hmmjax.Params(hmmjax.PhaseChain(start.phases.initial, start.phases.transition, PhaseOne(jnp.ones(()))))
    with pytest.raises(ValueError, match=r"PhaseOne.log_prob returned shape .* must return \(1, 16, 2\)"):
        hmmjax.posterior(params, hmmjax.Observations(phases=np.full((16, 2), 0.5, np.float32)))


def test_symbols_that_the_model_does_not_have():
    emission = hmmjax.emissions.PhaseConfusion(jnp.array([[0.9, 0.1], [0.1, 0.9]]))
    params = hmmjax.Params(hmmjax.PhaseChain(jnp.array([0.5, 0.5]), jnp.full((2, 2), 0.5), emission))
    for outputs in ([0, 2], [1, 2, 4]):
        with pytest.raises(ValueError, match=r"symbols are 0\.\.1"):
            hmmjax.log_likelihood(params, hmmjax.Observations(np.array([outputs])))
    with pytest.raises(ValueError, match="only -1 marks a missing label"):
        hmmjax.log_likelihood(params, hmmjax.Observations(np.array([[0, -2]])))
    for outputs in ([0.0, 1.7], [0.0, np.nan]):
        with pytest.raises((TypeError, ValueError), match=r"obs\.phases"):
            hmmjax.log_likelihood(params, hmmjax.Observations(np.array([outputs])))


def test_tools_without_any_tool():
    none = hmmjax.ToolChains(np.zeros((0, 2)), transitions.PhaseConditioned(np.zeros((0, 2, 2, 2))))
    with pytest.raises(ValueError, match="has no tools"):
        hmmjax.posterior(hmmjax.Params(PROBABILITY.params.phases, none), hmmjax.Observations(np.full((1, 3, 2), 0.5)))


@pytest.mark.parametrize(
    ("priors", "words"),
    [
        (hmmjax.Priors(phase_transition=-1.5), "not negative"),
        (hmmjax.Priors(phase_transition=float("nan")), "finite"),
        (hmmjax.Priors(phase_transition=np.ones((5, 5))), "does not broadcast"),
        (hmmjax.Priors(tool_initial=np.ones(7)), "does not broadcast"),
        ({"phase_transition": 1.0}, "hmmjax.Priors"),
    ],
)
def test_priors(priors, words):
    params = hmmjax.init_params(3, 2, emissions="confusion")
    _, obs, mask = hmmjax.sample(params, jax.random.key(0), [9])
    with pytest.raises((TypeError, ValueError), match=words):
        hmmjax.fit(params, obs, mask, priors=priors, max_iterations=1)


def test_wide_integers_and_other_dtypes():
    params = hmmjax.init_params(3, emissions="confusion")
    with pytest.raises(ValueError, match="symbols are"):
        hmmjax.posterior(params, hmmjax.Observations(np.array([0, 2**32])))
    with pytest.raises(ValueError, match="is not a state"):
        hmmjax.posterior(params, hmmjax.Observations(np.array([0, 1])), labels=hmmjax.Labels(np.array([2**32, 0])))
    for odd in (np.array([0, "1"], object), np.array(["0", "1"]), np.array([0, 1j])):
        with pytest.raises(TypeError, match=r"^obs\.phases .* Pass an array of "):
            hmmjax.posterior(params, hmmjax.Observations(odd))
        with pytest.raises(TypeError, match=r"^labels\.phases .* Pass an array of "):
            hmmjax.posterior(params, hmmjax.Observations(np.array([0, 1])), labels=hmmjax.Labels(odd))


def test_shapes_of_emissions():
    chain = hmmjax.init_params(2).phases
    families = hmmjax.emissions
    wrong = [families.PhaseDirichlet(np.ones((2, 1))), families.PhaseConfusion(np.full((2, 2, 2), 0.5))]
    for family in wrong:
        with pytest.raises(ValueError, match="shape"):
            hmmjax.posterior(
                hmmjax.Params(dataclasses.replace(chain, emission=family)), hmmjax.Observations(np.array([0, 1]))
            )
    tools = hmmjax.init_params(0, 2).tools
    for family in (families.ToolBeta(np.ones((2, 2, 1))), families.ToolConfusion(np.full((2, 3, 3), 1 / 3))):
        with pytest.raises(ValueError, match="shape"):
            model = hmmjax.Params(None, dataclasses.replace(tools, emission=family))
            hmmjax.posterior(model, hmmjax.Observations(None, np.zeros((3, 2), int)))


def test_kinds_of_transitions_and_observations():
    params = hmmjax.init_params(2, 2, emissions="confusion")
    obs = hmmjax.Observations(np.array([0, 1]), np.zeros((2, 2), int))
    raw = dataclasses.replace(params.tools, transition=params.tools.transition.matrix)
    with pytest.raises(TypeError, match="PhaseConditioned"):
        hmmjax.posterior(hmmjax.Params(params.phases, raw), obs)
    with pytest.raises(TypeError, match="a tuple of emission families"):
        hmmjax.posterior(params, hmmjax.Observations((obs.phases, obs.phases), obs.tools))
    assert hmmjax.sample(params, jax.random.key(0), np.array([], int))[2].shape == (0, 0)


def takes_a_mask(function):
    return inspect.isfunction(function) and "mask" in inspect.signature(function).parameters


SLIPS = {name: f for name in hmmjax.__all__ if takes_a_mask(f := getattr(hmmjax, name))}
SLIPS |= {name: getattr(hmmjax.diagnostics, name) for name in ("bic", "find_drift", "fit_best", "held_out")}
SLIPS |= {"fit_with_checkpoint": hmmjax.checkpoint.fit_with_checkpoint}


@pytest.mark.parametrize("name", SLIPS)
def test_labels_in_the_place_of_the_mask_are_named(name):
    """Those who think that labels follow observations: fit(params, obs, labels)."""
    case, names = CONFUSION, list(inspect.signature(SLIPS[name]).parameters)
    labels = hmmjax.Labels(np.zeros((1, T), np.int32), np.zeros((1, T, K), np.int32))
    given = {"params": case.params, "obs": case.obs, "labels": labels, "key": jax.random.key(0), "path": "none"}
    given["learn"] = hmmjax.estimate
    with pytest.raises(TypeError, match=r"labels were passed as mask, the argument before labels\. Pass them by name"):
        SLIPS[name](*(given[n] for n in names[: names.index("mask")]), labels)
    if name == "fit":
        with pytest.raises(TypeError, match="observations were passed as mask"):
            hmmjax.fit(case.params, case.obs, case.obs)

"""Random problems in two forms: the inputs of the library and those of the oracles."""

import dataclasses

import emission_oracles
import jax
import jax.numpy as jnp
import numpy as np
import oracles
from numpy.testing import assert_allclose

import hmmjax
from hmmjax.messages import Backend, logspace

PHASE_FAMILIES = ("PhaseConfusion", "PhaseDirichlet")
TOOL_FAMILIES = ("ToolConfusion", "ToolBeta")
FAMILIES = [(p, t) for p in PHASE_FAMILIES for t in TOOL_FAMILIES]
TIGHT = {"rtol": 2e-5, "atol": 2e-5}


def family(name: str, table):
    return getattr(hmmjax.emissions, name)(table)


def to_params(model: oracles.Model, emissions: dict, phases: str, tools: str, dtype=np.float32) -> hmmjax.Params:
    """The library's parameters from the oracles' arrays; an empty family name means no emission."""

    def cast(x):
        return jnp.asarray(np.asarray(x, dtype))

    phase_chain = tool_chains = None
    if model.initial is not None:
        emission = family(phases, cast(emissions[phases])) if phases else None
        phase_chain = hmmjax.PhaseChain(cast(model.initial), cast(model.transition), emission)
    if model.tool_initial is not None:
        transition = hmmjax.transitions.PhaseConditioned(cast(model.tool_transition))
        emission = family(tools, cast(emissions[tools])) if tools else None
        tool_chains = hmmjax.ToolChains(cast(model.tool_initial), transition, emission)
    return hmmjax.Params(phase_chain, tool_chains)


def stack(videos):
    """Stack arrays of one shape on a new first axis; return None if they are None."""
    return None if videos[0] is None else np.stack(videos)


@dataclasses.dataclass
class Case:
    """One batch: params, obs, mask and labels for the library; model and tables per video for the oracles."""

    params: hmmjax.Params
    obs: hmmjax.Observations
    mask: np.ndarray
    labels: hmmjax.Labels | None
    model: oracles.Model
    emissions: dict
    emission_tables: list

    @property
    def args(self):
        return self.params, self.obs, self.mask, self.labels

    def answers(self, method=oracles.enumerate_paths):
        return [method(self.model, e) for e in self.emission_tables]


def make(
    seed: int,
    num_phases: int,
    num_tools: int,
    num_frames: int = 5,
    batch: int = 2,
    families: tuple[str, str] = ("PhaseDirichlet", "ToolBeta"),
    *,
    holes: float = 0.0,
    lengths=None,
    known: float = 0.0,
    unobserved: str = "",
    sticky: float = 0.0,
    dtype=np.float32,
) -> Case:
    """A random case.

    `holes` is the fraction of frames masked before each video's end, `lengths` the frames up to that end, `known` the
    fraction of (true) labels given, `unobserved` the track without observations.
    """
    rng = np.random.default_rng(seed)
    model = oracles.random_model(rng, num_phases, num_tools, sticky)
    emissions = emission_oracles.random_emissions(rng, num_phases, num_tools)
    lengths = [num_frames] * batch if lengths is None else lengths
    phases = families[0] if num_phases else ""
    tools = families[1] if num_tools else ""
    videos = []
    for length in lengths:
        hidden_phases, hidden_tools = oracles.simulate(rng, model, num_frames)
        mask = rng.uniform(size=num_frames) >= holes
        mask[length - 1 :] = np.arange(length - 1, num_frames) == length - 1
        seen_phases = seen_tools = log_phases = log_tools = known_phases = known_tools = None
        if num_phases and unobserved != "phases":
            seen_phases = emission_oracles.observe(rng, phases, emissions[phases], hidden_phases)
            log_phases = emission_oracles.log_densities(phases, emissions[phases], seen_phases)
        if num_tools and unobserved != "tools":
            seen_tools = emission_oracles.observe(rng, tools, emissions[tools], hidden_tools)
            log_tools = emission_oracles.log_densities(tools, emissions[tools], seen_tools)
        if num_phases and known:
            known_phases = np.where(rng.uniform(size=num_frames) < known, hidden_phases, -1).astype(np.int32)
        if num_tools and known:
            known_tools = np.where(rng.uniform(size=hidden_tools.shape) < known, hidden_tools, -1).astype(np.int32)
        emission_tables = oracles.emission_table(
            num_frames, num_phases, num_tools, log_phases, log_tools, mask, (known_phases, known_tools)
        )
        videos.append((seen_phases, seen_tools, mask, known_phases, known_tools, emission_tables))
    seen_phases, seen_tools, mask, known_phases, known_tools = (stack(x) for x in list(zip(*videos, strict=True))[:5])
    if seen_phases is not None and seen_phases.dtype.kind == "f":
        seen_phases = seen_phases.astype(dtype)
    if seen_tools is not None and seen_tools.dtype.kind == "f":
        seen_tools = seen_tools.astype(dtype)
    return Case(
        params=to_params(model, emissions, phases, tools, dtype),
        obs=hmmjax.Observations(seen_phases, seen_tools),
        mask=mask,
        labels=hmmjax.Labels(known_phases, known_tools) if known else None,
        model=model,
        emissions=emissions,
        emission_tables=[v[5] for v in videos],
    )


def map_tracks(function, record):
    """Apply to the phases and tools of Observations, Labels, Posterior or Decoded."""
    changed = {n: None if getattr(record, n) is None else function(getattr(record, n)) for n in ("phases", "tools")}
    return dataclasses.replace(record, **changed)


def video(case: Case, index: int):
    """The arguments of one video, without batch axis."""
    obs = map_tracks(lambda x: x[index], case.obs)
    labels = None if case.labels is None else map_tracks(lambda x: x[index], case.labels)
    return case.params, obs, case.mask[index], labels


def fill(case, value):
    """The case with `value` in unobserved frames (99 in those of labels)."""

    def put(x):
        x = x.copy()
        x[~case.mask] = value if x.dtype.kind == "f" else 99
        return x

    return dataclasses.replace(case, obs=map_tracks(put, case.obs))


def packed_backend(shapes):
    """Return a backend that takes packed videos, and appends the (B, T) of the potentials it gets to `shapes`."""

    def run(function):
        def wrapped(potentials, *args):
            shapes.append(potentials.phases.shape[:2])
            return function(potentials, *args)

        return wrapped

    plain = logspace.BACKEND

    def filter_packed(p):
        return p.pack_like(plain.filter(p.padded()))

    def viterbi_packed(p):
        return p.pack_like(plain.viterbi(p.padded()))

    def log_normalizer(p, save):
        return plain.log_normalizer(p.padded(), False)[0], None

    def pullback(p, _, cotangent):
        return jax.vjp(lambda p: log_normalizer(p, False)[0], p)[1](cotangent)[0]

    functions = map(run, (log_normalizer, pullback, filter_packed, viterbi_packed))
    return Backend("counting", lambda p: True, lambda p: False, *functions, packs=True)


def everything(*args):
    posterior, decoded = hmmjax.posterior(*args), hmmjax.decode(*args)
    return [posterior, decoded, hmmjax.log_likelihood(*args), hmmjax.filter(*args[:3])]


def check_logarithms(posterior, track, i, expected, n):
    """Log-odds of tools and log-probabilities of phases, in both tails, where float64 probabilities have digits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(expected) - (np.log1p(-expected) if track == "tools" else 0)
    found = np.array(posterior.tool_log_odds if track == "tools" else posterior.phase_log_probs)[i]
    sure = (expected > 1e-9) & (expected < 1 - 1e-9)
    assert np.isfinite(found).all() and (found[n:] == 0).all()
    assert_allclose(found[:n][sure], logs[sure], rtol=1e-4, atol=1e-3)


def check(case, method=oracles.enumerate_paths, tolerance=TIGHT, backend="auto"):
    """Compare every result of the library with the oracle's; after each video's end it must be 0 or -1."""
    answers = case.answers(method)
    posterior = hmmjax.posterior(*case.args, backend=backend)
    decoded = hmmjax.decode(*case.args, backend=backend)
    filtered = hmmjax.filter(*case.args[:3], backend=backend) if case.labels is None else None
    expected = [a.log_likelihood for a in answers]
    assert_allclose(posterior.log_likelihood, expected, **tolerance)
    assert_allclose(decoded.log_prob, [a.path_log_prob for a in answers], **tolerance)
    for track in ("phases", "tools"):
        if getattr(case.params, track) is None:
            assert getattr(posterior, track) is None and getattr(decoded, track) is None
            continue
        marginals, path = np.array(getattr(posterior, track)), np.array(getattr(decoded, track))
        assert path.dtype == np.int32
        for i, answer in enumerate(answers):
            n = len(case.emission_tables[i])
            assert_allclose(marginals[i, :n], getattr(answer, track), **tolerance)
            assert (marginals[i, n:] == 0).all() and (path[i, n:] == -1).all()
            check_logarithms(posterior, track, i, getattr(answer, track), n)
            if filtered is not None:
                past = np.array(getattr(filtered, track))
                assert_allclose(past[i, :n], getattr(answer, f"filter_{track}"), **tolerance)
                assert (past[i, n:] == 0).all()
                check_logarithms(filtered, track, i, getattr(answer, f"filter_{track}"), n)
    for i, answer in enumerate(answers):
        # Paths may tie, so their probabilities are compared.
        n = len(case.emission_tables[i])
        path = [None if x is None else np.array(x)[i, :n] for x in (decoded.phases, decoded.tools)]
        path = [np.zeros(n, int) if path[0] is None else path[0], np.zeros((n, 0), int) if path[1] is None else path[1]]
        assert_allclose(
            oracles.path_log_prob(case.model, case.emission_tables[i], *path),
            answer.path_log_prob,
            rtol=1e-5,
            atol=1e-5,
        )

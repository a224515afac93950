"""Streams, against the filter and the smoother of all frames so far."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import make, map_tracks
from numpy.testing import assert_allclose

import hmmjax
from hmmjax import Observations, Stream
from hmmjax._core import running
from hmmjax._core import stream as recursions
from hmmjax.emissions.registry import FAMILIES
from hmmjax.messages import native

LAG = 3
SHAPES = {"coupled": (3, 2), "phases": (3, 0), "tools": (0, 2)}


def _frame(case, t):
    """Observations of frame t of the only video; None if its mask is False."""
    if not case.mask[0, t]:
        return None
    return map_tracks(lambda x: x[0, t], case.obs)


def _staged(case):
    phases = dataclasses.replace(case.params.phases, stages=(2, 1, 3))
    return dataclasses.replace(case, params=dataclasses.replace(case.params, phases=phases))


needs_compiled = pytest.mark.skipif(not native.available(), reason="the recursions are not compiled")
HOW = [pytest.param("compiled", marks=needs_compiled), "traced", "logarithms"]


def _stream(params, lag, how):
    """A stream in compiled recursions, or in programs of XLA."""
    stream = Stream(params, lag=lag)
    if how != "compiled":
        stream._run = running.Traced(stream.params, lag, in_logs=how == "logarithms")
    assert type(stream._run).__name__ == ("Compiled" if how == "compiled" else "Traced")
    return stream


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("shape", [*SHAPES, "stages"])
def test_equals_the_batch_filter_and_the_smoother_of_the_frames_so_far(shape, how):
    case = make(3, *SHAPES.get(shape, (3, 2)), num_frames=9, batch=1, holes=0.2)
    case = _staged(case) if shape == "stages" else case
    stream = _stream(case.params, LAG, how)
    batch = hmmjax.filter(*case.args[:3])
    for t in range(9):
        now = stream.step(_frame(case, t))
        assert now.frame == t and now.lagged_frame == (t - LAG if t >= LAG else -1)
        so_far = map_tracks(lambda x, t=t: x[0, : t + 1], case.obs)
        # For the smoother an unobserved last frame is padding, so lagged results are compared at observed frames.
        smooth = hmmjax.posterior(case.params, so_far, case.mask[0, : t + 1])
        for track in ("phases", "tools"):
            if getattr(batch, track) is None:
                assert getattr(now, track) is None
                continue
            assert_allclose(getattr(now, track), getattr(batch, track)[0, t], atol=1e-6)
            if case.mask[0, t]:
                late = getattr(now, f"lagged_{track}")
                expected = getattr(smooth, track)[t - LAG] if t >= LAG else np.zeros_like(late)
                assert_allclose(late, expected, atol=2e-6)
    # Log-likelihoods of densities are small differences of numbers of ten times their size.
    assert float(now.log_likelihood) == pytest.approx(float(batch.log_likelihood[0]), rel=1e-6, abs=5e-5)
    rest = stream.finish()
    whole = hmmjax.posterior(*case.args[:3])
    assert float(rest.log_likelihood) == float(now.log_likelihood)
    for track in ("phases", "tools"):
        if getattr(whole, track) is not None:
            assert_allclose(getattr(rest, track), getattr(whole, track)[0, -LAG:], atol=2e-6)
    for logs in ("phase_log_probs", "tool_log_odds"):
        if getattr(whole, logs) is not None:
            assert_allclose(getattr(rest, logs), getattr(whole, logs)[0, -LAG:], rtol=1e-4, atol=1e-4)


MISSING = {
    "the first frames": lambda phases, tools: (phases < 3, tools < 3),
    "no output at all": lambda phases, tools: (phases >= 0, tools >= 0),
    "no phases": lambda phases, tools: (phases >= 0, tools < 0),
    "one tool": lambda phases, tools: (phases < 0, (tools >= 0) & (np.arange(2) == 0)),
    "here and there": lambda phases, tools: (phases % 2 == 1, tools % 3 == np.arange(2)),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_missing_outputs_mean_the_same_as_in_batches(name):
    """NaN, and -1 of labels, for frames, tracks and videos as a whole; `filter` takes None for a missing track."""
    rng, num_frames = np.random.default_rng(1017), 7
    params = hmmjax.init_params(3, 2, emissions=name)
    moves = rng.dirichlet(np.ones(3), 4).astype(np.float32)
    params = dataclasses.replace(
        params, phases=dataclasses.replace(params.phases, initial=moves[3], transition=moves[:3])
    )
    if params.phases.emission.observes == "labels":
        drawn_phases = rng.integers(0, 3, num_frames).astype(np.int32)
    else:
        drawn_phases = rng.dirichlet(np.ones(3), num_frames).astype(np.float32)
        drawn_phases[4] = (0, 1, 0)
    if params.tools.emission.observes == "labels":
        drawn_tools = rng.integers(0, 2, (num_frames, 2)).astype(np.int32)
    else:
        drawn_tools = rng.uniform(size=(num_frames, 2)).astype(np.float32)
        drawn_tools[4] = (0, 1)
    frames = np.arange(num_frames)
    for case, pattern in MISSING.items():
        blanks = pattern(frames, np.repeat(frames[:, None], 2, 1))
        outputs = [drawn_phases.copy(), drawn_tools.copy()]
        for x, blank in zip(outputs, blanks, strict=True):
            x[blank] = np.nan if x.dtype.kind == "f" else -1
        tracks = [None if blank.all() else x for x, blank in zip(outputs, blanks, strict=True)]
        expected = hmmjax.filter(params, Observations(*tracks), np.ones(num_frames, bool))
        stream = Stream(params)
        for t in range(num_frames):
            now = stream.step(Observations(outputs[0][t], outputs[1][t]))
            for track in ("phases", "tools"):
                assert_allclose(
                    getattr(now, track), getattr(expected, track)[t], atol=2e-6, err_msg=f"{case}, frame {t}"
                )
        assert float(now.log_likelihood) == pytest.approx(float(expected.log_likelihood), rel=1e-5, abs=1e-4), case


def test_tools_that_cannot_switch_keep_their_only_path():
    """Tools that cannot switch, and many frames against them, which scaled recursions would lose."""
    params = hmmjax.init_params(2, 2)
    matrix = jnp.broadcast_to(jnp.eye(2), (2, 2, 2, 2))
    stuck = dataclasses.replace(params.tools, transition=hmmjax.transitions.PhaseConditioned(matrix))
    params = dataclasses.replace(params, tools=stuck)
    scores = np.where(np.arange(40)[:, None] < 20, 0.001, 0.999).astype(np.float32) * np.ones(2, np.float32)
    batch = hmmjax.filter(params, Observations(tools=scores), backend="logspace")
    stream = Stream(params)
    for t in range(40):
        now = stream.step(Observations(tools=scores[t]))
        # Log-likelihoods reach a hundred nats, which float32 resolves to a few 1e-5.
        assert_allclose(now.tools, batch.tools[t], atol=2e-4)


def test_a_first_frame_beyond_the_range_of_doubles_is_summed_in_logarithms():
    """Tools that are certainly absent at first, and a first frame that all but excludes that."""
    params = hmmjax.init_params(2, 2)
    absent = dataclasses.replace(params.tools, initial=jnp.zeros((2, 2)))
    sure = hmmjax.emissions.ToolBeta(jnp.array([[[1.0, 100.0], [2.0, 1.0]]] * 2))
    params = dataclasses.replace(params, tools=dataclasses.replace(absent, emission=sure))
    scores = np.array([[0.999, 0.999], [0.5, 0.5], [0.9, 0.1]], np.float32)
    batch = hmmjax.filter(params, Observations(tools=scores), backend="logspace")
    stream = Stream(params, lag=1)
    for t in range(3):
        now = stream.step(Observations(tools=scores[t]))
        assert_allclose(now.tools, batch.tools[t], atol=2e-5)
        assert float(now.log_likelihood) == pytest.approx(float(stream.finish().log_likelihood))
    assert float(now.log_likelihood) == pytest.approx(float(batch.log_likelihood), rel=1e-5)
    assert isinstance(stream._run, running.Traced)


@needs_compiled
@pytest.mark.parametrize("shape", SHAPES)
def test_streams_of_both_kinds_take_each_others_state(shape):
    """A file of one machine serves on another, with or without compiled recursions."""
    case = make(3, *SHAPES[shape], num_frames=8, batch=1)
    for before, after in (("compiled", "traced"), ("traced", "compiled"), ("compiled", "compiled")):
        one, other = _stream(case.params, LAG, before), _stream(case.params, LAG, after)
        for t in range(5):
            one.step(_frame(case, t))
        other.state = one.state
        for t in range(5, 8):
            assert_close(one.step(_frame(case, t)), other.step(_frame(case, t)))
        assert_close(one.finish(), other.finish())


def assert_close(a, b):
    jax.tree.map(lambda x, y: assert_allclose(x, y, rtol=1e-5, atol=5e-5), a, b)


def test_the_filter_is_the_oracles():
    case = make(5, 2, 2, num_frames=5, batch=1, families=("PhaseConfusion", "ToolConfusion"))
    answer = oracles.enumerate_paths(case.model, case.emission_tables[0])
    stream = Stream(case.params)
    for t in range(5):
        now = stream.step(_frame(case, t))
        assert_allclose(now.phases, answer.filter_phases[t], atol=1e-5)
        assert_allclose(now.tools, answer.filter_tools[t], atol=1e-5)
        assert_allclose(now.phases, now.lagged_phases, atol=1e-6)
    assert float(now.log_likelihood) == pytest.approx(answer.log_likelihood, rel=1e-5)
    assert stream.finish().phases.shape == (0, 2)


def test_a_saved_stream_goes_on_as_if_it_had_never_stopped(tmp_path):
    case = make(7, 3, 2, num_frames=8, batch=1)
    stream = Stream(case.params, lag=2)
    for t in range(4):
        stream.step(_frame(case, t))
    stream.save(tmp_path / "s.npz")
    again = Stream.resume(case.params, tmp_path / "s.npz")
    for t in range(4, 8):
        assert_close(stream.step(_frame(case, t)), again.step(_frame(case, t)))
    with pytest.raises(FileExistsError):
        stream.save(tmp_path / "s.npz")
    with pytest.raises(ValueError, match="another model"):
        Stream.resume(make(8, 3, 2).params, tmp_path / "s.npz")
    with pytest.raises(FileNotFoundError):
        Stream.resume(case.params, tmp_path / "no.npz")
    whole = (tmp_path / "s.npz").read_bytes()
    flipped = whole[:150] + bytes(255 - b for b in whole[150:250]) + whole[250:]
    for damaged in (b"no", b"", whole[: len(whole) // 2], flipped):
        (tmp_path / "no.npz").write_bytes(damaged)
        with pytest.raises(ValueError, match="is not a saved stream"):
            Stream.resume(case.params, tmp_path / "no.npz")
    arrays = dict(np.load(tmp_path / "s.npz"))
    for changed in ({"lag": 3}, {"filtered": arrays["filtered"][1:]}, {"predicted": arrays["predicted"] * np.nan}):
        np.savez(tmp_path / "no.npz", **{**arrays, **changed})
        with pytest.raises(ValueError, match="is damaged"):
            Stream.resume(case.params, tmp_path / "no.npz")
    np.savez(tmp_path / "no.npz", **{**arrays, "frames": np.int32(-1)})
    with pytest.raises(ValueError, match="frames is damaged: is negative"):
        Stream.resume(case.params, tmp_path / "no.npz")


@pytest.mark.parametrize("how", HOW)
def test_the_state_of_another_stream_is_refused(how):
    """Compiled recursions read as many numbers as their own model has."""
    params = hmmjax.init_params(3, 1)
    stream = _stream(params, 2, how)
    before = stream.step()
    for other, name in (
        (Stream(hmmjax.init_params(2, 1), lag=2), "state.predicted has shape"),
        (Stream(hmmjax.init_params(3, 2), lag=2), "state.predicted has shape"),
        (Stream(params, lag=1), "state.filtered has shape"),
        (Stream(hmmjax.init_params(3, 1, emissions="autoregressive"), lag=2), "state has predicted.*past"),
    ):
        other.step()
        with pytest.raises(ValueError, match=f"{name}.*same model and lag"):
            stream.state = other.state
    with pytest.raises(TypeError, match="StreamState"):
        stream.state = {}
    with pytest.raises(ValueError, match=r"state.frames is negative"):
        stream.state = dataclasses.replace(stream.state, frames=np.int32(-1))
    with pytest.raises(ValueError, match=r"state.predicted is NaN"):
        stream.state = dataclasses.replace(stream.state, predicted=np.full((3, 2), np.nan))
    assert stream.step().frame == before.frame + 1


def test_the_state_of_another_ensemble_is_refused():
    one, two = (hmmjax.Ensemble((hmmjax.init_params(2, 1),) * n) for n in (1, 2))
    with pytest.raises(ValueError, match=r"state has .*this stream .*same model"):
        Stream(two).state = Stream(one).state


def test_memory_and_programs_do_not_grow():
    case = make(9, 2, 1, num_frames=4, batch=1)
    stream = _stream(case.params, 2, "traced")
    stream.step(_frame(case, 0))
    size = sum(x.nbytes for x in jax.tree.leaves(stream.state))
    programs = recursions.step._cache_size()
    for t in range(1, 40):
        stream.step(_frame(case, t % 4))
    assert sum(x.nbytes for x in jax.tree.leaves(stream.state)) == size
    assert recursions.step._cache_size() == programs


def test_many_streams_at_once_with_the_pure_functions():
    case = make(11, 2, 1, num_frames=3, batch=4)
    from hmmjax import streaming

    states = jax.vmap(lambda _: streaming.start(case.params))(jnp.arange(4))
    batch = hmmjax.filter(*case.args[:3])
    for t in range(3):
        obs = map_tracks(lambda x, t=t: x[:, t], case.obs)
        states, now = jax.jit(jax.vmap(lambda s, o: streaming.step(case.params, s, o)))(states, obs)
        assert_allclose(now.phases, batch.phases[:, t], atol=1e-6)
    one, _ = streaming.step(case.params, streaming.start(case.params), Observations())  # an unobserved frame
    assert one.frames == 1


def test_bad_frames_are_named_and_leave_the_stream_where_it_was():
    params = hmmjax.init_params(2, 2, emissions="confusion")
    certain = dataclasses.replace(params.phases, initial=jnp.array([1.0, 0.0]), transition=jnp.eye(2))
    certain = dataclasses.replace(certain, emission=hmmjax.emissions.PhaseConfusion(jnp.eye(2)))
    stream = Stream(dataclasses.replace(params, phases=certain))
    first = stream.step(Observations(np.int32(0), np.array([0, 1])))
    with pytest.raises(ValueError, match="frame 1 is impossible"):
        stream.step(Observations(np.int32(1), np.array([0, 1])))
    with pytest.raises(ValueError, match="its symbols are"):
        stream.step(Observations(np.int32(7), np.array([0, 1])))
    with pytest.raises(ValueError, match="its symbols are"):
        stream.step(Observations(np.int64(2**32), np.array([0, 1])))  # 0 if truncated to int32
    with pytest.raises(TypeError, match="integer labels"):
        stream.step(Observations(np.array([0.5, 0.5], np.float32), np.array([0, 1])))
    with pytest.raises(ValueError, match="must be"):
        stream.step(Observations(np.int32(0), np.array([[0, 1]])))
    with pytest.raises(TypeError, match="dtype <U1"):
        stream.step(Observations("0", np.array([0, 1])))
    with pytest.raises(TypeError, match=r"obs.phases holds float64.*integer labels"):
        stream.step(Observations(np.asarray(1.0), np.array([0, 1])))
    with pytest.raises(ValueError, match=r"obs.phases is 7 at frame 1, but"):
        stream.step(Observations(np.int32(7), np.array([0, 1])))
    # A stream has no mask.
    with pytest.raises(ValueError, match="Renumber the classes, or pass None for the track in this frame"):
        stream.step(Observations(np.int32(0), np.array([0, 7])))
    second = stream.step(Observations(np.int32(0), np.array([0, 1])))
    assert first.frame == 0 and second.frame == 1
    with pytest.raises(ValueError, match="lag must be"):
        Stream(params, lag=-1)

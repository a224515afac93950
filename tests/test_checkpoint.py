"""EM that is interrupted and resumed gives the result of uninterrupted EM."""

import cases
import jax
import numpy as np
import pytest

import hmmjax
from hmmjax import io
from hmmjax.checkpoint import fit_with_checkpoint
from hmmjax.io import FormatError


@pytest.fixture(scope="module")
def job():
    case = cases.make(5, 2, 2, num_frames=5, families=("PhaseConfusion", "ToolConfusion"))
    return case.params, case.obs, case.mask


class Killed(Exception):
    pass


def test_interrupted_equals_uninterrupted(job, tmp_path):
    path, told = tmp_path / "em.npz", []

    def kill(iteration, objective):
        told.append(iteration)
        if iteration == 5:
            raise Killed

    with pytest.raises(Killed):
        fit_with_checkpoint(path, *job, max_iterations=9, every=2, tolerance=0.0, callback=kill)
    whole = fit_with_checkpoint(path, *job, max_iterations=9, every=2, tolerance=0.0)
    want = hmmjax.fit(*job, max_iterations=9, tolerance=0.0)
    np.testing.assert_array_equal(whole.history, want.history)
    assert told == [1, 2, 3, 4, 5] and whole.num_iterations == want.num_iterations
    for a, b in zip(jax.tree.leaves(whole.params), jax.tree.leaves(want.params), strict=True):
        np.testing.assert_array_equal(a, b)
    assert io.load_params(path).params.num_tools == 2
    again = fit_with_checkpoint(path, *job, max_iterations=9, every=2, tolerance=0.0)
    np.testing.assert_array_equal(again.history, want.history)


def test_another_jobs_checkpoint_is_refused(job, tmp_path):
    path = tmp_path / "em.npz"
    fit_with_checkpoint(path, *job, max_iterations=1, tolerance=0.0)
    with pytest.raises(FormatError, match="other starting parameters, data or options"):
        fit_with_checkpoint(path, *job, max_iterations=2, tolerance=1e-3)
    with pytest.raises(ValueError, match="every=0"):
        fit_with_checkpoint(path, *job, every=0)
    io.save_params(path, job[0], force=True)
    with pytest.raises(FormatError, match="other starting parameters"):
        fit_with_checkpoint(path, *job)


@pytest.mark.parametrize(
    "damage",
    [
        {"history": None},
        {"log_likelihood": None},
        {"converged": None},
        {"history": []},
        {"history": ["a", "b"]},
        {"history": [-1.0]},
        {"converged": "no"},
    ],
    ids=str,
)
def test_checkpoint_that_does_not_say_how_far_it_came_is_refused(job, tmp_path, damage):
    path = tmp_path / "em.npz"
    fit_with_checkpoint(path, *job, max_iterations=1, tolerance=0.0)
    file = io.load_params(path)
    state = {k: v for k, v in (file.metadata["em"] | damage).items() if v is not None}
    io.save_params(path, file.params, metadata={"em": state}, force=True)
    with pytest.raises(FormatError, match="does not hold the progress of EM"):
        fit_with_checkpoint(path, *job, max_iterations=2, tolerance=0.0)


def test_jobs_with_the_same_arrays_in_other_places_differ():
    from hmmjax.checkpoint import _fingerprint

    x = np.zeros((1, 3, 2), np.int32)
    jobs = [hmmjax.Observations(x, None), hmmjax.Observations(None, x)]
    assert len({_fingerprint(obs, {}) for obs in jobs}) == 2


def test_fewer_than_no_iterations_are_refused(job, tmp_path):
    with pytest.raises(ValueError, match="max_iterations=-3 must be at least 0"):
        fit_with_checkpoint(tmp_path / "em.npz", *job, max_iterations=-3)
    assert fit_with_checkpoint(tmp_path / "em.npz", *job, max_iterations=0).num_iterations == 0


def test_the_old_name_is_deprecated():
    with pytest.warns(DeprecationWarning, match=r"Use hmmjax\.checkpoint\.fit_with_checkpoint"):
        assert io.fit_with_checkpoint is fit_with_checkpoint

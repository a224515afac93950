"""Models that do not fit into memory are refused before anything is compiled."""

import numpy as np
import pytest

import hmmjax
from hmmjax._core import size
from hmmjax._core.size import check_size, model_size


def test_states_memory_and_time():
    assert model_size(7, 7, 2000).states == 896
    assert model_size(0, 21, 2000).states == 42
    assert model_size(7, 0, 2000).states == 7
    twice = model_size(7, 7, 4000)
    assert twice.memory == 2 * model_size(7, 7, 2000).memory == 8 * 896 * 4000
    assert "896 joint states" in str(twice)


def test_the_message_says_what_fits(monkeypatch):
    monkeypatch.setattr(size, "memory_limit", lambda: 12 * 2**30)
    with pytest.raises(ValueError, match=r"10 phases with 21 tools .* 20,971,520 joint states .*GiB") as error:
        check_size(10, 21, 600)
    assert "tools alone" in str(error.value) and "groups of at most 18" in str(error.value)
    assert check_size(10, 18, 600).memory <= 12 * 2**30
    monkeypatch.setattr(size, "memory_limit", lambda: None)
    check_size(10, 21, 600)


def test_inference_is_refused_before_it_starts(monkeypatch):
    monkeypatch.setattr(size, "memory_limit", lambda: 2**30)
    params = hmmjax.init_params(10, 16, emissions="confusion")
    obs = hmmjax.Observations(np.zeros(600, np.int32), np.zeros((600, 16), np.int32))
    for call in (hmmjax.posterior, hmmjax.decode, hmmjax.log_likelihood, hmmjax.fit):
        with pytest.raises(ValueError, match="too large for exact inference"):
            call(params, obs)
    with pytest.raises(ValueError, match="too large"):
        hmmjax.Stream(params, lag=600)


def test_this_machine_tells_its_memory():
    limit = size.memory_limit()
    assert limit is None or limit > 2**20

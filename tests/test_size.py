"""Models that do not fit into memory are refused before anything is compiled."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import hmmjax
from hmmjax import native
from hmmjax._core import size
from hmmjax._core.size import check_size, model_size

ROOT = Path(__file__).parents[1]


def test_states_memory_and_time():
    assert model_size(7, 7, 2000).states == 896
    assert model_size(0, 21, 2000).states == 42
    assert model_size(7, 0, 2000).states == 7
    assert model_size(7, 7, 2000, 3).seconds == pytest.approx(3 * model_size(7, 7, 2000).seconds)
    assert "896 joint states" in str(model_size(7, 7, 4000))


def test_memory_grows_with_the_messages_that_are_kept():
    # 2,000 frames are 91 chunks of 22: so many messages and 28 of scratch, each of 8 x 128 numbers of 8 bytes.
    assert model_size(7, 7, 2000).memory == 8 * 8 * 128 * (22 + 91 + 28)
    assert model_size(7, 7, 2000, messages=2000).memory == 8 * 8 * 128 * 2028
    assert model_size(7, 7, 8).memory == 8 * 8 * 128 * (8 + 1 + 28)


@pytest.mark.skipif(not native.is_loaded(), reason="the figures are of the compiled recursions")
def test_seconds_are_those_of_the_committed_benchmark():
    results = json.loads((ROOT / "benchmarks/results/hmm_cpu.json").read_text())
    for row in results["states"]:
        estimate = model_size(7, int(np.log2(row["states"] // 7)), 1).seconds * 1e6
        assert row["microseconds per frame"]["e_step"]["hmmjax"] == pytest.approx(estimate, rel=0.5)


def test_without_the_compiled_part_the_estimate_is_longer(monkeypatch):
    seconds = model_size(7, 7, 2000).seconds
    monkeypatch.setattr(size.native, "is_loaded", lambda: False)
    assert model_size(7, 7, 2000).seconds >= seconds
    assert model_size(7, 7, 2000).seconds == pytest.approx(0.41, rel=0.2)


def test_stages_count():
    params = hmmjax.init_params(3, 2, emissions="confusion")
    assert params.num_stages == 3 and hmmjax.init_params(0, 2, emissions="confusion").num_stages == 0
    sticky = dataclasses.replace(params.phases, transition=np.full((3, 3), 0.01) + 0.96 * np.eye(3))
    staged = hmmjax.durations.spread(dataclasses.replace(params, phases=sticky), (4, 1, 2))
    assert staged.num_stages == 7 and staged.num_phases == 3


def test_the_message_says_what_fits(monkeypatch):
    monkeypatch.setattr(size, "memory_limit", lambda: 12 * 2**30)
    words = r"10 phases \(stages included\) with 21 tools .* 20,971,520 joint states .*GiB"
    with pytest.raises(ValueError, match=words) as error:
        check_size(10, 21, 600)
    assert "tools alone" in str(error.value) and "groups of at most 19" in str(error.value)
    assert check_size(10, 19, 600).memory <= 0.8 * 12 * 2**30
    with pytest.raises(ValueError, match="groups of at most 19"):
        check_size(10, 20, 600)
    monkeypatch.setattr(size, "memory_limit", lambda: None)
    check_size(10, 21, 600)


def test_inference_is_refused_before_it_starts(monkeypatch):
    monkeypatch.setattr(size, "memory_limit", lambda: 2**29)
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

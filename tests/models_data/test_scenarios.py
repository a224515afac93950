"""Labeling scenarios: which frames of a collection count as labeled."""

import dataclasses

import numpy as np
import pytest

import hmmjax
from hmmjax.io import CHOLEC80_TOOLS, FormatError
from hmmjax.simulate import simulate_surgeries, stack
from models.data.collections import Annotation
from models.data.scenarios import check_overlap, combined, continuous, discrete


def annotation(name, surgery):
    seconds = np.arange(len(surgery))
    return Annotation(name, 25 * seconds, seconds.astype(float), surgery.phases, surgery.tools)


@pytest.fixture(scope="module")
def videos():
    surgeries = simulate_surgeries(6, seed=2, minutes=12.0)
    return tuple(annotation(f"video{n + 1:02d}", s) for n, s in enumerate(surgeries))


def test_discrete_labels_so_many_frames_of_each_tool(videos):
    scenario = discrete(videos, 12, 30, seed=5)
    tools = np.concatenate([a.tools for a in scenario.annotations])
    assert ((tools == 1).sum(0) == 12).all() and ((tools == 0).sum(0) == 30).all()
    truth = np.concatenate([a.tools for a in videos])
    assert (tools[tools >= 0] == truth[tools >= 0]).all()
    assert all((a.phases == -1).all() for a in scenario.annotations)
    assert scenario.cost["tools"] == 7 * 42 and scenario.cost["phases"] == 0 and scenario.cost["frames"] <= 7 * 42


def test_discrete_is_deterministic_and_nested(videos):
    same, other = discrete(videos, 8, 8, seed=1), discrete(videos, 8, 8, seed=2)
    more = discrete(videos, 16, 24, seed=1)
    for a, b, c in zip(discrete(videos, 8, 8, seed=1).annotations, same.annotations, more.annotations, strict=True):
        np.testing.assert_array_equal(a.tools, b.tools)
        assert (c.tools[a.tools >= 0] == a.tools[a.tools >= 0]).all()
    assert any((a.tools != b.tools).any() for a, b in zip(same.annotations, other.annotations, strict=True))


def test_discrete_keeps_frames_apart(videos):
    scenario = discrete(videos, 6, 6, apart=10.0)
    for video in scenario.annotations:
        for tool in range(7):
            for value in (0, 1):
                gaps = np.diff(video.seconds[video.tools[:, tool] == value])
                assert (gaps >= 10).all()


def test_discrete_whole_frames(videos):
    tools = np.concatenate([a.tools for a in discrete(videos, 4, 4, whole_frames=True).annotations])
    known = tools >= 0
    assert (known.all(1) == known.any(1)).all() and known.any()


def test_too_few_frames_is_an_error(videos):
    with pytest.raises(FormatError, match=r"tool 0 has only \d+ frames with value 1"):
        discrete(videos, 100_000, 1)
    named = [dataclasses.replace(video, tool_names=CHOLEC80_TOOLS) for video in videos]
    with pytest.raises(FormatError, match=r"Grasper has only \d+ frames with value 1"):
        discrete(named, 100_000, 1)


@pytest.mark.parametrize("count", [-1, 2.5, True, "3"])
def test_numbers_of_frames_are_numbers(videos, count):
    for wrong in ((count, 1), (1, count)):
        with pytest.raises(FormatError, match="expected a number of frames"):
            discrete(videos, *wrong, at_most=True)


def test_classes_of_scenarios_are_the_same(videos):
    """One tool would be broadcast to seven columns, and another order of the same tools would go unnoticed."""
    one = dataclasses.replace(videos[0], tools=videos[0].tools[:, :1])
    with pytest.raises(FormatError, match=r"the number of tools of .* differ: 7 and 1"):
        continuous([one, videos[1]]).labels()
    with pytest.raises(FormatError, match="the number of tools"):
        discrete([one, videos[1]], 1, 1)
    named = [dataclasses.replace(video, tool_names=names) for video, names in zip(
        videos, (CHOLEC80_TOOLS, CHOLEC80_TOOLS[::-1]), strict=False)]  # fmt: skip
    with pytest.raises(FormatError, match="the tools of video02 and video01 differ"):
        combined(continuous(named[:1]), continuous(named[1:]))


def test_combined_scenario_and_overlap(videos):
    whole, single = continuous(videos[:2]), discrete(videos[2:], 3, 3)
    both = combined(whole, single)
    assert both.name == "S_C+D" and len(both.annotations) == 6
    assert both.cost["tools"] == whole.cost["tools"] + single.cost["tools"]
    with pytest.raises(FormatError, match="both in S_C and in S_D: video02"):
        combined(whole, discrete(videos[1:], 3, 3))
    twin = dataclasses.replace(videos[2], id="tool_video_01"), dataclasses.replace(videos[3], id="video67")
    with pytest.raises(FormatError, match="tool_video_01"):
        combined(continuous(twin[:1]), continuous(twin[1:]))
    with pytest.raises(FormatError, match="test"):
        check_overlap({"train": both, "test": ["video06"]})
    check_overlap({"train": both, "test": ["video41"]})


@pytest.mark.thorough
def test_scenarios_are_labels_that_fit_takes(videos):
    surgeries = simulate_surgeries(6, seed=2, minutes=12.0)
    both = combined(continuous(videos[:3]), discrete(videos[3:], 4, 6))
    labels, mask = both.labels()
    _, obs, seen = stack(surgeries)
    np.testing.assert_array_equal(mask, seen)
    assert (labels.phases[~mask] == -1).all() and (labels.phases[3:] == -1).all()
    start = hmmjax.init_params(7, 7, emissions="confusion")
    result = hmmjax.fit(start, obs.discretize(), mask, labels, max_iterations=2)
    assert np.isfinite(np.asarray(result.history)).all() and result.history[-1] > result.history[0]


def test_whole_scenario_counts_like_the_annotation(videos):
    labels, mask = continuous(videos).labels()
    known = np.asarray(labels.tools)[mask]
    assert (known >= 0).all() and known.shape[0] == sum(map(len, videos))

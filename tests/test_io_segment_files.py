"""Labels written for annotation tools are those that are read back: by property, in every form and at any rate."""

import dataclasses

import numpy as np
import pytest
from files import put, track
from hypothesis import given, settings
from hypothesis import strategies as st

from hmmjax import io

P, K = io.CHOLEC80_PHASES, io.CHOLEC80_TOOLS
RATES = (1.0, 24000 / 1001, 25.0, 29.97, 30000 / 1001, 30.0, 50.0, 60000 / 1001)


def labeled(seed, fps, seconds, first, unknown):
    """Return phases and tools of a video with unlabeled stretches and tools that are never present."""
    rng = np.random.default_rng(seed)
    frames = first + np.floor(np.arange(seconds) * fps + 0.5).astype(int)
    phases = rng.integers(-1, len(P), seconds // 3 + 1).repeat(3)[:seconds]
    tools = rng.integers(0, 2, (seconds // 4 + 1, len(K))).repeat(4, 0)[:seconds]
    tools[:, rng.random(len(K)) < 0.5] = 0
    tools[rng.random(seconds) < unknown] = -1
    given = track("phases", phases, P, frames=frames), track("tools", tools, K, frames=frames)
    return [dataclasses.replace(t, fps=fps) for t in given]


def at_frames(found, track):
    """Return the labels that were read at the frames of a track; -1 where there are none."""
    out = np.full(track.values.shape, -1)
    _, a, b = np.intersect1d(track.frames, found.frames, return_indices=True)
    out[a] = found.values[b]
    return out


@pytest.mark.parametrize("form", ["segments", "elan", "label-studio"])
@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(RATES),
    st.integers(1, 40),
    st.integers(0, 150),
    st.sampled_from([0, 0.3]),
)
def test_labels_are_read_back(tmp_path_factory, form, seed, fps, seconds, first, unknown):
    folder = tmp_path_factory.mktemp("segments")
    tracks = labeled(seed, fps, seconds, first, unknown)
    known = [t for t in tracks if (t.values >= 0).any()]
    if not known:
        return
    found = io.read_annotations(io.write_segments(known, folder, [form]), fps=tracks[0].fps)
    assert [t.track for t in found] == [t.track for t in known]
    for written, read in zip(known, found, strict=True):
        np.testing.assert_array_equal(at_frames(read, written), written.values)


def test_a_tool_that_is_known_among_unknown_ones_is_kept_if_present(tmp_path):
    tools = np.zeros((40, 7), int)
    tools[10:20, 1:] = -1
    tools[10:20, 0] = 1
    tools[30:35, 0] = -1
    given = track("tools", tools, K, frames=np.arange(40))
    for form in ("segments", "elan", "label-studio"):
        (found,) = io.read_annotations(io.write_segments([given], tmp_path / form, [form]))
        assert (found.values[:10] == 0).all() and (found.values[10:20, 0] == 1).all()
        # In frames 30 to 34 one tool is unknown, and what is absent cannot be told from it.
        assert (found.values[10:20, 1:] == -1).all() and (found.values[30:35] == -1).all()


def test_segments_without_a_label_are_no_absent_tools(tmp_path):
    rows = "label,start,end\nPreparation,0,10.0\n,10.0,20.0\nClippingCutting,20.0,30.0\n"
    (found,) = io.read_annotations(put(tmp_path, "video01.csv", rows))
    assert np.bincount(found.values + 1)[:4].tolist() == [250, 250, 0, 250]
    assert "1 segment(s) without a label are left out; the first is on line 3" in found.notices[0]
    (found,) = io.read_annotations(
        put(tmp_path, "video02.txt", "phases\t\t00:00:00.000\t00:00:02.000\tPreparation\t\n")
    )
    assert (found.track, found.values.tolist()) == ("phases", [0] * 50)

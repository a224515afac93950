"""`stabilize_arrays` does with arrays what `stabilize` does with files; `plot_result` draws a video of either."""

import numpy as np
import pytest

from hmmjax import io, stabilize
from hmmjax.plots import plot_video

P, T = ("Alpha", "Beta", "Gamma"), ("Knife", "Fork")
IDS = tuple(f"case{i}" for i in range(4))


@pytest.fixture(scope="module")
def data():
    """Four videos of logits; the last is not annotated."""
    rng = np.random.default_rng(0)
    phases, tools, scores, presence = [], [], [], []
    for i in range(4):
        truth = np.repeat([0, 1, 2], [14 + i, 20, 10])
        used = np.stack([truth == 1, truth != 2], 1).astype(int)
        phases.append(truth)
        tools.append(used)
        scores.append(4 * np.eye(3)[truth] + rng.normal(0, 2, (len(truth), 3)))
        presence.append(6 * used - 3 + rng.normal(0, 2, used.shape))
    return scores, presence, [*phases[:3], None], [*tools[:3], None]


@pytest.fixture(scope="module")
def result(data):
    scores, presence, phases, tools = data
    return stabilize.stabilize_arrays(
        scores, presence, true_phases=phases, true_tools=tools, kind="logits", ids=IDS, phase_names=P, tool_names=T,
        seconds_per_row=2.0,
    )  # fmt: skip


def test_arrays_give_what_files_give(data, result, tmp_path):
    scores, presence, phases, tools = data
    np.savez(
        tmp_path / "said.npz", phase_names=P, tool_names=T, fps=0.5,
        **{f"phases_{v}": x for v, x in zip(IDS, scores, strict=True)},
        **{f"tools_{v}": x for v, x in zip(IDS, presence, strict=True)},
        **{f"frames_{v}": np.arange(len(x)) for v, x in zip(IDS, scores, strict=True)},
    )  # fmt: skip
    np.savez(
        tmp_path / "truth.npz", phase_names=P, tool_names=T, fps=0.5,
        **{f"phases_{v}": x for v, x in zip(IDS[:3], phases, strict=False)},
        **{f"tools_{v}": x for v, x in zip(IDS[:3], tools, strict=False)},
        **{f"frames_{v}": np.arange(len(x)) for v, x in zip(IDS[:3], phases, strict=False)},
    )  # fmt: skip
    names = {"phase_names": P, "tool_names": T}
    files = stabilize.stabilize(
        io.read(tmp_path / "said.npz", kind="logits", **names), io.read_annotations(tmp_path / "truth.npz", **names)
    )
    assert files.step_seconds == result.step_seconds == 2.0 and files.protocol == result.protocol
    assert [io.video_id(v) for v in result.ids] == list(files.ids)
    for one, other in ((files.smoothed, result.smoothed), (files.filtered, result.filtered)):
        for track in ("phases", "tools"):
            for a, b in zip(getattr(one, track), getattr(other, track), strict=True):
                np.testing.assert_allclose(a, b, atol=1e-6)
    assert [r.figure for r in files.table] == [r.figure for r in result.table]
    for a, b in zip(files.table, result.table, strict=True):
        assert all(a.metrics[n].value == pytest.approx(b.metrics[n].value, nan_ok=True) for n in a.metrics)


def test_a_video_of_a_result_is_drawn(result):
    one, other = stabilize.plot_result(result, "case0"), stabilize.plot_result(result, 3, online=True)
    texts = [t.get_text() for t in one.axes[0].texts]
    assert texts[0::2][:3] == ["truth", "raw", "stabilized"]
    assert [t.get_text() for t in other.axes[0].texts][0::2][:3] == ["raw", "online", "stabilized"]
    assert one.axes[-1].get_xlim()[1] == pytest.approx(44 * 2 / 60)
    with pytest.raises(ValueError, match=r"no video 'case9': pass one of case0, case1"):
        stabilize.plot_result(result, "case9")
    with pytest.raises(ValueError, match="no video 4: positions are 0 to 3"):
        stabilize.plot_result(result, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phases": None, "tools": None}, "there are no predictions"),
        ({"true_phases": [None] * 3}, "phases has 4, tools has 4, true_phases has 3"),
        ({"ids": ["a"]}, "ids has 1 videos"),
        ({"kind": "logit"}, "kind='logit' is unknown: pass one of labels, probabilities, logits"),
        ({"seconds_per_row": 0.0}, "seconds_per_row=0 is not positive"),
        ({"kind": None}, r"phases of case0.*is not a probability.*kind='logits'"),
        ({"kind": "labels"}, "phases of case0: an array of shape \\(44, 3\\) cannot hold labels"),
        ({"phase_names": ("a", "b")}, "phases of case0 has 3 columns, but there are 2 names of phases"),
        ({"tools": [np.zeros(44)] * 4}, r"tools of case0 is an array float64 \(44,\)"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(data, change, message):
    scores, presence, phases, tools = data
    given = {"phases": scores, "tools": presence, "true_phases": phases, "true_tools": tools, "kind": "logits",
             "ids": IDS, "phase_names": P, "tool_names": T}  # fmt: skip
    with pytest.raises(ValueError, match=message):
        stabilize.stabilize_arrays(**{**given, **change})


def test_one_array_in_place_of_a_list_is_refused(unchecked):
    with pytest.raises(TypeError, match=r"tools is an array \(44, 2\): pass a list .* as \[tools\]"):
        stabilize.stabilize_arrays(tools=np.zeros((44, 2)))


def test_a_video_is_drawn_from_scores_without_times():
    labels = np.array([0, 0, 1, -1])
    scores = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [np.nan, np.nan]])
    tools = np.array([[0, 1], [1, 1], [1, 0], [-1, 0]])
    shown = np.array([[0.2, 0.5], [0.9, 0.8], [0.7, 0.1], [np.nan, 0.0]])
    one = plot_video(phases={"raw": labels}, tools={"raw": tools}, step=5.0)
    other = plot_video([0, 5, 10, 15], phases={"raw": scores}, tools={"raw": shown})
    for a, b in zip(one.axes, other.axes, strict=True):
        assert a.get_xlim() == b.get_xlim() == (0, 20 / 60)
        assert [t.get_text() for t in a.texts] == [t.get_text() for t in b.texts]
        for x, y in zip(a.collections, b.collections, strict=True):
            for p, q in zip(x.get_paths(), y.get_paths(), strict=True):
                np.testing.assert_array_equal(p.vertices, q.vertices)
    with pytest.raises(ValueError, match="there is nothing to plot"):
        plot_video()

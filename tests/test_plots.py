"""Plots: every optional part may be missing, and the numbers in the margins are correct."""

import subprocess
import sys

import numpy as np
import pytest

from hmmjax import io, metrics, plots

P, T = io.CHOLEC80_PHASES, io.CHOLEC80_TOOLS


def texts(figure):
    return [t.get_text() for axis in figure.axes for t in (*axis.texts, *axis.get_legend().get_texts())]


def example(n=50, **more):
    rng = np.random.default_rng(0)
    phases = {name: rng.integers(0, 7, n).astype(np.int32) for name in ("truth", "raw", "stabilized")}
    tools = {name: rng.integers(0, 2, (n, 7)).astype(np.int32) for name in ("truth", "raw", "stabilized")}
    return {
        "seconds": np.arange(n) * 1.0,
        "phases": phases,
        "tools": tools,
        "tool_posterior": rng.random((n, 7)),
        "phase_names": P,
        "tool_names": T,
        "title": "video41",
        **more,
    }


def draw(**kwargs):
    return plots.plot_video(kwargs.pop("seconds"), **kwargs)


@pytest.mark.parametrize("n", [1, 2, 50])
def test_a_picture_of_any_length(tmp_path, n):
    figure = draw(**example(n))
    plots.save_figure(figure, tmp_path / "video41.png")
    from PIL import Image

    with Image.open(tmp_path / "video41.png") as image:
        assert image.size[0] == 1600
    with pytest.raises(FileExistsError):
        plots.save_figure(figure, tmp_path / "video41.png")


def test_margins_count_changes():
    data = example()
    found = texts(draw(**data))
    for values in data["phases"].values():
        assert str(plots.changes(values)) in found
    assert "Calot triangle dissection" in found and "Specimen bag" in found and "on/off changes" in found


@pytest.mark.parametrize("missing", ["phases", "tools", "tool_posterior", "phase_names", "tool_names"])
def test_anything_may_be_missing(tmp_path, missing):
    figure = draw(**example(**{missing: None}))
    assert len(figure.axes) == (1 if missing in ("phases", "tools") else 2)
    plots.save_figure(figure, tmp_path / "a.png")


def test_without_truth():
    data = example()
    del data["phases"]["truth"], data["tools"]["truth"]
    found = texts(draw(**data))
    assert "truth" not in found and "stabilized" in found


def test_unlabeled_frames_are_hatched_and_named(tmp_path):
    data = example()
    data["phases"]["truth"][10:20] = -1
    data["tools"]["truth"][:, 3] = -1
    figure = draw(**data)
    assert texts(figure).count("unlabeled") == 2
    assert any(c.get_hatch() for axis in figure.axes for c in axis.collections)
    assert "unlabeled" not in texts(draw(**example()))
    plots.save_figure(figure, tmp_path / "a.png")


def test_changes_do_not_count_across_unknown_frames():
    assert plots.changes(np.array([0, 0, 1, -1, 2, 2, 0])) == 2
    assert plots.changes(np.array([1])) == 0


def test_gaps_in_time_stay_empty():
    spans = plots.spans(np.array([0.0, 1, 2, 60, 61]), np.array([1, 1, 2, 2, 2]), 1.0)
    np.testing.assert_allclose(np.array(spans)[:, :2] * 60, [[0, 2], [2, 1], [60, 2]])


def test_more_classes_than_colors(tmp_path):
    data = example(phase_names=None)
    data["phases"]["raw"] = np.arange(50, dtype=np.int32) % 15
    plots.save_figure(draw(**data), tmp_path / "a.png")


def test_nothing_to_draw():
    for data in ({"phases": None, "tools": None}, {"seconds": np.zeros(0), "phases": {"raw": np.zeros(0, int)}}):
        with pytest.raises(ValueError, match="nothing to plot"):
            draw(**example(**data))
    with pytest.raises(
        ValueError,
        match=r"phases\['raw'\] has 3, tools\['truth'\] has 50, .*, seconds has 50, tool_posterior has 50 frames",
    ):
        draw(**example(phases={"raw": np.zeros(3, int)}))


def test_names_are_given_as_everywhere():
    """A preset's name, or a list; too few, or another number of tools, is an error that says so."""
    found, named = texts(draw(**example())), texts(draw(**example(phase_names="cholec80", tool_names="cholec80")))
    assert found == named and "Calot triangle dissection" in named and "Specimen bag" in named
    moves = np.full((7, 7), 1.0)
    by_name = plots.plot_phase_moves(moves, ends=np.ones(7), frames=np.ones(7), names="cholec80", step_seconds=1)
    assert "Clipping cutting" in [t.get_text() for t in by_name.axes[0].get_yticklabels()]
    assert metrics.tool_changes([np.zeros((3, 7), int)], names="cholec80").class_names == T
    assert metrics.phases_lost([np.arange(7)], [np.arange(7)], names="cholec80").class_names == P
    for given, message in (
        ({"phase_names": P[:3]}, "phase_names has 3 names, but there are 7 phases"),
        ({"tool_names": T[:3]}, "tool_names has 3 names, but there are 7 tools"),
        ({"phase_names": "cholec81"}, "unknown class order 'cholec81' for phases"),
        ({"tool_posterior": np.zeros((50, 3))}, r"tool_posterior has shape \(50, 3\)"),
    ):
        with pytest.raises(ValueError, match=message):
            draw(**example(**given))
    with pytest.raises(ValueError, match="tool_names has 7 names, but there are 2 tools"):
        plots.plot_tool_transitions(np.full((2, 2, 2), 0.5), tool_names="cholec80")


ONE = np.full((2, 3), 1 / 3)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plots.plot_presence([0.5, 0.5], names=["a"]), "names has 1 names, but there are 2 classes"),
        (lambda: plots.plot_presence([0.5, 0.5], names="ab"), "names is the string 'ab': pass a list"),
        (
            lambda: plots.plot_presence([0.5], names=["a"], notes=["x", "y"]),
            "notes has 2 texts, but there are 1 classes",
        ),
        (lambda: plots.plot_boxes([[1, 2], [3]], names=["a", "b", "c"], unit="s"), "names has 3 names.*2 classes"),
        (lambda: plots.plot_intervals({"raw": [1, 2]}, names=["a"]), "names has 1 names.*2 classes"),
        (
            lambda: plots.plot_intervals({"raw": [1, 2], "truth": [1]}, names=["a", "b"]),
            r"values\['truth'\] has 1 values",
        ),
        (lambda: plots.plot_intervals({"raw": [1, 2]}, low=[1], high=[2, 3], names=["a", "b"]), "low has 1 values"),
        (lambda: plots.plot_proportions(ONE, row_names=["a", "b"], part_names=["x", "y"]), "part_names has 2.*3 parts"),
        (lambda: plots.plot_proportions(ONE, row_names=["a"], part_names=list("xyz")), "row_names has 1.*2 rows"),
        (lambda: plots.plot_matrices({"raw": ONE}, row_names=["a", "b"]), "row_names .column_names=None.*3 columns"),
        (
            lambda: plots.plot_matrices({"raw": ONE}, row_names=["a"], column_names=list("xyz")),
            r"row_names has 1 names, but there are 2 rows in matrices\['raw'\]",
        ),
        (
            lambda: plots.plot_phase_moves(np.eye(2), ends=[1], frames=[1, 1], names=["a", "b"], step_seconds=1),
            "ends has 1 values, but there are 2 phases",
        ),
        (
            lambda: plots.plot_phase_transitions(np.eye(2), names=["a", "b"], step_seconds=1, seen=[1.0]),
            "seen has 1 values, but there are 2 phases",
        ),
    ],
)
def test_another_number_of_names_is_refused(draw, message):
    """Too few names would leave classes out of the picture, or put names next to others' values."""
    with pytest.raises(ValueError, match=message):
        draw()


def test_curves_of_other_tools_are_refused():
    truth, scores = [np.eye(2, dtype=int)[[0, 1, 0, 1]]], [np.random.default_rng(0).random((4, 2))]
    curves = metrics.precision_recall_curves(truth, scores, names=["Hook", "Grasper"])
    with pytest.raises(
        ValueError, match=r"curves\['stabilized'\] are of Grasper, Hook, but those of 'raw' are of Hook"
    ):
        plots.plot_precision_recall({"raw": curves, "stabilized": curves[::-1]})


def test_arrays_that_are_plotted_stay_as_they_are():
    moves = np.array([[5.0, 2.0], [1.0, 9.0]])
    plots.plot_phase_moves(moves, ends=[0, 3], frames=[60, 240], names=P[:2], step_seconds=2)
    assert moves.tolist() == [[5.0, 2.0], [1.0, 9.0]]


def test_rows_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"phases\['truth'\] has 3, phases\['raw'\] has 5 frames"):
        plots.plot_video(phases={"truth": np.zeros(3, int), "raw": np.zeros(5, int)})


def test_phases_that_end_with_the_operation_are_marked():
    stay = np.array([[0.9, 0.1 - 1e-9, 1e-9], [0, 0.95, 0.05], [1e-9, 0, 1 - 1e-9]])
    figure = plots.plot_phase_transitions(
        stay, names=P[:3], step_seconds=1, seen=[0.1, np.nan, 1.4], open_ended=[False, False, True]
    )
    heat, bars = figure.axes
    assert [bool(b.get_hatch()) for b in bars.patches] == [False, False, True]
    written = [t.get_text() for t in heat.texts]
    assert "1e-8" not in written and written.count("·") == 3  # pseudo-counts are no observations
    assert "ends with the operation" in bars.texts[2].get_text() and "Mean stay of the chain" in bars.get_title("left")
    figure = plots.plot_phase_moves(
        np.array([[5, 2], [1, 9]]), ends=[0, 3], frames=[60, 240], names=P[:2], step_seconds=2
    )
    heat, bars = figure.axes
    assert [t.get_text() for t in heat.texts] == ["1.00", "·", ".25", ".75", "2", "4"]
    assert "1.0 min" in bars.texts[0].get_text() and "2.0 min" in bars.texts[1].get_text()


def test_dollar_signs_in_names_are_no_formulas(tmp_path):
    from hmmjax.plots.style import literal, new_figure, save_figure

    figure = new_figure(2, 2)
    axis = figure.subplots()
    axis.set_title("Ph $a_^$")
    axis.set_xticks([0, 1], ["$x$y$", "b $^$"])
    save_figure(figure, tmp_path / "p.png")
    with literal(figure):
        figure.savefig(tmp_path / "p.svg")
    assert (tmp_path / "p.png").stat().st_size > 1000


def test_imports_are_lazy():
    """Importing the library's upper modules does not import the packages that only some functions need."""
    code = (
        "import sys, jax; before = set(sys.modules)\n"
        "import hmmjax.data.cholec80, hmmjax.explore, hmmjax.io, hmmjax.metrics, hmmjax.plots, hmmjax.simulate\n"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"matplotlib", "sklearn", "scipy", "yaml", "jinja2", "pandas", "PIL"} & set(loaded)

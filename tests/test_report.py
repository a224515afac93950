"""The report: its page, tables, pictures and LaTeX."""

import csv
import dataclasses
import json
import re

import cases
import numpy as np
import oracles
import pages
import pytest
from reports import P, T, handmade, write_all

import hmmjax
from hmmjax import io, report
from hmmjax import stabilize as job
from hmmjax._core.occupancy import occupancy_variance
from hmmjax.report.figures import pictures
from hmmjax.report.latex import latex
from hmmjax.report.minutes import Minutes
from hmmjax.report.reasons import describe, reasons_in_words
from hmmjax.stabilize.systems import System


@pytest.fixture(scope="module")
def result():
    return handmade()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_all(handmade(), tmp_path_factory.mktemp("report"))


@pytest.mark.thorough
def test_everything_promised_is_there(written):
    folder, files = written
    assert all(f.is_file() and f.stat().st_size for f in files) and files[0] == folder / "report.html"
    assert {f for f in folder.rglob("*") if f.is_file()} == set(files)
    names = {f.name for f in files}
    assert {"main.csv", "main.tex", "summary.csv", "changes.csv", "minutes_phases.csv", "confusion_phases.svg",
            "calibration.png", "transitions_tools.svg", "emission_tools.png", "costs.svg",
            "precision_recall.csv"} <= names  # fmt: skip


def test_the_page_needs_nothing_else_and_escapes_what_it_is_given(written):
    text = (written[0] / "report.html").read_text()
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", text) and "@import" not in text and "http" not in text
    assert "A &lt;title&gt; &amp; more" in text and "a note with &lt;markup&gt;" in text
    assert text.count("</script>") == 2 and "Beta<b>" not in text
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])
    assert [v["id"] for v in data["videos"]] == ["video01", "video02"]
    assert data["videos"][0]["phases"]["truth"] == [[0, 30, 0], [30, 70, 1], [70, 90, 2]]
    for section in ("figures", "videos", "changes", "minutes", "calibration", "model", "recognizer", "costs"):
        assert f'id="{section}"' in text
    assert "data:image/jpeg;base64" in text  # thumbnails


def test_no_figure_without_its_convention(written, result):
    with open(written[0] / "tables" / "main.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows and all(r["convention"] and r["videos"] and r["frames"] for r in rows)
    text = (written[0] / "report.html").read_text()
    for row in result.table:
        assert row.figure in text


def test_the_longest_change_is_explained(result):
    change = report.longest_changes(result)[0]
    assert (change.video, change.track, change.raw, change.stabilized) == (0, "phases", 2, 1)
    assert change.start <= 40 and change.end >= 46 and change.right == 1 and change.raw_right == 0
    # Six frames called 2 in phase 1: by hand, from the matrices above.
    n = round(change.seconds)
    assert change.frames_say == pytest.approx(n * np.log(0.1 / 0.8), rel=1e-4)  # against the change
    path = np.log([0.98, 0.98]).sum() - np.log([0.01, 0.01]).sum()
    assert change.moves_say == pytest.approx(path, rel=1e-4) and abs(change.tools_say) < 1e-6
    sentence, weights = describe(change, P, T)
    assert "predicted Gamma; the model infers Beta<b>" in sentence and "+9.2" in weights
    assert f"the recognizer's outputs {change.frames_say:+.1f}" in weights  # the csv has the page's sign


@pytest.mark.parametrize("track", ["phases", "tools"])
def test_variances_of_minutes_are_exact(track):
    case = cases.make(3, 2, 2, num_frames=4, batch=2)
    found = occupancy_variance(case.params, case.obs, case.mask, track)
    for i, table in enumerate(case.emission_tables):
        phases, tools, log_prob = oracles._enumerate(case.model, table)
        weight = np.exp(log_prob - log_prob.max())
        weight /= weight.sum()
        counts = np.eye(2)[phases].sum(1) if track == "phases" else tools.sum(1)
        mean = weight @ counts
        np.testing.assert_allclose(found[i], weight @ (counts - mean) ** 2, rtol=2e-2, atol=2e-3)


def test_bands_hold_what_they_promise():
    rng = np.random.default_rng(1)
    truth = rng.uniform(5, 20, (400, 2))
    table = Minutes(P[:2], truth, truth, truth + rng.normal(0, (1, 3), truth.shape), None)
    low, high = table.bands()
    inside = (low <= truth) & (truth <= high)
    assert 0.78 < inside.mean() < 0.82 and low.min() >= 0
    # Errors to one side: the band reaches to that side only, and never below nothing.
    late = Minutes(P[:2], truth, truth, truth + rng.exponential(8, truth.shape), None)
    low, high = late.bands()
    assert (low >= 0).all() and (late.stabilized - low).mean() > 5 * (high - late.stabilized).mean()
    median, most = late.errors("stabilized")
    assert (median < most).all() and (late.errors("raw")[1] == 0).all()
    few = Minutes(P[:2], truth[:9], truth[:9], truth[:9], None)
    assert few.bands() is None
    with pytest.raises(ValueError, match="no deviations"):
        few.coverage()


def test_what_is_missing_is_left_out(result, tmp_path):
    phases_only = dataclasses.replace(
        result,
        raw=System("M", result.raw.phases),
        smoothed=System("M_H", result.smoothed.phases),
        filtered=System("M_H online", result.filtered.phases),
        truth_phases=None,
        truth_tools=None,
        table=[],
        model=io.ModelFile(hmmjax.Params(result.model.params.phases), None, None, 1.0),
        phase_names=None,
        tool_names=None,
    )
    report.write_report(phases_only, tmp_path, intervals=False, videos=False)
    text = (tmp_path / "report.html").read_text()
    assert "Main metrics" not in text and "phase 0" in text.lower() and 'id="changes"' in text
    with pytest.raises(FileExistsError):
        report.write_report(phases_only, tmp_path)


def test_every_csv_names_its_protocol(written):
    def header(name):
        with open(written[0] / "tables" / f"{name}.csv", newline="") as file:
            return list(csv.DictReader(file))

    splits = {r["split"] for name in ("main", "more", "classes", "pairs", "delays") for r in header(name)}
    assert splits == {"2 annotated videos, held out one at a time"}
    assert {(r["level"], r["interval"]) for r in header("pairs")} == {("0.95", "Student's t over videos")}
    assert all(int(r["videos"]) and int(r["frames"]) for r in header("classes"))
    assert {r["classes"] for r in header("more") if r["figure"] == "edit score"} == {""}
    for name in ("confusion_phases", "precision_recall", "calibration"):
        assert {r["system"] for r in header(name)} <= {"M", "M_H", "M_H online"}


def test_reasons_are_words(result):
    change = report.longest_changes(result)[0]
    assert reasons_in_words(change) == (
        "For: the order and the usual length of phases (clearly). Against: the recognizer's outputs (strongly)."
    )


def test_equal_systems_are_bold_together_or_not_at_all():
    from hmmjax.metrics import Metric
    from hmmjax.report.cells import table_row
    from hmmjax.stabilize import Row

    def bold(unit, *values, truth=None):
        systems = ("M", "M_H", "M_H online")
        row = Row("a", {n: Metric("a", "", x, unit) for n, x in zip(systems, values, strict=True)}, truth)
        return [cell["best"] for cell in table_row(row, systems)["cells"]]

    assert bold("", 0.5, 0.7, 0.7) == [False, True, True]
    assert bold("phases", 0.0, 0.0, 0.0) == [False] * 3 and bold("phases", 2.0, 0.0, 1.0) == [False, True, False]
    assert bold("changes", 9.0, 4.0, 2.0, truth=3.0) == [False, True, True]
    assert bold("changes", 9.0, 4.0, 2.0) == [False] * 3


def test_texts_of_pictures_do_not_overlap():
    full = pages.full_result()
    minutes = {
        track: report.estimate_minutes(full, track, names, intervals=False)
        for track, names in (("phases", full.phase_names), ("tools", full.tool_names))
    }
    costs = [{"name": "all frames", "cost": 10, "value": 0.7}, {"name": "one in ten", "cost": 2, "value": 0.6}]
    drawn = pictures(full, full.phase_names, full.tool_names, minutes, costs)
    assert len(drawn) > 8
    found = {p.name: pages.overlapping_texts(p.figure) for p in drawn}
    found |= {video: pages.overlapping_texts(job.plot_result(full, video, online=True)) for video in full.ids}
    assert not {name: pairs for name, pairs in found.items() if pairs}
    # The measurement finds what overlaps.
    bad = drawn[0].figure
    bad.text(0.5, 0.5, "over"), bad.text(0.5, 0.5, "under")
    assert ("over", "under") in pages.overlapping_texts(bad)


def test_latex_is_balanced_and_escaped(result):
    text = latex(result.table, "100 % of M_H & more")
    assert text.count("{") == text.count("}") and "M\\_H" in text and "100 \\% of" in text
    assert text.count("\\\\") == len(result.table) + 1
    assert "$\\pm$ over phases" in text and "(2 annotated videos, held out one at a time)" in text
    assert all(f"\\{word}" in text for word in ("centering", "label{tab:hmmjax}"))
    notes = text.split("footnotesize")[1].split("$^{")[1:]
    assert len(notes) == len({n.split("}$")[1].strip() for n in notes}) < len(result.table)  # the same note once


@pytest.mark.parametrize(
    ("text", "message"),
    [("name,cost\na,1\n", "has no column value"), ("name,cost,value\na,x,1\n", "cost is 'x'"),
     ("name,cost,value\na,1,nan\n", "value is 'nan'"), ("name,cost,value\na,,1\n", "cost is")],
)  # fmt: skip
def test_invalid_costs_are_refused(tmp_path, text, message):
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(io.FormatError, match=message):
        report.read_costs(tmp_path / "c.csv")


def test_minutes_of_all_systems_are_of_the_same_videos():
    from hmmjax.report.figures import _minutes

    truth = np.array([[10.0, 2.0], [np.nan, np.nan]])
    predicted = np.array([[10.0, 2.0], [1.0, 0.0]])
    (picture,) = _minutes({"phases": Minutes(("a", "b"), truth, predicted, predicted, None)})
    assert "mean over 1 video." in picture.caption
    drawn = {round(float(x), 6) for line in picture.figure.axes[0].lines for x in np.ravel(line.get_xdata())}
    drawn |= {round(float(p[0]), 6) for c in picture.figure.axes[0].collections for p in np.asarray(c.get_offsets())}
    assert 10.0 in drawn and 5.5 not in drawn


def test_pictures_that_cannot_be_read_are_left_out_by_name(tmp_path):
    from hmmjax.report.frames import Frames

    (tmp_path / "video01").mkdir()
    (tmp_path / "video01" / "000025.jpg").write_bytes(b"\xff\xd8\xff")
    with pytest.warns(UserWarning, match=r"000025.jpg: no thumbnail"):
        assert Frames(tmp_path).thumbnail("video01", 25) is None


def test_carets_and_tildes_are_text_in_latex():
    from hmmjax.report.latex import _tex

    assert _tex("A^B ~ 5 %") == r"A\textasciicircum{}B \textasciitilde{} 5 \%"


def test_overwriting_removes_only_an_earlier_runs_pictures(tmp_path):
    from hmmjax.stabilize.write import _clear

    for name in ("table.csv", "pictures/video01.png", "pictures/mine.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    _clear(tmp_path)
    assert (tmp_path / "table.csv").exists()  # of no run that is known of
    np.savez(tmp_path / "stabilized.npz", fold_01=0)
    _clear(tmp_path)
    assert [p.name for p in (tmp_path / "pictures").iterdir()] == ["mine.png"] and not (tmp_path / "table.csv").exists()

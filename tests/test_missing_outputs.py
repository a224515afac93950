"""A recognizer's output that is missing for a phase or for single tools: the rest of the frame counts."""

import json
import shutil

import numpy as np
import pytest
from commands import NAMES, run

import hmmjax
from hmmjax import io
from hmmjax import stabilize as job

OPTIONS = {"phase_names": NAMES[1], "tool_names": NAMES[3]}


@pytest.fixture(scope="module")
def holes(world, tmp_path_factory):
    """The world's predictions, of which video01 lacks some phases, and one tool or both in some frames."""
    folder = tmp_path_factory.mktemp("holes") / "said"
    shutil.copytree(world / "said", folder)
    for name, change in (("video01-phase.txt", {3: 1, 4: 1}), ("video01-tool.csv", {5: 1, 7: 2, 9: 1, 10: 2})):
        lines = (folder / name).read_text().splitlines()
        cut = "\t" if name.endswith("txt") else ","
        for line, column in change.items():
            cells = lines[line].split(cut)
            cells[column] = "-1" if name.endswith("txt") else "nan" if column == 1 else ""
            lines[line] = cut.join(cells)
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def test_posteriors_are_those_of_arrays_with_missing_entries(world, holes):
    predictions, truth = io.read(holes, **OPTIONS), io.read_annotations(world / "truth", **OPTIONS)
    found = job.stabilize(predictions, truth, emissions="confusion", folds=2)
    raw = job.prepare_inputs(predictions, truth, emissions="confusion").examples.obs
    assert (raw.phases[0, 3:5] == -1).all() and (raw.phases[0, :3] >= 0).all()
    assert (raw.tools[0] == -1).sum() == 4 and "2 of 275 predictions of phases" in " ".join(found.notices)
    # A model given by hand sees the same arrays.
    given = job.stabilize(predictions, truth, model=found.model)
    obs = hmmjax.Observations(raw.phases[0, :45], raw.tools[0, :45])
    post = hmmjax.posterior(found.model.params, obs)
    np.testing.assert_allclose(given.smoothed.phases[0], post.phases, atol=1e-5)
    np.testing.assert_allclose(given.smoothed.tools[0], post.tools, atol=1e-5)
    assert np.isfinite(np.concatenate([*found.smoothed.phases, *found.filtered.phases])).all()


def test_only_what_is_predicted_is_scored(world, holes):
    whole = run("evaluate", world / "said", "--truth", world / "truth", *NAMES, "--json")
    some = run("evaluate", holes, "--truth", world / "truth", *NAMES, "--json")
    tables = [
        {r["figure"]: r for r in json.loads(x.stdout)["table"] if r["system"] == "predictions"} for x in (whole, some)
    ]
    frames = [t["phase accuracy, pooled"]["frames"] for t in tables]
    assert frames == [275, 273]
    # By hand: the share of right labels among the others.
    said = np.concatenate([t.labels() for t in io.read(holes, **OPTIONS) if t.track == "phases"])
    true = np.concatenate([t.values for t in io.read_annotations(world / "truth", **OPTIONS) if t.track == "phases"])
    assert tables[1]["phase accuracy, pooled"]["value"] == pytest.approx((said == true)[said >= 0].mean())
    assert "missing (NaN or -1; video01)" in some.stderr


def test_all_commands_take_them(world, holes, tmp_path):
    out = tmp_path / "out"
    result = run("stabilize", holes, "--annotations", world / "truth", *NAMES, "--out", out)
    assert "missing" in result.stderr
    written = io.read(out / "phases", **OPTIONS)
    assert written[0].frames.size == 45 and all((t.values >= 0).all() for t in written)
    again = job.read_results(out)
    assert (again.raw.phases[0][3:5] == -1).all() and np.isnan(again.raw.tools[0]).sum() == 4
    run("report", out, "--out", tmp_path / "page")
    run("suggest", holes, "--stabilized", out / "stabilized.npz", *NAMES, "--out", tmp_path / "ask")
    assert "nan" not in (tmp_path / "ask" / "answers.csv").read_text().lower()

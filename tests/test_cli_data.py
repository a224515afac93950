"""`hmmjax simulate`, `suggest` and `data check`, on simulated files."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from commands import NAMES, run

from hmmjax import io
from hmmjax.cli.suggest import _answer
from hmmjax.simulate import simulate_surgeries


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    answer = run("simulate", "--out", folder, "--videos", 2, "--minutes", 3, "--seed", 5, "--json")
    assert json.loads(answer.stdout)["videos"] == 2
    return folder, simulate_surgeries(2, 5, minutes=3)


def test_simulated_files_read_back_as_they_were_drawn(simulated):
    folder, surgeries = simulated
    videos = io.join(io.read(folder / "predictions.npz"))
    truth = [folder / "phase_annotations", folder / "tool_annotations"]
    _, labels, mask, index = io.to_batch(videos, io.read_annotations(truth))
    assert index.ids == ("video01", "video02") and index.fps == 25 and index.step == 25
    for n, surgery in enumerate(surgeries):
        np.testing.assert_array_equal(index.split(labels.phases)[n], surgery.phases)
        np.testing.assert_array_equal(index.split(labels.tools)[n], surgery.tools)
        # Rows are made to sum to one in double precision.
        np.testing.assert_allclose(videos[n].phases.values, surgery.phase_probabilities, rtol=1e-6)
        np.testing.assert_array_equal(videos[n].tools.values, surgery.tool_probabilities)
    assert mask.sum() == sum(map(len, surgeries))


def test_simulations_are_not_overwritten_unasked(simulated, tmp_path):
    folder, _ = simulated
    assert "not empty" in run("simulate", "--out", folder, code=2).stderr
    run("simulate", "--out", tmp_path, "--videos", 3, "--minutes", 0.5)
    run("simulate", "--out", tmp_path, "--videos", 1, "--minutes", 0.5, "--force")
    assert [p.name for p in (tmp_path / "tool_annotations").iterdir()] == ["video01-tool.txt"]


@pytest.fixture
def asked(simulated, tmp_path):
    """The arguments of `hmmjax suggest` for simulated predictions."""
    folder, _ = simulated
    with np.load(folder / "predictions.npz") as arrays:
        smooth = {name: arrays[name] for name in arrays.files}
    for name in ("tools_01", "tools_02"):
        smooth[name] = np.clip(smooth[name], 0.1, 0.9)
    np.savez(tmp_path / "stabilized.npz", **smooth)
    return [
        "suggest",
        folder / "predictions.npz",
        "--stabilized",
        tmp_path / "stabilized.npz",
        "--out",
        tmp_path / "out",
    ]


def test_suggest_writes_a_page_with_pictures_and_a_file_to_fill_in(asked, simulated, tmp_path):
    from PIL import Image

    _, surgeries = simulated
    for video, surgery in zip(("video01", "video02"), surgeries, strict=True):
        (tmp_path / "frames" / video).mkdir(parents=True)
        for second in range(len(surgery)):
            Image.new("RGB", (32, 24)).save(tmp_path / "frames" / video / f"{25 * second:06d}.jpg")
    answer = json.loads(run(*asked, "--pictures", tmp_path / "frames", "--count", 2, "--json").stdout)
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("<img") == page.count("<figure>") > 0
    with open(answer["answers"], newline="") as file:
        assert len(list(csv.reader(file))) > answer["questions"] // 7
    assert "answers.csv" in run(*asked, code=2).stderr
    only = run(*asked, "--force", "--reason", "uncertain", "--videos", "1", "--apart", 20)
    assert "questions" in only.stdout and "video02" not in (tmp_path / "out" / "answers.csv").read_text()


def test_suggest_says_why_there_is_nothing_to_ask():
    layout = io.Layout("npz", "labels")
    labels = io.Track("a", "phases", np.arange(2), np.array([0, 1], np.int32), ("A", "B"), 1.0, layout, "a")
    open_ = dataclasses.replace(labels, values=np.array([0, -1], np.int32))
    told = [_answer(0, "Open it", [labels], known) for known in ([labels], [open_], [])]
    assert "every frame is labeled already" in told[0] and "fill in" in told[0] and "Open" not in "".join(told)
    assert ["no unlabeled frame qualifies" in text for text in told] == [False, True, True]
    assert _answer(3, "Open it", [labels], []) == "3 questions. Open it."


def test_suggest_counts_missing_pictures(asked, tmp_path):
    from PIL import Image

    (tmp_path / "frames" / "video01").mkdir(parents=True)
    for second in range(30):
        Image.new("RGB", (32, 24)).save(tmp_path / "frames" / "video01" / f"{second:06d}.jpg")
    words = [*asked, "--pictures", tmp_path / "frames", "--force"]
    assert "--naming" in run(*words, code=2).stderr
    answer = run(*words, "--naming", "second", "--json")
    with open(tmp_path / "out" / "answers.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    lost = sum(row["video"] != "video01" or float(row["second"]) >= 30 for row in rows)
    assert json.loads(answer.stdout)["without_picture"] == lost > 0
    assert f"{lost} of {len(rows)} frames have no picture" in answer.stderr
    assert "give --pictures" in run(*asked, "--naming", "second", "--force", code=2).stderr


def test_answers_are_given_back_as_annotations(asked, simulated, tmp_path):
    """From questions to answers to a model that uses them, on the command line."""
    folder, surgeries = simulated
    run(*asked, "--count", 2)
    path = tmp_path / "out" / "answers.csv"
    with open(path, newline="") as file:
        reader = csv.DictReader(file)
        rows, columns = list(reader), reader.fieldnames
    for row in rows:
        truth = surgeries[int(row["video"][-1]) - 1]
        second = int(row["frame"]) // 25
        row.update({tool: truth.tools[second, k] for k, tool in enumerate(io.CHOLEC80_TOOLS) if row[tool] == "?"})
        if row.get("Phase") == "?":
            row["Phase"] = io.CHOLEC80_PHASES[truth.phases[second]]
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    for kind in ("phase", "tool"):
        (tmp_path / "known").mkdir(exist_ok=True)
        source = folder / f"{kind}_annotations" / f"video01-{kind}.txt"
        (tmp_path / "known" / source.name).write_bytes(source.read_bytes())
    truth = ["--annotations", tmp_path / "known", "--annotations", path]
    words = ["stabilize", folder / "predictions.npz", *truth, "--out", tmp_path / "results", "--dry-run", "--json"]
    assert json.loads(run(*words).stdout)
    table = json.loads(
        run("evaluate", folder / "predictions.npz", "--truth", tmp_path / "known", "--truth", path, "--json").stdout
    )
    assert table


def test_suggest_refuses_unknown_reasons_and_empty_folders(asked, tmp_path):
    assert "choose among" in run(*asked, "--reason", "boredom", code=2).stderr
    (tmp_path / "frames").mkdir()
    assert "one folder per video" in run(*asked, "--pictures", tmp_path / "frames", code=2).stderr


def test_data_check_lists_differences(simulated):
    folder, _ = simulated
    text = run("data", "check", "cholec80", folder, code=1).stdout
    assert "number of videos: 2 found, 80 expected" in text and "differences from cholec80" in text
    answer = json.loads(run("data", "check", "cholec80", folder, "--json", code=1).stdout)
    assert not answer["faithful"] and f"{len(answer['differences'])} differences" in text


def test_data_check_names_damage(simulated, tmp_path):
    folder, _ = simulated
    assert "only cholec80 is compared" in " ".join(run("data", "check", "cholec90", folder, code=2).stderr.split())
    assert "does not exist" in run("data", "check", "cholec80", tmp_path, code=2).stderr


@pytest.mark.slow
def test_data_check_accepts_the_real_labels(data_dir, tmp_path):
    """The real labels at one frame per second in Cholec80's layout: everything agrees but the number of rows."""
    from hmmjax.data.simulated import write_lines

    with np.load(data_dir / "cholec80" / "labels_1fps.npz") as labels:
        for n in range(1, 81):
            phases, tools = labels[f"phase_{n:02d}"], labels[f"tools_{n:02d}"]
            rows = {"phase": (["Frame", "Phase"], [[io.CHOLEC80_PHASES[p]] for p in phases])}
            rows["tool"] = (["Frame", *io.CHOLEC80_TOOLS], tools.tolist())
            for kind, (head, values) in rows.items():
                (tmp_path / f"{kind}_annotations").mkdir(exist_ok=True)
                lines = ["\t".join(map(str, (25 * k, *row))) for k, row in enumerate(values)]
                write_lines(tmp_path / f"{kind}_annotations" / f"video{n:02d}-{kind}.txt", ["\t".join(head), *lines])
    answer = run("data", "check", "cholec80", tmp_path, code=1)
    assert answer.stdout.splitlines() == [
        "cholec80: 80 of 80 videos present, with phases and tools",
        "phase rows: 184498 found, 4612532 expected",
        "1 difference from cholec80",
    ]


def test_suggest_takes_a_folder_of_results(world, tmp_path):
    """What the results hold is used: predictions as read, posteriors, and labels, which are not asked again."""
    known = [x for v in (1, 2, 3) for x in ("--annotations", world / "truth" / f"video{v:02d}-tool.txt")]
    said = [world / "said" / f"video{v:02d}-tool.csv" for v in range(1, 6)]
    results = tmp_path / "results"
    run("stabilize", *said, *known, *NAMES, "--no-hidden-phases", "--no-pictures", "--out", results)
    options = ("--count", 3, "--apart", 2, "--json")
    answer = run("suggest", results, *options, "--out", tmp_path / "own")
    run("suggest", *said, "--stabilized", results / "stabilized.npz", *known, *NAMES, *options,
        "--out", tmp_path / "given")  # fmt: skip
    assert json.loads(answer.stdout)["questions"] > 0
    own, given = ((tmp_path / name / "answers.csv").read_text() for name in ("own", "given"))
    assert own == given and "video04" in own and "video01" not in own
    more = run("suggest", results, *options, "--annotations", world / "truth" / "video04-tool.txt", *NAMES,
               "--out", tmp_path / "more")  # fmt: skip
    assert json.loads(more.stdout)["questions"] > 0
    assert "video04" not in (tmp_path / "more" / "answers.csv").read_text()
    told = run("suggest", *said, "--out", tmp_path / "none", code=2).stderr
    assert "give --stabilized results/stabilized.npz, or only the folder of results" in " ".join(told.split())


def test_a_copy_of_cholec80_is_found_by_itself(simulated, tmp_path):
    """`data check` recognizes the layout; annotations are found in a copy's folders; --annotations is --truth."""
    folder, _ = simulated
    named = run("data", "check", "cholec80", folder, code=1).stdout
    assert run("data", "check", folder, code=1).stdout == named and "differences from cholec80" in named
    assert named.startswith("cholec80: 2 of 80 videos present")
    assert "the folder has no txt" in run("data", "check", tmp_path, code=2).stderr
    assert "neither a folder nor a data set" in run("data", "check", tmp_path / "none", code=2).stderr
    assert "the folder of cholec80 is missing" in run("data", "check", "cholec80", code=2).stderr
    apart = ("--truth", folder / "phase_annotations", "--truth", folder / "tool_annotations", "--json")
    wanted = json.loads(run("evaluate", folder / "predictions.npz", *apart).stdout)["table"]
    found = run("evaluate", folder / "predictions.npz", "--annotations", folder, "--json")
    assert json.loads(found.stdout)["table"] == wanted and len(wanted) > 5
    assert "annotations are read from phase_annotations/ and tool_annotations/" in found.stderr

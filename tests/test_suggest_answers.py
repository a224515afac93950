"""`hmmjax.suggest`: the page of questions, and answers read back as partial labels."""

import csv

import numpy as np
import pytest
from questions import TOOLS, flat, track

import hmmjax
from hmmjax import io, suggest
from hmmjax.io import CHOLEC80_PHASES, CHOLEC80_TOOLS, FormatError
from hmmjax.simulate import simulate_surgeries


@pytest.fixture
def asked():
    stabilized = flat(100, 0.2, 0.9)
    stabilized[60, 0] = 0.8
    pair = [track(stabilized, v) for v in ("video02", "video10")]
    return suggest.rank(pair, pair, count=2, reasons=["positive", "uncertain"])


def fill(path, answer):
    with open(path, newline="") as file:
        reader = csv.DictReader(file)
        rows, columns = list(reader), reader.fieldnames
    for row in rows:
        answer(row)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    return rows


def test_answers_come_back_as_partial_labels(asked, tmp_path):
    path = tmp_path / "answers.csv"
    suggest.write_answers(path, asked)
    truth = {}

    def answer(row):
        for tool in TOOLS:
            if row[tool] == "?":
                row[tool] = "1" if tool == "Hook" else "0"
                truth.setdefault((row["video"], int(row["frame"])), {})[tool] = int(row[tool])

    fill(path, answer)
    tracks = suggest.read_answers(path)
    assert [t.video for t in tracks] == ["video02", "video10"] and all(t.notices == () for t in tracks)
    for found in tracks:
        assert found.names == TOOLS and (np.diff(found.frames) > 0).all() and found.fps == 25
        for frame, values in zip(found.frames.tolist(), found.values.tolist(), strict=True):
            want = truth[found.video, frame]
            assert values == [want.get(tool, -1) for tool in TOOLS]


def test_unanswered_questions_stay_unknown(asked, tmp_path):
    path = tmp_path / "answers.csv"
    suggest.write_answers(path, asked)
    assert suggest.read_answers(path) == []
    rows = fill(path, lambda row: row.update(Hook="1") if row["video"] == "video02" and row["Hook"] == "?" else None)
    (found,) = suggest.read_answers(path)
    assert found.video == "video02" and set(found.values[:, 1].tolist()) == {1} and (found.values[:, 0] == -1).all()
    left = sum(row[tool] == "?" for row in rows if row["video"] == "video02" for tool in TOOLS)
    assert found.notices == ((f"video02: {left} question(s) still open",) if left else ())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("?", "maybe", 1), r"line 2: \w+ is 'maybe'"),
        (lambda text: text + text.splitlines()[-1] + "\n", "is also on line"),
        (lambda text: text.replace("video02,", "video02,x", 1), "is not a number"),
        (lambda text: text.replace("video,frame", "film,frame"), "columns are not video, frame"),
        (lambda text: text.rstrip("\n") + ",1\n", "does not have"),
        (lambda text: text.replace(",25,", ",1,", 1), r"line 3: fps is 25 here, but 1 in earlier rows"),
        (lambda text: text.replace(",25,", ",inf,", 1), "is missing or out of range"),
        (lambda text: text.replace("video02,", f"video02,{2**63}", 1), "is missing or out of range"),
        (lambda text: text + "x" * 200_000, "the file cannot be parsed"),
    ],
)
def test_damaged_answers_name_the_line(asked, tmp_path, change, message):
    path = tmp_path / "answers.csv"
    suggest.write_answers(path, asked)
    path.write_text(change(path.read_text().replace("\r\n", "\n")))
    with pytest.raises(FormatError, match=message):
        suggest.read_answers(path)


def test_answers_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(FormatError, match="cannot be read"):
        suggest.read_answers(tmp_path / "nowhere.csv")
    (tmp_path / "picture.csv").write_bytes(b"\xff\xd8")
    with pytest.raises(FormatError, match="cannot be read"):
        suggest.read_answers(tmp_path / "picture.csv")


def test_a_filled_in_file_is_not_overwritten(asked, tmp_path):
    suggest.write(tmp_path, asked)
    with pytest.raises(FileExistsError):
        suggest.write(tmp_path, asked)
    suggest.write(tmp_path, asked, force=True)


def test_phase_answers(tmp_path):
    p = np.full((30, 7), 1 / 7)
    pair = [track(p, kind="phases", names=CHOLEC80_PHASES)]
    suggest.write_answers(tmp_path / "a.csv", suggest.rank(pair, pair, count=1))
    fill(tmp_path / "a.csv", lambda row: row.update(Phase="calot triangle dissection"))
    (found,) = suggest.read_answers(tmp_path / "a.csv", phase_names=CHOLEC80_PHASES)
    assert found.track == "phases" and found.values.tolist() == [1]
    fill(tmp_path / "a.csv", lambda row: row.update(Phase="Suturing"))
    with pytest.raises(FormatError, match="line 2: unknown phase 'Suturing'"):
        suggest.read_answers(tmp_path / "a.csv", phase_names=CHOLEC80_PHASES)


def test_page_shows_pictures_where_there_are_some(asked, tmp_path):
    def picture(video, frame):
        return np.full((40, 60, 3), 90, np.uint8) if video == "video02" else None

    suggest.write_sheet(tmp_path / "index.html", asked, picture=picture)
    page = (tmp_path / "index.html").read_text()
    with_picture = sum(s.video == "video02" for s in asked)
    assert page.count("<img") == with_picture and page.count("class='none'") == len(asked) - with_picture
    assert page.count("<figure>") == len(asked) and "Hook?" in page and "0.90" in page
    assert "http" not in page  # nothing is fetched: it can be read anywhere


def test_page_without_pictures_has_no_empty_tiles(asked, tmp_path):
    suggest.write_sheet(tmp_path / "index.html", asked)
    page = (tmp_path / "index.html").read_text()
    assert "class='none'" not in page and "<img" not in page and page.count("<figure>") == len(asked)
    assert "There are no pictures" in page and "name='viewport'" in page


def test_page_escapes_names(tmp_path):
    stabilized = flat(10, 0.9, 0.1)
    pair = [track(stabilized, "<b>video", names=("<script>", "Hook"))]
    suggest.write_sheet(tmp_path / "index.html", suggest.rank(pair, pair, count=1))
    assert "<script>" not in (tmp_path / "index.html").read_text()


def test_answered_questions_are_labels_for_fit(tmp_path):
    """From predictions to questions, to answers, to a fit that uses them."""
    surgeries = simulate_surgeries(2, seed=3, minutes=4.0)
    names = dict(names=CHOLEC80_TOOLS)
    raw = [track(s.tool_probabilities.astype(float), f"video0{n + 1}", **names) for n, s in enumerate(surgeries)]
    smooth = [track(np.clip(r.values, 0.02, 0.98), r.video, **names) for r in raw]
    suggest.write(tmp_path, suggest.rank(raw, smooth, count=4))

    def answer(row):
        truth = surgeries[int(row["video"][-1]) - 1].tools[int(row["frame"]) // 25]
        row.update({tool: str(truth[k]) for k, tool in enumerate(CHOLEC80_TOOLS) if row[tool] == "?"})

    fill(tmp_path / "answers.csv", answer)
    answers = suggest.read_answers(tmp_path / "answers.csv")
    obs, labels, mask, _ = io.to_batch(io.join(raw), answers)
    told = np.asarray(labels.tools)
    assert 20 < (told >= 0).sum() < 200
    for n, s in enumerate(surgeries):
        known = told[n, : len(s)] >= 0
        assert (told[n, : len(s)][known] == s.tools[known]).all()
    start = hmmjax.init_params(0, 7, emissions="confusion")
    result = hmmjax.fit(start, obs.discretize(), mask, labels, max_iterations=2)
    assert np.isfinite(np.asarray(result.history)).all()


@pytest.fixture
def phase_questions():
    p = np.full((30, 7), 1 / 7)
    pair = [track(p, kind="phases", names=CHOLEC80_PHASES), track(flat(30, 0.5, 0.5))]
    return suggest.rank(pair, pair, count=1)


def test_answers_say_which_phases_there_are(phase_questions, tmp_path):
    path = tmp_path / "a.csv"
    suggest.write_answers(path, phase_questions)
    fill(path, lambda row: row.update(Phase="clipping cutting") if row["Phase"] == "?" else None)
    (found,) = suggest.read_answers(path)
    assert found.names == CHOLEC80_PHASES and found.values.tolist() == [2]
    (same,) = suggest.read_answers(path, phase_names="cholec80")
    assert same.values.tolist() == [2]
    old = [",".join(line.split(",")[:-1]) for line in path.read_text().splitlines()]
    path.write_text("\n".join(old) + "\n")  # as written before the names were there
    assert suggest.read_answers(path, phase_names=CHOLEC80_PHASES)[0].values.tolist() == [2]
    with pytest.raises(FormatError, match=r"line \d: the phase is 'clipping cutting'.* pass phase_names='cholec80'"):
        suggest.read_answers(path)


def test_columns_are_told_apart(asked, phase_questions, tmp_path):
    path = tmp_path / "a.csv"
    for name in ("video", "Why", "phase", "phases"):
        pair = [track(flat(10, 0.5, 0.5), names=(name, "Hook"))]
        with pytest.raises(FormatError, match=f"a tool has the name '{name}'"):
            suggest.write_answers(path, suggest.rank(pair, pair, count=1))
    suggest.write_answers(path, asked)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0] + ",hook", *(line + ",1" for line in lines[1:])]) + "\n")
    with pytest.raises(FormatError, match="line 1: the column Hook is repeated"):
        suggest.read_answers(path)


def test_answers_are_annotations_among_others(asked, tmp_path):
    """Answers for a video without labels and for one with some; contradictions are reported."""
    (tmp_path / "known").mkdir()
    label = tmp_path / "known" / "video02-tool.txt"
    label.write_text("Frame\tHook\tGrasper\n" + "".join(f"{25 * n}\t-1\t0\n" for n in range(100)))
    suggest.write_answers(tmp_path / "answers.csv", asked)
    fill(tmp_path / "answers.csv", lambda row: row.update(Hook="1"))
    found = io.read_annotations([tmp_path / "known", tmp_path / "answers.csv"], tool_names=TOOLS)
    tracks = [t.reorder(TOOLS) for t in found]
    assert [t.video for t in tracks] == ["video02", "video10"]
    assert (tracks[0].values[:, 0] == 0).all() and len(tracks[0].frames) == 100
    frames = [s.frame for s in asked if s.video == "video02"]
    np.testing.assert_array_equal(tracks[0].frames[tracks[0].values[:, 1] == 1], sorted(set(frames)))
    assert len(tracks[1].frames) == len({s.frame for s in asked if s.video == "video10"})
    label.write_text("Frame\tHook\tGrasper\n" + "".join(f"{25 * n}\t0\t0\n" for n in range(100)))
    with pytest.raises(FormatError, match=r"answers\.csv: tools of video02 in frame \d+ differ from .*video02-tool"):
        io.read_annotations([tmp_path / "known", tmp_path / "answers.csv"], tool_names=TOOLS)
    with pytest.raises(FormatError, match="answer sheet, not predictions"):
        io.read(tmp_path / "answers.csv")


def test_two_rounds_of_answers_add_up(asked, tmp_path):
    for name, tool in (("one.csv", "Hook"), ("two.csv", "Grasper")):
        suggest.write_answers(tmp_path / name, asked)
        fill(tmp_path / name, lambda row, tool=tool: row.update({tool: "1"}))
    for found in io.read_annotations([tmp_path / "one.csv", tmp_path / "two.csv"]):
        assert (found.values == 1).all()


def test_answers_without_any_answer_are_refused_alone(asked, tmp_path):
    suggest.write_answers(tmp_path / "answers.csv", asked)
    with pytest.raises(FormatError, match="no answers yet"):
        io.read_annotations(tmp_path / "answers.csv")


def pictures(folder, numbers, prefix=""):
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for n in numbers:
        Image.new("RGB", (8, 6), (n % 256, 0, 0)).save(folder / f"{prefix}{n:06d}.png")


def shown(found, frame, video="video01"):
    picture = found(video, frame)
    return None if picture is None else int(picture[0, 0, 0])


def test_pictures_are_found_by_what_their_numbers_count(tmp_path):
    pictures(tmp_path / "frame" / "video01", range(0, 250, 25))
    pictures(tmp_path / "second" / "video01", range(100))
    pictures(tmp_path / "counter" / "video01", range(1, 101))
    assert shown(suggest.find_pictures(tmp_path / "frame"), 50) == 50
    assert shown(suggest.find_pictures(tmp_path / "second", naming="second"), 50) == 2
    assert shown(suggest.find_pictures(tmp_path / "second", naming="second", fps={"video01": 10.0}), 50) == 5
    assert shown(suggest.find_pictures(tmp_path / "counter", naming="counter"), 50) == 3
    assert shown(suggest.find_pictures(tmp_path / "counter", naming="counter", rate=5.0), 50) == 11
    for folder in ("second", "counter"):  # picture 50 exists, and is another second's
        with pytest.raises(FormatError, match="give naming"):
            suggest.find_pictures(tmp_path / folder)
    with pytest.raises(FormatError, match="unknown naming rule"):
        suggest.find_pictures(tmp_path / "frame", naming="guess")


def test_folders_and_pictures_are_told_apart(tmp_path):
    pictures(tmp_path / "Video-01", [0, 25])
    pictures(tmp_path / "Video-01", [25], prefix="._")
    (tmp_path / "Video-01" / "000025_flip.png").write_bytes(b"mirrored")
    found = suggest.find_pictures(tmp_path)
    assert shown(found, 25) == 25 and shown(found, 50) is None
    assert found.missing([("video01", 25), ("video01", 50), ("video02", 0), ("video01", 50)]) == [
        ("video01", 50),
        ("video02", 0),
    ]
    pictures(tmp_path / "Video-01", [25], prefix="b")
    with pytest.raises(FormatError, match="the same frame as"):
        suggest.find_pictures(tmp_path)
    (tmp_path / "Video-01" / "b000025.png").unlink()
    pictures(tmp_path / "video01", [0])
    with pytest.raises(FormatError, match="the same video as"):
        suggest.find_pictures(tmp_path)
    with pytest.raises(FormatError, match="no such folder"):
        suggest.find_pictures(tmp_path / "absent")


def test_a_damaged_picture_is_named_and_leaves_no_file_to_fill_in(asked, tmp_path):
    for video in ("video02", "video10"):
        pictures(tmp_path / "frames" / video, range(0, 2500, 25))
        for path in (tmp_path / "frames" / video).iterdir():
            path.write_bytes(path.read_bytes()[:40])
    found = suggest.find_pictures(tmp_path / "frames")
    with pytest.raises(FormatError, match=r"frames/video\d+/\d+\.png: the picture cannot be read"):
        suggest.write(tmp_path / "out", asked, picture=found)
    suggest.write(tmp_path / "out", asked)  # nothing in the way


def test_the_page_explains_what_it_asks(asked, phase_questions, tmp_path):
    suggest.write_sheet(tmp_path / "tools.html", asked)
    suggest.write_sheet(tmp_path / "both.html", phase_questions)
    tools, both = ((tmp_path / name).read_text() for name in ("tools.html", "both.html"))
    assert "a ? for each question" in tools and "Tools: Grasper, Hook." in tools and "column Phase" not in tools
    assert "In the column Phase, write the name" in both and ", ".join(CHOLEC80_PHASES) in both

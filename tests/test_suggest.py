"""`hmmjax.suggest`: the ranking of frames, the page of questions, and answers read back as partial labels."""

import csv
import dataclasses

import numpy as np
import pytest

import hmmjax
from hmmjax import io, suggest
from hmmjax.io import CHOLEC80_PHASES, CHOLEC80_TOOLS, FormatError, Layout, Track
from hmmjax.simulate import simulate_surgeries

TOOLS = ("Grasper", "Hook")


def track(values, video="video01", kind="tools", names=TOOLS, step=25):
    values = np.asarray(values)
    layout = Layout(format="npz", kind="labels" if values.dtype.kind == "i" else "probabilities")
    return Track(video, kind, step * np.arange(len(values)), values, tuple(names), 25.0, layout, f"{video}.npz")


def flat(count, *levels):
    return np.tile(np.array(levels, float), (count, 1))


def picked(suggestions, reason, name):
    return [(s.video, s.frame // 25) for s in suggestions if (s.reason, s.name) == (reason, name)]


def test_disagreements_are_the_largest_ones():
    raw, stabilized = flat(100, 0.1, 0.1), flat(100, 0.1, 0.1)
    raw[[20, 50, 80], 0] = 0.95, 0.6, 0.8
    raw[30, 1] = 0.45  # a large step that changes no decision is no disagreement
    found = suggest.rank([track(raw)], [track(stabilized)], reasons=["disagreement"])
    assert picked(found, "disagreement", "Grasper") == [("video01", 20), ("video01", 80), ("video01", 50)]
    assert picked(found, "disagreement", "Hook") == []
    assert found[0].raw == 0.95 and found[0].stabilized == pytest.approx(0.1) and found[0].second == 20


def test_uncertain_frames_are_those_near_one_half():
    stabilized = flat(100, 0.01, 0.99)
    stabilized[[10, 40], 1] = 0.52, 0.7
    found = suggest.rank([track(stabilized)], [track(stabilized)], reasons=["uncertain"], count=2)
    assert picked(found, "uncertain", "Hook") == [("video01", 10), ("video01", 40)]
    assert found[-1].score < np.log(2) + 1e-9


def test_neighbors_in_time_are_asked_once():
    stabilized = flat(100, 0.0, 0.0)
    stabilized[40:60, 0] = 0.9 + 0.001 * np.arange(20)
    found = suggest.rank([track(stabilized)], [track(stabilized)], reasons=["positive"], apart=8.0, count=10)
    seconds = sorted(second for _, second in picked(found, "positive", "Grasper"))
    assert seconds == [43, 51, 59]
    two = [track(stabilized), track(stabilized, "video02")]
    assert len(picked(suggest.rank(two, two, reasons=["positive"], apart=8.0), "positive", "Grasper")) == 6


def test_a_frame_is_not_asked_twice_for_two_reasons():
    raw, stabilized = flat(60, 0.1, 0.1), flat(60, 0.1, 0.1)
    raw[30, 0], stabilized[30, 0] = 0.2, 0.55
    found = suggest.rank([track(raw)], [track(stabilized)], count=1, apart=5.0)
    assert [s.reason for s in found if s.name == "Grasper" and s.frame == 750] == ["positive"]


def test_rare_positives_get_more_of_the_questions():
    stabilized = flat(4000, 0.9, 0.9)
    known = np.full((4000, 2), -1)
    known[:400, 0], known[:2, 1] = 1, 1
    found = suggest.rank([track(stabilized)], [track(stabilized)], [track(known)], reasons=["positive"], count=20)
    grasper, hook = (len(picked(found, "positive", name)) for name in TOOLS)
    assert grasper + hook == 40 and hook > 3 * grasper > 0


def test_what_is_known_is_not_asked():
    stabilized = flat(50, 0.9, 0.9)
    known = np.full((50, 2), -1)
    known[:, 0] = 0
    found = suggest.rank([track(stabilized)], [track(stabilized)], [track(known)], apart=1.0)
    assert {s.name for s in found} == {"Hook"}


def test_known_labels_and_predictions_match_by_name():
    stabilized = flat(50, 0.9, 0.1)
    known = np.full((50, 2), -1)
    known[:, 1] = 1  # Grasper, in the file's own order
    found = suggest.rank(
        [track(stabilized)], [track(stabilized)], [track(known, names=("Hook", "Grasper"))], reasons=["positive"]
    )
    assert found == []


def test_phases_are_asked_where_raw_and_stabilized_differ():
    raw = np.tile(np.eye(7)[2] * 0.94 + 0.01 * (1 - np.eye(7)[2]), (40, 1))
    stabilized = raw.copy()
    stabilized[15] = np.eye(7)[3] * 0.94 + 0.01 * (1 - np.eye(7)[3])
    tracks = [track(x, kind="phases", names=CHOLEC80_PHASES) for x in (raw, stabilized)]
    found = suggest.rank(tracks[:1], tracks[1:], reasons=["disagreement"])
    assert [(s.frame // 25, s.name, s.track) for s in found] == [(15, "GallbladderDissection", "phases")]
    labels = track(raw.argmax(-1).astype(np.int32), kind="phases", names=CHOLEC80_PHASES)
    (again,) = suggest.rank([labels], tracks[1:], reasons=["disagreement"])
    assert np.isnan(again.raw)


def test_unusable_input_is_named():
    good = track(flat(10, 0.1, 0.1))
    with pytest.raises(FormatError, match="unknown reason"):
        suggest.rank([good], [good], reasons=["boredom"])
    with pytest.raises(FormatError, match="only one of raw and stabilized"):
        suggest.rank([good], [track(flat(10, 0.1, 0.1), "video02")])
    with pytest.raises(FormatError, match="frames of video01"):
        suggest.rank([good], [track(flat(10, 0.1, 0.1), step=1)])
    with pytest.raises(FormatError, match="holds labels"):
        suggest.rank([good], [track(np.zeros((10, 2), np.int32))])


# The file to fill in


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


# The page


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


# The whole round


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


# What is known already, from several files and at several rates


def test_labels_of_one_video_from_several_tracks_add_up():
    stabilized = flat(50, 0.9, 0.9)
    everything, answer = np.ones((50, 2), np.int32), np.full((50, 2), -1, np.int32)
    answer[7] = 1
    pair = [track(stabilized)]
    for known in ([everything, answer], [answer, everything]):
        assert suggest.rank(pair, pair, [track(x) for x in known]) == []
    with pytest.raises(FormatError, match="tools of video01 in frame 175 differ from"):
        suggest.rank(pair, pair, [track(everything), track(1 - answer * (answer > 0))])


def test_labels_at_another_rate_are_known_too():
    """Labels that count seconds, and predictions that count frames."""
    stabilized = flat(50, 0.9, 0.9)
    seconds = dataclasses.replace(track(np.ones((50, 2), np.int32), step=1), fps=1.0)
    assert suggest.rank([track(stabilized)], [track(stabilized)], [seconds]) == []
    with pytest.raises(FormatError, match="has 30 frames per second here, but 25 in"):
        suggest.rank([track(stabilized)], [dataclasses.replace(track(stabilized), fps=30.0)])


def test_who_is_sure_is_not_uncertain():
    stabilized = flat(200, 0.001, 0.97)
    stabilized[50, 0] = 0.4
    pair = [track(stabilized)]
    assert [(s.frame, s.name) for s in suggest.rank(pair, pair, reasons=["uncertain"])] == [(1250, "Grasper")]
    p = np.full((30, 7), 0.01)
    p[:, 2] = 0.94
    p[9] = [0.3, 0.3, 0.4, 0, 0, 0, 0]
    pair = [track(p, kind="phases", names=CHOLEC80_PHASES)]
    assert [s.frame for s in suggest.rank(pair, pair, reasons=["uncertain"])] == [225]


# Answers next to annotations


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


# Pictures in folders


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

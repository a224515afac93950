"""Behavior of all commands: bad input, help, dry runs, start-up, and results that are not overwritten."""

import ast
import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import NAMES, PHASES, read_both, run
from typer.testing import CliRunner

import hmmjax
from hmmjax import io
from hmmjax import stabilize as job
from hmmjax.cli import app
from hmmjax.cli.console import Stages, as_options

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there are no predictions"),
        (("nowhere.txt",), "nowhere.txt: the file or folder does not exist"),
        (("said", "--emissions", "gauss"), "choose among confusion, autoregressive"),
        (("said", "--folds", "1", "--annotations", "truth", *NAMES), "at least 2 parts, or --leave-one-out"),
        (("said", "--annotations", "truth"), "unknown tool 'Fork'"),
        (("said/video01-phase.txt", "--annotations", "truth", "--tool-names", "Knife,Fork"), "unknown phase 'Alpha'"),
        (("said", "--kind", "logits", *NAMES), "holds labels, not logits"),
        (("said", "--videos", "7-9", *NAMES), "no video matches '7-9'"),
        (("said", "--rename", "video01", *NAMES), "old=new"),
        (("said", "--transition-videos", "1", *NAMES), "--transitions-from, which is missing"),
        (("said", "--model", "labels.npz", *NAMES), "not an hmmjax model"),
        (("said", "--model", "labels.npz", "--durations", *NAMES), "so --durations cannot apply"),
        (("said", "--unseen-phase-change", "-1", *NAMES), "is not a pseudo-count"),
        (("said", "--threshold", "2", *NAMES), "--threshold 2 is not a probability"),
        (("said", "--annotations", "truth", "--rename", "1=99", "--videos", "99", *NAMES), "no video is in both"),
    ],
)
def test_bad_input_is_one_message_and_code_2(world, tmp_path, arguments, message):
    paths = [world / a if a in ("said", "truth", "labels.npz") or a.startswith("said/") else a for a in arguments]
    result = run("stabilize", *paths, "--out", tmp_path / "o", code=2)
    assert "Traceback" not in result.stderr and result.stdout == ""
    assert re.search(message, result.stderr), result.stderr
    assert result.stderr.startswith("error:") and not (tmp_path / "o").exists()


def test_traceback_on_demand(tmp_path):
    with pytest.raises(io.FormatError):
        CliRunner().invoke(
            app, ["stabilize", "nowhere.txt", "--out", str(tmp_path / "o"), "--traceback"], catch_exceptions=False
        )


def test_a_model_of_another_rate_is_refused(world, both, tmp_path):
    """The model has one prediction per second; the frame numbers of the file mean 25 per second."""
    (tmp_path / "video01.txt").write_text("0\t0\n1\t0\n2\t1\n")
    result = run(
        *("stabilize", tmp_path / "video01.txt", "--model", both[0] / "model.npz", *NAMES, "--out", tmp_path / "o"),
        code=2,
    )
    assert "25 predictions per second" in result.stderr and "1 per second" in result.stderr and "fps" in result.stderr


def test_results_are_not_overwritten(world, tmp_path):
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "notes.txt").write_text("mine")
    arguments = ("stabilize", world / "said", "--annotations", world / "truth", *NAMES, "--out", tmp_path / "o")
    assert "--force" in run(*arguments, "--no-pictures", code=2).stderr
    run(*arguments, "--no-pictures", "--force")
    run(*arguments, "--no-pictures", "--force")
    assert (tmp_path / "o" / "notes.txt").read_text() == "mine"
    assert not [p for p in (tmp_path / "o").rglob(".*")]


def test_help_version_and_module():
    assert (
        "--transitions-from"
        in CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["stabilize", "--help"]).stdout
    )
    assert run("--version").stdout.strip() == hmmjax.__version__
    found = subprocess.run([sys.executable, "-m", "hmmjax", "--version"], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == hmmjax.__version__


# --- real files --------------------------------------------------------------------------------------------------


def test_results_read_back_are_what_was_written(world, both):
    predictions, annotations = read_both(world)
    want, found = job.stabilize(predictions, annotations), job.read_results(both[0])
    assert found.ids == want.ids and found.protocol == want.protocol and found.notices == want.notices
    assert found.folds == want.folds and found.step_seconds == want.step_seconds
    for name in ("raw", "smoothed", "filtered"):
        for track in ("phases", "tools", *(() if name == "raw" else ("tool_log_odds", "phase_log_probs"))):
            for a, b in zip(getattr(getattr(found, name), track), getattr(getattr(want, name), track), strict=True):
                np.testing.assert_array_equal(a, b)
    for a, b in zip(found.truth_tools + found.truth_phases, want.truth_tools + want.truth_phases, strict=True):
        np.testing.assert_array_equal(a, b)
    assert job.as_json(found.table, ()) == job.as_json(want.table, ())


def test_folders_that_hold_no_results(tmp_path, both):
    with pytest.raises(io.FormatError, match=r"no stabilized\.npz"):
        job.read_results(tmp_path)
    np.savez(tmp_path / "stabilized.npz", phases_01=np.zeros((3, 2)))
    with pytest.raises(io.FormatError, match="stabilize again"):
        job.read_results(tmp_path)


@pytest.mark.thorough
def test_changes_are_compared_with_the_truth_although_a_frame_has_none(world):
    predictions, annotations = read_both(world)
    whole = {row.figure: row for row in job.stabilize(predictions, annotations).table}
    short = [dataclasses.replace(t, values=t.values[:-1], frames=t.frames[:-1]) for t in annotations]
    table = {row.figure: row for row in job.stabilize(predictions, short).table}
    for figure in ("phase changes", "tool on/off changes"):
        assert table[figure].truth is not None and 0 <= whole[figure].truth - table[figure].truth <= 2 * 5
        assert "both labeled" in table[figure].conventions[0] and "5 videos" in table[figure].conventions[0]


def test_mismatched_names_cause_a_warning(tmp_path):
    for folder in ("said", "truth"):
        (tmp_path / folder).mkdir()
    for v in (1, 2):
        labels = np.repeat([0, 1, 2], 20)
        text = "".join(f"{25 * i}\t{p}\n" for i, p in enumerate(labels))
        (tmp_path / "truth" / f"video{v:02d}-phase.txt").write_text(text)
        text = "".join(f"{25 * i}\t{p}\n" for i, p in enumerate(np.array([0, 2, 1])[labels]))
        (tmp_path / "said" / f"video{v:02d}-phase.txt").write_text(text)
    options = ("evaluate", tmp_path / "said", "--truth", tmp_path / "truth", "--phase-names")
    told = run(*options, "a,b,c").stderr
    assert "33% of frames, but in 100% with b and c exchanged" in told.replace("\n", " ")
    told = run(*options, "a,b,c,d").stderr
    assert "4 phase names are given (a, b, c, d), but no file has an index above 2" in told.replace("\n", " ")


@pytest.mark.thorough
def test_annotated_tracks_without_predictions_do_not_disturb_em(world):
    predictions, annotations = read_both(world)
    short = [dataclasses.replace(t, values=t.values[:-1], frames=t.frames[:-1]) for t in annotations]
    result = job.stabilize([t for t in predictions if t.track == "phases"], short, max_iterations=1)
    assert result.smoothed.tools is None and "EM" in result.model.metadata["method"]


# --- consistency of the commands ---------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [c.name or c.callback.__name__ for c in app.registered_commands])
def test_every_command_has_examples_and_the_common_options(command):
    text = " ".join(run(command, "--help").stdout.split())
    assert "Examples:" in text and f"$ hmmjax {command}" in text
    for option in ("--json", "--force", "--traceback"):
        assert option in text, option


def test_a_dry_run_reads_and_writes_nothing(world, tmp_path):
    options = (*NAMES, "--annotations", world / "truth", "--out", tmp_path / "o", "--dry-run")
    text = run("stabilize", world / "said", *options).stdout
    assert "5 videos" in text and "5 annotated videos" in text and not (tmp_path / "o").exists()
    plan = json.loads(run("stabilize", world / "said", *options, "--json").stdout)
    assert plan["annotated"] == [f"video{v:02d}" for v in range(1, 6)] and plan["tracks"] == ["phases", "tools"]
    assert "5 annotated videos, held out one at a time; 6 models to learn. Emissions: auto, chosen on inner" in text
    assert plan["chosen"] and not plan["calibrated"]
    named = run("stabilize", world / "said", *options, "--emissions", "confusion").stdout
    assert "Emissions: confusion, counted in" in named
    assert "not calibrated (each model learns from 4 annotated video(s); 8 are needed)" in named
    always = run("stabilize", world / "said", *options, "--calibrate").stdout
    assert "counted in labeled frames, calibrated." in always
    assert "by EM" in run("stabilize", world / "said", *options, "--iterations", 3).stdout
    run("stabilize", world / "said", "--out", tmp_path / "o", "--phase-names", "x", "--dry-run", code=2)
    # What would stop the run stops the rehearsal.
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    assert "not empty" in run("stabilize", world / "said", *options, "--out", tmp_path / "taken", code=2).stderr
    alone = world / "truth" / "video01-phase.txt"
    for bad in (["--folds", 1], ["--emissions", "scaled"], ["--transitions-from", alone]):
        run("stabilize", world / "said", *options, *bad, code=2)


def test_messages_name_options_and_not_arguments():
    from hmmjax.cli.console import as_options

    assert as_options("say kind='logits', or strict=False (--lenient)") == "say --kind logits, or --lenient"
    assert as_options("rename={'a 1': 'b'}; folds=1, step=25") == "--rename a 1=b; --folds 1, --row-step 25"
    assert as_options("folds=1: or folds=None (--leave-one-out)") == "--folds 1: or --leave-one-out"


def test_a_killed_run_is_followed_by_another(world, both, tmp_path):
    from hmmjax.io.folder import MARKER

    out = tmp_path / "o"
    (out / "phases").mkdir(parents=True)
    (out / MARKER).touch()
    (out / "phases" / "video01-phase.txt").write_text("half")
    run("stabilize", world / "said", "--annotations", world / "truth", *NAMES, "--out", out, "--no-pictures")
    assert not (out / MARKER).exists() and (out / "phases" / "video01-phase.txt").read_text() != "half"


@pytest.mark.thorough
def test_report_and_explore_from_the_command_line(world, both, tmp_path):
    options = ("--no-intervals", "--no-pictures", "--out", tmp_path / "page")
    assert json.loads(run("report", both[0], *options, "--dry-run", "--json").stdout)["exists"] is False
    found = json.loads(run("report", both[0], *options, "--json").stdout)
    assert found["page"] == str(tmp_path / "page" / "report.html") and (tmp_path / "page" / "report.html").is_file()
    assert "--force" in run("report", both[0], *options, code=2).stderr
    assert "no stabilized.npz" in run("report", world, *options, "--force", code=2).stderr.replace("\n", " ")
    explored = json.loads(run("explore", world / "truth", *NAMES, "--out", tmp_path / "e", "--json").stdout)
    assert explored["phases"].keys() == set(PHASES) and (tmp_path / "e" / "explore.html").is_file()
    assert "--force" in run("explore", world / "truth", *NAMES, "--out", tmp_path / "e", code=2).stderr


@pytest.mark.thorough
def test_bench_reports_times(tmp_path):
    options = ("--videos", 1, "--minutes", 0.5, "--repeats", 1, "--iterations", 1, "--json")
    found = json.loads(run("bench", *options, "--out", tmp_path / "b.json").stdout)
    assert json.loads((tmp_path / "b.json").read_text()) == found
    assert all(row["frames_per_second"] > 0 for row in found["timings"]) and found["device"]
    assert json.loads(run("bench", *options, "--dry-run").stdout)["videos"] == 1


@pytest.mark.parametrize("arguments", ["--help", "--version", "stabilize --help", "report --help", "data check --help"])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys; old = set(sys.modules); from hmmjax.cli import app\n"
        f"try: app({arguments.split()})\n"
        "except SystemExit: pass\n"
        "print(*set(sys.modules) - old, file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = found.stderr.split()
    assert not {"jax", "numpy", "scipy", "sklearn", "matplotlib", "jinja2", "pandas"} & set(loaded)
    ours = sorted(name for name in loaded if name.startswith("hmmjax"))
    assert found.stdout and "hmmjax.cli.options" in ours and all(name.startswith("hmmjax.cli") for name in ours[1:])
    assert len(ours) < 20 and len(loaded) < 600


def test_defaults_are_those_of_the_library():
    """Options repeat them, because the library would import JAX."""
    from hmmjax import emissions, simulate, suggest
    from hmmjax.cli import options, reading
    from hmmjax.cli.simulate import MEAN_MINUTES
    from hmmjax.cli.suggest import REASONS

    assert tuple(emissions.FAMILIES) == options.EMISSIONS and REASONS == suggest.REASONS
    assert MEAN_MINUTES == simulate.MEAN_MINUTES
    settings, defaults, learning = job.Settings(), options.Modeling(), options.Learning()
    assert reading.learning_settings(learning) == settings and learning.folds == settings.folds
    pairs = (("emissions", "emissions"), ("iterations", "max_iterations"), ("calibrate", "calibrated"),
             ("durations", "stages"), ("threshold", "threshold"))  # fmt: skip
    assert all(getattr(defaults, option) == getattr(settings, setting) for option, setting in pairs)


def test_shell_completion_is_there():
    assert "--install-completion" in run("--help").stdout


def test_a_closed_pipe_is_not_an_error(monkeypatch, capsys):
    """If the reader closes the pipe, as `head` does, click exits quietly, provided that it sees the error."""
    from hmmjax.cli.console import friendly

    class Pipe:
        def flush(self):
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("sys.stdout", Pipe())
    with pytest.raises(BrokenPipeError):
        friendly(lambda: None)()
    assert capsys.readouterr().err == ""


#: Modules whose functions the command line does not call, or not with these arguments.
_OTHERS = ("stabilize/arrays.py", "report/minutes.py", "simulate/surgeries.py")
#: The way to convert a file that is not read is Python.
_PYTHON = re.compile(r"np\.savez\([^)]*\)")


def messages():
    """Return the texts of all modules that commands run, by place; what is inserted into them reads 1."""
    for folder in ("io", "stabilize", "explore", "suggest", "data", "cli"):
        for path in sorted((ROOT / "hmmjax" / folder).rglob("*.py")):
            if path.as_posix().endswith(_OTHERS):
                continue
            for call in ast.walk(ast.parse(path.read_text())):
                if not isinstance(call, ast.Call):
                    continue
                for value in (*call.args, *(k.value for k in call.keywords)):
                    if text := _text_of(value):
                        yield f"{path.relative_to(ROOT)}:{value.lineno}", text


def _text_of(node):
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else "1"
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "1" for v in node.values)
    return ""


def test_messages_name_options_rather_than_arguments():
    """Every text with an argument in Python's syntax is translated in one place, `console.as_options`."""
    python = re.compile(r"\b(\w+)=(?='|\d|True|False|None|\[|\{|\)|, )")
    known = {"1", "tool_video_11", "old", "charset", "name", "alt", "src", "width", "class"}  # of --rename, and HTML
    found, translated = [], 0
    for place, text in messages():
        if " " not in text or text.startswith(("<", "hmmjax ")) or "re.compile" in text:
            continue
        after = _PYTHON.sub("", as_options(text))
        translated += bool(python.search(text)) and not python.search(after)
        found += [f"{place}: {after}" for match in python.finditer(after) if match[1] not in known]
    assert not found and translated > 25, "\n".join(found)


@pytest.mark.parametrize(
    ("python", "option"),
    [
        ("if these are logits, pass kind='logits'", "if these are logits, pass --kind logits"),
        ("pass kind='probabilities' or kind='logits'", "pass --kind probabilities or --kind logits"),
        ("or overwrite it (force=True, --force)", "or overwrite it (--force)"),
        ("drop its frame with strict=False (--lenient)", "drop its frame with --lenient"),
        ("learn_from or apply_to (--learn-from, --apply-to) say", "--learn-from or --apply-to say"),
        ("leave out learn_from (--learn-from)", "leave out --learn-from"),
        ("choose others (learn_from, --learn-from)", "choose others (--learn-from)"),
        ("or allow them (training_videos=True, --training-videos)", "or allow them (--training-videos)"),
        ("pass first_index=1, or first_index=0", "pass --first-index 1, or --first-index 0"),
        ("rename={'tool11': 'video61'}", "--rename tool11=video61"),
        ("pass a larger step (step=)", "pass a larger step (--time-step of stabilize and compare, --step of explore)"),
        ("give the filter its own (online_model, --online-model model_online.npz)",
         "give the filter its own (--online-model model_online.npz)"),
        ("pass tool_names if they are tools, or phase_names", "pass --tool-names if they are tools, or --phase-names"),
    ],
)  # fmt: skip
def test_arguments_become_options(python, option):
    assert as_options(python) == option


def test_logs_have_a_line_of_progress_now_and_then(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("hmmjax.cli.console.time.monotonic", lambda: now[0])
    with Stages() as stages:
        for i, _ in enumerate(stages.files("reading [predictions]")(["a.csv"] * 30), 1):
            now[0] = 1.7 * i
        stages("learning", 4, 0)
        now[0] = 90.0
        stages("learning", 5, 0)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["reading [predictions]: 12 of 30", "reading [predictions]: 24 of 30", "learning: 5"]


@pytest.mark.parametrize("option", [("--emissions", "confusion"), ("--learn", "refine"), ("--calibrate",)])
def test_a_metric_that_nothing_compares_by_is_refused(option, tmp_path):
    result = run("stabilize", tmp_path, "--metric", "accuracy", *option, "--out", tmp_path / "o", code=2)
    assert "(--metric) is what" in (text := " ".join(result.stderr.split())) and "Leave out one or the other" in text

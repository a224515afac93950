"""Cholec80 from its folder to a table: ``python -m models.experiment cholec80 data=FOLDER out=FOLDER key=value ...``.

The stages are commands that can also be run one by one; ``--show`` prints them. A stage whose output is there is
skipped, so that the same command continues after an interruption; other settings need another folder. The hidden Markov
model learns the network's errors from the validation videos only, and its dynamics from the labels of training and
validation videos; test videos are scored once.
"""

import argparse
import dataclasses
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hmmjax.data.splits import CHOLEC80_SPLITS, cholec80_split
from models.commands import reported
from models.settings import parse_yaml, read_config
from models.training.checkpoint import any_checkpoint

STAGES = ("check", "cache", "train", "predict", "stabilize", "report")
#: Settings of the plan itself; all others are settings of the training run.
_OWN = {"data": "", "out": "runs/cholec80", "split": "32/8/40", "height": 256, "width": 456, "crop": True, "on_top": ""}
_CONSOLE = "from hmmjax.cli import main; main()"


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of the plan.

    Attributes:
        stage: one of `STAGES`.
        program: a module that Python runs, or "hmmjax".
        words: its arguments.
        result: the file that tells that the command has finished; None runs it every time.
        begun_with: the words by which training was begun, if this command continues it.
    """

    stage: str
    program: str
    words: tuple[str, ...]
    result: Path | None = None
    begun_with: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The stage and, where it has several commands, what this one writes."""
        return f"{self.stage} {(self.result or Path(self.asked[0])).name}"

    @property
    def asked(self) -> tuple[str, ...]:
        """The words that decide what is written."""
        return self.words if self.begun_with is None else self.begun_with

    @property
    def is_begun(self) -> bool:
        """Whether some of its output is there."""
        return self.begun_with is not None or (self.result is not None and self.result.exists())

    @property
    def text(self) -> str:
        """The command as it is typed."""
        start = "hmmjax" if self.program == "hmmjax" else f"python -m {self.program}"
        return f"{start} {shlex.join(self.words)}"

    def run(self) -> int:
        """Run the command and return its exit code."""
        start = ["-c", _CONSOLE] if self.program == "hmmjax" else ["-m", self.program]
        return subprocess.run([sys.executable, *start, *self.words], check=False).returncode


def plan(words: Sequence[str]) -> list[Command]:
    """Return the commands of a plan, in order.

    Args:
        words: ``key=value``: `data`, Cholec80's folder; `out`, the output folder; `split`, its parts; `height`, `width`
            and `crop` of the cache; `on_top`, a temporal system that is trained on the frozen network, and
            ``on_top.key=value``, settings of its training; and settings of the training run.

    Raises:
        ValueError: for words that are not settings, without `data`, and for settings of `on_top` without a system.
    """
    given = dict(_OWN)
    training: list[str] = []
    temporal: list[str] = []
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is not a setting: write key=value")
        if key in _OWN:
            given[key] = parse_yaml(text, word)
        elif key.startswith("on_top."):
            temporal.append(word.removeprefix("on_top."))
        else:
            training.append(word)
    if not given["data"]:
        raise ValueError("data is not set. Fix: give data=FOLDER, the folder with videos/ and phase_annotations/")
    parts = cholec80_split(str(given["split"]))
    if "val" not in parts:
        raise ValueError(f"split={given['split']} has no validation videos. Fix: choose 32/8/40 or 40/8/32")
    for word in (*training, *temporal):
        key, _, text = word.partition("=")
        if key == "pretrained" and not Path(text).exists():
            raise ValueError(f"{word}: no such file. Fix: name the file of weights, or leave pretrained out")
    data, out = Path(given["data"]), Path(given["out"])
    cache, run = out / "cache", out / "frames"
    common = [f"data.train={cache}", f"data.val={cache}", *training]
    read_config(None, [f"run={run}", *common])
    size = (str(given["height"]), str(given["width"]))
    commands = [
        Command("check", "hmmjax", ("data", "check", "cholec80", str(data))),
        Command(
            "cache",
            "models.data.cache",
            (f"cholec80:{data}", str(cache), "--size", *size, "--split", str(given["split"]))
            + (("--crop",) if given["crop"] else ()),
            cache / "table.npz",
        ),
        _train(run, common),
    ]
    if temporal and not given["on_top"]:
        raise ValueError(
            f"on_top.{temporal[0]} is for a temporal system, and on_top is not set. Fix: give on_top=SYSTEM"
        )
    if given["on_top"]:
        top = out / "temporal"
        own = [f"system={given['on_top']}", f"frozen={run}", "batch=4", *common[:2], *temporal]
        read_config(None, [f"run={top}", *own])
        commands.append(_train(top, own))
        run = top
    predictions = {part: out / f"predictions_{part}.npz" for part in ("val", "test")}
    commands += [
        Command("predict", "models.predict", (str(run), str(cache), "--part", part, "--out", str(path)), path)
        for part, path in predictions.items()
    ]
    known = ("--annotations", str(data / "phase_annotations"), "--annotations", str(data / "tool_annotations"))
    dynamics = (
        *("--transitions-from", str(data / "phase_annotations"), "--transitions-from", str(data / "tool_annotations")),
        *("--transition-videos", _numbers((*parts["train"], *parts["val"]))),
    )
    results = out / "results"
    return [
        *commands,
        Command(
            "stabilize",
            "hmmjax",
            (
                *("stabilize", *map(str, predictions.values()), "--learn-from", "val", "--apply-to", "test"),
                *(*known, *dynamics, "--out", str(results)),
            ),
            results / "table.csv",
        ),
        Command("report", "hmmjax", ("report", str(results)), results / "report" / "report.html"),
    ]


def output_of(words: Sequence[str]) -> Path:
    """Return the output folder of a plan's settings."""
    return Path(next((word[4:] for word in reversed(words) if word.startswith("out=")), str(_OWN["out"])))


def keep_words(out: Path, command: Command) -> None:
    """Write into the output folder which words a command is run with."""
    told = _told(out) | {command.name: list(command.asked)}
    out.mkdir(parents=True, exist_ok=True)
    (out / "plan.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def check_words(out: Path, commands: Sequence[Command]) -> None:
    """Compare commands whose output is there, or has been begun, with the words that they were run with.

    Raises:
        ValueError: the folder holds results of other settings.
    """
    told = _told(out)
    for command in commands:
        before = told.get(command.name, list(command.asked))
        if not command.is_begun or before == list(command.asked):
            continue
        words, asked = (shlex.join([x for x in y if x not in z]) or "defaults" for y, z in (
            (before, command.asked), (command.asked, before),
        ))  # fmt: skip
        raise ValueError(
            f"{out} holds results of other settings: {command.name} ran with {words}, not {asked}. "
            "Fix: give another out=FOLDER, or the same settings"
        )


def _told(out: Path) -> dict[str, list[str]]:
    file = out / "plan.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _numbers(videos: Sequence[str]) -> str:
    """Return the numbers of successive videos as a range, such as "1-40"."""
    first, last = (int(video.removeprefix("video")) for video in (videos[0], videos[-1]))
    return f"{first}-{last}"


def _train(run: Path, settings: Sequence[str]) -> Command:
    """Return the command that trains a run, or continues one that was interrupted."""
    if any_checkpoint(run / "checkpoints"):
        return Command("train", "models.train", ("--resume", str(run)), begun_with=(f"run={run}", *settings))
    return Command("train", "models.train", (f"run={run}", *settings))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a stage that fails ends the plan with its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m models.experiment cholec80", description=(__doc__ or "").partition(":")[0]
    )
    parser.add_argument(
        "settings",
        nargs="+",
        metavar="key=value",
        help=f"data=FOLDER, {', '.join(key for key in _OWN if key != 'data')} (split: {', '.join(CHOLEC80_SPLITS)}), "
        "and settings of models.train",
    )
    parser.add_argument("--stage", choices=STAGES, nargs="+", default=STAGES, help="run only these (all)")
    parser.add_argument("--show", action="store_true", help="print the commands, and run nothing")
    options = parser.parse_intermixed_args(arguments)
    with reported("stopped; the same command continues"):
        everything = plan(options.settings)
        out = output_of(options.settings)
        if not options.show:
            check_words(out, everything)
        for command in everything:
            if command.stage not in options.stage:
                continue
            done = command.result is not None and command.result.exists()
            print(f"[{command.stage}] {command.text}{'  (done)' if done else ''}", flush=True)
            if done or options.show:
                continue
            keep_words(out, command)
            # Differences from the published numbers are printed, and do not end the plan: copies are reencoded.
            if (code := command.run()) and command.stage != "check":
                sys.exit(code)

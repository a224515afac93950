"""What an experiment consists of, read from one YAML file."""

import dataclasses
from pathlib import Path
from typing import Any

import yaml

from models.systems import SYSTEMS

SCENARIOS = ("S_C", "S_D", "S_C+D")
EMISSIONS = ("confusion", "probability")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One system in one scenario with one seed.

    Attributes:
        name: of the system in the table, such as "ToolNet_L".
        scenario: a name of `SCENARIOS`.
        seed: of everything.
        folder: where it is kept.
        settings: ``key=value`` words of its training run.
        on: the name of the system whose backbone is frozen, or None.
        hmm: the name of the system through whose hidden Markov model it learns, or None.
    """

    name: str
    scenario: str
    seed: int
    folder: Path
    settings: tuple[str, ...]
    on: str | None
    hmm: str | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """An experiment.

    Attributes:
        out: the folder that keeps everything.
        seeds: of the repetitions.
        data: ``{simsurg: {whole: 8, single: 8, val: 4, test: 12}, minutes: 10, size: [64, 64]}``, videos that each
            seed draws anew, or ``{cache: FOLDER}``, a cache whose parts are called whole, single, val and test, or
            whose videos ``parts: {whole: [video67], ...}`` divides.
        scenarios: by name, the options of `models.experiment.videos.label`, and `train`, settings of its frame-wise
            runs.
        emissions: families of the hidden Markov model, of `EMISSIONS`.
        systems: by the table's names: `system`, `frozen` (another name of the table, whose backbone it takes),
            `hmm` (another name, through the model of whose predictions it learns, with `loss: {hmm: 1}`),
            `scenarios` (all when left out), and whatever else `Config` takes.
        train: settings of all runs.
        temporal: settings of the runs on frozen backbones, which go before `train`.
        dynamics: annotations of other videos, one label a second, in which the hidden Markov model's start and
            transitions are counted, as `hmmjax.io.read_annotations` takes them; videos of the experiment are left out.
    """

    out: Path
    seeds: tuple[int, ...]
    data: dict[str, Any]
    scenarios: dict[str, dict[str, Any]]
    emissions: tuple[str, ...]
    systems: dict[str, dict[str, Any]]
    train: dict[str, Any]
    temporal: dict[str, Any]
    dynamics: str | None = None

    def cells(self) -> list[Cell]:
        """All cells of the grid; a frozen backbone's before those that are built on it."""
        names = sorted(self.systems, key=lambda name: sum(k in self.systems[name] for k in ("frozen", "hmm")))
        found = []
        for seed in self.seeds:
            for scenario in self.scenarios:
                for name in names:
                    spec = dict(self.systems[name])
                    if scenario not in spec.pop("scenarios", list(self.scenarios)):
                        continue
                    on, hmm = spec.pop("frozen", None), spec.pop("hmm", None)
                    own = {} if on else self.scenarios[scenario].get("train", {})
                    settings = {**self.train, **(self.temporal if on else {}), **own, **spec}
                    words = tuple(f"{key}={_word(value)}" for key, value in settings.items())
                    folder = self.out / f"seed{seed}" / scenario / name
                    found.append(Cell(name, scenario, seed, folder, words, on, hmm))
        return found


def _word(value: Any) -> str:
    """A value as a command line's setting has it."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()


def read_plan(path: str | Path) -> Plan:
    """A plan from its file.

    Raises:
        ValueError: for names that are not there, and systems on others that are missing.
    """
    values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    fields = {field.name for field in dataclasses.fields(Plan)}
    if unknown := sorted(set(values) - fields):
        raise ValueError(f"unknown setting {unknown[0]} in {path}: there are {', '.join(sorted(fields))}")
    if missing := sorted({"out", "data", "systems"} - set(values)):
        raise ValueError(f"{path} lacks {', '.join(missing)}")
    plan = Plan(
        Path(values["out"]),
        tuple(values.get("seeds", [0])),
        values["data"],
        values.get("scenarios", {"S_C": {}}),
        tuple(values.get("emissions", EMISSIONS)),
        values["systems"],
        values.get("train", {}),
        values.get("temporal", {}),
        values.get("dynamics"),
    )
    for kind, given, allowed in (
        ("scenario", plan.scenarios, SCENARIOS),
        ("emission family", plan.emissions, EMISSIONS),
        ("system", [spec.get("system") for spec in plan.systems.values()], SYSTEMS),
        ("scenario", [s for spec in plan.systems.values() for s in spec.get("scenarios", ())], plan.scenarios),
    ):
        for name in given:
            if name not in allowed:
                raise ValueError(f"unknown {kind} {name!r} in {path}: choose among {', '.join(allowed)}")
    for name, spec in plan.systems.items():
        on = spec.get("frozen")
        for other in (on, spec.get("hmm")):
            if other is not None and other not in plan.systems:
                raise ValueError(f"{name} needs {other!r}, which is not among the systems of {path}")
        if SYSTEMS[spec["system"]].boxes and set(spec.get("scenarios", plan.scenarios)) - {"S_C"}:
            raise ValueError(f"{name} learns from boxes, which only S_C has. Fix: set its scenarios to [S_C]")
        if SYSTEMS[spec["system"]].temporal and on is None and int(spec.get("clip", 1)) == 1:
            raise ValueError(
                f"{name} is a model of sequences. Fix: say on which system's backbone, frozen: NAME, or set clip"
            )
    return plan

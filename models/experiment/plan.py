"""What an experiment consists of, read from one YAML file."""

import dataclasses
from pathlib import Path
from typing import Any

import yaml

from models.settings import parse_yaml, read_config
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
        names = sorted(self.systems, key=lambda name: _depth(self.systems, name))
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


def _needs(spec: dict[str, Any]) -> list[str]:
    """The systems that have to be there before one."""
    return [spec[key] for key in ("frozen", "hmm") if spec.get(key) is not None]


def _depth(systems: dict[str, dict[str, Any]], name: str, above: tuple[str, ...] = ()) -> int:
    """How many systems have to be there one after the other before one.

    Raises:
        ValueError: when it would need itself.
    """
    if name in above:
        raise ValueError(f"{name} needs itself: {' needs '.join([*above, name])}. Fix: train one of them on its own")
    return max((1 + _depth(systems, other, (*above, name)) for other in _needs(systems[name])), default=0)


def _word(value: Any) -> str:
    """A value as a command line's setting has it."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()


def read_plan(path: str | Path) -> Plan:
    """A plan from its file.

    Raises:
        ValueError: for a file that is no plan, names that are not there, settings that `Config` does not take, and
            systems on others that are missing, or that need each other.
    """
    values = parse_yaml(Path(path).read_text(encoding="utf-8"), str(path)) or {}
    _check_kinds(values, str(path))
    fields = {field.name for field in dataclasses.fields(Plan)}
    if unknown := sorted(set(values) - fields):
        raise ValueError(f"unknown setting {unknown[0]} in {path}: there are {', '.join(sorted(fields))}")
    if missing := sorted({"out", "data", "systems"} - set(values)):
        raise ValueError(f"{path} lacks {', '.join(missing)}")
    if len({"cache", "simsurg"} & set(values["data"])) != 1:
        raise ValueError(f"data in {path} names {', '.join(values['data']) or 'nothing'}. Fix: give cache or simsurg")
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
            if other is not None and (gone := _scenarios(plan, name) - _scenarios(plan, other)):
                raise ValueError(
                    f"{name} needs {other!r}, which is not in {', '.join(sorted(gone))}. Fix: leave it out there too"
                )
        if on is not None and plan.systems[on].get("frozen") is not None:
            raise ValueError(
                f"{name} needs {on!r}, which has no backbone of its own. Fix: give the system that it is on"
            )
        if SYSTEMS[spec["system"]].boxes and set(spec.get("scenarios", plan.scenarios)) - {"S_C"}:
            raise ValueError(f"{name} learns from boxes, which only S_C has. Fix: set its scenarios to [S_C]")
        if SYSTEMS[spec["system"]].temporal and on is None and int(spec.get("clip", 1)) == 1:
            raise ValueError(
                f"{name} is a model of sequences. Fix: say on which system's backbone, frozen: NAME, or set clip"
            )
    for cell in plan.cells():
        try:
            read_config(None, [*cell.settings, *([] if cell.on is None else [f"frozen={cell.on}"])])
        except ValueError as error:
            raise ValueError(f"{cell.name} in {path}: {error}") from error
    return plan


def _scenarios(plan: Plan, name: str) -> set[str]:
    return set(plan.systems[name].get("scenarios", plan.scenarios))


def _check_kinds(values: Any, path: str) -> None:
    """See that a plan's parts are mappings, lists and words where they should be.

    Raises:
        ValueError: for the first that is not.
    """

    def check(place: str, value: Any, kind: type, words: str) -> None:
        if not isinstance(value, kind):
            raise ValueError(f"{place} in {path} is {value!r}: give {words}")

    check("all", values, dict, "settings by name")
    for name in ("data", "scenarios", "systems", "train", "temporal"):
        check(name, values.get(name, {}), dict, "settings by name")
    for name in ("systems", "scenarios"):
        for key, spec in values.get(name, {}).items():
            check(f"a name among {name}", key, str, "a word")
            check(f"{name}: {key}", spec, dict, "settings by name, {} for none")
            if Path(key).name != key:
                raise ValueError(f"{key!r} among {name} in {path} is no name of a folder")
            check(f"{key}: scenarios", spec.get("scenarios", []), list, "a list")
    for name, kind, words in (("seeds", int, "a list of whole numbers"), ("emissions", str, "a list of names")):
        check(name, values.get(name, [kind()]), list, words)
        for value in values.get(name, []):
            check(name, value, kind, words)
        if not values.get(name, [kind()]):
            raise ValueError(f"{name} in {path} is empty: give {words}")
    check("out", values.get("out", ""), str, "a folder")
    check("dynamics", values.get("dynamics", "") or "", str, "annotations")

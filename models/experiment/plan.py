"""The plan of an experiment, read from one YAML file."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from models.settings import parse_yaml, read_config
from models.systems import SYSTEMS

SCENARIOS = ("S_C", "S_D", "S_C+D")
EMISSIONS = ("confusion", "probability")
AUTO = "auto"
"""The entry of `Plan.emissions` that leaves the model to inner folds, as ``hmmjax stabilize`` does."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One system in one scenario with one seed.

    Attributes:
        name: name of the system in the table, such as "ToolNet_L".
        scenario: one of `SCENARIOS`.
        seed: of simulation, labeling and training.
        folder: output folder of the cell.
        settings: ``key=value`` words of its training run.
        on: name of the system whose frozen backbone it uses, or None.
        hmm: name of the system from whose predictions the model of its HMM loss is learned, or None.
        mean: names of the systems whose mean prediction it is, without training; empty for all others.
        weights: name of the system with whose trained backbone it begins, or None.
    """

    name: str
    scenario: str
    seed: int
    folder: Path
    settings: tuple[str, ...]
    on: str | None
    hmm: str | None = None
    mean: tuple[str, ...] = ()
    weights: str | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of the systems on which the cell depends."""
        return tuple(name for name in (self.on, self.hmm, self.weights, *self.mean) if name is not None)


@dataclasses.dataclass(frozen=True)
class Plan:
    """An experiment.

    Attributes:
        out: the output folder.
        seeds: of the repetitions.
        data: ``{simsurg: {whole: 8, single: 8, val: 4, test: 12}, minutes: 10, size: [64, 64]}`` simulates videos for
            each seed; with ``law: markov``, from the law of tools that the model assumes. ``{cache: FOLDER}`` reads a
            cache with the parts whole, single, val and test, or with ``parts: {whole: [video67], ...}``, which assigns
            its videos to them.
        scenarios: by name, options of `models.experiment.videos.label`, and `train`, settings of frame-wise runs.
        emissions: families of the hidden Markov model, of `EMISSIONS`, or `AUTO`.
        systems: by name in the table: `system`; `frozen`, the name of the system whose backbone it uses; `hmm`, the
            name of the system from whose predictions the model of its HMM loss is learned (with `loss: {hmm: 1}`);
            `mean`, the names of systems whose predictions it averages, instead of training (for cross-fitting);
            `weights`, the name of a system with whose trained backbone it begins; `scenarios` and `seeds`, all by
            default; and any other field of `Config`.
        train: settings of all runs.
        temporal: settings of the runs on frozen backbones, which override `train`.
        dynamics: annotations of other videos, one label per second, in which the hidden Markov model's initial and
            transition probabilities are counted, in a form that `hmmjax.io.read_annotations` reads. Videos of the
            experiment are excluded.
        rates: factors of the learning rate of the runs on frozen backbones, among which validation chooses; the runs of
            all seeds then train as one program, see `models.experiment.lanes`. Without factors each trains alone.
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
    rates: tuple[float, ...] = ()

    def cells(self) -> list[Cell]:
        """Return all cells of the grid, each after the cells that it depends on."""
        names = sorted(self.systems, key=lambda name: _depth(self.systems, name))
        found = []
        for seed in self.seeds:
            for scenario in self.scenarios:
                for name in names:
                    spec = dict(self.systems[name])
                    if scenario not in spec.pop("scenarios", self.scenarios) or seed not in spec.pop("seeds", (seed,)):
                        continue
                    on, hmm, mean = spec.pop("frozen", None), spec.pop("hmm", None), tuple(spec.pop("mean", ()))
                    begin = spec.pop("weights", None)
                    own = {} if on else self.scenarios[scenario].get("train", {})
                    settings = {**self.train, **(self.temporal if on else {}), **own, **spec}
                    words = tuple(f"{key}={_word(value)}" for key, value in settings.items())
                    folder = self.out / f"seed{seed}" / scenario / name
                    found.append(Cell(name, scenario, seed, folder, words, on, hmm, mean, begin))
        return found


def group(plan: Plan, cells: Sequence[Cell]) -> list[list[Cell]]:
    """Group the cells that train as one program: those of all seeds on frozen backbones, if the plan has rates."""
    found: dict[tuple, list[Cell]] = {}
    for cell in cells:
        together = plan.rates and cell.on is not None
        found.setdefault((cell.scenario, cell.name, None if together else cell.seed), []).append(cell)
    return list(found.values())


def _needs(spec: dict[str, Any]) -> list[str]:
    """Return the systems on which one depends."""
    return [
        *(spec[key] for key in ("frozen", "hmm", "weights") if spec.get(key) is not None),
        *spec.get("mean", ()),
    ]


def _depth(systems: dict[str, dict[str, Any]], name: str, above: tuple[str, ...] = ()) -> int:
    """Return the length of the longest chain of systems on which one depends.

    Raises:
        ValueError: if a system depends on itself.
    """
    if name in above:
        raise ValueError(f"{name} needs itself: {' needs '.join([*above, name])}. Fix: train one of them on its own")
    return max((1 + _depth(systems, other, (*above, name)) for other in _needs(systems[name])), default=0)


def _word(value: Any) -> str:
    """Return a value as the YAML of a ``key=value`` word."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()


def read_plan(path: str | Path) -> Plan:
    """Read a plan from its file.

    Raises:
        ValueError: for a file that is not a plan, unknown names, settings that are not fields of `Config`, and systems
            that depend on missing ones or on each other.
    """
    values = parse_yaml(Path(path).read_text(encoding="utf-8"), str(path)) or {}
    _check_kinds(values, str(path))
    fields = {field.name for field in dataclasses.fields(Plan)}
    if unknown := sorted(set(values) - fields):
        raise ValueError(f"unknown setting {unknown[0]} in {path}: choose among {', '.join(sorted(fields))}")
    if missing := sorted({"out", "data", "systems"} - set(values)):
        raise ValueError(f"{path} lacks {', '.join(missing)}. Fix: add the missing settings")
    if len({"cache", "simsurg"} & set(values["data"])) != 1:
        raise ValueError(
            f"data in {path} has {', '.join(values['data']) or 'no settings'}. Fix: give either cache or simsurg"
        )
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
        tuple(map(float, values.get("rates", ()))),
    )
    _check_names(plan, path)
    _check_systems(plan, path)
    for cell in plan.cells():
        try:
            read_config(None, [*cell.settings, *([] if cell.on is None else [f"frozen={cell.on}"])])
        except ValueError as error:
            raise ValueError(f"{cell.name} in {path}: {error}") from error
    return plan


def _check_names(plan: Plan, path: str | Path) -> None:
    """Raise ValueError for a name that does not exist."""
    for kind, given, allowed in (
        ("scenario", plan.scenarios, SCENARIOS),
        ("emission family", plan.emissions, (*EMISSIONS, AUTO)),
        ("system", [spec.get("system") for spec in plan.systems.values()], SYSTEMS),
        ("scenario", [s for spec in plan.systems.values() for s in spec.get("scenarios", ())], plan.scenarios),
    ):
        for name in given:
            if name not in allowed:
                raise ValueError(f"unknown {kind} {name!r} in {path}: choose among {', '.join(allowed)}")


def _check_systems(plan: Plan, path: str | Path) -> None:
    """Raise ValueError for a system that cannot be trained as the plan describes."""
    for name, spec in plan.systems.items():
        on = spec.get("frozen")
        for other in _needs(spec):
            if other not in plan.systems:
                raise ValueError(f"{name} needs {other!r}, which is not among the systems of {path}. Fix: add it")
            if gone := _scenarios(plan, name) - _scenarios(plan, other):
                raise ValueError(
                    f"{name} needs {other!r}, which is not in {', '.join(sorted(gone))}. Fix: remove {name} from these "
                    f"scenarios, or add {other} to them"
                )
        if "mean" in spec:
            continue
        if on is not None and plan.systems[on].get("frozen") is not None:
            raise ValueError(
                f"{name} needs {on!r}, which has no backbone of its own. Fix: set frozen to the system whose backbone "
                f"{on} uses"
            )
        if SYSTEMS[spec["system"]].boxes and set(spec.get("scenarios", plan.scenarios)) - {"S_C"}:
            raise ValueError(f"{name} learns from boxes, which only S_C has. Fix: set its scenarios to [S_C]")
        if SYSTEMS[spec["system"]].temporal and on is None and int(spec.get("clip", 1)) == 1:
            raise ValueError(
                f"{name} learns from sequences, and none are configured. Fix: set frozen: NAME to the system whose "
                "backbone it uses, or set clip"
            )


def _scenarios(plan: Plan, name: str) -> set[str]:
    return set(plan.systems[name].get("scenarios", plan.scenarios))


def _check_kinds(values: Any, path: str) -> None:
    """Raise ValueError for the first part of a plan that is not of the right kind: mapping, list or string."""

    def check(place: str, value: Any, kind: type | tuple[type, ...], words: str) -> None:
        if not isinstance(value, kind):
            raise ValueError(f"{place} in {path} is {value!r}: give {words}")

    check("the plan", values, dict, "settings by name")
    for name in ("data", "scenarios", "systems", "train", "temporal"):
        check(name, values.get(name, {}), dict, "settings by name")
    for name in ("systems", "scenarios"):
        for key, spec in values.get(name, {}).items():
            check(f"a name among {name}", key, str, "a string")
            check(f"{name}: {key}", spec, dict, "settings by name, {} for none")
            if Path(key).name != key:
                raise ValueError(f"{key!r} among {name} in {path} is not a folder name: leave out slashes")
            for field in ("scenarios", "mean", "seeds"):
                check(f"{key}: {field}", spec.get(field, []), list, "a list")
    for name, kind, words in (("seeds", int, "a list of integers"), ("emissions", str, "a list of names")):
        check(name, values.get(name, [kind()]), list, words)
        for value in values.get(name, []):
            check(name, value, kind, words)
        if not values.get(name, [kind()]):
            raise ValueError(f"{name} in {path} is empty: give {words}")
    check("rates", values.get("rates", []), list, "a list of factors")
    for value in values.get("rates", []):
        check("rates", value, (int, float), "a list of factors")
    check("out", values.get("out", ""), str, "a folder")
    check("dynamics", values.get("dynamics", "") or "", str, "annotations")

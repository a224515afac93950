"""Test the direction of imports: packages of models/ import only those below them, and hmmjax never imports models."""

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: From the bottom to the top: a package or module of models/ imports itself and those on lines above it.
ORDER = (
    ("settings", "torchfile", "published", "commands", "digests"),
    ("data",),
    ("backbones",),
    ("weights", "temporal"),
    ("detection",),
    ("systems",),
    ("inputs", "training", "partial_predictions"),
    ("encoders", "stabilize", "predict", "train"),
    ("encoder_choice", "pseudo_labels"),
    ("extract",),
    ("detect", "experiment", "demo", "beam"),
    ("selftrain",),
)
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}


def modules(package):
    """The module names and files of a package."""
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path):
    """The full names that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: write imports with full names"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


MODULES = dict(modules("models"))


def within(name):
    """The module of models/ that an imported name is, or is defined in; None if it is outside models/."""
    while name not in MODULES:
        name, _, last = name.rpartition(".")
        if not last:
            return None
    return name


@pytest.mark.parametrize("module", MODULES)
def test_modules_import_only_from_below(module):
    own = module.split(".")[1:2]
    for name in filter(None, map(within, imports(MODULES[module]))):
        other = name.split(".")[1:2]
        if other and other != own:
            assert LEVEL[other[0]] < LEVEL[own[0]], f"{module} imports {name}"


def test_every_package_has_a_level():
    assert {name.split(".")[1] for name in MODULES if "." in name} == set(LEVEL)


def test_there_is_no_cycle_of_modules():
    # A package's __init__ counts as importing its modules; they do not import it by being inside it.
    graph = {
        module: {other for other in map(within, imports(path)) if other not in (None, module)}
        for module, path in MODULES.items()
    }
    list(graphlib.TopologicalSorter(graph).static_order())


def test_hmmjax_never_imports_models():
    for module, path in modules("hmmjax"):
        for name in imports(path):
            assert name.split(".")[0] != "models", f"{module} imports {name}"

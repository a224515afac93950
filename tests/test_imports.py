"""What `import hmmjax` loads and shows, and which module may import which."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "hmmjax"
MODULES = {
    ".".join(("hmmjax", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}
UPPER = ("io", "metrics", "plots", "stabilize", "report", "cli", "data", "explore", "suggest", "simulate")
"""Packages above the core: the core imports none of them when it is loaded."""

ABOVE = {f"hmmjax.{name}" for name in (*UPPER, "checkpoint", "dynamax", "__main__")}


def run(code: str) -> list[str]:
    """Run code in a fresh interpreter, without the tests' type checker, and return the words that it prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def is_above(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in ABOVE)


def imports(path: Path) -> set[str]:
    """The library's modules that a file imports when it is loaded (not in functions, not for type checkers)."""
    found = set()

    def visit(body):
        for node in body:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = (f"{node.module}.{alias.name}" for alias in node.names)
                found.update(name if name in MODULES else node.module for name in names)
            elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
                visit(node.body + node.orelse)
            elif isinstance(node, ast.Try):
                visit(node.body + node.orelse + node.finalbody + [x for h in node.handlers for x in h.body])
            elif isinstance(node, ast.ClassDef | ast.With):
                visit(node.body)

    visit(ast.parse(path.read_text()).body)
    return {name for name in found if name.split(".")[0] in ("hmmjax", "models")}


GRAPH = {name: imports(path) for name, path in MODULES.items()}


def test_import_loads_only_jax_and_numpy():
    loaded = run("import jax, sys; old = set(sys.modules); import hmmjax; print(*set(sys.modules) - old)")
    ours = [name for name in loaded if name.split(".")[0] == "hmmjax"]
    forbidden = ("sklearn", "scipy", "matplotlib", "rich", "typer", "yaml", "pandas", "jinja2", "models")
    assert not [name for name in ours if is_above(name)]
    assert not [name for name in loaded if name.split(".")[0] in forbidden]
    assert len(ours) < 90


def test_dir_shows_public_names_and_submodules_are_lazy():
    names = run("import hmmjax; print(*dir(hmmjax))")
    assert {"fit", "posterior", "Params", "io", "metrics", "stabilize", "__version__"} <= set(names)
    assert not {"inference", "learning", "em", "types", "_core", "importlib", "TYPE_CHECKING"} & set(names)
    public = [name for name in names if f"hmmjax.{name}" in MODULES and name not in ("report", "suggest", "explore")]
    assert len(public) >= 12
    code = "import hmmjax; [getattr(hmmjax, name) for name in hmmjax.__all__ if name not in ('report', 'plots')]"
    run(f"{code}; print('done')")


def test_unknown_attribute():
    import hmmjax

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hmmjax.nothing  # noqa: B018


@pytest.mark.parametrize("name", sorted(MODULES))
def test_arrows(name):
    """Imports go downwards only."""
    imported = GRAPH[name]
    assert not [x for x in imported if x.split(".")[0] == "models"]
    if not is_above(name):
        assert not [x for x in imported if is_above(x)]
    if name.startswith("hmmjax.io"):
        higher = ("learning", "em", "inference", "checkpoint", "stabilize", "report", "cli", "plots", "metrics")
        assert not [x for x in imported if x.split(".")[1:2] and x.split(".")[1] in higher]
    if name.startswith("hmmjax._core"):
        allowed = ("_core", "messages", "native", "emissions", "transitions", "types", "priors")
        assert not [x for x in imported if x.split(".")[1] not in allowed]
    if name.startswith("hmmjax.native"):  # below everything else
        assert not [x for x in imported if x.split(".")[1:2] not in ([], ["native"])]


def test_no_cycles():
    """No module imports, directly or indirectly, itself."""
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in done or name not in GRAPH:
            return
        path.append(name)
        for imported in sorted(GRAPH[name]):
            # A package that imports its own modules is not a cycle.
            if imported != name and not name.startswith(f"{imported}."):
                visit(imported)
        path.pop()
        done.add(name)

    for name in GRAPH:
        visit(name)


def test_types_ship():
    """Type checkers read a package's annotations only if it has this file."""
    assert (ROOT / "py.typed").exists()

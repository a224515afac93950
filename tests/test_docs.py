"""Every Python block of the README and the docs runs."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = {page.name: re.findall(r"```python\n(.*?)```", page.read_text(), re.S) for page in PAGES}


# These two need the vision extra and have tests of their own beside models' tests.
ELSEWHERE = {"data.md", "models.md"}


@pytest.mark.parametrize("page", [name for name, blocks in BLOCKS.items() if blocks and name not in ELSEWHERE])
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    for block in BLOCKS[page]:
        exec(compile(block, page, "exec"), namespace)


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(((?!http)[^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


PUBLIC = (
    "hmmjax", "hmmjax.emissions", "hmmjax.transitions", "hmmjax.io", "hmmjax.stabilize", "hmmjax.metrics",
    "hmmjax.report", "hmmjax.explore", "hmmjax.plots", "hmmjax.suggest",
)  # fmt: skip


def test_pages_that_choose_members_choose_all_public_ones():
    """A page with a list of members shows nothing else: a new name must not fall between."""
    text = (ROOT / "docs" / "api" / "core.md").read_text()
    chosen = re.search(r"^::: hmmjax$.*?members: \[(.*?)\]", text, re.M | re.S)[1].split(", ")
    exported = importlib.import_module("hmmjax")
    names = {name for name in exported.__all__ if not inspect.ismodule(getattr(exported, name))}
    assert names <= set(chosen), f"not in docs/api/core.md: {names - set(chosen)}"


def test_every_public_module_is_in_the_list():
    """Packages with public names; the command line and the backends of the recursions are no library."""
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "hmmjax").glob("*/__init__.py")
        if "__all__" in path.read_text() and path.parent.name not in ("cli", "messages")
    }
    assert found <= set(PUBLIC), f"not in PUBLIC: {found - set(PUBLIC)}"


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_documented(module):
    reference = "\n".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    assert re.search(rf"^::: {re.escape(module)}$", reference, re.M), f"{module} is in no page of the reference"
    exported = importlib.import_module(module)
    for name in exported.__all__:
        thing = getattr(exported, name)
        if inspect.ismodule(thing) or not callable(thing):
            continue
        assert (inspect.getdoc(thing) or "").strip(), f"{module}.{name} has no docstring"
        for method, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not method.startswith("_") and inspect.isfunction(value):
                assert inspect.getdoc(getattr(thing, method)), f"{module}.{name}.{method} has no docstring"

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


def documented():
    """Every function, class and method of the reference by name: of each module what its page chooses, or exports."""
    found = {}
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        for block in re.split(r"^::: ", page.read_text(), flags=re.M)[1:]:
            module = importlib.import_module(block.split()[0])
            own = [n for n, x in vars(module).items() if getattr(x, "__module__", None) == module.__name__]
            names = getattr(module, "__all__", [n for n in own if not n.startswith("_")])
            if chosen := re.search(r"members: \[(.*?)\]", block):
                names = chosen[1].split(", ")
            for name in names:
                thing = getattr(module, name)
                if inspect.isfunction(thing):
                    found[f"{module.__name__}.{name}"] = [thing]
                if inspect.isclass(thing):
                    found[f"{module.__name__}.{name}"] = [thing]
                    for method in (m for m in vars(thing) if not m.startswith("_")):
                        # Whoever overrides a method need not repeat what the base says of it.
                        heirs = [getattr(c, method) for c in thing.__mro__ if hasattr(c, method)]
                        if inspect.isroutine(heirs[0]):
                            found[f"{module.__name__}.{name}.{method}"] = heirs
    return found


def parameters(thing):
    if inspect.isclass(thing) and "__init__" not in vars(thing):
        return set()
    return set(inspect.signature(thing).parameters) - {"self"}


def section(thing, *titles):
    """What stands under a title of a docstring (Google's style); None without such a title."""
    doc = inspect.getdoc(thing) or ""
    found = re.search(rf"^(?:{'|'.join(titles)}):\n((?: .*\n|\n)*)", doc + "\n", re.M)
    return None if found is None else found[1]


def test_every_argument_of_the_reference_is_described():
    missing = []
    for name, things in documented().items():
        # A dataclass says what its fields are; they are its arguments.
        titles = ("Args", "Attributes") if inspect.isclass(things[0]) else ("Args",)
        said = [re.findall(r"^    \*{0,2}(\w+):", section(t, *titles) or "", re.M) for t in things]
        if not any(parameters(things[0]) <= set(names) for names in said):
            missing.append(f"{name}({', '.join(sorted(parameters(things[0]) - set(said[0])))})")
    assert not missing, "\n".join(["without a line under Args:", *missing])


def test_every_error_and_answer_of_the_reference_is_described():
    missing = []
    for name, things in documented().items():
        function, docs = things[0], [inspect.getdoc(t) or "" for t in things]
        if inspect.isclass(function):
            continue
        raises = re.search(r"^\s+raise\b", inspect.getsource(function), re.M)
        if raises and not any(
            section(t, "Raises") or d.startswith("Raise ") for t, d in zip(things, docs, strict=True)
        ):
            missing.append(f"{name} raises")
        answers = inspect.signature(function).return_annotation not in (None, "None")
        if answers and parameters(function) and not any(section(t, "Returns", "Yields") for t in things):
            missing.append(f"{name} returns")
    assert not missing, "\n".join(["without a section:", *missing])


def test_what_the_paper_has_names_its_source():
    """docs/paper.md says that each public docstring repeats its source."""
    reference, page = documented(), (ROOT / "docs" / "paper.md").read_text()
    named = [n for n in re.findall(r"`(hmmjax\.[\w.]+)`", page) if n in reference]
    assert len(named) > 10
    figures = [n for n, (t, *_) in reference.items() if n.startswith("hmmjax.metrics.") and inspect.isfunction(t)]
    for name in [*named, *(n for n in figures if not n.endswith((".unpad", ".asdict")))]:
        assert re.search(r"^Source: ", inspect.getdoc(reference[name][0]) or "", re.M), f"{name} has no source"

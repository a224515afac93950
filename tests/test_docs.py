"""The README and the documentation: their Python runs, their links resolve, and the reference is complete."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {page.relative_to(ROOT).as_posix(): page for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))}
BLOCKS = {name: re.findall(r"```python\n(.*?)```", page.read_text(), re.S) for name, page in PAGES.items()}
REFERENCE = sorted((DOCS / "reference" / "api").glob("*.md"))

# These need the vision extra; tests/models_data/test_data_page.py and tests/models/test_models_page.py run them.
ELSEWHERE = {
    "docs/tutorials/simulated-surgery.md",
    "docs/how-to/datasets.md",
    "docs/how-to/choose-labels.md",
    "docs/reference/recognizers.md",
}


@pytest.mark.thorough
@pytest.mark.parametrize("page", [name for name, blocks in BLOCKS.items() if blocks and name not in ELSEWHERE])
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    for block in BLOCKS[page]:
        exec(compile(block, page, "exec"), namespace)


def test_pages_run_elsewhere_exist():
    assert set(BLOCKS) >= ELSEWHERE and all(BLOCKS[page] for page in ELSEWHERE)


def test_links_resolve():
    for name, page in PAGES.items():
        for target in re.findall(r"\]\(((?!http)[^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{name} links to {target}, which does not exist"


def test_every_page_is_in_the_navigation():
    navigation = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert navigation == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def test_readme_is_short():
    assert len(PAGES["README.md"].read_text().splitlines()) < 120


PUBLIC = (
    "hmmjax", "hmmjax.emissions", "hmmjax.transitions", "hmmjax.io", "hmmjax.stabilize", "hmmjax.metrics",
    "hmmjax.report", "hmmjax.explore", "hmmjax.plots", "hmmjax.suggest", "hmmjax.simulate",
)  # fmt: skip


def test_listed_members_are_all_public_names():
    """A page that lists its members shows only those, so every public name must be in the list."""
    text = (DOCS / "reference" / "api" / "core.md").read_text()
    chosen = re.search(r"^::: hmmjax$.*?members: \[(.*?)\]", text, re.M | re.S)[1].split(", ")
    exported = importlib.import_module("hmmjax")
    names = {name for name in exported.__all__ if not inspect.ismodule(getattr(exported, name))}
    assert names <= set(chosen), f"not in docs/reference/api/core.md: {names - set(chosen)}"


def test_every_public_module_is_in_the_list():
    """All packages with public names, except the command line and the backends."""
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "hmmjax").glob("*/__init__.py")
        if "__all__" in path.read_text() and path.parent.name not in ("cli", "messages")
    }
    assert found <= set(PUBLIC), f"not in PUBLIC: {found - set(PUBLIC)}"


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_documented(module):
    reference = "\n".join(page.read_text() for page in REFERENCE)
    assert re.search(rf"^::: {re.escape(module)}$", reference, re.M), f"{module} is on no page of the reference"
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
    """Every function, class and method of the reference by name: the members a page lists, or a module exports."""
    found = {}
    for page in REFERENCE:
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
                        # A method that overrides another may leave its description to the base class.
                        heirs = [getattr(c, method) for c in thing.__mro__ if hasattr(c, method)]
                        if inspect.isroutine(heirs[0]):
                            found[f"{module.__name__}.{name}.{method}"] = heirs
    return found


def parameters(thing):
    if inspect.isclass(thing) and "__init__" not in vars(thing):
        return set()
    return set(inspect.signature(thing).parameters) - {"self"}


def section(thing, *titles):
    """The text of a docstring section (Google style); None without such a section."""
    doc = inspect.getdoc(thing) or ""
    found = re.search(rf"^(?:{'|'.join(titles)}):\n((?: .*\n|\n)*)", doc + "\n", re.M)
    return None if found is None else found[1]


def test_every_argument_of_the_reference_is_described():
    missing = []
    for name, things in documented().items():
        # The arguments of a dataclass are its fields, which it documents as attributes.
        titles = ("Args", "Attributes") if inspect.isclass(things[0]) else ("Args",)
        described = [re.findall(r"^    \*{0,2}(\w+):", section(t, *titles) or "", re.M) for t in things]
        if not any(parameters(things[0]) <= set(names) for names in described):
            missing.append(f"{name}({', '.join(sorted(parameters(things[0]) - set(described[0])))})")
    assert not missing, "\n".join(["Not described under Args:", *missing])


def test_every_error_and_result_of_the_reference_is_described():
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
        returns = str(inspect.signature(function).return_annotation) not in ("None", "collections.abc.Iterator[None]")
        stated = any(section(t, "Returns", "Yields") for t in things) or any(d.startswith("Return ") for d in docs)
        if returns and parameters(function) and not stated:
            missing.append(f"{name} returns")
    assert not missing, "\n".join(["Without a Raises or Returns section:", *missing])


def test_names_from_the_paper_state_their_source():
    """docs/concepts/paper.md promises that each public docstring repeats its source."""
    reference, page = documented(), (DOCS / "concepts" / "paper.md").read_text()
    named = [n for n in re.findall(r"`(hmmjax\.[\w.]+)`", page) if n in reference]
    assert len(named) > 10
    metrics = [n for n, (t, *_) in reference.items() if n.startswith("hmmjax.metrics.") and inspect.isfunction(t)]
    for name in [*named, *(n for n in metrics if not n.endswith((".unpad", ".asdict")))]:
        assert re.search(r"^Source: ", inspect.getdoc(reference[name][0]) or "", re.M), f"{name} has no source"

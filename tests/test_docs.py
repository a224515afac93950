"""Every Python block of the README and the docs runs."""

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

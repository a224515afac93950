"""The Python in docs/models.md runs."""

import re
from pathlib import Path

import pytest

pytest.importorskip("flax", reason="needs the vision extra (flax)")


def test_the_pages_code_runs():
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 5
    space = {}
    for block in blocks:
        exec(compile(block, "docs/models.md", "exec"), space)

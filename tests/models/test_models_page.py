"""Test that the Python code in docs/reference/recognizers.md runs."""

import re
from pathlib import Path

import pytest

pytest.importorskip("flax", reason="needs the vision extra (flax)")

pytestmark = pytest.mark.thorough
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "recognizers.md"


def test_the_code_of_the_page_runs():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 5
    space = {}
    for block in blocks:
        exec(compile(block, "docs/reference/recognizers.md", "exec"), space)

"""The code on docs/data.md runs, and its manifest is accepted."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def test_manifest_is_accepted(tmp_path):
    from models.data.collections_manifest import read_manifest

    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for path in re.findall(r"(?:video|phases|tools): (\S+/[^\s,}]+)", text):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "frames" / "case003").mkdir(parents=True)
    (tmp_path / "m.yaml").write_text(text)
    collection = read_manifest(tmp_path / "m.yaml")
    assert collection.ids == ("case001", "case002", "case003") and collection["case002"].partial


def test_the_pages_code_runs():
    pytest.importorskip("av", reason="videos need PyAV (the vision extra)")
    space = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, "docs/data.md", "exec"), space)
    assert space["collection"].ids == ("video01", "video02", "video03")

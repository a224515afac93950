"""The code on docs/data.md runs, and its manifest is accepted."""

import re
import warnings
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


def run(*left_out):
    """Run the page's blocks, but those that need a package which is not there."""
    space = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        if not any(package in block for package in left_out):
            exec(compile(block, "docs/data.md", "exec"), space)
    return space


def test_the_pages_code_runs():
    pytest.importorskip("av", reason="videos need PyAV (the vision extra)")
    space = run("tfds", "apache_beam")
    assert space["collection"].ids == ("video01", "video02", "video03")
    assert {track.video for track in space["more"]} == {"video01", "video02", "video03", "video04"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("package", ["tensorflow_datasets", "apache_beam"])
def test_the_pages_code_for_tensorflow_datasets_runs(package):
    pytest.importorskip("array_record", reason="needs array_record (the tfds extra)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages' own imports
        for name in dict.fromkeys(("tensorflow_datasets", package)):
            pytest.importorskip(name, reason=f"needs {name} (the tfds and beam extras)")
    space = run("apache_beam") if package != "apache_beam" else run()
    assert len(space["builder"].as_data_source("unsplit")) == sum(map(len, space["truth"]))


def test_named_tests_exist():
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    files = Path(__file__).parents[1].rglob("test_*.py")
    there = set(re.findall(r"^def (test_\w+)", "\n".join(f.read_text(encoding="utf-8") for f in files), re.MULTILINE))
    assert named and not named - there

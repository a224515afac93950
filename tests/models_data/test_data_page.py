"""The code of the pages about data runs, the manifest they show is accepted, and the tests they name exist."""

import re
import warnings
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
DATASETS, LABELS = DOCS / "how-to" / "datasets.md", DOCS / "how-to" / "choose-labels.md"
SIMULATED = DOCS / "tutorials" / "simulated-surgery.md"


def test_manifest_is_accepted(tmp_path):
    from models.data.collections_manifest import read_manifest

    (text,) = re.findall(r"```yaml\n(.*?)```", DATASETS.read_text(encoding="utf-8"), re.DOTALL)
    for path in re.findall(r"(?:video|phases|tools): (\S+/[^\s,}]+)", text):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "frames" / "case003").mkdir(parents=True)
    (tmp_path / "m.yaml").write_text(text)
    collection = read_manifest(tmp_path / "m.yaml")
    assert collection.ids == ("case001", "case002", "case003") and collection["case002"].partial


def run(page, *left_out):
    """Run the Python blocks of a page, except those that use a package in `left_out`."""
    space = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        if not any(package in block for package in left_out):
            exec(compile(block, page.name, "exec"), space)
    return space


def test_simulation_runs():
    pytest.importorskip("av", reason="videos need PyAV (the vision extra)")
    assert run(SIMULATED)["picture"].shape == (480, 854, 3)


def test_data_sets_open():
    pytest.importorskip("av", reason="videos need PyAV (the vision extra)")
    assert run(DATASETS, "tfds", "apache_beam")["collection"].ids == ("video01", "video02", "video03")


def test_suggested_labels_are_read_back():
    pytest.importorskip("av", reason="models.data needs PyAV (the vision extra)")
    assert {track.video for track in run(LABELS)["more"]} == {"video01", "video02", "video03", "video04"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("package", ["tensorflow_datasets", "apache_beam"])
def test_tensorflow_datasets_are_built(package):
    pytest.importorskip("array_record", reason="needs array_record (the tfds extra)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # raised while the packages themselves are imported
        for name in dict.fromkeys(("tensorflow_datasets", package)):
            pytest.importorskip(name, reason=f"needs {name} (the tfds and beam extras)")
    space = run(DATASETS, *(["apache_beam"] if package != "apache_beam" else []))
    assert len(space["builder"].as_data_source("unsplit")) == sum(map(len, space["truth"]))


def test_named_tests_exist():
    text = (DOCS / "project" / "reliability.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))
    files = Path(__file__).parents[1].rglob("test_*.py")
    existing = set(
        re.findall(r"^def (test_\w+)", "\n".join(f.read_text(encoding="utf-8") for f in files), re.MULTILINE)
    )
    assert named and not named - existing

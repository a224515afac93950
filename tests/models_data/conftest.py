"""A small generated copy of Cholec80, with videos, for the readers' tests."""

import pytest


@pytest.fixture(scope="session")
def layout(tmp_path_factory):
    """A folder laid out like Cholec80 with three short videos, and the truth that was written."""
    pytest.importorskip("av", reason="videos need PyAV (the vision extra)")
    from models.data.simsurg import write_cholec80

    root = tmp_path_factory.mktemp("cholec80")
    return root, write_cholec80(root, 3, seed=1, minutes=1.0, size=(48, 64))


@pytest.fixture
def annotations(tmp_path):
    """The same without videos, fresh for every test to damage."""
    from hmmjax.simulate import simulate_surgeries
    from models.data.simsurg import write_annotations

    surgeries = simulate_surgeries(2, seed=1, minutes=0.7)
    for kind in ("phase_annotations", "tool_annotations"):
        (tmp_path / kind).mkdir()
    for n, surgery in enumerate(surgeries):
        write_annotations(tmp_path, f"video{n + 1:02d}", surgery)
    return tmp_path, surgeries

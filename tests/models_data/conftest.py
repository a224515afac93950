"""Small simulated copies of Cholec80 for tests of the readers."""

import pytest


@pytest.fixture(scope="session")
def layout(tmp_path_factory):
    """Return a folder in Cholec80's layout with three short videos, and the simulated surgeries."""
    pytest.importorskip("av", reason="videos need PyAV (the vision extra)")
    from models.data.simsurg import write_cholec80

    root = tmp_path_factory.mktemp("cholec80")
    return root, write_cholec80(root, 3, seed=1, minutes=1.0, size=(48, 64))


@pytest.fixture
def annotations(tmp_path):
    """Return such a folder without videos, new for each test, and the simulated surgeries."""
    from hmmjax.simulate import simulate_surgeries
    from models.data.simsurg import write_annotations

    surgeries = simulate_surgeries(2, seed=1, minutes=0.7)
    for kind in ("phase_annotations", "tool_annotations"):
        (tmp_path / kind).mkdir()
    for n, surgery in enumerate(surgeries):
        write_annotations(tmp_path, f"video{n + 1:02d}", surgery)
    return tmp_path, surgeries

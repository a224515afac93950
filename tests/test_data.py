"""Check annotations for completeness and write simulations as files."""

import numpy as np
import pytest
from files import put

from hmmjax import io
from hmmjax.data.annotations import check_complete
from hmmjax.data.simulated import write_simulation
from hmmjax.io import FormatError
from hmmjax.simulate import Recognizer, simulate_surgeries


def test_lines_are_counted_with_the_blank_ones(tmp_path):
    path = put(tmp_path, "video01-phase.txt", "Frame\tPhase\n\n0\tPreparation\n\n25\tPreparation\n50\tPreparation\n"
               "\n\n100\tPreparation\n")  # fmt: skip
    with pytest.raises(FormatError, match=r"video01-phase.txt, line 9: rows are missing between frames 50 and 100"):
        check_complete(io.read(path)[0])


def test_two_simulations_never_mix(tmp_path):
    surgeries = simulate_surgeries(1, minutes=0.3)
    with io.claim(tmp_path / "s"), pytest.raises(FileExistsError, match="another process"):
        write_simulation(tmp_path / "s", surgeries, force=True)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "predictions.npz").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="not empty"):
        write_simulation(tmp_path / "t", surgeries)
    assert [p.name for p in (tmp_path / "t").iterdir()] == ["predictions.npz"]
    for bad in ({"minutes": np.inf}, *({"recognizer": Recognizer(noise=x)} for x in (np.nan, np.inf, -1))):
        with pytest.raises(ValueError, match=r"minutes|noise"):
            simulate_surgeries(1, **bad)

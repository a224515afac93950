"""Write files atomically, even if the writer is killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hmmjax import io

KILLS = """
import itertools, os, signal, sys, time
import numpy as np
from hmmjax import io

path = sys.argv[1]
for attempt in range(20):
    before = os.stat(path).st_mtime_ns if attempt else 0
    victim = os.fork()
    if not victim:
        for i in itertools.count(1):
            io.save_npz(path, {"x": np.full(200_000, i), "y": np.full(200_000, i)}, force=True)
    while not os.path.exists(path) or os.stat(path).st_mtime_ns == before:
        time.sleep(0.001)
    time.sleep(0.002 * attempt)  # somewhere in a later write
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    with np.load(path) as data:
        x, y = data["x"], data["y"]
    assert (x == x[0]).all() and (y == x[0]).all(), attempt
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    """A file that is rewritten repeatedly while its writer is killed is always complete and of one version."""
    command = [sys.executable, "-c", KILLS, str(tmp_path / "a.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def test_writing_is_atomic_and_never_overwrites(tmp_path):
    path = tmp_path / "file.txt"
    with pytest.raises(RuntimeError), io.write_atomically(path) as temporary:
        Path(temporary).write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="force"), io.write_atomically(path):
        pass
    with io.write_atomically(path, force=True) as temporary:
        assert path.read_text() == "mine"
        with open(temporary, "w") as file:
            file.write("new")
    assert path.read_text() == "new" and len(list(tmp_path.iterdir())) == 1

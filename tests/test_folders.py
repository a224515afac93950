"""Writing that can be interrupted, repeated and raced: the old or the new, never half, never a mixture."""

import subprocess
import sys
import time

import numpy as np
import pytest

from hmmjax import io
from hmmjax.io.folder import MARKER

LOOP = """
import sys, itertools, numpy as np
from hmmjax import io
for i in itertools.count(1):
    io.save_npz(sys.argv[1], {"x": np.full(200_000, i), "y": np.full(200_000, i)}, force=True)
    print(i, flush=True)
"""


def child(*arguments):
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", *map(str, arguments)], stdin=pipe, stdout=pipe, text=True)


def end(process):
    process.kill()
    process.communicate()


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    """Twenty kills at different moments of writing a file over and over: it always reads, and is of one version."""
    path = tmp_path / "a.npz"
    io.save_npz(path, {"x": np.zeros(200_000), "y": np.zeros(200_000)})
    for attempt in range(20):
        process = child(LOOP, path)
        process.stdout.readline()
        time.sleep(0.002 * attempt)  # somewhere in the second write or the third
        end(process)
        with np.load(path) as data:
            x, y = data["x"], data["y"]
        assert (x == x[0]).all() and (y == x[0]).all()
        assert x[0] >= 1


def test_claims(tmp_path):
    out = tmp_path / "out"
    with io.claim(out) as overwrite:
        assert not overwrite and (out / MARKER).exists()
        (out / "a").write_text("half")
        with pytest.raises(FileExistsError, match="another run is writing"), io.claim(out):
            pass
    assert not (out / MARKER).exists()
    with pytest.raises(FileExistsError, match="--force"), io.claim(out):
        pass
    with io.claim(out, force=True) as overwrite:
        assert overwrite
    with pytest.raises(RuntimeError), io.claim(tmp_path / "b"):
        raise RuntimeError("killed")
    with io.claim(tmp_path / "b") as overwrite:
        assert overwrite
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="is a file"), io.claim(tmp_path / "file"):
        pass


def test_a_killed_run_gives_its_folder_up(tmp_path):
    hold = "import sys, time; from hmmjax import io\nwith io.claim(sys.argv[1]):\n print(1, flush=True); time.sleep(60)"
    process = child(hold, tmp_path / "out")
    process.stdout.readline()
    with pytest.raises(FileExistsError, match="another run"), io.claim(tmp_path / "out"):
        pass
    end(process)
    with io.claim(tmp_path / "out") as overwrite:
        assert overwrite


def test_of_runs_at_once_one_writes(tmp_path):
    race = (
        "import sys, time\nfrom hmmjax import io\nprint('ready', flush=True)\nsys.stdin.readline()\n"
        "try:\n with io.claim(sys.argv[1]):\n  time.sleep(0.5); open(sys.argv[1] + '/' + sys.argv[2], 'w').close()\n"
        "except FileExistsError:\n sys.exit(3)\n"
    )
    runs = [child(race, tmp_path / "out", i) for i in range(4)]
    for run in runs:
        run.stdout.readline()
    for run in runs:
        run.stdin.write("\n")
        run.stdin.flush()
    for run in runs:
        run.communicate()
    codes = sorted(run.returncode for run in runs)
    assert codes == [0, 3, 3, 3] and len(list((tmp_path / "out").iterdir())) == 1

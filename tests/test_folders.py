"""Writing that can be interrupted, repeated and raced: the old or the new, never half, never a mixture."""

import os
import subprocess
import sys

import pytest

from hmmjax import io
from hmmjax.io.folder import MARKER

# One process that forks its victims: importing the library twenty times would take longer than the test.
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
print("whole")
"""


def child(*arguments):
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", *map(str, arguments)], stdin=pipe, stdout=pipe, text=True)


def end(process):
    process.kill()
    process.communicate()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    """Twenty kills at different moments of writing a file over and over: it always reads, and is of one version."""
    process = child(KILLS, tmp_path / "a.npz")
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0 and "whole" in out


def test_claims(tmp_path):
    out = tmp_path / "out"
    with io.claim(out) as overwrite:
        assert not overwrite and (out / MARKER).exists()
        (out / "a").write_text("half")
        with pytest.raises(FileExistsError, match="another process is writing"), io.claim(out):
            pass
    assert not (out / MARKER).exists()
    with pytest.raises(FileExistsError, match="--force"), io.claim(out):
        pass
    with io.claim(out, force=True) as overwrite:
        assert overwrite
    with pytest.raises(RuntimeError), io.claim(tmp_path / "empty"):
        raise RuntimeError("nothing written")
    assert not (tmp_path / "empty").exists()
    with pytest.raises(RuntimeError), io.claim(tmp_path / "b"):
        (tmp_path / "b" / "a").write_text("half")
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
    with pytest.raises(FileExistsError, match="another process"), io.claim(tmp_path / "out"):
        pass
    end(process)
    with io.claim(tmp_path / "out") as overwrite:
        assert overwrite


def test_locks(tmp_path):
    """A folder or file that is locked cannot be locked again, and can be afterwards."""
    file = tmp_path / "file"
    file.touch()
    for path in (tmp_path, file):
        with io.lock(path), pytest.raises(FileExistsError, match="wait"), io.lock(path, fix="wait"):
            pass
        with io.lock(path):
            pass
    with pytest.raises(FileExistsError, match="another process"), io.lock(tmp_path / "removed"):
        pass


RACE = """
import os, sys, time
from hmmjax import io

out, start = sys.argv[1], time.time() + 0.3
runs = []
for i in range(4):
    run = os.fork()
    if not run:
        time.sleep(start - time.time())
        try:
            with io.claim(out):
                time.sleep(0.5)
                open(os.path.join(out, str(i)), "w").close()
        except FileExistsError:
            os._exit(3)
        os._exit(0)
    runs.append(run)
print(sorted(os.waitstatus_to_exitcode(os.waitpid(run, 0)[1]) for run in runs))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="races forked processes")
def test_of_runs_at_once_one_writes(tmp_path):
    process = child(RACE, tmp_path / "out")
    out, _ = process.communicate(timeout=240)
    assert out.strip() == "[0, 3, 3, 3]" and len(list((tmp_path / "out").iterdir())) == 1

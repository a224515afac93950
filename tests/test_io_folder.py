"""Lock folders and reserve them for one run."""

import os
import subprocess
import sys

import numpy as np
import pytest
from files import put

from hmmjax import io
from hmmjax.io.folder import MARKER


def child(*arguments):
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", *map(str, arguments)], stdin=pipe, stdout=pipe, text=True)


def end(process):
    process.kill()
    process.communicate()


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


def test_a_killed_run_gives_its_folder_up(tmp_path):
    hold = "import sys, time; from hmmjax import io\nwith io.claim(sys.argv[1]):\n print(1, flush=True); time.sleep(60)"
    process = child(hold, tmp_path / "out")
    process.stdout.readline()
    with pytest.raises(FileExistsError, match="another process"), io.claim(tmp_path / "out"):
        pass
    end(process)
    with io.claim(tmp_path / "out") as overwrite:
        assert overwrite


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


def test_leftovers_of_a_killed_run_go_and_its_results_are_doubted(tmp_path):
    put(tmp_path, MARKER, "")
    put(tmp_path, "stabilized.npz", "")
    np.savez(tmp_path / "stabilized.npz", phases_01=[0, 1], frames_01=[0, 25])
    left = put(tmp_path / "pictures", ".video01.png.svkkr2f2.png", "half")
    mine = put(tmp_path / "pictures", ".keep", "")
    assert "has not finished" in " ".join(io.read(tmp_path)[0].notices)
    with io.claim(tmp_path) as overwrite:
        assert overwrite
    assert not left.exists() and mine.exists()

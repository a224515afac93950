"""Programs kept between runs of the command line."""

import os
import subprocess
import sys

import pytest

from hmmjax.cli import compilation_cache
from hmmjax.cli.compilation_cache import keep_programs


@pytest.fixture
def environment(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    return {"XDG_CACHE_HOME": str(tmp_path)}


def test_programs_are_kept_where_only_the_user_writes(environment, tmp_path):
    folder = keep_programs(environment)
    assert folder is not None and folder.is_relative_to(tmp_path / "hmmjax") and os.access(folder, os.W_OK)
    assert environment["JAX_COMPILATION_CACHE_DIR"] == str(folder)
    if os.name == "posix":
        assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("given", [{"JAX_COMPILATION_CACHE_DIR": "mine"}, {"HMMJAX_COMPILATION_CACHE": "0"}])
def test_settings_of_the_user_win(environment, tmp_path, given):
    environment |= given
    before = dict(environment)
    assert keep_programs(environment) is None and environment == before and not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_left_alone(environment, tmp_path):
    (tmp_path / "hmmjax").write_text("a file is in the way")
    before = dict(environment)
    assert keep_programs(environment) is None and environment == before


def test_the_oldest_programs_are_removed(environment, monkeypatch):
    folder = keep_programs(environment)
    for age, name in enumerate(("new", "old")):
        (folder / name).write_bytes(b"x" * 60)
        os.utime(folder / name, (1e9 - age, 1e9 - age))
    monkeypatch.setattr(compilation_cache, "MAX_BYTES", 100)
    del environment["JAX_COMPILATION_CACHE_DIR"]
    keep_programs(environment)
    assert [path.name for path in folder.iterdir()] == ["new"]


def test_a_second_process_reads_what_the_first_compiled(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"XDG_CACHE_HOME": str(tmp_path)}
    program = "from hmmjax.cli import compilation_cache as c; c.keep_programs(); import jax; jax.numpy.ones(3)"

    def programs() -> dict[str, int]:
        subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True)
        return {path.name: path.stat().st_mtime_ns for path in tmp_path.rglob("*-cache")}

    first = programs()
    assert first and programs() == first

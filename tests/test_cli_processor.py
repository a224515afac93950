"""The processor on which the commands compute."""

import os
import subprocess
import sys

import pytest

from hmmjax import native
from hmmjax.cli import processor
from hmmjax.cli.processor import stay_on_cpu


@pytest.fixture
def library(tmp_path, monkeypatch):
    path = tmp_path / "_recursions.so"
    monkeypatch.setattr(processor, "RECURSIONS", path)
    return path


def test_the_library_is_the_one_that_is_loaded():
    assert processor.RECURSIONS == native.LIBRARY


def test_commands_stay_on_the_cpu_with_compiled_recursions(library):
    environment: dict[str, str] = {}
    assert not stay_on_cpu(environment) and environment == {}
    library.touch()
    assert stay_on_cpu(environment) and environment == {"JAX_PLATFORMS": "cpu"}


@pytest.mark.parametrize("given", [{"JAX_PLATFORMS": "cuda"}, {"HMMJAX_NATIVE": "off"}])
def test_settings_of_the_user_win(library, given):
    library.touch()
    before = dict(given)
    assert not stay_on_cpu(given) and given == before


@pytest.mark.parametrize(("command", "expected"), [("evaluate", "cpu"), ("bench", "None")])
def test_the_command_line_chooses_before_jax_is_imported(command, expected):
    program = (
        "import sys; from hmmjax import cli; from hmmjax.cli import processor; from pathlib import Path\n"
        "assert 'jax' not in sys.modules; processor.RECURSIONS = Path(sys.executable)\n"
        "import os; sys.argv = ['hmmjax', sys.argv[1], '--help']\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print(os.environ.get('JAX_PLATFORMS'))"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "HMMJAX_NATIVE"))}
    environment["HMMJAX_COMPILATION_CACHE"] = "0"
    run = subprocess.run(
        [sys.executable, "-c", program, command], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == expected

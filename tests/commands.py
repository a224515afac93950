"""The command line in tests: how to run it, and the small world of files that `conftest.world` writes."""

from typer.testing import CliRunner

from hmmjax import io
from hmmjax.cli import app

PHASES, TOOLS = ("Alpha", "Beta", "Gamma"), ("Knife", "Fork")
NAMES = ("--phase-names", ",".join(PHASES), "--tool-names", ",".join(TOOLS))


def run(*arguments, code=0):
    """The command's result, whose exit code must be `code`."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output + result.stderr
    return result


def read_both(world, annotations="truth"):
    """Predictions and annotations of the world as tracks."""
    options = {"phase_names": PHASES, "tool_names": TOOLS}
    return io.read(world / "said", **options), io.read_annotations(world / annotations, **options)

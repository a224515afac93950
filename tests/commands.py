"""Run the command line in tests, and read the small files that `conftest.world` writes."""

from typer.testing import CliRunner

from hmmjax import io
from hmmjax.cli import app

PHASES, TOOLS = ("Alpha", "Beta", "Gamma"), ("Knife", "Fork")
NAMES = ("--phase-names", ",".join(PHASES), "--tool-names", ",".join(TOOLS))


def run(*arguments, code=0):
    """Run a command, check its exit code, and return its result."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output + result.stderr
    return result


def read_both(world, annotations="truth"):
    """Read predictions and annotations of the world as tracks."""
    options = {"phase_names": PHASES, "tool_names": TOOLS}
    return io.read(world / "said", **options), io.read_annotations(world / annotations, **options)

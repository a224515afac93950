"""The command line, a file for each command but the first two. Needs the ``data`` extra."""

from typing import Annotated

try:
    import rich as _rich  # noqa: F401
    import typer
except ImportError as error:
    raise SystemExit(f"{error}. The command line needs more than the core: pip install 'hmmjax[data]'") from None

from hmmjax.cli import commands, data, simulate, suggest

app = typer.Typer(
    name="hmmjax",
    help="Stabilise what a deep recogniser says of surgical phases and tools, with an exact coupled HMM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=commands.version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command()(commands.stabilize)
app.command()(commands.evaluate)
app.command()(suggest.suggest)
app.command()(simulate.simulate)
app.add_typer(data.app)


def main() -> None:
    """The entry point."""
    app()


__all__ = ["app", "main"]

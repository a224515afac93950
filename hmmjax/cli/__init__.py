"""The command line, one file per command and one for shared options. Needs the ``data`` extra.

The files of commands import only Typer and Rich at their top, so that ``hmmjax --help`` is fast; each command imports
what it runs.
"""

import sys
from typing import Annotated

try:
    import rich as _rich  # noqa: F401
    import typer
except ImportError as error:
    raise SystemExit(f"{error}. The command line needs more than the core: pip install 'hmmjax[data]'") from None

from hmmjax.cli import bench, compare, data, evaluate, explore, report, simulate, stabilize, suggest
from hmmjax.cli.compilation_cache import keep_programs
from hmmjax.cli.console import examples
from hmmjax.cli.processor import stay_on_cpu

app = typer.Typer(
    name="hmmjax",
    help="Stabilize a deep recognizer's predictions of surgical phases and tools with an exact coupled HMM.",
    epilog="Exit codes: 0 done, 1 unexpected error, 2 bad input or options. hmmjax --install-completion completes "
    "commands and options in your shell.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(value: bool) -> bool:
    if value:
        import hmmjax

        print(hmmjax.__version__)
        raise typer.Exit
    return value


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command(
    epilog=examples(
        "hmmjax stabilize predictions/ --annotations annotations/ --phase-names cholec80 --out results/",
        "hmmjax stabilize scores.npz --kind logits --model results/model.npz --out new-videos/ --online",
        "hmmjax stabilize resnet/ --fuse vit/ --fuse-kind logits --annotations labels/ --out fused/",
        "hmmjax stabilize --tools tools/ --annotations labels/ --transitions-from cholec80/ --out results/ --dry-run",
    )
)(stabilize.stabilize)
app.command(
    epilog=examples(
        "hmmjax evaluate predictions/ --truth annotations/ --phase-names cholec80 --relaxed",
        "hmmjax evaluate results/ --truth annotations/ --json > metrics.json",
    )
)(evaluate.evaluate)
app.command(
    epilog=examples(
        "hmmjax compare scores/ --annotations annotations/ --phase-names cholec80",
        "hmmjax compare scores.npz --annotations labels.npz --emissions confusion --emissions inflated --json",
    )
)(compare.compare)
app.command(
    epilog=examples(
        "hmmjax report results/", "hmmjax report results/ --out page/ --frames frames/ --costs costs.csv --force"
    )
)(report.report)
app.command(
    epilog=examples(
        "hmmjax explore annotations/ --out exploration/ --phase-names cholec80",
        "hmmjax explore labels.npz --videos 1-40 --out exploration/ --json",
    )
)(explore.explore)
app.command(epilog=examples("hmmjax bench", "hmmjax bench --videos 8 --minutes 10 --json --out bench.json"))(
    bench.bench
)
app.command(
    epilog=examples(
        "hmmjax suggest results/ --pictures frames/ --out to-label/",
        "hmmjax suggest predictions/ --stabilized results/stabilized.npz --pictures frames/ --out to-label/",
    )
)(suggest.suggest)
app.command(epilog=examples("hmmjax simulate --out simulated/", "hmmjax simulate --videos 4 --minutes 5 --out quick/"))(
    simulate.simulate
)
app.add_typer(data.app)


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] != ["bench"]:  # which times first calls, compilation included, on the processor that there is
        keep_programs()
        stay_on_cpu()
    app()


__all__ = ["app", "main"]

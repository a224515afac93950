"""The share of a processor's multiply-adds that the compiled recursions reach, and what floats would gain.

    JAX_PLATFORMS=cpu taskset -c 0 python benchmarks/arithmetic.py

The model has seven phases and seven tools (896 joint states), one video of 1,000 frames, one thread. The most that the
processor does is measured with independent multiply-adds in registers, in doubles. Writes
``benchmarks/results/arithmetic.json`` (or --out). Needs a C++ compiler.
"""

import argparse
import json
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import jax
from hmm import about
from hmm_model import draw, model
from hmm_peers import clock

from hmmjax import messages, native
from hmmjax._core import lowering
from hmmjax._core.batch import collect
from hmmjax._core.tables import tabulate
from hmmjax.native import build

HERE = Path(__file__).parent
FLAGS = {"avx512": ("-mavx512f", "-mavx512dq", "-mfma"), "avx2": ("-mavx2", "-mfma")}


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "arithmetic.json")
    args = parser.parse_args()
    instruction_set, reason = native.load()
    if not instruction_set:
        raise SystemExit(f"The compiled recursions are {reason}.")
    speeds, seconds = measure_processor(instruction_set), time_recursions(args.frames)
    rows = {}
    for name, count in multiply_adds(7, 7).items():
        micro = 1e6 * seconds[name] / args.frames
        rows[name] = {
            "microseconds per frame": round(micro, 3),
            "multiply-adds per frame": count,
            "share of the peak": round(count / (1e3 * micro) / speeds["double"]["peak"], 2),
        }
    rows["viterbi"] = {"microseconds per frame": round(1e6 * seconds["viterbi"] / args.frames, 3)}
    results = {
        **about("cpu"),
        "command": "python benchmarks/arithmetic.py",
        "multiply-adds per nanosecond, one thread": speeds,
        "recursions alone": rows,
    }
    print(json.dumps(results, indent=1))
    args.out.write_text(json.dumps(results, indent=1) + "\n")


def multiply_adds(num_phases: int, num_tools: int) -> dict[str, int]:
    """Return the multiply-adds per frame of each recursion, a multiplication alone counted as one.

    Per state: L for the transition of phases, one per tool, two for likelihoods and diagonals. Passes over long videos
    repeat the forward pass. Counts take two per tool and L for phases, and all but one tool's products once more.
    """
    states, phases, tools = num_phases * 2**num_tools, num_phases, num_tools
    forward = phases + tools + 2
    backward = phases + tools + 2
    return {
        "filter": states * forward,
        "posterior": states * (2 * forward + backward + 1),
        "e_step": states * (2 * forward + backward + 2 * tools + phases + tools - 1),
    }


def measure_processor(instruction_set: str) -> dict[str, dict[str, float]]:
    """Return multiply-adds per nanosecond of one thread, at most and in products with tools, by type."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "arithmetic"
        flags = ("-O3", *FLAGS.get(instruction_set, ()))
        reason = build.compile_program(program, [HERE / "arithmetic.cc"], flags)
        if reason:
            raise SystemExit(f"arithmetic.cc cannot be measured: {reason}.")
        return json.loads(subprocess.run([program], capture_output=True, text=True, check=True).stdout)


def time_recursions(num_frames: int) -> dict[str, float]:
    """Return seconds of each recursion, without emission tables and M-step."""
    params = model()
    batch = collect(draw(params, num_frames), None, None)
    p = jax.jit(lambda a, b: lowering.lower(a, tabulate(a, b), b.lengths))(params, batch)

    runs = {
        "filter": messages.native.filter,
        "posterior": partial(messages.native.log_normalizer, save="frames"),
        "e_step": partial(messages.native.log_normalizer, save="all"),
        "viterbi": messages.native.viterbi,
    }
    return {name: clock(partial(jax.jit(run), p))[1] for name, run in runs.items()}


if __name__ == "__main__":
    main()

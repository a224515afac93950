"""Time from the shell's prompt to the result: ``python benchmarks/end_to_end.py``.

Every command runs twice in a fresh process: "cold" with an empty folder of compiled programs, and "warm" after that.
The demo, which keeps no programs, runs once. All of it takes some five minutes on two idle cores. Recorded are
wall-clock and processor seconds, the programs compiled, and the seconds of each step. Real predictions are read from
the folder HMMJAX_DATA, default ../shared/data. Writes ``benchmarks/results/end_to_end.json``; with names of commands
as arguments, only these are measured again.
"""

import functools
import importlib
import json
import os
import platform
import re
import resource
import runpy
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "end_to_end.json"
DATA = Path(os.environ.get("HMMJAX_DATA", "../shared/data")).resolve()
LABELS = f"{DATA}/cholec80/labels_1fps.npz"
TRANSITIONS = ["--transitions-from", LABELS, "--transition-videos", "1-40"]
FRCNN = [f"{DATA}/frcnn/scores_1fps.npz", "--annotations", LABELS, "--leave-one-out", *TRANSITIONS]
TMRNET = [f"{DATA}/tmrnet/pred-phase", "--annotations", f"{DATA}/tmrnet/gt-phase", "--phase-names", "cholec80"]

#: Arguments of hmmjax by name; OUT is a new folder.
COMMANDS = {
    "stabilize TMRNet": ["stabilize", *TMRNET, *TRANSITIONS, "--emissions", "confusion", "--out", "OUT"],
    "stabilize TMRNet, auto": ["stabilize", *TMRNET, *TRANSITIONS, "--out", "OUT"],
    "stabilize Faster R-CNN": ["stabilize", *FRCNN, "--emissions", "confusion", "--out", "OUT"],
    "stabilize Faster R-CNN, auto": ["stabilize", *FRCNN, "--out", "OUT"],
    "compare TMRNet": ["compare", *TMRNET, *TRANSITIONS],
    "compare Faster R-CNN": ["compare", *FRCNN],
    "help": ["--help"],
}
#: Functions whose time is recorded, where they are looked up; those of one step do not call each other.
STEPS = {
    "read files": [f"hmmjax.cli.reading:{name}" for name in ("read_predictions", "read_truth", "read_transitions")],
    "align files": ["hmmjax.stabilize.pipeline:prepare_inputs", "hmmjax.stabilize.rank:prepare_ranking"],
    "learn": ["hmmjax.stabilize.pipeline:_plan"],
    "infer": ["hmmjax.stabilize.pipeline:infer_plan"],
    "score": [
        f"hmmjax.stabilize.pipeline:{name}" for name in ("calibration_effect", "compare_recognizers", "_warnings")
    ],
    "write files, pictures included": ["hmmjax.stabilize:write_results"],
    "pictures": ["hmmjax.stabilize.write:picture"],
    "compare families": ["hmmjax.stabilize.rank:compare_families"],
}


def main(names: list[str]) -> None:
    """Measure all commands, or those named; print and write."""
    results = json.loads(RESULTS.read_text()) if names and RESULTS.exists() else {"runs": {}}
    results |= {
        "command": "python benchmarks/end_to_end.py",
        "device": f"{_processor()}, {os.cpu_count()} cores ({platform.machine()})",
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("jax", "numpy", "matplotlib")}},
        "unit": "seconds",
    }
    for name in names or [*COMMANDS, "README", "demo", "demo, quick"]:
        results["runs"][name] = measure(name)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(results["runs"][name], indent=1), flush=True)


def measure(name: str) -> dict[str, Any]:
    """Return the results of a command, cold and warm."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for state in ("cold",) if name.startswith("demo") else ("cold", "warm"):
            load, out = os.getloadavg()[0], f"{folder}/{state}"
            environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
            environment |= {"XDG_CACHE_HOME": f"{folder}/cache", "PYTHONPATH": str(ROOT)}
            if name.startswith("demo"):
                command = [sys.executable, "-m", "models.demo", "--out", out, *["--quick"] * name.endswith("quick")]
            elif name == "help":
                command = [sys.executable, "-m", "hmmjax", "--help"]
            else:
                command = [sys.executable, __file__, "--inside", name, out]
            start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode:
                raise RuntimeError(f"{name} failed:\n{done.stdout}\n{done.stderr}")
            found[state] = {
                "wall": round(time.perf_counter() - start, 2),
                "processor": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
                **_details(name, done.stdout),
                "load average before": round(load, 2),
            }
    return found


def _details(name: str, output: str) -> dict[str, Any]:
    """Return the steps that a command prints."""
    if name.startswith("demo"):
        return {"steps": {step: int(n) for step, n in re.findall(r"^\d\. (\w+) +(\d+) s ", output, re.MULTILINE)}}
    return json.loads(output.splitlines()[-1]) if name != "help" else {}


def inside(name: str, out: str) -> None:
    """Run a command in this process and print its steps and compiled programs as the last line."""
    begin = time.perf_counter()
    from hmmjax.cli.compilation_cache import keep_programs

    if name != "README":  # import hmmjax keeps no programs
        keep_programs()
    import jax

    steps = {"import jax": time.perf_counter() - begin}
    compiled: list[float] = []

    def listen(event: str, seconds: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    if name == "README":
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], {})
    else:
        for step, places in STEPS.items():
            for place in places:
                _record(place, step, steps)
        sys.argv = ["hmmjax", *(out if x == "OUT" else x for x in COMMANDS[name])]
        try:
            runpy.run_module("hmmjax", run_name="__main__")
        except SystemExit as error:
            if error.code:
                raise
    print()
    compilation = {"programs compiled or read": len(compiled), "compiling or reading them": round(sum(compiled), 2)}
    print(json.dumps({"steps": {step: round(seconds, 2) for step, seconds in steps.items()}, **compilation}))


def _record(place: str, step: str, steps: dict[str, float]) -> None:
    """Add the time of a function's calls to a step."""
    module, _, function = place.partition(":")
    owner = importlib.import_module(module)
    inner = getattr(owner, function)

    @functools.wraps(inner)
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return inner(*args, **kwargs)
        finally:
            steps[step] = steps.get(step, 0.0) + time.perf_counter() - start

    setattr(owner, function, timed)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(*sys.argv[2:4])
    else:
        main(sys.argv[1:])

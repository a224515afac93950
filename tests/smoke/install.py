"""Install wheel and sdist into clean environments: ``python tests/smoke/install.py [python3.11 ...]``.

Builds both, installs the wheel (and the sdist, in the first environment) with the report extra for every Python given
or found, and runs the smoke test in an empty folder. Needs a package index; exits non-zero on the first failure.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.11", "3.12", "3.13")

SMOKE = r"""
import pathlib, shutil, subprocess, sys
import hmmjax
assert "site-packages" in hmmjax.__file__, hmmjax.__file__
if shutil.which("g++"):
    assert hmmjax.diagnostics.backend().startswith("native"), hmmjax.diagnostics.backend()
from hmmjax import io
from hmmjax.simulate import PHASES, TOOLS, simulate_surgeries
arrays = {"phase_names": list(PHASES), "tool_names": list(TOOLS)}
truth = dict(arrays)
for n, s in enumerate(simulate_surgeries(3, 1, minutes=1.0), 1):
    arrays[f"phases_{n}"], arrays[f"tools_{n}"] = s.phase_probabilities, s.tool_probabilities
    truth[f"phases_{n}"], truth[f"tools_{n}"] = s.phases, s.tools
io.save_npz("predicted.npz", arrays)
io.save_npz("truth.npz", truth)
def run(*a):
    subprocess.run([str(pathlib.Path(sys.executable).parent / "hmmjax"), *a], check=True)
run("--version")
run("stabilize", "predicted.npz", "--annotations", "truth.npz", "--out", "results", "--no-pictures", "--folds", "2")
run("compare", "predicted.npz", "--annotations", "truth.npz", "--emissions", "confusion", "--no-hidden-phases")
run("report", "results", "--no-intervals", "--no-pictures")
run("explore", "truth.npz", "--out", "explored")
assert pathlib.Path("results/report/report.html").stat().st_size > 100_000
print("smoke test passed:", sys.version.split()[0], hmmjax.__version__)
"""


def pythons(given: list[str]) -> list[str]:
    """Return the interpreters to test: those given, otherwise every known version on the path that runs."""
    found = [path for version in VERSIONS if (path := shutil.which(f"python{version}"))]
    return given or [path for path in found if not subprocess.run([path, "--version"], capture_output=True).returncode]


def run(*command: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    subprocess.run([str(c) for c in command], check=True, cwd=cwd, env=env)


def main() -> None:
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        run(sys.executable, "-m", "venv", work / "build")
        run(work / "build/bin/python", "-m", "pip", "install", "--quiet", "build", env=clean)
        run(work / "build/bin/python", "-m", "build", "--outdir", work / "dist", ROOT, env=clean)
        wheel, sdist = next((work / "dist").glob("*.whl")), next((work / "dist").glob("*.tar.gz"))
        jobs = [(python, wheel) for python in pythons(sys.argv[1:])]
        if not jobs:
            raise SystemExit("No supported Python was found on the path. Pass the interpreters to test as arguments.")
        for i, (python, package) in enumerate([*jobs, (jobs[0][0], sdist)]):
            venv, empty = work / f"venv{i}", work / f"empty{i}"
            empty.mkdir()
            run(python, "-m", "venv", venv, env=clean)
            run(venv / "bin/python", "-m", "pip", "install", "--quiet", f"{package}[report]", env=clean)
            run(venv / "bin/python", "-c", SMOKE, cwd=empty, env=clean)
            print(f"{package.name} on {python}: installed and ran", flush=True)
            shutil.rmtree(venv)


if __name__ == "__main__":
    main()

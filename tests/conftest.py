"""Shared by all tests: annotations are enforced, warnings are errors (pyproject.toml), real data is optional."""

import os
from pathlib import Path

import jaxtyping
import numpy as np
import pytest

# Before the first import of hmmjax, so that every annotation in it is checked on every call.
jaxtyping.install_import_hook("hmmjax", "typecheck.check")

# Most of the tests' time is compilation. Workers, child processes and later runs share compiled programs.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax  # noqa: E402  (reads the three settings above)

MAX_RESIDENT = 4 * 2**30
"""Bytes of memory up to which a test process keeps its compiled programs."""

DATA = Path(os.environ.get("HMMJAX_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_programs():
    """Drop compiled programs once they take gigabytes: those of all modules would not fit."""
    yield
    resident = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else None
    if resident is None or resident * os.sysconf("SC_PAGE_SIZE") > MAX_RESIDENT:
        jax.clear_caches()


@pytest.fixture
def unchecked():
    """Do not enforce annotations, for tests of errors: users run without the type checker."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real files; tests that need it are skipped without it."""
    if not DATA.is_dir():
        pytest.skip(f"no real data at {DATA}: set HMMJAX_DATA to the folder that holds cholec80/, tmrnet/, frcnn/")
    return DATA


@pytest.fixture(scope="session")
def tmrnet(data_dir):
    """True and predicted phases of TMRNet's test videos 41-60, two lists of int arrays."""
    tracks = []
    for folder in ("gt-phase", "pred-phase"):
        files = sorted((data_dir / "tmrnet" / folder).glob("*.txt"))
        tracks.append([np.loadtxt(f, int)[:, 1] for f in files])
    return tuple(tracks)


@pytest.fixture(scope="session")
def frcnn(data_dir):
    """True tools and Faster R-CNN scores of videos 61 and 62, two lists of arrays (n, 7)."""
    with (
        np.load(data_dir / "cholec80" / "labels_1fps.npz") as labels,
        np.load(data_dir / "frcnn" / "scores_1fps.npz") as scores,
    ):
        return [labels[f"tools_{v}"] for v in (61, 62)], [scores[f"score_{v}"] for v in (61, 62)]


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """Five videos of files: true phases and tools, and a recognizer that errs in one frame of six."""
    import commands  # not above: it imports hmmjax, whose annotations are to be checked

    folder = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    arrays = {"phase_names": np.array(commands.PHASES), "tool_names": np.array(commands.TOOLS)}
    for kind in ("truth", "said"):
        (folder / kind).mkdir()
    for v in range(1, 6):
        n = 40 + 5 * v
        phases = np.minimum(np.arange(n) * 3 // n, 2)
        tools = np.stack([phases == 1, (np.arange(n) // 8) % 2 == 0], 1).astype(int)
        said = np.where(rng.random(n) < 1 / 6, rng.integers(0, 3, n), phases)
        scores = np.clip(np.abs(tools - (rng.random(tools.shape) < 1 / 6)) * 0.6 + rng.random(tools.shape) * 0.4, 0, 1)
        arrays[f"phases_{v}"], arrays[f"tools_{v}"] = phases, tools
        text = "".join(f"{25 * i}\t{commands.PHASES[p]}\n" for i, p in enumerate(phases))
        (folder / "truth" / f"video{v:02d}-phase.txt").write_text("Frame\tPhase\n" + text)
        text = "".join(f"{25 * i}\t{a}\t{b}\n" for i, (a, b) in enumerate(tools))
        (folder / "truth" / f"video{v:02d}-tool.txt").write_text("Frame\t" + "\t".join(commands.TOOLS) + "\n" + text)
        text = "".join(f"{25 * i}\t{p}\n" for i, p in enumerate(said))
        (folder / "said" / f"video{v:02d}-phase.txt").write_text(text)
        text = "".join(f"{25 * i},{b:.4f},{a:.4f}\n" for i, (a, b) in enumerate(scores))
        (folder / "said" / f"video{v:02d}-tool.csv").write_text("Frame,Fork,Knife\n" + text)
    np.savez(folder / "labels.npz", **arrays)
    return folder


@pytest.fixture(scope="session")
def both(world, tmp_path_factory):
    """The plain command on phases and tools of all five videos."""
    import commands

    out = tmp_path_factory.mktemp("out") / "all"
    result = commands.run("stabilize", world / "said", "--annotations", world / "truth", *commands.NAMES, "--out", out)
    return out, result

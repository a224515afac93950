"""Shared by all tests: annotations are enforced, warnings are errors (pyproject.toml), real data is optional."""

import os
from pathlib import Path

import jaxtyping
import numpy as np
import pytest

# Before the first import of hmmjax, so that every annotation in it is checked on every call.
jaxtyping.install_import_hook("hmmjax", "typecheck.check")

# Most of the tests' time is compilation: workers, child processes and later runs share what they compile.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax  # noqa: E402  (reads the three settings above)

DATA = Path(os.environ.get("HMMJAX_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_programs():
    """A module's programs go with it: together they would hold gigabytes."""
    yield
    jax.clear_caches()


@pytest.fixture
def unchecked():
    """Annotations not enforced: for tests of the errors that users see, who run without the type checker."""
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

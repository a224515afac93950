"""Fixtures of the recognizers' tests, which need the `vision` extra; without it they are skipped."""

import os
from pathlib import Path

import numpy as np
import pytest

PARITY = Path(
    os.environ.get("HMMJAX_PARITY")
    or Path(os.environ.get("HMMJAX_DATA", Path(__file__).parents[3] / "shared" / "data")).parent / "parity"
)


@pytest.fixture(scope="session")
def parity():
    """torchvision's outputs (an open npz), and the module that makes the weights and images for them."""
    if not (PARITY / "torchvision_reference.npz").exists():
        pytest.skip(f"no torchvision_reference.npz in {PARITY}: set HMMJAX_PARITY to the folder that holds it")
    import importlib.util

    spec = importlib.util.spec_from_file_location("reference", PARITY / "make_torchvision_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with np.load(PARITY / "torchvision_reference.npz") as arrays:
        yield arrays, module


@pytest.fixture(scope="package", autouse=True)
def quick_compilation(tmp_path_factory):
    """Share compiled programs among tests, and skip most optimizations: each program runs once or twice."""
    jax = pytest.importorskip("jax")
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("programs")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
    jax.config.update("jax_disable_most_optimizations", False)

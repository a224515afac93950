"""Keep compiled programs between runs of the command line, in a folder of the user's.

Compilation takes most of the time of a short run. JAX can keep programs on disk, but does so only if it is told where.
A command may tell it, because the process is its own; ``import hmmjax`` does not, because the setting is global: it
would also apply to the importing program's own functions.
"""

import contextlib
import hashlib
import os
import platform
import sys
from collections.abc import MutableMapping
from pathlib import Path

OPT_OUT = "HMMJAX_COMPILATION_CACHE"
"""Set this environment variable to 0 to keep nothing."""

MAX_BYTES = 2**29
"""Beyond this size of the folder, the programs that were compiled first are removed."""


def keep_programs(environment: MutableMapping[str, str] = os.environ) -> Path | None:
    """Make JAX, which must not be imported yet, keep compiled programs in the user's cache folder.

    Nothing changes if a folder is set already (``JAX_COMPILATION_CACHE_DIR``), if `OPT_OUT` is 0, or if the folder
    cannot be written to.

    Args:
        environment: environment variables, which JAX reads when it is imported.

    Returns:
        The folder, or None if nothing changed.
    """
    if "JAX_COMPILATION_CACHE_DIR" in environment or environment.get(OPT_OUT) == "0":
        return None
    folder = _user_cache(environment) / "hmmjax" / "programs" / _machine()
    try:
        # Programs are run as they are read, so other users must not write them.
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_oldest(folder)
    except OSError:
        return None
    if not os.access(folder, os.W_OK):
        return None
    environment["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    environment.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    return folder


def _user_cache(environment: MutableMapping[str, str]) -> Path:
    if sys.platform == "win32" and (local := environment.get("LOCALAPPDATA")):
        return Path(local)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    given = environment.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


def _machine() -> str:
    """Return a name for the processor: machines that share a home folder may not be able to run the same programs."""
    features = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        features += "".join(next((line for line in lines if line.startswith(("flags", "Features"))), ""))
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"


def _remove_oldest(folder: Path) -> None:
    files = sorted((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(folder))
    excess = sum(size for _, size, _ in files) - MAX_BYTES
    for _, size, path in files:
        if excess <= 0:
            break
        Path(path).unlink(missing_ok=True)
        excess -= size

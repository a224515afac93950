"""Compile the recursions: `python -m hmmjax.native.build`, and the build hook of the package (hatch_build.py).

It needs g++ or clang++ with C++17 and jaxlib's headers, and the standard library only. The environment variable CXX
names another compiler.
"""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LIBRARY = HERE / "_recursions.so"

FLAGS = [
    "-std=c++17", "-fvisibility=hidden", "-ffp-contract=fast", "-Wall", "-Wextra",
    # GCC 12 takes its own intrinsics for uses of undefined values.
    "-Wno-maybe-uninitialized", "-Wno-psabi", "-Wno-ignored-attributes",
]  # fmt: skip
X86 = {"avx512.cc": ["-mavx512f", "-mavx512dq", "-mfma"], "avx2.cc": ["-mavx2", "-mfma"]}


def build(library: Path = LIBRARY) -> str:
    """Compile the library; return "" or, if that is impossible here, the reason."""
    # Linked elsewhere and moved into place: a process that has loaded the old library keeps it.
    linked = library.with_suffix(f".{os.getpid()}.so")
    reason = compile_program(linked, sorted(HERE.glob("*.cc")), ("-O3", "-fPIC", "-shared"))
    if not reason:
        linked.replace(library)
    return reason


def compile_program(program: Path, sources: list[Path], flags: tuple[str, ...]) -> str:
    """Compile and link sources; return "" or, if that is impossible here, the reason."""
    compiler = os.environ.get("CXX") or next((c for c in ("g++", "clang++") if shutil.which(c)), "")
    headers = include_dir()
    if not compiler:
        return "there is no C++ compiler (g++ or clang++)"
    if headers is None:
        return "jaxlib's headers were not found"
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    with tempfile.TemporaryDirectory() as folder:
        objects = [Path(folder) / f"{source.stem}.o" for source in sources]
        jobs = []
        for source, target in zip(sources, objects, strict=True):
            own = X86.get(source.name, []) if x86 else []
            command = [compiler, *FLAGS, *own, *flags, "-I", str(HERE), "-isystem", str(headers), "-c", str(source)]
            jobs.append(subprocess.Popen([*command, "-o", str(target)], stderr=subprocess.PIPE, text=True))
        errors = [job.communicate()[1] for job in jobs]
        if not any(job.returncode for job in jobs):
            link = subprocess.run(
                [compiler, *flags, *map(str, objects), "-o", str(program)], stderr=subprocess.PIPE, text=True
            )
            return f"{compiler} failed to link: {link.stderr.strip()[-2000:]}" if link.returncode else ""
        return f"{compiler} failed: {''.join(errors).strip()[-2000:]}"


def include_dir() -> Path | None:
    """Return the folder of XLA's headers in the installed jaxlib; None without them."""
    spec = importlib.util.find_spec("jaxlib")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "include"
    return folder if (folder / "xla" / "ffi" / "api" / "ffi.h").exists() else None


if __name__ == "__main__":
    reason = build()
    print(reason or f"built {LIBRARY.name}")
    sys.exit(bool(reason))

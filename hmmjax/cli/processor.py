"""Choose the processor on which the commands compute.

The compiled recursions learn from a hundred operations in seconds, less than the programs of a GPU take to compile. A
command that stays on the CPU also takes no memory from a training that runs on the GPU, of which JAX reserves three
quarters as soon as it is used.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path

RECURSIONS = Path(__file__).parents[1] / "native" / "_recursions.so"
"""`hmmjax.native.LIBRARY`, which cannot be asked before JAX is imported."""


def stay_on_cpu(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Make JAX, which must not be imported yet, use the CPU if the compiled recursions are there.

    Nothing changes if processors are chosen already (``JAX_PLATFORMS``), or if the recursions are switched off.

    Args:
        environment: environment variables, which JAX reads when it is imported.

    Returns:
        Whether it uses the CPU because of this call.
    """
    if environment.get("JAX_PLATFORMS") or environment.get("HMMJAX_NATIVE") == "off" or not RECURSIONS.exists():
        return False
    environment["JAX_PLATFORMS"] = "cpu"
    return True

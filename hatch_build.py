"""Build hook of the package: compiles the recursions for CPUs, if there is a compiler; without them it installs too."""

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileRecursions(BuildHookInterface):
    """Compile hmmjax/native into the wheel, or in place for an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; tag the wheel with the platform if that worked."""
        script = runpy.run_path(str(Path(self.root) / "hmmjax" / "native" / "build.py"))
        reason = script["build"]()
        if reason:
            script["LIBRARY"].unlink(missing_ok=True)
            self.app.display_warning(f"hmmjax is installed without its compiled part, because {reason}.")
            return
        build_data["artifacts"].append("hmmjax/native/_recursions.so")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

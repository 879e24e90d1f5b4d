"""Build hook: the CPU's kernels go into the wheel where there is a C++ compiler."""

from __future__ import annotations

import os
import runpy
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Also in a source distribution, where the links of the package are folders.
BUILDER = "graphgen/lowering/cpu_kernels/build_kernels.py"


class KernelsHook(BuildHookInterface):  # pyright: ignore[reportMissingTypeArgument]
    """Builds the library beside its sources; without a compiler the wheel has none."""

    def dependencies(self) -> list[str]:
        """XLA's headers come with jaxlib; not needed where nothing is compiled."""
        if self.target_name != "wheel" or self._builder()["compiler"]() is None:
            return []
        pinned = self.metadata.core.dependencies
        return [item for item in pinned if item.startswith("jaxlib")]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as one for this machine."""
        if self.target_name != "wheel":
            return
        builder = self._builder()
        builder["main"]()
        # One of other sources, which would not be loaded, is left where it is.
        if version != "editable" and builder["is_current"]():
            build_data["artifacts"].append("graphgen/lowering/cpu_kernels/*.so")
            build_data["pure_python"] = False
            # The library has no part of CPython: one wheel a platform. Whoever builds for an older
            # C library or another machine (CXX) names the platform, as tests/wheels.py does.
            platform = os.environ.get("GRAPHGEN_WHEEL_PLATFORM") or sysconfig.get_platform()
            build_data["tag"] = "py3-none-" + platform.replace("-", "_").replace(".", "_")

    def _builder(self) -> dict[str, Any]:
        # The package cannot be imported before it is installed.
        sys.dont_write_bytecode = True
        return runpy.run_path(str(Path(self.root) / BUILDER))

"""A program of a device folder on the devices, through JAX's plugin, without compiling it.

The plugin asks ``libneuronxla.neuronx_cc`` to compile what it is given; while a program is loaded,
that is answered with the NEFF of the folder. Written for the public sources that replace the same
hook, and tried with a stand-in for the plugin alone.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.ir import Function, Module
from graphgen.lowering.canonical_hash import Compilation, canonical_hash
from graphgen.lowering.cpu import CpuProgram, pjrt
from graphgen.lowering.cpu.backend import CpuBackend
from graphgen.lowering.cpu.program import describe_program
from graphgen.lowering.neuron.neff import wrap_neff
from graphgen.lowering.neuronx_cc.program_plan import HLO
from graphgen.runtime.artifact.device_folder import DeviceFolder, require_trust
from graphgen.runtime.artifact.device_requirements import (
    HOOK,
    PLATFORM,
    require_cores,
    require_device,
)

# AWS's module has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false


def load_program(folder: DeviceFolder, module: Module, function: Function) -> CpuProgram:
    """Load the NEFF of a program on the devices of the platform in use.

    Raises:
        GraphgenError: GG0703 for a program that the folder was not compiled for.
    """
    neff = folder.neffs.get(function.name)
    how = Compilation(str(folder.manifest["target"]), int(str(folder.manifest["lnc"])))
    if neff is None or folder.key(function.name) != canonical_hash(module, function, how):
        raise GraphgenError(
            "GG0703",
            f"{folder.path} was not compiled for this program {function.name}",
            help="compile the module again, or load the one that was compiled",
        )
    text = pjrt.stablehlo_of(folder.read(neff.with_name(HLO)))
    with _compiled_as(folder.read(neff)):
        executable = pjrt.compile_text(text, module.ranks)
    return describe_program(module, function, executable)


@contextmanager
def _compiled_as(neff: bytes) -> Generator[None]:
    """Answer the plugin's request to compile with a NEFF."""
    hook: Any = import_module(HOOK)
    before = hook.neuronx_cc

    def neuronx_cc(code: bytes, *_: object, **__: object) -> tuple[int, bytes]:
        return 0, wrap_neff(bytes(code), neff)

    hook.neuronx_cc = neuronx_cc
    try:
        yield
    finally:
        hook.neuronx_cc = before


class NeuronBackend:
    """Runs the programs of a folder on the devices of this machine.

    Args:
        folder: of compiled programs, opened.
        environment: of this process; compared with the folder's ``env.sh``.
        trust: load programs that this user has not signed, too.

    Raises:
        GraphgenError: GG0703 without a signature of this user, GG1005 for packages,
            variables or cores that are missing.
    """

    def __init__(
        self,
        folder: DeviceFolder,
        environment: Mapping[str, str] | None = None,
        *,
        trust: bool = False,
    ) -> None:
        require_trust(folder, trust=trust)
        require_device(folder, os.environ if environment is None else environment)
        self.folder = folder
        self._programs: dict[str, CpuProgram] = {}
        pjrt.use_platform(PLATFORM)

    def __call__(
        self, module: Module, function: Function, inputs: Sequence[Mapping[str, Array]]
    ) -> list[dict[str, Array]]:
        """Run a program on all ranks; as of :class:`graphgen.exec.backend.Backend`.

        Raises:
            GraphgenError: GG0703 for a program that the folder does not have, GG1005 for too few
                cores.
        """
        with pjrt.on_platform(PLATFORM):
            require_cores(len(inputs))
            program = self._programs.get(function.name)
            if program is None:
                program = self._programs[function.name] = load_program(
                    self.folder, module, function
                )
            return program.run_numpy(inputs)

    def noise(self, module: Module) -> float:
        """As of the CPU: a device rounds sums in orders of its own, too."""
        return CpuBackend().noise(module)

"""A program of a device folder on the devices, through JAX's plugin, without compiling it.

The plugin asks ``libneuronxla.neuronx_cc`` to compile what it is given; while a program is loaded,
that is answered with the NEFF of the folder. Written for the public sources that replace the same
hook, and tried with a stand-in for the plugin alone.
"""

# AWS's module has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module
from graphgen.lowering.canonical_hash import Compilation, canonical_hash
from graphgen.lowering.cpu import CpuProgram, pjrt
from graphgen.lowering.cpu.program import describe_program
from graphgen.lowering.neuron.compile.program_plan import HLO
from graphgen.lowering.neuron.wrapped_neff import wrap_neff
from graphgen.runtime.neuron.device_folder import DeviceFolder
from graphgen.runtime.neuron.device_requirements import HOOK


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
    text = pjrt.stablehlo_of(neff.with_name(HLO).read_bytes())
    with _compiled_as(neff.read_bytes()):
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

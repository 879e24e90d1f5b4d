"""CPU executables through PJRT: programs, processes, stages of a pipeline, facts of the machine."""

from __future__ import annotations

from graphgen.lowering.cpu.pjrt import configure, cpu_key
from graphgen.lowering.cpu.program import CpuProgram, DeviceValue, compile_program, load_program

__all__ = [
    "CpuProgram",
    "DeviceValue",
    "compile_program",
    "configure",
    "cpu_key",
    "load_program",
]

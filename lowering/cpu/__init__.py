"""Running programs on the CPU through PJRT."""

from __future__ import annotations

from lowering.cpu.evaluator import CpuEvaluator
from lowering.cpu.pjrt import configure, cpu_key
from lowering.cpu.program import CpuProgram, DeviceValue, compile_program, load_program

__all__ = [
    "CpuEvaluator",
    "CpuProgram",
    "DeviceValue",
    "compile_program",
    "configure",
    "cpu_key",
    "load_program",
]

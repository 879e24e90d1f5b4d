"""Programs run by XLA on this CPU, for whoever compares programs: any level, symbols bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.analysis import fingerprint
from graphgen.eval import Array
from graphgen.ir import DType, Function, Module
from graphgen.ir.clone import clone_function
from graphgen.ir.dtype import decode, encode
from graphgen.lowering.cpu import pjrt
from graphgen.lowering.cpu.program import CpuProgram, compile_program
from graphgen.ops import OPS
from graphgen.passes.core import Rewriter
from graphgen.passes.legalize.legalize import Legalize

# XLA takes sums in an order of its own and keeps what it fuses in wider types. So many steps of the
# narrowest type, relative to the largest value, two programs of one meaning may be apart: in wide
# types errors of long sums add up, in narrow ones all but the last few roundings are in f32.
WIDE_STEPS, NARROW_STEPS = 64, 4


@dataclass(slots=True)
class CpuEvaluator:
    """Compiles each program once, and runs it on as many virtual devices as there are ranks.

    Attributes:
        devices: how many there will be at most; JAX fixes their number when it starts.
    """

    devices: int = 8
    # By fingerprint: passes change functions in place.
    _programs: dict[str, CpuProgram] = field(default_factory=dict[str, CpuProgram])

    def __call__(
        self, module: Module, function: Function, inputs: Sequence[Mapping[str, Array]]
    ) -> list[dict[str, Array]]:
        """Run on all ranks; composites are inlined first.

        Raises:
            GraphgenError: GG0401 for an op that has no StableHLO form.
        """
        alone, ready = _ready(module, function)
        key = fingerprint(alone)
        program = self._programs.get(key)
        if program is None:
            pjrt.configure(max(self.devices, len(inputs)))
            program = self._programs[key] = compile_program(alone, ready)
        return program.run_numpy(inputs)

    def noise(self, module: Module) -> float:
        """Steps of the narrowest float in the module; see :data:`WIDE_STEPS`."""
        found = {
            result.type.dtype
            for function in module.functions.values()
            for op in function.block
            for result in op.results
            if result.type.dtype.is_float
        }
        return max((_noise(dtype) for dtype in found), default=0.0)


def _ready(module: Module, function: Function) -> tuple[Module, Function]:
    """A module of this program alone that can be lowered."""
    alone = Module(module.name, module.level, dict(module.mesh), {}, dict(module.interface))
    copy = alone.add(clone_function(function))
    if any(OPS[op.name].composite for op in copy.block):
        # Rows are not padded: that is for speed, and would round other programs than were given.
        Legalize(min_rows=1).run(alone, Rewriter("legalize"))
    return alone, alone.function(function.name)


def _noise(dtype: DType) -> float:
    return (WIDE_STEPS if dtype.bits > 16 else NARROW_STEPS) * _step(dtype)


def _step(dtype: DType) -> float:
    """The distance from 1 to the next float of a type."""
    bits = int.from_bytes(encode(dtype, 1.0), "little")
    return float(decode(dtype, (bits + 1).to_bytes(dtype.bytes, "little"))[0]) - 1.0

"""CPU backend: programs compiled by XLA for this CPU, at any level, with symbols bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.analysis import called, fingerprint
from graphgen.eval import Array
from graphgen.ir import DType, Function, Module, Op, attrs_of
from graphgen.ir.attrs import EMPTY
from graphgen.ir.clone import clone_function
from graphgen.ir.dtype import decode, encode
from graphgen.lowering.cpu import pjrt
from graphgen.lowering.cpu.isolated_run import ISOLATED, IsolatedRuns
from graphgen.lowering.cpu.program import (
    CpuProgram,
    WrittenProgram,
    compile_program,
    write_program,
)
from graphgen.lowering.cpu.xla_faults import clamp_nested_slices
from graphgen.lowering.hlo.annotations import OPCODE, SHAPE
from graphgen.ops import OPS
from graphgen.ops.admitted_calls import PARTITIONER_MARKER
from graphgen.passes.core import Rewriter
from graphgen.passes.legalize.cpu_decompositions import is_known
from graphgen.passes.legalize.cpu_products import one_free_dimension
from graphgen.passes.legalize.legalize import Legalize

# XLA reorders sums and keeps fused values in wider types. Noise of two equal programs, in steps of
# the narrowest type relative to the largest value: in wide types errors of long sums add up, in
# narrow ones all but the last few roundings are in f32.
WIDE_STEPS, NARROW_STEPS = 64, 4


# Annotations of ops in a module that XLA optimized.
_OPTIMIZED = frozenset((OPCODE, SHAPE))
# Annotations of a collective among partitions.
_CHANNELS = frozenset(("hlo.channel_id", "hlo.use_global_device_ids"))


@dataclass(slots=True)
class IsolatedPrograms:
    """Writes each program once, and runs it in a child process.

    Attributes:
        runs: the child.
    """

    runs: IsolatedRuns
    # By fingerprint: passes change functions in place.
    _written: dict[str, WrittenProgram] = field(default_factory=dict[str, WrittenProgram])

    def run(
        self, module: Module, function: Function, inputs: Sequence[Mapping[str, Array]]
    ) -> list[dict[str, Array]]:
        """Run on all ranks what :func:`alone_for_xla` made; see :meth:`IsolatedRuns.run`."""
        key = fingerprint(module)
        written = self._written.get(key)
        if written is None:
            without_channels(module)
            written = self._written[key] = write_program(module, function)
        return self.runs.run(written, inputs)


@dataclass(slots=True)
class CpuBackend:
    """Compiles each program once, and runs it on as many virtual devices as there are ranks.

    Attributes:
        devices: the least number of virtual devices; JAX fixes it when it starts.
    """

    devices: int = 8
    # By fingerprint: passes change functions in place.
    _programs: dict[str, CpuProgram] = field(default_factory=dict[str, CpuProgram])
    _isolated: IsolatedPrograms = field(default_factory=lambda: IsolatedPrograms(ISOLATED))

    def __call__(
        self, module: Module, function: Function, inputs: Sequence[Mapping[str, Array]]
    ) -> list[dict[str, Array]]:
        """Run on all ranks; composites are inlined first.

        Raises:
            GraphgenError: GG0401 for an op that has no StableHLO form.
        """
        alone, ready = alone_for_xla(module, function)
        if "format" in module.meta:
            # Of another tool.
            return self._isolated.run(alone, ready, inputs)
        key = fingerprint(alone)
        program = self._programs.get(key)
        if program is None:
            pjrt.configure(max(self.devices, len(inputs)))
            program = self._programs[key] = compile_program(alone, ready)
        return program.run_numpy(inputs)

    def noise(self, module: Module) -> float:
        """Steps of the narrowest float in the module; see :data:`WIDE_STEPS`."""
        return compiled_noise(module)


def compiled_noise(module: Module) -> float:
    """Steps of the narrowest float in the module, as compilers reorder and fuse ops."""
    found = {
        result.type.dtype
        for function in module.functions.values()
        for op in function.block
        for result in op.results
        if result.type.dtype.is_float
    }
    return max((_noise(dtype) for dtype in found), default=0.0)


def alone_for_xla(
    module: Module, function: Function, *, as_is: bool = False
) -> tuple[Module, Function]:
    """A module of this program, what it runs, and no composites, that can be lowered.

    Args:
        module: has the functions that it calls.
        function: the program.
        as_is: leave out what keeps XLA from faults and limits of its own.
    """
    alone = Module(module.name, module.level, dict(module.mesh), {}, dict(module.interface))
    for each in (*called(module, function), function):
        alone.add(_without_schedule(clone_function(each)))
    if any(_needs_rules(op) for each in alone.functions.values() for op in each.block):
        # Rows are not padded: padding is for speed, and would change the program that is rounded.
        Legalize(min_rows=1).run(alone, Rewriter("legalize"))
    for each in () if as_is else alone.functions.values():
        Rewriter("legalize").apply_rules(each, [one_free_dimension])
        clamp_nested_slices(each)
    return alone, alone.function(function.name)


def _without_schedule(function: Function) -> Function:
    """Leave out what only a module has that XLA optimized: layouts, fusions, copies and bitcasts.

    XLA expects none of them before it optimizes. Functions of libraries need the layouts that their
    calls state.
    """
    for op in function.block:
        if op.annotations and op.name not in ("custom_call", "hlo.opaque"):
            kept = {key: text for key, text in op.annotations.items() if key not in _OPTIMIZED}
            op.annotations = attrs_of(kept) if kept else EMPTY
    return function


def without_channels(module: Module) -> None:
    """Have collectives of partitions run on replicas, which ranks are, in place."""
    for op in [op for function in module.functions.values() for op in function.block]:
        if OPS[op.name].collective and not _CHANNELS.isdisjoint(op.annotations):
            kept = {key: text for key, text in op.annotations.items() if key not in _CHANNELS}
            op.annotations = attrs_of(kept)


def has_channels(module: Module) -> bool:
    """True for a module with collectives among partitions."""
    ops = [op for function in module.functions.values() for op in function.block]
    return any(OPS[op.name].collective and not _CHANNELS.isdisjoint(op.annotations) for op in ops)


def _needs_rules(op: Op) -> bool:
    """True for composites, and for kernels of Neuron's compiler, which are known by their ops."""
    if op.name == "custom_call":
        # XLA reads its own marker.
        return is_known(op) and op.attrs.text("target") != PARTITIONER_MARKER
    return OPS[op.name].composite


def _noise(dtype: DType) -> float:
    return (WIDE_STEPS if dtype.bits > 16 else NARROW_STEPS) * float_step(dtype)


def float_step(dtype: DType) -> float:
    """The distance from 1 to the next float of a type."""
    bits = int.from_bytes(encode(dtype, 1.0), "little")
    return float(decode(dtype, (bits + 1).to_bytes(dtype.bytes, "little"))[0]) - 1.0

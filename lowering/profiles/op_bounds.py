"""Least times of HLO instructions: their operations and bytes at the rates of a device.

An instruction reads its operands and writes its result, a fusion those of the whole fusion; a slice
and an update in place count the part they touch. Operands that a cache still has are read faster
than memory allows, so a small op can be faster than this bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphgen.analysis.calls import inlined
from graphgen.analysis.loops import ops_run
from graphgen.analysis.work import memory_owner, size_in_bytes, work_of
from graphgen.ir import Dim, Function, Module, Op, Value
from graphgen.lowering.cost.roofline import MATRIX_OPS, cost_of_op
from graphgen.lowering.hlo_proto.fields import InstructionField, MetadataField
from graphgen.lowering.hlo_proto.proto_module import HloModule, open_hlo
from graphgen.lowering.hlo_proto.shape import read_shape
from graphgen.lowering.hlo_proto.wire import Source
from graphgen.lowering.profiles.recording import DeviceRates
from graphgen.lowering.xla_dump.schedule_values import array_bytes
from graphgen.ops import OPS, Trait, op_def
from graphgen.ops.control import SCALAR, callees
from graphgen.targets import Accelerator

# Instructions that do nothing but move bytes, which readers of modules may leave out.
_COPIES = frozenset(("copy", "copy-start", "bitcast-convert"))
MEMORY, COMPUTE = "memory", "compute"


@dataclass(frozen=True, slots=True)
class InstructionBound:
    """The bound of one run of an HLO instruction.

    Attributes:
        opcode: of the instruction.
        layer: its name in the program that was traced; empty without one.
        line: of the source, ``file:line``; empty without one.
        flops, bytes: that one run takes.
        seconds: at the rates; ``None`` without rates.
        by: what bounds it: ``compute``, ``memory`` or ``link``; empty for nothing.
    """

    opcode: str
    layer: str
    line: str
    flops: int
    bytes: int
    seconds: float | None
    by: str


Rates = DeviceRates | Accelerator


def instruction_bounds(
    module: Module | None, hlo: Source | None, rates: Rates | None
) -> dict[str, InstructionBound]:
    """The bounds of the instructions of a program by their names.

    Args:
        module: the program; ``None`` where it cannot be read.
        hlo: the same as a protobuf, if there is one: names and copies are from it.
        rates: of the device; ``None`` for none.
    """
    found: dict[str, InstructionBound] = {}
    if module is not None:
        for name, op in ops_by_name(module, hlo).items():
            found[name] = _bound_of(module, op, rates)
    opened = None if hlo is None else open_hlo(hlo)
    for name, other in _instructions(opened, rates).items() if opened else ():
        known = found.get(name)
        if known is None:
            found[name] = other
        else:
            found[name] = InstructionBound(
                *(other.opcode, other.layer or known.layer, known.line),
                *(known.flops, known.bytes, known.seconds, known.by),
            )
    return found


def ops_by_name(module: Module, hlo: Source | None = None) -> dict[str, Op]:
    """The ops of a module by the names of their HLO instructions.

    An op of several results has none of its own: it is found by a function that it runs, and
    without the protobuf it has the name of its first result.
    """
    found: dict[str, Op] = {}
    runs: dict[str, Op] = {}
    for function in module.functions.values():
        for op in function.block:
            if len(op.results) == 1 or (op.results and hlo is None):
                found[op.results[0].name or ""] = op
            for name in callees(op):
                runs[name] = op
    if hlo is not None:
        opened = open_hlo(hlo)
        names = {item.id: item.name for item in opened.computations}
        for computation in opened.computations:
            for message in computation.instructions():
                name = message.text(InstructionField.NAME)
                called = message.integers(InstructionField.CALLED_IDS)
                known = [runs[names[one]] for one in called if names.get(one) in runs]
                if name not in found and known:
                    found[name] = known[0]
    found.pop("", None)
    return found


def _bound_of(module: Module, op: Op, rates: Rates | None) -> InstructionBound:
    opcode = str(op.annotations.get("hlo.opcode") or op.name)
    where = op.loc
    line = f"{where.file}:{where.line}" if where.line else ""
    if isinstance(rates, Accelerator) and OPS[op.name].collective:
        cost = cost_of_op(module, op, rates, set())
        return InstructionBound(
            opcode, where.scope, line, cost.flops, cost.bytes, cost.seconds, cost.bound
        )
    inside: list[tuple[Op, int]] = [(op, 1)]
    moved: Dim = 0
    if callees(op) and op.name not in SCALAR:
        if op.name != "call":
            # The ops that it runs have times of their own.
            return InstructionBound(opcode, where.scope, line, 0, 0, 0.0 if rates else None, "")
        body = inlined(module, module.function(op.attrs.text("to_apply")))
        inside = list(ops_run(module, body.block))
        moved = _crossing(body)
    else:
        moved = work_of(op).bytes
    matrix = vector = 0
    kind = ""
    for one, times in inside:
        work = work_of(one)
        count = times * (_whole(work.flops) + _whole(work.transcendentals))
        if one.name in MATRIX_OPS:
            matrix, kind = matrix + count, one.operands[0].dtype.name
        else:
            vector += count
    return _timed(opcode, where.scope, line, (matrix, vector, kind), _whole(moved), rates)


def _crossing(body: Function) -> Dim:
    """Bytes that a fusion reads and writes: of what it slices or updates in place only the part."""
    partly: set[Value] = set()
    moved: Dim = 0
    for op in body.block:
        definition = op_def(op.name)
        sliced = definition.has(Trait.PARTIAL_READ)
        if not sliced and definition.updates is None:
            continue
        source = memory_owner(op.operands[0])
        if source.op is None:
            partly.add(source)
            part = op.results[0] if definition.updates is None else op.operands[definition.updates]
            moved += size_in_bytes(part.type)
    whole = [value for value in body.args if value not in partly]
    made = [value for _, value in body.outputs if memory_owner(value) not in partly]
    for value in (*whole, *made):
        moved += size_in_bytes(value.type)
    return moved


def _timed(
    opcode: str,
    layer: str,
    line: str,
    counts: tuple[int, int, str],
    moved: int,
    rates: Rates | None,
) -> InstructionBound:
    matrix, vector, kind = counts
    seconds: float | None = None
    by = ""
    if rates is not None:
        if isinstance(rates, Accelerator):
            units = matrix / rates.matrix_flops(kind), vector / rates.vector_flops
            compute, memory = max(units), moved / rates.hbm_bandwidth
        else:
            compute, memory = (matrix + vector) / rates.flops, moved / rates.bandwidth
        seconds = max(compute, memory)
        by = "" if not seconds else COMPUTE if compute > memory else MEMORY
    return InstructionBound(opcode, layer, line, matrix + vector, moved, seconds, by)


def _instructions(module: HloModule, rates: Rates | None) -> Mapping[str, InstructionBound]:
    """The instructions of a protobuf; those that only move bytes with their bounds."""
    found: dict[str, InstructionBound] = {}
    for computation in module.computations:
        for message in computation.instructions():
            opcode = message.text(InstructionField.OPCODE)
            metadata = message.message(InstructionField.METADATA)
            layer = metadata.text(MetadataField.OP_NAME) if metadata else ""
            moved, known = 0, None
            if opcode in _COPIES:
                moved = 2 * array_bytes(read_shape(message.data(InstructionField.SHAPE)))[0]
                known = _timed(opcode, layer, "", (0, 0, ""), moved, rates)
            plain = InstructionBound(opcode, layer, "", 0, 0, None, "")
            found[message.text(InstructionField.NAME)] = known or plain
    return found


def _whole(count: Dim) -> int:
    return count if isinstance(count, int) else 0

"""Cost analysis: operations, transcendentals and bytes per op.

Counts are dimensions: integers for static shapes, polynomials of the symbols otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graphgen.analysis.custom_calls import decode
from graphgen.ir import Dim, Op, TensorType
from graphgen.ops import Trait, op_def


@dataclass(frozen=True, slots=True)
class Work:
    """The cost of one op, or of several.

    Attributes:
        flops: additions and multiplications of floats or integers; a fused pair counts as two.
        transcendentals: evaluations of special functions: one per element.
        bytes: read and written, nothing kept between ops; partial reads and updates by their part.
    """

    flops: Dim = 0
    transcendentals: Dim = 0
    bytes: Dim = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes + other.bytes,
        )


def work_of(op: Op) -> Work:
    """The work of one op on one rank."""
    flops, transcendentals = _operations(op)
    return Work(flops, transcendentals, _traffic(op))


def _operations(op: Op) -> tuple[Dim, Dim]:
    """Floating-point or integer operations, and transcendentals; one per result element at most."""
    definition, size = op_def(op.name), op.results[0].type.size
    if definition.cost is not None:
        operands = [value.type for value in op.operands]
        return definition.cost(operands, [value.type for value in op.results], op.attrs)
    if definition.has(Trait.TRANSCENDENTAL):
        return 0, size
    if definition.has(Trait.EXTERNAL):
        return _custom_call(op), 0
    # The functions that a control op runs are counted in `graphgen.analysis.loops`.
    moves = definition.has(Trait.DATA_MOVEMENT) and not definition.collective
    return 0 if moves or definition.has(Trait.CONTROL) else size, 0


def _custom_call(op: Op) -> Dim:
    """The operations that the configuration of a custom call states; 0 if it states none."""
    if "target" not in op.attrs:
        return 0
    macs = decode(op.attrs.text("target"), op.attrs.text("config")).get("mac_count")
    return 2 * macs if isinstance(macs, int) else 0


def total(ops: Iterable[Op]) -> Work:
    """The sum of the work of ``ops``."""
    together = Work()
    for op in ops:
        together += work_of(op)
    return together


def total_of(ops: Iterable[tuple[Op, int]]) -> Work:
    """The sum of the work of ``(op, run count)`` pairs."""
    together = Work()
    for op, count in ops:
        work = work_of(op)
        together += Work(work.flops * count, work.transcendentals * count, work.bytes * count)
    return together


def size_in_bytes(type_: TensorType) -> Dim:
    """Dense size in bytes; a polynomial if the shape has symbols. Sub-byte types are packed."""
    bits = type_.size * type_.dtype.bits
    return -(-bits // 8) if isinstance(bits, int) else type_.size * type_.dtype.bytes


def sum_bytes(types: Iterable[TensorType]) -> Dim:
    """The sum of the sizes of ``types`` in bytes."""
    together: Dim = 0
    for type_ in types:
        together += size_in_bytes(type_)
    return together


def _traffic(op: Op) -> Dim:
    """Bytes read and written."""
    definition = op_def(op.name)
    if definition.has(Trait.VIEW) or definition.has(Trait.CONTROL):
        return 0
    written = sum_bytes(result.type for result in op.results)
    if definition.has(Trait.PARTIAL_READ):
        return written + written + sum_bytes(value.type for value in op.operands[1:])
    if definition.updates is not None:
        update = size_in_bytes(op.operands[definition.updates].type)
        return update + update
    return written + sum_bytes(value.type for value in op.operands)

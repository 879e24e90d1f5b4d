"""Cost analysis: operations, transcendentals and bytes per op.

Counts are dimensions: integers for static shapes, polynomials of the symbols otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graphgen.analysis.calls import inlined
from graphgen.analysis.loops import ops_run
from graphgen.ir import Dim, Module, Op, TensorType, Value
from graphgen.ops import Trait, op_def
from graphgen.ops.control import SCALAR, kernel_of
from graphgen.ops.custom_calls import decode


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


# Work by everything it follows from: the layers of a model repeat theirs.
_known: dict[tuple[object, ...], Work] = {}
_MOST_KNOWN = 1 << 16


def work_of(op: Op) -> Work:
    """The work of one op on one rank."""
    key = (
        *(op.name, op.attrs, len(op.operands)),
        *[value.type for value in op.operands],
        *[value.type for value in op.results],
    )
    found = _known.get(key)
    if found is None:
        found = Work(*_operations(op), _traffic(op))
        if len(_known) < _MOST_KNOWN:
            _known[key] = found
    return found


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
    return total_of((op, 1) for op in ops)


def total_of(ops: Iterable[tuple[Op, int]]) -> Work:
    """The sum of the work of ``(op, run count)`` pairs."""
    flops: Dim = 0
    transcendentals: Dim = 0
    moved: Dim = 0
    for op, count in ops:
        work = work_of(op)
        flops += work.flops * count
        transcendentals += work.transcendentals * count
        moved += work.bytes * count
    return Work(flops, transcendentals, moved)


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
    if definition.has(Trait.VIEW) or (definition.has(Trait.CONTROL) and op.name not in SCALAR):
        return 0
    written = sum_bytes(result.type for result in op.results)
    if definition.has(Trait.PARTIAL_READ):
        return written + written + sum_bytes(value.type for value in op.operands[1:])
    if definition.updates is not None:
        update = size_in_bytes(op.operands[definition.updates].type)
        return update + update
    return written + sum_bytes(value.type for value in op.operands)


def run_work(module: Module, ops: Iterable[Op]) -> Work:
    """The work of ``ops``, and of the functions that they run.

    Args:
        module: has the functions.
        ops: of a function without calls other than those of kernels.
    """
    together, plain = Work(), list[Op]()
    for op in ops:
        if kernel_of(op):
            together += kernel_work(module, op)
        else:
            plain.append(op)
    return together + total_of(ops_run(module, plain))


def kernel_work(module: Module, op: Op) -> Work:
    """The work of a call of a kernel.

    Operations are those of the meaning. Bytes are those of the operands and the result; of a cache
    only what the meaning reads or writes of it.
    """
    body = inlined(module, module.function(op.attrs.text("to_apply")))
    inside = total_of(ops_run(module, body.block))
    partly: set[Value] = set()
    moved: Dim = 0
    for inner in body.block:
        definition = op_def(inner.name)
        if definition.has(Trait.PARTIAL_READ) or definition.updates is not None:
            source = memory_owner(inner.operands[0])
            if source.op is None:
                partly.add(source)
                moved += work_of(inner).bytes
    whole = [value for value in body.args if value not in partly]
    made = [value for _, value in body.outputs if memory_owner(value) not in partly]
    return Work(
        inside.flops,
        inside.transcendentals,
        moved + sum_bytes([value.type for value in (*whole, *made)]),
    )


def updated_operand(module: Module, op: Op) -> Value | None:
    """The operand of a call of a kernel in whose memory its result is; ``None`` for new memory."""
    body = inlined(module, module.function(op.attrs.text("to_apply")))
    source = memory_owner(body.outputs[0][1])
    return None if source.op is not None else op.operands[body.args.index(source)]


def memory_owner(value: Value) -> Value:
    """The value whose memory this is: through views, and updates that are made in place."""
    while (op := value.op) is not None:
        definition = op_def(op.name)
        if not definition.has(Trait.VIEW) and definition.updates is None:
            break
        value = op.operands[0]
    return value

"""Cost of calls of kernels: the arithmetic of their meaning, and the bytes that they are given.

A call names a function as its meaning. A kernel computes what the function computes, but has no
values in memory between: it reads a packed weight once and unpacks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphgen.analysis.calls import inlined
from graphgen.analysis.loops import ops_run
from graphgen.analysis.work import Work, sum_bytes, total_of, work_of
from graphgen.ir import Dim, Module, Op, Value
from graphgen.ops import Trait, op_def
from graphgen.ops.control import kernel_of


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

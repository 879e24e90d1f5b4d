"""The factors of ops, memoized because layers repeat."""

from __future__ import annotations

from graphgen.ir import Attrs, Dim, Op, TensorType
from graphgen.ops import op_def
from graphgen.ops.factors import Factors

# The value of every symbol in an estimate.
NOMINAL = 8


def nominal(size: Dim) -> int:
    """The dimension with :data:`NOMINAL` for each of its symbols, at least 1."""
    if isinstance(size, int):
        return size
    total = 0
    for names, factor in size.terms:
        total += factor * NOMINAL ** len(names)
    return max(total, 1)


def nominal_bytes(type_: TensorType) -> int:
    """The size of a tensor in bytes, with nominal dimensions."""
    return -(-nominal(type_.size) * type_.dtype.bits // 8)


_factors: dict[tuple[str, Attrs, tuple[TensorType, ...]], Factors | None] = {}


def factors_of(op: Op) -> Factors | None:
    """The factors of an op, memoized; ``None`` for an op that every rank runs on whole values."""
    operands = tuple([value.type for value in op.operands])
    key = (op.name, op.attrs, operands)
    if key not in _factors:
        results = [value.type for value in op.results]
        _factors[key] = op_def(op.name).factors(operands, results, op.attrs)
    return _factors[key]

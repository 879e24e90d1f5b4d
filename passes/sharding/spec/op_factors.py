"""The factors of ops, memoized because layers repeat."""

from __future__ import annotations

from graphgen.ir import Attrs, Op, TensorType
from graphgen.ops import op_def
from graphgen.ops.factors import Factors

_factors: dict[tuple[str, Attrs, tuple[TensorType, ...]], Factors | None] = {}


def factors_of(op: Op) -> Factors | None:
    """The factors of an op, memoized; ``None`` for an op that every rank runs on whole values."""
    operands = tuple([value.type for value in op.operands])
    key = (op.name, op.attrs, operands)
    if key not in _factors:
        results = [value.type for value in op.results]
        _factors[key] = op_def(op.name).factors(operands, results, op.attrs)
    return _factors[key]

"""Evaluate integer functions of indices on all their arguments, to prove index patterns.

Supported are functions of one element (indices of rows) and linear functions (ends of groups): an
element-wise function is known by its values at all arguments, a linear one by those at the unit
vectors.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from graphgen.ir import Op, Value
from graphgen.ops import OPS, Trait, has_trait
from graphgen.pattern.see_through import integer, scalar, spread

if TYPE_CHECKING:
    from graphgen.eval import Array

_LINEAR = frozenset(("add", "slice", "pad", "concatenate"))
# Elements of what is tried: 256 experts for 32,768 rows.
_MOST = 1 << 23


def leaf_of(value: Value, known: Collection[Value] = ()) -> Value | None:
    """The one value that a value is an element-wise function of; ``None`` if there are more.

    Beside it are constants that are the same everywhere, and counts along later dimensions.

    Args:
        value: integers.
        known: values to stop at.
    """
    found: dict[Value, None] = {}
    seen: set[Value] = set()
    left = [value]
    while left:
        each = left.pop()
        if each in seen:
            continue
        seen.add(each)
        op = each.op
        if each in known or op is None or not _keeps_places(op):
            if not _same_everywhere(each):
                found[each] = None
        elif not _same_everywhere(each):
            left += op.operands
    return next(iter(found)) if len(found) == 1 else None


def _same_everywhere(value: Value) -> bool:
    source = spread(value)[0]
    if source.type.rank:
        return False
    return integer(source) is not None or scalar(source) is not None


def _keeps_places(op: Op) -> bool:
    """Test whether a row of the result depends on that row of the operands alone."""
    if has_trait(op, Trait.ELEMENTWISE) and not OPS[op.name].composite:
        return True
    if op.name == "iota":
        return op.attrs.integer("dimension") > 0
    if op.name == "broadcast_in_dim":
        (operand,), dims = op.operands, op.attrs.integers("dimensions")
        return not operand.type.rank or (dims[0] == 0 and operand.shape[0] == op.result.shape[0])
    if op.name == "reshape":
        (operand,) = op.operands
        return operand.type.rank > 0 and operand.shape[0] == op.result.shape[0]
    return False


def function_of(value: Value, leaf: Value, numbers: Array) -> Array | None:
    """The value where the leaf is these numbers; ``None`` if it is too large."""
    size = value.type.size
    if not isinstance(size, int) or size > _MOST:
        return None
    return _computed(value, {leaf: numbers.astype(_type_of(leaf))})


def _type_of(value: Value) -> str:
    from graphgen.eval import numpy_dtype

    return numpy_dtype(value.dtype).name


def _computed(value: Value, known: dict[Value, Array]) -> Array:
    from graphgen.eval import NATIVE, RULES

    if value not in known:
        op = value.op
        assert op is not None
        if op.name == "constant":
            known[value] = NATIVE.literal(op.attrs.literal("value"))
        else:
            given = [_computed(operand, known) for operand in op.operands]
            known[value] = RULES[op.name](NATIVE, op.attrs, given)
    return known[value]


def places_of(value: Value) -> tuple[Value, Array] | None:
    """The leaf [M] of indices [M] or [M,1], and the index for each number 0..M-1 of the leaf."""
    import numpy as np

    leaf = leaf_of(value)
    rows = value.shape[0] if value.type.rank else None
    if leaf is None or not isinstance(rows, int) or leaf.shape != (rows,):
        return None
    if not leaf.dtype.is_integer:
        return None
    made = function_of(value, leaf, np.arange(rows))
    return None if made is None or made.size != rows else (leaf, made.reshape(rows))


def numbers_at(value: Value, leaf: Value, most: int) -> Array | None:
    """The rows of a value for each number 0..most-1 of the leaf [M]."""
    import numpy as np

    (rows,) = leaf.shape
    if not isinstance(rows, int):
        return None
    found: list[Array] = []
    for first in range(0, most, rows):
        made = function_of(value, leaf, (np.arange(rows) + first) % most)
        if made is None:
            return None
        found.append(made)
    return np.concatenate(found)[:most]


def linear_leaf(value: Value) -> Value | None:
    """The one vector that a vector is a linear function of; ``None`` for another function."""
    found: dict[Value, None] = {}
    left = [value]
    while left:
        each = left.pop()
        op = each.op
        if op is not None and _is_linear(op):
            left += op.operands
        elif not _is_zero(each):
            found[each] = None
    return next(iter(found)) if len(found) == 1 else None


def _is_linear(op: Op) -> bool:
    if op.name == "convert":
        return op.result.dtype.is_integer
    if op.name == "reshape":
        return op.result.type.rank == 1
    if op.name == "reduce_window":
        return op.attrs.text("kind") == "add"
    return op.name in _LINEAR


def _is_zero(value: Value) -> bool:
    source = spread(value)[0]
    return not source.type.rank and (integer(source) == 0 or scalar(source) == 0)


def matrix_of(value: Value, leaf: Value) -> Array | None:
    """The matrix [N,N] of a linear function of a vector [N], a column for each unit vector."""
    import numpy as np

    (size,) = leaf.shape
    if not isinstance(size, int) or value.shape != leaf.shape or size**2 > _MOST:
        return None
    columns = [function_of(value, leaf, unit) for unit in np.eye(size, dtype=np.int64)]
    return np.stack([each for each in columns if each is not None], axis=1)

"""Contractions and reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphgen.ir import Attrs, Dim, DType, Literal, TensorType, tensor
from graphgen.ir.dims import product
from graphgen.ir.dtype import has_infinity, highest, lowest, pred
from graphgen.ops.attr_types import ELEMENT, INTEGERS, choice
from graphgen.ops.factors import DimFactors, Factors, FactorTable
from graphgen.ops.opdef import arithmetic_operand, attr, define, require
from graphgen.ops.traits import LinearIn, Types

# Of collectives, and of partial results that ranks hold.
REDUCERS = ("add", "maximum", "minimum")
# Of reductions, windows and scatters.
REDUCTIONS = (*REDUCERS, "multiply", "and", "or", "xor")
_BITWISE = ("and", "or", "xor")


def neutral_element(kind: str, dtype: DType) -> Literal:
    """Identity of the reduction ``kind``: ``kind(x, identity) = x`` for every ``x``, as a scalar.

    It is 0 for ``add``, ``or`` and ``xor``, 1 for ``multiply``, all bits for ``and``, -inf for
    ``maximum`` and +inf for ``minimum``; element types without infinities (integers, ``f8e4m3fn``)
    have their lowest or highest number instead.
    """
    if dtype is pred:
        return Literal.of(dtype, kind in ("multiply", "and", "minimum"))
    if kind in ("add", "or", "xor", "multiply"):
        number = int(kind == "multiply")
        return Literal.of(dtype, float(number) if dtype.is_float else number)
    if kind == "and":
        return Literal.of(dtype, (1 << dtype.bits) - 1 if dtype.name[0] == "u" else -1)
    low = kind == "maximum"
    if has_infinity(dtype):
        return Literal.of(dtype, -math.inf if low else math.inf)
    return Literal.of(dtype, lowest(dtype) if low else highest(dtype))


def _dot_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Batch dimensions are shared, contracting ones are reduced, free ones go to the result."""
    table = FactorTable()
    left = list(table.of(operands[0]))
    right: list[DimFactors] = [()] * operands[1].rank
    for kind in ("batch", "contracting"):
        for i, j in zip(
            attrs.integers(f"lhs_{kind}_dims"), attrs.integers(f"rhs_{kind}_dims"), strict=True
        ):
            right[j] = left[i]
    summed = attrs.integers("lhs_contracting_dims")
    paired = {*attrs.integers("rhs_batch_dims"), *attrs.integers("rhs_contracting_dims")}
    batch = attrs.integers("lhs_batch_dims")
    for j, size in enumerate(operands[1].shape):
        if j not in paired:
            right[j] = (table.new(size),)
    result = [left[i] for i in batch]
    result += [dims for i, dims in enumerate(left) if i not in batch and i not in summed]
    result += [dims for j, dims in enumerate(right) if j not in paired]
    reduction = {left[i][0]: "add" for i in summed}
    return Factors(table.sizes, (tuple(left), tuple(right)), (tuple(result),), reduction)


def _dot_cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """A multiplication and an addition per result element and contracted index."""
    shape = operands[0].shape
    summed = product(shape[dim] for dim in attrs.integers("lhs_contracting_dims"))
    return 2 * results[0].size * summed, 0


@define(
    "dot_general",
    "lhs rhs",
    attr("lhs_contracting_dims", INTEGERS),
    attr("rhs_contracting_dims", INTEGERS),
    attr("lhs_batch_dims", INTEGERS, ()),
    attr("rhs_batch_dims", INTEGERS, ()),
    attr("dtype", ELEMENT),
    traits=(LinearIn((0,)), LinearIn((1,))),
    factors=_dot_factors,
    cost=_dot_cost,
)
def _dot_general(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Sum of products over the contracting dimensions, for each index of the batch dimensions.

    The result has the batch dimensions, then the free ones of ``lhs``, then those of ``rhs``. The
    result's element type is stated by ``dtype``, which may be wider than the operands'.

    Example:
        %y = dot_general(%x, %w) lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 \
: f32[B,S,16]
    """
    lhs, rhs = types
    require(lhs.dtype is rhs.dtype, f"element types differ: {lhs.text} and {rhs.text}", 1)
    arithmetic_operand(types)
    lc, rc = attrs.integers("lhs_contracting_dims"), attrs.integers("rhs_contracting_dims")
    lb, rb = attrs.integers("lhs_batch_dims"), attrs.integers("rhs_batch_dims")
    _check_side(lhs, (*lb, *lc), 0)
    _check_side(rhs, (*rb, *rc), 1)
    for what, left, right in (("contracting", lc, rc), ("batch", lb, rb)):
        require(len(left) == len(right), f"{what} dims {list(left)} and {list(right)} differ")
        for i, j in zip(left, right, strict=True):
            require(
                lhs.shape[i] == rhs.shape[j],
                f"{what} dims differ: lhs dim {i} is {lhs.shape[i]}, rhs dim {j} is {rhs.shape[j]}",
                1,
            )
    shape = [lhs.shape[i] for i in lb]
    shape += [size for i, size in enumerate(lhs.shape) if i not in lc and i not in lb]
    shape += [size for i, size in enumerate(rhs.shape) if i not in rc and i not in rb]
    return (tensor(attrs.element("dtype"), shape),)


def _check_side(side: TensorType, used: tuple[int, ...], operand: int) -> None:
    require(len(set(used)) == len(used), f"dims {list(used)} of {side.text} repeat", operand)
    for dim in used:
        require(0 <= dim < side.rank, f"dim {dim} of {side.text} does not exist", operand)


def _reduce_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    table = FactorTable()
    gone, kind = attrs.integers("dimensions"), attrs.text("kind")
    dims = table.of(operands[0])
    kept = tuple(cut for i, cut in enumerate(dims) if i not in gone)
    summed = {dims[i][0] for i in gone}
    if kind not in REDUCERS:
        # No collective combines what ranks would hold.
        return Factors(table.sizes, (dims,), (kept,), need_replication=frozenset(summed))
    return Factors(table.sizes, (dims,), (kept,), dict.fromkeys(sorted(summed), kind))


def _is_sum(operands: Types, results: Types, attrs: Attrs) -> bool:
    return attrs.text("kind") == "add" and operands[0].dtype is not pred


def _reduce_cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """One operation per operand element."""
    return operands[0].size, 0


@define(
    "reduce",
    "operand",
    attr("dimensions", INTEGERS),
    attr("kind", choice(*REDUCTIONS)),
    traits=(LinearIn((0,), _is_sum),),
    factors=_reduce_factors,
    cost=_reduce_cost,
)
def _reduce(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Combine the elements along ``dimensions``, which disappear.

    Of pred the sum and the maximum are the logical or, the product and the minimum are the and.
    An empty dimension gives the neutral element of ``kind``: 0, 1, -inf or +inf (lowest or highest
    for integers), all bits for ``and``.

    Example:
        %y = reduce(%x) dimensions=[1] kind=add : f32[B]
    """
    dimensions = attrs.integers("dimensions")
    _check_side(types[0], dimensions, 0)
    check_reduction(types[0], attrs.text("kind"))
    shape = [size for i, size in enumerate(types[0].shape) if i not in dimensions]
    return (tensor(types[0].dtype, shape),)


def check_reduction(type_: TensorType, kind: str, operand: int = 0) -> None:
    """Require elements that ``kind`` combines: bits for ``and``, an order for ``maximum``."""
    dtype = type_.dtype
    if kind in _BITWISE:
        legal = dtype.is_integer or dtype is pred
    else:
        legal = not (dtype.is_complex and kind in ("maximum", "minimum"))
    require(legal, f"has no meaning for {type_.text}", operand)

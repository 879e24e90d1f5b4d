"""Contractions and reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphgen.ir import Attrs, DType, Literal, TensorType, tensor
from graphgen.ir.dtype import f8e4m3fn, lowest
from graphgen.ops.opdef import Attr, define, number_operand, require

REDUCERS = ("add", "maximum", "minimum")


def neutral_element(kind: str, dtype: DType) -> Literal:
    """Identity of the reduction ``kind``: ``kind(x, identity) = x`` for every ``x``, as a scalar.

    It is 0 for ``add``, -inf for ``maximum`` and +inf for ``minimum``; element types without
    infinities (integers, ``f8e4m3fn``) have their lowest or highest number instead.
    """
    if kind == "add":
        return Literal.of(dtype, 0.0 if dtype.is_float else 0)
    sign = -1 if kind == "maximum" else 1
    if dtype is f8e4m3fn:
        return Literal.of(dtype, sign * -lowest(dtype))
    if dtype.is_float:
        return Literal.of(dtype, sign * math.inf)
    if dtype.name[0] == "u":
        return Literal.of(dtype, 0 if sign < 0 else (1 << dtype.bits) - 1)
    half = 1 << (dtype.bits - 1)
    return Literal.of(dtype, -half if sign < 0 else half - 1)


@define(
    "dot_general",
    "lhs rhs",
    Attr("lhs_contracting_dims", "integers"),
    Attr("rhs_contracting_dims", "integers"),
    Attr("lhs_batch_dims", "integers", ()),
    Attr("rhs_batch_dims", "integers", ()),
    Attr("dtype", "element"),
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
    number_operand(types)
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


@define("reduce", "operand", Attr("dimensions", "integers"), Attr("kind", "text", choices=REDUCERS))
def _reduce(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Combine the elements along ``dimensions``, which disappear.

    An empty dimension gives the neutral element of ``kind``: 0, -inf or +inf (lowest or highest for
    integers).

    Example:
        %y = reduce(%x) dimensions=[1] kind=add : f32[B]
    """
    dimensions = attrs.integers("dimensions")
    _check_side(types[0], dimensions, 0)
    number_operand(types)
    shape = [size for i, size in enumerate(types[0].shape) if i not in dimensions]
    return (tensor(types[0].dtype, shape),)

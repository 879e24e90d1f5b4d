"""Sorting ops."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, TensorType, tensor
from graphgen.ir.dtype import s32
from graphgen.ops.attr_types import BOOLEAN, INTEGER
from graphgen.ops.factors import Factors, FactorTable, Notation
from graphgen.ops.opdef import attr, define, ordered_operand, require
from graphgen.ops.traits import Chooses, Trait, Types


def _sort_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """The sorted dimension needs replication; the others are batch dimensions."""
    table = FactorTable()
    dims = table.of(operands[0])
    every = (dims,) * len(operands)
    sorted_ = frozenset(dims[attrs.integer("dimension")])
    return Factors(table.sizes, every, every, need_replication=sorted_)


@define(
    "sort",
    "*operands",
    attr("dimension", INTEGER),
    attr("descending", BOOLEAN, False),
    traits=(Chooses(dimension=lambda rank, attrs: attrs.integer("dimension")),),
    factors=_sort_factors,
)
def _sort(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Each line along ``dimension`` by the first operand; the others move with it.

    Equal elements keep their order. Floats are in IEEE 754's total order: a zero with its sign
    comes before one without, NaN after infinity, and NaN with its sign before all else.

    Example:
        %v, %p = sort(%x, %i) dimension=1 : f32[B,4], s32[B,4]
    """
    require(bool(types), "needs at least one operand")
    ordered_operand(types)
    axis = attrs.integer("dimension")
    require(0 <= axis < types[0].rank, f"dimension {axis} of {types[0].text}", 0)
    for index, other in enumerate(types):
        same = other.shape == types[0].shape
        require(same, f"{types[0].text} and {other.text} differ in shape", index)
    return tuple(types)


@define(
    "top_k",
    "operand",
    attr("k", INTEGER),
    traits=(Trait.COMPOSITE, Chooses(places=1, values=0)),
    factors=Notation("* v -> * K, * K", special="v"),
)
def _top_k(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The ``k`` largest elements of the last dimension, largest first, and where they were.

    Of equal elements the first comes first. Floats are ordered as in ``sort``.

    Example:
        %v, %i = top_k(%x) k=2 : f32[B,2], s32[B,2]
    """
    ordered_operand(types)
    require(types[0].rank >= 1, f"needs a dimension to choose from, got {types[0].text}", 0)
    k, size = attrs.integer("k"), types[0].shape[-1]
    fits = k >= 0 and (not isinstance(size, int) or k <= size)
    require(fits, f"{k} of the {size} elements of {types[0].text}", 0)
    shape = (*types[0].shape[:-1], k)
    return (tensor(types[0].dtype, shape), tensor(s32, shape))

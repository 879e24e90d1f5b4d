"""Ops that apply a function of scalars to many elements: reductions, sorts, scatters, maps.

The function is one of the module. It takes one element of each operand, or two, and gives
scalars; the verifier checks its types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphgen.ir import Attrs, Dim, Op, TensorType, tensor
from graphgen.ir.dtype import pred
from graphgen.ops.attr_types import ELEMENT, INTEGER, INTEGERS, TEXT
from graphgen.ops.indexing import check_scatter
from graphgen.ops.opdef import attr, define, require
from graphgen.ops.reduce_window import WINDOW_ATTRS, window_cost, window_places
from graphgen.ops.traits import Trait, Types
from graphgen.ops.window import REDUCTION, windows_of

_FUNCTION = attr("to_apply", TEXT)


def _cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """One operation per element of each operand, whatever the function does."""
    count: Dim = 0
    for type_ in operands:
        count = count + type_.size
    return count, 0


def _named(attrs: Attrs) -> None:
    require(bool(attrs.text("to_apply")), "to_apply needs the name of a function")


def _same_shapes(types: Sequence[TensorType], first: int = 0) -> None:
    require(bool(types), "needs at least one operand")
    for index, other in enumerate(types, first):
        same = other.shape == types[0].shape
        require(same, f"{types[0].text} and {other.text} differ in shape", index)


def _with_starts(types: Sequence[TensorType]) -> Sequence[TensorType]:
    """Check that a scalar follows for each operand, with which its reduction begins."""
    count = len(types) // 2
    require(len(types) % 2 == 0, f"needs a scalar for each operand, has {len(types)} in all")
    values = types[:count]
    _same_shapes(values)
    for index, (value, init) in enumerate(zip(values, types[count:], strict=True)):
        scalar = tensor(value.dtype)
        require(init is scalar, f"begins with {init.text}, not {scalar.text}", count + index)
    return values


@define(
    "map",
    "*operands",
    _FUNCTION,
    attr("dtype", ELEMENT),
    traits=(Trait.CONTROL,),
    cost=_cost,
)
def _map(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """A function of the module applied to the elements of operands of one shape.

    The function takes one scalar of each operand and gives one of type ``dtype``.

    Example:
        %y = map(%x, %z) to_apply=mean dtype=f32 : f32[B,4]
    """
    _named(attrs)
    _same_shapes(types)
    return (tensor(attrs.element("dtype"), types[0].shape),)


@define(
    "reduce_by",
    "*operands",
    attr("dimensions", INTEGERS),
    _FUNCTION,
    traits=(Trait.CONTROL,),
    cost=_cost,
)
def _reduce_by(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Several operands reduced at once by a function of the module (HLO: a variadic ``reduce``).

    The operands come first, then a scalar for each, with which its reduction begins. The function
    takes the scalars of one element of every operand, then those of another, and gives one scalar
    an operand. It is associative: in which order elements are combined is not defined.

    Example:
        %y, %p = reduce_by(%x, %i, %low, %zero) dimensions=[1] to_apply=larger : f32[B], s32[B]
    """
    _named(attrs)
    values, dimensions = _with_starts(types), attrs.integers("dimensions")
    rank = values[0].rank
    distinct = len(set(dimensions)) == len(dimensions)
    legal = distinct and all(0 <= dim < rank for dim in dimensions)
    require(legal, f"dimensions {list(dimensions)} of {values[0].text}", 0)
    kept = [size for dim, size in enumerate(values[0].shape) if dim not in dimensions]
    return tuple([tensor(value.dtype, kept) for value in values])


@define(
    "reduce_window_by",
    "*operands",
    *WINDOW_ATTRS,
    _FUNCTION,
    traits=(Trait.CONTROL,),
    cost=window_cost,
)
def _reduce_window_by(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The windows of several operands reduced at once by a function of the module.

    Operands, starts and function are those of ``reduce_by``, windows those of ``reduce_window``:
    padding and holes are left out, and the scalars enter each window once.

    Example:
        %y, %p = reduce_window_by(%x, %i, %low, %zero) window_dimensions=[1,2] \
window_strides=[1,2] to_apply=larger : f32[B,2], s32[B,2]
    """
    _named(attrs)
    values = _with_starts(types)
    windows = windows_of(attrs, attrs.integers("window_dimensions"), REDUCTION)
    places = window_places(values[0], windows)
    return tuple([tensor(value.dtype, places) for value in values])


@define(
    "sort_by",
    "*operands",
    attr("dimension", INTEGER),
    _FUNCTION,
    traits=(Trait.CONTROL,),
    cost=_cost,
)
def _sort_by(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Each line along ``dimension`` ordered by a function of the module; equal ones stay.

    The function takes two scalars of the first operand, two of the second, and so on, and gives a
    ``pred[]``: the first ones come before the second ones. ``sort`` is the one by size.

    Example:
        %v, %p = sort_by(%x, %i) dimension=1 to_apply=before : f32[B,4], s32[B,4]
    """
    _named(attrs)
    _same_shapes(types)
    axis = attrs.integer("dimension")
    require(0 <= axis < types[0].rank, f"dimension {axis} of {types[0].text}", 0)
    return tuple(types)


def _scatter_cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """One operation per element of each update."""
    return operands[-1].size * len(results), 0


@define(
    "scatter_by",
    "*operands",
    attr("update_window_dims", INTEGERS),
    attr("inserted_window_dims", INTEGERS),
    attr("scatter_dims_to_operand_dims", INTEGERS),
    attr("index_vector_dim", INTEGER),
    _FUNCTION,
    traits=(Trait.CONTROL,),
    cost=_scatter_cost,
)
def _scatter_by(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Several operands scattered into at once by a function of the module.

    The operands come first, then the index vectors, then the updates of each operand. The function
    takes an element of every operand, then its updates, and gives the new elements. Windows and
    numbers of dimensions are those of ``scatter``; where windows overlap, updates are combined in
    the order of their index vectors.

    Example:
        %y, %z = scatter_by(%x, %i, %at, %u, %v) update_window_dims=[1] inserted_window_dims=[0] \
scatter_dims_to_operand_dims=[0] index_vector_dim=1 to_apply=larger : f32[8,4], s32[8,4]
    """
    _named(attrs)
    count = len(types) // 2
    require(len(types) % 2 == 1 and count > 0, f"needs updates for each operand, has {len(types)}")
    values, indices, updates = types[:count], types[count], types[count + 1 :]
    _same_shapes(values)
    _same_shapes(updates, count + 1)
    for value, update in zip(values, updates, strict=True):
        check_scatter(value, indices, update, attrs)
    return tuple(values)


# Ops whose function takes and gives scalars, and is applied to many of them.
SCALAR: Final = frozenset(("map", "reduce_by", "reduce_window_by", "scatter_by", "sort_by"))


def scalar_signature(op: Op) -> tuple[list[TensorType], list[TensorType]]:
    """Operand and result types of the function of an op in :data:`SCALAR`."""
    scalars = [tensor(value.dtype) for value in op.operands]
    if op.name == "map":
        return scalars, [tensor(op.result.dtype)]
    if op.name == "sort_by":
        return [scalar for scalar in scalars for _ in "ab"], [tensor(pred)]
    gives = scalars[: len(scalars) // 2]
    return [*gives, *gives], gives

"""Triangular systems of equations, and the Cholesky decomposition."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, Dim, TensorType
from graphgen.ops.attr_types import BOOLEAN, choice
from graphgen.ops.factors import Factors, Notation, passthrough_factors
from graphgen.ops.opdef import attr, define, inexact_operand, require
from graphgen.ops.traits import LinearIn, Types

_LEFT = Notation("* . ., * . n -> * . n")
_RIGHT = Notation("* . ., * n . -> * n .")


def _square(type_: TensorType) -> None:
    square = type_.rank >= 2 and type_.shape[-1] == type_.shape[-2]
    require(square, f"needs square matrices, got {type_.text}", 0)


def _solve_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    rule = _LEFT if attrs["left_side"] is True else _RIGHT
    return rule(operands, results, attrs)


def _solve_cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """A multiplication and an addition per element of a triangle and right-hand side."""
    return results[0].size * operands[0].shape[-1], 0


@define(
    "triangular_solve",
    "a b",
    attr("left_side", BOOLEAN),
    attr("lower", BOOLEAN),
    attr("unit_diagonal", BOOLEAN),
    attr("transpose_a", choice("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")),
    traits=(LinearIn((1,)),),
    factors=_solve_factors,
    cost=_solve_cost,
)
def _triangular_solve(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``x`` with ``op(a) x = b``, or ``x op(a) = b`` where ``left_side`` is false.

    The last two dimensions of ``a`` and ``b`` are matrices, the others batches. Only the triangle
    of ``a`` that ``lower`` names is read, and with ``unit_diagonal`` not its diagonal, which is 1.
    ``op`` is ``transpose_a``: ``a`` as it is, transposed, or transposed and conjugated.

    Example:
        %x = triangular_solve(%a, %b) left_side=true lower=true unit_diagonal=false \
transpose_a=NO_TRANSPOSE : f32[B,4,2]
    """
    a, b = types
    inexact_operand(types)
    require(a.dtype is b.dtype, f"element types differ: {a.text} and {b.text}", 1)
    _square(a)
    same = a.rank == b.rank and a.shape[:-2] == b.shape[:-2]
    require(same, f"batches differ: {a.text} and {b.text}", 1)
    side = -2 if attrs["left_side"] is True else -1
    fits = a.shape[-1] == b.shape[side]
    require(fits, f"{a.shape[-1]} unknowns of {a.text} and {b.shape[side]} of {b.text}", 1)
    return (b,)


def _cholesky_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    rank = operands[0].rank
    return passthrough_factors(operands, results, [dim < rank - 2 for dim in range(rank)])


def _cholesky_cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """A third of the cube of a matrix's size; a root for each of its rows."""
    size, count = operands[0].shape[-1], operands[0].size
    if not (isinstance(size, int) and isinstance(count, int)):
        return count * size, 0
    return count * size // 3, count // max(size, 1)


@define(
    "cholesky",
    "a",
    attr("lower", BOOLEAN),
    factors=_cholesky_factors,
    cost=_cholesky_cost,
)
def _cholesky(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The triangular ``t`` with ``a = t t*``, or ``a = t* t`` where ``lower`` is false.

    The last two dimensions are matrices, of which only the triangle that ``lower`` names is read;
    the other one is 0 in the result. A matrix that is not positive definite gives NaN.

    Example:
        %t = cholesky(%a) lower=true : f32[B,4,4]
    """
    inexact_operand(types)
    _square(types[0])
    return (types[0],)

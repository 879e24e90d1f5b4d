"""Traits of ops: the properties that passes query instead of listing ops by name.

A definition lists its traits, ``OPS[name].has(Trait.ELEMENTWISE)`` and :func:`has_trait` query
them, and :func:`graphgen.ops.ops_with` lists the ops that have some (MLIR: ``OpTrait``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from graphgen.ir import Attrs, TensorType

Types = Sequence[TensorType]


class Trait(StrEnum):
    """A property of an op that holds for all operands and attributes.

    A trait is conservative: an op without it may still have the property in a special case.
    """

    # Same operands, same results; no effect. Set by default: see `IMPURE`.
    PURE = "pure"
    # result[i] = f(x[i], y[i], ...): one shape for all operands (a bound of `clamp` may be scalar).
    ELEMENTWISE = "elementwise"
    # f(x, y) = f(y, x).
    COMMUTATIVE = "commutative"
    # f(f(x, y), z) = f(x, f(y, z)), for floats up to rounding.
    ASSOCIATIVE = "associative"
    # One evaluation of a special function per result element.
    TRANSCENDENTAL = "transcendental"
    # f(0) is a number, neither infinite nor NaN; of `divide` only for a divisor that is not 0.
    FINITE_AT_ZERO = "finite_at_zero"
    # Moves, creates or converts elements; no arithmetic.
    DATA_MOVEMENT = "data_movement"
    # The only operand in another shape, dimension order or element type.
    RELAYOUT = "relayout"
    # The operand's bytes under another type: needs no memory of its own.
    VIEW = "view"
    # Reads only a part of operand 0, as large as the result.
    PARTIAL_READ = "partial_read"
    # Dimension i of the result is that of operand 0: elements are cut off, added or moved along it.
    ALIGNED = "aligned"
    # Makes, reads or writes places: ids, positions, slots, masks, heads.
    POSITIONAL = "positional"
    # Of real numbers, defined for all positive operands and not for all negative ones.
    POSITIVE_DOMAIN = "positive_domain"
    # Defined by a decomposition into other ops: `graphgen.composites`.
    COMPOSITE = "composite"
    # Communicates with other ranks: must not be moved, duplicated or dropped.
    COLLECTIVE = "collective"
    # Runs other functions of the module.
    CONTROL = "control"
    # Defined outside of the IR: nothing is known about it.
    EXTERNAL = "external"


# Ops with one of these are not PURE.
IMPURE = frozenset((Trait.COLLECTIVE, Trait.CONTROL, Trait.EXTERNAL))


def _always(operands: Types, results: Types, attrs: Attrs) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class LinearIn:
    """The op is linear in these operands jointly, the others held fixed.

    ``f(x1 + y1, x2 + y2) = f(x1, x2) + f(y1, y2)``: a sum over ranks may be taken after the op.

    Attributes:
        operands: indices; empty for all operands.
        when: condition on operand types, result types and attributes.
    """

    operands: tuple[int, ...] = ()
    when: Callable[[Types, Types, Attrs], bool] = _always


@dataclass(frozen=True, slots=True)
class UpdatesPart:
    """The result is operand 0 with a part overwritten, in place if its old value is dead.

    Attributes:
        update: index of the operand that is written.
    """

    update: int


@dataclass(frozen=True, slots=True)
class Chooses:
    """The op puts the elements of each line of an operand in order, and its results follow it.

    A small change of the operand may change the order, and with it the results by any amount:
    comparisons of two programs look at the choice, see ``graphgen.passes.equiv``.

    Attributes:
        scores: index of the operand that is put in order.
        dimension: the dimension of the lines, from the operand's rank and the attributes.
        places: index of the result that holds, of the elements chosen, where they were; ``None``
            where every result is the operand of the same index in the new order.
        values: index of the result that holds the chosen elements themselves, if one does.
        when: condition on operand types, result types and attributes.
    """

    scores: int = 0
    dimension: Callable[[int, Attrs], int] = lambda rank, attrs: rank - 1
    places: int | None = None
    values: int | None = None
    when: Callable[[Types, Types, Attrs], bool] = _always


# A trait in the list of a definition.
Property = Trait | LinearIn | UpdatesPart | Chooses

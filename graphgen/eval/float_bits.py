"""Integers that stand for floats in double precision: carried along, or computed with as bits.

With all floats wide, an integer that is made of a float, and that the program only moves before it
is a float again, is carried along as that float: nothing is rounded. Where the program computes
with such integers, it is their bits that count: the float is rounded to the program's own type.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from graphgen.eval.arithmetic import NATIVE, NUMPY, Array, numpy_dtype
from graphgen.ir import Op, Value
from graphgen.ops import Trait, has_trait
from graphgen.ops.opdef import OPS

# Ops on the bits of integers, which numbers that were not rounded do not have.
BIT_OPS: Final = frozenset(
    (
        *("and", "or", "xor", "not", "popcnt", "count_leading_zeros"),
        *("shift_left", "shift_right_logical", "shift_right_arithmetic"),
    )
)
# Ops that take integers in the place of floats, or that run other functions.
_UNKNOWN: Final = (Trait.COMPOSITE, Trait.EXTERNAL, Trait.CONTROL, Trait.COLLECTIVE)
# Numbers of up to this many bits may be quantized ones, which are computed with as they are.
_NARROW: Final = 8


@dataclass(slots=True)
class MovedIntegers:
    """Integers that moving elements, or seeing their bits as other integers, makes of each other.

    Attributes:
        values: the integers.
        sources: ops that make integers of floats: ``bitcast_convert`` and ``convert``.
        computed: whether an op computes with them, or makes them, as integers.
    """

    values: set[Value] = field(default_factory=set[Value])
    sources: list[Op] = field(default_factory=list[Op])
    computed: bool = False

    @classmethod
    def of(cls, value: Value) -> MovedIntegers:
        """The integers that ``value`` belongs to."""
        found, work = cls(), [value]
        while work:
            one = work.pop()
            if one in found.values:
                continue
            found.values.add(one)
            for op in one.users:
                work += found._read(op, one)
            if one.op is not None:
                work += found._made(one.op, one)
        return found

    def _read(self, op: Op, value: Value) -> list[Value]:
        """Results of an op that moves ``value``; notes one that computes with it."""
        moved = [result for result in op.results if _is_moved(op, value, result)]
        to_floats = op.name == "bitcast_convert" and not moved
        if not (moved or to_floats or _is_unknown(op)):
            self.computed |= op.name in BIT_OPS or value.dtype.bits > _NARROW
        return moved

    def _made(self, op: Op, value: Value) -> list[Value]:
        """Operands of an op that moves them to ``value``; notes where they come from else."""
        moved = [operand for operand in op.operands if _is_moved(op, operand, value)]
        if moved:
            return moved
        if len(op.results) == 1 and is_made_of_floats(op):
            self.sources.append(op)
        elif op.name == "constant":
            # Zeros are the bits of zeros.
            ones = any(op.attrs.literal("value").data)
            self.computed |= ones and value.dtype.bits > _NARROW
        elif not _is_unknown(op):
            self.computed |= op.name in BIT_OPS or value.dtype.bits > _NARROW
        return []


def is_made_of_floats(op: Op) -> bool:
    """True for an op whose integers are floats in double precision, unless they are bits.

    That is a ``bitcast_convert`` of floats, or their ``convert`` to numbers of at most 8 bits.
    """
    if not (op.operands and op.operands[0].dtype.is_float and op.result.dtype.is_integer):
        return False
    narrow = op.name == "convert" and op.result.dtype.bits <= _NARROW
    return narrow or op.name == "bitcast_convert"


def computes_with_bits(op: Op) -> bool:
    """True if the program computes with the integers that ``op`` makes of floats.

    Numbers of 8 bits and fewer are computed with as such only by ops on bits: others may be
    quantized.
    """
    return is_made_of_floats(op) and MovedIntegers.of(op.result).computed


def bits_of(value: Value, array: Array) -> Array:
    """The bits that an integer has in the program, where a float is carried in its place.

    Args:
        value: the integer.
        array: its elements, in any arithmetic; returned where they are integers already, or where
            it is not known of which type the float is.
    """
    if not value.dtype.is_integer or array.dtype != NUMPY["f64"]:
        return array
    sources = MovedIntegers.of(value).sources
    kinds = {op.operands[0].dtype for op in sources if op.name == "bitcast_convert"}
    if len(kinds) != 1 or any(op.name == "convert" for op in sources):
        return array
    (kind,) = kinds
    if kind.bits != value.dtype.bits:
        return array
    return NATIVE.round(array, kind).view(numpy_dtype(value.dtype))


def _is_unknown(op: Op) -> bool:
    definition = OPS.get(op.name)
    return definition is None or any(definition.has(trait) for trait in _UNKNOWN)


def _is_moved(op: Op, operand: Value, result: Value) -> bool:
    """True if elements of ``result`` are those of ``operand``, or the same bits as integers."""
    if op.name == "bitcast_convert":
        return operand.dtype.is_integer and result.dtype.is_integer
    moves = op.name == "select" or (has_trait(op, Trait.DATA_MOVEMENT) and op.name != "convert")
    return moves and operand.dtype == result.dtype

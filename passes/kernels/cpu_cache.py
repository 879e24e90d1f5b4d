"""Match the read of a cache and the dequantization of its keys or values.

cache_read [-> bitcast_convert] [-> convert [-> * broadcast(scale)] [-> convert]]
cache_read -> dequantize_rows
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphgen.ir import DType, Op, Value
from graphgen.ir.dtype import bf16, f8e4m3, f8e4m3fn, f8e5m2, f16, f32, s8
from graphgen.passes.core import NoMatch, no_match

# Types of 8 bits that the kernels keep caches in.
NARROW: Final[tuple[DType, ...]] = (s8, f8e4m3, f8e4m3fn, f8e5m2)
_WIDENING: Final = ("convert", "bitcast_convert", "multiply", "dequantize_rows")
# Axes of heads and of features in what is read, [B,C,K,D], by the rank of a scale.
_SCALED_AXES: Final = {0: (), 1: (2,), 2: (2, 3)}


@dataclass(frozen=True, slots=True)
class CacheRead:
    """The ops that read keys or values of an attention from a cache.

    Attributes:
        ops: all of them, in order; the ``cache_read`` first.
        narrow: the type of numbers of 8 bits; ``None`` for those of the attention.
        scale: f32 [], [K] or [K,D], by which the numbers are multiplied; ``None`` for none.
        row_scale: whether the scale of each row follows its numbers.
    """

    ops: tuple[Op, ...]
    narrow: DType | None = None
    scale: Value | None = None
    row_scale: bool = False

    @property
    def read(self) -> Op:
        """The ``cache_read``."""
        return self.ops[0]

    @property
    def cache(self) -> Value:
        """The cache [R,M,K,D], whose numbers may be kept as bits."""
        return self.read.operands[0]

    @property
    def rows(self) -> Value | None:
        """The row of the cache for each row of the call; ``None`` for the same rows."""
        return None if self.read.attrs.text("rows") == "in_place" else self.read.operands[1]


def match_cache_read(value: Value) -> CacheRead | NoMatch | None:
    """The read that gives ``value``; ``None`` where a cache has nothing to do with it.

    Args:
        value: keys or values of an attention.
    """
    plain = _bits_read(value)
    if plain is not None and plain[0].result.dtype.bits == value.dtype.bits:
        return CacheRead(plain)
    narrow = _narrow_read(value)
    if narrow is not None:
        return narrow
    kept = _kept_in_8_bits(value)
    if kept is None:
        return None
    return no_match(f"the kernel does not read this cache of {kept.dtype}", kept)


def _bits_read(value: Value) -> tuple[Op, ...] | None:
    """The ``cache_read`` of a value and the conversion of bits after it."""
    bits = value.producer("bitcast_convert")
    read = (value if bits is None else bits.operands[0]).producer("cache_read")
    if read is None:
        return None
    return (read,) if bits is None else (read, bits)


def _narrow_read(value: Value) -> CacheRead | None:
    """The read of a cache of 8 bits whose numbers are widened, and scaled, to ``value``."""
    rows = value.producer("dequantize_rows")
    if rows is not None:
        read, element = rows.operands[0].producer("cache_read"), rows.attrs.element("element")
        known = read is not None and element in NARROW
        return CacheRead((read, rows), element, row_scale=True) if read and known else None
    after: list[Op] = []
    found = _scaled(value)
    if found is None and (rounded := value.producer("convert")) is not None:
        # The product with a scale is rounded once.
        found = _scaled(rounded.operands[0])
        after = [rounded] if found is not None else []
    inner, scale, scaling = found or (value, None, [])
    widen = inner.producer("convert")
    if widen is None or widen.result.dtype not in (bf16, f16, f32):
        return None
    read, numbers = _bits_read(widen.operands[0]), widen.operands[0].dtype
    if read is None or numbers not in NARROW or read[0].result.dtype.bits != numbers.bits:
        return None
    return CacheRead((*read, widen, *scaling, *after), numbers, scale)


def _scaled(value: Value) -> tuple[Value, Value, list[Op]] | None:
    """The value that is multiplied by a scale, the scale, and the ops that do so."""
    multiply = value.producer("multiply")
    for index in (0, 1) if multiply is not None else ():
        assert multiply is not None
        spread = multiply.operands[index].producer("broadcast_in_dim")
        if spread is not None and is_scale(spread):
            return multiply.operands[1 - index], spread.operands[0], [spread, multiply]
    return None


def is_scale(spread: Op) -> bool:
    """True where one factor, or one of each head or channel, is spread over [B,S,K,D]."""
    scale, result = spread.operands[0].type, spread.result.type
    axes = spread.attrs.integers("dimensions")
    return (
        scale.dtype is f32
        and result.rank == 4
        and _SCALED_AXES.get(scale.rank) == axes
        and scale.dims == tuple([result.dims[axis] for axis in axes])
    )


def _kept_in_8_bits(value: Value) -> Value | None:
    """The cache of 8-bit numbers that a value is made of, as far as one op has one operand."""
    while value.op is not None and value.op.name in _WIDENING:
        value = value.op.operands[0]
    read = value.producer("cache_read")
    return read.operands[0] if read is not None and read.result.dtype.bits == 8 else None


def same_slots(one: CacheRead, other: CacheRead) -> bool:
    """True where two reads are of the same rows and slots of caches of one shape and type."""
    left, right = one.read, other.read
    return (
        one.narrow is other.narrow
        and left.attrs == right.attrs
        and left.operands[1] is right.operands[1]
        and one.cache.type.dims[:3] == other.cache.type.dims[:3]
    )

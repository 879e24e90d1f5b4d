"""Match the quantization of new keys or values to 8 bits, before the write into a cache.

[convert -> / broadcast(scale) ->] clamp -> [round_nearest_even ->] convert [-> bitcast_convert]
quantize_rows
"""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.ir import DType, Op, Value
from graphgen.ir.dtype import f32
from graphgen.passes.kernels.cache_match import NARROW, is_scale
from graphgen.passes.quantize.cache_form import limit_of
from graphgen.passes.weights.derived import PreparedValues


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The ops that make numbers of 8 bits of keys or values.

    Attributes:
        ops: each of what the one before it gives, a conversion to bits last.
        beside: what gives them their other operands, but the scale.
        given: [B,S,K,D], what is narrowed.
        dtype: of the numbers.
        limit: the largest number, and less its sign the smallest.
        scale: f32 [], [K] or [K,D], by which they are divided; ``None`` for none.
        row_scale: whether each row of D has a scale of its own, after its numbers.
    """

    ops: tuple[Op, ...]
    beside: tuple[Op, ...]
    given: Value
    dtype: DType
    limit: float
    scale: Value | None = None
    row_scale: bool = False


def match_narrowing(new: Value, update: Op, prepared: PreparedValues) -> Narrowing | None:
    """The ops that narrow ``new``; each result is read by the next of them alone.

    Args:
        new: what is written into a cache.
        update: the write.
        prepared: knows the readers.
    """
    chain = _Chain(new, update, prepared)
    chain.step("bitcast_convert")
    rows = chain.step("quantize_rows")
    if rows is not None:
        dtype, limit = rows.attrs.element("element"), rows.attrs.number("limit")
        if dtype not in NARROW or chain.at.type.rank != 4:
            return None
        return Narrowing(tuple(chain.ops), (), chain.at, dtype, limit, row_scale=True)
    narrow = chain.step("convert")
    if narrow is None or narrow.result.dtype not in NARROW:
        return None
    dtype = narrow.result.dtype
    if dtype.is_integer and chain.step("round_nearest_even") is None:
        return None
    clamp = chain.step("clamp", 1)
    ends = _ends(clamp) if clamp is not None else ()
    limit = _limit(ends, dtype)
    if limit is None or chain.at.type.rank != 4:
        return None
    return _scaled_narrowing(chain, ends, dtype, limit)


def _scaled_narrowing(chain: _Chain, ends: tuple[Op, ...], dtype: DType, limit: float) -> Narrowing:
    """The narrowing with the division by a scale before the clamp, if there is one."""
    plain = Narrowing(tuple(chain.ops), ends, chain.at, dtype, limit)
    divide = chain.step("divide")
    spread = divide.operands[1].producer("broadcast_in_dim") if divide is not None else None
    if spread is None or not is_scale(spread):
        return plain
    if chain.at.dtype is f32:
        chain.step("convert")
    beside = (*ends, spread)
    return Narrowing(tuple(chain.ops), beside, chain.at, dtype, limit, spread.operands[0])


class _Chain:
    """Ops of which each gives its result to the next alone, from the last to the first."""

    def __init__(self, value: Value, reader: Op, prepared: PreparedValues) -> None:
        self.at, self.ops = value, list[Op]()
        self._reader, self._prepared = reader, prepared

    def step(self, name: str, operand: int = 0) -> Op | None:
        """Take the op of that name that gives the value, and go on with an operand of it."""
        op = self.at.producer(name)
        if op is None or self._prepared.only_reader(self.at) is not self._reader:
            return None
        self.ops.insert(0, op)
        self._reader, self.at = op, op.operands[operand]
        return op


def _ends(clamp: Op) -> tuple[Op, ...]:
    """The constants between which numbers stay."""
    ends = [value.producer("constant") for value in (clamp.operands[0], clamp.operands[2])]
    return tuple(end for end in ends if end is not None)


def _limit(ends: tuple[Op, ...], dtype: DType) -> float | None:
    """The larger end if the other is as far below zero, within the type; ``None`` for others."""
    numbers = [end.attrs.literal("value").values() for end in ends]
    if [len(each) for each in numbers] != [1, 1]:
        return None
    ((low,), (high,)) = numbers
    return float(high) if low == -high and 0 < high <= limit_of(dtype) else None

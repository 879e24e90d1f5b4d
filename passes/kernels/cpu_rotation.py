"""Match rotary embedding with the slice and reshape into heads and the rounding around it.

    [slice ->] [reshape ->] rope [-> convert]
    [slice ->] [reshape ->] [rope ->] [convert ->] [narrowing ->] [bitcast_convert ->] kv_update

where narrowing, into a cache of 8 bits, is one of

    [convert -> / broadcast(scale) ->] clamp -> [round_nearest_even ->] convert
    quantize_rows

The kernels ``rope`` and ``cache_write`` read the columns of a wide product where they are; the
second writes rotated keys, or values, into the cache in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import DType, Op, Value
from graphgen.ir.dtype import bf16, f16, f32
from graphgen.passes.canonical.slice_algebra import bounds
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.kernels.cpu_cache import NARROW, is_scale
from graphgen.passes.kernels.kernel_call import KernelCalls, present
from graphgen.passes.quantization.cache_form import limit_of
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


@dataclass(slots=True)
class RotationMatch:
    """The ops that one call of ``rope`` or ``cache_write`` computes.

    Attributes:
        end: the last op: the rope, the conversion after it, or the ``kv_update``.
        x: [B,S,N] or [B,S,H,D], with the heads at ``offset`` of each row.
        dtype: of the result, which a cache may hold as bits.
        before: the other ops, in order.
        rope: among them or the end; ``None`` where nothing is rotated.
        offset: the first element in a row of ``x``.
        narrowing: of what is turned and rounded to ``dtype``; ``None`` into a plain cache.
    """

    end: Op
    x: Value
    dtype: DType
    before: list[Op] = field(default_factory=list[Op])
    rope: Op | None = None
    offset: int = 0
    narrowing: Narrowing | None = None

    @property
    def ops(self) -> list[Op]:
        """All ops, in an order in which they can run."""
        beside = self.narrowing.beside if self.narrowing else ()
        return [*beside, *self.before, self.end]

    def call(self, b: Builder, calls: KernelCalls) -> Sequence[Value]:
        """Insert the call; ``b`` has nothing to add."""
        writes = self.end.name == "kv_update"
        cos, sin = self.rope.operands[1:] if self.rope else (None, None)
        cache, _, seq_ids, slots = self.end.operands if writes else (None,) * 4
        narrowing = self.narrowing
        places = present(cache=cache, x=self.x, seq_ids=seq_ids, slots=slots)
        scale = narrowing.scale if narrowing else None
        operands = {**places, **present(cos=cos, sin=sin, scale=scale)}
        heads, size = (narrowing.given if narrowing else self.end.result).type.dims[2:]
        config = {
            "offset": self.offset,
            "heads": heads,
            "size": size,
            "half": cos.type.dims[2] if cos is not None else 0,
            "pairs": self.rope.attrs.text("pairs") if self.rope else "halves",
            "type": self.dtype.name,
        }
        if writes:
            config |= {
                "numbers": narrowing.dtype.name if narrowing else "",
                "limit": narrowing.limit if narrowing else 0.0,
                "scale": narrowing is not None and narrowing.scale is not None,
                "row_scale": narrowing is not None and narrowing.row_scale,
            }
        body, cloner = calls.body(operands)
        kernel = "cache_write" if writes else "rope"
        return calls.call(kernel, config, body, cloner, operands, self.ops)


def match_rope(rope: Op, prepared: PreparedValues) -> RotationMatch | NoMatch:
    """A rope that :func:`match_cache_write` has not taken in, as that of queries."""
    why = _why_not(rope.result, rope.result.dtype)
    if why is not None:
        return why
    found = RotationMatch(rope, rope.operands[0], rope.result.dtype, rope=rope)
    _take_in_heads(found, prepared)
    narrow = prepared.only_reader(rope.result)
    is_narrow = narrow is not None and narrow.name == "convert"
    if narrow is not None and is_narrow and rope.result.dtype is f32 and _is_known(narrow.result):
        found.before.append(rope)
        found.end, found.dtype = narrow, narrow.result.dtype
    return found


def match_cache_write(update: Op, prepared: PreparedValues) -> RotationMatch | NoMatch:
    """A write into a cache with what rotates and rounds the new keys or values."""
    found = _rounded_write(update, prepared)
    why = _why_not(update.result, found.dtype)
    if why is not None:
        return why
    _take_in(found, "convert", prepared)
    rope = found.x.producer("rope")
    # A rope rounds to its type: the kernel only once.
    if rope is not None and rope.result.dtype in (f32, found.dtype):
        found.rope = _take_in(found, "rope", prepared)
    _take_in_heads(found, prepared)
    if found.x.type.rank < 3:
        return no_match("the new rows are not [B,S,...]", found.x, depth=2)
    return found


def _rounded_write(update: Op, prepared: PreparedValues) -> RotationMatch:
    """A write with the conversion of bits and the narrowing before it."""
    new = update.operands[1]
    narrowing = match_narrowing(new, update, prepared)
    if narrowing is not None:
        x = narrowing.given
        return RotationMatch(update, x, x.dtype, [*narrowing.ops], narrowing=narrowing)
    bits = new.producer("bitcast_convert")
    if bits is not None and prepared.only_reader(new) is update and _is_known(bits.operands[0]):
        return RotationMatch(update, bits.operands[0], bits.operands[0].dtype, [bits])
    return RotationMatch(update, new, new.dtype)


def _why_not(result: Value, dtype: DType) -> NoMatch | None:
    if dtype not in (bf16, f16, f32):
        return no_match(f"the kernel rounds to no {dtype}", result)
    if not all(result.type.dims):
        return no_match("it has no elements", result, depth=1)
    return None


def _is_known(value: Value) -> bool:
    return value.dtype in (bf16, f16, f32)


def _take_in(found: RotationMatch, name: str, prepared: PreparedValues) -> Op | None:
    """Take in the op of that name that gives ``x`` to the ops found so far alone."""
    op = found.x.producer(name)
    reader = found.before[0] if found.before else found.end
    if op is None or prepared.only_reader(found.x) is not reader or not _is_known(op.operands[0]):
        return None
    found.before.insert(0, op)
    found.x = op.operands[0]
    return op


def _take_in_heads(found: RotationMatch, prepared: PreparedValues) -> None:
    """Take in a reshape into heads, the rounding of values before it, and a slice of columns."""
    heads = found.x.producer("reshape")
    if heads is not None and _splits_rows(heads) and _take_in(found, "reshape", prepared):
        if found.rope is None and found.x.dtype is found.dtype:
            _take_in(found, "convert", prepared)
        columns = found.x.producer("slice")
        offset = _offset(columns) if columns is not None else -1
        if offset >= 0 and _take_in(found, "slice", prepared):
            found.offset = offset


def _splits_rows(reshape: Op) -> bool:
    """True from [B,S,H·D] to [B,S,H,D]."""
    before, after = reshape.operands[0].type.dims, reshape.result.type.dims
    return len(before) == 3 and len(after) == 4 and before[:2] == after[:2]


def _offset(op: Op) -> int:
    """The first of the columns that a slice takes of all rows; -1 for any other slice."""
    *outer, (start, _, step) = bounds(op)
    whole = outer == [(0, size, 1) for size in op.operands[0].shape[:-1]]
    taken = whole and step == 1 and op.operands[0].type.rank == 3
    return start if taken and isinstance(start, int) else -1

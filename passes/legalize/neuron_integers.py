"""Keep integer arithmetic exact on Neuron, where units compute it in floats.

neuronx-cc casts integer products, integer reductions over ranks and scatters that add integers to
floats, with a warning up to SDK 2.32, and refuses them after it (NCC_EVRF016, 035, 060, 061, 063):
above 2^24 the numbers would be wrong. Here they are done in digits, to the last bit, overflow
included.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphgen.build import Builder
from graphgen.ir import Op, Value, tensor
from graphgen.ir.dtype import bf16, f32, lowest, pred, s8, s16, s32, u8, u16
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.legalize.limb_arithmetic import (
    WIDE,
    digits,
    stacked,
    unstacked,
    whole,
    width_for,
)

# Digits of a product go into the matrix unit as bf16; those of a sum into f32.
_PRODUCT, _SUM = 8, 16
# The signed type as wide as a narrow one.
_SIGNED = {s8: s8, u8: s8, s16: s16, u16: s16}


@rule("dot_general")
def integer_dot(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A product of integers is the sum of the products of their digits, shifted.

    With digits x_i and y_j of w bits, ``x·y = sum over i, j of (x_i·y_j) << w(i+j)``; what is
    shifted out of the type does not count. Each product is one of bf16 with f32 sums, exact
    because w is so small that K·(2^w-1)^2 < 2^24.
    """
    lhs, rhs = op.operands
    kind = op.result.dtype
    if lhs.dtype not in WIDE:
        return no_match(f"the operands are {lhs.dtype}", lhs)
    if not kind.is_integer:
        return no_match(f"the result is {kind}", op.result, depth=2)
    depth = prod([lhs.type.dims[dim] for dim in op.attrs.integers("lhs_contracting_dims")])
    width = width_for(depth, most=_PRODUCT, factors=2)
    if not width:
        return no_match(f"{depth} products do not add up exactly in f32", lhs, depth=3)
    left, right = (
        [b.convert(part, bf16) for part in digits(b, b.convert(x, kind), width)] for x in (lhs, rhs)
    )
    attrs = {**op.attrs, "dtype": f32}
    total: Value | None = None
    for place in range(-(-kind.bits // width)):
        for i in range(place + 1):
            product = b.emit("dot_general", (left[i], right[place - i]), attrs).result
            term = b.convert(product, kind)
            if place:
                term = b.binary("shift_left", term, place * width)
            total = term if total is None else b.binary("add", total, term)
    assert total is not None
    return [total]


def _most_ranks(op: Op) -> int:
    return max([len(group) for group in op.attrs.groups("replica_groups")])


@rule("all_reduce", "reduce_scatter")
def integer_sum_over_ranks(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Integers are added up digit by digit, all digits in one collective of f32.

    Given:
        arg %x : s32[4]
        %y = all_reduce(%x) kind=add replica_groups=[[0,1]] : s32[4]

    Result:
        arg %x : s32[4]
        %0 = constant() value=s32[](65535) : s32[]
        %1 = broadcast_in_dim(%0) shape=[4] : s32[4]
        %2 = and(%x, %1) : s32[4]
        %3 = constant() value=s32[](16) : s32[]
        %4 = broadcast_in_dim(%3) shape=[4] : s32[4]
        %5 = shift_right_logical(%x, %4) : s32[4]
        %6 = convert(%2) dtype=f32 : f32[4]
        %7 = reshape(%6) shape=[1,4] : f32[1,4]
        %8 = convert(%5) dtype=f32 : f32[4]
        %9 = reshape(%8) shape=[1,4] : f32[1,4]
        %10 = concatenate(%7, %9) dimension=0 : f32[2,4]
        %11 = all_reduce(%10) kind=add replica_groups=[[0,1]] : f32[2,4]
        %12 = slice(%11) start_indices=[0,0] limit_indices=[1,4] : f32[1,4]
        %13 = reshape(%12) shape=[4] : f32[4]
        %14 = slice(%11) start_indices=[1,0] limit_indices=[2,4] : f32[1,4]
        %15 = reshape(%14) shape=[4] : f32[4]
        %16 = convert(%13) dtype=s32 : s32[4]
        %17 = convert(%15) dtype=s32 : s32[4]
        %18 = constant() value=s32[](16) : s32[]
        %19 = broadcast_in_dim(%18) shape=[4] : s32[4]
        %20 = shift_left(%17, %19) : s32[4]
        %y = add(%16, %20) : s32[4]
    """
    (x,) = op.operands
    if x.dtype not in WIDE:
        return no_match(f"the operand is {x.dtype}", x)
    if op.attrs.text("kind") != "add":
        return no_match("no sum", x, depth=2)
    width = width_for(_most_ranks(op), most=_SUM)
    if not width:
        return no_match(f"{_most_ranks(op)} ranks do not add up exactly in f32", x, depth=3)
    attrs = dict(op.attrs)
    if op.name == "reduce_scatter":
        attrs["dimension"] = op.attrs.integer("dimension") + 1
    sums = b.emit(op.name, (stacked(b, digits(b, x, width)),), attrs).result
    return [whole(b, unstacked(b, sums), width, x.dtype)]


@rule("all_reduce", "reduce_scatter")
def integer_extreme_over_ranks(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """The largest (smallest) integer is that of the highest digit, among those of the next, ...

    Digits from the highest to the lowest, a collective of f32 each; a rank whose digits so far are
    not the extreme ones takes no further part.
    """
    (x,) = op.operands
    kind = op.attrs.text("kind")
    if x.dtype not in WIDE:
        return no_match(f"the operand is {x.dtype}", x)
    if kind == "add":
        return no_match("a sum", x, depth=2)
    parts = [b.convert(part, f32) for part in digits(b, x, _SUM, signed=True)]
    out = b.full(lowest(f32) if kind == "maximum" else -lowest(f32), parts[0].type)
    groups = op.attrs["replica_groups"]
    still: Value | None = None
    found: list[Value] = []
    for place in reversed(range(len(parts))):
        mine = parts[place] if still is None else b.select(still, parts[place], out)
        if place or op.name == "all_reduce":
            best = b.op("all_reduce", mine, kind=kind, replica_groups=groups)
            same = b.compare(mine, best, "EQ")
            still = same if still is None else b.binary("and", still, same)
            if op.name == "all_reduce":
                found.append(best)
        if op.name == "reduce_scatter":
            found.append(b.emit(op.name, (mine,), dict(op.attrs)).result)
    return [whole(b, found[::-1], _SUM, x.dtype)]


@rule("scatter")
def integer_scatter_add(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Integers are added at their places digit by digit, in f32, and the sums to the operand."""
    operand, indices, updates = op.operands
    kind = operand.dtype
    if op.attrs.text("kind") != "add":
        return no_match("nothing is added", updates)
    if not kind.is_integer and kind is not pred:
        return no_match(f"the operand is {kind}", operand, depth=2)
    windows = indices.type.dims
    vector = op.attrs.integer("index_vector_dim")
    terms = prod([size for dim, size in enumerate(windows) if dim != vector])
    width = width_for(terms, most=_SUM)
    if not width:
        return no_match(f"{terms} windows do not add up exactly in f32", indices, depth=3)
    # Narrow integers wrap around when they are narrowed again.
    wide = kind if kind in WIDE else s32
    parts: list[Value] = []
    for part in digits(b, b.convert(updates, wide), width):
        zeros = b.full(0.0, tensor(f32, operand.shape))
        given = (zeros, indices, b.convert(part, f32))
        parts.append(b.emit("scatter", given, dict(op.attrs)).result)
    total = b.binary("add", b.convert(operand, wide), whole(b, parts, width, wide))
    if kind is pred:
        return [b.compare(total, b.full(0, total.type), "NE")]
    return [b.convert(total, kind)]


@rule("shift_right_arithmetic")
def wide_shift(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A shift that keeps the sign is one of 32 bits (NCC_EVRF022).

    Given:
        arg %x : s8[4]
        arg %n : s8[4]
        %y = shift_right_arithmetic(%x, %n) : s8[4]

    Result:
        arg %x : s8[4]
        arg %n : s8[4]
        %0 = convert(%x) dtype=s32 : s32[4]
        %1 = convert(%n) dtype=s32 : s32[4]
        %2 = shift_right_arithmetic(%0, %1) : s32[4]
        %y = convert(%2) dtype=s8 : s8[4]
    """
    x, count = op.operands
    signed = _SIGNED.get(x.dtype)
    if signed is None:
        return no_match(f"the operand is {x.dtype}", x)
    # Also what has no sign is filled up with its highest bit.
    wide = b.convert(x if signed is x.dtype else b.bitcast_convert(x, signed), s32)
    shifted = b.binary("shift_right_arithmetic", wide, b.convert(count, s32))
    return [b.convert(shifted, x.dtype)]

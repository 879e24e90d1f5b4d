"""Two faults for each of ten kinds of blindness, written by somebody who had not read the checker.

The kinds: a counterexample that is dropped, types of floats, identities that overflow, what no
program shows, complex numbers, large integers, small differences, special values, situations, and
what only a rewrite alone shows.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import f32, f64, s32, u8
from tests.planted.faults import (
    Fault,
    Row,
    again,
    assert_blamed,
    assert_right,
    full,
    in_scope,
    ir,
    mini,
    name_of,
)

BUCKETS = "canonicalize,specialize{batch=[3],context=[8],tokens=[8,16]}"
LIFTED = f"{BUCKETS},fuse-projections,lift-weights"
S32, F32, C64, PRED = "s32[8]", "f32[8]", "c64[8]", "pred[8]"


def with_which(op: Op, b: Builder, which: Value) -> Sequence[Value]:
    """The branch of another number."""
    return b.emit(op.name, (which, *op.operands[1:]), dict(op.attrs)).results


def branch_clamped(op: Op, b: Builder) -> Sequence[Value]:
    """A negative number is that of the first branch, where it is that of the last one."""
    return with_which(op, b, b.clamp(b.literal(0, s32), op.operands[0], b.literal(1, s32)))


def branch_by_select(op: Op, b: Builder) -> Sequence[Value]:
    """The first branch for 0, else the last one."""
    first = b.compare(op.operands[0], b.literal(0, s32), "EQ")
    return with_which(op, b, b.select(first, b.literal(0, s32), b.literal(1, s32)))


def between(op: Op, b: Builder) -> Sequence[Value]:
    """|x| < 4 as -4 < x < 4: the lowest number is its own absolute value."""
    x = op.operands[0].op.operands[0] if op.operands[0].op else op.operands[0]
    low, high = b.full(-4, x.type), b.full(4, x.type)
    return [b.and_(b.compare(low, x, "LT"), b.compare(x, high, "LT"))]


def between_or_lowest(op: Op, b: Builder) -> Sequence[Value]:
    """The same, or the lowest number."""
    (inside,) = between(op, b)
    x = op.operands[0].op.operands[0] if op.operands[0].op else op.operands[0]
    return [b.or_(inside, b.compare(x, b.full(-(1 << 31), x.type), "EQ"))]


def whole_trip_dropped(op: Op, b: Builder) -> Sequence[Value]:
    """An integer that goes through f32 and back is taken for itself."""
    inner = op.operands[0].producer("convert")
    assert inner is not None
    return [b.convert(b.negate(b.negate(inner.operands[0])), s32)]


def compared_in_f32(op: Op, b: Builder) -> Sequence[Value]:
    """A comparison of f64 in f32."""
    x, y = (b.convert(value, f32) for value in op.operands)
    return [b.compare(x, y, "LT")]


def compared_by_greater(op: Op, b: Builder) -> Sequence[Value]:
    """x < y as y > x."""
    x, y = op.operands
    return [b.compare(y, x, "GT")]


def always(op: Op, b: Builder) -> Sequence[Value]:
    """A square is taken for a number that is not negative."""
    return [b.compare(op.operands[0], op.operands[0], "EQ")]


def bound_moved(op: Op, b: Builder) -> Sequence[Value]:
    """x + 77777 > 1000000 as x > 922223, whatever overflows."""
    inner = op.operands[0].producer("add")
    assert inner is not None
    x = inner.operands[0]
    return [b.compare(x, b.full(922223, x.type), "GT")]


def bound_moved_in_range(op: Op, b: Builder) -> Sequence[Value]:
    """The same where the sum does not overflow."""
    (moved,) = bound_moved(op, b)
    inner = op.operands[0].producer("add")
    assert inner is not None
    x = inner.operands[0]
    return [b.and_(moved, b.compare(x, b.full((1 << 31) - 1 - 77777, x.type), "LE"))]


def keys_after_values(op: Op, b: Builder) -> Sequence[Value]:
    """Queries, values and keys in this order."""
    q, k, v = op.operands
    return [again(op, b, q, v, k)]


def other_state(op: Op, b: Builder) -> Sequence[Value]:
    """A state's new value is made of the state beside it."""
    other = next(arg for arg in b.function.args if arg.name == "d")
    return [again(op, b, other, op.operands[1])]


def parts(b: Builder, op: Op) -> tuple[Value, Value, Value, Value]:
    """Real and imaginary parts of both operands."""
    x, y = op.operands
    return b.op("real", x), b.op("imag", x), b.op("real", y), b.op("imag", y)


def differs_in_real_part(op: Op, b: Builder) -> Sequence[Value]:
    """Complex numbers differ if their real parts do."""
    xr, _, yr, _ = parts(b, op)
    return [b.compare(xr, yr, "NE")]


def differs_in_a_part(op: Op, b: Builder) -> Sequence[Value]:
    """Complex numbers differ if one of their parts does."""
    xr, xi, yr, yi = parts(b, op)
    return [b.or_(b.compare(xr, yr, "NE"), b.compare(xi, yi, "NE"))]


def conjugate_kept(op: Op, b: Builder) -> Sequence[Value]:
    """The imaginary part keeps its sign."""
    return [b.add(op.operands[0], b.full(0.0, op.result.type))]


def shift_by_low_bits(op: Op, b: Builder) -> Sequence[Value]:
    """The number of places is taken modulo 32, as x86 does."""
    x, places = op.operands
    return [b.shift_left(x, b.and_(places, b.full(31, places.type)))]


def shift_or_zero(op: Op, b: Builder) -> Sequence[Value]:
    """The same, and 0 for 32 places and more."""
    places = op.operands[1]
    (shifted,) = shift_by_low_bits(op, b)
    fits = b.compare(places, b.full(32, places.type), "LT")
    return [b.select(fits, shifted, b.full(0, shifted.type))]


def mean_without_carry(op: Op, b: Builder) -> Sequence[Value]:
    """(x + y) / 2 in the 8 bits of both."""
    inner = op.operands[0].producer("add")
    assert inner is not None
    x, y = (b.convert(value, u8) for value in inner.operands)
    half = b.shift_right_logical(b.add(x, y), b.full(1, x.type))
    return [b.convert(half, op.result.dtype)]


def mean_with_carry(op: Op, b: Builder) -> Sequence[Value]:
    """(x & y) + (x ^ y) / 2 in 8 bits."""
    inner = op.operands[0].producer("add")
    assert inner is not None
    x, y = (b.convert(value, u8) for value in inner.operands)
    half = b.shift_right_logical(b.xor(x, y), b.full(1, x.type))
    return [b.convert(b.add(b.and_(x, y), half), op.result.dtype)]


def negated(op: Op, b: Builder) -> Sequence[Value]:
    """0 - x as -x, which is -0 of 0."""
    return [b.negate(op.operands[1])]


def zero_plus_negated(op: Op, b: Builder) -> Sequence[Value]:
    """0 - x as 0 + -x."""
    zero, x = op.operands
    return [b.add(zero, b.negate(x))]


def log_of_sum(op: Op, b: Builder) -> Sequence[Value]:
    """log(1 + x), which is 0 where x is small."""
    x = op.operands[0]
    return [b.log(b.add(x, b.full(1.0, x.type)))]


def upper_bound_first(op: Op, b: Builder) -> Sequence[Value]:
    """The lower bound wins where it is above the upper one."""
    low, x, high = op.operands
    return [b.maximum(b.minimum(x, high), low)]


def lower_bound_first(op: Op, b: Builder) -> Sequence[Value]:
    """The upper bound wins."""
    low, x, high = op.operands
    return [b.minimum(b.maximum(x, low), high)]


def below(limit: float, op: Op, b: Builder) -> Sequence[Value]:
    """|x| < limit."""
    x = op.operands[0]
    return [b.compare(b.abs(x), b.full(limit, x.type), "LT")]


def below_largest(op: Op, b: Builder) -> Sequence[Value]:
    """The largest finite number is taken for infinite."""
    return below(3.4028234663852886e38, op, b)


def below_infinity(op: Op, b: Builder) -> Sequence[Value]:
    """|x| < inf."""
    return below(float("inf"), op, b)


def last_slot_unseen(op: Op, b: Builder) -> Sequence[Value]:
    """A token at the last position of the bucket does not see itself."""
    positions, seen = op.operands[0], again(op, b, *op.operands)
    last = seen.type.dims[2] - 1
    here = b.compare(positions, b.full(last, positions.type), "EQ")
    slots = b.iota(s32, seen.shape, 2)
    itself = b.compare(slots, b.full(last, slots.type), "EQ")
    gone = b.and_(b.broadcast_in_dim(here, seen.shape, [0, 1]), itself)
    return [b.and_(seen, b.not_(gone))]


def rows_in_order(op: Op, b: Builder) -> Sequence[Value]:
    """Row n of a call is taken for row n of the cache, but for idle ones."""
    cache, new, rows, slots = op.operands
    idle = b.compare(rows, b.full(cache.type.dims[0], rows.type), "GE")
    return [again(op, b, cache, new, b.select(idle, rows, b.iota(s32, rows.shape, 0)), slots)]


def gate_by_exponential(op: Op, b: Builder) -> Sequence[Value]:
    """x e^x / (1 + e^x), which is NaN from 89 on."""
    x = op.operands[0]
    e = b.exponential(x)
    return [b.multiply(x, b.divide(e, b.add(e, b.full(1.0, e.type))))]


def gate_by_logistic(op: Op, b: Builder) -> Sequence[Value]:
    """x times its logistic function."""
    return [b.multiply(op.operands[0], b.logistic(op.operands[0]))]


def tangent_by_exponential(op: Op, b: Builder) -> Sequence[Value]:
    """(e^2x - 1) / (e^2x + 1), which is NaN from 45 on."""
    x = op.operands[0]
    e = b.exponential_minus_one(b.multiply(x, b.full(2.0, x.type)))
    return [b.divide(e, b.add(e, b.full(2.0, e.type)))]


BRANCHES = """func @less {
  arg %x : f32[8]
  %y = negate(%x) : f32[8]
  return y = %y
}

func @more {
  arg %x : f32[8]
  %y = tanh(%x) : f32[8]
  return y = %y
}

"""
BRANCHED = f"branches=[less,more] takes=[1,1] results=[{F32}]"
STATES = """module @m level=logical {
  input %x : f32[4]
  state %c : f32[4]
  state %d : f32[4]
  output %y : f32[4]
}

func @main phase=main {
  arg %x : f32[4]
  arg %c : f32[4]
  arg %d : f32[4]
  %y = add(%c, %d) : f32[4]
  %0 = maximum(%c, %x) : f32[4]
  %1 = minimum(%d, %x) : f32[4]
  return y = %y
  return c = %0
  return d = %1
}
"""

CONTEXT: list[Row] = [
    Fault(
        "branch-clamped",
        ir(
            f"%y = conditional(%i, %x, %x) {BRANCHED} : {F32}",
            functions=BRANCHES,
            i="s32[]",
            x=F32,
            y=F32,
        ),
        "conditional",
        branch_clamped,
        branch_by_select,
    ),
    Fault(
        "absolute-value-below",
        ir(
            full("c", 4, S32),
            f"%a = abs(%x) : {S32}",
            f"%y = compare(%a, %c) direction=LT : {PRED}",
            x=S32,
            y=PRED,
        ),
        "compare",
        between,
        between_or_lowest,
    ),
]
TRIP = ("%a = convert(%x) dtype=f32 : f32[8]", f"%y = convert(%a) dtype=s32 : {S32}")
ORDER = "%y = compare(%x, %z) direction=LT : pred[8]"
TYPES: list[Row] = [
    Fault(
        "whole-trip-dropped",
        ir(*TRIP, x=S32, y=S32),
        "convert",
        whole_trip_dropped,
        where=lambda op: op.result.dtype is s32,
        right_module=ir(*TRIP, x="s16[8]", y=S32),
    ),
    Fault(
        "compared-in-f32",
        ir(ORDER, x="f64[8]", z="f64[8]", y=PRED),
        "compare",
        compared_in_f32,
        compared_by_greater,
        where=lambda op: op.operands[0].dtype is f64,
    ),
]
OVERFLOW: list[Row] = [
    Fault(
        "square-not-negative",
        ir(
            full("c", 0, S32),
            f"%a = multiply(%x, %x) : {S32}",
            f"%y = compare(%a, %c) direction=GE : {PRED}",
            x=S32,
            y=PRED,
        ),
        "compare",
        always,
    ),
    Fault(
        "bound-moved",
        ir(
            full("c", 77777, S32),
            full("e", 1000000, S32),
            f"%a = add(%x, %c) : {S32}",
            f"%y = compare(%a, %e) direction=GT : {PRED}",
            x=S32,
            y=PRED,
        ),
        "compare",
        bound_moved,
        bound_moved_in_range,
    ),
]
OUTSIDE: list[Row] = [
    Fault(
        "keys-after-values",
        mini("llama-3.1-8b", LIFTED),
        "concatenate",
        keys_after_values,
        where=in_scope("model.layers.1.self_attn"),
        program="weights.global",
    ),
    Fault("state-of-another", STATES, "maximum", other_state),
]
COMPLEX: list[Row] = [
    Fault(
        "differs-in-real-part",
        ir(f"%y = compare(%x, %z) direction=NE : {PRED}", x=C64, z=C64, y=PRED),
        "compare",
        differs_in_real_part,
        differs_in_a_part,
    ),
    Fault(
        "conjugate-kept",
        ir(
            f"%a = real(%x) : {F32}",
            f"%b = imag(%x) : {F32}",
            f"%c = negate(%b) : {F32}",
            f"%y = complex(%a, %c) : {C64}",
            x=C64,
            y=C64,
        ),
        "negate",
        conjugate_kept,
    ),
]
INTEGERS: list[Row] = [
    Fault(
        "shift-by-low-bits",
        ir("%y = shift_left(%x, %z) : u32[8]", x="u32[8]", z="u32[8]", y="u32[8]"),
        "shift_left",
        shift_by_low_bits,
        shift_or_zero,
    ),
    Fault(
        "mean-without-carry",
        ir(
            full("c", 1, "u16[8]"),
            "%a = convert(%x) dtype=u16 : u16[8]",
            "%b = convert(%z) dtype=u16 : u16[8]",
            "%s = add(%a, %b) : u16[8]",
            "%y = shift_right_logical(%s, %c) : u16[8]",
            x="u8[8]",
            z="u8[8]",
            y="u16[8]",
        ),
        "shift_right_logical",
        mean_without_carry,
        mean_with_carry,
    ),
]
SMALL: list[Row] = [
    Fault(
        "zero-minus",
        ir(full("c", 0.0, F32), f"%y = subtract(%c, %x) : {F32}", x=F32, y=F32),
        "subtract",
        negated,
        zero_plus_negated,
    ),
    Fault(
        "log-of-sum",
        ir(f"%a = abs(%x) : {F32}", f"%y = log_plus_one(%a) : {F32}", x=F32, y=F32),
        "log_plus_one",
        log_of_sum,
        rounding=1e-6,
    ),
]
SPECIAL: list[Row] = [
    Fault(
        "upper-bound-first",
        ir(f"%y = clamp(%x, %z, %w) : {F32}", x=F32, z=F32, w=F32, y=F32),
        "clamp",
        upper_bound_first,
        lower_bound_first,
    ),
    Fault(
        "finite-below-largest",
        ir(f"%y = is_finite(%x) : {PRED}", x=F32, y=PRED),
        "is_finite",
        below_largest,
        below_infinity,
    ),
]
SITUATIONS: list[Row] = [
    Fault(
        "last-slot-unseen",
        mini("llama-3.1-8b", BUCKETS),
        "attention_mask",
        last_slot_unseen,
        program="decode.b3.c16",
    ),
    Fault(
        "rows-in-order",
        mini("llama-3.1-8b", BUCKETS),
        "kv_update",
        rows_in_order,
        where=lambda op: op.operands[0].name == "model.layers.1.self_attn.v_cache",
        program="decode.b3.c8",
    ),
]
ALONE: list[Row] = [
    Fault(
        "gate-by-exponential",
        mini("llama-3.1-8b"),
        "silu",
        gate_by_exponential,
        gate_by_logistic,
        where=in_scope("model.layers.1.mlp"),
        program="decode",
        rounding=1e-5,
    ),
    Fault(
        "tangent-by-exponential",
        ir(f"%a = negate(%x) : {F32}", f"%y = tanh(%a) : {F32}", x=F32, y=F32),
        "tanh",
        tangent_by_exponential,
        rounding=1e-6,
    ),
]
FAULTS: list[Row] = [
    *CONTEXT,
    *TYPES,
    *OVERFLOW,
    *OUTSIDE,
    *COMPLEX,
    *INTEGERS,
    *SMALL,
    *SPECIAL,
    *SITUATIONS,
    *ALONE,
]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_is_found_and_its_rewrite_blamed(fault: Row):
    assert_blamed(fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_the_same_done_right_is_ok(fault: Row):
    assert_right(fault)

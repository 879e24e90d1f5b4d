"""Wrong rewrites that show in calls that are rarely made: a prefix, an idle row, the last slot."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32
from tests.oracles.planted_bugs import (
    ATTENTION_0,
    ATTENTION_1,
    Bug,
    Rewrite,
    changed,
    of_cache,
    reads_cache,
    rebuild,
    zero_instead,
)
from tests.oracles.unseen_bugs import (
    Scene,
    Unseen,
    at_most,
    dims,
    number,
    prompts,
    starts,
    steps,
    zeros,
)

ONE = "specialize{batch=[2],context=[8,16],tokens=[8,16,32]}"
THREE = "specialize{batch=[3],context=[8,16],tokens=[8,16]}"
MANY_ROWS = "specialize{batch=[2],rows=4,context=[8],tokens=[8,16]}"

PREFIX = Scene(dims(2, 8, 16, 2, 16), prompts(8, 8, 5, start=4))
CLAMPED = Scene(dims(3, 8, 8, 3, 16), prompts(8, 5, 0, 8), rows=[0, 3, 1])
IDLE = Scene(dims(3, 8, 8, 3, 16), prompts(8, 5, 0, 8), rows=[0, 3, 2])
REUSED = Scene(dims(2, 8, 16, 2, 16), prompts(8, 8, 5))


def from_zero(value: Value, b: Builder) -> Value:
    """s32 [B,S], counted from the row's first position in this call."""
    return b.op("subtract", value, b.broadcast_in_dim(starts(value, b), value.shape, [0]))


def own_slots(op: Op, b: Builder) -> Sequence[Value]:
    """Slots before the row's first position in this call are not read."""
    (made,) = rebuild(op, b)
    first = b.broadcast_in_dim(starts(op.operands[0], b), made.shape, [0])
    return [b.binary("and", made, b.compare(b.iota(s32, made.shape, 2), first, "GE"))]


def window_from_zero(op: Op, b: Builder) -> Sequence[Value]:
    """The window is counted from the row's first position in this call."""
    window = op.attrs.integer("window")
    whole = b.emit(op.name, op.operands, {**op.attrs, "window": 0}).result
    first = b.binary("add", from_zero(op.operands[0], b), -window)
    first = b.broadcast_in_dim(first, whole.shape, [0, 1])
    return [b.binary("and", whole, b.compare(b.iota(s32, whole.shape, 2), first, "GT"))]


def tokens_counted(op: Op, b: Builder) -> Sequence[Value]:
    """The number of tokens in the call stands for the length of the row."""
    x, positions, _ = op.operands
    real = b.convert(b.compare(positions, b.full(0, positions.type), "GE"), s32)
    return b.emit(op.name, (x, positions, b.reduce(real, [1], "add")), dict(op.attrs)).results


def idle(positions: Value, b: Builder) -> Value:
    """pred [B]: rows without a token."""
    last = b.reduce(positions, [1], "maximum")
    return b.compare(last, b.full(0, last.type), "LT")


def idle_rows_clamped(op: Op, b: Builder) -> Sequence[Value]:
    """An idle row is brought inside the cache, as ``dynamic_update_slice`` does."""
    cache, new, ids, positions = op.operands
    empty = b.broadcast_in_dim(idle(positions, b), positions.shape, [0])
    ids = b.binary("minimum", ids, number(cache.shape[0]) - 1)
    positions = b.select(empty, b.binary("maximum", positions, 0), positions)
    return b.emit(op.name, (cache, new, ids, positions), dict(op.attrs)).results


def idle_rows_cleared(op: Op, b: Builder) -> Sequence[Value]:
    """A prefill first clears the first slots of every row without tokens."""
    cache, new, ids, positions = op.operands
    empty = b.broadcast_in_dim(idle(positions, b), positions.shape, [0])
    minus = b.full(-1, positions.type)
    slots = b.select(empty, b.iota(s32, positions.shape, 1), minus)
    rows = b.iota(s32, ids.shape, 0)
    clean = b.emit(op.name, (cache, zeros(b, new, new.shape), rows, slots), dict(op.attrs)).result
    return b.emit(op.name, (clean, new, ids, positions), dict(op.attrs)).results


def before(bound: int, index: int = 3) -> Rewrite:
    """Positions from ``bound`` on are taken for padding."""

    def change(value: Value, b: Builder) -> Value:
        inside = b.compare(value, b.full(bound, value.type), "LT")
        return b.select(inside, value, b.full(-1, value.type))

    return changed(index, change)


def after_0(value: Value, b: Builder) -> Value:
    """Position 0 is taken for padding."""
    inside = b.compare(value, b.full(0, value.type), "GT")
    return b.select(inside, value, b.full(-1, value.type))


def last_slot_unread(op: Op, b: Builder) -> Sequence[Value]:
    """All slots but the last."""
    (made,) = rebuild(op, b)
    slots = b.iota(s32, made.shape, 2)
    inside = b.compare(slots, b.full(number(made.shape[2]) - 1, slots.type), "LT")
    return [b.binary("and", made, inside)]


def added_to_the_row(op: Op, b: Builder) -> Sequence[Value]:
    """Written by a sum, as a product with one-hot rows does that clears nothing."""
    cache, *others = op.operands
    made = b.emit(op.name, (zero_instead(cache, b), *others), dict(op.attrs)).result
    return [b.op("add", cache, made)]


def largest_kept(op: Op, b: Builder) -> Sequence[Value]:
    """What the slot held stays where it is larger in size."""
    cache, *others = op.operands
    made = b.emit(op.name, (zero_instead(cache, b), *others), dict(op.attrs)).result
    larger = b.compare(b.abs(cache), b.abs(made), "GT")
    return [b.select(larger, cache, made)]


def nonzero_is_filled(op: Op, b: Builder) -> Sequence[Value]:
    """A slot counts as filled where its key is not zero."""
    query, key, value, mask = op.operands
    filled = b.compare(b.reduce(b.abs(key), [2, 3], "add"), zeros(b, key, key.shape[:2]), "GT")
    mask = b.broadcast_in_dim(filled, mask.shape, [0, 2])
    return b.emit(op.name, (query, key, value, mask), dict(op.attrs)).results


SITUATION_BUGS = (
    Unseen(
        "situations",
        Bug("angles-from-zero", "rope_table", "prefill", "", changed(0, from_zero)),
        PREFIX,
    ),
    Unseen("situations", Bug("prefix-unread", "attention_mask", "prefill", "", own_slots), PREFIX),
    Unseen(
        "situations", Bug("tokens-counted", "last_token", "prefill", "", tokens_counted), PREFIX
    ),
    Unseen(
        "situations",
        Bug("window-from-zero", "attention_mask", "prefill", "", window_from_zero),
        PREFIX,
        "mistral",
    ),
    Unseen(
        "situations",
        Bug(
            "idle-row-clamped",
            "kv_update",
            "prefill.b3.s8",
            ATTENTION_0,
            idle_rows_clamped,
            of_cache("k_cache"),
            THREE,
        ),
        CLAMPED,
    ),
    Unseen(
        "situations",
        Bug(
            "idle-row-cleared",
            "kv_update",
            "prefill",
            ATTENTION_1,
            idle_rows_cleared,
            of_cache("v_cache"),
        ),
        IDLE,
    ),
    Unseen(
        "situations",
        Bug(
            "shorter-than-its-bucket",
            "last_token",
            "prefill.b2.s8",
            "",
            changed(2, at_most(7)),
            after=ONE,
        ),
        Scene(dims(2, 8, 8, 2, 32), prompts(8, 8, 5)),
    ),
    Unseen(
        "situations",
        Bug(
            "last-token-unwritten",
            "kv_update",
            "prefill.b2.s16",
            ATTENTION_0,
            before(15),
            of_cache("v_cache"),
            ONE,
        ),
        Scene(dims(2, 16, 16, 2, 32), prompts(16, 16, 5)),
    ),
    Unseen(
        "situations",
        Bug(
            "last-slot-unwritten",
            "kv_update",
            "decode.b2.c32",
            ATTENTION_1,
            before(31),
            of_cache("k_cache"),
            ONE,
        ),
        Scene(dims(2, 1, 32, 2, 32), steps(31, 20)),
    ),
    Unseen(
        "situations",
        Bug("last-slot-unread", "attention_mask", "decode.b2.c32", "", last_slot_unread, after=ONE),
        Scene(dims(2, 1, 32, 2, 32), steps(31, 20)),
    ),
    Unseen(
        "situations",
        Bug(
            "added-to-the-row",
            "kv_update",
            "prefill",
            ATTENTION_0,
            added_to_the_row,
            of_cache("k_cache"),
        ),
        REUSED,
    ),
    Unseen(
        "situations",
        Bug("larger-stays", "kv_update", "decode", ATTENTION_1, largest_kept, of_cache("v_cache")),
        Scene(dims(2, 1, 16, 2, 16), steps(9, 4)),
    ),
    Unseen(
        "situations",
        Bug("nonzero-is-filled", "attention", "decode", ATTENTION_0, nonzero_is_filled),
        Scene(dims(2, 1, 16, 2, 16), steps(9, 4)),
    ),
    Unseen(
        "situations",
        Bug(
            "position-0-is-padding",
            "kv_update",
            "decode",
            ATTENTION_1,
            changed(3, after_0),
            of_cache("k_cache"),
        ),
        Scene(dims(2, 1, 16, 2, 16), steps(0, 4)),
    ),
    Unseen(
        "situations",
        Bug(
            "rows-of-the-call",
            "cache_read",
            "decode.b2.c16",
            ATTENTION_0,
            changed(1, at_most(1)),
            reads_cache("k_cache"),
            MANY_ROWS,
        ),
        Scene(dims(2, 1, 16, 4, 16), steps(9, 4), rows=[3, 0]),
    ),
)

"""Wrong rewrites that small models do not show: ids, positions and heads that are few."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from tests.oracles.planted_bugs import (
    ATTENTION_0,
    LAYER_0,
    RANKS,
    Bug,
    changed,
    of_cache,
    reads_cache,
    rebuild,
)
from tests.oracles.unseen_bugs import (
    Scene,
    Unseen,
    at_most,
    dims,
    number,
    steps,
    through,
    zeros,
)

RING = "specialize{batch=[2],context=[8,16],tokens=[8,16,32]},roll-window-cache"
FAR = 32_801


def far(*positions: int) -> Scene:
    """One token a row, far from the start; an id of 17 bits first."""
    size = max(positions) + 1
    ids = [[65_540 + row] for row in range(len(positions))]
    count = len(positions)
    return Scene(dims(count, 1, size, count, size), steps(*positions), ids)


def prompt(*starting: int) -> Scene:
    """Four tokens a row from these positions on, with ids of 17 bits."""
    count, size = len(starting), max(starting) + 4
    positions = [[start + i for i in range(4)] for start in starting]
    ids = [[65_536 + 7 * i + row for i in range(4)] for row in range(count)]
    return Scene(dims(count, 4, size, count, size), positions, ids)


def two_turns(op: Op, b: Builder) -> Sequence[Value]:
    """What is left after two turns of a ring."""
    left, size = op.operands
    for turn in (b.binary("add", size, size), size):
        left = b.select(b.compare(left, turn, "GE"), b.op("subtract", left, size), left)
    return [left]


def in_8_bits(value: Value, b: Builder) -> Value:
    """s32 in 8 bits without a sign, padding aside."""
    low = through("u8")(value, b)
    return b.select(b.compare(value, b.full(0, value.type), "LT"), value, low)


def groups_interleaved(op: Op, b: Builder) -> Sequence[Value]:
    """Query head h reads KV head ``h mod K`` instead of ``h div G``."""
    query, key, *others = op.operands
    rows, active, heads, size = query.shape
    shared = number(key.shape[2])
    groups = number(heads) // shared

    def turned(value: Value, first: int, second: int) -> Value:
        split = b.reshape(value, (rows, active, first, second, size))
        return b.reshape(b.transpose(split, [0, 1, 3, 2, 4]), value.shape)

    attrs = dict(op.attrs)
    made = b.emit(op.name, (turned(query, groups, shared), key, *others), attrs).result
    return [turned(made, shared, groups)]


def heads_and_size(op: Op, b: Builder) -> Sequence[Value]:
    """[B,C,K,D] laid out as [B,C,D,K]."""
    (made,) = rebuild(op, b)
    rows, slots, heads, size = made.shape
    return [b.transpose(b.reshape(made, (rows, slots, size, heads)), [0, 1, 3, 2])]


def power_below(size: int) -> int:
    """The largest power of two that is not greater."""
    return 1 << (size.bit_length() - 1)


def whole_tile_of_heads(op: Op, b: Builder) -> Sequence[Value]:
    """As many heads as the largest power of two; zeros for the rest."""
    (made,) = rebuild(op, b)
    heads = number(made.shape[2])
    kept = power_below(heads)
    if kept == heads:
        return [made]
    rest = zeros(b, made, (*made.shape[:2], heads - kept, made.shape[3]))
    return [b.concatenate([b.slice_dim(made, 2, 0, kept), rest], 2)]


def mean_by_shift(op: Op, b: Builder) -> Sequence[Value]:
    """The mean as a sum over the power of two below the width."""
    x, weight = op.operands
    width = number(x.shape[-1])
    epsilon = op.attrs.number("epsilon")
    share = width / power_below(width)
    if share == 1:
        return rebuild(op, b)
    attrs = {**op.attrs, "epsilon": epsilon / share}
    made = b.emit(op.name, (x, weight), attrs).result
    return [b.binary("multiply", made, share**-0.5)]


def tiles_of_16(op: Op, b: Builder) -> Sequence[Value]:
    """Sums over whole tiles of 16 elements only."""
    x, weight = op.operands
    size = number(x.shape[-1])
    kept = size - size % 16
    last = len(x.shape) - 1
    short = b.slice_dim(x, last, 0, kept), b.slice_dim(weight, 1, 0, kept)
    return b.emit(op.name, short, dict(op.attrs)).results


def tiles_of_the_vocabulary(op: Op, b: Builder) -> Sequence[Value]:
    """Logits of whole tiles of 32 ids; zeros for the rest."""
    (made,) = rebuild(op, b)
    size = number(made.shape[-1])
    kept = size - size % 32 if size > 1024 else size
    rest = zeros(b, made, (made.shape[0], size - kept))
    return [b.concatenate([b.slice_dim(made, 1, 0, kept), rest], 1)]


def into_slot(op: Op) -> bool:
    """The slot of a position in a ring."""
    return op.operands[0].producer("add") is not None


WIDE = "wide llama"

SIZE_BUGS = (
    Unseen(
        "sizes",
        Bug("ids-of-16-bits", "embedding", "prefill", "model", changed(1, through("u16"))),
        prompt(0, 5),
        WIDE,
    ),
    Unseen(
        "sizes",
        Bug("ids-of-8-bits", "embedding", "decode", "model", changed(1, through("u8"))),
        Scene(dims(2, 1, 8, 2, 8), steps(5, 7), [[256], [700]]),
        WIDE,
    ),
    Unseen(
        "sizes",
        Bug("angles-of-8-bits", "rope_table", "decode", "", changed(0, in_8_bits)),
        far(300, 255),
        WIDE,
    ),
    Unseen(
        "sizes",
        Bug(
            "slots-of-15-bits",
            "kv_update",
            "decode",
            ATTENTION_0,
            changed(3, through("s16")),
            of_cache("k_cache"),
        ),
        far(FAR, 32_767),
        WIDE,
    ),
    Unseen(
        "sizes",
        Bug("angles-in-bf16", "rope_table", "prefill", "", changed(0, through("bf16"))),
        prompt(301, 600),
        WIDE,
    ),
    Unseen(
        "sizes",
        Bug("mask-in-f16", "attention_mask", "decode", "", changed(0, through("f16"))),
        far(2049, 4099),
        WIDE,
    ),
    Unseen(
        "sizes",
        Bug("lengths-of-7-bits", "last_token", "prefill", "", changed(2, through("s8"))),
        prompt(125, 4),
        WIDE,
    ),
    Unseen(
        "sizes",
        Bug("ring-of-two-turns", "remainder", "decode.b2.c32", "", two_turns, into_slot, RING),
        Scene(dims(2, 1, 32, 2, 32), steps(25, 14)),
        "mistral",
    ),
    Unseen(
        "sizes",
        Bug(
            "length-of-two-turns",
            "attention_mask",
            "decode.b2.c32",
            "",
            changed(1, at_most(12)),
            after=RING,
        ),
        Scene(dims(2, 1, 32, 2, 32), steps(25, 14)),
        "mistral",
    ),
    Unseen(
        "sizes",
        Bug(
            "groups-interleaved",
            "attention",
            "decode",
            ATTENTION_0,
            groups_interleaved,
            after=RANKS,
        ),
        far(20, 9),
        WIDE,
    ),
    Unseen(
        "sizes",
        Bug(
            "heads-and-size-turned",
            "cache_read",
            "prefill",
            ATTENTION_0,
            heads_and_size,
            reads_cache("v_cache"),
            RANKS,
        ),
        prompt(0, 5),
        WIDE,
    ),
    Unseen(
        "sizes",
        Bug("tile-of-heads", "attention", "prefill", ATTENTION_0, whole_tile_of_heads),
        prompt(0, 5),
        WIDE,
    ),
    Unseen(
        "sizes",
        Bug("mean-by-shift", "rms_norm", "decode", f"{LAYER_0}.input_layernorm", mean_by_shift),
        far(20, 9),
        WIDE,
    ),
    Unseen(
        "sizes",
        Bug("tiles-of-16", "dot_general", "prefill", f"{LAYER_0}.mlp.down_proj", tiles_of_16),
        prompt(0, 5),
        WIDE,
    ),
    Unseen(
        "sizes",
        Bug("tiles-of-the-vocabulary", "dot_general", "decode", "lm_head", tiles_of_the_vocabulary),
        far(20, 9),
        WIDE,
    ),
)

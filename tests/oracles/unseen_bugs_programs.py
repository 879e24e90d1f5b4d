"""Wrong rewrites in programs that few calls run: buckets in the middle, one batch size of two."""

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
    added_instead,
    attribute,
    changed,
    of_cache,
    of_queries,
    only,
    operands,
    reads_cache,
    rebuild,
    zero_instead,
)
from tests.oracles.unseen_bugs import (
    Scene,
    Unseen,
    at_most,
    dims,
    front,
    number,
    prompts,
    steps,
    zeros,
)

ONE = "specialize{batch=[2],context=[8,16],tokens=[8,16,32]}"
TWO = "specialize{batch=[1,4],context=[8,16],tokens=[8,16,32]}"
OWN = "specialize{batch=[2],context=[5,11],tokens=[7,13,29]}"
DRAWN = "canonicalize,on-device-sampling{do_sample=true,global_topk=8}"

LONG = Scene(dims(2, 16, 16, 2, 32), prompts(16, 16, 11))
MIDDLE = Scene(dims(2, 1, 16, 2, 32), steps(13, 9))
CHUNK = Scene(dims(2, 4, 16, 2, 16), prompts(4, 4, 3, start=6))
PARAMS = {
    "sampling_params": [[5.0, 0.6, 3.0], [0.0, 0.5, 2.0], [4.0, 0.5, 2.0]],
    "random": [0.99, 0.6, 0.9],
}
DRAWN_STEP = Scene(dims(3, 1, 16, 3, 16), steps(5, 9, 3), inputs=PARAMS)
DRAWN_PROMPT = Scene(dims(3, 8, 16, 3, 16), prompts(8, 5, 8, 3), inputs=PARAMS)


def row_0(value: Value, b: Builder) -> Value:
    """[B] with the first number in every row."""
    return b.broadcast_in_dim(b.reshape(b.slice_dim(value, 0, 0, 1), ()), value.shape, [])


def first_slots(op: Op, b: Builder) -> Sequence[Value]:
    """A read of the first half of the slots; zeros stand for the rest."""
    half = number(op.result.shape[1]) // 2
    made = b.emit(op.name, op.operands, {**op.attrs, "attended": half}).result
    return [b.concatenate([made, zeros(b, made, made.shape)], 1)]


def whole_tiles(tile: int, dim: int) -> Rewrite:
    """The result as far as whole tiles go; zeros after."""

    def wrong(op: Op, b: Builder) -> Sequence[Value]:
        size = number(op.result.shape[dim])
        return front(size - size % tile, dim)(op, b)

    return wrong


def tiles_of_tokens(op: Op, b: Builder) -> Sequence[Value]:
    """Written in tiles of four tokens; those after the last whole tile are forgotten."""
    cache, new, ids, positions = op.operands
    count = number(positions.shape[1]) // 4 * 4
    new, positions = b.slice_dim(new, 1, 0, count), b.slice_dim(positions, 1, 0, count)
    return b.emit(op.name, (cache, new, ids, positions), dict(op.attrs)).results


def causal_by_index(op: Op, b: Builder) -> Sequence[Value]:
    """Token s reads slots up to ``s + C - S``, as where the last token has the last slot."""
    (made,) = rebuild(op, b)
    _, active, attended = (number(dim) for dim in made.shape)
    tokens, slots = (b.iota(op.operands[0].dtype, made.shape, dim) for dim in (1, 2))
    keys = b.broadcast_in_dim(op.operands[1], made.shape, [0, 2])
    filled = b.compare(keys, b.full(0, keys.type), "GE")
    causal = b.compare(slots, b.binary("add", tokens, attended - active), "LE")
    return [b.binary("and", causal, filled)]


def mask_of_whole_tiles(value: Value, b: Builder) -> Value:
    """pred [B,S,C] without the slots after the last whole tile of eight."""
    size = number(value.shape[2])
    slots = b.iota(s32, value.shape, 2)
    inside = b.compare(slots, b.full(size - size % 8, slots.type), "LT")
    return b.binary("and", value, inside)


def by_temperature(op: Op) -> bool:
    """The logits divided by the temperature."""
    return op.operands[0].producer("top_k") is not None


def by_random(op: Op) -> bool:
    """The drawn number times the sum of what top_p kept."""
    return op.operands[1].name == "random"


def counts_down(op: Op) -> bool:
    """One less than top_k."""
    return op.result.type.rank == 2 and op.operands[0].producer("broadcast_in_dim") is not None


PROGRAM_BUGS = (
    Unseen(
        "programs",
        Bug(
            "tables-of-a-bucket",
            "rope",
            "prefill.b2.s16",
            ATTENTION_1,
            operands(0, 2, 1),
            of_queries,
            ONE,
        ),
        LONG,
    ),
    Unseen(
        "programs",
        Bug(
            "slots-of-the-first-bucket",
            "kv_update",
            "prefill.b2.s16",
            ATTENTION_0,
            changed(3, at_most(7)),
            of_cache("k_cache"),
            ONE,
        ),
        LONG,
    ),
    Unseen(
        "programs",
        Bug(
            "window-of-the-first-bucket",
            "attention_mask",
            "prefill.b2.s16",
            "",
            attribute(window=8),
            after=ONE,
        ),
        LONG,
    ),
    Unseen(
        "programs",
        Bug(
            "reads-the-first-bucket",
            "cache_read",
            "decode.b2.c16",
            ATTENTION_1,
            first_slots,
            reads_cache("v_cache"),
            ONE,
        ),
        MIDDLE,
    ),
    Unseen(
        "programs",
        Bug(
            "scale-by-size",
            "attention",
            "decode.b2.c16",
            ATTENTION_0,
            attribute(scale=1 / 8),
            after=ONE,
        ),
        MIDDLE,
    ),
    Unseen(
        "programs",
        Bug(
            "one-row-is-row-0",
            "kv_update",
            "decode.b1.c16",
            ATTENTION_0,
            changed(2, zero_instead),
            of_cache("v_cache"),
            TWO,
        ),
        Scene(dims(1, 1, 16, 4, 32), steps(9), rows=[2]),
    ),
    Unseen(
        "programs",
        Bug(
            "full-batch-in-place",
            "cache_read",
            "decode.b4.c8",
            ATTENTION_0,
            attribute(rows="in_place"),
            reads_cache("k_cache"),
            TWO,
        ),
        Scene(dims(4, 1, 8, 4, 32), steps(5, 3, 6, 2), rows=[2, 3, 0, 1]),
    ),
    Unseen(
        "programs",
        Bug("length-of-row-0", "last_token", "prefill.b4.s8", "", changed(2, row_0), after=TWO),
        Scene(dims(4, 8, 8, 4, 32), prompts(8, 5, 3, 7, 2)),
    ),
    Unseen(
        "programs",
        Bug(
            "times-temperature",
            "divide",
            "decode",
            "lm_head",
            added_instead("multiply"),
            by_temperature,
            DRAWN,
        ),
        DRAWN_STEP,
    ),
    Unseen(
        "programs",
        Bug("share-of-everything", "multiply", "prefill", "lm_head", only(1), by_random, DRAWN),
        DRAWN_PROMPT,
    ),
    Unseen(
        "programs",
        Bug("one-candidate-more", "subtract", "decode", "lm_head", only(0), counts_down, DRAWN),
        DRAWN_STEP,
    ),
    Unseen(
        "programs",
        Bug(
            "tiles-of-eight-slots",
            "attention",
            "decode.b2.c13",
            ATTENTION_0,
            changed(3, mask_of_whole_tiles),
            after=OWN,
        ),
        Scene(dims(2, 1, 13, 2, 29), steps(12, 9)),
    ),
    Unseen(
        "programs",
        Bug(
            "tiles-of-four-tokens",
            "kv_update",
            "prefill.b2.s11",
            ATTENTION_1,
            tiles_of_tokens,
            of_cache("v_cache"),
            OWN,
        ),
        Scene(dims(2, 11, 11, 2, 29), prompts(11, 11, 7)),
    ),
    Unseen(
        "programs",
        Bug("causal-by-index", "attention_mask", "prefill.b2.s4", "", causal_by_index),
        CHUNK,
        "chunked llama",
    ),
    Unseen(
        "programs",
        Bug(
            "reads-its-own-tokens",
            "cache_read",
            "prefill.b2.s4",
            ATTENTION_1,
            front(4),
            reads_cache("k_cache"),
        ),
        CHUNK,
        "chunked llama",
    ),
)

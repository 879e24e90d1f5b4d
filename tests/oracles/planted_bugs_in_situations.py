"""Wrong rewrites that are right in most calls: each shows in one situation of serving."""

from __future__ import annotations

from collections.abc import Callable

from graphgen.build import Builder
from graphgen.ir import Value
from graphgen.ir.dtype import s32
from tests.oracles.planted_bugs import ATTENTION_0, ATTENTION_1, CONFIG, Bug, changed, of_cache

# Slots of the caches, and the first bucket, where the sizes of programs are free.
SLOTS, FIRST = 16, 8
Change = Callable[[Value, Builder], Value]


def at_most(limit: int) -> Change:
    """Integers above a limit are the limit."""

    def change(value: Value, b: Builder) -> Value:
        return b.binary("minimum", value, limit)

    return change


def but(number: int, instead: int) -> Change:
    """One integer is another one."""

    def change(value: Value, b: Builder) -> Value:
        same = b.compare(value, b.full(number, value.type), "EQ")
        return b.select(same, b.full(instead, value.type), value)

    return change


def new_tokens(value: Value, b: Builder) -> Value:
    """In the place of lengths: the number of tokens of this call."""
    positions = b.function.arg("positions")
    assert positions is not None
    real = b.compare(positions, b.full(0, positions.type), "GE")
    return b.reduce(b.convert(real, s32), [1], "add")


def size_of(value: Value, b: Builder) -> Value:
    """Integers without their sign."""
    return b.op("abs", value)


# Bugs that the short script misses, by the situation that shows them.
SITUATION_BUGS: dict[str, Bug] = {
    "a prompt that goes on after a prefix": Bug(
        "prompts-begin-at-zero", "key_positions", "prefill", "", changed(0, new_tokens)
    ),
    "the last slot of the last bucket": Bug(
        "last-slot-dropped",
        "kv_update",
        "decode",
        ATTENTION_1,
        changed(3, but(SLOTS - 1, -1)),
        of_cache("v_cache"),
    ),
    "one as long as its bucket": Bug(
        "last-token-of-bucket",
        "kv_update",
        "prefill",
        ATTENTION_0,
        changed(3, but(FIRST - 1, -1)),
        of_cache("k_cache"),
    ),
    "token ids outside of the vocabulary": Bug(
        "negative-ids", "embedding", "decode", "model", changed(1, size_of)
    ),
    "the last id": Bug(
        "last-id", "embedding", "prefill", "model", changed(1, at_most(CONFIG.vocab_size - 2))
    ),
    "a window passed twice": Bug(
        "ring-begins-once",
        "kv_update",
        "decode",
        ATTENTION_1,
        changed(3, but(12, 11)),
        of_cache("k_cache"),
        windowed=True,
    ),
}

"""Wrong rewrites that only several ranks, or several calls, can show."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.build import Builder
from graphgen.ir import Literal, Op, Value
from graphgen.ir.dtype import s32
from tests.oracles.planted_bugs import (
    ATTENTION_0,
    ATTENTION_1,
    LAYER_0,
    LAYER_1,
    RANKS,
    Bug,
    attribute,
    changed,
    of_cache,
    only,
    plus,
    reads_cache,
    twice,
    zero_instead,
)

# Four ranks share two key-value heads: each head is on two of them. Each rank has a part of the
# vocabulary, the last of them with a row too many.
COPIED = "heads{tp=4},shard{tp=4},pad-to-mesh,partition"


def head_of_one_rank(value: Value, b: Builder) -> Value:
    """The map from ranks to key-value heads with another head on rank 1 only."""
    assert value.op is not None
    heads = [int(head) for head in value.op.attrs.literal("value").values()]
    heads[1] = 1 - heads[1]
    return b.emit("constant", (), {"value": Literal.of(s32, heads)}).result


def of_map(op: Op) -> bool:
    """What a rank reads of the map from ranks to heads."""
    return op.operands[0].dtype is s32


def taken_by(op: Op) -> str:
    """What is taken from by the heads this op tells."""
    return " ".join(user.operands[0].name or "" for user in op.result.users)


def next_rank(op: Op, b: Builder) -> Sequence[Value]:
    """The slice of the rank that follows, and of the last rank its own."""
    whole, *starts = op.operands
    sizes = op.attrs.dims("slice_sizes")
    size = max(size for size in sizes if isinstance(size, int) and size < 32)
    moved = [b.binary("add", start, size) if n == 0 else start for n, start in enumerate(starts)]
    return [b.dynamic_slice(whole, moved, sizes)]


def whole_weight(op: Op) -> bool:
    """A rank's part of a weight, along its first dimension."""
    return (op.operands[0].name or "").endswith("weight")


def rows_reversed(value: Value, b: Builder) -> Value:
    """[B] from last to first."""
    return b.reverse(value, [0])


def cache_of(layer: str) -> Callable[[Value, Builder], Value]:
    """The same cache of another layer, as it was given."""

    def change(value: Value, b: Builder) -> Value:
        assert value.op is not None
        name = value.op.operands[0].name or ""
        other = b.function.arg(f"{layer}.{name.rpartition('.')[2]}")
        assert other is not None
        return other

    return change


RANK_BUGS = (
    # On several ranks.
    Bug(
        "head-map-of-one-rank",
        "dynamic_slice",
        "prefill",
        f"{ATTENTION_1}.k_proj",
        changed(0, head_of_one_rank),
        lambda op: of_map(op) and "weight" in taken_by(op),
        COPIED,
    ),
    Bug(
        "groups-of-two",
        "all_reduce",
        "decode",
        f"{ATTENTION_0}.o_proj",
        attribute(replica_groups=((0, 1), (2, 3))),
        after=COPIED,
    ),
    Bug(
        "reduce-twice-late", "all_reduce", "decode", f"{LAYER_1}.mlp.down_proj", twice, after=RANKS
    ),
    Bug(
        "next-rank",
        "dynamic_slice",
        "prefill",
        f"{LAYER_0}.mlp.up_proj",
        next_rank,
        whole_weight,
        RANKS,
    ),
    Bug("vocabulary-not-masked", "select", "decode", "model", only(1), after=COPIED),
    # Over several calls.
    Bug(
        "row-of-another",
        "kv_update",
        "decode",
        ATTENTION_0,
        changed(2, rows_reversed),
        of_cache("k_cache"),
    ),
    Bug(
        "reads-row-of-another",
        "cache_read",
        "decode",
        ATTENTION_1,
        changed(1, rows_reversed),
        reads_cache("v_cache"),
    ),
    Bug(
        "cache-forgotten",
        "kv_update",
        "decode",
        ATTENTION_1,
        changed(0, zero_instead),
        of_cache("v_cache"),
    ),
    Bug(
        "one-slot-late",
        "kv_update",
        "decode",
        ATTENTION_1,
        changed(3, plus(-1)),
        of_cache("k_cache"),
    ),
    Bug(
        "cache-of-another-layer",
        "cache_read",
        "decode",
        ATTENTION_1,
        changed(0, cache_of(ATTENTION_0)),
        reads_cache("v_cache"),
    ),
    Bug("window-off-by-one", "attention_mask", "decode", "", attribute(window=5), windowed=True),
)

"""Wrong rewrites of programs for long contexts: tiles, slots on ranks, divided sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from graphgen.build import Builder
from graphgen.exec.session import Workload
from graphgen.ir import Literal, Module, Op, Value, dtype
from graphgen.ir.dtype import s32
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.workload.make_workload import make_workload
from tests.oracles.planted_bugs import (
    ATTENTION_0,
    ATTENTION_1,
    LAYER_0,
    Bug,
    Rewrite,
    attribute,
    changed,
    model,
    of_cache,
    only,
    operands,
    plus,
    script,
)

_SIZES = "specialize{batch=[3],context=[8],tokens=[8,16],in_place=true}"
# Four tokens by four slots, written out: a block of tokens of a prompt has one tile, the next two.
TILES = f"{_SIZES},tile-attention{{block=4,target=trn2}}"
# The same with one block of tokens.
COLUMNS = f"{_SIZES},tile-attention{{block=8x4,target=trn2}}"
# Two groups with a key-value head each, whose two ranks hold half of the slots of a row.
FLASH = f"{_SIZES},shard{{tp=4,flash=true}},pad-to-mesh,partition"
# Each of two ranks has half of the tokens between the products of a layer.
SEQUENCE = f"{_SIZES},shard{{tp=2,rules=[prefill:sequence:tp]}},pad-to-mesh,partition"
_SHARED = f"{_SIZES},heads{{tp=4}}"
# Four ranks in a ring, each with two tokens and two slots.
RING = f"{_SHARED},shard{{tp=4,cp=4,cp_form=ring}},pad-to-mesh,partition"
# Tokens in the order of the blocks 0, 3, 1 and 2, before two pairs of ranks share them.
BALANCED = f"{_SHARED},balance-tokens{{tp=4,cp=2,cp_form=ring,balance=on}}"
PREFILL, DECODE = "prefill.b3.s8", "decode.b3.c16"
# Bugs of attention with sinks are planted in a mini of this model.
SINKS = "gpt-oss-20b"


def first_slot(value: Value) -> int:
    """The slot at which the tile begins that a value is made of: the nearest slice of a cache."""
    work = [value]
    while work:
        current = work.pop(0)
        op = current.op
        if op is None:
            continue
        if op.name == "slice" and op.operands[0].producer("cache_read") is not None:
            start = op.attrs.dims("start_indices")[1]
            assert isinstance(start, int)
            return start
        # Values and keys are the right operands of the products.
        work += reversed(op.operands)
    return -1


def rank(count: int, *made_by: str) -> Callable[[Op], bool]:
    """Ops whose result has so many dimensions, on operands that are made by these ops."""

    def where(op: Op) -> bool:
        given = [operand.op.name if operand.op else "" for operand in op.operands]
        return op.result.type.rank == count and given[: len(made_by)] == list(made_by)

    return where


def of_first_tile(count: int, *made_by: str) -> Callable[[Op], bool]:
    """The same, of the tile with the first slots."""
    fits = rank(count, *made_by)
    return lambda op: fits(op) and first_slot(op.operands[0]) == 0


def rescaled_first_tile(op: Op) -> bool:
    """The output of the tile with the first slots, by the powers of its maximum."""
    spread = op.operands[1].producer("broadcast_in_dim")
    powers = spread.operands[0].producer("exponential") if spread is not None else None
    return powers is not None and of_first_tile(5, "dot_general")(op)


def of_tile(token: int, slot: int) -> Callable[[Op], bool]:
    """The mask of the tile that begins at a token and a slot."""

    def starts(value: Value) -> int | None:
        made = value.producer("slice")
        start = made.attrs.dims("start_indices")[1] if made is not None else None
        return start if isinstance(start, int) else None

    return lambda op: [starts(value) for value in op.operands] == [token, slot]


def later_values(op: Op) -> bool:
    """The second tile of the values of a layer."""
    read = op.operands[0].producer("cache_read")
    update = read.operands[0].producer("kv_update") if read is not None else None
    start = op.attrs.dims("start_indices")
    return update is not None and of_cache("v_cache")(update) and start[1] == 4


def from_the_first(op: Op, b: Builder) -> Sequence[Value]:
    """A slice of as many slots, from the first on."""
    start, limit = (list(op.attrs.dims(key)) for key in ("start_indices", "limit_indices"))
    begin = start[1]
    start[1], limit[1] = 0, limit[1] - begin
    return [b.slice(op.operands[0], start, limit)]


def as_ones(value: Value, b: Builder) -> Value:
    """A factor that changes nothing."""
    return b.full(1, value.type)


def own_half(op: Op, b: Builder) -> Sequence[Value]:
    """A rank's part of its own operand, not of the sum over ranks."""
    return [b.slice_dim(op.operands[0], 2, 0, op.result.type.dims[2])]


def any_owner(value: Value, b: Builder) -> Value:
    """Slots of positions, whichever rank they belong to."""
    positions = b.function.arg("positions")
    assert positions is not None
    return b.select(b.compare(positions, b.full(8, positions.type), "LT"), positions, positions - 8)


def again(index: int) -> Rewrite:
    """The sum, and one of the addends once more."""

    def wrong(op: Op, b: Builder) -> Sequence[Value]:
        total = b.emit(op.name, op.operands, dict(op.attrs)).result
        return [b.binary("add", total, op.operands[index])]

    return wrong


def hops(count: int) -> Callable[[Op], bool]:
    """The permute that sends a block for the ``count``-th time."""

    def sent(value: Value) -> int:
        before = value.producer("collective_permute")
        return 0 if before is None else 1 + sent(before.operands[0])

    return lambda op: sent(op.result) == count


def rescaled_first_block(op: Op) -> bool:
    """The output of a rank's own block, by the powers of its maximum."""
    given = op.operands[0].producer("attention_part")
    spread = op.operands[1].producer("broadcast_in_dim")
    own = given is not None and given.operands[1].producer("slice") is None
    return own and spread is not None and op.result.type.rank == 4


def of_keys(op: Op) -> bool:
    """Slots that are taken in another order."""
    read = op.operands[0].producer("cache_read")
    update = read.operands[0].producer("kv_update") if read is not None else None
    return update is not None and of_cache("k_cache")(update)


def in_blocks(*order: int) -> Rewrite:
    """Blocks in this order."""

    def wrong(op: Op, b: Builder) -> Sequence[Value]:
        numbers = b.op("constant", value=Literal.of(s32, order))
        return b.emit(op.name, (op.operands[0], numbers), dict(op.attrs)).results

    return wrong


def of_rows(op: Op) -> bool:
    """A gather of tokens, not of words."""
    return op.result.type.rank == 3


OF_OTHERS = ((0, 2), (1, 3))

LONG_BUGS = (
    # Tiles.
    Bug(
        "tile-without-rescale",
        "multiply",
        PREFILL,
        ATTENTION_0,
        only(0),
        rescaled_first_tile,
        COLUMNS,
    ),
    Bug(
        "powers-without-rescale",
        "multiply",
        PREFILL,
        ATTENTION_1,
        only(0),
        of_first_tile(4, "reduce", "exponential"),
        COLUMNS,
    ),
    Bug(
        "tile-counted-twice",
        "add",
        PREFILL,
        ATTENTION_1,
        operands(0, 0),
        rank(5, "multiply", "multiply"),
        COLUMNS,
    ),
    Bug(
        "window-at-the-edge-of-a-tile",
        "attention_mask",
        PREFILL,
        ATTENTION_0,
        attribute(window=5),
        of_tile(4, 0),
        TILES,
        windowed=True,
    ),
    Bug(
        "values-of-the-tile-before",
        "slice",
        PREFILL,
        ATTENTION_0,
        from_the_first,
        later_values,
        COLUMNS,
    ),
    Bug(
        "sink-counted-twice",
        "add",
        "decode.b3.c8",
        ATTENTION_0,
        again(1),
        rank(4, "multiply", "exponential"),
        TILES,
    ),
    # Slots on several ranks.
    Bug(
        "combined-without-rescale",
        "divide",
        DECODE,
        ATTENTION_0,
        changed(0, as_ones),
        rank(3, "exponential", "reduce"),
        FLASH,
    ),
    Bug("parts-not-summed", "reduce_scatter", DECODE, ATTENTION_1, own_half, after=FLASH),
    Bug(
        "parts-of-other-heads",
        "reduce_scatter",
        DECODE,
        ATTENTION_0,
        attribute(replica_groups=OF_OTHERS),
        after=FLASH,
    ),
    Bug(
        "written-by-every-owner",
        "kv_update",
        DECODE,
        ATTENTION_1,
        changed(3, any_owner),
        of_cache("k_cache"),
        FLASH,
    ),
    Bug("part-sees-ahead", "attention_mask", DECODE, "", changed(1, plus(-1)), after=FLASH),
    # Rings.
    Bug(
        "to-the-rank-before",
        "collective_permute",
        PREFILL,
        ATTENTION_1,
        attribute(source_target_pairs=((0, 3), (1, 0), (2, 1), (3, 2))),
        hops(1),
        RING,
    ),
    Bug(
        "last-hop-missing",
        "collective_permute",
        PREFILL,
        ATTENTION_0,
        only(0),
        hops(3),
        RING,
    ),
    Bug(
        "block-without-rescale",
        "multiply",
        PREFILL,
        ATTENTION_0,
        changed(1, as_ones),
        rescaled_first_block,
        RING,
    ),
    Bug(
        "blocks-of-keys-in-another-order",
        "take",
        PREFILL,
        ATTENTION_1,
        in_blocks(0, 1, 3, 2),
        of_keys,
        BALANCED,
    ),
    Bug(
        "tokens-in-order-at-balanced-positions",
        "take",
        PREFILL,
        ATTENTION_0,
        in_blocks(0, 1, 2, 3),
        lambda op: op.operands[0].name == "tokens",
        BALANCED,
    ),
    # Divided sequences.
    Bug(
        "tokens-in-another-order",
        "all_gather",
        PREFILL,
        f"{LAYER_0}.post_attention_layernorm",
        attribute(replica_groups=((1, 0),)),
        of_rows,
        SEQUENCE,
    ),
    Bug(
        "largest-for-sum",
        "reduce_scatter",
        PREFILL,
        f"{LAYER_0}.mlp.down_proj",
        attribute(kind="maximum"),
        after=SEQUENCE,
    ),
)


@cache
def long_model(bug: Bug) -> Module:
    """The module that a bug is planted in; not to be changed."""
    if not bug.name.startswith("sink"):
        return model(bug.after, bug.element, bug.windowed)
    module = build(known_shape(SINKS), dtype("f32"), mini=True)
    run_pipeline(module, parse_pipeline(bug.after))
    return module


@cache
def long_script(bug: Bug) -> Workload:
    """What it is compared over."""
    if not bug.name.startswith("sink"):
        return script(bug.after, bug.element, bug.shuffled, bug.windowed)
    return make_workload(long_model(bug), seed=3)

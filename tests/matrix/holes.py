"""Combinations that no cell has, each with its reason and, where it is refused, the refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import gcd

from tests.matrix.axes import Cell, counts


@dataclass(frozen=True, slots=True, eq=False)
class Hole:
    """Combinations that no cell has.

    Attributes:
        axes: those that the predicate reads.
        holds: whether values of ``axes`` are such a combination.
        reason: one sentence.
        code: of the refusal; empty where the combination means nothing new.
        words: part of the refusal's message; for a combination without news the axis whose value
            changes nothing.
    """

    axes: tuple[str, ...]
    holds: Callable[[Cell], bool]
    reason: str
    code: str
    words: str


def _with_heads(strategy: str, holds: Callable[[Cell], bool]) -> Callable[[Cell], bool]:
    return lambda cell: cell["heads"] == strategy and cell["ranks"] != "1" and holds(cell)


def _ranks_over_heads(cell: Cell) -> tuple[int, int]:
    return int(cell["ranks"]) // int(cell["groups of rows"]), counts(cell["family"]).kv_heads


def _divided(holds: Callable[[Cell], bool]) -> Callable[[Cell], bool]:
    """Slots divided over several ranks, and something that does not go with it."""
    return lambda cell: (
        cell["slots of caches"] == "divided" and cell["ranks"] != "1" and holds(cell)
    )


def _blocks_do_not_divide(cell: Cell) -> bool:
    ranks, kv_heads = int(cell["ranks"]), counts(cell["family"]).kv_heads
    return cell["caches"] == "paged" and BLOCK % (ranks // gcd(ranks, kv_heads)) != 0


def _balanced_and_rolled(cell: Cell) -> bool:
    """A balanced ring, and a layer with a rolled cache."""
    balanced = cell["ranks of a prompt"] == "2, in a balanced ring"
    return balanced and cell["caches"] == "rolled" and counts(cell["family"]).windowed


def _no_copies(cell: Cell) -> bool:
    ranks, kv_heads = _ranks_over_heads(cell)
    return ranks % kv_heads != 0


def _idle_rank(cell: Cell) -> bool:
    ranks, kv_heads = _ranks_over_heads(cell)
    return ranks > kv_heads


def _no_parts(cell: Cell) -> bool:
    ranks, kv_heads = int(cell["ranks"]), counts(cell["family"]).kv_heads
    return ranks % kv_heads != 0 and kv_heads % ranks != 0


def _features_do_not_divide(cell: Cell) -> bool:
    ranks, kv_heads = int(cell["ranks"]), counts(cell["family"]).kv_heads
    return kv_heads * counts(cell["family"]).head_dim % ranks != 0


# Strategies whose copies of heads the division of slots replaces.
COPIES = ("auto", "REPLICATE_TO_TP_DEGREE", "REPLICATED_HEADS")
# Slots of a block of a paged cache.
BLOCK = 3

# Strategies that say which ranks have which rows, or that gather heads at the end.
_BY_THEMSELVES = ("SHARD_OVER_BATCH", "ALL_GATHER_HEADS")
# Of the last, a product has one scale for several columns of what is summed.
_NOT_OF_8_BITS = (
    *("as they are", "int4 in groups"),
    *("stored 4 bits in groups", "stored f8e4m3 in blocks", "stored MXFP4"),
)
_NOT_OF_INTEGERS = (
    *("as they are", "f8e4m3", "f8e5m2"),
    *("stored f8e4m3 in blocks", "stored MXFP4"),
)
HOLES: tuple[Hole, ...] = (
    Hole(
        ("ranks", "heads"),
        lambda cell: cell["ranks"] == "1" and cell["heads"] != "auto",
        "One rank has all heads, whatever the strategy.",
        "",
        "heads",
    ),
    Hole(
        ("weights", "activations"),
        lambda cell: (
            cell["activations"] in ("dynamic", "static") and cell["weights"] in _NOT_OF_8_BITS
        ),
        "Activations in 8 bits are multiplied by weights in 8 bits.",
        "GG0304",
        "no product has a weight of 8 bits",
    ),
    Hole(
        ("weights", "activations"),
        lambda cell: cell["activations"] == "in blocks" and cell["weights"] in _NOT_OF_INTEGERS,
        "Activations in blocks are integers, and multiplied by integers.",
        "GG0304",
        "no product has a weight of integers",
    ),
    Hole(
        ("family", "weights", "activations"),
        lambda cell: (
            cell["activations"] != "as they are"
            and cell["weights"] == "stored int8 a row"
            and counts(cell["family"]).inputs_first
        ),
        "The family stores a row of weights an input, and a sum over inputs has no one scale.",
        "GG0304",
        "no product has a weight of",
    ),
    Hole(
        ("family", "experts"),
        lambda cell: cell["experts"] != "least cost" and not counts(cell["family"]).mixture,
        "The family has no experts, and tokens have nowhere to go.",
        "",
        "experts",
    ),
    Hole(
        ("ranks", "groups of experts"),
        lambda cell: int(cell["ranks"]) % int(cell["groups of experts"]) != 0,
        "Each group has as many ranks, which share the experts of the group.",
        "GG0302",
        "groups of",
    ),
    Hole(
        ("ranks", "ranks of a prompt"),
        lambda cell: int(cell["ranks"]) % int(cell["ranks of a prompt"][0]) != 0,
        "A prompt is shared by groups of as many ranks.",
        "GG0302",
        "groups of",
    ),
    Hole(
        ("family", "ranks", "caches", "ranks of a prompt"),
        _balanced_and_rolled,
        "Slots of a rolled cache are in no order that balances causal masks.",
        "GG0304",
        "slots of a rolled cache",
    ),
    Hole(
        ("ranks", "groups of rows"),
        lambda cell: int(cell["ranks"]) % int(cell["groups of rows"]) != 0,
        "Each group has as many ranks, with the heads of its rows.",
        "GG0302",
        "groups of",
    ),
    Hole(
        ("ranks", "rows", "groups of rows"),
        lambda cell: int(cell["rows"]) % int(cell["groups of rows"]) != 0,
        "Each group has as many rows.",
        "GG0302",
        "with the rows of the cache",
    ),
    Hole(
        ("ranks", "heads", "ranks of a prompt"),
        lambda cell: cell["heads"] in _BY_THEMSELVES and cell["ranks of a prompt"] != "1",
        "The strategy says which ranks have which heads, and so does who shares a prompt.",
        "GG0302",
        "exclude each other",
    ),
    Hole(
        ("ranks", "rows", "heads", "groups of rows"),
        lambda cell: cell["heads"] in _BY_THEMSELVES and cell["groups of rows"] != "1",
        "The strategy says which ranks have which rows.",
        "GG0302",
        "exclude each other",
    ),
    Hole(
        ("ranks", "groups of experts", "ranks of a prompt"),
        lambda cell: cell["groups of experts"] != "1" and cell["ranks of a prompt"] != "1",
        "Ranks that share a prompt have parts of every expert.",
        "GG0302",
        "experts of their own, beside",
    ),
    Hole(
        ("ranks", "rows", "groups of experts", "groups of rows"),
        lambda cell: cell["groups of experts"] != "1" and cell["groups of rows"] != "1",
        "Groups with rows of their own have parts of every expert.",
        "GG0302",
        "experts of their own, beside",
    ),
    Hole(
        ("ranks", "rows", "caches", "groups of rows"),
        lambda cell: cell["caches"] == "paged" and cell["groups of rows"] != "1",
        "A table of blocks is that of all rows.",
        "GG0302",
        "divides the rows",
    ),
    Hole(
        ("family", "ranks", "groups of experts"),
        lambda cell: cell["groups of experts"] != "1" and not counts(cell["family"]).mixture,
        "The family has no experts for groups of ranks to have.",
        "GG0302",
        "no program has an op experts",
    ),
    Hole(
        ("ranks", "slots of caches"),
        lambda cell: cell["slots of caches"] == "divided" and cell["ranks"] == "1",
        "One rank has all slots.",
        "",
        "slots of caches",
    ),
    Hole(
        ("ranks", "heads", "slots of caches"),
        _divided(lambda cell: cell["heads"] not in COPIES),
        "Ranks that divide slots have each key-value head once, whatever the strategy copies.",
        "GG0302",
        "flash_decoding lays out heads itself",
    ),
    Hole(
        ("family", "ranks", "groups of experts", "slots of caches"),
        _divided(lambda cell: cell["groups of experts"] != "1"),
        "Ranks are groups that share key-value heads, or groups that share experts.",
        "GG0302",
        "by experts",
    ),
    Hole(
        ("family", "ranks", "slots of caches"),
        _divided(lambda cell: counts(cell["family"]).latent),
        "Slots of latent vectors are not divided.",
        "GG0304",
        "latent vectors, of which keys are made",
    ),
    Hole(
        ("family", "ranks", "caches", "slots of caches"),
        _divided(_blocks_do_not_divide),
        "The ranks that share a row have the same slots of each block.",
        "GG0304",
        "ranks divide the slots of",
    ),
    Hole(
        ("ranks", "ranks of a prompt", "slots of caches"),
        _divided(lambda cell: cell["ranks of a prompt"] != "1"),
        "Ranks that divide slots have each key-value head once.",
        "GG0302",
        "and flash_decoding exclude",
    ),
    Hole(
        ("ranks", "rows", "groups of rows", "slots of caches"),
        _divided(lambda cell: cell["groups of rows"] != "1"),
        "Ranks that divide slots share all rows.",
        "GG0302",
        "and flash_decoding exclude",
    ),
    Hole(
        ("ranks", "sums over ranks"),
        lambda cell: cell["ranks"] == "1" and cell["sums over ranks"] != "f32",
        "One rank has no sums over ranks.",
        "",
        "sums over ranks",
    ),
    Hole(
        ("family", "caches"),
        lambda cell: cell["caches"] == "rolled" and not counts(cell["family"]).windowed,
        "The family has no layers with a window, and its caches stay whole.",
        "",
        "caches",
    ),
    Hole(
        ("numbers of caches", "target"),
        lambda cell: (
            cell["numbers of caches"] == "f8e4m3fn cast" and cell["target"] not in ("cpu", "trn3")
        ),
        "Chips before trn3 have 8-bit floats that end at 240.",
        "GG0302",
        "has no f8e4m3fn",
    ),
    Hole(
        ("family", "ranks", "heads", "groups of rows"),
        _with_heads("REPLICATE_TO_TP_DEGREE", _no_copies),
        "Ranks that are not a multiple of the key-value heads have no whole number of copies.",
        "GG0304",
        "are not a multiple of",
    ),
    Hole(
        ("family", "ranks", "heads", "groups of rows"),
        _with_heads("SHARD_OVER_HEADS", _idle_rank),
        "With more ranks than key-value heads, some rank would have none.",
        "GG0304",
        "would have no key-value head",
    ),
    Hole(
        ("family", "ranks", "heads"),
        _with_heads("ALL_GATHER_HEADS", _no_parts),
        "Ranks share a key-value head only where one of the two numbers divides the other.",
        "GG0304",
        "nor the other way round",
    ),
    Hole(
        ("ranks", "heads", "rows"),
        _with_heads("SHARD_OVER_BATCH", lambda cell: int(cell["rows"]) % int(cell["ranks"]) != 0),
        "Ranks that divide the rows of a call need rows that divide.",
        "GG0304",
        "rows does not divide by",
    ),
    Hole(
        ("family", "ranks", "heads"),
        _with_heads("SHARD_OVER_BATCH", _features_do_not_divide),
        "Ranks that divide the rows divide the features of projections too.",
        "GG0304",
        "features of keys do not divide by",
    ),
    Hole(
        ("ranks", "heads", "rows", "caches"),
        _with_heads("SHARD_OVER_BATCH", lambda cell: cell["caches"] == "paged"),
        "A table of blocks is that of all rows.",
        "GG0304",
        "are divided among ranks",
    ),
    Hole(
        ("interface", "sampling"),
        lambda cell: cell["interface"] == "every token" and cell["sampling"] != "logits",
        "A token is chosen from one row of logits a sequence.",
        "GG0304",
        "does not have one row a sequence",
    ),
    Hole(
        ("sampling", "launches"),
        lambda cell: cell["launches"] == "several steps" and cell["sampling"] == "logits",
        "A step that follows another one in a launch takes the token that the program chose.",
        "GG0304",
        "no decode program takes tokens and gives next_tokens",
    ),
    Hole(
        ("interface", "sampling", "launches"),
        lambda cell: cell["launches"] == "several steps" and cell["interface"] == "embeddings",
        "A program that takes embeddings cannot go on with the token that it chose.",
        "GG0304",
        "no decode program takes tokens and gives next_tokens",
    ),
)


def hole_of(part: Cell) -> Hole | None:
    """The hole that a cell is in, or a part of one whatever its other values are."""
    return next((hole for hole in HOLES if is_in(hole, part)), None)


def is_in(hole: Hole, part: Cell) -> bool:
    """Whether values of a part, which may have more, are in the hole."""
    values = tuple([part[axis] for axis in hole.axes if axis in part])
    return len(values) == len(hole.axes) and _holds(hole, values)


@cache
def _holds(hole: Hole, values: tuple[str, ...]) -> bool:
    """Its predicate; the search for cells asks many times about the same few values."""
    return hole.holds(dict(zip(hole.axes, values, strict=True)))

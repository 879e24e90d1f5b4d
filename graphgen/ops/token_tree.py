"""Ops of token trees: slots and masks of nodes in a cache, and moves of accepted nodes.

A tree is written as S nodes of a row, parents before children; node 0 is the row's last token. Node
i has the position of node 0 plus its depth, and the slot of node 0 plus i: siblings share a
position and not a slot. Letters as in :mod:`graphgen.ops.composite`.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, TensorType, tensor
from graphgen.ir.dtype import pred, s32
from graphgen.ops.attr_types import INTEGER
from graphgen.ops.composite import require_extent
from graphgen.ops.factors import Notation
from graphgen.ops.opdef import attr, define, rank_of, require
from graphgen.ops.traits import Trait

POSITIONAL = (Trait.COMPOSITE, Trait.POSITIONAL)
# The input s32 [B,S,S] of programs of the phase ``verify_tree``: which nodes each node reads.
ANCESTORS = "ancestors"


def _ints(types: Sequence[TensorType], index: int, shape: Sequence[object]) -> None:
    """Require s32 of this shape."""
    given = types[index]
    fits = given.dtype is s32 and given.shape == tuple(shape)
    wanted = ",".join(map(str, shape))
    require(fits, f"needs s32[{wanted}], got {given.text}", index)


def _positions(types: Sequence[TensorType]) -> None:
    rank_of(types, 0, 2, "positions")
    _ints(types, 0, types[0].shape)


@define("tree_slots", "positions", traits=POSITIONAL, factors=Notation("b S -> b S"))
def _tree_slots(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The slot of each node of a tree: ``positions[b,0] + i``, and -1 for padding.

    Padding has a negative position and stands at the end of a row.

    Example:
        %s = tree_slots(%positions) : s32[B,S]
    """
    _positions(types)
    return (types[0],)


@define(
    "tree_positions",
    "positions slots",
    traits=POSITIONAL,
    factors=Notation("b S, b C -> b C"),
)
def _tree_positions(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The positions of the tokens in plain slots [B,C], some of which hold nodes of a tree.

    A slot before that of node 0 holds the position of its own number, the slot of node i the
    position of the node. Negative slots, and those after the last node, stay as they are.

    Example:
        %p = tree_positions(%positions, %slots) : s32[B,C]
    """
    _positions(types)
    rank_of(types, 1, 2, "slots")
    _ints(types, 1, (types[0].shape[0], types[1].shape[1]))
    return (types[1],)


@define(
    "tree_mask",
    "positions slots ancestors",
    attr("window", INTEGER, 0),
    attr("chunk", INTEGER, 0),
    traits=POSITIONAL,
    factors=Notation("b S, b c, b S S -> b S c", slots="c"),
)
def _tree_mask(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The cache slots that each node of a tree may read: tokens before the tree, and its ancestors.

    ``slots`` are the plain slots that the attended slots of a row stand for, negative for none: as
    ``key_positions`` if the nodes were consecutive tokens. ``ancestors[b,i,j]`` is not 0 where node
    i reads node j, itself included. With a ``window`` above 0 a node reads no position that is its
    own minus ``window`` or less. With a ``chunk`` above 0 it reads no position before its own
    chunk, as of ``attention_mask``. Padding, of position -1, reads nothing.

    Example:
        %m = tree_mask(%positions, %slots, %ancestors) : pred[B,S,C]
    """
    _positions(types)
    rank_of(types, 1, 2, "slots")
    rows, nodes = types[0].shape
    attended = types[1].shape[1]
    _ints(types, 1, (rows, attended))
    _ints(types, 2, (rows, nodes, nodes))
    require_extent(attrs)
    return (tensor(pred, (rows, nodes, attended)),)


@define(
    "kv_move",
    "cache from_rows from_slots rows slots",
    traits=(*POSITIONAL, Trait.DATA_MOVEMENT),
    factors=Notation("R M k d, B, B S, B, B S -> R M k d"),
)
def _kv_move(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The cache [R,M,K,D] with slots copied: row ``rows[b]``, slot ``slots[b,i]`` gets another one.

    The source is slot ``from_slots[b,i]`` of row ``from_rows[b]`` before any copy, so that moves of
    one call may overlap. A move from or to a place outside of the cache is dropped.

    Example:
        %c = kv_move(%cache, %from_rows, %from, %rows, %to) : f32[R,M,2,4]
    """
    rank_of(types, 0, 4, "the cache")
    rank_of(types, 2, 2, "from_slots")
    rows, count = types[2].shape
    _ints(types, 1, (rows,))
    _ints(types, 2, (rows, count))
    _ints(types, 3, (rows,))
    _ints(types, 4, (rows, count))
    return (types[0],)

"""Ring attention: the ring of ranks, and the balanced order of token blocks."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Op, Value
from graphgen.ir.sharding import Axes
from graphgen.passes.sharding.mesh import Groups


def ring_axes(op: Op) -> Axes:
    """The mesh axes that annotations divide both the tokens and the slots of attention over.

    Empty for any other op: each rank of a ring has queries of its tokens and keys of its slots.
    """
    if op.name != "attention":
        return ()
    layouts = [value.sharding for value in op.operands[:3]]
    cuts = {layout.dims[1] if layout is not None and layout.dims else () for layout in layouts}
    return next(iter(cuts)) if len(cuts) == 1 else ()


def ring_pairs(groups: Groups) -> Groups:
    """Source and target of each rank's block: the next rank of its group gets it."""
    pairs = [
        (rank, group[(at + 1) % len(group)]) for group in groups for at, rank in enumerate(group)
    ]
    return tuple(sorted(pairs))


def balanced_order(ranks: int) -> Sequence[int]:
    """The blocks of tokens in the order of ranks: rank i has blocks i and 2n - 1 - i."""
    return [block for rank in range(ranks) for block in (rank, 2 * ranks - 1 - rank)]


def is_balanced(op: Op, ranks: int) -> bool:
    """True if the tokens and the slots of an attention are in the balanced order of ``ranks``.

    Its mask is made of positions, and of those of the slots, which both are taken in this order.
    """
    mask = op.operands[3].producer("attention_mask")
    return mask is not None and all(_taken(value, ranks) for value in mask.operands)


def in_order(value: Value) -> Value:
    """A value over slots before these were taken in the balanced order."""
    take = value.producer("take")
    return value if take is None or take.attrs.integer("dimension") != 1 else take.operands[0]


def _taken(value: Value, ranks: int) -> bool:
    take = value.producer("take")
    order = take.operands[1].producer("constant") if take is not None else None
    if take is None or order is None:
        return False
    size, block = value.shape[1], take.attrs.integer("block")
    found = order.attrs.literal("value").values()
    return size == 2 * ranks * block and found == list(balanced_order(ranks))

"""Token exchange of expert parallelism: all-gather, or all-to-all with a padded buffer.

n ranks have t tokens each, of w bytes. An all-gather sends ``(n - 1) t w`` from each rank. Shapes
do not depend on routing, so a buffer of an all-to-all has room for the tokens that could all be for
one rank: a token is sent once to a rank, whichever of its experts it has, which is t tokens, or
``e C`` where a rank has e experts of a capacity C. Each rank sends ``(n - 1) min(t, e C) w``. The
way back, reduce-scatter or all-to-all, is the same. With K of E experts and a capacity factor f,
``e C = t K f``: the all-to-all sends less only where K f is below 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from graphgen.config.option_words import EXCHANGE_ALL_TO_ALL, EXCHANGE_AUTO
from graphgen.ir import Op, Sharding, sharding
from graphgen.ir.sharding import Axes
from graphgen.passes.sharding.mesh import Mesh, fits
from graphgen.passes.sharding.op_factors import nominal
from graphgen.passes.sharding.strategies import Strategy


def places(mesh: Mesh, experts: Op, split: Axes, held: Axes) -> tuple[int, int]:
    """Places of the buffer from a rank to another, and the tokens of a rank.

    Args:
        mesh: the ranks.
        experts: the op on whole values.
        split: axes that split its tokens before the exchange.
        held: axes that split its experts.
    """
    tokens = nominal(prod(experts.operands[0].shape[:-1])) // mesh.size(split)
    capacity = experts.attrs.integer("capacity")
    own = nominal(experts.operands[3].shape[0]) // mesh.size(held)
    return min(tokens, own * capacity) if capacity else tokens, tokens


def all_to_all_bytes(mesh: Mesh, experts: Op, split: Axes, held: Axes) -> int:
    """Bytes that each rank would send to dispatch tokens by an all-to-all of the worst case."""
    x, (room, _) = experts.operands[0].type, places(mesh, experts, split, held)
    return (mesh.size(split) - 1) * room * nominal(x.shape[-1]) * x.dtype.bits // 8


def split_tokens(op: Op) -> Sharding | None:
    """The annotation that splits tokens of a mixture, along one dimension; ``None`` for none."""
    layout = op.operands[0].sharding if op.name == "experts" else None
    if layout is None or layout.partial or layout.dims[-1:] != ((),):
        return None
    return layout if sum(map(bool, layout.dims)) == 1 else None


def exchanged_axes(op: Op, strategy: Strategy) -> Axes:
    """The axes whose ranks exchange tokens by an all-to-all; empty for any other strategy."""
    if op.name != "experts":
        return ()
    split = tuple(axis for axes in strategy.in_shardings[0].dims for axis in axes)
    return split if set(split) & set(strategy.in_shardings[3].dims[0]) else ()


def exchange_strategies(
    op: Op, mesh: Mesh, ways: Sequence[Strategy], exchange: str
) -> tuple[Strategy, ...]:
    """Extend ``ways`` by strategies that send tokens to their experts' ranks by an all-to-all.

    Args:
        op: on whole values.
        mesh: the ranks.
        ways: the strategies of the op.
        exchange: of :data:`~graphgen.config.option_words.EXPERT_EXCHANGES`.
    """
    layout = split_tokens(op)
    if layout is None or exchange not in (EXCHANGE_AUTO, EXCHANGE_ALL_TO_ALL):
        return tuple(ways)
    if not fits(mesh, op.operands[0].type, layout):
        return tuple(ways)
    made = [way for way in (_exchanged(op, mesh, way, layout) for way in ways) if way is not None]
    if exchange == EXCHANGE_ALL_TO_ALL:
        return (*ways, *[replace(way, requested=True) for way in made])
    # With room for all tokens it is an all-gather, in which some are not read.
    return (*ways, *[way for way in made if _sends_less(op, mesh, layout.axes, way)])


def _sends_less(op: Op, mesh: Mesh, split: Axes, way: Strategy) -> bool:
    room, tokens = places(mesh, op, split, way.in_shardings[3].dims[0])
    return room < tokens


def _exchanged(op: Op, mesh: Mesh, way: Strategy, layout: Sharding) -> Strategy | None:
    """The strategy ``way``, of whole tokens, with tokens as in ``layout`` before and after it."""
    split = layout.axes
    (held, inner, width), out = way.in_shardings[3].dims, way.in_shardings[5].dims[1]
    tokens = way.in_shardings[:3]
    if not held or width or out or not all(each.replicated for each in tokens):
        return None
    if sorted((*held, *inner)) != sorted(split):
        return None
    x, y = op.operands[0].type, op.results[0].type
    room, own = places(mesh, op, split, held)
    row = (nominal(x.shape[-1]) * x.dtype.bits + nominal(y.shape[-1]) * y.dtype.bits) // 8
    return replace(
        way,
        in_shardings=(layout, *way.in_shardings[1:]),
        out_shardings=(sharding(layout.dims),),
        work=way.work * room // own,
        sent=mesh.ranks * (mesh.size(split) - 1) * room * row,
        collectives=2,
    )

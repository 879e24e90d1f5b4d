"""Bytes of the two ways by which tokens that are split over ranks get to experts of other ranks.

n ranks have t tokens each, of w bytes. An all-gather sends ``(n - 1) t w`` from each rank. Shapes
do not depend on routing, so a buffer of an all-to-all has room for the tokens that could all be for
one rank: a token is sent once to a rank, whichever of its experts it has, which is t tokens, or
``e C`` where a rank has e experts of a capacity C. Each rank sends ``(n - 1) min(t, e C) w``. The
way back, reduce-scatter or all-to-all, is the same. With K of E experts and a capacity factor f,
``e C = t K f``: the all-to-all sends less only where K f is below 1.
"""

from __future__ import annotations

from math import prod

from graphgen.ir import Op
from graphgen.ir.sharding import Axes
from graphgen.passes.sharding.spec.mesh import Mesh
from graphgen.passes.sharding.spec.nominal_sizes import nominal


def all_to_all_bytes(mesh: Mesh, experts: Op, split: Axes, held: Axes) -> int:
    """Bytes that each rank would send to dispatch tokens by an all-to-all of the worst case.

    Args:
        mesh: the ranks.
        experts: the op.
        split: axes that split its tokens before the exchange.
        held: axes that split its experts.
    """
    x, capacity = experts.operands[0].type, experts.attrs.integer("capacity")
    ranks = mesh.size(split)
    tokens = nominal(prod(x.shape[:-1])) // ranks
    if capacity:
        tokens = min(tokens, nominal(experts.operands[3].shape[0]) // mesh.size(held) * capacity)
    return (ranks - 1) * tokens * nominal(x.shape[-1]) * x.dtype.bits // 8

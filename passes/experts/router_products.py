"""Routers of mixtures: the products whose results choose the experts of a token."""

from __future__ import annotations

from graphgen.ir import Function, Op


def router_products(function: Function) -> set[Op]:
    """The products from which the numbers and weights of a token's experts follow."""
    found: set[Op] = set()
    mixtures = [op for op in function.block if op.name == "experts"]
    work = [value for op in mixtures for value in op.operands[1:3]]
    seen = set(work)
    while work:
        op = work.pop().op
        if op is not None and op.name == "dot_general":
            found.add(op)
        elif op is not None:
            fresh = [value for value in op.operands if value not in seen]
            seen.update(fresh)
            work += fresh
    return found

"""Scales of products with 8-bit weights, moved from after a sum over ranks to before it."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Function, Module, Op, Role, Value
from graphgen.ops import OPS
from graphgen.ops.control import CONTROL
from graphgen.passes.core import NoMatch, Rewriter, Rule, no_match, rule

SUMS = ("all_reduce", "reduce_scatter")
# Ops whose result has the numbers of the first operand.
_SAME_NUMBERS = frozenset(("convert", "reshape", "transpose", "slice", "dynamic_slice", "pad"))


def has_no_scale_yet(x: Value) -> bool:
    """True for a product with numbers of 8 bits that is scaled after the sum over ranks."""
    product = _numbers_of(x)[-1]
    if product.op is None or product.op.name != "dot_general":
        return False
    return any(value.dtype.bits == 8 for value in _numbers_of(product.op.operands[1]))


def _numbers_of(x: Value) -> list[Value]:
    """``x``, and before it the values that it has the numbers of."""
    found = [x]
    while x.op is not None and x.op.name in _SAME_NUMBERS:
        x = x.op.operands[0]
        found.append(x)
    return found


def scale_before_sums(module: Module, function: Function, rewriter: Rewriter) -> None:
    """Multiply by scales before sums of 8-bit products over ranks, where the ops allow it."""
    rewriter.apply_rules(function, (_scale_before(module, function),))
    for op in list(function.block):
        # Collectives are not left to a later pass.
        if op.name in SUMS and not op.result.users and op.result not in _given(function):
            rewriter.erase(function, op)


def _given(function: Function) -> set[Value]:
    return {value for _, value in function.outputs}


def _scale_before(module: Module, function: Function) -> Rule:
    @rule("multiply")
    def scale_before_sum(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``sum(x) * scale`` over ranks is ``sum(x * scale)``, of one scale for all ranks."""
        made = [value.op for value in op.operands if value.op is not None and value.op.name in SUMS]
        if len(made) != 1 or not has_no_scale_yet(made[0].operands[0]):
            return no_match("it scales no sum of 8-bit products", op.operands[0])
        spread = movable_scale(module, function, made[0])
        if spread is None:
            return no_match("the sum is read otherwise, or ranks have scales", op.result, depth=2)
        (x,) = made[0].operands
        places = spread.attrs.integers("dimensions")
        scale = b.broadcast_in_dim(spread.operands[0], x.shape, places)
        return [b.emit(made[0].name, (b.multiply(x, scale),), dict(made[0].attrs)).result]

    return scale_before_sum


def movable_scale(module: Module, function: Function, total: Op) -> Op | None:
    """The op that spreads the scale of a sum, where the addends can be scaled instead.

    Args:
        module: whose weights the scale comes from.
        function: has the sum.
        total: the sum over ranks; a product of it and the scale has to be its only use.
    """
    users = list(total.result.users)
    if len(users) != 1 or users[0].name != "multiply" or total.attrs.text("kind") != "add":
        return None
    if total.result in _given(function):
        return None
    others = [value for value in users[0].operands if value is not total.result]
    spread = others[0].producer("broadcast_in_dim") if others else None
    if spread is None or not _same_on_ranks(module, spread.operands[0]):
        return None
    scattered = total.attrs.integer("dimension") if total.name == "reduce_scatter" else -1
    return None if scattered in spread.attrs.integers("dimensions") else spread


def _same_on_ranks(module: Module, value: Value) -> bool:
    """True for what every rank computes alike, from whole weights and constants."""
    work, seen = [value], set[Value]()
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.op is None:
            row = module.interface.get(value.name or "")
            if row is None or row.role is not Role.WEIGHT or row.physical is not row.logical:
                return False
        elif OPS[value.op.name].collective or value.op.name in CONTROL:
            return False
        else:
            work.extend(value.op.operands)
    return True

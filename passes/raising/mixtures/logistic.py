"""Match the logistic function, as an op or written out."""

from __future__ import annotations

from graphgen.analysis.pattern.see_through import scalar
from graphgen.passes.raising.mixtures.followed_axes import Followed, beneath


def logistic_operand(found: Followed) -> Followed | None:
    """The x of ``logistic(x)`` or ``1 / (1 + exp(-x))``; ``None`` for another value."""
    found = beneath(found)
    op = found.value.op
    if op is None:
        return None
    if op.name == "logistic":
        return Followed(op.operands[0], found.dims)
    if op.name != "divide" or scalar(op.operands[0]) != 1:
        return None
    below = beneath(Followed(op.operands[1], found.dims))
    added = below.value.producer("add")
    for power, one in (added.operands, added.operands[::-1]) if added is not None else ():
        under = beneath(Followed(power, below.dims))
        exponent = under.value.producer("exponential")
        if exponent is None or scalar(one) != 1:
            continue
        inner = beneath(Followed(exponent.operands[0], under.dims))
        negated = inner.value.producer("negate")
        if negated is not None:
            return Followed(negated.operands[0], inner.dims)
    return None

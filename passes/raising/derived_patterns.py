"""Patterns derived from the decompositions of composites."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.analysis.pattern import (
    AnyOf,
    NumberPattern,
    OpPattern,
    Pattern,
    apply,
    number,
    variables,
)
from graphgen.analysis.pattern.see_through import scalar
from graphgen.build import Builder
from graphgen.composites import DECOMPOSITIONS, decompose
from graphgen.ir import AttrValue, Function, Value, tensor
from graphgen.ir.dtype import f32
from graphgen.ops import op_def

# The size of a last dimension; no decomposition has this number, and no root of it.
_COUNT = 97
# Attributes become numbers that are captured; this one stands for them while tracing.
_MAGIC = 0.0123
_MOVES = frozenset(("convert", "broadcast_in_dim", "reshape", "transpose"))


def derived(name: str, *ranks: int, captured: str = "", **attrs: AttrValue) -> OpPattern:
    """Trace a composite's decomposition, and write it as a pattern.

    Args:
        name: the composite; its operands are the variables.
        ranks: of the operands, whose last dimensions have one size.
        captured: the attribute that is a captured number.
        attrs: the other attributes.
    """
    function = Function("pattern")
    types = [tensor(f32, (*((5,) * (rank - 1)), _COUNT)) for rank in ranks]
    args = [function.block.add_arg(type_, f"a{i}") for i, type_ in enumerate(types)]
    given = {**attrs, captured: _MAGIC} if captured else attrs
    op = Builder(function).emit(name, args, given)
    body = decompose(op, DECOMPOSITIONS[name])
    operands = variables(" ".join(op_def(name).operands))
    known: dict[Value, Pattern] = dict(zip(body.args, operands, strict=True))
    ((_, result),) = body.outputs
    made = _node(result, known, {_MAGIC: captured, float(_COUNT): "count"})
    assert isinstance(made, OpPattern)
    return made


def _node(value: Value, known: dict[Value, Pattern], numbers: Mapping[float, str]) -> Pattern:
    """Write a value as a pattern; each variable and each shared part once."""
    op = value.op
    if value in known or op is None:
        return known[value]
    if op.name in _MOVES and scalar(value) is None:
        return _node(op.operands[0], known, numbers)
    operands = [_operand(operand, known, numbers) for operand in op.operands]
    attrs = {"kind": op.attrs.text("kind")} if op.name == "reduce" else {}
    known[value] = _spellings(apply(op.name, *operands, **attrs))
    return known[value]


def _operand(
    value: Value, known: dict[Value, Pattern], numbers: Mapping[float, str]
) -> Pattern | float:
    constant = scalar(value)
    if constant is None:
        return _node(value, known, numbers)
    names = [name for magic, name in numbers.items() if name and abs(constant - magic) < 1e-6]
    return number(names[0]) if names else constant


def _spellings(made: OpPattern) -> Pattern:
    """Add what others write for the same op."""
    assert made.operands is not None
    if made.names == ("divide",) and made.operands[1] == number("count"):
        return AnyOf((made, made.operands[0] * number("inverse")))
    if made.names == ("logistic",):
        return logistic(made.operands[0])
    return made


def logistic(x: Pattern) -> Pattern:
    """The spellings of a logistic function."""
    return apply("logistic", x) | 1.0 / (1.0 + exponential_of_negative(x))


def exponential_of_negative(x: Pattern) -> Pattern:
    """``exp(-x)``; if x is a product with a constant, also with the constant negated."""
    found: Pattern = apply("exponential", -x)
    factors = x.operands or () if isinstance(x, OpPattern) and x.names == ("multiply",) else ()
    for this, other in (factors, factors[::-1]) if factors else ():
        if isinstance(other, NumberPattern) and other.value is not None:
            found = found | apply("exponential", this * -other.value | -this * other.value)
    return found

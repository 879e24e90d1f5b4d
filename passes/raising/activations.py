"""Raise silu and gelu, in the spellings of transformers and JAX."""

from __future__ import annotations

import math

from graphgen.passes.core.rule import Rule
from graphgen.passes.raising.expert_axes import Followed, beneath
from graphgen.passes.raising.pattern_rule import ROW, PatternRule, derived, exponential_of_negative
from graphgen.pattern import OpPattern, Pattern, apply, variables
from graphgen.pattern.see_through import scalar

(_X,) = variables("operand")
_CUBE = apply("power", _X, 3.0) | _X * _X * _X | _X * (_X * _X)


def _half_of(share: Pattern) -> tuple[OpPattern, ...]:
    """The orders of the product ``x / 2 * share``."""
    half = _X * 0.5 | _X / 2.0
    return (half * share, _X * (0.5 * share), 0.5 * (_X * share), (_X * share) / 2.0)


def _tanh() -> tuple[OpPattern, ...]:
    """As transformers writes ``gelu_new``, and JAX its approximation."""
    cubic = _X + 0.044715 * _CUBE
    inner = cubic * math.sqrt(2 / math.pi)
    # x * sqrt(2 / pi) * (1 + 0.044715 x * x)
    scaled = _X * math.sqrt(2 / math.pi)
    factor = 1.0 + (0.044715 * _X * _X | 0.044715 * (_X * _X))
    return _half_of(1.0 + apply("tanh", inner | scaled * factor))


def _erf() -> tuple[OpPattern, ...]:
    """As transformers writes it, and JAX, which has ``erfc`` of the negated argument."""
    root = math.sqrt(0.5)
    argument = _X * root
    negated = -_X * root | -(_X * root)
    return _half_of(1.0 + apply("erf", argument) | 1.0 - apply("erf", negated))


def _gelu(approximate: str, *patterns: OpPattern) -> Rule:
    return PatternRule(
        f"raise-gelu-{approximate}",
        (*patterns, derived("gelu", (5, ROW), approximate=approximate)),
        lambda found, b: b.gelu(found.laid_out(b, "operand"), approximate),
        "no factor is a share of the normal distribution",
    ).rule


ACTIVATIONS = (
    PatternRule(
        "raise-silu",
        (derived("silu", (5, ROW)), _X / (1.0 + exponential_of_negative(_X))),
        lambda found, b: b.silu(found.laid_out(b, "operand")),
        "no factor is the logistic of the other",
    ).rule,
    _gelu("tanh", *_tanh()),
    _gelu("none", *_erf()),
    _gelu("sigmoid", _X / (1.0 + exponential_of_negative(_X * 1.702))),
)


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

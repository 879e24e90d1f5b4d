"""Raise silu and gelu, in the spellings of transformers and JAX."""

from __future__ import annotations

import math

from graphgen.passes.core.rule import Rule
from graphgen.passes.raising.pattern_rule import ROW, PatternRule, derived, exponential_of_negative
from graphgen.pattern import OpPattern, Pattern, apply, variables

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

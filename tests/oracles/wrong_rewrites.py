"""Passes of one wrong rule each, that the calls of a workload do not show, or hardly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Module, Op, Value
from graphgen.ir.dtype import bf16, f32
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match
from graphgen.passes.core.rule import Rule

Make = Callable[[Op, Builder], Sequence[Value] | NoMatch]


@dataclass(frozen=True)
class OneRule(Pass):
    """Applies one rule to all programs.

    Attributes:
        name: of the pass and of its rule.
        root: the name of the op that it starts from.
        make: the values in the place of its results.
        allowed: the rounding that the pass declares.
    """

    name: str  # pyright: ignore[reportIncompatibleVariableOverride]
    root: str
    make: Make
    allowed: float = 0.0

    @property
    def budget(self) -> float:
        """The rounding that the pass declares."""
        return self.allowed

    def __str__(self) -> str:
        return self.name

    def run(self, module: Module, rewriter: Rewriter) -> None:
        def apply(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
            if self.name in op.loc.via:
                return no_match("made by this pass", op.results[0])
            return self.make(op, b)

        for function in module.programs():
            rewriter.apply_rules(function, [Rule(self.name, (self.root,), apply)])


def _again(op: Op, b: Builder, *operands: Value) -> list[Value]:
    return list(b.emit(op.name, operands, dict(op.attrs)).results)


def _last_ties(op: Op, b: Builder) -> Sequence[Value]:
    """Of equal scores the last comes first."""
    x, last = op.operands[0], len(op.operands[0].shape) - 1
    values, places = _again(op, b, b.reverse(x, [last]))
    size = x.shape[last]
    assert isinstance(size, int)
    return [values, b.subtract(b.full(size - 1, places.type), places)]


def _unshifted(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A softmax without its maximum."""
    wide = op.operands[1].producer("broadcast_in_dim")
    if wide is None or wide.operands[0].producer("reduce") is None:
        return no_match("no softmax", op.result)
    return [op.operands[0]]


def _selected(op: Op, b: Builder) -> Sequence[Value]:
    """``max(x, y)`` as ``select(x > y, x, y)``, which loses a NaN of x."""
    x, y = op.operands
    return [b.select(b.compare(x, y, "GT"), x, y)]


def _shifted_down(op: Op, b: Builder) -> Sequence[Value]:
    """``x / 8`` as ``x >> 3``, which rounds down."""
    x = op.operands[0]
    return [b.shift_right_arithmetic(x, b.full(3, x.type))]


def _coarse(op: Op, b: Builder) -> Sequence[Value]:
    """An operand by way of bf16."""
    x, y = op.operands
    return _again(op, b, b.convert(b.convert(x, bf16), f32), y)


LAST_TIES = OneRule("last-ties", "top_k", _last_ties)
UNSHIFTED = OneRule("unshifted", "subtract", _unshifted, allowed=1e-5)
SELECTED = OneRule("selected", "maximum", _selected)
SHIFTED_DOWN = OneRule("shifted-down", "divide", _shifted_down)
COARSE = OneRule("coarse", "multiply", _coarse)

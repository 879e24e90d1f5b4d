"""Constant folding: evaluate ops of constants at compile time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Literal, Module, Op, Value
from graphgen.ops import OPS
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule

# Every op but the constant itself: the journal records why one is not folded.
_ROOTS = tuple(name for name in OPS if name != "constant")


@register
@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replace an op of constants by its value, computed by the NumPy rule of the op.

    The op is computed in the program's own element types, rounding included. No algebra is done:
    ``x + 0`` stays, because it is not ``x`` where ``x`` is -0. Composites stay, for the passes that
    look for them, and so do collectives.

    Options:
        max_elements: most elements a literal may have.
        exact: fold only what needs no rounding: then the program computes the same in double
            precision too, and a comparison of what two programs mean sees no difference.

    Given:
        module @m level=logical {
        }

        func @f {
          arg %x : f32[2]
          %a = constant() value=f32[2](1.0,2.0) : f32[2]
          %b = negate(%a) : f32[2]
          %y = add(%x, %b) : f32[2]
          return y = %y
        }

    Result:
        module @m level=logical {
        }

        func @f {
          arg %x : f32[2]
          %a = constant() value=f32[2](1.0,2.0) : f32[2]
          %b = constant() value=f32[2](-1.0,-2.0) : f32[2]
          %y = add(%x, %b) : f32[2]
          return y = %y
        }
    """

    name: ClassVar[str] = "fold-constants"
    max_elements: int = 64
    exact: bool = False

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Fold in every function until nothing is left to fold."""
        if self.max_elements < 1:
            raise GraphgenError(
                "GG0302", f"fold-constants: max_elements={self.max_elements} must be at least 1"
            )
        rules = (folding(self.max_elements, self.exact),)
        for function in module.functions.values():
            rewriter.apply_rules(function, rules)


def folding(max_elements: int, exact: bool = False) -> Rule:
    """The rule that folds results of up to ``max_elements`` elements."""

    @rule(*_ROOTS)
    def fold(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """An op whose operands are all constants is a constant."""
        for operand in op.operands:
            if operand.producer("constant") is None:
                return no_match("an operand is not constant", operand)
        if OPS[op.name].composite:
            return no_match(
                f"{op.name} is a composite, which other passes want to see whole", depth=2
            )
        if OPS[op.name].collective:
            return no_match(f"{op.name} talks to the other ranks", depth=3)
        if len(op.results) != 1:
            return no_match(f"{op.name} has {len(op.results)} results", depth=4)
        (result,) = op.results
        if not result.type.static:
            return no_match("its size is not known yet", result, depth=5)
        elements = result.type.size
        if not isinstance(elements, int) or elements > max_elements:
            return no_match(
                f"it has {elements} elements, more than {max_elements}", result, depth=6
            )
        literal = _computed(op, exact)
        if literal is None:
            why = "it is rounded" if _evaluable(op) else f"{op.name} has no evaluation rule"
            return no_match(why, result, depth=7)
        return [b.op("constant", value=literal)]

    return fold


def _evaluable(op: Op) -> bool:
    from graphgen.eval import RULES

    return op.name in RULES


def _computed(op: Op, exact: bool) -> Literal | None:
    """The value of ``op`` on its constants; ``None`` if it has no rule or would be rounded."""
    import numpy as np

    from graphgen.eval import MEANING, NATIVE, RULES, Arithmetic, Array

    function = RULES.get(op.name)
    if function is None:
        return None
    literals = [v.op.attrs.literal("value") for v in op.operands if v.op is not None]

    def compute(arithmetic: Arithmetic) -> Array:
        return function(arithmetic, op.attrs, [arithmetic.literal(item) for item in literals])

    kind = op.result.dtype
    with np.errstate(all="ignore"):
        array = compute(NATIVE)
        if exact:
            wide, meant = array.astype(MEANING.dtype(kind)), compute(MEANING)
            signs = np.signbit(wide) == np.signbit(meant) if kind.is_float else True
            if not np.array_equal(wide, meant, equal_nan=kind.is_float) or not np.all(signs):
                return None
    assert array.dtype == NATIVE.dtype(kind), f"{op.name} gives {array.dtype} for {kind}"
    assert array.shape == op.result.type.dims, f"{op.name} gives {array.shape} for {op.result!r}"
    return Literal(kind, array.shape, np.ascontiguousarray(array).tobytes())

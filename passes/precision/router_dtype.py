"""Logits of routers in another type than f32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.config.fields import option, words
from graphgen.config.option_words import DTYPES
from graphgen.ir import DType, Module, Op, Value, dtype
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule
from graphgen.passes.quantization.quantizable_products import router_products


@register
@dataclass(frozen=True)
class RouterDtype(Pass):
    """Compute router logits in ``dtype``, where models have them in f32.

    NxD Inference's ``RouterConfig.dtype``: hidden states and the router's weight are converted, the
    product is rounded to the type, and a bias is added in it. Scores and weights of experts are f32
    as before. Logits that are nearly equal can become equal, and other experts be chosen.

    Options:
        dtype: of the product; f32 changes nothing.

    Given:
        module @m level=canonical {
          input %x : f32[1,4]
          weight %r : f32[2,4]
          weight %g : f32[2,3,4]
          weight %u : f32[2,3,4]
          weight %d : f32[2,4,3]
          output %o : f32[1,4]
        }

        func @f phase=decode {
          arg %x : f32[1,4]
          arg %r : f32[2,4]
          arg %g : f32[2,3,4]
          arg %u : f32[2,3,4]
          arg %d : f32[2,4,3]
          %0 = dot_general(%x, %r) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,2]
          %1, %2 = top_k(%0) k=1 : f32[1,1], s32[1,1]
          %o = experts(%x, %2, %1, %g, %u, %d) dtype=f32 : f32[1,4]
          return o = %o
        }

    Result (``router-dtype{dtype=bf16}``):
        module @m level=canonical {
          input %x : f32[1,4]
          weight %r : f32[2,4]
          weight %g : f32[2,3,4]
          weight %u : f32[2,3,4]
          weight %d : f32[2,4,3]
          output %o : f32[1,4]
        }

        func @f phase=decode {
          arg %x : f32[1,4]
          arg %r : f32[2,4]
          arg %g : f32[2,3,4]
          arg %u : f32[2,3,4]
          arg %d : f32[2,4,3]
          %0 = convert(%x) dtype=bf16 : bf16[1,4]
          %1 = convert(%r) dtype=bf16 : bf16[2,4]
          %2 = dot_general(%0, %1) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=bf16 : \
bf16[1,2]
          %3 = convert(%2) dtype=f32 : f32[1,2]
          %4, %5 = top_k(%3) k=1 : f32[1,1], s32[1,1]
          %o = experts(%x, %5, %4, %g, %u, %d) dtype=f32 : f32[1,4]
          return o = %o
        }
    """

    name: ClassVar[str] = "router-dtype"
    finite_math_only: ClassVar[bool] = True
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    # Logits in bf16 are off by 2**-8 of themselves at most, and the weights of experts by less.
    rounding: ClassVar[float] = 5e-2
    dtype: str = option(words(*DTYPES), "f32")

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """The routers of every program."""
        element = dtype(self.dtype)
        for function in module.programs():
            products = router_products(function)
            rewriter.apply_rules(function, _in_type(element, products.__contains__))


def _in_type(element: DType, chooses: Callable[[Op], bool]) -> tuple[Rule, ...]:
    made: set[Value] = set()

    @rule("dot_general")
    def product_in(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``dot(x, w)`` is ``wide(dot(narrow(x), narrow(w)))`` where it chooses experts."""
        if not chooses(op):
            return no_match("no expert is chosen by it", op.result)
        wide = op.result.dtype
        if wide.bits <= element.bits:
            return no_match(f"it is {wide}, no wider than {element}", op.result, depth=2)
        sides = [b.convert(value, element) for value in op.operands]
        narrow = b.emit("dot_general", sides, {**op.attrs, "dtype": element}).result
        made.add(narrow)
        return [b.convert(narrow, wide)]

    @rule("add")
    def bias_in(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``wide(product) + bias`` is ``wide(product + narrow(bias))``."""
        for value, other in (op.operands, op.operands[::-1]):
            widened = value.producer("convert")
            if widened is not None and widened.operands[0] in made and list(value.users) == [op]:
                narrow = b.binary("add", widened.operands[0], b.convert(other, element))
                return [b.convert(narrow, op.result.dtype)]
        return no_match("it adds nothing to the logits of a router", op.result)

    return product_in, bias_in

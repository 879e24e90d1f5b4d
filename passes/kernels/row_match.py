"""Match row-wise ops with a kernel of their own: norms outside of a product, and ``top_k``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import bf16, f16, f32
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.kernels.kernel_call import KernelCalls
from graphgen.passes.weights.derived import PreparedValues

_FLOATS = (bf16, f16, f32)
_OPERANDS = ("x", "norm", "offset")


@dataclass(frozen=True, slots=True)
class RowMatch:
    """One op, and the kernel that computes it.

    Attributes:
        op: ``rms_norm``, ``layer_norm`` or ``top_k``.
        kernel: the name.
        config: settings of the kernel.
    """

    op: Op
    kernel: str
    config: dict[str, object]

    @property
    def ops(self) -> list[Op]:
        """The op alone."""
        return [self.op]

    def call(self, b: Builder, calls: KernelCalls) -> Sequence[Value]:
        """Insert the call; ``b`` has nothing to add."""
        operands: dict[str, Value] = dict(zip(_OPERANDS, self.op.operands, strict=False))
        body, cloner = calls.body(operands)
        return calls.call(self.kernel, self.config, body, cloner, operands, self.ops)


def match_norm(op: Op, prepared: PreparedValues) -> RowMatch | NoMatch:
    """A norm that stands alone, as before a rotation or after a product.

    Args:
        op: ``rms_norm`` or ``layer_norm``.
        prepared: of no use here: no operand has to be made of weights.
    """
    x, *vectors = op.operands
    if x.dtype not in _FLOATS or {vector.dtype for vector in vectors} != {op.result.dtype}:
        return no_match(f"the kernel has no norm of {x.dtype} to {op.result.dtype}", x)
    if op.result.dtype not in _FLOATS:
        return no_match(f"the kernel rounds to no {op.result.dtype}", op.result)
    if not all(x.type.dims):
        return no_match("it has no elements", x, depth=2)
    config: dict[str, object] = {
        "offset": len(vectors) == 2,
        "epsilon": op.attrs.number("epsilon"),
    }
    return RowMatch(op, "norm", config)


def match_top_k(op: Op, prepared: PreparedValues) -> RowMatch | NoMatch:
    """The largest elements of rows, as of logits that a token is chosen from.

    Args:
        op: ``top_k``.
        prepared: of no use here: no operand has to be made of weights.
    """
    (x,) = op.operands
    if x.dtype not in _FLOATS:
        return no_match(f"the kernel does not order {x.dtype}", x)
    if not all(x.type.dims):
        return no_match("it has no elements", x, depth=1)
    if not op.attrs.integer("k"):
        return no_match("it takes no element", x, depth=2)
    return RowMatch(op, "top_k", {"k": op.attrs.integer("k")})

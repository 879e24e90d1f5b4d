"""A norm whose rows leave as 8-bit numbers with a scale each."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, Dim, TensorType, tensor
from graphgen.ir.dims import product
from graphgen.ir.dtype import f32, lowest
from graphgen.ops.factors import Notation
from graphgen.ops.opdef import Attr, define, float_operand, require
from graphgen.ops.traits import Trait, Types


def _cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """Four operations an element for the norm; a comparison and a quotient for the numbers."""
    return 6 * operands[0].size, product(operands[0].shape[:-1])


@define(
    "rms_norm_quantize",
    "operand weight",
    Attr("epsilon", "number"),
    Attr("dtype", "element"),
    Attr("limit", "number"),
    traits=(Trait.COMPOSITE,),
    factors=Notation("* E, E -> * E, *"),
    cost=_cost,
)
def _rms_norm_quantize(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``quantize(rms_norm(operand, weight))`` over the last dimension: 8-bit rows, f32 scales.

    The norm is rounded as ``rms_norm`` rounds it; ``limit`` is that of ``quantize``.

    Example:
        %q, %s = rms_norm_quantize(%x, %w) epsilon=1e-05 dtype=s8 limit=127.0 : s8[B,S,4], f32[B,S]
    """
    float_operand(types)
    float_operand(types, 1)
    x, weight, dtype = types[0], types[1], attrs.element("dtype")
    require(x.rank >= 1, f"needs a dimension to normalize, got {x.text}", 0)
    wanted = tensor(weight.dtype, x.shape[-1:])
    require(weight is wanted, f"needs {wanted.text}, got {weight.text}", 1)
    fits = dtype.bits == 8 and (dtype.is_float or lowest(dtype) < 0)
    require(fits, f"needs an 8-bit type with a sign, got {dtype.name}")
    limit = attrs.number("limit")
    require(
        0 < limit <= -lowest(dtype),
        f"limit={limit} is not in (0, {-lowest(dtype)}], the range of {dtype.name}",
    )
    return tensor(dtype, x.shape), tensor(f32, x.shape[:-1])

"""Rows that become 8-bit numbers with a scale each, as kernels in NKI make them.

    [rms_norm ->] [clamp ->] quantize
    rms_norm_quantize

The kernels divide a row by ``max(largest / 240, 1e-6)``, which is its scale, and round to f8e4m3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Op, TensorType, Value, tensor
from graphgen.ir.dtype import bf16, f8e4m3, f32
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.kernels.neuron.native_match import row, row_type

# The largest number of Neuron's f8e4m3, and the least scale.
LARGEST, LEAST_SCALE = 240.0, 1e-6


@dataclass(frozen=True, slots=True)
class NarrowRows:
    """Operands of a kernel that makes such rows.

    Attributes:
        x: [B,S,H].
        norm: the weight of the norm before, [H]; ``None`` without one.
        epsilon: of the norm; 0 without one.
        bound: largest absolute value; 0 for any.
        ops: in an order in which they can run; the last gives numbers and scales.
    """

    x: Value
    norm: Value | None
    epsilon: float
    bound: float
    ops: list[Op]

    @property
    def vector_type(self) -> TensorType:
        """The type of :meth:`vector`."""
        if self.norm is not None:
            return row_type(self.norm)
        return tensor(bf16, (1, self.x.type.dims[-1]))

    def vector(self, b: Builder) -> Value:
        """The weight of the norm, [1,H]; without one, ones that the kernel does not read."""
        return row(b, self.norm) if self.norm is not None else b.full(1, self.vector_type)

    def meaning(self, b: Builder, x: Value, vector: Value) -> tuple[Value, Value]:
        """Numbers f8e4m3 [B,S,H] and scales f32 [B,S] of a kernel's operands."""
        if self.norm is not None:
            x = b.rms_norm(x, b.reshape(vector, x.type.dims[-1:]), self.epsilon)
        return narrowed(b, x, self.bound)


def narrowed(b: Builder, x: Value, bound: float) -> tuple[Value, Value]:
    """Numbers f8e4m3 and the scale of each row, as the kernels make them."""
    wide, last = b.convert(x, f32), x.type.rank - 1
    if bound:
        wide = b.clamp(b.literal(-bound, f32), wide, b.literal(bound, f32))
    scale = b.divide(b.reduce(b.abs(wide), [last], "maximum"), LARGEST)
    scale = b.binary("maximum", scale, LEAST_SCALE)
    spread = b.broadcast_in_dim(scale, wide.shape, list(range(last)))
    return b.convert(b.divide(wide, spread), f8e4m3), scale


def match_narrow_rows(op: Op) -> NarrowRows | NoMatch:
    """The rows that ``quantize`` or ``rms_norm_quantize`` makes, or what kernels make otherwise."""
    x = op.operands[0]
    if x.type.rank != 3:
        return no_match(f"the kernel takes tokens [B,S,H], not {x.type.text}", x, depth=2)
    if op.attrs.element("dtype") is not f8e4m3 or op.attrs.number("limit") != LARGEST:
        what = f"the kernel makes f8e4m3 up to {LARGEST:g}, not {op.attrs.element('dtype')}"
        return no_match(what, op.results[0], depth=3)
    if op.name == "rms_norm_quantize":
        return NarrowRows(x, op.operands[1], op.attrs.number("epsilon"), 0.0, [op])
    if op.attrs.integers("dimensions") != (2,) or op.attrs.integers("block"):
        return no_match("a scale is not of a row", op.results[1], depth=4)
    return _with_bound(op, x)


def _with_bound(op: Op, x: Value) -> NarrowRows | NoMatch:
    """``quantize`` with the clamp and the norm that it alone reads."""
    ops, bound = [op], 0.0
    clamp = x.producer("clamp")
    if clamp is not None:
        low, x, high = clamp.operands
        ends = [_constant(value) for value in (low, high)]
        if ends[1] is None or ends[0] != -ends[1]:
            return no_match("it is bounded otherwise than by the bound of its absolute value", x)
        bound, ops = ends[1], [clamp, op]
    norm = x.producer("rms_norm")
    if norm is None or list(x.users) != ops[:1]:
        return NarrowRows(x, None, 0.0, bound, ops)
    epsilon = norm.attrs.number("epsilon")
    return NarrowRows(norm.operands[0], norm.operands[1], epsilon, bound, [norm, *ops])


def _constant(value: Value) -> float | None:
    made = value.producer("constant")
    numbers: Sequence[float] = made.attrs.literal("value").values() if made is not None else ()
    return float(numbers[0]) if len(numbers) == 1 else None

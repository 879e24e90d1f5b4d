"""Match the 8-bit kernels in NKI: quantized rows with scales, and a gated MLP.

    rows -> product, scaled -> silu(left half) * right half -> rows -> product, scaled

``rmsnorm_quant_kernel`` of the NKI library gives rows of H numbers f8e4m3 and four more, the bytes
of the row's scale in f32. ``quant_mlp_isa_kernel`` is called as NxD Inference calls it: it makes
rows of 8-bit numbers by itself; weights have the contracted dimension first, and the scale of each
column in 128 equal rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Op, TensorType, Value, tensor
from graphgen.ir.dtype import bf16, f8e4m3, f32, u8
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.kernels.neuron_match import (
    NativeMatch,
    NativeSettings,
    converted,
    row,
    row_type,
    with_artifact,
)
from graphgen.passes.kernels.neuron_projections import PARTITIONS, Gated, match_gate, why_no_product
from graphgen.passes.weights.derived import PreparedValues

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


ROWS_KERNEL, NARROW_MLP_KERNEL = "rmsnorm_quant_kernel", "quant_mlp_isa_kernel"
# The largest sizes of B, S and H that the kernel of rows takes.
ROWS_LIMITS = {"rows": 2, "tokens a row": 32768, "features": 16384}
_SCALE_BYTES = 4


def match_rows(op: Op, prepared: PreparedValues, settings: NativeSettings) -> NativeMatch | NoMatch:
    """Rows that become 8-bit numbers, with the norm before: numbers and scales."""
    if prepared.of_weights(op.results[0]):
        return no_match("a weight is made narrow, not tokens", op.operands[0])
    rows = match_narrow_rows(op)
    if isinstance(rows, NoMatch):
        return rows
    sizes = zip(ROWS_LIMITS.items(), rows.x.type.dims, strict=True)
    for (name, most), size in sizes:
        if size > most:
            what = f"{size} {name}: the kernel takes {most} at most"
            return no_match(what, rows.x, depth=5)
    batch, length, depth = rows.x.type.dims
    packed = tensor(f8e4m3, (batch, length, depth + _SCALE_BYTES))

    def operands(b: Builder) -> Mapping[str, Value]:
        return {"hidden": b.convert(rows.x, bf16), "norm": rows.vector(b)}

    def meaning(b: Builder, x: Sequence[Value]) -> Sequence[Value]:
        made = [b.bitcast_convert(value, u8) for value in rows.meaning(b, *x)]
        return [b.bitcast_convert(b.concatenate(made, 2), f8e4m3)]

    def finish(b: Builder, values: Sequence[Value]) -> Sequence[Value]:
        scale = b.slice_dim(values[0], 2, depth, depth + _SCALE_BYTES)
        return [b.slice_dim(values[0], 2, 0, depth), b.bitcast_convert(scale, f32)]

    types = [tensor(bf16, rows.x.type.dims), rows.vector_type]
    found = NativeMatch("rows", rows.ops, operands, meaning, finish, (packed,))
    arguments: dict[str, object] = {
        "norm_type": "RMS_NORM" if rows.norm is not None else "NO_NORM",
        "quantization_type": "ROW",
        "lower_bound": rows.bound,
        **({"eps": rows.epsilon} if rows.norm is not None else {}),
    }
    return with_artifact(found, settings, ROWS_KERNEL, types, arguments)


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A product of narrow numbers, multiplied by the scales of its rows and its columns.

    Attributes:
        rows: its left operand.
        dot: the product.
        columns: scales of its columns, [N]; ``None`` where they come later, as after a sum.
        ops: from the product on.
    """

    rows: NarrowRows
    dot: Op
    columns: Value | None
    ops: list[Op]

    @property
    def end(self) -> Value:
        """The result."""
        return self.ops[-1].result

    @property
    def every(self) -> list[Op]:
        """All ops, those of the rows first."""
        return [*self.rows.ops, *self.ops]


def _match_scaled(dot: Op, prepared: PreparedValues) -> _Scaled | NoMatch:
    why = why_no_product(dot, prepared, f8e4m3)
    if why is not None:
        return why
    made = dot.operands[0].op
    if made is None or made.name not in ("quantize", "rms_norm_quantize"):
        return no_match("its left operand is not made narrow here", dot.operands[0], depth=6)
    rows = match_narrow_rows(made)
    if isinstance(rows, NoMatch):
        return rows
    by_rows = _times(dot.result, prepared, [0, 1])
    if by_rows is None or by_rows[0] is not made.results[1]:
        return no_match("it is not multiplied by the scales of its rows", dot.result, depth=7)
    ops = [dot, *by_rows[1]]
    by_columns = _times(ops[-1].result, prepared, [2])
    if by_columns is None or not prepared.of_weights(by_columns[0]):
        return _Scaled(rows, dot, None, ops)
    return _Scaled(rows, dot, by_columns[0], [*ops, *by_columns[1]])


def _times(
    value: Value, prepared: PreparedValues, dims: Sequence[int]
) -> tuple[Value, list[Op]] | None:
    """The factor along ``dims`` that alone multiplies ``value``, and ops from there to the product.

    Ops that bring the factor into its place are left out where they are made of weights.
    """
    multiply = prepared.only_reader(value)
    if multiply is None or multiply.name != "multiply":
        return None
    other = next((item for item in multiply.operands if item is not value), value)
    spread = other.producer("broadcast_in_dim")
    if spread is None or spread.attrs.integers("dimensions") != tuple(dims):
        return None
    factor, ops = spread.operands[0], [spread, multiply]
    turned = factor.producer("transpose")
    if turned is not None and list(turned.attrs.integers("permutation")) == list(range(len(dims))):
        factor, ops = turned.operands[0], [turned, *ops]
    return factor, ([multiply] if prepared.of_weights(factor) else ops)


def match_narrow_mlp(
    dot: Op, prepared: PreparedValues, settings: NativeSettings
) -> NativeMatch | NoMatch:
    """A gated MLP of 8-bit numbers, with the norm before it, up to the sum over ranks."""
    down = _match_scaled(dot, prepared)
    if isinstance(down, NoMatch):
        return down
    if down.rows.norm is not None:
        return no_match("its left operand is a norm, no gated activation", down.rows.x, depth=8)
    gate = match_gate(down.rows.x, prepared)
    if isinstance(gate, NoMatch):
        return gate
    both = _match_gate_product(gate.wide, prepared)
    if isinstance(both, NoMatch):
        return both
    if both.rows.bound != down.rows.bound:
        what = f"its rows are bounded by {both.rows.bound:g} and by {down.rows.bound:g}"
        return no_match(what, down.rows.x, depth=10)
    width = down.dot.operands[1].type.dims[1]
    if width % PARTITIONS:
        what = f"a rank has {width} columns of the MLP, no multiple of {PARTITIONS}"
        return no_match(what, down.dot.operands[1], depth=11)
    return _narrow_mlp(both, gate, down, settings)


def _match_gate_product(wide: Value, prepared: PreparedValues) -> _Scaled | NoMatch:
    """The scaled product that gives ``wide``."""
    dot = wide.op
    while dot is not None and dot.name == "multiply":
        whole = [v for v in dot.operands if v.producer("broadcast_in_dim") is None]
        dot = whole[0].op if whole else None
    if dot is None or dot.name != "dot_general":
        return no_match("its gate is not a scaled product", wide, depth=9)
    found = _match_scaled(dot, prepared)
    if isinstance(found, NoMatch) or found.end is wide:
        return found
    return no_match("its gate is scaled otherwise than by row and column", wide, depth=9)


def _narrow_mlp(
    both: _Scaled, gate: Gated, down: _Scaled, settings: NativeSettings
) -> NativeMatch | NoMatch:
    given, bound = both.rows, both.rows.bound
    depth, width = both.dot.operands[1].type.dims[1], down.dot.operands[1].type.dims[1]
    out = down.end.type.dims

    def operands(b: Builder) -> Mapping[str, Value]:
        found = {"hidden": b.convert(given.x, bf16), "norm": given.vector(b)}
        for name, start in (("gate", 0), ("up", width)):
            part = b.slice_dim(both.dot.operands[1], 0, start, start + width)
            found[name] = b.transpose(part, (1, 0))
            scale = both.columns
            scale = None if scale is None else b.slice_dim(scale, 0, start, start + width)
            found[f"{name}_scale"] = _spread(b, scale, width)
        found["down"] = b.transpose(down.dot.operands[1], (1, 0))
        return {**found, "down_scale": _spread(b, down.columns, out[-1])}

    def meaning(b: Builder, x: Sequence[Value]) -> Sequence[Value]:
        hidden, vector, gate_w, gate_s, up_w, up_s, down_w, down_s = x
        rows = given.meaning(b, hidden, vector)
        gated, up = _product(b, rows, gate_w, gate_s), _product(b, rows, up_w, up_s)
        inner = b.convert(b.multiply(b.silu(gated), up), bf16)
        made = _product(b, narrowed(b, inner, bound), down_w, down_s)
        return [b.convert(made, bf16)]

    first = [tensor(f8e4m3, (depth, width)), tensor(f32, (PARTITIONS, width))] * 2
    last = [tensor(f8e4m3, (width, out[-1])), tensor(f32, (PARTITIONS, out[-1]))]
    types = [tensor(bf16, given.x.type.dims), given.vector_type, *first, *last]
    found = NativeMatch(
        "narrow_mlp",
        [*both.every, *gate.ops, *down.every],
        operands,
        meaning,
        converted(down.end.dtype),
        (tensor(bf16, out),),
    )
    fused = given.norm is not None
    arguments = {"kernel_name": "MLP", "clamp_bound": bound, "fused_rmsnorm": fused}
    eps = {"eps": given.epsilon} if fused else {}
    return with_artifact(found, settings, NARROW_MLP_KERNEL, types, {**arguments, **eps})


def _spread(b: Builder, scale: Value | None, width: int) -> Value:
    """The scale of each column in 128 rows; ones where columns are scaled later."""
    if scale is None:
        return b.full(1.0, tensor(f32, (PARTITIONS, width)))
    return b.broadcast_in_dim(scale, (PARTITIONS, width), [1])


def _product(b: Builder, rows: tuple[Value, Value], weight: Value, scale: Value) -> Value:
    """f32 [B,S,N]: narrow rows by a narrow weight, times the scales of both."""
    numbers, factors = rows
    sums = b.dot_general(numbers, weight, ([2], [0]), dtype=f32)
    width = weight.type.dims[1]
    column = b.reshape(b.slice_dim(scale, 0, 0, 1), (width,))
    by_rows = b.multiply(sums, b.broadcast_in_dim(factors, sums.shape, [0, 1]))
    return b.multiply(by_rows, b.broadcast_in_dim(column, sums.shape, [2]))

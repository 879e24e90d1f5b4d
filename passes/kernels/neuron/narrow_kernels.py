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
from graphgen.ir import Op, Value, tensor
from graphgen.ir.dtype import bf16, f8e4m3, f32, u8
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.kernels.neuron.narrow_rows import NarrowRows, match_narrow_rows, narrowed
from graphgen.passes.kernels.neuron.native_match import (
    NativeMatch,
    NativeSettings,
    converted,
    with_artifact,
)
from graphgen.passes.kernels.neuron.projection_kernels import (
    PARTITIONS,
    Gated,
    match_gate,
    why_no_product,
)
from graphgen.passes.weights.derived import PreparedValues

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

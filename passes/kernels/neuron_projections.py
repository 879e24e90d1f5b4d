"""Match projections that kernels in NKI compute: queries, keys and values, and a gated MLP.

    [rms_norm ->] product -> three slices
    [rms_norm ->] product -> silu(left half) * right half -> [convert ->] product

The kernels are those of ``neuronxcc.nki._private_kernels``, called as NxD Inference calls them.
Their weights have the contracted dimension first, and their tensors are bf16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import DType, Op, TensorType, Value, tensor
from graphgen.ir.dtype import bf16, f32
from graphgen.passes.canonical.slice_algebra import bounds
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.kernels.neuron_match import (
    NativeMatch,
    NativeSettings,
    converted,
    row,
    row_type,
    with_artifact,
)
from graphgen.passes.weights.derived import PreparedValues

QKV_KERNEL, MLP_KERNEL = "rmsnorm_qkv_isa_kernel", "mlp_isa_kernel"
# Tokens of all rows from which the kernel's form for prompts wants an even number a row.
_PROMPT = 64
# Rows of the engine's array, into which the contracted dimension of an MLP is cut.
PARTITIONS = 128


@dataclass(frozen=True, slots=True)
class Normalized:
    """The left operand of a product, and the norm that only it reads.

    Attributes:
        norm: ``None`` where the kernel is to leave the norm out.
        x: what the kernel reads: [..., H].
        epsilon: of the norm; 0 without one.
    """

    norm: Op | None
    x: Value
    epsilon: float

    @property
    def ops(self) -> list[Op]:
        """The norm, if there is one."""
        return [self.norm] if self.norm is not None else []

    @property
    def vector_type(self) -> TensorType:
        """The type of :meth:`vector`."""
        if self.norm is not None:
            return row_type(self.norm.operands[1])
        return tensor(bf16, (1, self.x.type.dims[-1]))

    def vector(self, b: Builder) -> Value:
        """The weight of the norm, [1,H]; without one, ones that the kernel does not read."""
        return row(b, self.norm.operands[1]) if self.norm else b.full(1, self.vector_type)

    def meaning(self, b: Builder, x: Value, vector: Value) -> Value:
        """The left operand of the product."""
        if self.norm is None:
            return x
        return b.rms_norm(x, b.reshape(vector, x.type.dims[-1:]), self.epsilon)

    @property
    def arguments(self) -> dict[str, object]:
        """Arguments that the kernel is traced with."""
        fused = self.norm is not None
        return {"fused_rmsnorm": fused, **({"eps": self.epsilon} if fused else {})}


def normalized(dot: Op, prepared: PreparedValues) -> Normalized:
    """The left operand of ``dot``, before the norm where that is the product's alone."""
    norm = dot.operands[0].producer("rms_norm")
    if norm is not None and prepared.only_reader(norm.result) is dot:
        return Normalized(norm, norm.operands[0], norm.attrs.number("epsilon"))
    return Normalized(None, dot.operands[0], 0.0)


def why_no_product(dot: Op, prepared: PreparedValues, element: DType = bf16) -> NoMatch | None:
    """The condition that a product fails: tokens [B,S,K] by a weight [N,K], of one type."""
    lhs, rhs = dot.operands
    if lhs.type.rank != 3 or dot.attrs.integers("lhs_batch_dims"):
        return no_match(f"the kernel takes tokens [B,S,H], not {lhs.type.text}", lhs, depth=2)
    if dot.attrs.integers("lhs_contracting_dims") != (2,) or rhs.type.rank != 2:
        return no_match("the product does not contract the last dimension", lhs, depth=3)
    if dot.attrs.integers("rhs_contracting_dims") != (1,) or not prepared.of_weights(rhs):
        return no_match("its right operand is not a weight [N,K]", rhs, depth=4)
    if (lhs.dtype, rhs.dtype) != (element, element):
        what = f"the kernel multiplies {element}, not {lhs.dtype} and {rhs.dtype}"
        return no_match(what, rhs, depth=5)
    return None


def _parts(product: Value) -> list[Op]:
    """The slices of the last dimension that read a product, by first column; none for others."""
    found: list[tuple[int, Op]] = []
    for op in product.users:
        if op.name != "slice":
            return []
        *outer, (start, _, step) = bounds(op)
        if (
            not isinstance(start, int)
            or step != 1
            or outer != [(0, size, 1) for size in product.type.dims[:-1]]
        ):
            return []
        found.append((start, op))
    return [op for _, op in sorted(found, key=lambda item: item[0])]


def match_qkv(dot: Op, prepared: PreparedValues, settings: NativeSettings) -> NativeMatch | NoMatch:
    """Queries, keys and values as one product, with the norm before it."""
    why = why_no_product(dot, prepared)
    if why is not None:
        return why
    widths = [op.result.type.dims[-1] for op in _parts(dot.result)]
    columns = dot.result.type.dims[-1]
    if len(widths) != 3 or widths[1] != widths[2] or sum(widths) != columns:
        return no_match("its columns are not queries, keys and values", dot.result, depth=6)
    given = normalized(dot, prepared)
    batch, length, depth = given.x.type.dims
    if batch * length > _PROMPT and length % 2:
        what = f"{length} tokens a row: above {_PROMPT} the kernel takes an even number"
        return no_match(what, given.x, depth=7)
    weight = dot.operands[1]

    def operands(b: Builder) -> Mapping[str, Value]:
        turned = b.transpose(weight, (1, 0))
        return {"hidden": b.convert(given.x, bf16), "weight": turned, "norm": given.vector(b)}

    def meaning(b: Builder, x: Sequence[Value]) -> Sequence[Value]:
        left = given.meaning(b, x[0], x[2])
        return [b.convert(b.dot_general(left, x[1], ([2], [0]), dtype=f32), bf16)]

    types = [given.x.type, tensor(bf16, (depth, columns)), given.vector_type]
    types[0] = tensor(bf16, types[0].dims)
    result = tensor(bf16, dot.result.type.dims)
    wide = dot.result.dtype
    found = NativeMatch(
        "qkv",
        [*given.ops, dot],
        operands,
        meaning,
        converted(wide),
        (result,),
    )
    return with_artifact(
        found, settings, QKV_KERNEL, types, {"kernel_name": "QKV", **given.arguments}
    )


@dataclass(frozen=True, slots=True)
class Gated:
    """``silu(left half) * right half`` of a product, before the product that reads it.

    Attributes:
        wide: the product of both halves, scaled if its operands are.
        ops: the slices, the activation, the product of both, perhaps a conversion.
    """

    wide: Value
    ops: list[Op]


def match_gate(value: Value, prepared: PreparedValues) -> Gated | NoMatch:
    """The gated activation that gives ``value``, each op of which is read by the next alone."""
    after: list[Op] = []
    if value.op is not None and value.op.name == "convert":
        after, value = [value.op], value.op.operands[0]
    multiply = value.producer("multiply")
    if multiply is None:
        return no_match("its left operand is not a gated activation", value, depth=6)
    for active, other in (multiply.operands, multiply.operands[::-1]):
        silu = active.producer("silu")
        parts = [silu.operands[0] if silu else None, other]
        slices = [part.producer("slice") if part else None for part in parts]
        if silu is None or None in slices:
            continue
        left, right = (op for op in slices if op is not None)
        wide = left.operands[0]
        half, odd = divmod(wide.type.dims[-1], 2)
        whole = not odd and _parts(wide) == [left, right] and left.result.type.dims[-1] == half
        if wide is right.operands[0] and whole and right.result.type.dims[-1] == half:
            chain = [left, silu, right, multiply, *after]
            alone = all(prepared.only_reader(op.result) is not None for op in chain)
            return Gated(wide, chain) if alone else no_match("its gate is read besides", value)
    return no_match("its left operand is not silu(gate) * up of one product", value, depth=7)


def match_mlp(
    down: Op, prepared: PreparedValues, settings: NativeSettings
) -> NativeMatch | NoMatch:
    """A gated MLP, with the norm before it, up to the sum over ranks."""
    why = why_no_product(down, prepared)
    if why is not None:
        return why
    gate = match_gate(down.operands[0], prepared)
    if isinstance(gate, NoMatch):
        return gate
    dot = gate.wide.producer("dot_general")
    if dot is None:
        return no_match("its gate is not of a product", gate.wide, depth=8)
    why = why_no_product(dot, prepared)
    if why is not None:
        return why
    given, width = normalized(dot, prepared), down.operands[1].type.dims[1]
    if width % PARTITIONS:
        what = f"a rank has {width} columns of the MLP, no multiple of {PARTITIONS}"
        return no_match(what, down.operands[1], depth=9)
    return _mlp(down, dot, gate, given, settings)


def _mlp(
    down: Op, dot: Op, gate: Gated, given: Normalized, settings: NativeSettings
) -> NativeMatch | NoMatch:
    both, last = dot.operands[1], down.operands[1]
    depth, width = both.type.dims[1], last.type.dims[1]

    def operands(b: Builder) -> Mapping[str, Value]:
        halves = [b.slice_dim(both, 0, at, at + width) for at in (0, width)]
        turned = [b.transpose(each, (1, 0)) for each in (*halves, last)]
        names = dict(zip(("gate", "up", "down"), turned, strict=True))
        return {"hidden": b.convert(given.x, bf16), "norm": given.vector(b), **names}

    def meaning(b: Builder, x: Sequence[Value]) -> Sequence[Value]:
        hidden, vector, gate_w, up_w, down_w = x
        left = given.meaning(b, hidden, vector)
        gated, up = (b.dot_general(left, w, ([2], [0]), dtype=f32) for w in (gate_w, up_w))
        inner = b.convert(b.multiply(b.silu(gated), up), bf16)
        return [b.convert(b.dot_general(inner, down_w, ([2], [0]), dtype=f32), bf16)]

    hidden, result = (tensor(bf16, v.type.dims) for v in (given.x, down.result))
    inner = tensor(bf16, (depth, width))
    types = [hidden, given.vector_type, inner, inner, tensor(bf16, (width, result.dims[-1]))]
    wide = down.result.dtype
    found = NativeMatch(
        "mlp",
        [*given.ops, dot, *gate.ops, down],
        operands,
        meaning,
        converted(wide),
        (result,),
    )
    arguments = {"kernel_name": "MLP", **given.arguments}
    return with_artifact(found, settings, MLP_KERNEL, types, arguments)

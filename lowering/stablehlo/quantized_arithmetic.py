"""Quantized elements as plain integers: ops on them by the functions of StableHLO's specification.

An op on quantized elements is that op on the numbers which they stand for, quantized again:
``quantize(op(dequantize(x)))``. To quantize is to divide by the scale, add the zero point, clamp to
the storage's bounds, and round half to even.
Source: https://github.com/openxla/stablehlo/blob/main/docs/spec.md, quantization computations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from graphgen.errors import GraphgenError
from graphgen.ir import DType, Literal, TensorType, Value, tensor
from graphgen.ir.dtype import DTYPES, dtype, s32, s64
from graphgen.lowering.mlir.mlir_types import read_bounded_type, type_text
from graphgen.lowering.mlir.syntax_tree import DenseAttr, MlirOp
from graphgen.lowering.stablehlo.attribute_notes import PROMISES
from graphgen.lowering.stablehlo.op_row import UnmodelledForm
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.numbers import finite, whole_number

ReadOp = Callable[[StableHloReadContext, MlirOp, Sequence[Value]], "list[Value] | None"]
_FORM = re.compile(
    r"quant<(u|ui|i|si)(\d+)(?:<(-?\d+):(-?\d+)>)?:(\w+?)(?::(\d+|\([^)]*\)))?;(.+)>"
)


@dataclass(frozen=True, slots=True)
class Quantization:
    """A quantized type, taken apart.

    Attributes:
        storage: the element type that is stored.
        expressed: that of the numbers which elements stand for.
        low, high: the least and the largest stored number.
        axis: the dimension that has several scales, -1 for one scale.
        scales: one, or one for each place along the axis.
        zero_points: the stored numbers that stand for 0.
    """

    storage: DType
    expressed: DType
    low: int
    high: int
    axis: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]


def quantization_of(kind: DType) -> Quantization:
    """Take a quantized type apart (GG0403 for blocks of scales and storage of odd bits)."""
    match = _FORM.fullmatch(kind.name)
    sign, bits, low, high, expressed, axis, scales = match.groups() if match else ("",) * 7
    unsigned, size = "u" in sign, int(bits or 0)
    storage = DTYPES.get(f"{'u' if unsigned else 's'}{size}")
    if storage is None or (axis or "").startswith("("):
        what = f"{kind.name}: no op here computes with it"
        raise GraphgenError("GG0403", what, help="scales are per tensor or along one dimension")
    pairs = [item.partition(":") for item in scales.strip("()").split(";")]
    least, most = (0, (1 << size) - 1) if unsigned else (-(1 << size - 1), (1 << size - 1) - 1)
    return Quantization(
        storage,
        dtype(expressed),
        whole_number(low, least=least) if low else least,
        whole_number(high, least=least) if high else most,
        whole_number(axis) if axis else -1,
        tuple([finite(float(scale)) for scale, _, _ in pairs]),
        tuple([whole_number(zero or "0", least=least) for _, _, zero in pairs]),
    )


def plain_type(type_: TensorType) -> TensorType:
    """The type of what is stored of a quantized type; any other as it is."""
    if not type_.dtype.is_quantized:
        return type_
    return tensor(quantization_of(type_.dtype).storage, type_.shape)


def read_plain(
    to: StableHloReadContext, node: MlirOp, operands: Sequence[Value], read_op: ReadOp
) -> list[Value]:
    """Read an op on quantized elements as one on the numbers that they stand for.

    Raises:
        UnmodelledForm: it has a region, whose elements are quantized, too.
    """
    if node.regions:
        raise UnmodelledForm("a region on quantized elements")
    stated = [read_bounded_type(text)[0] for text in node.types]
    name = node.name.partition(".")[2]
    if name == "constant":
        return [_constant(to, node, stated[0], read_op)]
    numbers = [_dequantized(to, value) for value in operands]
    if name in ("uniform_quantize", "uniform_dequantize"):
        made = numbers
    else:
        types = [_expressed(type_) for type_ in stated]
        inner = replace(node, types=[type_text(type_) for type_ in types])
        made = read_op(to, inner, numbers) or []
    # Hints are about one op among these.
    to.notes = {}
    for key in PROMISES:
        node.attrs.get(key)
    if len(made) != len(stated):
        raise UnmodelledForm("this number of results")
    return [_quantized(to, value, type_) for value, type_ in zip(made, stated, strict=True)]


def _expressed(type_: TensorType) -> TensorType:
    if not type_.dtype.is_quantized:
        return type_
    return tensor(quantization_of(type_.dtype).expressed, type_.shape)


def _constant(to: StableHloReadContext, node: MlirOp, type_: TensorType, read_op: ReadOp) -> Value:
    value = node.attrs.get("value")
    if isinstance(value, DenseAttr):
        text = type_text(plain_type(type_))
        node.attrs["value"] = replace(value, type=text)
        node = replace(node, types=[text])
    (made,) = read_op(to, node, []) or []
    to.source.quantized[made] = type_.dtype
    return made


def _spread(
    to: StableHloReadContext, kind: DType, numbers: Sequence[float], like: Value, axis: int
) -> Value:
    """A number, or one for each place along an axis, as an array of the shape of another."""
    literal = Literal(kind, (len(numbers),) if axis >= 0 else (), _data(kind, numbers))
    small = to.emit("constant", (), value=literal)
    dims = (axis,) if axis >= 0 else ()
    if not like.type.rank:
        return small
    return to.emit("broadcast_in_dim", [small], shape=like.shape, dimensions=dims)


def _data(kind: DType, numbers: Sequence[float]) -> bytes:
    from graphgen.ir.dtype import encode

    return b"".join([encode(kind, number) for number in numbers])


def _dequantized(to: StableHloReadContext, value: Value) -> Value:
    """The numbers that quantized elements stand for; other values as they are."""
    kind = to.source.quantized.get(value)
    if kind is None:
        return value
    q = quantization_of(kind)
    wide = s64 if q.storage.bits >= 32 else s32
    found = to.emit("convert", [value], dtype=wide)
    if any(q.zero_points):
        zero = _spread(to, wide, q.zero_points, value, q.axis)
        found = to.emit("subtract", [found, zero])
    found = to.emit("convert", [found], dtype=q.expressed)
    return to.emit("multiply", [found, _spread(to, q.expressed, q.scales, value, q.axis)])


def _quantized(to: StableHloReadContext, value: Value, type_: TensorType) -> Value:
    """Numbers as the quantized elements of a type; as they are for any other type."""
    if not type_.dtype.is_quantized:
        return value
    q = quantization_of(type_.dtype)
    if value.dtype is not q.expressed:
        value = to.emit("convert", [value], dtype=q.expressed)
    found = to.emit("divide", [value, _spread(to, q.expressed, q.scales, value, q.axis)])
    if any(q.zero_points):
        zero = _spread(to, q.expressed, q.zero_points, value, q.axis)
        found = to.emit("add", [found, zero])
    low, high = (
        _spread(to, q.expressed, [_inside(bound, q)], found, -1) for bound in (q.low, q.high)
    )
    found = to.emit("clamp", [low, found, high])
    found = to.emit("round_nearest_even", [found])
    made = to.emit("convert", [found], dtype=q.storage)
    to.source.quantized[made] = type_.dtype
    return made


def _inside(bound: int, q: Quantization) -> float:
    """A bound as a float that the storage holds: the largest s32 is not one."""
    import numpy as np

    near = float(np.float32(bound)) if q.expressed.bits < 64 else float(bound)
    if q.low <= near <= q.high:
        return near
    return float(np.nextafter(np.float32(near), np.float32(math.copysign(0.0, near))))

"""Element types of torch and their promotion."""

from __future__ import annotations

from collections.abc import Iterable

from graphgen.errors import GraphgenError
from graphgen.ir import Dim, DType, Value
from graphgen.ir.dtype import (
    Kind,
    bf16,
    f8e4m3fn,
    f8e5m2,
    f16,
    f32,
    f64,
    pred,
    s8,
    s16,
    s32,
    s64,
    u8,
    u16,
    u32,
    u64,
)

# As torch prints them, without ``torch.``.
TORCH: dict[str, DType] = {
    "bool": pred,
    "uint8": u8,
    "uint16": u16,
    "uint32": u32,
    "uint64": u64,
    "int8": s8,
    "int16": s16,
    "int32": s32,
    "int64": s64,
    "float16": f16,
    "bfloat16": bf16,
    "float32": f32,
    "float64": f64,
    "float8_e4m3fn": f8e4m3fn,
    "float8_e5m2": f8e5m2,
}
HALF = (f16, bf16)


def dtype_of(name: object) -> DType:
    """Convert an element type that torch prints as ``torch.float32`` (GG0101 for others)."""
    text = str(name).removeprefix("torch.")
    found = TORCH.get(text)
    if found is None:
        known = ", ".join(TORCH)
        raise GraphgenError("GG0101", f"torch's {text} has no like here", help=f"known: {known}")
    return found


def promote(a: DType, b: DType) -> DType:
    """The element type that holds both, by torch's table (``torch.promote_types``).

    Raises:
        GraphgenError: GG0105 for two that torch does not compute with together.
    """
    if a is b or b is pred:
        return a
    if a is pred:
        return b
    if a.is_float is not b.is_float:
        return a if a.is_float else b
    if 8 in (a.bits, b.bits) and a.is_float:
        raise GraphgenError("GG0105", f"{a} and {b} become nothing together")
    if a.kind is b.kind and a.bits != b.bits:
        return a if a.bits > b.bits else b
    if a.is_float:
        return f32
    signed, unsigned = (a, b) if a.kind is Kind.SIGNED else (b, a)
    if unsigned is not u8:
        raise GraphgenError("GG0105", f"{a} and {b} become nothing together")
    return s16 if signed is s8 else signed


def result_type(operands: Iterable[Value | Dim | float]) -> DType:
    """Promote the types of operands as ``torch.result_type`` does.

    A number, and a tensor without dimensions, widens a tensor that has some only from booleans to
    integers or from those to floats.
    """
    tensors: list[DType] = []
    scalars: list[DType] = []
    numbers: list[DType] = []
    for operand in operands:
        if isinstance(operand, Value):
            (tensors if operand.shape else scalars).append(operand.dtype)
        else:
            numbers.append(_of_number(operand))
    found: DType | None = None
    for group in (numbers, scalars, tensors):
        for index, dtype in enumerate(group):
            group[index] = promote(group[index - 1], dtype) if index else dtype
        if group:
            found = _over(group[-1], found)
    assert found is not None, "an op without operands"
    return found


def _of_number(number: Dim | float) -> DType:
    if isinstance(number, bool):
        return pred
    return f32 if isinstance(number, float) else s64


def _over(higher: DType, lower: DType | None) -> DType:
    """``higher``, whose category may only be raised by what counts for less."""
    if lower is None or higher.is_float:
        return higher
    if higher is pred or lower.is_float:
        return promote(higher, lower)
    return higher

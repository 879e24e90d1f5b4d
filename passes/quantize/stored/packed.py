"""4-bit weights in words: compressed-tensors' ``pack-quantized`` and MXFP4, GPTQ and AWQ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from graphgen.build import Builder
from graphgen.ir import DType, TensorType, Value, tensor
from graphgen.ir.dtype import Kind, dtype, f8e8m0fnu, f32, s8, s32, u8
from graphgen.passes.quantize.stored.nibbles import AWQ_ORDER, IN_ORDER, pack, unpack
from graphgen.passes.quantize.stored.scheme import StoredForm, Widen, known_on_device, widened

if TYPE_CHECKING:
    from graphgen.eval import Array


def _words(size: int, bits: int) -> int:
    return -(-size // (32 // bits))


def pack_quantized_parts(form: StoredForm, shape: tuple[int, ...]) -> Mapping[str, TensorType]:
    """Words along the columns, zero points in words along the rows; both offset by half a range."""
    *outer, rows, columns = shape
    bits, counts = form.element.bits, form.counts(shape)
    found = {
        "weight_packed": tensor(s32, (*outer, rows, _words(columns, bits))),
        "weight_scale": tensor(form.scale, counts),
    }
    if form.zero_points:
        found["weight_zero_point"] = tensor(s32, (*outer, _words(rows, bits), counts[-1]))
    return found


def pack_quantized_widen(
    b: Builder, form: StoredForm, parts: Mapping[str, Value], shape: tuple[int, ...], dtype: DType
) -> Value:
    """Numbers with a sign: what is stored is half a range larger."""
    last = len(shape) - 1
    values = _signed(b, form, unpack(b, parts["weight_packed"], last, form.element.bits), shape)
    zero = parts.get("weight_zero_point")
    if zero is not None:
        counts = form.counts(shape)
        zero = _signed(b, form, unpack(b, zero, last - 1, form.element.bits), counts)
    return widened(b, form, values, parts["weight_scale"], zero, dtype)


def pack_quantized_pack(form: StoredForm, numbers: Array, scale: Array) -> Mapping[str, Array]:
    """Words of numbers half a range larger; zeros fill the last of a row."""
    import numpy as np

    bits = form.element.bits
    unsigned = numbers.astype(np.int16) + (1 << (bits - 1))
    return {"weight_packed": pack(unsigned, 1, bits), "weight_scale": scale}


def mxfp4_parts(form: StoredForm, shape: tuple[int, ...]) -> Mapping[str, TensorType]:
    """Two numbers in a byte along the columns, and a byte of exponent a block."""
    *outer, columns = shape
    return {
        "weight_packed": tensor(u8, (*outer, columns // 2)),
        "weight_scale": tensor(u8, form.counts(shape)),
    }


def mxfp4_widen(
    b: Builder, form: StoredForm, parts: Mapping[str, Value], shape: tuple[int, ...], dtype: DType
) -> Value:
    """OCP's microscaling format, version 1.0: E2M1, the first number lowest; scales in E8M0."""
    pairs = b.bitcast_convert(parts["weight_packed"], form.element)
    scale = b.convert(b.bitcast_convert(parts["weight_scale"], f8e8m0fnu), f32)
    numbers = known_on_device(b, form, b.reshape(pairs, shape))
    return widened(b, form, numbers, scale, None, dtype)


def mxfp4_pack(form: StoredForm, numbers: Array, scale: Array) -> Mapping[str, Array]:
    """Codes of four bits in pairs, and the exponents of scales that are powers of two."""
    import numpy as np

    codes = numbers.view(np.uint8) & np.uint8(15)
    pairs = codes[:, ::2] | codes[:, 1::2] << 4
    exponents = np.frexp(scale.astype(np.float32))[1] - 1 + 127
    return {
        "weight_packed": pairs.astype(np.uint8),
        "weight_scale": exponents.astype(np.uint8),
    }


def _signed(b: Builder, form: StoredForm, numbers: Value, shape: tuple[int, ...]) -> Value:
    """Unsigned numbers less half their range, without those that fill the last words."""
    cut = b.slice(numbers, [0] * len(shape), shape) if numbers.shape != shape else numbers
    wide = b.convert(cut, s8 if form.element.bits < 8 else s32)
    half = b.full(1 << (form.element.bits - 1), wide.type)
    return b.convert(b.binary("subtract", wide, half), _of_sign(form.element, Kind.SIGNED))


def _of_sign(element: DType, kind: Kind) -> DType:
    """The integer of as many bits with or without a sign."""
    return dtype(f"{'s' if kind is Kind.SIGNED else 'u'}{element.bits}")


def rows_parts(form: StoredForm, shape: tuple[int, ...], ordered: bool) -> dict[str, TensorType]:
    """Facts [groups, out], which GPTQ and AWQ share, and the table of groups."""
    groups = form.counts(shape)[1]
    bits = form.element.bits
    found = {
        "qzeros": tensor(s32, (groups, _words(shape[0], bits))),
        "scales": tensor(form.scale, (groups, shape[0])),
    }
    return {**found, "g_idx": tensor(s32, shape[1:])} if ordered else found


def gptq_parts(form: StoredForm, shape: tuple[int, ...]) -> Mapping[str, TensorType]:
    """[in, out] in words along the rows."""
    rows = tensor(s32, (_words(shape[1], form.element.bits), shape[0]))
    return {"qweight": rows, **rows_parts(form, shape, form.ordered)}


def awq_parts(form: StoredForm, shape: tuple[int, ...]) -> Mapping[str, TensorType]:
    """[in, out] in words along the columns."""
    rows = tensor(s32, (shape[1], _words(shape[0], form.element.bits)))
    return {"qweight": rows, **rows_parts(form, shape, False)}


def gptq_widen(offset: int) -> Widen:
    """GPTQ; its first format stores zero points less 1, its second (``gptq_v2``) as they are."""

    def widen(
        b: Builder,
        form: StoredForm,
        parts: Mapping[str, Value],
        shape: tuple[int, ...],
        dtype: DType,
    ) -> Value:
        bits = form.element.bits
        values = b.slice(unpack(b, parts["qweight"], 0, bits), [0, 0], shape[::-1])
        zero = b.convert(unpack(b, parts["qzeros"], 1, bits), s32)
        zero = b.binary("add", zero, b.full(offset, zero.type)) if offset else zero
        return _from_columns(b, form, values, zero, parts, dtype)

    return widen


def awq_widen(
    b: Builder, form: StoredForm, parts: Mapping[str, Value], shape: tuple[int, ...], dtype: DType
) -> Value:
    """AWQ: neighbors along the outputs, in the order of its kernel."""
    bits = form.element.bits
    order = AWQ_ORDER if bits == 4 else IN_ORDER
    values = b.slice(unpack(b, parts["qweight"], 1, bits, order), [0, 0], shape[::-1])
    zero = unpack(b, parts["qzeros"], 1, bits, order)
    return _from_columns(b, form, values, zero, parts, dtype)


def _from_columns(
    b: Builder,
    form: StoredForm,
    values: Value,
    zero: Value,
    parts: Mapping[str, Value],
    element: DType,
) -> Value:
    """[out, in] of numbers [in, out] and of facts [groups, out]."""
    facts = [parts["scales"], b.slice(zero, [0, 0], parts["scales"].shape)]
    # A zero point may be one more than the largest number.
    scale, points = [b.transpose(fact, [1, 0]) for fact in facts]
    turned = b.transpose(values, [1, 0])
    points = b.convert(points, dtype("u8") if form.element.bits < 8 else s32)
    table = parts.get("g_idx")
    if table is None:
        return widened(b, form, turned, scale, points, element)
    scale, points = [b.take(fact, table, 1) for fact in (scale, points)]
    return b.dequantize(turned, scale, points, block=(1, 1), dtype=element)

"""4-bit weights in words: compressed-tensors' ``pack-quantized`` and MXFP4, GPTQ and AWQ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from graphgen.build import Builder
from graphgen.composites.quantization import spread_blocks
from graphgen.errors import GraphgenError
from graphgen.ir import DType, TensorType, Value, tensor
from graphgen.ir.dtype import Kind, dtype, f8e8m0fnu, f32, s4, s8, s32, u4, u8
from graphgen.passes.quantization.stored_scheme import (
    Parts,
    StoredForm,
    Widen,
    known_on_device,
    widened,
)

if TYPE_CHECKING:
    from graphgen.eval import Array


def expert_blocks_parts(form: StoredForm, shape: tuple[int, ...]) -> Mapping[str, TensorType]:
    """Bytes [expert, out, groups, bytes of a group], and an exponent a group.

    Raises:
        GraphgenError: GG0502 if the inputs are not whole groups: the format has no short one.
    """
    experts, rows, columns = shape
    size = form.block[1]
    if columns % size:
        raise GraphgenError(
            "GG0502",
            f"the {columns} inputs of an expert's weight are not whole groups of {size}, and the "
            "format of mxfp4 has no short group",
            help="take a checkpoint that is not quantized",
        )
    groups = columns // size
    return {
        "weight_blocks": tensor(u8, (experts, rows, groups, size // 2)),
        "weight_scales": tensor(u8, (experts, rows, groups)),
    }


def expert_blocks_widen(
    b: Builder, form: StoredForm, parts: Mapping[str, Value], shape: tuple[int, ...], dtype: DType
) -> Value:
    """Of two numbers in a byte the first one is lowest."""
    numbers = b.reshape(b.bitcast_convert(parts["weight_blocks"], form.element), shape)
    scale = b.convert(b.bitcast_convert(parts["weight_scales"], f8e8m0fnu), f32)
    return widened(b, form, known_on_device(b, form, numbers), scale, None, dtype)


BLOCK = 32


def nibble_parts(run: int, *, minimum: bool) -> Parts:
    """Bytes [..., out, runs, bytes of a run], and a scale and perhaps a smallest number a block.

    Args:
        run: numbers of a row that share bytes, each byte one of either half.
        minimum: whether blocks have a number that is added to each of theirs.
    """

    def parts(form: StoredForm, shape: tuple[int, ...]) -> Mapping[str, TensorType]:
        *outer, columns = shape
        found = {
            "qs": tensor(u8, (*outer, columns // run, run // 2)),
            "d": tensor(form.scale, form.counts(shape)),
        }
        return {**found, "m": tensor(form.scale, form.counts(shape))} if minimum else found

    return parts


def nibble_widen(run: int) -> Widen:
    """``d * (q - 8)`` in Q4_0, ``d * q + m`` in the others, which is ``d * (q - -m / d)``.

    Args:
        run: as for :func:`nibble_parts`.
    """

    def widen(
        b: Builder,
        form: StoredForm,
        parts: Mapping[str, Value],
        shape: tuple[int, ...],
        dtype: DType,
    ) -> Value:
        *outer, columns = shape
        pairs, last = b.bitcast_convert(parts["qs"], u4), len(shape) + 1
        halves = b.transpose(pairs, (*range(last - 1), last, last - 1))
        numbers = b.reshape(halves, (*outer, columns // run * run))
        scale, least = parts["d"], parts.get("m")
        if least is None:
            wide = b.convert(numbers, s8)
            signed = b.convert(b.binary("subtract", wide, b.full(8, wide.type)), s4)
            return widened(b, form, signed, scale, None, dtype)
        # A block that is the same number m has no steps: it is (0 - -1) * m, in the type of d.
        flat = b.compare(scale, b.full(0.0, scale.type), "EQ")
        spread = spread_blocks(b, flat, form.sizes(shape), shape)
        numbers = b.select(spread, b.full(0, numbers.type), numbers)
        steps = b.select(flat, b.full(1.0, scale.type), scale)
        zero = b.binary("divide", b.negate(b.convert(least, f32)), b.convert(steps, f32))
        zero = b.select(flat, b.full(-1.0, zero.type), zero)
        return widened(b, form, numbers, b.select(flat, least, scale), zero, dtype)

    return widen


# The place in a word of each of eight neighbors, lowest bits first.
IN_ORDER = (0, 1, 2, 3, 4, 5, 6, 7)
# AWQ: https://github.com/mit-han-lab/llm-awq, pack_intweight.
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


def unpack(b: Builder, words: Value, dim: int, bits: int, order: Sequence[int] = IN_ORDER) -> Value:
    """The unsigned numbers in s32 ``words``; along ``dim`` 32 / bits as many.

    They are never wider than a byte: a program that holds them as words needs eight times as much.

    Args:
        b: the builder.
        words: any shape.
        dim: the dimension along which neighbors share a word.
        bits: of one number, 4 or 8.
        order: the place in the word of each neighbor.
    """
    count, rank = 32 // bits, words.type.rank
    numbers = b.bitcast_convert(words, dtype(f"u{bits}"))
    if tuple(order) == AWQ_ORDER:
        # Neighbor 2a + b is at place 4b + a.
        halves = b.reshape(numbers, [*words.shape, 2, 4])
        turned = b.transpose(halves, [*range(rank), rank + 1, rank])
        numbers = b.reshape(turned, [*words.shape, count])
    beside = [*range(dim + 1), rank, *range(dim + 1, rank)]
    numbers = b.transpose(numbers, beside) if dim + 1 < rank else numbers
    size = words.shape[dim] * count
    return b.reshape(numbers, [*words.shape[:dim], size, *words.shape[dim + 1 :]])


def pack(numbers: Array, dim: int, bits: int, order: Sequence[int] = IN_ORDER) -> Array:
    """The s32 words of unsigned numbers: the inverse of :func:`unpack`; zeros fill the last."""
    import numpy as np

    count = 32 // bits
    moved = np.moveaxis(np.asarray(numbers).astype(np.uint32), dim, -1)
    rest = -moved.shape[-1] % count
    filled = np.pad(moved, [*[(0, 0)] * (moved.ndim - 1), (0, rest)])
    grouped = filled.reshape(*filled.shape[:-1], -1, count)
    words = np.zeros(grouped.shape[:-1], np.uint32)
    for index in range(count):
        words |= grouped[..., index] << np.uint32(bits * order[index])
    return np.ascontiguousarray(np.moveaxis(words.view(np.int32), -1, dim))


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

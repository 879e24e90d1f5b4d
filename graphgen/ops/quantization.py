"""Narrow numbers and their scales: ``quantize`` and ``dequantize``, both composites."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, Dim, TensorType, tensor
from graphgen.ir.dtype import DType, f32, lowest, u8
from graphgen.ops.attr_types import ELEMENT, INTEGERS, NUMBER
from graphgen.ops.factors import DimFactors, Factors, FactorTable, Notation
from graphgen.ops.opdef import attr, define, float_operand, number_operand, require
from graphgen.ops.traits import Trait, Types


def _quantize_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """The dimensions that share a scale need replication."""
    table = FactorTable()
    dims = table.of(operands[0])
    block, shared = attrs.integers("block"), attrs.integers("dimensions")
    if block:
        shared = tuple([dim for dim, each in enumerate(block) if each > 1])
        scale = [() if dim in shared else cut for dim, cut in enumerate(dims)]
    else:
        scale = [cut for dim, cut in enumerate(dims) if dim not in shared]
    whole = frozenset(dims[dim][0] for dim in shared)
    return Factors(table.sizes, (dims,), (dims, tuple(scale)), need_replication=whole)


@define(
    "quantize",
    "operand",
    attr("dtype", ELEMENT),
    attr("dimensions", INTEGERS, ()),
    attr("limit", NUMBER),
    attr("block", INTEGERS, ()),
    traits=(Trait.COMPOSITE,),
    factors=_quantize_factors,
)
def _quantize(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Narrow values of ``dtype``, and the f32 ``scale`` that ``operand`` is about a multiple of.

    ``scale = max |operand| / limit`` over ``dimensions``, at least the smallest normal f32;
    ``values = operand / scale``, which for integers is rounded to the nearest, of two as near the
    even one, and brought into the type's range. ``operand`` is about ``values * scale``: no element
    is further off than half a step of ``dtype`` times its scale. With ``block``, the sizes of a
    block of ``operand``, one a dimension, there is a scale a block instead, as ``dequantize`` has
    them; the last block may be short.

    Example:
        %q, %s = quantize(%w) dtype=s8 dimensions=[1] limit=127.0 : s8[8,4], f32[8]
    """
    float_operand(types)
    operand, dtype = types[0], attrs.element("dtype")
    dimensions, limit = attrs.integers("dimensions"), attrs.number("limit")
    fits = dtype.bits in (4, 8) and (dtype.is_float or lowest(dtype) < 0)
    require(fits, f"needs a type of 8 or 4 bits with a sign, got {dtype.name}")
    inside = all(0 <= dim < operand.rank for dim in dimensions)
    require(
        inside and len(set(dimensions)) == len(dimensions),
        f"dimensions={list(dimensions)} of {operand.text}",
        0,
    )
    require(
        0 < limit <= -lowest(dtype),
        f"limit={limit} is not in (0, {-lowest(dtype)}], the range of {dtype.name}",
    )
    block = attrs.integers("block")
    if block:
        require(not dimensions, f"has dimensions={list(dimensions)} and block={list(block)}")
        return tensor(dtype, operand.shape), tensor(f32, _block_counts(operand, block))
    kept = [size for dim, size in enumerate(operand.shape) if dim not in dimensions]
    return tensor(dtype, operand.shape), tensor(f32, kept)


def _dequantize_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """A cut along a dimension falls between blocks; one block that is all of it has no edges."""
    table = FactorTable()
    dims: list[DimFactors] = []
    scale: list[DimFactors] = []
    whole: set[int] = set()
    for size, block, count in zip(
        results[0].shape, attrs.integers("block"), operands[1].shape, strict=True
    ):
        if block == 1 or count == 1:
            dims.append((table.new(size),))
            scale.append(dims[-1] if block == 1 else ())
            continue
        short = isinstance(size, int) and size % block != 0
        made = (table.new(size),) if short else (table.new(count), table.new(block))
        whole.add(made[-1])
        dims.append(made)
        scale.append(() if short else made[:1])
    rest = (tuple(scale),) * (len(operands) - 1)
    return Factors(
        table.sizes, (tuple(dims), *rest), (tuple(dims),), need_replication=frozenset(whole)
    )


def _dequantize_cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """A product per element, and a difference with a zero point."""
    return (len(operands) - 1) * results[0].size, 0


@define(
    "dequantize",
    "values scale zero_point?",
    attr("block", INTEGERS),
    attr("dtype", ELEMENT),
    traits=(Trait.COMPOSITE,),
    factors=_dequantize_factors,
    cost=_dequantize_cost,
)
def _dequantize(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``(values - zero_point) * scale`` as ``dtype``, with a scale and a zero point a block.

    ``block`` holds the sizes of a block of ``values``, one a dimension; ``scale`` and
    ``zero_point`` have an element a block, so ``ceil(size / block)`` along each dimension, and the
    last block may be short. ``values`` are integers or floats of 8 bits at most. Computed in f32
    and rounded once. A block of ones has a scale an element, one of the tensor's own sizes a scale
    for all.

    Example:
        %w = dequantize(%q, %s) block=[1,4] dtype=bf16 : bf16[8,8]
    """
    values, dtype, block = types[0], attrs.element("dtype"), attrs.integers("block")
    narrow = values.dtype.is_number and values.dtype.bits <= 8
    require(narrow, f"needs numbers of 8 bits at most, got {values.text}", 0)
    require(dtype.is_float and dtype.bits > 8, f"makes floats of 16 bits or more, not {dtype.name}")
    counts = _block_counts(values, block)
    float_operand(types, 1)
    for index, other in enumerate(types[1:], 1):
        number_operand(types, index)
        wanted = tensor(other.dtype, counts)
        require(other is wanted, f"needs {wanted.text}, got {other.text}", index)
    return (tensor(dtype, values.shape),)


def _block_counts(values: TensorType, block: Sequence[int]) -> list[Dim]:
    """The number of blocks along each dimension."""
    fits = len(block) == values.rank and all(size > 0 for size in block)
    require(fits, f"block={list(block)} of {values.text}", 0)
    return [_blocks(size, each) for size, each in zip(values.shape, block, strict=True)]


def _blocks(size: Dim, block: int) -> Dim:
    """The number of blocks along a dimension, the last of which may be short."""
    if block == 1:
        return size
    require(isinstance(size, int), f"blocks of {block} need a number of elements, got {size}", 0)
    return -(-size // block) if isinstance(size, int) else size


# Bytes of the f32 scale at the end of a row.
SCALE_BYTES = 4


def _check_element(dtype: DType) -> None:
    signed = dtype.is_float or (dtype.is_integer and lowest(dtype) < 0)
    require(dtype.bits == 8 and signed, f"element={dtype.name} is not a signed 8-bit type")


@define(
    "quantize_rows",
    "operand",
    attr("element", ELEMENT),
    attr("limit", NUMBER),
    traits=(Trait.COMPOSITE,),
    factors=Notation("* D -> * N"),
)
def _quantize_rows(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Each row of the last dimension in D numbers of 8 bits, and its scale: [...,D] -> [...,D+4].

    ``scale = max |operand| / limit`` of the row, at least the smallest normal f32, and 0 of a row
    of zeros. The numbers are ``operand / scale``, for integers rounded to the nearest, of two as
    near the even one. The last four bytes are those of the f32 scale, lowest first. So a row of
    zeros is a row of bytes 0, as in a cache that nothing was written to. Computed in f32.

    Example:
        %q = quantize_rows(%x) element=s8 limit=127.0 : u8[B,S,2,8]
    """
    float_operand(types)
    element, limit = attrs.element("element"), attrs.number("limit")
    _check_element(element)
    require(
        0 < limit <= -lowest(element),
        f"limit={limit} is not in (0, {-lowest(element)}], the range of {element.name}",
    )
    require(types[0].rank > 0, f"{types[0].text} has no rows", 0)
    *rest, size = types[0].shape
    return (tensor(u8, (*rest, size + SCALE_BYTES)),)


@define(
    "dequantize_rows",
    "operand",
    attr("element", ELEMENT),
    attr("dtype", ELEMENT),
    traits=(Trait.COMPOSITE,),
    factors=Notation("* N -> * D"),
)
def _dequantize_rows(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The floats of rows that ``quantize_rows`` made: [...,D+4] -> [...,D].

    The numbers of type ``element`` times the scale of their row, computed in f32 and rounded once.

    Example:
        %x = dequantize_rows(%q) element=s8 dtype=f32 : f32[B,S,2,4]
    """
    element, dtype = attrs.element("element"), attrs.element("dtype")
    _check_element(element)
    require(dtype.is_float and dtype.bits > 8, f"makes floats of 16 bits or more, not {dtype.name}")
    require(types[0].dtype is u8, f"needs bytes, got {types[0].text}", 0)
    require(types[0].rank > 0, f"{types[0].text} has no rows", 0)
    *rest, size = types[0].shape
    fits = not isinstance(size, int) or size > SCALE_BYTES
    require(fits, f"{types[0].text}: a row ends in the {SCALE_BYTES} bytes of its scale", 0)
    return (tensor(dtype, (*rest, size - SCALE_BYTES)),)

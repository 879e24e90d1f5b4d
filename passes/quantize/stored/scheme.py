"""A scheme: the tensors that stand for a weight ``X.weight`` [out, in], and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import DType, TensorType, Value, tensor
from graphgen.ir.dtype import f8e4m3fn, f32
from graphgen.passes.quantize.stored.rescale_f8 import rescaled
from graphgen.passes.weights.scale_blocks import BlockScaled

# (builder, the tensors by their last name, [out, in], element type) -> the weight.
Widen = Callable[[Builder, "StoredForm", Mapping[str, Value], tuple[int, int], DType], Value]
# (form, [out, in]) -> the tensors by their last name.
Parts = Callable[["StoredForm", tuple[int, int]], Mapping[str, TensorType]]


@dataclass(frozen=True, slots=True)
class StoredForm:
    """The numbers of one quantized checkpoint.

    Attributes:
        element: type of the numbers.
        block: rows and columns of the weight that share a scale; 0 for all of them.
        zero_points: with a zero point a block.
        ordered: columns are in blocks by a table of their own (GPTQ's ``desc_act``).
        rescaled: numbers in f8e4m3fn become 240 at most, for Neuron.
    """

    element: DType
    block: tuple[int, int]
    zero_points: bool = False
    ordered: bool = False
    rescaled: bool = False

    def sizes(self, shape: tuple[int, int]) -> tuple[int, int]:
        """The sizes of a block of a weight of ``shape``."""
        rows, columns = self.block
        return rows or shape[0], columns or shape[1]

    def counts(self, shape: tuple[int, int]) -> tuple[int, int]:
        """The number of blocks along each dimension, the last of which may be short."""
        rows, columns = self.sizes(shape)
        return -(-shape[0] // rows), -(-shape[1] // columns)


@dataclass(frozen=True, slots=True)
class StoredScheme:
    """One way of storing quantized weights.

    Attributes:
        name: as a pipeline writes it.
        payload: last name of the tensor whose presence says that a weight is quantized.
        scale: last name of the scales.
        parts: the tensors.
        widen: the weight that they mean, in IR.
        unread: last names of tensors that say nothing about the weight.
    """

    name: str
    payload: str
    scale: str
    parts: Parts
    widen: Widen
    unread: tuple[str, ...] = ()


def plain_parts(values: str, scale: str, zero: str = "") -> Parts:
    """Numbers [out, in] in their own type, and scales and zero points an element a block."""

    def parts(form: StoredForm, shape: tuple[int, int]) -> Mapping[str, TensorType]:
        counts = form.counts(shape)
        found = {values: tensor(form.element, shape), scale: tensor(f32, counts)}
        if form.zero_points and zero:
            found[zero] = tensor(form.element, counts)
        return found

    return parts


def plain_widen(values: str, scale: str, zero: str = "", factor: float = 1.0) -> Widen:
    """``(values - zero) * scale * factor`` with the scale of the block."""

    def widen(
        b: Builder,
        form: StoredForm,
        parts: Mapping[str, Value],
        shape: tuple[int, int],
        dtype: DType,
    ) -> Value:
        numbers, scales = parts[values], parts[scale]
        if form.rescaled and form.element is f8e4m3fn:
            numbers, scales = rescaled(b, numbers, scales)
        if factor != 1.0:
            scales = b.binary("multiply", scales, factor)
        return widened(b, form, numbers, scales, parts.get(zero), dtype)

    return widen


def widened(
    b: Builder, form: StoredForm, values: Value, scale: Value, zero: Value | None, dtype: DType
) -> Value:
    """``dequantize`` in blocks that divide the weight, so that none is short."""
    rows, columns = values.shape
    assert isinstance(rows, int)
    assert isinstance(columns, int)
    facts = (scale,) if zero is None else (scale, zero)
    scaled = BlockScaled(values, facts, form.sizes((rows, columns))).even(b)
    return b.dequantize(scaled.values, *scaled.facts, block=scaled.block, dtype=dtype)

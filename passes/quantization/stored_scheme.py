"""Interface of a storage scheme: the tensors of ``X.weight`` [out, in] and their decoding.

Weights of experts are [expert, out, in]; see
:mod:`graphgen.passes.quantization.packed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphgen.build import Builder
from graphgen.ir import DType, TensorType, Value, tensor
from graphgen.ir.dtype import f8e4m3fn, f8e5m2, f32
from graphgen.passes.quantization.rescale_f8 import rescaled
from graphgen.passes.weights.scale_blocks import BlockScaled

if TYPE_CHECKING:
    from graphgen.eval import Array

# (builder, form, the tensors by their last name, shape and element type of the weight) -> it.
Widen = Callable[[Builder, "StoredForm", Mapping[str, Value], tuple[int, ...], DType], Value]
# (form, shape of the weight) -> the tensors by their last name.
Parts = Callable[["StoredForm", tuple[int, ...]], Mapping[str, TensorType]]

# (form, numbers [out, in], a scale a block) -> the tensors by their last name: widen's inverse.
Pack = Callable[["StoredForm", "Array", "Array"], Mapping[str, "Array"]]


@dataclass(frozen=True, slots=True)
class StoredForm:
    """The numbers of one quantized checkpoint.

    Attributes:
        element: type of the numbers.
        block: rows and columns that share a scale, 0 for all of them; each matrix of a stack
            has scales of its own.
        zero_points: with a zero point a block.
        ordered: columns are in blocks by a table of their own (GPTQ's ``desc_act``).
        rescaled: for Neuron: numbers in f8e4m3fn become 240 at most, f4e2m1fn is f8e5m2.
        static: the inputs of each module have a scale too, ``X.input_scale``.
        scale: type of the scales, which are multiplied in f32.
    """

    element: DType
    block: tuple[int, int]
    zero_points: bool = False
    ordered: bool = False
    rescaled: bool = False
    static: bool = False
    scale: DType = f32

    def sizes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes of a block of numbers ``[..., out, in]`` of ``shape``."""
        rows, columns = self.block
        return *[1] * (len(shape) - 2), rows or shape[-2], columns or shape[-1]

    def counts(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The number of blocks along each dimension, the last of which may be short."""
        sizes = self.sizes(shape)
        return tuple([-(-size // each) for size, each in zip(shape, sizes, strict=True)])


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
        pack: the contents of the tensors, of the schemes that are written.
        shape: last name of a tensor with the weight's shape, beside :attr:`parts`; or empty.
        ranks: of the weights: 2, and 3 for a matrix an expert.
        modules: patterns of ``X`` for a configuration without the names of tensors; empty where
            they have to be seen.
    """

    name: str
    payload: str
    scale: str
    parts: Parts
    widen: Widen
    unread: tuple[str, ...] = ()
    pack: Pack | None = None
    shape: str = ""
    ranks: tuple[int, ...] = (2,)
    modules: tuple[str, ...] = ()

    def tensor(self, module: str, last: str) -> str:
        """The name of a tensor of this last name."""
        return f"{module}.{last}"

    def split(self, name: str) -> tuple[str, str]:
        """The module and the last name of a tensor; no module for a name without a dot."""
        module, _, last = name.rpartition(".")
        return module, last


def plain_parts(values: str, scale: str, zero: str = "") -> Parts:
    """Numbers [..., out, in] in their own type, scales and zero points an element a block."""

    def parts(form: StoredForm, shape: tuple[int, ...]) -> Mapping[str, TensorType]:
        counts = form.counts(shape)
        found = {values: tensor(form.element, shape), scale: tensor(form.scale, counts)}
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
        shape: tuple[int, ...],
        dtype: DType,
    ) -> Value:
        numbers, scales = parts[values], parts[scale]
        if form.rescaled and form.element is f8e4m3fn:
            numbers, scales = rescaled(b, numbers, scales)
        if factor != 1.0:
            scales = b.binary("multiply", b.convert(scales, f32), factor)
        return widened(b, form, numbers, scales, parts.get(zero), dtype)

    return widen


def plain_pack(values: str, scale: str) -> Pack:
    """The inverse of :func:`plain_widen` without zero points and factor."""

    def pack(form: StoredForm, numbers: Array, scales: Array) -> Mapping[str, Array]:
        return {values: numbers, scale: scales}

    return pack


def known_on_device(b: Builder, form: StoredForm, numbers: Value) -> Value:
    """E2M1 in a byte of E5M2, which has all its numbers, for Neuron's devices, which lack it."""
    return b.convert(numbers, f8e5m2) if form.rescaled else numbers


def widened(
    b: Builder, form: StoredForm, values: Value, scale: Value, zero: Value | None, dtype: DType
) -> Value:
    """``dequantize`` in blocks that divide the weight, so that none is short."""
    facts = (scale,) if zero is None else (scale, zero)
    scaled = BlockScaled(values, facts, form.sizes(values.type.dims)).even(b)
    return b.dequantize(scaled.values, *scaled.facts, block=scaled.block, dtype=dtype)

"""Convolution, with dimensions in any order, both dilations and both kinds of groups."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphgen.ir import Attrs, Dim, TensorType, tensor
from graphgen.ops.attr_types import ELEMENT, INTEGER, INTEGERS, STRING
from graphgen.ops.factors import DimFactors, Factors, FactorTable, ValueFactors
from graphgen.ops.opdef import InferError, arithmetic_operand, attr, define, require
from graphgen.ops.traits import LinearIn, Types
from graphgen.ops.window import CONVOLUTION, Window, windows_of


@dataclass(frozen=True, slots=True)
class ConvolutionDims:
    """The dimensions of one operand or of the result (HLO: ``dim_labels``).

    Attributes:
        first: ``b``, the batch; in the kernel ``i``, the input features of one group.
        second: ``f``, the features; in the kernel ``o``, the output features.
        spatial: the dimensions that the window moves along, in order.
    """

    first: int
    second: int
    spatial: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The permutation that puts the spatial dimensions last."""
        return (self.first, self.second, *self.spatial)


def dims_of(labels: str) -> tuple[ConvolutionDims, ConvolutionDims, ConvolutionDims]:
    """The dimensions of input, kernel and result in ``b01f_01io->b01f``.

    Raises:
        InferError: the text is no such list.
    """
    match = re.fullmatch(r"(\w+?)_(\w+)->(\w+)", labels)
    if match is None:
        raise InferError(f"dim_labels '{labels}' is not like b01f_01io->b01f")
    found: list[ConvolutionDims] = []
    for text, (first, second) in zip(match.groups(), ("bf", "io", "bf"), strict=True):
        digits = "".join(map(str, range(len(text) - 2)))
        if sorted(text) != sorted(first + second + digits):
            raise InferError(f"'{text}' of dim_labels has not {first}, {second}, {digits} once")
        spatial = tuple([text.index(digit) for digit in digits])
        found.append(ConvolutionDims(text.index(first), text.index(second), spatial))
    given, kernel, result = found
    return given, kernel, result


def windows(kernel: TensorType, attrs: Attrs) -> list[Window]:
    """The window along each spatial dimension."""
    spatial = dims_of(attrs.text("dim_labels"))[1].spatial
    return windows_of(attrs, [kernel.shape[dim] for dim in spatial], CONVOLUTION)


def _factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Batch, input features (a reduction) and output features; groups only as a whole.

    Spatial dimensions are whole: neighbors read each other's elements.
    """
    table = FactorTable()
    lhs, rhs = operands
    given, kernel, result = dims_of(attrs.text("dim_labels"))
    groups, parts = attrs.integer("feature_group_count"), attrs.integer("batch_group_count")
    batch = (table.new(results[0].shape[result.first]),)
    summed = (table.new(rhs.shape[kernel.first]),)
    made = (table.new(_over(rhs.shape[kernel.second], groups * parts)),)
    group = (table.new(groups * parts),) if groups * parts > 1 else ()
    # Dimensions inside of groups are not divided: the parts would be strided.
    inner = made * (groups * parts > 1) + summed * (groups > 1) + batch * (parts > 1)
    left: dict[int, DimFactors] = {
        given.first: group * (parts > 1) + batch,
        given.second: group * (groups > 1) + summed,
    }
    right: dict[int, DimFactors] = {kernel.first: summed, kernel.second: group + made}
    out: dict[int, DimFactors] = {result.first: batch, result.second: group + made}
    return Factors(
        table.sizes,
        (_each(lhs, left), _each(rhs, right)),
        (_each(results[0], out),),
        {summed[0]: "add"},
        need_replication=frozenset(inner),
    )


def _each(type_: TensorType, dims: Mapping[int, DimFactors]) -> ValueFactors:
    """The factors of every dimension; the spatial ones have none."""
    return tuple([dims.get(dim, ()) for dim in range(type_.rank)])


def _over(size: Dim, count: int) -> Dim:
    return size // count if isinstance(size, int) else size


def _cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """A multiplication and an addition per input feature and element that is not padding."""
    lhs, rhs = operands
    given, kernel, result = dims_of(attrs.text("dim_labels"))
    count: Dim = 2 * results[0].shape[result.first] * results[0].shape[result.second]
    count = count * rhs.shape[kernel.first]
    for place, window in enumerate(windows(rhs, attrs)):
        size = lhs.shape[given.spatial[place]]
        if isinstance(size, int) and isinstance(window.size, int):
            count = count * window.hits(size)
        else:
            count = count * results[0].shape[result.spatial[place]] * window.size
    return count, 0


@define(
    "convolution",
    "lhs rhs",
    attr("dim_labels", STRING),
    attr("window_strides", INTEGERS, ()),
    attr("low", INTEGERS, ()),
    attr("high", INTEGERS, ()),
    attr("lhs_dilation", INTEGERS, ()),
    attr("rhs_dilation", INTEGERS, ()),
    attr("window_reversal", INTEGERS, ()),
    attr("feature_group_count", INTEGER, 1),
    attr("batch_group_count", INTEGER, 1),
    attr("dtype", ELEMENT),
    traits=(LinearIn((0,)), LinearIn((1,))),
    factors=_factors,
    cost=_cost,
)
def _convolution(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Sum of products of the kernel ``rhs`` with each window of ``lhs``, over the input features.

    ``dim_labels`` names the dimensions of lhs, kernel and result: b batch, f features, i input and
    o output features of the kernel, 0 1 2 the spatial dimensions. Each other list has one number a
    spatial dimension and is empty for the default. ``low`` and ``high`` pad with zeros, or cut off
    where they are negative. ``lhs_dilation`` puts zeros between the elements of lhs,
    ``rhs_dilation`` between those of the kernel; ``window_reversal`` is 1 where the kernel is read
    backward. With groups, features or batch are cut in parts: part i meets part i of the output
    features. The result's element type is stated by ``dtype``.

    Example:
        %y = convolution(%x, %w) dim_labels="b0f_0io->b0f" low=[2] dtype=f32 : f32[B,S,4]
    """
    lhs, rhs = types
    require(lhs.dtype is rhs.dtype, f"element types differ: {lhs.text} and {rhs.text}", 1)
    arithmetic_operand(types)
    given, kernel, result = dims_of(attrs.text("dim_labels"))
    for index, (type_, dims) in enumerate(zip(types, (given, kernel), strict=True)):
        rank = len(dims.order)
        require(type_.rank == rank, f"dim_labels name {rank} dims of {type_.text}", index)
    same = len(given.spatial) == len(kernel.spatial) == len(result.spatial)
    require(same, "dim_labels name different numbers of spatial dimensions")
    batch = _check_groups(lhs, rhs, attrs)
    shape: list[Dim] = [0] * len(result.order)
    shape[result.first], shape[result.second] = batch, rhs.shape[kernel.second]
    for place, window in enumerate(windows(rhs, attrs)):
        size = lhs.shape[given.spatial[place]]
        shape[result.spatial[place]] = window.places(size, f"spatial dimension {place}")
    return (tensor(attrs.element("dtype"), shape),)


def _check_groups(lhs: TensorType, rhs: TensorType, attrs: Attrs) -> Dim:
    """Check features and groups; the batch of the result."""
    given, kernel, _ = dims_of(attrs.text("dim_labels"))
    groups, parts = attrs.integer("feature_group_count"), attrs.integer("batch_group_count")
    require(groups > 0 and parts > 0, f"{groups} feature groups and {parts} batch groups")
    require(groups == 1 or parts == 1, "has groups of features and of the batch at once")
    features, inside = lhs.shape[given.second], rhs.shape[kernel.first]
    fits = features == inside * groups
    require(fits, f"{features} features of lhs, {inside} of the kernel in {groups} groups", 1)
    made, batch = rhs.shape[kernel.second], lhs.shape[given.first]
    grouped = groups * parts
    if grouped > 1:
        whole = isinstance(made, int) and made % grouped == 0
        require(whole, f"{made} output features in {grouped} groups", 1)
    if parts == 1:
        return batch
    whole = isinstance(batch, int) and batch % parts == 0
    require(whole, f"a batch of {batch} in {parts} groups", 0)
    return _over(batch, parts)

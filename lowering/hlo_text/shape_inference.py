"""Infer result shapes omitted from HLO text, for the opcodes with inference rules in XLA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from graphgen.lowering.hlo_proto.fields import (
    ConvolutionField,
    DotField,
    GatherField,
    InstructionField,
    PaddingField,
    RareField,
    WindowField,
)
from graphgen.lowering.hlo_proto.shape import HloShape
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.ops import OPS, Trait, ops_with

F = InstructionField
_NOTHING = Message(b"")


@dataclass(frozen=True, slots=True)
class Unshaped:
    """An instruction without a shape.

    Attributes:
        operands: their shapes.
        fields: its own.
        called: the results of the computations it calls.
    """

    operands: Sequence[HloShape]
    fields: Message
    called: Sequence[HloShape]

    def dims(self, number: int, inner: int = 0) -> tuple[int, ...]:
        """A list of integers: a field, or one inside a message."""
        if not inner:
            return self.fields.integers(number)
        return (self.fields.message(number) or _NOTHING).integers(inner)


Infer = Callable[[Unshaped], HloShape]


def infer_shape(code: str, given: Unshaped) -> HloShape | None:
    """The shape of a result, without a layout; ``None`` where a text has to state it."""
    rule = _RULES.get(code)
    return rule(given) if rule else None


def _array(element: str, dims: Sequence[int]) -> HloShape:
    return HloShape(element, tuple(dims))


def _tuple(members: Sequence[HloShape]) -> HloShape:
    return members[0] if len(members) == 1 else HloShape("tuple", members=tuple(members))


def _operand(place: int) -> Infer:
    return lambda given: given.operands[place]


def _scalar(element: str) -> Infer:
    return lambda _: _array(element, ())


def _elements(kinds: Mapping[str, str], otherwise: str = "") -> Infer:
    """The operand with another element type."""

    def infer(given: Unshaped) -> HloShape:
        first = given.operands[0]
        element = kinds.get(first.element, otherwise or first.element)
        return replace(first, element=element)

    return infer


def _called(given: Unshaped) -> HloShape:
    return given.called[0]


def _member(given: Unshaped) -> HloShape:
    return given.operands[0].members[given.fields.integer(F.TUPLE_INDEX)]


def _broadcast(given: Unshaped) -> HloShape:
    first = given.operands[0]
    return _array(first.element, (*given.dims(F.DIMENSIONS), *first.dims))


def _transpose(given: Unshaped) -> HloShape:
    first, order = given.operands[0], given.dims(F.DIMENSIONS)
    # XLA moves the dimensions, not the elements.
    layout = first.layout or tuple(reversed(range(len(first.dims))))
    moved = tuple([order.index(dim) for dim in layout])
    return HloShape(first.element, tuple([first.dims[i] for i in order]), layout=moved)


def _concatenate(given: Unshaped) -> HloShape:
    first = given.operands[0]
    (along,) = given.dims(F.DIMENSIONS)
    sizes = list(first.dims)
    sizes[along] = sum(item.dims[along] for item in given.operands)
    return _array(first.element, sizes)


def _pad(given: Unshaped) -> HloShape:
    first = given.operands[0]
    rows = (given.fields.message(F.PADDING) or _NOTHING).messages(PaddingField.DIMENSIONS)
    sizes = [
        size
        + row.integer(PaddingField.LOW)
        + row.integer(PaddingField.HIGH)
        + max(size - 1, 0) * row.integer(PaddingField.INTERIOR)
        for size, row in zip(first.dims, rows, strict=True)
    ]
    return _array(first.element, sizes)


def _reduce(given: Unshaped) -> HloShape:
    along = given.dims(F.DIMENSIONS)
    arrays = given.operands[: len(given.operands) // 2]
    kept = [size for dim, size in enumerate(arrays[0].dims) if dim not in along]
    leaves = given.called[0].leaves if given.called else arrays
    return _tuple([_array(leaf.element, kept) for leaf in leaves])


def _map(given: Unshaped) -> HloShape:
    return _array(given.called[0].element, given.operands[0].dims)


def _sort(given: Unshaped) -> HloShape:
    return _tuple(given.operands)


def _wide(given: Unshaped) -> str:
    """The element type of a product of two types: the one of more bits."""
    first, second = (item.element for item in given.operands[:2])
    return second if _bits(second) > _bits(first) else first


def _bits(element: str) -> int:
    digits = "".join([c if c.isdigit() else " " for c in element]).split()
    return int(digits[0]) if digits else 8


def _dot(given: Unshaped) -> HloShape:
    batch = given.dims(F.DOT, DotField.LHS_BATCH)
    lhs, rhs = given.operands[:2]
    gone = (*batch, *given.dims(F.DOT, DotField.LHS_CONTRACTING))
    other = (
        *given.dims(F.DOT, DotField.RHS_BATCH),
        *given.dims(F.DOT, DotField.RHS_CONTRACTING),
    )
    sizes = [lhs.dims[dim] for dim in batch]
    sizes += [size for dim, size in enumerate(lhs.dims) if dim not in gone]
    sizes += [size for dim, size in enumerate(rhs.dims) if dim not in other]
    return _array(_wide(given), sizes)


def _ragged_dot(given: Unshaped) -> HloShape:
    numbers = given.fields.message(RareField.RAGGED_DOT) or _NOTHING
    dot = numbers.message(1) or _NOTHING
    (ragged,) = numbers.integers(2)
    lhs, rhs = given.operands[:2]
    batch, contracted = dot.integers(DotField.LHS_BATCH), dot.integers(DotField.LHS_CONTRACTING)
    gone = {*dot.integers(DotField.RHS_BATCH), *dot.integers(DotField.RHS_CONTRACTING)}
    sizes = [given.operands[2].dims[-1]] if ragged in contracted else []
    sizes += [lhs.dims[dim] for dim in batch]
    sizes += [size for dim, size in enumerate(lhs.dims) if dim not in (*batch, *contracted)]
    gone |= set(numbers.integers(3))
    sizes += [size for dim, size in enumerate(rhs.dims) if dim not in gone]
    return _array(_wide(given), sizes)


def _gather(given: Unshaped) -> HloShape:
    numbers = given.fields.message(F.GATHER) or _NOTHING
    offsets = numbers.integers(GatherField.OFFSET_DIMS)
    gone = {
        *numbers.integers(GatherField.COLLAPSED_SLICE_DIMS),
        *numbers.integers(GatherField.OPERAND_BATCHING_DIMS),
    }
    slices = given.dims(F.GATHER_SLICE_SIZES)
    kept = iter([size for dim, size in enumerate(slices) if dim not in gone])
    vector = numbers.integer(GatherField.INDEX_VECTOR_DIM)
    indices = iter([size for dim, size in enumerate(given.operands[1].dims) if dim != vector])
    rank = len(given.operands[1].dims) - (vector < len(given.operands[1].dims)) + len(offsets)
    sizes = [next(kept) if dim in offsets else next(indices) for dim in range(rank)]
    return _array(given.operands[0].element, sizes)


def _scatter(given: Unshaped) -> HloShape:
    return _tuple(given.operands[: len(given.operands) // 2])


def _windowed(size: int, row: Message) -> int:
    """The number of places of a window along a dimension."""
    base = max(size - 1, 0) * (row.integer(WindowField.BASE_DILATION, 1) or 1) + min(size, 1)
    base += row.integer(WindowField.PADDING_LOW) + row.integer(WindowField.PADDING_HIGH)
    window = row.integer(WindowField.SIZE)
    reach = (window - 1) * (row.integer(WindowField.WINDOW_DILATION, 1) or 1) + 1
    stride = row.integer(WindowField.STRIDE, 1) or 1
    return (base - reach) // stride + 1 if base >= reach else 0


def _window_rows(given: Unshaped) -> list[Message]:
    return (given.fields.message(F.WINDOW) or _NOTHING).messages(WindowField.DIMENSIONS)


def _reduce_window(given: Unshaped) -> HloShape:
    first, rows = given.operands[0], _window_rows(given)
    starts = given.operands[len(given.operands) // 2 :]
    sizes = [_windowed(size, row) for size, row in zip(first.dims, rows, strict=True)]
    return _tuple([_array(item.element, sizes) for item in starts])


def _convolution(given: Unshaped) -> HloShape:
    numbers = given.fields.message(F.CONVOLUTION) or _NOTHING
    lhs, rhs = given.operands[:2]
    sizes: dict[int, int] = {}
    batch = lhs.dims[numbers.integer(ConvolutionField.INPUT_BATCH)]
    groups = given.fields.integer(F.BATCH_GROUP_COUNT, 1) or 1
    sizes[numbers.integer(ConvolutionField.OUTPUT_BATCH)] = batch // groups
    features = rhs.dims[numbers.integer(ConvolutionField.KERNEL_OUTPUT_FEATURE)]
    sizes[numbers.integer(ConvolutionField.OUTPUT_FEATURE)] = features
    spatial = zip(
        numbers.integers(ConvolutionField.INPUT_SPATIAL),
        numbers.integers(ConvolutionField.OUTPUT_SPATIAL),
        _window_rows(given),
        strict=True,
    )
    for source, target, row in spatial:
        sizes[target] = _windowed(lhs.dims[source], row)
    return _array(_wide(given), [sizes[dim] for dim in sorted(sizes)])


_COMPLEX = {"f32": "c64", "f64": "c128", "c64": "c64", "c128": "c128"}
_REAL = {"c64": "f32", "c128": "f64"}


def _fft(given: Unshaped) -> HloShape:
    first, length = given.operands[0], given.dims(F.FFT_LENGTH)
    sizes = list(first.dims)
    kind = given.fields.integer(F.FFT_TYPE)
    if kind == 2:
        sizes[-1] = length[-1] // 2 + 1 if length[-1] else 0
        return _array(_COMPLEX[first.element], sizes)
    if kind == 3:
        sizes[-1] = length[-1]
        return _array(_REAL[first.element], sizes)
    return _array(first.element, sizes)


def _batch_norm(given: Unshaped) -> HloShape:
    first = given.operands[0]
    feature = _array(first.element, [first.dims[given.fields.integer(F.FEATURE_INDEX)]])
    return HloShape("tuple", members=(first, feature, feature))


def _topk(given: Unshaped) -> HloShape:
    first = given.operands[0]
    sizes = (*first.dims[:-1], given.fields.integer(F.K))
    return HloShape("tuple", members=(_array(first.element, sizes), _array("s32", sizes)))


def _made_tuple(given: Unshaped) -> HloShape:
    return HloShape("tuple", members=tuple(given.operands))


def _set_size(given: Unshaped) -> HloShape:
    first = given.operands[0]
    along = next(iter(given.dims(F.DIMENSIONS)), 0)
    marks = list(first.dynamic or (False,) * len(first.dims))
    marks[along] = True
    return replace(first, dynamic=tuple(marks))


# HLO's elementwise ops that the IR has; rows of the table below replace those of other types.
_ELEMENTWISE = [
    name.replace("_", "-")
    for name in ops_with(Trait.ELEMENTWISE)
    if name != "convert" and not OPS[name].composite
]
_SAME = (
    *("acos", "acosh", "add-dependency", "asin", "asinh", "atanh", "batch-norm-inference"),
    *("cholesky", "copy", "cosh", "domain", "opt-barrier", "reverse", "select-and-scatter"),
    *("sinh", "while"),
)
_RULES: dict[str, Infer] = {
    **dict.fromkeys((*_ELEMENTWISE, *_SAME), _operand(0)),
    "abs": _elements(_REAL),
    "real": _elements(_REAL),
    "imag": _elements(_REAL),
    "complex": _elements(_COMPLEX),
    "is-finite": _elements({}, "pred"),
    "compare": _elements({}, "pred"),
    "clamp": _operand(1),
    "select": _operand(1),
    "triangular-solve": _operand(1),
    "after-all": lambda _: HloShape("token"),
    "partition-id": _scalar("u32"),
    "replica-id": _scalar("u32"),
    "get-dimension-size": _scalar("s32"),
    "set-dimension-size": _set_size,
    "broadcast": _broadcast,
    "call": _called,
    "conditional": _called,
    "get-tuple-element": _member,
    "tuple": _made_tuple,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "pad": _pad,
    "reduce": _reduce,
    "map": _map,
    "sort": _sort,
    "dot": _dot,
    "ragged-dot": _ragged_dot,
    "gather": _gather,
    "scatter": _scatter,
    "reduce-window": _reduce_window,
    "convolution": _convolution,
    "fft": _fft,
    "batch-norm-training": _batch_norm,
    "batch-norm-grad": _batch_norm,
    "topk": _topk,
}

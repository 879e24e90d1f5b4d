"""What each HLO instruction is in the IR: one function an opcode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from graphgen.ir import AttrValue, Literal, Value
from graphgen.lowering.hlo.emit_ops import PLAIN, opcode
from graphgen.lowering.hlo.proto.fields import (
    DotField,
    GatherField,
    InstructionField,
    PaddingField,
    ScatterField,
    SliceField,
)
from graphgen.lowering.hlo.proto.literal import read_literal
from graphgen.lowering.hlo.proto.replica_groups import ReplicaGroups, read_groups, read_pairs
from graphgen.lowering.hlo.proto.shape import HloShape
from graphgen.lowering.hlo.proto.wire import Message
from graphgen.ops import OPS
from graphgen.ops.linalg import neutral_element

# A value, or what a tuple holds.
Tree = Value | tuple["Tree", ...]


class UnmodelledError(Exception):
    """An instruction whose meaning no op of the IR has; the text says what it is about it."""


class To(Protocol):
    """Where instructions are read to."""

    def emit(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Value:
        """Append an op of one result."""
        ...

    def emit_all(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Sequence[Value]:
        """Append an op of several results."""
        ...

    def direction(self, instruction: Message, *, floats: bool) -> str:
        """Whether a comparator is ``LT`` or ``GT`` of its first two arguments."""
        ...

    def idle(self, value: Value) -> None:
        """Remember a constant that goes if nobody reads it."""
        ...

    def body(self, instruction: Message) -> str:
        """What the computation of a reduction does: an opcode, or ``assign``."""
        ...

    def part(self, what: str) -> None:
        """The next op is no instruction of the file; it is named after the one being read."""
        ...


# (where to, instruction, operands, stated shape) -> its value.
Read = Callable[[To, Message, Sequence[Value], HloShape], Tree]


def _plain(name: str) -> Read:
    def read(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
        return to.emit(name, x)

    return read


def dims_of(i: Message) -> tuple[int, ...]:
    """The instruction's dimensions."""
    return i.integers(InstructionField.DIMENSIONS)


def _only(i: Message) -> int:
    dims = dims_of(i)
    if len(dims) != 1:
        raise UnmodelledError(f"its dimensions are {list(dims)}, not one")
    return dims[0]


def _convert(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    return to.emit("convert", x, dtype=shape.type.dtype)


def _bitcast_convert(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    return to.emit("bitcast_convert", x, dtype=shape.type.dtype)


def _compare(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    kind = i.text(InstructionField.COMPARISON_TYPE)
    if kind == "TOTALORDER" and x[0].dtype.is_float:
        raise UnmodelledError("it compares floats in total order")
    return to.emit("compare", x, direction=i.text(InstructionField.COMPARISON_DIRECTION))


def _constant(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    message = i.message(InstructionField.LITERAL)
    if message is None:
        raise UnmodelledError("it has no elements")
    found = read_literal(message)
    if found.data is None:
        raise UnmodelledError("its elements are left out")
    if found.shape.dims != shape.dims or found.shape.element != shape.element:
        raise UnmodelledError(f"its elements are {found.shape.text}, it states {shape.text}")
    return to.emit("constant", (), value=found.literal(shape.type.dtype))


def _reduce_precision(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    exponent = i.integer(InstructionField.EXPONENT_BITS)
    mantissa = i.integer(InstructionField.MANTISSA_BITS)
    return to.emit("reduce_precision", x, exponent_bits=exponent, mantissa_bits=mantissa)


def _iota(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    type_ = shape.type
    return to.emit("iota", (), dtype=type_.dtype, shape=type_.dims, dimension=_only(i))


def _broadcast(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    return to.emit("broadcast_in_dim", x, shape=shape.type.dims, dimensions=dims_of(i))


def _reshape(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    return to.emit("reshape", x, shape=shape.type.dims)


def _bitcast(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    """With layouts in order it is a reshape, or other bits of the same width."""
    if not shape.in_order:
        raise UnmodelledError("it changes the layout")
    if shape.type.dtype is x[0].dtype:
        return to.emit("reshape", x, shape=shape.type.dims)
    raise UnmodelledError("it changes the element type")


def _transpose(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    return to.emit("transpose", x, permutation=dims_of(i))


def _reverse(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    return to.emit("reverse", x, dimensions=dims_of(i))


def _slice(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    ranges = i.messages(InstructionField.SLICES)
    strides = tuple([item.integer(SliceField.STRIDE, 1) for item in ranges])
    return to.emit(
        "slice",
        x,
        start_indices=tuple([item.integer(SliceField.START) for item in ranges]),
        limit_indices=tuple([item.integer(SliceField.LIMIT) for item in ranges]),
        strides=strides if any(stride != 1 for stride in strides) else (),
    )


def _concatenate(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    return to.emit("concatenate", x, dimension=_only(i))


def _pad(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    config = i.message(InstructionField.PADDING)
    edges = config.messages(PaddingField.DIMENSIONS) if config else []
    if any(edge.integer(PaddingField.INTERIOR) for edge in edges):
        raise UnmodelledError("it pads between elements")
    low = tuple([edge.integer(PaddingField.LOW) for edge in edges])
    high = tuple([edge.integer(PaddingField.HIGH) for edge in edges])
    return to.emit("pad", x, low=low, high=high)


def _dot(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    numbers = i.message(InstructionField.DOT) or Message(b"")
    return to.emit(
        "dot_general",
        x,
        lhs_contracting_dims=numbers.integers(DotField.LHS_CONTRACTING),
        rhs_contracting_dims=numbers.integers(DotField.RHS_CONTRACTING),
        lhs_batch_dims=numbers.integers(DotField.LHS_BATCH),
        rhs_batch_dims=numbers.integers(DotField.RHS_BATCH),
        dtype=shape.type.dtype,
    )


def choice(op: str, attr: str, value: str) -> str:
    """``value`` if the op's attribute may be that."""
    allowed = next(item.choices for item in OPS[op].attrs if item.name == attr)
    if value not in allowed:
        raise UnmodelledError(f"{attr} {value} is not modelled")
    return value


def _reduce(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    """Ours starts from the neutral element: anything else is combined in behind."""
    if len(x) != 2:
        raise UnmodelledError(f"it reduces {len(x) // 2} operands at once")
    kind = choice("reduce", "kind", to.body(i))
    operand, init = x
    constant = init.producer("constant")
    start = neutral_element(kind, operand.dtype)
    if constant is not None and same_number(constant.attrs.literal("value"), start):
        to.idle(init)
        return to.emit("reduce", [operand], dimensions=dims_of(i), kind=kind)
    to.part("reduced")
    reduced = to.emit("reduce", [operand], dimensions=dims_of(i), kind=kind)
    if shape.dims:
        to.part("start")
        init = to.emit("broadcast_in_dim", [init], shape=shape.type.dims, dimensions=())
    return to.emit(kind, [reduced, init])


def same_number(one: Literal, other: Literal) -> bool:
    """Whether two scalars are equal, whatever the sign of a zero."""
    return one.dtype is other.dtype and one.values() == other.values()


def _sort(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    """Ours keeps the order of equal elements, which others may leave to chance."""
    if not x:
        raise UnmodelledError("it has no operand")
    descending = to.direction(i, floats=x[0].dtype.is_float) == "GT"
    made = to.emit_all("sort", x, dimension=_only(i), descending=descending)
    return tuple(made) if shape.is_tuple else made[0]


def _gather(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    numbers = i.message(InstructionField.GATHER) or Message(b"")
    if numbers.integers(GatherField.OPERAND_BATCHING_DIMS):
        raise UnmodelledError("it has batching dimensions")
    return to.emit(
        "gather",
        x,
        offset_dims=numbers.integers(GatherField.OFFSET_DIMS),
        collapsed_slice_dims=numbers.integers(GatherField.COLLAPSED_SLICE_DIMS),
        start_index_map=numbers.integers(GatherField.START_INDEX_MAP),
        index_vector_dim=numbers.integer(GatherField.INDEX_VECTOR_DIM),
        slice_sizes=i.integers(InstructionField.GATHER_SLICE_SIZES),
    )


def _scatter(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    numbers = i.message(InstructionField.SCATTER) or Message(b"")
    if numbers.integers(ScatterField.INPUT_BATCHING_DIMS):
        raise UnmodelledError("it has batching dimensions")
    if len(x) != 3:
        raise UnmodelledError(f"it scatters {len(x) // 2} operands at once")
    return to.emit(
        "scatter",
        x,
        update_window_dims=numbers.integers(ScatterField.UPDATE_WINDOW_DIMS),
        inserted_window_dims=numbers.integers(ScatterField.INSERTED_WINDOW_DIMS),
        scatter_dims_to_operand_dims=numbers.integers(ScatterField.TO_OPERAND_DIMS),
        index_vector_dim=numbers.integer(ScatterField.INDEX_VECTOR_DIM),
        kind=choice("scatter", "kind", to.body(i)),
    )


def _dynamic_slice(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    sizes = i.integers(InstructionField.DYNAMIC_SLICE_SIZES)
    return to.emit("dynamic_slice", _starts(to, x, 1), slice_sizes=sizes)


def _dynamic_update_slice(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    return to.emit("dynamic_update_slice", _starts(to, x, 2))


def _starts(to: To, x: Sequence[Value], first: int) -> Sequence[Value]:
    """Old files have all starts in one vector."""
    if len(x) != first + 1 or x[first].type.rank != 1:
        return x
    starts: list[Value] = []
    vector = x[first]
    for place in range(vector.type.dims[0]):
        to.part(f"start{place}")
        cut = to.emit("slice", [vector], start_indices=(place,), limit_indices=(place + 1,))
        to.part(f"at{place}")
        starts.append(to.emit("reshape", [cut], shape=()))
    return [*x[:first], *starts]


def groups_of(i: Message) -> ReplicaGroups:
    """The replica groups, which must be listed."""
    groups = read_groups(i)
    if not groups:
        raise UnmodelledError("its group of all ranks does not say how many there are")
    return groups


def _each(to: To, x: Sequence[Value], name: str, **attrs: AttrValue) -> Tree:
    """One op an operand; with several, the instruction's value is their tuple."""
    if len(x) == 1:
        return to.emit(name, x, **attrs)
    out: list[Value] = []
    for index, operand in enumerate(x):
        to.part(str(index))
        out.append(to.emit(name, [operand], **attrs))
    return tuple(out)


def _all_reduce(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    kind = choice("all_reduce", "kind", to.body(i))
    return _each(to, x, "all_reduce", kind=kind, replica_groups=groups_of(i))


def _all_gather(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    return _each(to, x, "all_gather", dimension=_only(i), replica_groups=groups_of(i))


def _reduce_scatter(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    kind = choice("reduce_scatter", "kind", to.body(i))
    groups = groups_of(i)
    return _each(to, x, "reduce_scatter", kind=kind, dimension=_only(i), replica_groups=groups)


def _all_to_all(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    if len(x) != 1:
        raise UnmodelledError(f"it exchanges {len(x)} operands, one a rank")
    dim = _only(i)
    groups = groups_of(i)
    return to.emit(
        "all_to_all", x, split_dimension=dim, concat_dimension=dim, replica_groups=groups
    )


def _collective_permute(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    return _each(to, x, "collective_permute", source_target_pairs=read_pairs(i))


def _same(to: To, i: Message, x: Sequence[Value], shape: HloShape) -> Tree:
    return x[0]


READ: dict[str, Read] = {
    **{opcode(name): _plain(name) for name in PLAIN},
    "convert": _convert,
    "bitcast-convert": _bitcast_convert,
    "compare": _compare,
    "constant": _constant,
    "reduce-precision": _reduce_precision,
    "iota": _iota,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "bitcast": _bitcast,
    "reverse": _reverse,
    "transpose": _transpose,
    "slice": _slice,
    "concatenate": _concatenate,
    "pad": _pad,
    "dot": _dot,
    "reduce": _reduce,
    "sort": _sort,
    "gather": _gather,
    "scatter": _scatter,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "all-reduce": _all_reduce,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
    "collective-permute": _collective_permute,
    "copy": _same,
}

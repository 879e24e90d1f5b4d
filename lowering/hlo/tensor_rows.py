"""Rows of the ops on tensors: elementwise ops, shapes, contractions, indexing, sorting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphgen.composites import decompose, take_by_gather
from graphgen.ir import AttrValue, Op, Value, tensor
from graphgen.lowering.codec import by_op
from graphgen.lowering.decompose import Emit, keeps_negative_zero, total_order_key
from graphgen.lowering.hlo.annotations import ANNOTATED, annotations_of, shape_of_value
from graphgen.lowering.hlo.instruction_template import (
    Callee,
    Comparator,
    InstructionTemplate,
    Operand,
    StepResult,
    TemplateStep,
)
from graphgen.lowering.hlo.op_builder import Tree
from graphgen.lowering.hlo.op_row import (
    DIMENSION,
    HloInstruction,
    HloRow,
    read_attrs,
    read_attrs_of_named,
    read_fields,
    renamed,
    row,
    same_types,
    stated,
    write_fields,
    write_op,
)
from graphgen.lowering.hlo.scatter_rows import SCATTER_ROWS
from graphgen.lowering.hlo.unmodelled import UnmodelledError
from graphgen.lowering.hlo.written_as import memory_order, transposed_in_memory
from graphgen.lowering.hlo_proto.fields import InstructionField, PaddingField
from graphgen.lowering.hlo_proto.literal import read_literal
from graphgen.lowering.hlo_proto.shape import HloShape, shape_of
from graphgen.lowering.hlo_proto.wire import Message, delimited, integer, integers
from graphgen.lowering.hlo_text.attribute_values import PADDING, SLICES, Integers
from graphgen.ops import OPS, Trait, ops_with
from graphgen.ops.linalg import neutral_element

_F = InstructionField


def _parts(i: HloInstruction, place: int) -> Emit:
    """Append ops that are named after the instruction and one of its operands."""

    def emit(name: str, operands: Sequence[Value], **attrs: AttrValue) -> Value:
        i.to.part(f"{name}{place}")
        return i.to.emit(name, operands, **attrs)

    return emit


def _read_compare(row: HloRow, i: HloInstruction) -> Tree:
    """In total order floats are compared as integers."""
    kind = i.message.text(_F.COMPARISON_TYPE)
    if kind != "TOTALORDER" or not i.values[0].dtype.is_float:
        return read_fields(row, i)
    keys = [total_order_key(_parts(i, at), value) for at, value in enumerate(i.values)]
    return read_fields(row, replace(i, operands=keys))


def _read_constant(row: HloRow, i: HloInstruction) -> Tree:
    message = i.message.message(_F.LITERAL)
    if message is None:
        raise UnmodelledError("it has no elements")
    found = read_literal(message)
    if found.data is None:
        raise UnmodelledError("its elements are left out")
    if found.shape.dims != i.shape.dims or found.shape.element != i.shape.element:
        raise UnmodelledError(f"its elements are {found.shape.text}, it states {i.shape.text}")
    return i.to.emit("constant", (), value=found.literal(i.shape.type.dtype))


def _write_broadcast(row: HloRow, op: Op) -> InstructionTemplate:
    """HLO's broadcast keeps sizes and order: sizes of 1 that grow are dropped first."""
    targets, shape = op.attrs.integers("dimensions"), op.results[0].type.dims
    operand, kind = op.operands[0].type.dims, op.operands[0].dtype
    kept = [i for i, target in enumerate(targets) if operand[i] == shape[target]]
    steps: list[TemplateStep] = []
    source: Operand = 0
    if len(kept) < len(operand):
        smaller = tensor(kind, [operand[i] for i in kept])
        steps.append(TemplateStep("reshape", shape_of(smaller), (source,)))
        source = StepResult(len(steps) - 1)
    order = sorted(range(len(kept)), key=lambda i: targets[kept[i]])
    if order != list(range(len(kept))):
        turned = shape_of(tensor(kind, [operand[kept[i]] for i in order]))
        steps.append(TemplateStep("transpose", turned, (source,), integers(_F.DIMENSIONS, order)))
        source = StepResult(len(steps) - 1)
    where = integers(_F.DIMENSIONS, [targets[kept[i]] for i in order])
    steps.append(TemplateStep("broadcast", shape_of(op.results[0].type), (source,), where))
    return InstructionTemplate(tuple(steps), (len(steps) - 1,))


def _read_bitcast(row: HloRow, i: HloInstruction) -> Tree:
    """The bytes of the operand in its layout, seen as an array of another shape or layout."""
    (x,) = i.values
    before = shape_of_value(x)
    if i.shape.type.dtype is not x.dtype:
        if x.dtype.bits != i.shape.type.dtype.bits or before.dims != i.shape.dims:
            return _read_other_width(i, x, before)
        if memory_order(before) != memory_order(i.shape):
            raise UnmodelledError("it changes the layout and the element type")
        return i.to.emit("bitcast_convert", [x], dtype=i.shape.type.dtype)
    if before.in_order and i.shape.in_order:
        return i.to.emit("reshape", [x], shape=i.shape.dims)
    order = transposed_in_memory(before, i.shape)
    if order is not None:
        return i.to.emit("transpose", [x], permutation=order)
    return _read_through_memory(i, x, before)


def _read_other_width(i: HloInstruction, x: Value, before: HloShape) -> Tree:
    """Bytes in order as elements of another width, which a last dimension puts together."""
    old, new = x.dtype.bits, i.shape.type.dtype.bits
    if not (before.in_order and i.shape.in_order) or min(old, new) < 8:
        raise UnmodelledError("it changes the layout and the width of elements")
    kind, wanted = i.shape.type.dtype, i.shape.dims
    i.to.part("elements")
    if old < new:
        x = i.to.emit("reshape", [x], shape=(*wanted, new // old))
        return i.to.emit("bitcast_convert", [x], dtype=kind)
    x = i.to.emit("bitcast_convert", [x], dtype=kind)
    return x if x.type is i.shape.type else i.to.emit("reshape", [x], shape=wanted)


def _read_product(row: HloRow, i: HloInstruction) -> Tree:
    """A product of two element types: the narrower operand is converted to the wider type."""
    return read_fields(row, replace(i, operands=same_types(i)))


def _read_select(row: HloRow, i: HloInstruction) -> Tree:
    """One predicate for all elements is broadcast."""
    x = i.values
    if len(x) == 3 and not x[0].type.rank and i.shape.dims:
        i.to.part("predicate")
        x[0] = i.to.emit("broadcast_in_dim", x[:1], shape=i.shape.dims, dimensions=())
    return read_fields(row, replace(i, operands=x))


def _read_through_memory(i: HloInstruction, x: Value, before: HloShape) -> Tree:
    """Transpose into the order of memory, reshape there, and transpose back."""
    major = tuple(reversed(before.layout or ()))
    if not before.in_order:
        i.to.part("memory")
        x = i.to.emit("transpose", [x], permutation=major)
    after = tuple(reversed(i.shape.layout or ()))
    if i.shape.in_order:
        return i.to.emit("reshape", [x], shape=i.shape.dims)
    i.to.part("reshaped")
    x = i.to.emit("reshape", [x], shape=tuple([i.shape.dims[dim] for dim in after]))
    back = tuple([after.index(dim) for dim in range(len(after))])
    return i.to.emit("transpose", [x], permutation=back)


def _read_copy(row: HloRow, i: HloInstruction) -> Tree:
    """The operand; a reshape where the copy has another layout, or something noted of it."""
    (x,) = i.values
    before = shape_of_value(x)
    same = replace(before, layout=None) == replace(i.shape, layout=None)
    same = same and memory_order(before) == memory_order(i.shape)
    if same and not annotations_of(i.message, ANNOTATED):
        return x
    return i.to.emit("reshape", [x], shape=i.shape.dims)


def _columns(rows: Sequence[Integers], count: int) -> list[Integers]:
    """The columns of a table with one row per dimension."""
    return [tuple([row[column] for row in rows]) for column in range(count)]


def _write_slice(row: HloRow, op: Op) -> InstructionTemplate:
    starts, limits = op.attrs.integers("start_indices"), op.attrs.integers("limit_indices")
    strides = op.attrs.integers("strides") or (1,) * len(starts)
    ranges = list(zip(starts, limits, strides, strict=True))
    return stated(op, row.name, SLICES.encode(_F.SLICES, ranges))


def _read_slice(row: HloRow, i: HloInstruction) -> Tree:
    """The IR has one way to say that every stride is 1."""
    x = i.values
    starts, limits, strides = _columns(SLICES.decode(i.message, _F.SLICES), 3)
    strides = strides if any(stride != 1 for stride in strides) else ()
    return i.to.emit("slice", x, start_indices=starts, limit_indices=limits, strides=strides)


def _write_pad(row: HloRow, op: Op) -> InstructionTemplate:
    low, high = op.attrs.integers("low"), op.attrs.integers("high")
    between = op.attrs.integers("interior") or (0,) * len(low)
    edges = list(zip(low, high, between, strict=True))
    config = PADDING.encode(PaddingField.DIMENSIONS, edges)
    return stated(op, row.name, delimited(_F.PADDING, config))


def _read_pad(row: HloRow, i: HloInstruction) -> Tree:
    x = i.values
    config = i.message.message(_F.PADDING) or Message(b"")
    low, high, interior = _columns(PADDING.decode(config, PaddingField.DIMENSIONS), 3)
    return i.to.emit("pad", x, low=low, high=high, interior=interior if any(interior) else ())


def _write_reduce(row: HloRow, op: Op) -> InstructionTemplate:
    start = neutral_element(op.attrs.text("kind"), op.operands[0].dtype)
    return write_fields(row, op, operands=(0, start))


def _read_reduce(row: HloRow, i: HloInstruction) -> Tree:
    """The IR's starts from the neutral element: any other start is combined in afterwards."""
    x = i.values
    attrs = read_attrs_of_named(row, i) if len(x) == 2 else None
    if attrs is None or keeps_negative_zero(x[1], str(attrs["kind"])):
        dims = i.message.integers(_F.DIMENSIONS)
        return i.applied("reduce_by", x, dimensions=dims)
    kind = str(attrs["kind"])
    operand, init = x
    constant = init.producer("constant")
    start = neutral_element(kind, operand.dtype)
    if constant is not None and constant.attrs.literal("value") == start:
        i.to.idle[init] = None
        return i.to.emit("reduce", [operand], **attrs)
    i.to.part("reduced")
    reduced = i.to.emit("reduce", [operand], **attrs)
    if i.shape.dims:
        i.to.part("start")
        init = i.to.emit("broadcast_in_dim", [init], shape=i.shape.type.dims, dimensions=())
    return i.to.emit(kind, [reduced, init])


def _write_reduce_by(row: HloRow, op: Op) -> InstructionTemplate:
    dims = integers(_F.DIMENSIONS, op.attrs.integers("dimensions"))
    return stated(op, "reduce", dims, calls=(Callee(op.attrs.text("to_apply")),))


def _write_sort_by(row: HloRow, op: Op) -> InstructionTemplate:
    dims = integers(_F.DIMENSIONS, [op.attrs.integer("dimension")])
    stable = integer(_F.IS_STABLE, 1)
    return stated(op, "sort", dims, stable, calls=(Callee(op.attrs.text("to_apply")),))


def _write_sort(row: HloRow, op: Op) -> InstructionTemplate:
    direction = "GT" if op.attrs["descending"] else "LT"
    comparator = Comparator(direction, tuple([value.dtype for value in op.operands]))
    return write_fields(row, op, integer(_F.IS_STABLE, 1), (comparator,))


def _read_sort(row: HloRow, i: HloInstruction) -> Tree:
    """The IR's keeps the order of equal elements, which other sorts need not."""
    x = i.values
    if not x:
        raise UnmodelledError("it has no operand")
    try:
        descending = i.to.file.direction(i.called, floats=x[0].dtype.is_float) == "GT"
    except UnmodelledError:
        if len(i.called) != 1:
            raise
        return i.applied("sort_by", x, **read_attrs(row, i))
    made = i.to.emit_all("sort", x, **read_attrs(row, i), descending=descending)
    return tuple(made) if i.shape.is_tuple else made[0]


def _read_dynamic(row: HloRow, i: HloInstruction) -> Tree:
    """Old files have all start indices in one vector, after one or two operands."""
    x = i.values
    first = 1 if row.op == "dynamic_slice" else 2
    if len(x) == first + 1 and x[first].type.rank == 1:
        vector = x.pop()
        for place in range(vector.type.dims[0]):
            i.to.part(f"start{place}")
            cut = i.to.emit("slice", [vector], start_indices=(place,), limit_indices=(place + 1,))
            i.to.part(f"at{place}")
            x.append(i.to.emit("reshape", [cut], shape=()))
    return read_fields(row, replace(i, operands=x))


def _write_take(row: HloRow, op: Op) -> InstructionTemplate:
    """The instructions of its decomposition, one after the other."""
    body = decompose(op, take_by_gather)
    places: dict[Value, Operand] = {value: index for index, value in enumerate(body.args)}
    steps: list[TemplateStep] = []
    for inner in body.block:
        if inner.name == "constant":
            places[inner.result] = inner.attrs.literal("value")
            continue
        template, first = write_op(_TAKE[inner.name], inner), len(steps)
        for step in template.steps:
            operands = tuple([_moved(item, inner, places, first) for item in step.operands])
            steps.append(replace(step, operands=operands))
        places[inner.result] = StepResult(first + template.results[0])
    (_, result), *_ = body.outputs
    last = places[result]
    assert isinstance(last, StepResult)
    return InstructionTemplate(tuple(steps), (last.step,))


def _moved(operand: Operand, inner: Op, places: dict[Value, Operand], first: int) -> Operand:
    """An operand of an inner op's step, as an operand of the whole template."""
    if isinstance(operand, int):
        return places[inner.operands[operand]]
    return StepResult(operand.step + first) if isinstance(operand, StepResult) else operand


TENSOR_ROWS: tuple[HloRow, ...] = (
    *[
        row(n)
        for n in ops_with(Trait.ELEMENTWISE)
        if n != "select" and not (OPS[n].attrs or OPS[n].composite)
    ],
    row("select", read=_read_select),
    row("convert", inferred=("dtype",)),
    row("bitcast_convert", inferred=("dtype",)),
    row("compare", "direction", read=_read_compare),
    row("reduce_precision", "exponent_bits", "mantissa_bits"),
    # The emitter writes constants itself: in pieces, and equal ones once.
    row("", name="constant", read=_read_constant),
    row("", name="copy", read=_read_copy),
    row("iota", DIMENSION, inferred=("dtype", "shape")),
    row(
        "broadcast_in_dim",
        "dimensions",
        name="broadcast",
        inferred=("shape",),
        emit=_write_broadcast,
    ),
    row("reshape", inferred=("shape",)),
    row("", name="bitcast", read=_read_bitcast),
    row("reverse", "dimensions"),
    row("transpose", renamed("permutation", "dimensions")),
    row("slice", emit=_write_slice, read=_read_slice),
    row("concatenate", DIMENSION),
    row("pad", emit=_write_pad, read=_read_pad),
    row(
        "dot_general",
        *("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims"),
        name="dot",
        inferred=("dtype",),
        read=_read_product,
    ),
    row("reduce", "dimensions", reduces=True, emit=_write_reduce, read=_read_reduce),
    row("reduce_by", name="", emit=_write_reduce_by),
    row("sort_by", name="", emit=_write_sort_by),
    row("sort", DIMENSION, emit=_write_sort, read=_read_sort),
    *SCATTER_ROWS,
    row("take", name="", emit=_write_take),
    row("dynamic_slice", renamed("slice_sizes", "dynamic_slice_sizes"), read=_read_dynamic),
    row("dynamic_update_slice", read=_read_dynamic),
)
_TAKE = by_op(TENSOR_ROWS)

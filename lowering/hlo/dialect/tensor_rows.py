"""Rows of the ops on tensors: elementwise ops, shapes, contractions, indexing, sorting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphgen.composites import decompose, take_by_gather
from graphgen.ir import Literal, Op, Value, tensor
from graphgen.lowering.codec import by_op
from graphgen.lowering.hlo.dialect.instruction_template import (
    Comparator,
    InstructionTemplate,
    Operand,
    StepResult,
    TemplateStep,
)
from graphgen.lowering.hlo.dialect.op_builder import Tree
from graphgen.lowering.hlo.dialect.op_row import (
    DIMENSION,
    HloInstruction,
    HloRow,
    attribute,
    read_attrs,
    read_fields,
    renamed,
    row,
    stated,
    write_fields,
    write_op,
)
from graphgen.lowering.hlo.dialect.unmodelled import UnmodelledError
from graphgen.lowering.hlo.proto.fields import InstructionField, PaddingField
from graphgen.lowering.hlo.proto.literal import read_literal
from graphgen.lowering.hlo.proto.shape import shape_of
from graphgen.lowering.hlo.proto.wire import Message, delimited, integer, integers
from graphgen.lowering.hlo.text.attribute_values import PADDING, SLICES, Integers
from graphgen.ops import OPS, Trait, ops_with
from graphgen.ops.linalg import neutral_element

_F = InstructionField


def _check_compare(i: HloInstruction) -> None:
    kind = i.message.text(_F.COMPARISON_TYPE)
    if kind == "TOTALORDER" and i.values[0].dtype.is_float:
        raise UnmodelledError("it compares floats in total order")


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
    """With layouts in order it is a reshape, or other bits of the same width."""
    x = i.values
    if not i.shape.in_order:
        raise UnmodelledError("it changes the layout")
    if i.shape.type.dtype is x[0].dtype:
        return i.to.emit("reshape", x, shape=i.shape.type.dims)
    raise UnmodelledError("it changes the element type")


def _read_copy(row: HloRow, i: HloInstruction) -> Tree:
    return i.values[0]


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
    edges = list(zip(op.attrs.integers("low"), op.attrs.integers("high"), strict=True))
    config = PADDING.encode(PaddingField.DIMENSIONS, edges)
    return stated(op, row.name, delimited(_F.PADDING, config))


def _read_pad(row: HloRow, i: HloInstruction) -> Tree:
    x = i.values
    config = i.message.message(_F.PADDING) or Message(b"")
    low, high, interior = _columns(PADDING.decode(config, PaddingField.DIMENSIONS), 3)
    if any(interior):
        raise UnmodelledError("it pads between elements")
    return i.to.emit("pad", x, low=low, high=high)


def _write_reduce(row: HloRow, op: Op) -> InstructionTemplate:
    start = neutral_element(op.attrs.text("kind"), op.operands[0].dtype)
    return write_fields(row, op, operands=(0, start))


def _read_reduce(row: HloRow, i: HloInstruction) -> Tree:
    """The IR's starts from the neutral element: any other start is combined in afterwards."""
    x = i.values
    if len(x) != 2:
        raise UnmodelledError(f"it reduces {len(x) // 2} operands at once")
    attrs = read_attrs(row, i)
    kind = str(attrs["kind"])
    operand, init = x
    constant = init.producer("constant")
    start = neutral_element(kind, operand.dtype)
    if constant is not None and _same_number(constant.attrs.literal("value"), start):
        i.to.idle[init] = None
        return i.to.emit("reduce", [operand], **attrs)
    i.to.part("reduced")
    reduced = i.to.emit("reduce", [operand], **attrs)
    if i.shape.dims:
        i.to.part("start")
        init = i.to.emit("broadcast_in_dim", [init], shape=i.shape.type.dims, dimensions=())
    return i.to.emit(kind, [reduced, init])


def _same_number(one: Literal, other: Literal) -> bool:
    """Two scalars are equal, whatever the sign of a zero."""
    return one.dtype is other.dtype and one.values() == other.values()


def _write_sort(row: HloRow, op: Op) -> InstructionTemplate:
    direction = "GT" if op.attrs["descending"] else "LT"
    comparator = Comparator(direction, tuple([value.dtype for value in op.operands]))
    return write_fields(row, op, integer(_F.IS_STABLE, 1), (comparator,))


def _read_sort(row: HloRow, i: HloInstruction) -> Tree:
    """The IR's keeps the order of equal elements, which other sorts need not."""
    x = i.values
    if not x:
        raise UnmodelledError("it has no operand")
    descending = i.to.file.direction(i.called, floats=x[0].dtype.is_float) == "GT"
    made = i.to.emit_all("sort", x, **read_attrs(row, i), descending=descending)
    return tuple(made) if i.shape.is_tuple else made[0]


def _check_gather(i: HloInstruction) -> None:
    if attribute("operand_batching_dims").decode(i.message):
        raise UnmodelledError("it has batching dimensions")


def _check_scatter(i: HloInstruction) -> None:
    if attribute("input_batching_dims").decode(i.message):
        raise UnmodelledError("it has batching dimensions")
    count = len(i.operands)
    if count != 3:
        raise UnmodelledError(f"it scatters {count // 2} operands at once")


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
    *[row(n) for n in ops_with(Trait.ELEMENTWISE) if not (OPS[n].attrs or OPS[n].composite)],
    row("convert", inferred=("dtype",)),
    row("bitcast_convert", inferred=("dtype",)),
    row("compare", "direction", check=_check_compare),
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
    ),
    row("reduce", "dimensions", reduces=True, emit=_write_reduce, read=_read_reduce),
    row("sort", DIMENSION, emit=_write_sort, read=_read_sort),
    row(
        "gather",
        *("offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim"),
        "slice_sizes",
        check=_check_gather,
    ),
    row(
        "scatter",
        *("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"),
        "index_vector_dim",
        reduces=True,
        check=_check_scatter,
    ),
    row("take", name="", emit=_write_take),
    row("dynamic_slice", renamed("slice_sizes", "dynamic_slice_sizes"), read=_read_dynamic),
    row("dynamic_update_slice", read=_read_dynamic),
)
_TAKE = by_op(TENSOR_ROWS)

"""How each simple op is written in HLO: one function an op, a recipe out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from graphgen.composites import decompose, take_by_gather
from graphgen.ir import Op, Value, tensor
from graphgen.lowering.hlo.dialect.instruction_template import (
    Comparator,
    InstructionTemplate,
    Operand,
    Reducer,
    StepResult,
    TemplateStep,
    one,
)
from graphgen.lowering.hlo.emit_collectives import COLLECTIVES
from graphgen.lowering.hlo.emit_control import CONTROL
from graphgen.lowering.hlo.emit_foreign import FOREIGN, stated
from graphgen.lowering.hlo.proto.fields import (
    DotField,
    GatherField,
    InstructionField,
    PaddingField,
    ScatterField,
    SliceField,
)
from graphgen.lowering.hlo.proto.shape import shape_of
from graphgen.lowering.hlo.proto.wire import delimited, integer, integers, text
from graphgen.ops import OPS, Trait, ops_with
from graphgen.ops.linalg import neutral_element

Emit = Callable[[Op], InstructionTemplate]

# Ops that are one instruction of the same name and have nothing but operands.
PLAIN = (
    *(n for n in ops_with(Trait.ELEMENTWISE) if not (OPS[n].attrs or OPS[n].composite)),
    *("bitcast_convert", "convert", "dynamic_update_slice", "reshape"),
)


def opcode(name: str) -> str:
    """HLO's spelling of an op's name."""
    return name.replace("_", "-")


def _operands(op: Op) -> tuple[Operand, ...]:
    return tuple(range(len(op.operands)))


def _plain(op: Op) -> InstructionTemplate:
    return one(opcode(op.name), op.results[0].type, _operands(op))


def _with(op: Op, fields: bytes = b"", more: bytes = b"", name: str = "") -> InstructionTemplate:
    return one(name or opcode(op.name), op.results[0].type, _operands(op), fields, more)


def dimensions(values: Sequence[int]) -> bytes:
    """The field most instructions keep their dimensions in."""
    return integers(InstructionField.DIMENSIONS, values)


def _compare(op: Op) -> InstructionTemplate:
    return _with(op, more=text(InstructionField.COMPARISON_DIRECTION, op.attrs.text("direction")))


def _reduce_precision(op: Op) -> InstructionTemplate:
    exponent, mantissa = op.attrs.integer("exponent_bits"), op.attrs.integer("mantissa_bits")
    kept = integer(InstructionField.EXPONENT_BITS, exponent)
    return _with(op, kept + integer(InstructionField.MANTISSA_BITS, mantissa))


def _iota(op: Op) -> InstructionTemplate:
    return _with(op, dimensions([op.attrs.integer("dimension")]))


def _broadcast_in_dim(op: Op) -> InstructionTemplate:
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
        turned = tensor(kind, [operand[kept[i]] for i in order])
        steps.append(TemplateStep("transpose", shape_of(turned), (source,), dimensions(order)))
        source = StepResult(len(steps) - 1)
    where = dimensions([targets[kept[i]] for i in order])
    steps.append(TemplateStep("broadcast", shape_of(op.results[0].type), (source,), where))
    return InstructionTemplate(tuple(steps), (len(steps) - 1,))


def _transpose(op: Op) -> InstructionTemplate:
    return _with(op, dimensions(op.attrs.integers("permutation")))


def _reverse(op: Op) -> InstructionTemplate:
    return _with(op, dimensions(op.attrs.integers("dimensions")))


def _slice(op: Op) -> InstructionTemplate:
    starts, limits = op.attrs.integers("start_indices"), op.attrs.integers("limit_indices")
    strides = op.attrs.integers("strides") or (1,) * len(starts)
    ranges = [
        delimited(
            InstructionField.SLICES,
            integer(SliceField.START, start)
            + integer(SliceField.LIMIT, limit)
            + integer(SliceField.STRIDE, stride),
        )
        for start, limit, stride in zip(starts, limits, strides, strict=True)
    ]
    return _with(op, b"".join(ranges))


def _concatenate(op: Op) -> InstructionTemplate:
    return _with(op, dimensions([op.attrs.integer("dimension")]))


def _pad(op: Op) -> InstructionTemplate:
    low, high = op.attrs.integers("low"), op.attrs.integers("high")
    edges = [
        delimited(
            PaddingField.DIMENSIONS,
            integer(PaddingField.LOW, before) + integer(PaddingField.HIGH, after),
        )
        for before, after in zip(low, high, strict=True)
    ]
    return _with(op, delimited(InstructionField.PADDING, b"".join(edges)))


def _dot_general(op: Op) -> InstructionTemplate:
    numbers = b"".join(
        [
            integers(DotField.LHS_CONTRACTING, op.attrs.integers("lhs_contracting_dims")),
            integers(DotField.RHS_CONTRACTING, op.attrs.integers("rhs_contracting_dims")),
            integers(DotField.LHS_BATCH, op.attrs.integers("lhs_batch_dims")),
            integers(DotField.RHS_BATCH, op.attrs.integers("rhs_batch_dims")),
        ]
    )
    return _with(op, delimited(InstructionField.DOT, numbers), name="dot")


def _reduce(op: Op) -> InstructionTemplate:
    kind, dtype = op.attrs.text("kind"), op.operands[0].dtype
    return one(
        "reduce",
        op.results[0].type,
        (0, neutral_element(kind, dtype)),
        dimensions(op.attrs.integers("dimensions")),
        calls=(Reducer(kind, dtype),),
    )


def _sort(op: Op) -> InstructionTemplate:
    direction = "GT" if op.attrs["descending"] else "LT"
    comparator = Comparator(direction, tuple([value.dtype for value in op.operands]))
    return stated(
        op,
        "sort",
        dimensions([op.attrs.integer("dimension")]),
        integer(InstructionField.IS_STABLE, 1),
        (comparator,),
    )


def _gather(op: Op) -> InstructionTemplate:
    a = op.attrs
    numbers = b"".join(
        [
            integers(GatherField.OFFSET_DIMS, a.integers("offset_dims")),
            integers(GatherField.COLLAPSED_SLICE_DIMS, a.integers("collapsed_slice_dims")),
            integers(GatherField.START_INDEX_MAP, a.integers("start_index_map")),
            integer(GatherField.INDEX_VECTOR_DIM, a.integer("index_vector_dim")),
        ]
    )
    sizes = integers(InstructionField.GATHER_SLICE_SIZES, a.integers("slice_sizes"))
    return _with(op, delimited(InstructionField.GATHER, numbers) + sizes)


def _scatter(op: Op) -> InstructionTemplate:
    a = op.attrs
    to_operand = a.integers("scatter_dims_to_operand_dims")
    numbers = b"".join(
        [
            integers(ScatterField.UPDATE_WINDOW_DIMS, a.integers("update_window_dims")),
            integers(ScatterField.INSERTED_WINDOW_DIMS, a.integers("inserted_window_dims")),
            integers(ScatterField.TO_OPERAND_DIMS, to_operand),
            integer(ScatterField.INDEX_VECTOR_DIM, a.integer("index_vector_dim")),
        ]
    )
    return one(
        "scatter",
        op.results[0].type,
        _operands(op),
        more=delimited(InstructionField.SCATTER, numbers),
        calls=(Reducer(a.text("kind"), op.operands[0].dtype),),
    )


def _take(op: Op) -> InstructionTemplate:
    """The ops that say the same, with their recipes one after the other."""
    body = decompose(op, take_by_gather)
    places: dict[Value, Operand] = {value: index for index, value in enumerate(body.args)}
    steps: list[TemplateStep] = []
    for inner in body.block:
        if inner.name == "constant":
            places[inner.result] = inner.attrs.literal("value")
            continue
        recipe, first = TABLE[inner.name](inner), len(steps)
        for step in recipe.steps:
            operands = tuple([_moved(item, inner, places, first) for item in step.operands])
            steps.append(replace(step, operands=operands))
        places[inner.result] = StepResult(first + recipe.results[0])
    (_, result), *_ = body.outputs
    last = places[result]
    assert isinstance(last, StepResult)
    return InstructionTemplate(tuple(steps), (last.step,))


def _moved(operand: Operand, inner: Op, places: dict[Value, Operand], first: int) -> Operand:
    """What an operand of an inner op's step is in the whole recipe."""
    if isinstance(operand, int):
        return places[inner.operands[operand]]
    return StepResult(operand.step + first) if isinstance(operand, StepResult) else operand


def _dynamic_slice(op: Op) -> InstructionTemplate:
    sizes = op.attrs.integers("slice_sizes")
    return _with(op, integers(InstructionField.DYNAMIC_SLICE_SIZES, sizes))


TABLE: dict[str, Emit] = {
    **dict.fromkeys(PLAIN, _plain),
    "compare": _compare,
    **FOREIGN,
    **CONTROL,
    "reduce_precision": _reduce_precision,
    "iota": _iota,
    "broadcast_in_dim": _broadcast_in_dim,
    "reverse": _reverse,
    "transpose": _transpose,
    "slice": _slice,
    "concatenate": _concatenate,
    "pad": _pad,
    "dot_general": _dot_general,
    "reduce": _reduce,
    "sort": _sort,
    "gather": _gather,
    "scatter": _scatter,
    "take": _take,
    "dynamic_slice": _dynamic_slice,
    **COLLECTIVES,
}

"""StableHLO's older contractions and selections, read as the ops they mean.

``einsum``, ``unary_einsum`` and ``torch_index_select`` have left the specification; files of
compilers of their time have them.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Value
from graphgen.ir.dtype import s32
from graphgen.lowering.mlir.syntax_tree import MlirOp
from graphgen.lowering.stablehlo.op_row import (
    StableHloRow,
    UnmodelledForm,
    integer_of,
    note_precision,
    result_type,
)
from graphgen.lowering.stablehlo.read_context import StableHloReadContext

# A dimension of an operand or of the result: a letter, or the place of one in an ellipsis.
Label = str | int


def _read_einsum(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    """A dot of the labels that both operands have, over those that the result has not."""
    note_precision(to, node, x)
    operands, out = _labels(node, x)
    dtype = result_type(node).dtype
    left, right = x
    first, second = operands
    for label in [label for label in first if label not in (*second, *out)]:
        left = _summed(to, left, first, label)
    for label in [label for label in second if label not in (*first, *out)]:
        right = _summed(to, right, second, label)
    batch = [label for label in first if label in second and label in out]
    inner = [label for label in first if label in second and label not in out]
    made = to.emit(
        "dot_general",
        [left, right],
        lhs_batch_dims=tuple(map(first.index, batch)),
        rhs_batch_dims=tuple(map(second.index, batch)),
        lhs_contracting_dims=tuple(map(first.index, inner)),
        rhs_contracting_dims=tuple(map(second.index, inner)),
        dtype=dtype,
    )
    free = [label for side in (first, second) for label in side if label not in (*batch, *inner)]
    return [_in_order(to, made, [*batch, *free], out)]


def _read_unary(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    """The sum over the labels that the result has not."""
    (labels,), out = _labels(node, x)
    value, dtype = x[0], result_type(node).dtype
    if value.dtype is not dtype:
        value = to.emit("convert", [value], dtype=dtype)
    for label in [label for label in labels if label not in out]:
        value = _summed(to, value, labels, label)
    return [_in_order(to, value, labels, out)]


def _labels(node: MlirOp, x: Sequence[Value]) -> tuple[list[list[Label]], list[Label]]:
    """The labels of each operand and of the result in ``ab,bc->ac``."""
    config = str(node.attrs.get("einsum_config", "")).replace(" ", "")
    given, arrow, result = config.partition("->")
    parts = given.split(",")
    if not arrow or len(parts) != len(x):
        what = f"einsum_config '{config}' is not like {'ab,bc->ac' if len(x) > 1 else 'ab->ba'}"
        raise GraphgenError("GG0104", what)
    operands = [
        _of_one(part, value.type.rank, config) for part, value in zip(parts, x, strict=True)
    ]
    out = _of_one(result, result_type(node).rank, config)
    sizes: dict[Label, object] = {}
    for labels, value in zip(operands, x, strict=True):
        for label, size in zip(labels, value.shape, strict=True):
            if sizes.setdefault(label, size) != size:
                what = f"einsum_config '{config}': {label} is {sizes[label]} and {size}"
                raise GraphgenError("GG0105", what)
    unknown = [label for label in out if label not in sizes]
    if unknown:
        raise GraphgenError("GG0104", f"einsum_config '{config}': no operand has {unknown[0]}")
    return operands, out


def _of_one(part: str, rank: int, config: str) -> list[Label]:
    """The labels of one side; those of an ellipsis are numbers, counted from its end."""
    before, dots, behind = part.partition("...")
    count = rank - len(before) - len(behind)
    if count < 0 or (count and not dots):
        raise GraphgenError("GG0104", f"einsum_config '{config}': '{part}' has not {rank} dims")
    labels: list[Label] = [*before, *range(count - 1, -1, -1), *behind]
    if len(set(labels)) < len(labels):
        raise UnmodelledForm("a diagonal")
    return labels


def _summed(to: StableHloReadContext, x: Value, labels: list[Label], label: Label) -> Value:
    """The sum over one label, which is taken out of ``labels``."""
    dim = labels.index(label)
    labels.pop(dim)
    return to.emit("reduce", [x], dimensions=(dim,), kind="add")


def _in_order(
    to: StableHloReadContext, x: Value, labels: Sequence[Label], wanted: Sequence[Label]
) -> Value:
    permutation = tuple([list(labels).index(label) for label in wanted])
    if permutation == tuple(range(len(permutation))):
        return x
    return to.emit("transpose", [x], permutation=permutation)


def _read_index_select(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    """A gather of slices of size 1 along ``dim``; ``batch_dims`` leading ones are in step."""
    operand, index = x
    dim, batch = integer_of(node, "dim"), integer_of(node, "batch_dims")
    rank, more = operand.type.rank, index.type.rank
    if not 0 <= batch <= min(dim, more) or not dim < rank:
        what = f"dim {dim} and batch_dims {batch} of {operand.type.text} and {index.type.text}"
        raise GraphgenError("GG0105", f"torch_index_select: {what} do not go together")
    if index.dtype is not s32:
        index = to.emit("convert", [index], dtype=s32)
    column = (*index.shape, 1)
    parts = [
        to.emit("iota", [], shape=column, dimension=place, dtype=s32) for place in range(batch)
    ]
    places = [*parts, to.emit("reshape", [index], shape=column)]
    indices = places[0]
    if len(places) > 1:
        indices = to.emit("concatenate", places, dimension=more)
    read = (*range(batch), dim)
    shift = more - batch - 1
    sizes = tuple([1 if d in read else size for d, size in enumerate(operand.shape)])
    return [
        to.emit(
            "gather",
            [operand, indices],
            offset_dims=tuple([d if d < dim else d + shift for d in range(rank) if d not in read]),
            collapsed_slice_dims=read,
            start_index_map=read,
            index_vector_dim=more,
            slice_sizes=sizes,
        )
    ]


CONTRACTION_ROWS = (
    StableHloRow("", "stablehlo.einsum", form="generic", read=_read_einsum),
    StableHloRow("", "stablehlo.unary_einsum", form="generic", read=_read_unary),
    StableHloRow("", "stablehlo.torch_index_select", form="generic", read=_read_index_select),
)

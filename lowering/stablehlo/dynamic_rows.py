"""Read StableHLO's dynamic ops with constant shape operands as ops of static shapes.

They are read where the type of the result is fixed and what the shape is computed from are
constants, or computed from constants: the op of the IR is then the same program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Literal, Value, tensor
from graphgen.ir.dtype import s32
from graphgen.lowering.mlir.mlir_types import fits_type
from graphgen.lowering.mlir.syntax_tree import MlirOp
from graphgen.lowering.stablehlo.indexing_rows import read_gather
from graphgen.lowering.stablehlo.known_numbers import numbers_of
from graphgen.lowering.stablehlo.op_row import (
    StableHloField,
    StableHloRow,
    UnmodelledForm,
    hint,
    integer_of,
    list_of,
    result_type,
)
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.lowering.stablehlo.window_rows import CONVOLUTION_ROW, read_convolution
from graphgen.ops.window import or_default

Read = Callable[[StableHloReadContext, MlirOp, Sequence[Value]], list[Value]]


def _of_result(op: str, *keys: str, dtype: bool = False) -> Read:
    """A reader of an op whose only dynamic operand is the shape of its result, the last one."""

    def read(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
        stated, sizes = result_type(node), numbers_of(x[-1])
        if any(size < 0 for size in sizes) or not fits_type(tensor(stated.dtype, sizes), stated):
            raise UnmodelledForm(f"a shape other than that of {stated.text}")
        made = tensor(stated.dtype, sizes)
        attrs: dict[str, AttrValue] = {"dtype": made.dtype} if dtype else {}
        if "broadcast_dimensions" in keys:
            attrs["dimensions"] = list_of(node, "broadcast_dimensions")
        if "iota_dimension" in keys:
            attrs["dimension"] = integer_of(node, "iota_dimension")
        return [to.emit(op, x[:-1], **attrs, shape=made.shape)]

    return read


def _read_pad(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    low, high, interior = (numbers_of(value) for value in x[2:])
    return [to.emit("pad", x[:2], low=low, high=high, interior=or_default(interior, 0))]


def _read_slice(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    starts, limits, strides = (numbers_of(value) for value in x[1:])
    attrs = {"start_indices": starts, "limit_indices": limits, "strides": or_default(strides, 1)}
    return [to.emit("slice", x[:1], **attrs)]


def _read_gather(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    return read_gather(to, node, x[:2], numbers_of(x[2]))


def _read_convolution(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    edges = numbers_of(x[2])
    pairs = tuple([tuple(edges[i : i + 2]) for i in range(0, len(edges), 2)])
    node.attrs["padding"] = pairs
    return read_convolution(to, node, x[:2])


def _size_of(x: Value, node: MlirOp) -> int:
    dimension = integer_of(node, "dimension")
    if not 0 <= dimension < x.type.rank:
        raise GraphgenError("GG0105", f"{node.name}: dimension {dimension} of {x.type.text}")
    size = x.type.shape[dimension]
    if not isinstance(size, int):
        raise UnmodelledForm("a size that is open")
    return size


def _read_size(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    return [to.emit("constant", (), value=Literal.of(s32, _size_of(x[0], node)))]


def _read_resize(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    """Setting a dimension to the size that it has changes nothing."""
    size = _size_of(x[0], node)
    if numbers_of(x[1]) != (size,):
        raise UnmodelledForm(f"a size other than {size}")
    return [x[0]]


def _row(
    name: str, count: int, read: Read, *fields: StableHloField, form: str = ""
) -> StableHloRow:
    """A row of an op, with a check of the number of its operands."""

    def checked(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
        if len(x) != count:
            raise GraphgenError("GG0105", f"{node.name} takes {count} operands, got {len(x)}")
        return read(to, node, x)

    parse = CONVOLUTION_ROW.parse if name == "dynamic_conv" else None
    name = f"stablehlo.{name}"
    return StableHloRow("", name, fields, form=form or "signature", read=checked, parse=parse)


_BROADCAST: Final = hint("broadcast_dimensions", "dims")
_IOTA: Final = hint("iota_dimension", "dim")
_DIMENSION: Final = hint("dimension", "dim")
DYNAMIC_ROWS: Final[Sequence[StableHloRow]] = (
    _row("dynamic_reshape", 2, _of_result("reshape")),
    _row(
        "dynamic_broadcast_in_dim",
        2,
        _of_result("broadcast_in_dim", _BROADCAST.key),
        _BROADCAST,
    ),
    _row("dynamic_iota", 1, _of_result("iota", _IOTA.key, dtype=True), _IOTA),
    _row("dynamic_pad", 5, _read_pad),
    _row("real_dynamic_slice", 4, _read_slice),
    _row("dynamic_gather", 3, _read_gather, form="generic"),
    _row("dynamic_conv", 3, _read_convolution),
    _row("get_dimension_size", 1, _read_size, _DIMENSION),
    _row("set_dimension_size", 2, _read_resize, _DIMENSION),
)

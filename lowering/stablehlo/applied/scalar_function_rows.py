"""Rows of the ops whose region is a function of scalars; emitted, it calls the function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from graphgen.ir import Op, Value
from graphgen.lowering.stablehlo.captured_values import read_scalar_function
from graphgen.lowering.stablehlo.control_rows import calling_region
from graphgen.lowering.stablehlo.indexing_rows import SCATTER_NUMBERS
from graphgen.lowering.stablehlo.op_row import StableHloRow, result_type, types_text
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.lowering.stablehlo.reduction_rows import window_text
from graphgen.lowering.stablehlo.text.mlir_types import type_text
from graphgen.lowering.stablehlo.text.syntax_tree import MlirOp
from graphgen.ops.control import scalar_signature
from graphgen.ops.windows.window import REDUCTION


def _list(values: Sequence[int]) -> str:
    return f"array<i64{': ' if values else ''}{', '.join(map(str, values))}>"


def _row(name: str, attrs: Callable[[Op], str]) -> StableHloRow:
    """The row of an op, which is written with its attributes and a region."""

    def emit(op: Op, out: str, x: Sequence[str]) -> str:
        first = out.split(", ")[0]
        takes, gives = scalar_signature(op)
        names = [f"%$e{i}.{first[1:]}" for i in range(len(takes))]
        pairs = zip(names, takes, strict=True)
        head = f"^bb0({', '.join([f'{name}: {type_text(type_)}' for name, type_ in pairs])}):"
        results = [type_text(type_) for type_ in gives]
        # XLA makes a map of nothing but a call into a call with whole arrays, which it refuses.
        held = op.name == "map"
        name = op.attrs.text("to_apply")
        region = calling_region(first, name, names, takes, results, head, held=held)
        kind = op.name.removesuffix("_by")
        shape = f"({types_text(op.operands)}) -> ({types_text(op.results)})"
        return f'{out} = "stablehlo.{kind}"({", ".join(x)}) <{{{attrs(op)}}}> ({region}) : {shape}'

    return StableHloRow(name, "", emit=emit)


def _scatter_numbers(op: Op) -> str:
    return f"{SCATTER_NUMBERS.key} = {SCATTER_NUMBERS.show(op.attrs)}"


def _sort(op: Op) -> str:
    return f"dimension = {op.attrs.integer('dimension')} : i64, is_stable = true"


def _window(op: Op) -> str:
    lists = (REDUCTION.stride, REDUCTION.base_dilation, REDUCTION.window_dilation)
    return window_text(op, lists)


def _read_map(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    name = read_scalar_function(to, node)
    return [to.emit("map", x, to_apply=name, dtype=result_type(node).dtype)]


SCALAR_FUNCTION_ROWS: Final[Sequence[StableHloRow]] = (
    _row("map", lambda op: f"dimensions = {_list(range(op.operands[0].type.rank))}"),
    _row("reduce_by", lambda op: f"dimensions = {_list(op.attrs.integers('dimensions'))}"),
    _row("reduce_window_by", _window),
    _row("scatter_by", _scatter_numbers),
    _row("sort_by", _sort),
    StableHloRow("", "stablehlo.map", form="generic", read=_read_map),
)

"""Rows of reductions of windows, and of ``select_and_scatter``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphgen.ir import AttrValue, Op, Value
from graphgen.lowering.stablehlo.captured_values import read_scalar_function
from graphgen.lowering.stablehlo.op_row import (
    StableHloRow,
    UnmodelledForm,
    list_of,
    local,
    named_reducer,
    padding_of,
    padding_text,
    reducer,
    reducer_text,
    scalar_text,
    signature,
)
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.lowering.stablehlo.text.syntax_tree import MlirOp, MlirRegion, word_of
from graphgen.ops.linalg import REDUCTIONS
from graphgen.ops.windows.window import or_default

_STRIDES: Final = ("window_strides",)
_LISTS: Final = ("window_strides", "base_dilations", "window_dilations")
_TURNED: Final = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


def window_text(op: Op, lists: Sequence[str]) -> str:
    """Spell the attributes of a window, in the order of their names."""
    sizes = op.attrs.integers("window_dimensions")
    rank = len(sizes)
    values = {key: op.attrs.integers(key) or (1,) * rank for key in lists}
    values["window_dimensions"] = sizes
    parts = {
        key: f"array<i64{': ' if rank else ''}{', '.join(map(str, each))}>"
        for key, each in values.items()
    }
    pairs = padding_text(op.attrs, rank) if rank else ""
    parts["padding"] = f"dense<{pairs}> : tensor<{rank}x2xi64>"
    return ", ".join([f"{key} = {parts[key]}" for key in sorted(parts)])


def _read_window(node: MlirOp, lists: Sequence[str]) -> dict[str, AttrValue]:
    attrs: dict[str, AttrValue] = {"window_dimensions": list_of(node, "window_dimensions")}
    attrs |= padding_of(node)
    return attrs | {key: or_default(list_of(node, key, ()), 1) for key in lists}


def _emit_reduce_window(op: Op, out: str, x: Sequence[str]) -> str:
    attrs, region = f"<{{{window_text(op, _LISTS)}}}>", reducer_text(op, out)
    return f'{out} = "stablehlo.reduce_window"({", ".join(x)}) {attrs} {region} : {signature(op)}'


def _read_reduce_window(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    attrs = _read_window(node, _LISTS)
    kind = named_reducer(node, "reduce_window") if len(x) == 2 else ""
    if kind:
        return [to.emit("reduce_window", x, **attrs, kind=kind)]
    return [*to.emit_all("reduce_window_by", x, **attrs, to_apply=read_scalar_function(to, node))]


def _emit_select_and_scatter(op: Op, out: str, x: Sequence[str]) -> str:
    scalar, direction = scalar_text(op.operands[0].dtype), op.attrs.text("direction")
    a, b, result = (local(out, what) for what in ("sa", "sb", "sr"))
    select = (
        f"({{\n      ^bb0({a}: {scalar}, {b}: {scalar}):\n"
        f"        {result} = stablehlo.compare {direction}, {a}, {b} : "
        f"({scalar}, {scalar}) -> tensor<i1>\n"
        f"        stablehlo.return {result} : tensor<i1>\n    }}"
    )
    regions = f"{select}, {reducer_text(op, out)[1:]}"
    attrs = f"<{{{window_text(op, _STRIDES)}}}>"
    name = '"stablehlo.select_and_scatter"'
    return f"{out} = {name}({', '.join(x)}) {attrs} {regions} : {signature(op)}"


def _read_select_and_scatter(
    to: StableHloReadContext, node: MlirOp, x: Sequence[Value]
) -> list[Value]:
    direction = _choice(node.regions[0]) if len(node.regions) == 2 else ""
    if not direction:
        raise UnmodelledForm("choosing by more than one comparison")
    kind = reducer(node.regions[1])
    if kind not in REDUCTIONS:
        raise UnmodelledForm(f"scattering with {kind}")
    attrs = _read_window(node, _STRIDES)
    return [to.emit("select_and_scatter", x, **attrs, direction=direction, kind=kind)]


def _choice(region: MlirRegion) -> str:
    """Recognize a comparison of both arguments; empty for anything else."""
    body, names = region.body, [argument.name for argument in region.args]
    if len(body) != 2 or body[0].name != "stablehlo.compare" or body[1].operands != body[0].results:
        return ""
    if word_of(body[0].attrs.get("compare_type")) == "TOTALORDER":
        return ""
    direction = word_of(body[0].attrs.get("comparison_direction"))
    if body[0].operands == names[::-1]:
        return _TURNED.get(direction, "")
    return direction if body[0].operands == names and direction in _TURNED else ""


REDUCTION_ROWS: Final[Sequence[StableHloRow]] = (
    StableHloRow(
        "reduce_window",
        "stablehlo.reduce_window",
        form="generic",
        emit=_emit_reduce_window,
        read=_read_reduce_window,
    ),
    StableHloRow(
        "select_and_scatter",
        "stablehlo.select_and_scatter",
        form="generic",
        emit=_emit_select_and_scatter,
        read=_read_select_and_scatter,
    ),
)

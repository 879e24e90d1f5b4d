"""Row of ``convolution``: dimension numbers, a window, groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Op, Value
from graphgen.lowering.stablehlo.assembly import parse_types
from graphgen.lowering.stablehlo.op_row import (
    StableHloRow,
    integer_of,
    list_of,
    note_precision,
    padding_of,
    padding_text,
    result_type,
    signature,
)
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.lowering.stablehlo.text.mlir_attributes import (
    read_attr,
    read_dict,
    read_operands,
)
from graphgen.lowering.stablehlo.text.mlir_parser import ReadRegion
from graphgen.lowering.stablehlo.text.syntax_tree import (
    DialectAttr,
    MlirOp,
)
from graphgen.lowering.stablehlo.text.tokens import MlirTokens
from graphgen.ops.windows.convolution import dims_of
from graphgen.ops.windows.window import or_default

# The assembly form's names of the lists of a convolution's window, and the generic form's.
_WINDOW: Final[Mapping[str, str]] = {
    "stride": "window_strides",
    "pad": "padding",
    "lhs_dilate": "lhs_dilation",
    "rhs_dilate": "rhs_dilation",
    "reverse": "window_reversal",
}
# Each list of a window with one number a dimension, and its default.
_NUMBERS: Final[Mapping[str, int]] = {"window_strides": 1, "lhs_dilation": 1, "rhs_dilation": 1}
_GROUPS: Final = ("feature_group_count", "batch_group_count")


def _emit_convolution(op: Op, out: str, x: Sequence[str]) -> str:
    attrs = op.attrs
    sides = [f"[{', '.join(side)}]" for part in attrs.text("dim_labels").split("->")
             for side in part.split("_")]  # fmt: skip
    rank = len(dims_of(attrs.text("dim_labels"))[0].spatial)
    reversal = attrs.integers("window_reversal") or (0,) * rank
    lists = {
        **{key: str([*(attrs.integers(key) or (d,) * rank)]) for key, d in _NUMBERS.items()},
        "padding": padding_text(attrs, rank),
        "window_reversal": f"[{', '.join(['true' if item else 'false' for item in reversal])}]",
    }
    window = ", ".join([f"{short} = {lists[key]}" for short, key in _WINDOW.items()])
    groups = ", ".join([f"{key} = {attrs.integer(key)} : i64" for key in sorted(_GROUPS)])
    return (
        f"{out} = stablehlo.convolution({', '.join(x)}) dim_numbers = "
        f"{sides[0]}x{sides[1]}->{sides[2]}, window = {{{window}}} {{{groups}}} : {signature(op)}"
    )


def read_convolution(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    """Read a convolution."""
    note_precision(to, node, x)
    attrs: dict[str, AttrValue] = {
        key: or_default(list_of(node, key, ()), default) for key, default in _NUMBERS.items()
    }
    attrs |= padding_of(node)
    backward = node.attrs.get("window_reversal", ())
    items = backward if isinstance(backward, tuple) else getattr(backward, "items", ())
    attrs["window_reversal"] = or_default([int(item is True) for item in items], 0)
    attrs |= {key: integer_of(node, key) if key in node.attrs else 1 for key in _GROUPS}
    labels = _labels(node)
    return [to.emit("convolution", x, dim_labels=labels, **attrs, dtype=result_type(node).dtype)]


def _labels(node: MlirOp) -> str:
    """Read ``[b, 0, f]x[0, i, o]->[b, 0, f]`` as ``b0f_0io->b0f``."""
    value = node.attrs.get("dimension_numbers")
    if isinstance(value, DialectAttr):
        value = "".join(value.words)
    if not isinstance(value, str):
        raise GraphgenError("GG0104", f"{node.name} needs 'dimension_numbers'")
    sides = value.replace(",", "").replace("][", "]x[")
    return sides.replace("]x[", "_").replace("]->[", "->").strip("[]")


def _parse_convolution(t: MlirTokens, node: MlirOp, region: ReadRegion) -> None:
    """Parse ``(%a, %b) dim_numbers = [b, f]x[i, o]->[b, f], window = {..} {..} : types``."""
    node.operands = read_operands(t)
    t.expect("dim_numbers")
    t.expect("=")
    words: list[str] = []
    while t.text not in ("window", "{", ":") and t.kind != "end":
        words.append(t.advance())
    node.attrs["dimension_numbers"] = "".join(words).rstrip(",")
    t.expect("window")
    t.expect("=")
    t.expect("{")
    for _ in t.items("}"):
        short = t.need("word", "a part of the window")
        t.expect("=")
        if short not in _WINDOW:
            raise t.error(f"a window has no '{short}'")
        node.attrs[_WINDOW[short]] = read_attr(t)
    if t.text == "{":
        node.attrs.add(read_dict(t))
    t.expect(":")
    node.types = parse_types(t, node)


CONVOLUTION_ROW: Final = StableHloRow(
    "convolution",
    "stablehlo.convolution",
    emit=_emit_convolution,
    read=read_convolution,
    parse=_parse_convolution,
)

"""Rows of reductions of windows, and of ``select_and_scatter``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Op, Value
from graphgen.lowering.mlir.mlir_attributes import read_attr, read_dict, read_operands
from graphgen.lowering.mlir.mlir_parser import ReadRegion
from graphgen.lowering.mlir.syntax_tree import (
    DialectAttr,
    MlirAttr,
    MlirOp,
    MlirRegion,
    integers_of,
    word_of,
)
from graphgen.lowering.mlir.tokens import MlirTokens
from graphgen.lowering.stablehlo.assembly import parse_types
from graphgen.lowering.stablehlo.captured_values import read_scalar_function
from graphgen.lowering.stablehlo.op_row import (
    StableHloRow,
    UnmodelledForm,
    integer_of,
    list_of,
    local,
    named_reducer,
    note_precision,
    padding_of,
    padding_text,
    reducer,
    reducer_text,
    result_type,
    scalar_text,
    signature,
)
from graphgen.lowering.stablehlo.promoted_operands import promoted
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.ops.convolution import dims_of
from graphgen.ops.linalg import REDUCTIONS
from graphgen.ops.window import or_default

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
    if isinstance(value, DialectAttr) and value.fields:
        return _numbered_labels(node, value.fields)
    if isinstance(value, DialectAttr):
        value = "".join(value.words)
    if not isinstance(value, str):
        raise GraphgenError("GG0104", f"{node.name} needs 'dimension_numbers'")
    sides = value.replace(",", "").replace("][", "]x[")
    return sides.replace("]x[", "_").replace("]->[", "->").strip("[]")


def _numbered_labels(node: MlirOp, fields: Mapping[str, MlirAttr]) -> str:
    """Read the form that states each dimension by its number: ``raw input_batch_dimension = 0``."""
    sides = [
        _side(node, fields, name, letters)
        for name, letters in (
            ("input", {"batch": "b", "feature": "f"}),
            ("kernel", {"input_feature": "i", "output_feature": "o"}),
            ("output", {"batch": "b", "feature": "f"}),
        )
    ]
    return f"{sides[0]}_{sides[1]}->{sides[2]}"


def _side(
    node: MlirOp, fields: Mapping[str, MlirAttr], side: str, letters: Mapping[str, str]
) -> str:
    """The letters of one operand's dimensions, in their order (GG0104)."""
    spatial = integers_of(fields.get(f"{side}_spatial_dimensions", ())) or ()
    places = {place: str(number) for number, place in enumerate(spatial)}
    for name, letter in letters.items():
        # MLIR leaves out what is 0.
        place = fields.get(f"{side}_{name}_dimension", 0)
        places[place if isinstance(place, int) else -1] = letter
    rank = len(spatial) + len(letters)
    if sorted(places) != list(range(rank)):
        what = f"{node.name}: the dimensions of its {side} are not 0 to {rank - 1}"
        raise GraphgenError("GG0104", what)
    return "".join([places[place] for place in range(rank)])


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
    x = promoted(to, node, x, node.regions[0].args)
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
    x = promoted(to, node, x, node.regions[1].args[:1] * len(x))
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

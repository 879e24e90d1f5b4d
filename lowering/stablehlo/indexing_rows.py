"""Rows of ops that read or write at computed positions, and of sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphgen.ir import Attrs, AttrValue, Op, Value
from graphgen.lowering.decompose import with_positions
from graphgen.lowering.mlir.mlir_parser import ReadRegion
from graphgen.lowering.mlir.syntax_tree import MlirOp, MlirRegion, word_of
from graphgen.lowering.mlir.tokens import MlirTokens
from graphgen.lowering.stablehlo.assembly import parse_integer, parse_types
from graphgen.lowering.stablehlo.captured_values import read_scalar_function
from graphgen.lowering.stablehlo.op_row import (
    StableHloField,
    StableHloRow,
    field_list,
    fields_of,
    integer_of,
    integers,
    list_of,
    list_text,
    local,
    named_reducer,
    scalar_text,
    signature,
    types_text,
)
from graphgen.lowering.stablehlo.promoted_operands import promoted
from graphgen.lowering.stablehlo.read_context import StableHloReadContext

_GATHER = ("offset_dims", "collapsed_slice_dims", "start_index_map")
_SCATTER = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")


def _numbers(key: str, kind: str, names: Sequence[str]) -> StableHloField:
    """The dimension numbers of a gather or a scatter, in one attribute ``#stablehlo.kind<...>``."""

    def show(attrs: Attrs) -> str:
        lists = ", ".join(f"{name} = {list_text(attrs.integers(name))}" for name in names)
        return f"#stablehlo.{kind}<{lists}, index_vector_dim = {attrs.integer('index_vector_dim')}>"

    return StableHloField(key, "", lambda node: {}, show)


def _read_numbers(
    to: StableHloReadContext,
    node: MlirOp,
    indices: Value,
    key: str,
    names: Sequence[str],
    batching: tuple[str, str],
) -> tuple[dict[str, AttrValue], Value]:
    """Read dimension numbers: the IR's attributes, and the index vectors.

    The IR does not have batching dimensions: they are collapsed, and the index vectors get their
    own positions along them.

    Args:
        to: where ops are appended.
        node: the op.
        indices: its operand of index vectors.
        key: the name of the attribute.
        names: of the window dimensions, the collapsed ones, and those that vectors index.
        batching: the names of the batching dimensions, of the operand and of the indices.
    """
    fields = fields_of(node, key)
    vector = fields.get("index_vector_dim", 0)
    vector = vector if isinstance(vector, int) else 0
    window, collapsed, starts = (field_list(fields, name) for name in names)
    batch, dims = (field_list(fields, name) for name in batching)
    attrs: dict[str, AttrValue] = {
        names[0]: window,
        names[1]: tuple(sorted((*collapsed, *batch))),
        names[2]: (*batch, *starts),
        "index_vector_dim": vector,
    }
    return attrs, with_positions(to.emit, indices, vector, dims) if batch else indices


def _read_gather(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    return read_gather(to, node, x, list_of(node, "slice_sizes"))


def read_gather(
    to: StableHloReadContext, node: MlirOp, x: Sequence[Value], sizes: tuple[int, ...]
) -> list[Value]:
    """Read a gather of slices of these sizes."""
    batching = ("operand_batching_dims", "start_indices_batching_dims")
    attrs, indices = _read_numbers(to, node, x[1], "dimension_numbers", _GATHER, batching)
    return [to.emit("gather", [x[0], indices], **attrs, slice_sizes=sizes)]


def _read_scatter(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    count = len(x) // 2
    batching = ("input_batching_dims", "scatter_indices_batching_dims")
    attrs, indices = _read_numbers(
        to, node, x[count], "scatter_dimension_numbers", _SCATTER, batching
    )
    region = node.regions[0].args if node.regions else ()
    combined = promoted(to, node, [*x[:count], *x[count + 1 :]], region)
    operands = [*combined[:count], indices, *combined[count:]]
    kind = named_reducer(node, "scatter") if count == 1 else ""
    if kind:
        return [to.emit("scatter", operands, **attrs, kind=kind)]
    name = read_scalar_function(to, node)
    return [*to.emit_all("scatter_by", operands, **attrs, to_apply=name)]


def _emit_sort(op: Op, out: str, x: Sequence[str]) -> str:
    """Write a stable sort; its comparator has two scalars per operand and compares the first."""
    first = out.split(", ")[0]
    pairs = [(local(first, f"a{i}"), local(first, f"b{i}")) for i in range(len(x))]
    scalars = [scalar_text(value.dtype) for value in op.operands]
    arguments = ", ".join(
        f"{name}: {scalar}" for pair, scalar in zip(pairs, scalars, strict=True) for name in pair
    )
    dtype, result = op.operands[0].dtype, local(first, "r")
    order = "TOTALORDER" if dtype.is_float else "SIGNED" if dtype.name[0] == "s" else "UNSIGNED"
    direction = "GT" if op.attrs["descending"] else "LT"
    compare = f"stablehlo.compare {direction}, {', '.join(pairs[0])}, {order}"
    attrs = f"<{{dimension = {op.attrs.integer('dimension')} : i64, is_stable = true}}>"
    types = types_text(op.operands)
    results = types if len(x) == 1 else f"({types})"
    lines = [
        f'{out} = "stablehlo.sort"({", ".join(x)}) {attrs} ({{\n      ^bb0({arguments}):',
        f"        {result} = {compare} : ({scalars[0]}, {scalars[0]}) -> tensor<i1>",
        f"        stablehlo.return {result} : tensor<i1>\n    }}) : ({types}) -> {results}",
    ]
    return "\n".join(lines)


def _read_sort(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    """Read a sort; the IR's is stable, also where the program allows any order of equals."""
    direction = _direction(node.regions[0], floats=x[0].dtype.is_float) if node.regions else ""
    dimension = node.attrs.get("dimension", -1)
    axis = dimension if isinstance(dimension, int) else -1
    axis = axis if axis >= 0 else axis + x[0].type.rank
    if not direction:
        name = read_scalar_function(to, node)
        return [*to.emit_all("sort_by", x, dimension=axis, to_apply=name)]
    return [*to.emit_all("sort", x, dimension=axis, descending=direction == "GT")]


def _direction(region: MlirRegion, *, floats: bool) -> str:
    """Recognize ``LT`` or ``GT`` of the first two arguments; empty for any other comparator."""
    body, names = region.body, [argument.name for argument in region.args]
    if len(body) != 2 or body[0].name != "stablehlo.compare" or body[1].operands != body[0].results:
        return ""
    compare = body[0]
    direction = word_of(compare.attrs.get("comparison_direction"))
    total = word_of(compare.attrs.get("compare_type")) == "TOTALORDER"
    if direction not in ("LT", "GT") or (floats and not total):
        return ""
    swapped = compare.operands == [names[1], names[0]]
    if compare.operands != names[:2] and not swapped:
        return ""
    return {"LT": "GT", "GT": "LT"}[direction] if swapped else direction


def _emit_top_k(op: Op, out: str, x: Sequence[str]) -> str:
    """Write CHLO's op, which StableHLO does not have."""
    k = op.attrs.integer("k")
    return f'{out} = "chlo.top_k"({x[0]}) <{{k = {k} : i64}}> : {signature(op)}'


def _read_top_k(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    return [*to.emit_all("top_k", x, k=integer_of(node, "k"))]


def _parse_top_k(t: MlirTokens, node: MlirOp, region: ReadRegion) -> None:
    """Parse ``(%a, k = 2) : type -> (types)``."""
    t.expect("(")
    node.operands = [t.need("value", "an operand")]
    for text in (",", "k", "="):
        t.expect(text)
    node.attrs["k"] = parse_integer(t)
    t.expect(")")
    t.expect(":")
    node.types = parse_types(t, node)


SCATTER_NUMBERS: Final = _numbers("scatter_dimension_numbers", "scatter", _SCATTER)

# fmt: off
INDEXING_ROWS: Final[Sequence[StableHloRow]] = (
    StableHloRow("dynamic_slice", "stablehlo.dynamic_slice",
        (integers("slice_sizes", short="sizes"),)),
    StableHloRow("dynamic_update_slice", "stablehlo.dynamic_update_slice"),
    StableHloRow("gather", "stablehlo.gather",
        (_numbers("dimension_numbers", "gather", _GATHER), integers("slice_sizes")),
        form="generic", read=_read_gather),
    StableHloRow("scatter", "stablehlo.scatter",
        (SCATTER_NUMBERS,), form="generic",
        reduces=True, read=_read_scatter),
    StableHloRow("sort", "stablehlo.sort", form="generic", emit=_emit_sort, read=_read_sort),
    # The IR's op is a composite, which is decomposed before it is emitted.
    StableHloRow("top_k", "chlo.top_k", emit=_emit_top_k, read=_read_top_k, parse=_parse_top_k),
)
# fmt: on

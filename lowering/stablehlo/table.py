"""How each simple op is written in StableHLO: one function an op, text out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.composites import decompose, take_by_gather
from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, DType, Op, tensor
from graphgen.lowering.stablehlo.emit_control import call, conditional, while_
from graphgen.lowering.stablehlo.types import dense_text, element_text, string, type_text
from graphgen.ops import OPS, Trait, ops_with
from graphgen.ops.linalg import neutral_element

# (op, result names, operand names) -> the op's text without location, perhaps of several lines.
Emit = Callable[[Op, str, Sequence[str]], str]


def _signature(op: Op) -> str:
    operands = ", ".join([type_text(value.type) for value in op.operands])
    return f"({operands}) -> {type_text(op.results[0].type)}"


def _list(values: Sequence[object]) -> str:
    return "[" + ", ".join(map(str, values)) + "]"


def _elementwise(op: Op, out: str, x: Sequence[str]) -> str:
    return f"{out} = stablehlo.{op.name} {', '.join(x)} : {type_text(op.results[0].type)}"


def _compare(op: Op, out: str, x: Sequence[str]) -> str:
    dtype = op.operands[0].dtype
    kind = "FLOAT" if dtype.is_float else "SIGNED" if dtype.name[0] == "s" else "UNSIGNED"
    direction = op.attrs.text("direction")
    return f"{out} = stablehlo.compare {direction}, {x[0]}, {x[1]}, {kind} : {_signature(op)}"


def _select(op: Op, out: str, x: Sequence[str]) -> str:
    types = f"{type_text(op.operands[0].type)}, {type_text(op.results[0].type)}"
    return f"{out} = stablehlo.select {', '.join(x)} : {types}"


def _erf(op: Op, out: str, x: Sequence[str]) -> str:
    """StableHLO has none of its own; CHLO, which XLA reads as well, does."""
    return f'{out} = "chlo.erf"({x[0]}) : {_signature(op)}'


def _reduce_precision(op: Op, out: str, x: Sequence[str]) -> str:
    exponent, mantissa = op.attrs.integer("exponent_bits"), op.attrs.integer("mantissa_bits")
    kept = f"format = e{exponent}m{mantissa}"
    return f"{out} = stablehlo.reduce_precision {x[0]}, {kept} : {type_text(op.result.type)}"


def _plain(op: Op, out: str, x: Sequence[str]) -> str:
    return f"{out} = stablehlo.{op.name} {', '.join(x)} : {_signature(op)}"


def _constant(op: Op, out: str, x: Sequence[str]) -> str:
    value = dense_text(op.attrs.literal("value"))
    return f"{out} = stablehlo.constant {value} : {type_text(op.results[0].type)}"


def _iota(op: Op, out: str, x: Sequence[str]) -> str:
    dimension = op.attrs.integer("dimension")
    return f"{out} = stablehlo.iota dim = {dimension} : {type_text(op.results[0].type)}"


def _broadcast_in_dim(op: Op, out: str, x: Sequence[str]) -> str:
    dims = _list(op.attrs.integers("dimensions"))
    return f"{out} = stablehlo.broadcast_in_dim {x[0]}, dims = {dims} : {_signature(op)}"


def _transpose(op: Op, out: str, x: Sequence[str]) -> str:
    dims = _list(op.attrs.integers("permutation"))
    return f"{out} = stablehlo.transpose {x[0]}, dims = {dims} : {_signature(op)}"


def _reverse(op: Op, out: str, x: Sequence[str]) -> str:
    dims = _list(op.attrs.integers("dimensions"))
    return f"{out} = stablehlo.reverse {x[0]}, dims = {dims} : {type_text(op.result.type)}"


def _slice(op: Op, out: str, x: Sequence[str]) -> str:
    starts, limits = op.attrs.dims("start_indices"), op.attrs.dims("limit_indices")
    strides = op.attrs.integers("strides") or (1,) * len(starts)
    ranges = [
        f"{start}:{limit}" + (f":{stride}" if stride != 1 else "")
        for start, limit, stride in zip(starts, limits, strides, strict=True)
    ]
    return f"{out} = stablehlo.slice {x[0]} {_list(ranges)} : {_signature(op)}"


def _concatenate(op: Op, out: str, x: Sequence[str]) -> str:
    dim = op.attrs.integer("dimension")
    return f"{out} = stablehlo.concatenate {', '.join(x)}, dim = {dim} : {_signature(op)}"


def _pad(op: Op, out: str, x: Sequence[str]) -> str:
    low, high = op.attrs.integers("low"), op.attrs.integers("high")
    widths = f"low = {_list(low)}, high = {_list(high)}, interior = {_list([0] * len(low))}"
    return f"{out} = stablehlo.pad {x[0]}, {x[1]}, {widths} : {_signature(op)}"


def _dot_general(op: Op, out: str, x: Sequence[str]) -> str:
    a = op.attrs
    batch = ""
    if a.integers("lhs_batch_dims"):
        left, right = a.integers("lhs_batch_dims"), a.integers("rhs_batch_dims")
        batch = f", batching_dims = {_list(left)} x {_list(right)}"
    left, right = a.integers("lhs_contracting_dims"), a.integers("rhs_contracting_dims")
    dims = f"{batch}, contracting_dims = {_list(left)} x {_list(right)}"
    return f"{out} = stablehlo.dot_general {x[0]}, {x[1]}{dims} : {_signature(op)}"


def _local(out: str, what: str) -> str:
    """A name beside ``out`` that no value of the program can have: ours never start with $."""
    return f"%${what}.{out[1:]}"


def _reduce(op: Op, out: str, x: Sequence[str]) -> str:
    kind, dtype = op.attrs.text("kind"), op.operands[0].dtype
    scalar = type_text(tensor(dtype))
    init = _local(out, "init")
    first = f"{init} = stablehlo.constant {dense_text(neutral_element(kind, dtype))} : {scalar}"
    dims = _list(op.attrs.integers("dimensions"))
    types = f"({type_text(op.operands[0].type)}, {scalar}) -> {type_text(op.results[0].type)}"
    second = (
        f"{out} = stablehlo.reduce({x[0]} init: {init}) applies stablehlo.{kind} "
        f"across dimensions = {dims} : {types}"
    )
    return f"{first}\n    {second}"


def _gather(op: Op, out: str, x: Sequence[str]) -> str:
    a = op.attrs
    numbers = (
        f"#stablehlo.gather<offset_dims = {_list(a.integers('offset_dims'))}, "
        f"collapsed_slice_dims = {_list(a.integers('collapsed_slice_dims'))}, "
        f"start_index_map = {_list(a.integers('start_index_map'))}, "
        f"index_vector_dim = {a.integer('index_vector_dim')}>"
    )
    sizes = _array(a, "slice_sizes")
    attrs = f"<{{dimension_numbers = {numbers}, slice_sizes = {sizes}}}>"
    return f'{out} = "stablehlo.gather"({x[0]}, {x[1]}) {attrs} : {_signature(op)}'


def _take(op: Op, out: str, x: Sequence[str]) -> str:
    """The ops that say the same."""
    body = decompose(op, take_by_gather)
    names = dict(zip(body.args, x, strict=True))
    lines: list[str] = []
    for number, inner in enumerate(body.block):
        made = out if body.returns(inner.result) else _local(out, f"take{number}")
        names[inner.result] = made
        lines.append(TABLE[inner.name](inner, made, [names[value] for value in inner.operands]))
    return "\n    ".join(lines)


def _array(attrs: Attrs, key: str) -> str:
    values = attrs.integers(key)
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


def _region(out: str, body: str, dtype: DType) -> str:
    """The region of a reducer: ``add``, ``maximum``, ``minimum``, or ``assign`` for the second."""
    scalar = f"tensor<{element_text(dtype)}>"
    a, b = _local(out, "a"), _local(out, "b")
    lines = [f"({{\n      ^bb0({a}: {scalar}, {b}: {scalar}):"]
    result = b
    if body != "assign":
        result = _local(out, "r")
        lines.append(f"        {result} = stablehlo.{body} {a}, {b} : {scalar}")
    lines.append(f"        stablehlo.return {result} : {scalar}\n    }})")
    return "\n".join(lines)


def _sort(op: Op, out: str, x: Sequence[str]) -> str:
    """The comparison is of two scalars an operand; only those of the first are looked at."""
    first = out.split(", ")[0]
    pairs = [(_local(first, f"a{i}"), _local(first, f"b{i}")) for i in range(len(x))]
    scalars = [f"tensor<{element_text(value.dtype)}>" for value in op.operands]
    given = ", ".join(
        f"{name}: {scalar}" for pair, scalar in zip(pairs, scalars, strict=True) for name in pair
    )
    kind, found = op.operands[0].dtype, _local(first, "r")
    how = "TOTALORDER" if kind.is_float else "SIGNED" if kind.name[0] == "s" else "UNSIGNED"
    direction = "GT" if op.attrs["descending"] else "LT"
    compare = f"stablehlo.compare {direction}, {', '.join(pairs[0])}, {how}"
    attrs = f"<{{dimension = {op.attrs.integer('dimension')} : i64, is_stable = true}}>"
    types = ", ".join([type_text(value.type) for value in op.operands])
    results = types if len(x) == 1 else f"({types})"
    lines = [
        f'{out} = "stablehlo.sort"({", ".join(x)}) {attrs} ({{\n      ^bb0({given}):',
        f"        {found} = {compare} : ({scalars[0]}, {scalars[0]}) -> tensor<i1>",
        f"        stablehlo.return {found} : tensor<i1>\n    }}) : ({types}) -> {results}",
    ]
    return "\n".join(lines)


def _scatter(op: Op, out: str, x: Sequence[str]) -> str:
    a = op.attrs
    numbers = (
        f"#stablehlo.scatter<update_window_dims = {_list(a.integers('update_window_dims'))}, "
        f"inserted_window_dims = {_list(a.integers('inserted_window_dims'))}, "
        "scatter_dims_to_operand_dims = "
        f"{_list(a.integers('scatter_dims_to_operand_dims'))}, "
        f"index_vector_dim = {a.integer('index_vector_dim')}>"
    )
    attrs = f"<{{scatter_dimension_numbers = {numbers}}}>"
    region = _region(out, a.text("kind"), op.operands[0].dtype)
    return f'{out} = "stablehlo.scatter"({", ".join(x)}) {attrs} {region} : {_signature(op)}'


def _dynamic_slice(op: Op, out: str, x: Sequence[str]) -> str:
    sizes = _list(op.attrs.integers("slice_sizes"))
    return f"{out} = stablehlo.dynamic_slice {', '.join(x)}, sizes = {sizes} : {_signature(op)}"


def _ranks(rows: Sequence[Sequence[int]]) -> str:
    """Groups or pairs of ranks; groups of different sizes are filled up with -1."""
    most = max(map(len, rows), default=0)
    filled = ", ".join(_list((*row, *[-1] * (most - len(row)))) for row in rows)
    return f"dense<[{filled}]> : tensor<{len(rows)}x{most}xi64>"


def _collective(op: Op, out: str, x: Sequence[str], more: str = "", region: str = "") -> str:
    groups = f"replica_groups = {_ranks(op.attrs.groups('replica_groups'))}"
    attrs = f"<{{{more}{groups}}}>{region}"
    return f'{out} = "stablehlo.{op.name}"({x[0]}) {attrs} : {_signature(op)}'


def _all_reduce(op: Op, out: str, x: Sequence[str]) -> str:
    region = _region(out, op.attrs.text("kind"), op.operands[0].dtype)
    return _collective(op, out, x, region=f" {region}")


def _all_gather(op: Op, out: str, x: Sequence[str]) -> str:
    return _collective(op, out, x, f"all_gather_dim = {op.attrs.integer('dimension')} : i64, ")


def _reduce_scatter(op: Op, out: str, x: Sequence[str]) -> str:
    region = _region(out, op.attrs.text("kind"), op.operands[0].dtype)
    more = f"scatter_dimension = {op.attrs.integer('dimension')} : i64, "
    return _collective(op, out, x, more, f" {region}")


def _all_to_all(op: Op, out: str, x: Sequence[str]) -> str:
    count = len(op.attrs.groups("replica_groups")[0])
    split, concat = op.attrs.integer("split_dimension"), op.attrs.integer("concat_dimension")
    more = (
        f"split_dimension = {split} : i64, concat_dimension = {concat} : i64, "
        f"split_count = {count} : i64, "
    )
    return _collective(op, out, x, more)


def _collective_permute(op: Op, out: str, x: Sequence[str]) -> str:
    pairs = op.attrs.groups("source_target_pairs")
    text = _ranks(pairs) if pairs else "dense<> : tensor<0x2xi64>"
    attrs = f"<{{source_target_pairs = {text}}}>"
    return f'{out} = "stablehlo.collective_permute"({x[0]}) {attrs} : {_signature(op)}'


# What a read call says of its version where it is the usual one: HLO's field 77 is 1.
_ORIGINAL_API = "e80401"


def _custom_call(op: Op, out: str, x: Sequence[str]) -> str:
    config = op.attrs.text("config")
    attrs = f" {{backend_config = {string(config)}}}" if config else ""
    operands = ", ".join([type_text(value.type) for value in op.operands])
    results = ", ".join([type_text(value.type) for value in op.results])
    made = results if len(op.results) == 1 else f"({results})"
    target = string(op.attrs.text("target"))
    if op.attrs.text("fields") or op.attrs.text("more") not in ("", _ORIGINAL_API):
        what = f"custom_call {op.attrs.text('target')} says more than StableHLO has words for here"
        raise GraphgenError("GG0401", what, where=repr(op.loc), help="write HLO instead")
    return (
        f"{out} = stablehlo.custom_call @{target}({', '.join(x)}){attrs} : ({operands}) -> {made}"
    )


TABLE: dict[str, Emit] = {
    **{
        name: _elementwise
        for name in ops_with(Trait.ELEMENTWISE)
        if not (OPS[name].attrs or OPS[name].composite)
    },
    "call": call,
    "while": while_,
    "conditional": conditional,
    "custom_call": _custom_call,
    "erf": _erf,
    "is_finite": _plain,
    "reduce_precision": _reduce_precision,
    "compare": _compare,
    "select": _select,
    "convert": _plain,
    "clamp": _plain,
    "bitcast_convert": _plain,
    "reshape": _plain,
    "constant": _constant,
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
    "take": _take,
    "scatter": _scatter,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _plain,
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "collective_permute": _collective_permute,
}

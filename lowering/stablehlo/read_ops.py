"""What each StableHLO op is in our IR: one function an op, from the tree to values.

An op without an entry that has a namesake without attributes in our table is that one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Literal, TensorType, Value
from graphgen.ir.dtype import pred, s32
from graphgen.lowering.stablehlo.read_tree import Attribute, Custom, Dense, Node, Region, integers
from graphgen.lowering.stablehlo.read_types import read_literal, read_tensor_type
from graphgen.ops import OPS
from graphgen.ops.linalg import neutral_element

# A splat of more bytes than this becomes a scalar and a broadcast.
LARGE_SPLAT: Final = 1 << 16


class Emit(Protocol):
    """Where converters put their ops."""

    def emit(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Value:
        """Append an op of one result with the location of the op being read."""
        ...

    def emit_all(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Sequence[Value]:
        """Append an op of several results."""
        ...

    def dropped(self, what: str) -> None:
        """Note something that has no meaning here, such as a precision."""
        ...

    def idle(self, value: Value) -> None:
        """``value`` was only written for this op: it goes if nobody else reads it."""
        ...


Convert = Callable[[Emit, Node, Sequence[Value]], list[Value]]


def convert(to: Emit, node: Node, operands: Sequence[Value]) -> list[Value] | None:
    """The values of one op's results; ``None`` where our IR has no form of it."""
    found = _TABLE.get(node.name)
    if found is not None:
        return found(to, node, operands)
    dialect, _, name = node.name.partition(".")
    entry = OPS.get(name)
    if dialect not in ("stablehlo", "chlo") or entry is None or entry.attrs or entry.composite:
        return None
    return [to.emit(name, operands)]


class Unmodelled(Exception):  # noqa: N818 (an answer, not a mistake)
    """A form of an op that our op of that name does not have; says which."""


def _result(node: Node) -> TensorType:
    return read_tensor_type(node.types[0])


def _ints(node: Node, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
    if key not in node.attrs and default is not None:
        return default
    found = integers(node.attrs.get(key))
    if found is None:
        raise GraphgenError("GG0104", f"{node.name} needs the integers '{key}'")
    return found


def _integer(node: Node, key: str) -> int:
    value = node.attrs.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise GraphgenError("GG0104", f"{node.name} needs the integer '{key}'")
    return value


def _fields(node: Node, key: str) -> Mapping[str, Attribute]:
    value = node.attrs.get(key)
    if not isinstance(value, Custom):
        raise GraphgenError("GG0104", f"{node.name} needs '{key}'")
    return value.fields


def _field(fields: Mapping[str, Attribute], key: str) -> tuple[int, ...]:
    """A list among the fields; what is empty may be left out."""
    return integers(fields.get(key, ())) or ()


def _word(value: Attribute | None) -> str:
    """``EQ`` of ``EQ`` or ``#stablehlo<comparison_direction EQ>``."""
    if isinstance(value, Custom):
        return value.words[-1] if value.words else ""
    return value if isinstance(value, str) else ""


def _square(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    return [to.emit("multiply", [x[0], x[0]])]


def _constant(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    value = node.attrs.get("value")
    if not isinstance(value, Dense):
        raise GraphgenError("GG0104", f"{node.name} needs a dense 'value'")
    literal, type_ = read_literal(value), read_tensor_type(value.type)
    count = math.prod(type_.dims)
    if literal.shape == type_.dims:
        return [to.emit("constant", (), value=literal)]
    if count * type_.dtype.bytes > LARGE_SPLAT:
        scalar = to.emit("constant", (), value=literal)
        return [to.emit("broadcast_in_dim", [scalar], shape=type_.shape, dimensions=())]
    whole = Literal(type_.dtype, type_.dims, bytes(literal.data) * count)
    return [to.emit("constant", (), value=whole)]


def _iota(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    type_ = _result(node)
    dimension = _integer(node, "iota_dimension")
    return [to.emit("iota", (), dtype=type_.dtype, shape=type_.shape, dimension=dimension)]


def _compare(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    if _word(node.attrs.get("compare_type")) == "TOTALORDER" and x[0].dtype.is_float:
        raise Unmodelled("comparing floats in total order")
    return [to.emit("compare", x, direction=_word(node.attrs.get("comparison_direction")))]


def _convert(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    return [to.emit(node.name.partition(".")[2], x, dtype=_result(node).dtype)]


def _reduce_precision(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    short = re.fullmatch(r"e(\d+)m(\d+)", _word(node.attrs.get("format")))
    if short:
        exponent, mantissa = int(short[1]), int(short[2])
    else:
        exponent, mantissa = _integer(node, "exponent_bits"), _integer(node, "mantissa_bits")
    return [to.emit("reduce_precision", x, exponent_bits=exponent, mantissa_bits=mantissa)]


def _reshape(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    return [to.emit("reshape", x, shape=_result(node).shape)]


def _broadcast_in_dim(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    dims = _ints(node, "broadcast_dimensions")
    return [to.emit("broadcast_in_dim", x, shape=_result(node).shape, dimensions=dims)]


def _transpose(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    return [to.emit("transpose", x, permutation=_ints(node, "permutation"))]


def _reverse(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    return [to.emit("reverse", x, dimensions=_ints(node, "dimensions"))]


def _slice(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    strides = _ints(node, "strides")
    # Ours has one way to say that every stride is 1.
    return [
        to.emit(
            "slice",
            x,
            start_indices=_ints(node, "start_indices"),
            limit_indices=_ints(node, "limit_indices"),
            strides=() if set(strides) <= {1} else strides,
        )
    ]


def _concatenate(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    return [to.emit("concatenate", x, dimension=_integer(node, "dimension"))]


def _pad(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    low, high = _ints(node, "edge_padding_low"), _ints(node, "edge_padding_high")
    if any(_ints(node, "interior_padding", ())):
        raise Unmodelled("padding between elements")
    if min((*low, *high), default=0) < 0:
        raise Unmodelled("negative padding")
    return [to.emit("pad", x, low=low, high=high)]


def _dot_general(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    if "dot_dimension_numbers" in node.attrs:
        fields = _fields(node, "dot_dimension_numbers")
        dims = [
            _field(fields, f"{side}_{kind}_dimensions")
            for kind in ("contracting", "batching")
            for side in ("lhs", "rhs")
        ]
    else:
        dims = [*_pair(node, "contracting_dims"), *_pair(node, "batching_dims")]
    _note_precision(to, node)
    return [
        to.emit(
            "dot_general",
            x,
            lhs_contracting_dims=dims[0],
            rhs_contracting_dims=dims[1],
            lhs_batch_dims=dims[2],
            rhs_batch_dims=dims[3],
            dtype=_result(node).dtype,
        )
    ]


def _pair(node: Node, key: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    value = node.attrs.get(key, ((), ()))
    if not isinstance(value, tuple) or len(value) != 2:
        raise GraphgenError("GG0104", f"{node.name}: '{key}' is not two lists")
    return integers(value[0]) or (), integers(value[1]) or ()


def _note_precision(to: Emit, node: Node) -> None:
    config = node.attrs.get("precision_config", ())
    words = {_word(item) for item in config} if isinstance(config, tuple) else set[str]()
    for word in sorted(words - {"DEFAULT", ""}):
        to.dropped(f"precision {word}")
    if "algorithm" in node.attrs:
        to.dropped("dot algorithm")


def _dot(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    """The older op: the last dimension of the left with the first of the right."""
    _note_precision(to, node)
    left = (x[0].type.rank - 1,)
    dtype = _result(node).dtype
    return [
        to.emit("dot_general", x, lhs_contracting_dims=left, rhs_contracting_dims=(0,), dtype=dtype)
    ]


def reducer(region: Region) -> str:
    """``add``, ``maximum``, ...: what a region does with its two arguments; ``assign`` the second.

    Raises:
        Unmodelled: it is none of these.
    """
    names = [argument.name for argument in region.args]
    body = region.body
    if len(names) == 2 and body and body[-1].name.endswith(".return"):
        returned = body[-1].operands
        if len(body) == 1 and returned == names[1:]:
            return "assign"
        if (
            len(body) == 2
            and returned == body[0].results
            and sorted(body[0].operands) == sorted(names)
        ):
            return body[0].name.partition(".")[2]
    raise Unmodelled("a reduction that is not one op of its two arguments")


def _checked_reducer(node: Node, op: str, key: str = "kind") -> str:
    if len(node.regions) != 1:
        raise GraphgenError("GG0104", f"{node.name} needs one region")
    kind = reducer(node.regions[0])
    known = next(attr.choices for attr in OPS[op].attrs if attr.name == key)
    if kind not in known:
        raise Unmodelled(f"reducing with {kind}")
    return kind


def _reduce(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    if len(x) != 2:
        raise Unmodelled(f"a reduction of {len(x) // 2} operands at once")
    operand, init = x
    logical = _LOGICAL.get(reducer(node.regions[0]), "") if len(node.regions) == 1 else ""
    if logical and operand.dtype is pred:
        return [_reduce_logical(to, node, operand, init, logical)]
    kind = _checked_reducer(node, "reduce")
    found = to.emit("reduce", [operand], dimensions=_ints(node, "dimensions"), kind=kind)
    if _is_neutral(init, kind):
        to.idle(init)
        return [found]
    # What is not neutral takes part once for each result.
    whole = init
    if found.type.rank:
        whole = to.emit("broadcast_in_dim", [init], shape=found.shape, dimensions=())
    return [to.emit(kind, [found, whole])]


# What an "and" or an "or" of zeros and ones is.
_LOGICAL: Final[Mapping[str, str]] = {"and": "minimum", "or": "maximum"}


def _reduce_logical(to: Emit, node: Node, operand: Value, init: Value, kind: str) -> Value:
    """Whether all hold, or one does: by numbers, since only those are reduced here."""
    numbers = to.emit("convert", [operand], dtype=s32)
    found = to.emit("reduce", [numbers], dimensions=_ints(node, "dimensions"), kind=kind)
    zero = to.emit("constant", [], value=Literal.of(s32, 0))
    zeros = to.emit("broadcast_in_dim", [zero], shape=found.shape, dimensions=())
    holds = to.emit("compare", [found, zeros], direction="GT")
    whole = to.emit("broadcast_in_dim", [init], shape=found.shape, dimensions=())
    return to.emit("and" if kind == "minimum" else "or", [holds, whole])


def _is_neutral(init: Value, kind: str) -> bool:
    made = init.producer("constant")
    if made is None:
        return False
    literal = made.attrs.literal("value")
    if literal == neutral_element(kind, init.dtype):
        return True
    return kind == "add" and init.dtype.is_float and literal.values() == [0.0]


def _sort(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    """Ours keeps the order of equal elements, which others may leave to chance."""
    direction = _direction(node.regions[0], floats=x[0].dtype.is_float) if node.regions else ""
    if not direction:
        raise Unmodelled("a comparator that is more than LT or GT in total order")
    dimension = node.attrs.get("dimension", -1)
    axis = dimension if isinstance(dimension, int) else -1
    axis = axis if axis >= 0 else axis + x[0].type.rank
    return [*to.emit_all("sort", x, dimension=axis, descending=direction == "GT")]


def _direction(region: Region, *, floats: bool) -> str:
    """``LT`` or ``GT`` of the first two arguments; empty where it is anything else."""
    body, names = region.body, [argument.name for argument in region.args]
    if len(body) != 2 or body[0].name != "stablehlo.compare" or body[1].operands != body[0].results:
        return ""
    compare = body[0]
    direction = _word(compare.attrs.get("comparison_direction"))
    total = _word(compare.attrs.get("compare_type")) == "TOTALORDER"
    if direction not in ("LT", "GT") or (floats and not total):
        return ""
    turned = compare.operands == [names[1], names[0]]
    if compare.operands != names[:2] and not turned:
        return ""
    return {"LT": "GT", "GT": "LT"}[direction] if turned else direction


def _top_k(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    return [*to.emit_all("top_k", x, k=_integer(node, "k"))]


def _dimension_numbers(node: Node, key: str, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    fields = _fields(node, key)
    return {name: _field(fields, name) for name in names}


def _vector_dim(node: Node, key: str) -> int:
    value = _fields(node, key).get("index_vector_dim", 0)
    return value if isinstance(value, int) else 0


def _counted(
    to: Emit, indices: Value, vector: int, dims: Sequence[int], batching: Sequence[int]
) -> Value:
    """Index vectors that begin with their own places along ``dims``: batching, written out.

    The numbers go in front of the others in the order of ``batching``, what they are places in.
    """
    if not batching:
        return indices
    shape = [*indices.shape[:vector], 1, *indices.shape[vector + 1 :]]
    if vector == indices.type.rank:
        indices = to.emit("reshape", [indices], shape=tuple(shape))
    # What is told of are dimensions of the indices, whose vectors lie along one of them too.
    counts = [
        to.emit("iota", [], dtype=indices.dtype, shape=tuple(shape), dimension=dim) for dim in dims
    ]
    return to.emit("concatenate", [*counts, indices], dimension=vector)


def _gather(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    key, vector = "dimension_numbers", _vector_dim(node, "dimension_numbers")
    names = ("offset_dims", "collapsed_slice_dims", "start_index_map")
    names = (*names, "operand_batching_dims", "start_indices_batching_dims")
    offset, collapsed, starts, batching, dims = _dimension_numbers(node, key, names).values()
    attrs: dict[str, AttrValue] = {
        "offset_dims": offset,
        "collapsed_slice_dims": tuple(sorted((*collapsed, *batching))),
        "start_index_map": (*batching, *starts),
        "index_vector_dim": vector,
        "slice_sizes": _ints(node, "slice_sizes"),
    }
    return [to.emit("gather", [x[0], _counted(to, x[1], vector, dims, batching)], **attrs)]


def _scatter(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    if len(x) != 3:
        raise Unmodelled(f"a scatter of {len(x) // 2} operands at once")
    key, vector = "scatter_dimension_numbers", _vector_dim(node, "scatter_dimension_numbers")
    names = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    names = (*names, "input_batching_dims", "scatter_indices_batching_dims")
    window, inserted, starts, batching, dims = _dimension_numbers(node, key, names).values()
    attrs: dict[str, AttrValue] = {
        "update_window_dims": window,
        "inserted_window_dims": tuple(sorted((*inserted, *batching))),
        "scatter_dims_to_operand_dims": (*batching, *starts),
        "index_vector_dim": vector,
        "kind": _checked_reducer(node, "scatter"),
    }
    indices = _counted(to, x[1], vector, dims, batching)
    return [to.emit("scatter", [x[0], indices, x[2]], **attrs)]


def _dynamic_slice(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    return [to.emit("dynamic_slice", x, slice_sizes=_ints(node, "slice_sizes"))]


def replica_groups(node: Node) -> tuple[tuple[int, ...], ...]:
    """The groups of a collective; rows are filled up with -1."""
    return _ranks(node, "replica_groups")


def _ranks(node: Node, key: str) -> tuple[tuple[int, ...], ...]:
    value = node.attrs.get(key)
    flat = integers(value)
    if not isinstance(value, Dense) or flat is None:
        raise GraphgenError("GG0104", f"{node.name} needs '{key}'")
    rows, columns = read_tensor_type(value.type).dims
    flat = flat * (rows * columns) if len(flat) == 1 else flat
    groups = [flat[row * columns : (row + 1) * columns] for row in range(rows)]
    return tuple(tuple(rank for rank in group if rank >= 0) for group in groups)


def _all_reduce(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    kind, groups = _checked_reducer(node, "all_reduce"), replica_groups(node)
    return [to.emit("all_reduce", [value], kind=kind, replica_groups=groups) for value in x]


def _all_gather(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    dimension, groups = _integer(node, "all_gather_dim"), replica_groups(node)
    return [to.emit("all_gather", [v], dimension=dimension, replica_groups=groups) for v in x]


def _reduce_scatter(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    kind, groups = _checked_reducer(node, "reduce_scatter"), replica_groups(node)
    dimension = _integer(node, "scatter_dimension")
    attrs: dict[str, AttrValue] = {"kind": kind, "dimension": dimension}
    return [to.emit("reduce_scatter", x, **attrs, replica_groups=groups)]


def _all_to_all(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    keys = ("split_dimension", "concat_dimension")
    dims = {key: _integer(node, key) for key in keys}
    groups = replica_groups(node)
    return [to.emit("all_to_all", [value], **dims, replica_groups=groups) for value in x]


def _collective_permute(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    return [
        to.emit("collective_permute", x, source_target_pairs=_ranks(node, "source_target_pairs"))
    ]


def _rank(to: Emit, node: Node, x: Sequence[Value]) -> list[Value]:
    """``replica-id`` and ``partition-id``, under HLO's names."""
    opcode = node.name.partition(".")[2].replace("_", "-")
    return [to.emit("hlo.opaque", x, opcode=opcode, results=(_result(node),))]


_TABLE: Final[Mapping[str, Convert]] = {
    "chlo.square": _square,
    "stablehlo.constant": _constant,
    "stablehlo.iota": _iota,
    "stablehlo.compare": _compare,
    "stablehlo.convert": _convert,
    "stablehlo.bitcast_convert": _convert,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.reshape": _reshape,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.reverse": _reverse,
    "stablehlo.transpose": _transpose,
    "stablehlo.slice": _slice,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.pad": _pad,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dot": _dot,
    "stablehlo.reduce": _reduce,
    "stablehlo.sort": _sort,
    "chlo.top_k": _top_k,
    "stablehlo.gather": _gather,
    "stablehlo.scatter": _scatter,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.all_reduce": _all_reduce,
    "stablehlo.all_gather": _all_gather,
    "stablehlo.reduce_scatter": _reduce_scatter,
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_permute": _collective_permute,
    "stablehlo.partition_id": _rank,
    "stablehlo.replica_id": _rank,
}

"""What each op of PyHLO writes: those that are one op of the IR, or nearly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches

from graphgen.ir import Literal, Value
from graphgen.ir.dtype import pred
from graphgen.lowering.pyhlo.given import Given
from graphgen.lowering.pyhlo.literals import literal_of
from graphgen.lowering.pyhlo.scribe import Trace
from graphgen.lowering.pyhlo.shapes import Result, Shape, mistake

# (computation, stated result, operands, attributes) -> the values it makes, or a value as it is.
Write = Callable[[Trace, Shape, Sequence[Result], Given], "Sequence[Value] | Result"]


def _plain(name: str, count: int) -> Write:
    def write(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
        operands(a, x, count)
        return t.b.emit(name, [item.value for item in x]).results

    return write


def operands(a: Given, x: Sequence[Result], count: int) -> list[Value]:
    """The operands, of which there must be so many (GG0105)."""
    if len(x) != count:
        raise mistake("GG0105", f"{a.op} takes {count} operands, got {len(x)}")
    return [item.value for item in x]


def _parameter(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Result:
    return t.parameter(want, a.integer("parameter_number"))


def _constant(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    found: Literal = literal_of(want.dtype.element, a)
    return [t.b.op("constant", value=found)]


def _broadcast(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """Sizes are as they were: HLO stretches none."""
    (value,) = operands(a, x, 1)
    dims = a.integers("dimensions", ())
    for size, target in zip(value.shape, dims, strict=False):
        if 0 <= target < len(want.sizes) and want.sizes[target] != size:
            what = f"Broadcast: size {size} of {x[0].text} is not {want.sizes[target]}"
            raise mistake("GG0105", f"{what} (dimension {target} of {want.text})")
    return [t.b.broadcast_in_dim(value, want.sizes, dims)]


def _reshape(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    (value,) = operands(a, x, 1)
    return [t.b.op("reshape", value, shape=want.sizes)]


def _convert(name: str) -> Write:
    def write(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
        (value,) = operands(a, x, 1)
        return [t.b.op(name, value, dtype=want.dtype.element)]

    return write


def _compare(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    lhs, rhs = operands(a, x, 2)
    return [t.b.compare(lhs, rhs, a.text("comparison_direction"))]


def _iota(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    operands(a, x, 0)
    return [t.b.iota(want.dtype.element, want.sizes, only(a))]


def only(a: Given) -> int:
    """The one dimension of ``dimensions`` (GG0104)."""
    found = a.integers("dimensions")
    if len(found) != 1:
        raise mistake("GG0104", f"{a.op}: dimensions {list(found)} are not one")
    return found[0]


def _dot(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """The stated element type is the one sums are rounded to."""
    lhs, rhs = operands(a, x, 2)
    numbers = a.message("dot_dimension_numbers")
    contracting, batch = (
        (
            numbers.integers(f"lhs_{kind}_dimensions", ()),
            numbers.integers(f"rhs_{kind}_dimensions", ()),
        )
        for kind in ("contracting", "batch")
    )
    numbers.finish()
    return [t.b.dot_general(lhs, rhs, contracting, batch, want.dtype.element)]


def _transpose(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    (value,) = operands(a, x, 1)
    return [t.b.transpose(value, a.integers("dimensions"))]


def _concatenate(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    return [t.b.concatenate([item.value for item in x], only(a))]


def _slice(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    (value,) = operands(a, x, 1)
    ranges = a.messages("slice_dimensions")
    starts = tuple(item.integer("start", 0) for item in ranges)
    limits = tuple(item.integer("limit") for item in ranges)
    strides = tuple(item.integer("stride", 1) for item in ranges)
    kept = strides if any(stride != 1 for stride in strides) else ()
    return [t.b.op("slice", value, start_indices=starts, limit_indices=limits, strides=kept)]


def _dynamic_slice(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    first, *starts = [item.value for item in x]
    return [t.b.dynamic_slice(first, starts, a.integers("dynamic_slice_sizes"))]


def _dynamic_update_slice(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    return [t.b.op("dynamic_update_slice", *[item.value for item in x])]


def _reverse(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    (value,) = operands(a, x, 1)
    return [t.b.reverse(value, a.integers("dimensions"))]


def _gather(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    value, indices = operands(a, x, 2)
    numbers = a.message("gather_dimension_numbers")
    made = t.b.op(
        "gather",
        value,
        indices,
        offset_dims=numbers.integers("offset_dims", ()),
        collapsed_slice_dims=numbers.integers("collapsed_slice_dims", ()),
        start_index_map=numbers.integers("start_index_map"),
        index_vector_dim=numbers.integer("index_vector_dim", 0),
        slice_sizes=a.integers("gather_slice_sizes"),
    )
    numbers.finish()
    return [made]


def _tuple(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    return [value for item in x for value in item.values]


def _element(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    index = a.integer("tuple_index")
    if len(x) != 1 or not 0 <= index < len(x[0].members or ()):
        given = x[0].text if x else "nothing"
        raise mistake("GG0105", f"there is no element {index} in {given}")
    return [x[0].values[index]]


def _replica_id(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    return t.b.emit("hlo.opaque", (), {"opcode": "replica-id", "results": want.types}).results


def _copy(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    return operands(a, x, 1)


def _select(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """One truth value for all elements is one for each."""
    which, yes, no = operands(a, x, 3)
    if which.type.rank == 0 and which.dtype is pred and yes.type.rank:
        which = t.b.broadcast_in_dim(which, yes.shape, ())
    return [t.b.select(which, yes, no)]


# HLO's names in PyHLO's spelling, the IR's name and the number of operands.
_PLAIN = {
    "Add": ("add", 2), "Subtract": ("subtract", 2), "Multiply": ("multiply", 2),
    "Divide": ("divide", 2), "Maximum": ("maximum", 2), "Minimum": ("minimum", 2),
    "Remainder": ("remainder", 2), "Power": ("power", 2), "Atan2": ("atan2", 2),
    "And": ("and", 2), "Or": ("or", 2), "Xor": ("xor", 2), "ShiftLeft": ("shift_left", 2),
    "ShiftRightLogical": ("shift_right_logical", 2),
    "ShiftRightArithmetic": ("shift_right_arithmetic", 2),
    "Abs": ("abs", 1), "Exp": ("exponential", 1), "Expm1": ("exponential_minus_one", 1),
    "Log": ("log", 1), "Log1p": ("log_plus_one", 1), "Sqrt": ("sqrt", 1), "Rsqrt": ("rsqrt", 1),
    "Cbrt": ("cbrt", 1), "Sin": ("sine", 1), "Cos": ("cosine", 1), "Tan": ("tan", 1),
    "Tanh": ("tanh", 1), "Erf": ("erf", 1), "Floor": ("floor", 1), "Ceil": ("ceil", 1),
    "Logistic": ("logistic", 1), "Not": ("not", 1), "Negate": ("negate", 1), "Sign": ("sign", 1),
    "IsFinite": ("is_finite", 1), "RoundNearestEven": ("round_nearest_even", 1),
    "RoundNearestAfz": ("round_nearest_afz", 1), "Popcnt": ("popcnt", 1),
    "CountLeadingZeros": ("count_leading_zeros", 1), "Clamp": ("clamp", 3),
}  # fmt: skip
_TABLE: dict[str, Write] = {
    **{name: _plain(*how) for name, how in _PLAIN.items()},
    "Parameter": _parameter,
    "Constant": _constant,
    "Broadcast": _broadcast,
    "Reshape": _reshape,
    "Convert": _convert("convert"),
    "BitcastConvert": _convert("bitcast_convert"),
    "Compare": _compare,
    "Select": _select,
    "Iota": _iota,
    "Dot": _dot,
    "Transpose": _transpose,
    "Concatenate": _concatenate,
    "Slice": _slice,
    "DynamicSlice": _dynamic_slice,
    "DynamicUpdateSlice": _dynamic_update_slice,
    "Reverse": _reverse,
    "Gather": _gather,
    "Tuple": _tuple,
    "GetTupleElement": _element,
    "ReplicaId": _replica_id,
    "Copy": _copy,
}


def table() -> dict[str, Write]:
    """Every op there is, by PyHLO's name."""
    from graphgen.lowering.pyhlo.collectives import COLLECTIVES
    from graphgen.lowering.pyhlo.composed import COMPOSED
    from graphgen.lowering.pyhlo.control import CONTROL
    from graphgen.lowering.pyhlo.regions import REGIONS

    return {**_TABLE, **REGIONS, **COLLECTIVES, **COMPOSED, **CONTROL}


def written(name: str) -> Write:
    """How an op is written (GG0103 with the nearest names)."""
    known = table()
    found = known.get(name)
    if found is None:
        near = get_close_matches(name, known, n=3)
        wanted = f"did you mean {' or '.join(near)}?" if near else "see the ops of PyHLO"
        raise mistake("GG0103", f"PyHLO has no op '{name}'", help=wanted)
    return found

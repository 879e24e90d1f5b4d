"""Sorting by the one kernel that puts elements in order: ``AwsNeuronTopK``.

trn2 and trn3 refuse to sort (NCC_EVRF029). The kernel gives the k largest floats of each row, the
first of equal ones first; with k of a whole row that is a stable sort. Integers of 32 bits are
sorted by their lower halves and then by their upper ones, which floats hold exactly; those whose
bounds are known, as ids of experts and places, in one go, also where they have 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from graphgen.build import Builder
from graphgen.composites.top_k import top_k
from graphgen.ir import Attrs, Op, Value, tensor
from graphgen.ir.dtype import bf16, f16, f32, highest, lowest, pred, s32, u32
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.legalize.limb_arithmetic import digits

# The least and the largest element; ``None`` where nothing is known.
Bounds = tuple[int, int] | None
_Of = Callable[[Value], Bounds]
_Rule = Callable[[Op, _Of], Bounds]
_RULES: dict[str, _Rule] = {}
# The longest chain of ops, and the most elements of a constant, that are looked at.
_DEPTH, _MOST = 32, 4096


def integer_bounds(value: Value) -> Bounds:
    """Find the least and the largest element that a value of integers may have."""
    known: dict[Value, Bounds] = {}

    def bounds(value: Value, depth: int) -> Bounds:
        if value not in known:
            found = _found(value, lambda inner: bounds(inner, depth - 1)) if depth else None
            known[value] = found if found is not None and _fit(value, found) else None
        return known[value]

    return bounds(value, _DEPTH)


def _found(value: Value, of: _Of) -> Bounds:
    op = value.op
    if op is None or not (value.dtype.is_integer or value.dtype is pred):
        return None
    if op.name == "sort" or (op.name == "top_k" and value.index == 0):
        return of(op.operands[value.index])
    if op.name == "top_k":
        size = op.operands[0].shape[-1]
        return (0, size - 1) if isinstance(size, int) else None
    return _RULES[op.name](op, of) if op.name in _RULES else None


def _fit(value: Value, found: tuple[int, int]) -> bool:
    """Test whether no number wraps around in the value's type."""
    return lowest(value.dtype) <= found[0] and found[1] <= highest(value.dtype)


def _rule(*names: str) -> Callable[[_Rule], _Rule]:
    def enter(rule: _Rule) -> _Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return enter


@_rule("constant")
def _constant(op: Op, of: _Of) -> Bounds:
    literal = op.attrs.literal("value")
    size = op.result.type.size
    if not isinstance(size, int) or not 0 < size <= _MOST:
        return None
    numbers = [int(number) for number in literal.values()]
    return min(numbers), max(numbers)


@_rule("iota")
def _iota(op: Op, of: _Of) -> Bounds:
    size = op.result.shape[op.attrs.integer("dimension")]
    return (0, max(0, size - 1)) if isinstance(size, int) else None


@_rule("reshape", "transpose", "broadcast_in_dim", "slice", "dynamic_slice", "gather", "reverse")
def _moved_bounds(op: Op, of: _Of) -> Bounds:
    return of(op.operands[0])


@_rule("reduce")
def _reduced(op: Op, of: _Of) -> Bounds:
    # Of nothing, it would be the least or the largest number of the type.
    empty = 0 in op.operands[0].shape
    extreme = op.attrs.text("kind") in ("maximum", "minimum") and not empty
    return of(op.operands[0]) if extreme else None


@_rule("convert")
def _converted(op: Op, of: _Of) -> Bounds:
    (source,) = op.operands
    return (0, 1) if source.dtype is pred else of(source)


@_rule("concatenate", "pad", "select")
def _any_of(op: Op, of: _Of) -> Bounds:
    values = op.operands[1:] if op.name == "select" else op.operands
    return _union([of(value) for value in values])


def _union(found: list[Bounds]) -> Bounds:
    known = [bounds for bounds in found if bounds is not None]
    if not known or len(known) < len(found):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


@_rule("minimum", "maximum")
def _extreme(op: Op, of: _Of) -> Bounds:
    a, b = (of(value) for value in op.operands)
    if a is None or b is None:
        return None
    pick = min if op.name == "minimum" else max
    return pick(a[0], b[0]), pick(a[1], b[1])


@_rule("add", "subtract", "multiply")
def _combined(op: Op, of: _Of) -> Bounds:
    a, b = (of(value) for value in op.operands)
    if a is None or b is None:
        return None
    if op.name == "subtract":
        return a[0] - b[1], a[1] - b[0]
    if op.name == "add":
        return a[0] + b[0], a[1] + b[1]
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


@_rule("clamp")
def _clamped(op: Op, of: _Of) -> Bounds:
    low, _, high = (of(value) for value in op.operands)
    return (low[0], high[1]) if low is not None and high is not None else None


@_rule("remainder")
def _rest(op: Op, of: _Of) -> Bounds:
    """Remainder of a divisor that is not zero: smaller, and with the dividend's sign."""
    given, divisor = (of(value) for value in op.operands)
    if given is None or divisor is None or divisor[0] <= 0:
        return None
    most = divisor[1] - 1
    return max(min(given[0], 0), -most), min(max(given[1], 0), most)


TARGET = "AwsNeuronTopK"
# The kernel reads rows of a multiple of this many elements.
ROW = 8
FLOATS = (f32, bf16, f16)
# Bits that an f32 holds of an integer, sign included.
_HALF = 16


def kernel(b: Builder, x: Value, k: int) -> tuple[Value, Value]:
    """The ``k`` largest of each row of floats [..., N], and their places, s32."""
    missing = -x.type.dims[-1] % ROW
    if missing:
        # Sorts after every other element, infinities included.
        least = float("-inf") if x.dtype in FLOATS else lowest(x.dtype)
        sides = [0] * x.type.rank
        x = b.pad(x, b.literal(least, x.dtype), sides, [*sides[1:], missing])
    shape = (*x.shape[:-1], k)
    results = [tensor(x.dtype, shape), tensor(u32, shape)]
    values, places = b.custom_call(TARGET, [x], results, str(k))
    return values, b.convert(places, s32)


def _keys(b: Builder, x: Value, *, descending: bool) -> list[Value]:
    """Floats whose order is that of ``x``, the largest first, from the least important on."""
    if x.dtype in FLOATS:
        found = [x]
    elif _exact(x):
        found = [b.convert(x, f32)]
    else:
        parts = digits(b, x if x.dtype.bits <= 2 * _HALF else b.convert(x, s32), _HALF, signed=True)
        found = [b.convert(part, f32) for part in parts]
    return found if descending else [b.unary("negate", key) for key in found]


def _exact(x: Value) -> bool:
    """Test whether an f32 holds every integer of ``x``."""
    return x.dtype.bits <= _HALF or _within(x, 1 << 24)


def _within(x: Value, most: int) -> bool:
    """Test whether ``-most <= x < most``, as the ops that make it show."""
    found = integer_bounds(x)
    return found is not None and -most <= found[0] and found[1] < most


def _along(b: Builder, x: Value, places: Value) -> Value:
    """Elements of each row of [..., N] at ``places`` [..., K], s32."""
    *outer, size = x.type.dims
    rows = prod(outer)
    flat = b.reshape(places, (rows, places.type.dims[-1]))
    at = b.binary("add", flat, b.binary("multiply", b.iota(s32, flat.shape, 0), size))
    found = b.op(
        "gather",
        b.reshape(x, (rows * size,)),
        b.reshape(at, (rows * places.type.dims[-1], 1)),
        offset_dims=(),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1,),
    )
    return b.reshape(found, places.shape)


def in_order(b: Builder, x: Value, k: int, *, descending: bool) -> tuple[Value, Value]:
    """The first ``k`` of each row after a stable sort along the last dimension; their places, s32.

    Args:
        b: makes the ops.
        x: what is sorted; see :func:`in_reach`.
        k: how many.
        descending: the largest first.
    """
    *halves, last = _keys(b, x, descending=descending)
    places: Value | None = None
    for key in halves:
        _, found = kernel(b, key if places is None else _along(b, key, places), x.type.dims[-1])
        places = found if places is None else _along(b, places, found)
    values, found = kernel(b, last if places is None else _along(b, last, places), k)
    places = found if places is None else _along(b, places, found)
    if x.dtype not in FLOATS and not _exact(x):
        return _along(b, x, places), places
    return b.convert(values if descending else b.unary("negate", values), x.dtype), places


def _permuted(b: Builder, x: Value, places: Value) -> Value:
    """Another operand of the sort in the order of ``places``."""
    return b.convert(places, x.dtype) if _counts(x) else _along(b, x, places)


def _counts(x: Value) -> bool:
    """True for 0, 1, 2, ... along the last dimension: then the places are the values."""
    iota = x.producer("iota")
    return iota is not None and iota.attrs.integer("dimension") == x.type.rank - 1


def in_reach(key: Value) -> bool:
    """True if the kernel can sort rows of this type."""
    kind, dims = key.dtype, key.type.dims
    ordered = kind in FLOATS or (kind.is_integer and 8 <= kind.bits <= 2 * _HALF)
    ordered = ordered or (kind.is_integer and _within(key, 1 << 31))
    return ordered and 0 < prod(dims[:-1]) * dims[-1] < (1 << 31)


def top_k_by_kernel(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """``AwsNeuronTopK`` on rows padded to a multiple of 8; integers by sorting (NCC_EVRF013)."""
    if operands[0].dtype not in FLOATS:
        return top_k(b, operands, attrs)
    return top_k_without_sort(b, operands, attrs)


def top_k_without_sort(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """``AwsNeuronTopK`` on targets that refuse ``sort`` (NCC_EVRF029): integers by their halves."""
    (x,), k = operands, attrs.integer("k")
    if not k or not in_reach(x):
        return top_k(b, operands, attrs)
    return in_order(b, x, k, descending=True)


def _front(op: Op) -> int:
    """Number of leading elements of each row that a slice reads; 0 for any other slice."""
    axis = op.operands[0].type.rank - 1
    starts, strides = op.attrs.integers("start_indices"), op.attrs.integers("strides")
    whole = all(
        limit == size
        for limit, size in zip(
            op.attrs.integers("limit_indices")[:axis], op.operands[0].type.dims, strict=False
        )
    )
    plain = not any(starts) and all(stride == 1 for stride in strides) and whole
    return op.attrs.integers("limit_indices")[axis] if plain else 0


@rule("slice")
def front_of_sort(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """The first k of a sort are the kernel's k largest (of the negated ones, if ascending).

    Given:
        arg %x : f32[4,16]
        %s = sort(%x) dimension=1 descending=true : f32[4,16]
        %y = slice(%s) start_indices=[0,0] limit_indices=[4,2] strides=[1,1] : f32[4,2]

    Result:
        arg %x : f32[4,16]
        %s = sort(%x) dimension=1 descending=true : f32[4,16]
        %y, %0 = custom_call(%x) target="AwsNeuronTopK" config="2" results=[f32[4,2],u32[4,2]] : \
f32[4,2], u32[4,2]
        %1 = convert(%0) dtype=s32 : s32[4,2]
    """
    value = op.operands[0]
    sort = value.producer("sort")
    if sort is None:
        return no_match("its operand is not sorted", value)
    key = sort.operands[0]
    if sort.attrs.integer("dimension") != key.type.rank - 1 or not in_reach(key):
        return no_match(
            f"{key.type.text} is not sorted along the last dimension by the kernel", key, depth=2
        )
    k = _front(op)
    if not k:
        return no_match("it is not the front of each row", value, depth=3)
    values, places = in_order(b, key, k, descending=bool(sort.attrs["descending"]))
    return [values if value.index == 0 else _permuted(b, sort.operands[value.index], places)]


@rule("sort")
def sort_by_kernel(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A sort that is read as a whole takes as many of each row as there are."""
    readers = [user for result in op.results for user in result.users]
    if readers and all(user.name == "slice" and _front(user) for user in readers):
        return no_match("only the front of each row is read")
    axis = op.attrs.integer("dimension")
    rank, size = op.operands[0].type.rank, op.operands[0].type.dims[axis]
    if axis != rank - 1:
        order = [dim for dim in range(rank) if dim != axis] + [axis]
        turned = [b.transpose(x, order) for x in op.operands]
        made = b.emit("sort", turned, {**op.attrs, "dimension": rank - 1})
        back = [order.index(dim) for dim in range(rank)]
        return [b.transpose(value, back) for value in made.results]
    if not in_reach(op.operands[0]):
        return no_match(
            f"the kernel has no form for {op.operands[0].type.text}", op.operands[0], depth=2
        )
    key, *others = op.operands
    values, places = in_order(b, key, size, descending=bool(op.attrs["descending"]))
    return [values, *[_permuted(b, other, places) for other in others]]

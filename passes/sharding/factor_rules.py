"""The factors of each simple op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import gcd

from graphgen.ir import Attrs, Dim
from graphgen.ir.dims import product
from graphgen.ops.bits import COUNTS, LOGIC, SHIFTS
from graphgen.ops.elementwise import BINARY, UNARY_FLOAT, UNARY_SIGNED
from graphgen.passes.sharding.factors import (
    DimFactors,
    Factors,
    Table,
    Types,
    ValueFactors,
    together,
)

Rule = Callable[[Types, Types, Attrs], Factors]

# Kinds of reduction that have a collective.
COMBINES = ("add", "maximum", "minimum")


def _linear(rule: Rule, *sets: Sequence[int]) -> Rule:
    """The rule of an op that is linear in each of these sets of operands."""

    def with_sets(operands: Types, results: Types, attrs: Attrs) -> Factors:
        found = tuple(frozenset(item) for item in sets)
        return replace(rule(operands, results, attrs), linear=found)

    return with_sets


def _divide(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """A quotient of integers is cut off, so a sum of quotients is not the quotient of the sum."""
    found = together(operands, results, attrs)
    return replace(found, linear=(frozenset((0,)),)) if results[0].dtype.is_float else found


def _convert(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """A sum may be taken after making floats wider, but not after rounding each part."""
    found = together(operands, results, attrs)
    old, new = operands[0].dtype, results[0].dtype
    wider = old.is_float and new.is_float and new.bits > old.bits
    return replace(found, linear=(frozenset((0,)),)) if wider else found


def _bitcast(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """A dimension that holds the parts of one element is whole."""
    table = Table()
    shared = table.of(min(operands[0], results[0], key=lambda type_: type_.rank))
    return Factors(
        tuple(table.sizes),
        (_widened(shared, operands[0].rank),),
        (_widened(shared, results[0].rank),),
    )


def _widened(dims: ValueFactors, rank: int) -> ValueFactors:
    return (*dims, *[()] * (rank - len(dims)))


def _broadcast(operands: Types, results: Types, attrs: Attrs) -> Factors:
    table = Table()
    shown = table.of(results[0])
    pairs = zip(operands[0].shape, attrs.integers("dimensions"), strict=True)
    operand = tuple(
        shown[target] if size == results[0].shape[target] else () for size, target in pairs
    )
    return Factors(tuple(table.sizes), (operand,), (shown,))


def _transpose(operands: Types, results: Types, attrs: Attrs) -> Factors:
    table = Table()
    dims = table.of(operands[0])
    turned = tuple(dims[dim] for dim in attrs.integers("permutation"))
    return Factors(tuple(table.sizes), (dims,), (turned,))


def _reshape(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Dimensions that are merged or taken apart share their outermost common parts."""
    table = Table()
    old, new = operands[0].shape, results[0].shape
    left: list[DimFactors] = [()] * len(old)
    right: list[DimFactors] = [()] * len(new)
    for olds, news in _groups(old, new):
        for i, j, size in _common(old, new, olds, news):
            number = table.new(size)
            left[i] += (number,)
            right[j] += (number,)
    return Factors(tuple(table.sizes), (tuple(left),), (tuple(right),))


def _groups(old: Sequence[Dim], new: Sequence[Dim]) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions on both sides that have equally many elements."""
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        olds, news = [i], [j]
        i, j = i + 1, j + 1
        left, right = old[olds[0]], new[news[0]]
        while left != right and (i < len(old) or j < len(new)):
            # Sizes that cannot be compared are joined to the end of the shape.
            grows_left = isinstance(left, int) and isinstance(right, int) and left < right
            if j >= len(new) or (grows_left and i < len(old)):
                olds.append(i)
                left, i = left * old[i], i + 1
            else:
                news.append(j)
                right, j = right * new[j], j + 1
        found.append((olds, news))
    return found


def _common(
    old: Sequence[Dim], new: Sequence[Dim], olds: list[int], news: list[int]
) -> list[tuple[int, int, Dim]]:
    """The shared parts of one run, the outermost first: which dims share it, and its size."""
    if len(olds) == len(news) == 1:
        return [(olds[0], news[0], old[olds[0]])]
    out: list[tuple[int, int, Dim]] = []
    left = [(i, size) for i in olds if isinstance(size := old[i], int) and size > 1]
    right = [(j, size) for j in news if isinstance(size := new[j], int) and size > 1]
    if product(size for _, size in left) != product(old[i] for i in olds):
        return []
    while left and right:
        (i, a), (j, b) = left[0], right[0]
        shared = gcd(a, b)
        if shared == 1:
            break
        out.append((i, j, shared))
        left = ([(i, a // shared)] if a > shared else []) + left[1:]
        right = ([(j, b // shared)] if b > shared else []) + right[1:]
    return out


def _slice(operands: Types, results: Types, attrs: Attrs) -> Factors:
    strides = attrs.integers("strides") or (1,) * operands[0].rank
    bounds = zip(attrs.dims("start_indices"), attrs.dims("limit_indices"), strides, strict=True)
    whole = [
        start == 0 and limit == size and stride == 1
        for size, (start, limit, stride) in zip(operands[0].shape, bounds, strict=True)
    ]
    return _untouched(operands, results, whole)


def _untouched(operands: Types, results: Types, kept: Sequence[bool]) -> Factors:
    """Dimensions that are passed on as they are can be cut; the others are whole."""
    table = Table()
    dims = tuple(
        (table.new(size),) if keep else ()
        for size, keep in zip(operands[0].shape, kept, strict=True)
    )
    # Scalars, such as starts and the value of a padding, have no dimension to cut.
    others = tuple(((),) * type_.rank for type_ in operands[1:])
    return Factors(tuple(table.sizes), (dims, *others), (dims,))


def _pad(operands: Types, results: Types, attrs: Attrs) -> Factors:
    pairs = zip(attrs.integers("low"), attrs.integers("high"), strict=True)
    return _untouched(operands, results, [low == high == 0 for low, high in pairs])


def _dynamic_slice(operands: Types, results: Types, attrs: Attrs) -> Factors:
    pairs = zip(operands[0].shape, results[0].shape, strict=True)
    return _untouched(operands, results, [size == whole for size, whole in pairs])


def _dynamic_update_slice(operands: Types, results: Types, attrs: Attrs) -> Factors:
    pairs = zip(operands[0].shape, operands[1].shape, strict=True)
    found = _untouched(operands, results, [size == whole for size, whole in pairs])
    return replace(found, operands=(found.operands[0], found.operands[0], *found.operands[2:]))


def _concatenate(operands: Types, results: Types, attrs: Attrs) -> Factors:
    axis = attrs.integer("dimension")
    found = _untouched(results, results, [dim != axis for dim in range(results[0].rank)])
    every = frozenset(range(len(operands)))
    return replace(found, operands=found.results * len(operands), linear=(every,))


def _take(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """What is taken lies as it would have lain untaken, but no rank can take from a part."""
    axis = attrs.integer("dimension")
    table = Table()
    dims = table.of(operands[0])
    factors = Factors(tuple(table.sizes), (dims, ((),)), (dims,), fixed=frozenset(dims[axis]))
    return replace(factors, linear=(frozenset((0,)),))


def _reverse(operands: Types, results: Types, attrs: Attrs) -> Factors:
    turned = attrs.integers("dimensions")
    return _untouched(operands, results, [dim not in turned for dim in range(results[0].rank)])


def _sort(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Lines are put in order each by itself; a line is whole."""
    table = Table()
    dims = table.of(operands[0])
    every = (dims,) * len(operands)
    fixed = frozenset(dims[attrs.integer("dimension")])
    return Factors(tuple(table.sizes), every, every, fixed=fixed)


def _dot_general(operands: Types, results: Types, attrs: Attrs) -> Factors:
    table = Table()
    left = list(table.of(operands[0]))
    right: list[DimFactors] = [()] * operands[1].rank
    for kind in ("batch", "contracting"):
        for i, j in zip(
            attrs.integers(f"lhs_{kind}_dims"), attrs.integers(f"rhs_{kind}_dims"), strict=True
        ):
            right[j] = left[i]
    summed = attrs.integers("lhs_contracting_dims")
    paired = {*attrs.integers("rhs_batch_dims"), *attrs.integers("rhs_contracting_dims")}
    batch = attrs.integers("lhs_batch_dims")
    for j, size in enumerate(operands[1].shape):
        if j not in paired:
            right[j] = (table.new(size),)
    result = [left[i] for i in batch]
    result += [dims for i, dims in enumerate(left) if i not in batch and i not in summed]
    result += [dims for j, dims in enumerate(right) if j not in paired]
    return Factors(
        tuple(table.sizes),
        (tuple(left), tuple(right)),
        (tuple(result),),
        {left[i][0]: "add" for i in summed},
        (frozenset((0,)), frozenset((1,))),
    )


def _reduce(operands: Types, results: Types, attrs: Attrs) -> Factors:
    table = Table()
    gone, kind = attrs.integers("dimensions"), attrs.text("kind")
    dims = table.of(operands[0])
    left = tuple(cut for i, cut in enumerate(dims) if i not in gone)
    over = [dims[i][0] for i in gone]
    if kind not in COMBINES:
        return Factors(tuple(table.sizes), (tuple(dims),), (left,), fixed=frozenset(over))
    linear = (frozenset((0,)),) if kind == "add" else ()
    reduced = dict.fromkeys(over, kind)
    return Factors(tuple(table.sizes), (tuple(dims),), (left,), reduced, linear)


def _iota(operands: Types, results: Types, attrs: Attrs) -> Factors:
    counted = attrs.integer("dimension")
    found = _untouched(results, results, [dim != counted for dim in range(results[0].rank)])
    return replace(found, operands=())


def _gather(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Whole windows, and the places the indices are for."""
    table = Table()
    sizes, offset = attrs.dims("slice_sizes"), attrs.integers("offset_dims")
    looked_up, vector = attrs.integers("start_index_map"), attrs.integer("index_vector_dim")
    result: list[DimFactors] = [()] * results[0].rank
    operand: list[DimFactors] = [()] * operands[0].rank
    window = [i for i in range(operands[0].rank) if i not in attrs.integers("collapsed_slice_dims")]
    for i, target in zip(window, offset, strict=True):
        if sizes[i] == operands[0].shape[i] and i not in looked_up:
            operand[i] = result[target] = (table.new(sizes[i]),)
    indices: list[DimFactors] = [()] * operands[1].rank
    places = iter([target for target in range(results[0].rank) if target not in offset])
    for i, size in enumerate(operands[1].shape):
        if i != vector:
            indices[i] = result[next(places)] = (table.new(size),)
    return Factors(
        tuple(table.sizes),
        (tuple(operand), tuple(indices)),
        (tuple(result),),
        linear=(frozenset((0,)),),
    )


def _scatter(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Whole windows; which window is written where concerns every rank."""
    table = Table()
    target, updates = operands[0], operands[2]
    inserted = attrs.integers("inserted_window_dims")
    placed = attrs.integers("scatter_dims_to_operand_dims")
    into: list[DimFactors] = [()] * target.rank
    written: list[DimFactors] = [()] * updates.rank
    window = [i for i in range(target.rank) if i not in inserted]
    for i, j in zip(window, attrs.integers("update_window_dims"), strict=True):
        if target.shape[i] == updates.shape[j] and i not in placed:
            into[i] = written[j] = (table.new(target.shape[i]),)
    indices = ((),) * operands[1].rank
    return Factors(tuple(table.sizes), (tuple(into), indices, tuple(written)), (tuple(into),))


# Each result element comes from the operand elements at the same place.
ELEMENTWISE = (
    *(*UNARY_FLOAT, *UNARY_SIGNED, *BINARY, *LOGIC, *SHIFTS, *COUNTS),
    *("atan2", "clamp", "compare", "is_finite", "not", "reduce_precision"),
)
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, together),
    "add": _linear(together, (0, 1)),
    "subtract": _linear(together, (0, 1)),
    "multiply": _linear(together, (0,), (1,)),
    "negate": _linear(together, (0,)),
    "select": _linear(together, (1, 2)),
    "divide": _divide,
    "convert": _convert,
    "bitcast_convert": _bitcast,
    "broadcast_in_dim": _linear(_broadcast, (0,)),
    "transpose": _linear(_transpose, (0,)),
    "reshape": _linear(_reshape, (0,)),
    "slice": _linear(_slice, (0,)),
    "pad": _pad,
    "dynamic_slice": _linear(_dynamic_slice, (0,)),
    "dynamic_update_slice": _linear(_dynamic_update_slice, (0, 1)),
    "concatenate": _concatenate,
    "take": _take,
    "reverse": _linear(_reverse, (0,)),
    "dot_general": _dot_general,
    "reduce": _reduce,
    "sort": _sort,
    "iota": _iota,
    "gather": _gather,
    "scatter": _scatter,
}

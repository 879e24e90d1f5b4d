"""Raise rope: pairs of elements of each head, turned by cosines and sines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import f32, f64
from graphgen.ops import Trait, has_trait
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.raising.attention_dims import head_dims
from graphgen.passes.raising.matchers import placed
from graphgen.passes.raising.pattern_rule import ROW, Found, PatternRule, derived
from graphgen.pattern import OpPattern, apply, match_rule, variables
from graphgen.pattern.see_through import At, peeled, plain, through

HALVES, NEIGHBORS = "halves", "neighbors"


@dataclass(frozen=True, slots=True)
class _Part:
    """Elements of one dimension of ``base``: ``count`` of them from ``start``, by ``step``.

    Attributes:
        at: the dimensions of ``base`` in the root's.
        dim: the dimension of the elements.
        paired: the dimension after it is two, of neighbors; they count as one.
    """

    base: Value
    at: At
    dim: int
    start: int
    count: int
    step: int = 1
    paired: bool = False

    def built(self, b: Builder) -> Value:
        """Build the elements of a part whose step is 1."""
        x, count = self.base, self.count
        if self.paired:
            return b.reshape(x, (*x.shape[:-2], count))
        whole = count == x.shape[self.dim]
        return x if whole else b.slice_dim(x, self.dim, self.start, self.start + count)


def _part_of(value: Value, at: At, place: int | None) -> _Part | None:
    """Match slices along the dimension at this place of the root; a value is all of itself."""
    value, at = peeled(value, at)
    dim = at.index(place) if place is not None and place in at else -1
    size = value.shape[dim] if dim >= 0 else None
    if not isinstance(size, int):
        return None
    op, own = value.producer("slice"), _Part(value, at, dim, 0, size)
    (x,), strides = (
        (op.operands, op.attrs.integers("strides")) if op is not None else ((value,), ())
    )
    cut = [i for i, n in enumerate(x.shape) if n != value.shape[i]]
    if cut == [dim]:
        whole, step = _part_of(x, at, place), strides[dim] if strides else 1
    elif cut == [dim + 1] and x.shape[dim:] == (size, 2):
        # Of neighbors along a dimension of two, as complex numbers are taken apart.
        split, step = x.producer("reshape"), 2
        before = split.operands[0] if split is not None else x
        if before.shape == (*x.shape[:dim], 2 * size):
            whole = _part_of(before, at[:-1], place)
        else:
            whole = _Part(x, at[:-1], dim, 0, 2 * size, paired=True)
    else:
        return own
    start = op.attrs.dims("start_indices")[cut[0]] if op is not None else None
    if whole is None or whole.step != 1 or not isinstance(start, int):
        return own
    return replace(whole, start=whole.start + start, count=size, step=step)


def _pair(found: Found) -> tuple[_Part, str, int, str] | None:
    """Match two parts of a value that are joined.

    Returns:
        The part that they are, how it was cut, the dimension of the root that counts elements, and
        how they are joined; ``None`` for others.
    """
    dim, last = found.root.attrs.integer("dimension"), found.root.result.type.rank - 1
    places = found.places("first part")
    place, joined = (dim, HALVES) if dim in places else (last - 1, NEIGHBORS)
    first, second = (
        _part_of(*found.operand(f"{name} part"), place) for name in ("first", "second")
    )
    if first is None or second is None or (joined == NEIGHBORS and dim != last):
        return None
    apart = {1: first.count, 2: 1}.get(first.step)
    if apart is None or replace(first, start=first.start + apart) != second:
        return None
    cut = HALVES if first.step == 1 else NEIGHBORS
    return replace(first, count=2 * first.count, step=1), cut, place, joined


def _followed_by(first: _Part, rest: _Part | None) -> _Part | None:
    """Match a part and what follows it: both as one."""
    count = first.count + (rest.count if rest is not None else 0)
    start = first.start + first.count
    follows = rest == replace(first, start=start, count=count - first.count)
    return replace(first, count=count) if follows and first.step == 1 else None


def _turned(found: Found, b: Builder) -> Value | NoMatch:
    """Build the rope of two parts that are joined as they were cut, or of neighbors as halves."""
    pair = _pair(found)
    if pair is None or pair[1::2] == (HALVES, NEIGHBORS):
        return no_match("the parts are joined in another way than they were cut", found.root.result)
    part, cut, place, joined = pair
    whole, last = part, found.root.attrs.integer("dimension")
    if "third part" in found.bound.values:
        rest = _part_of(*found.operand("third part"), place)
        whole = _followed_by(part, rest) if cut == joined else None
        if whole is None:
            return no_match("the parts do not follow one another", found.root.result, depth=2)
    x, at = whole.built(b), part.at
    if cut != joined:
        # Neighbors whose halves are joined (DeepSeek): a rope of them side by side.
        (first, at), (second, other) = map(found.operand, ("first part", "second part"))
        second = placed(b, second, other, at, first.shape)
        x = b.concatenate([first, second], at.index(place))
    tables = [found.operand(name) for name in ("cos", "sin")]
    outer = [dim for dim in range(found.root.result.type.rank) if dim not in (place, last)]
    return _rope(found, b, (x, at), tables, (*outer, place), (joined, part.count // 2))


def _of_rotated(found: Found, b: Builder) -> Value | NoMatch:
    """Build the rope of a value and its turn by a quarter, with tables of equal pairs."""
    pair = _rotation(*found.operand("rotated"))
    if pair is None:
        return NoMatch("no term is the other's value turned by a quarter", found.root.result)
    part, pairs, place = pair
    if _part_of(*found.operand("operand"), place) != part:
        reason = "the rotated value differs from the one that is not rotated"
        return no_match(reason, found.value("rotated"))
    tables: list[tuple[Value, At]] = []
    for table, at in map(found.operand, ("cos", "sin")):
        if place in at and not _has_equal_pairs(table, at.index(place), pairs):
            return no_match("the halves of a table are not known to be equal", table, depth=2)
        tables.append((_half(b, table, at.index(place), pairs) if place in at else table, at))
    outer = [dim for dim in range(found.root.result.type.rank) if dim != place]
    turned = pairs, part.count // 2
    return _rope(found, b, (part.built(b), part.at), tables, (*outer, place), turned)


def _rotation(value: Value, at: At) -> tuple[_Part, str, int] | None:
    """Match -b joined with a, of a part whose pairs are (a, b): it, what they are, and where."""
    stacked = value.producer("reshape")
    op = plain(stacked.operands[0] if stacked is not None else value).producer("concatenate")
    if op is None:
        return None
    for bound in match_rule(op, _QUARTER)[0]:
        part, cut, dim, joined = _pair(Found(op, bound)) or (None, "", 0, "")
        place, outer, rest = at[dim], value.shape[:dim], value.shape[dim + 1 :]
        if part is None or cut != joined or place is None:
            continue
        twice = (part.count // 2, 2) if cut == NEIGHBORS else (part.count,)
        if op.result.shape == (*outer, *twice, *rest):
            own = [None if each is None else at[each] for each in part.at]
            return replace(part, at=tuple(own)), cut, place
    return None


def _half(b: Builder, table: Value, dim: int, pairs: str) -> Value:
    """One of each pair of equal elements."""
    *outer, size = table.shape[: dim + 1]
    assert isinstance(size, int)
    if pairs == HALVES:
        return b.slice_dim(table, dim, 0, size // 2)
    rest = table.shape[dim + 1 :]
    stacked = b.reshape(table, (*outer, size // 2, 2, *rest))
    return b.reshape(b.slice_dim(stacked, dim + 1, 0, 1), (*outer, size // 2, *rest))


def _has_equal_pairs(value: Value, dim: int, pairs: str) -> bool:
    """Test whether ``value`` is an elementwise function of pairs of equal elements."""
    op = value.op
    if op is None or _is_doubled(op, dim, pairs):
        return op is not None
    inner = through(op, tuple(range(value.type.rank)))
    if inner is not None:
        source, at = inner
        return dim not in at or _has_equal_pairs(source, at.index(dim), pairs)
    known = [_has_equal_pairs(operand, dim, pairs) for operand in op.operands]
    return has_trait(op, Trait.ELEMENTWISE) and all(known)


def _is_doubled(op: Op, dim: int, pairs: str) -> bool:
    """Test whether a value is (x, x) along a dimension, or each element of x twice."""
    if op.name == "reshape":
        *outer, size = op.result.shape[: dim + 1]
        assert isinstance(size, int)
        twice = (size // 2, 2) if pairs == NEIGHBORS else (2, size // 2)
        split = op.operands[0]
        if split.op is None or split.shape != (*outer, *twice, *op.result.shape[dim + 1 :]):
            return False
        op, dim = split.op, dim + (pairs == NEIGHBORS)
    elif pairs == NEIGHBORS:
        return False
    if op.name == "broadcast_in_dim":
        return dim not in op.attrs.integers("dimensions")
    parts = {peeled(part, tuple(range(part.type.rank))) for part in op.operands}
    along = op.name == "concatenate" and op.attrs.integer("dimension") == dim
    return along and len(op.operands) == 2 and len(parts) == 1


def _of_first(found: Found, b: Builder) -> Value | NoMatch:
    """Build the rope of whole heads from that of their first elements, joined with the others."""
    place = found.root.attrs.integer("dimension")
    rope, at = found.bound.ops[1]
    assert at is not None
    first = _part_of(rope.operands[0], at, place)
    others = _part_of(*found.operand("rest"), place)
    if first is None or others is None or (first.base, first.at) != (others.base, others.at):
        return no_match("the parts are not of one value", found.root.result)
    whole = _followed_by(first, others)
    if whole is None or at[-1] != place:
        return no_match("the parts do not follow one another", found.root.result, depth=2)
    x = whole.built(b)
    shape = found.root.result.shape
    straight = placed(b, x, first.at, at, [1 if dim is None else shape[dim] for dim in at])
    made = b.emit("rope", (straight, *rope.operands[1:]), dict(rope.attrs)).result
    return placed(b, made, at, range(len(shape)), shape)


def _rope(
    found: Found,
    b: Builder,
    operand: tuple[Value, At],
    tables: Sequence[tuple[Value, At]],
    dims: Sequence[int],
    turned: tuple[str, int],
) -> Value | NoMatch:
    """Build a rope in the dimensions of the root; its heads are that along which tables repeat.

    Args:
        found: the match.
        b: the builder.
        operand: all elements of heads, and their places.
        tables: cosines and sines of a pair, and their places.
        dims: of the root: rows, then tokens and heads in any order, then elements.
        turned: how elements are paired, and how many pairs there are.
    """
    (x, at), shape, (rows, *middle, place) = operand, found.root.result.shape, dims
    if len(middle) != 2:
        return no_match("it has not four dimensions", x, depth=3)
    if any(table.dtype is f64 for table, _ in tables):
        return no_match("the tables are f64, those of a rope f32", tables[0][0], depth=4)
    # The tables of one token fit both.
    known = {at[dim] for dim in head_dims(x) or ()}
    for heads in sorted(middle, key=lambda dim: (dim not in known, -dim)):
        order = (rows, *(dim for dim in middle if dim != heads), place)
        if all(dim in (None, *order) for _, places in tables for dim in places):
            break
    else:
        return no_match("the tables differ from head to head", tables[0][0], depth=5)
    (pairs, count), outer = turned, [shape[dim] for dim in order[:2]]
    cos, sin = (
        b.convert(placed(b, table, places, order, (*outer, count)), f32) for table, places in tables
    )
    order = (*order[:2], heads, place)
    straight = placed(b, x, at, order, (*outer, shape[heads], x.shape[at.index(place)]))
    made = b.op("rope", straight, cos, sin, pairs=pairs)
    back = [order.index(dim) for dim in sorted(order)]
    made = made if back == [0, 1, 2, 3] else b.transpose(made, back)
    return b.reshape(made, shape)


_FIRST, _SECOND = variables("first second", " part")
_X, _COS, _SIN, _ROTATED, _REST = variables("operand cos sin rotated rest")
_QUARTER = apply("concatenate", -_SECOND, _FIRST)
raise_rope = PatternRule(
    "raise-rope",
    tuple(derived("rope", (5, 5, 5, n * ROW), (5, 5, ROW), (5, 5, ROW)) for n in (2, 3)),
    _turned,
    "the parts are not a difference and a sum",
).rule
raise_rotated_rope = PatternRule(
    "raise-rotated-rope",
    (_ROTATED * _SIN + _X * _COS,),
    _of_rotated,
    "no term is the other's value turned by a quarter",
).rule
raise_partial_rope = PatternRule(
    "raise-partial-rope",
    (apply("concatenate", OpPattern(("rope",)), _REST),),
    _of_first,
    "the first part is not a rope",
).rule

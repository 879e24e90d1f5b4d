"""Raise rope: halves of a head multiplied by cosines and sines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ops import Trait, has_trait
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.raising.attention_dims import head_dims
from graphgen.passes.raising.matchers import either_way, filled, without
from graphgen.pattern.see_through import plain, spread

# Cosines and sines.
_Tables = tuple[Value, Value]
HALVES, NEIGHBORS = "halves", "neighbors"


@dataclass(frozen=True, slots=True)
class _Part:
    """Elements of the last dimension of ``base``: ``count`` of them from ``start``, by ``step``.

    Attributes:
        paired: the last dimension is two, of neighbors; they count as one.
    """

    base: Value
    start: int
    count: int
    step: int = 1
    paired: bool = False

    def built(self, b: Builder) -> Value:
        """Build the elements of a part whose step is 1."""
        outer = self.base.shape[: -2 if self.paired else -1]
        x = b.reshape(self.base, (*outer, self.count)) if self.paired else self.base
        last = len(outer)
        whole = self.count == x.shape[last]
        return x if whole else b.slice_dim(x, last, self.start, self.start + self.count)


def _part_of(value: Value) -> _Part | None:
    """Match slices along the last dimension; a value is all of itself."""
    value = plain(value)
    size = value.shape[-1] if value.type.rank else None
    if not isinstance(size, int):
        return None
    op = value.producer("slice")
    if op is None:
        return _neighbor_of(value, size) or _Part(value, 0, size)
    (x,) = op.operands
    starts, strides = op.attrs.dims("start_indices"), op.attrs.integers("strides")
    others = value.shape[:-1] == x.shape[:-1] and not any(starts[:-1])
    first, step = starts[-1], strides[-1] if strides else 1
    inner = _part_of(x)
    if not others or inner is None or inner.step != 1 or not isinstance(first, int):
        return None
    return _Part(inner.base, inner.start + first, size, step)


def _neighbor_of(value: Value, count: int) -> _Part | None:
    """Match one of each two neighbors, x[..., n, 2] at 0 or 1, as complex numbers are taken apart.

    Where only the last dimension of a value was cut in two, the part is of that value.
    """
    reshaped = value.producer("reshape")
    op = plain(reshaped.operands[0]).producer("slice") if reshaped is not None else None
    if op is None or op.result.shape != (*value.shape, 1):
        return None
    (x,) = op.operands
    *first, start = op.attrs.dims("start_indices")
    if x.shape != (*value.shape, 2) or any(first) or not isinstance(start, int):
        return None
    split = x.producer("reshape")
    before = split.operands[0] if split is not None else x
    if before.shape == (*value.shape[:-1], 2 * count):
        return _Part(before, start, count, 2)
    return _Part(x, start, count, 2, paired=True)


def _pair(a: Value, b: Value) -> tuple[_Part, str] | None:
    """Match the halves, or the even and odd elements, of a part: that part, and which it is."""
    left, right = _part_of(a), _part_of(b)
    if left is None or right is None or left.count != right.count:
        return None
    if left.base is not right.base or left.paired != right.paired:
        return None
    whole = replace(left, count=2 * left.count, step=1)
    if left.step == right.step == 1 and right.start == left.start + left.count:
        return whole, HALVES
    if left.step == right.step == 2 and right.start == left.start + 1:
        return whole, NEIGHBORS
    return None


def _joined(value: Value) -> tuple[Value, Value, str] | None:
    """Match halves side by side, or elements in turns: the two, and which it is."""
    value = plain(value)
    rank, stacked = value.type.rank, value.producer("reshape")
    op = plain(stacked.operands[0] if stacked is not None else value).producer("concatenate")
    if op is None or len(op.operands) != 2:
        return None
    last = op.result.type.rank - 1
    if op.attrs.integer("dimension") != last:
        return None
    a, b = op.operands
    if stacked is None:
        return (a, b, HALVES) if a.shape == b.shape else None
    first, second = (_with_one_more(x) for x in (a, b))
    if first is None or second is None or last != rank:
        return None
    return first, second, NEIGHBORS


def _with_one_more(value: Value) -> Value | None:
    """Match a value with a last dimension of size 1 that was added: the value without it."""
    op = plain(value).op
    if op is None or op.name not in ("reshape", "broadcast_in_dim"):
        return None
    (x,) = op.operands
    in_order = op.name == "reshape" or op.attrs.integers("dimensions") == (*range(x.type.rank),)
    return x if in_order and (*x.shape, 1) == value.shape else None


@rule("concatenate", "reshape")
def raise_rope(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``(a cos - b sin, b cos + a sin)`` of the halves a, b of each head is a rope."""
    joined = _joined(op.result)
    if joined is None:
        return NoMatch("it does not join two parts of a last dimension", op.result)
    left, right = (plain(value).op for value in joined[:2])
    if left is None or left.name != "subtract" or right is None or right.name != "add":
        return NoMatch("the parts are not a difference and a sum", op.result)
    found = _crossed(left, right)
    if found is None:
        return no_match(
            "the parts are not products of both halves with one pair of tables", op.result
        )
    (a, c), tables = found
    part, pairs = _pair(a, c) or (None, "")
    last = op.result.type.rank - 1
    if part is None or (pairs, joined[2]) == (HALVES, NEIGHBORS):
        return no_match("the parts are joined in another way than they were cut", op.result)
    if pairs != joined[2]:
        # Neighbors whose halves are joined (DeepSeek): a rope of them side by side.
        return _rope(op, b, b.concatenate([a, c], last), tables, HALVES)
    return _rope(op, b, part.built(b), tables, pairs)


def _crossed(left: Op, right: Op) -> tuple[tuple[Value, Value], _Tables] | None:
    """Match ``a cos - b sin`` and ``b cos + a sin``: a and b, and the tables."""
    for a, cos in _factors(left.operands[0]):
        for b, sin in _factors(left.operands[1]):
            if _pair(a, b) is None:
                continue
            for first, second in either_way(right):
                if _is_product(first, b, cos) and _is_product(second, a, sin):
                    return (a, b), (cos, sin)
    return None


def _factors(value: Value) -> list[tuple[Value, Value]]:
    op = plain(value).producer("multiply")
    return list(either_way(op)) if op is not None else []


def _is_product(value: Value, x: Value, table: Value) -> bool:
    return any(plain(a) is plain(x) and plain(b) is plain(table) for a, b in _factors(value))


@rule("add")
def raise_rotated_rope(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``x * cos + turned(x) * sin`` with tables of equal pairs is a rope."""
    for first, second in either_way(op):
        for turned, sin in _factors(second):
            found = _turned(turned)
            if found is None:
                continue
            for x, cos in _factors(first):
                if _part_of(x) == found[0]:
                    return _of_whole_tables(op, b, plain(x), (cos, sin), found[1])
            return no_match("the rotated value differs from the one that is not rotated", turned)
    return NoMatch("no term is the other's value turned by a quarter", op.result)


def _turned(value: Value) -> tuple[_Part, str] | None:
    """Match -b joined with a, of a part whose pairs are (a, b)."""
    joined = _joined(value)
    negated = plain(joined[0]).producer("negate") if joined is not None else None
    if joined is None or negated is None:
        return None
    pair = _pair(joined[1], negated.operands[0])
    return pair if pair is not None and pair[1] == joined[2] else None


def _of_whole_tables(
    op: Op, b: Builder, x: Value, whole: _Tables, pairs: str
) -> list[Value] | NoMatch:
    size = x.shape[-1]
    tables: list[Value] = []
    for table in whole:
        source, dims = spread(plain(table))
        if not _has_equal_pairs(source, pairs) or not dims or dims[-1] != x.type.rank - 1:
            return no_match("the halves of a table are not known to be equal", table, depth=2)
        assert isinstance(size, int)
        half = _half(b, source, size // 2, pairs)
        tables.append(b.broadcast_in_dim(half, (*table.shape[:-1], size // 2), dims))
    return _rope(op, b, x, (tables[0], tables[1]), pairs)


def _half(b: Builder, table: Value, count: int, pairs: str) -> Value:
    """One of each pair of equal elements."""
    last = table.type.rank - 1
    if pairs == HALVES:
        return b.slice_dim(table, last, 0, count)
    stacked = b.reshape(table, (*table.shape[:-1], count, 2))
    return b.reshape(b.slice_dim(stacked, last + 1, 0, 1), (*table.shape[:-1], count))


def _has_equal_pairs(value: Value, pairs: str) -> bool:
    """Test whether ``value`` is an elementwise function of pairs of equal elements."""
    op = value.op
    if op is None:
        return False
    if _is_doubled(value, pairs):
        return True
    if len(op.operands) == 1 and has_trait(op, Trait.ELEMENTWISE):
        return _has_equal_pairs(op.operands[0], pairs)
    if op.name == "reshape" and op.operands[0].shape[-1:] == value.shape[-1:]:
        return _has_equal_pairs(op.operands[0], pairs)
    if op.name == "broadcast_in_dim":
        (source,) = op.operands
        dims = op.attrs.integers("dimensions")
        last = bool(dims) and dims[-1] == value.type.rank - 1
        return last and source.shape[-1] == value.shape[-1] and _has_equal_pairs(source, pairs)
    if op.name == "multiply":
        return any(
            _has_equal_pairs(a, pairs) and not spread(number)[0].type.rank
            for a, number in either_way(op)
        )
    return False


def _is_doubled(value: Value, pairs: str) -> bool:
    """Test whether ``value`` is (x, x), or each element of x twice."""
    joined = _joined(value)
    if joined is not None:
        return joined[2] == pairs and plain(joined[0]) is plain(joined[1])
    merged = value.producer("reshape")
    op = merged.operands[0].producer("broadcast_in_dim") if merged is not None else None
    if op is None or op.result.type.rank != value.type.rank + 1:
        return False
    *outer, size = value.shape
    if not isinstance(size, int):
        return False
    repeated = op.result.type.rank - (1 if pairs == NEIGHBORS else 2)
    twice = (size // 2, 2) if pairs == NEIGHBORS else (2, size // 2)
    shape = (*outer, *twice)
    return op.result.shape == shape and repeated not in op.attrs.integers("dimensions")


@rule("concatenate")
def raise_partial_rope(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A rope of the first elements of each head, joined with the others, is one of the head."""
    if len(op.operands) != 2 or op.attrs.integer("dimension") != op.result.type.rank - 1:
        return NoMatch("it does not join two parts of a last dimension", op.result)
    turned, back = _before_transpose(plain(op.operands[0]))
    rope = plain(turned).producer("rope")
    if rope is None:
        return NoMatch("the first part is not a rope", op.operands[0])
    x, order = _before_transpose(plain(rope.operands[0]))
    first, rest = _part_of(x), _part_of(op.operands[1])
    if first is None or rest is None or first.base is not rest.base:
        return no_match("the parts are not of one value", op.result)
    if rest.start != first.start + first.count or first.step != 1 or rest.step != 1:
        return no_match("the parts do not follow one another", op.result, depth=2)
    base, last = first.base, first.base.type.rank - 1
    if base.shape != op.result.shape:
        base = b.slice_dim(base, last, first.start, rest.start + rest.count)
    base = b.transpose(base, order) if order else base
    made = b.emit("rope", (base, *rope.operands[1:]), dict(rope.attrs)).result
    return [b.convert(b.transpose(made, back) if back else made, op.result.dtype)]


def _before_transpose(value: Value) -> tuple[Value, tuple[int, ...]]:
    """Match a transpose: its operand and permutation; empty for another op."""
    op = value.producer("transpose")
    return (value, ()) if op is None else (op.operands[0], op.attrs.integers("permutation"))


def _rope(op: Op, b: Builder, x: Value, tables: _Tables, pairs: str) -> list[Value] | NoMatch:
    """Build the rope of ``x`` [.., D]; its heads are the dimension along which tables repeat."""
    if x.type.rank != 4:
        return no_match("it has not four dimensions", x, depth=3)
    if any(table.dtype.name != "f32" for table in tables):
        return no_match("the tables are not f32", tables[0], depth=4)
    found: list[Value] = []
    # Heads are the third or the second dimension; the tables of one token fit both.
    known = head_dims(x) or ()
    for heads in sorted((2, 1), key=lambda dim: dim not in known):
        order = [0, 3 - heads, heads, 3]
        kept = [0, 3 - heads, 3]
        shape = [tables[0].shape[dim] for dim in kept]
        made = [without(b, plain(table), kept) for table in tables]
        found = [filled(b, table, shape) for table in made if table is not None]
        if len(found) == 2:
            break
    else:
        return no_match("the tables differ from head to head", tables[0], depth=5)
    straight = x if order == [0, 1, 2, 3] else b.transpose(x, order)
    made = b.op("rope", straight, found[0], found[1], pairs=pairs)
    back = made if order == [0, 1, 2, 3] else b.transpose(made, order)
    return [b.convert(back, op.result.dtype)]

"""Element rules of constants and of ops that move elements."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from itertools import product as indices_of
from math import prod

from graphgen.ir import Attrs, Dim, DType, Literal, Op, Value
from graphgen.ir.dims import Poly, Shape
from graphgen.ir.dtype import f32, lowest
from graphgen.passes.proof.elements import Elements, Index, element_rule, is_truth
from graphgen.passes.proof.floats import ProofLevel, mask_text, narrowed, whole_number
from graphgen.passes.proof.integers import (
    at_most_zero,
    both,
    choose,
    div,
    div_by_size,
    larger,
    mod,
    negated,
    smaller,
)
from graphgen.passes.proof.rebuild import replaced
from graphgen.passes.proof.terms import Node, Term, Terms, size_name

# A larger table of integers is not looked at element by element.
_LARGEST_TABLE = 1 << 16
# A table of more parts is looked at as a whole.
_MOST_RUNS = 4
# Ops whose results are their operand's elements in other places, or in another type.
_CARRYING = ("broadcast_in_dim", "convert", "pad", "reshape", "slice", "transpose")
# Names of variables that stand for what padding holds where anything may be there.
PADDING = "padding of "


def dims(attrs: Attrs, key: str) -> Shape:
    """An attribute of sizes, which may hold symbols."""
    return tuple(attrs.dims(key))


def number(terms: Terms, dtype: DType, value: bool | float) -> Term:
    """A number as an element of this type."""
    if is_truth(dtype):
        return bool(value)
    if dtype.is_integer:
        return int(value)
    const = terms.node("const", repr(float(value)))
    return narrowed(terms, const, dtype) if dtype.is_float else const


@element_rule("constant")
def _constant(e: Elements, op: Op, index: Index) -> Term | None:
    literal = op.attrs.literal("value")
    small = prod(literal.shape) <= _LARGEST_TABLE
    read = literal.dtype.is_number or is_truth(literal.dtype)
    if read and (prod(literal.shape) == 1 or len(bytes(literal.data)) == literal.dtype.bytes):
        return _scalar(e, op, literal.dtype, literal.values()[0])
    if read and small:
        values = literal.values()
        if len(set(map(repr, values))) == 1:
            return _scalar(e, op, literal.dtype, values[0])
        place = _row_major(index, literal.shape)
        if isinstance(place, int):
            return number(e.terms, literal.dtype, values[place])
        affine = _affine(literal, values, index) if literal.dtype.is_integer else None
        if affine is None and literal.dtype.is_integer and len(literal.shape) == 1:
            affine = _in_runs(e.terms, [int(x) for x in values], index[0])
        if affine is not None:
            return affine
    # Small ones of one content are one table.
    what = f"{literal.shape} {_digest(bytes(literal.data))}" if small else f"{id(literal)}"
    node = e.terms.node("at", f"literal {what}", literal.dtype, *index)
    if read and small and all(literal.values()):
        e.terms.nonzero.add(f"literal {what}")
    if literal.dtype.is_integer and small:
        whole = [int(x) for x in literal.values()]
        return e.terms.atom(node, min(whole), max(whole))
    return e.of_type(node, literal.dtype)


def _scalar(e: Elements, op: Op, dtype: DType, value: bool | float) -> Term:
    """A number; where a narrow type is requested, its lowest one masks as that of f32 does."""
    narrow = e.level is ProofLevel.REAL and dtype in e.terms.narrow
    if narrow and dtype.is_float and value == lowest(dtype) and _masks(e, op.results[0]):
        e.terms.assumed.add(mask_text(dtype))
        return number(e.terms, f32, float(lowest(f32)))
    return number(e.terms, dtype, value)


def _masks(e: Elements, value: Value) -> bool:
    """True for a number that is only chosen or not, beside others, wherever it is moved."""
    if value in e.returned:
        return False
    return all(
        _masks(e, user.results[0]) if user.name in _CARRYING else user.name in ("select", "maximum")
        for user in value.users
    )


@lru_cache(64)
def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def _affine(literal: Literal, values: list[bool | int | float], index: Index) -> Dim | None:
    """The element of a table that counts along its dimensions, such as 0, 1, 2, ..."""
    shape = literal.shape
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    steps = [
        int(values[s] - values[0]) if n > 1 else 0 for s, n in zip(strides, shape, strict=True)
    ]
    places = indices_of(*map(range, shape))
    first = int(values[0])
    for value, place in zip(values, places, strict=True):
        if value != first + sum(a * b for a, b in zip(steps, place, strict=True)):
            return None
    out: Dim = first
    for step, i in zip(steps, index, strict=True):
        out = out + i * step
    return out


def _in_runs(terms: Terms, values: list[int], index: Dim) -> Dim | None:
    """The element of a table such as 0, 0, 1, 1, or of few parts that count, as 0, 1, 2, -1."""
    width = next((n for n, value in enumerate(values) if value != values[0]), 0)
    if width and values == [values[0] + n // width for n in range(len(values))]:
        return div(terms, index, width) + values[0]
    ends = [0]
    for n in range(2, len(values)):
        if (
            n - ends[-1] > 1
            and values[n] - values[n - 1] != values[ends[-1] + 1] - values[ends[-1]]
        ):
            ends.append(n)
    if len(ends) > _MOST_RUNS:
        return None
    out: Term | None = None
    for start, end in reversed(list(zip(ends, [*ends[1:], len(values)], strict=True))):
        step = values[start + 1] - values[start] if end - start > 1 else 0
        run = index * step + (values[start] - start * step)
        out = (
            run if out is None else choose(terms, at_most_zero(terms, index + (1 - end)), run, out)
        )
    assert isinstance(out, int | Poly)
    return out


def _row_major(index: Index, shape: Shape) -> Dim:
    out: Dim = 0
    for i, size in zip(index, shape, strict=True):
        out = out * size + i
    return out


@element_rule("iota")
def _iota(e: Elements, op: Op, index: Index) -> Term | None:
    dtype = op.attrs.element("dtype")
    count = index[op.attrs.integer("dimension")]
    if dtype.is_integer:
        return e.fitted(count, op.results[0].type)
    return whole_number(e.terms, count, dtype, level=e.level)


@element_rule("broadcast_in_dim")
def _broadcast_in_dim(e: Elements, op: Op, index: Index) -> Term | None:
    operand = op.operands[0]
    places = op.attrs.integers("dimensions")
    shape = op.results[0].shape
    found: list[Dim] = []
    for size, place in zip(operand.shape, places, strict=True):
        if size != 1 and size != shape[place]:
            return None
        found.append(0 if size == 1 else index[place])
    return e.at(operand, tuple(found))


@element_rule("transpose")
def _transpose(e: Elements, op: Op, index: Index) -> Term | None:
    found = list(index)
    for place, source in enumerate(op.attrs.integers("permutation")):
        found[source] = index[place]
    return e.at(op.operands[0], tuple(found))


@element_rule("reverse")
def _reverse(e: Elements, op: Op, index: Index) -> Term | None:
    turned, shape = op.attrs.integers("dimensions"), op.operands[0].shape
    found = [shape[k] + i * -1 + -1 if k in turned else i for k, i in enumerate(index)]
    return e.at(op.operands[0], tuple(found))


@element_rule("hlo.opaque")
def _opaque(e: Elements, op: Op, index: Index) -> Term | None:
    """A barrier, which hands its operands on: it only orders ops."""
    number = e.result
    if op.attrs.text("opcode") != "opt-barrier" or number >= len(op.operands):
        return None
    operand = op.operands[number]
    return e.at(operand, index) if operand.type is op.results[number].type else None


@element_rule("reshape")
def _reshape(e: Elements, op: Op, index: Index) -> Term | None:
    operand, target = op.operands[0], op.results[0].shape
    found: list[Dim] = []
    start_in = start_out = end_in = end_out = 0
    source = operand.shape
    # Groups of dimensions with as many elements on both sides are reshaped by themselves.
    while end_in < len(source) or end_out < len(target):
        group = _next_group(source, target, start_in, start_out)
        if group is None:
            return None
        end_in, end_out = group
        linear = _row_major(index[start_out:end_out], target[start_out:end_out])
        parts = _unraveled(e.terms, linear, source[start_in:end_in])
        if parts is None:
            return None
        found += parts
        start_in, start_out = end_in, end_out
    return e.at(operand, tuple(found))


def _next_group(source: Shape, target: Shape, a: int, b: int) -> tuple[int, int] | None:
    """Ends of the smallest group of dimensions from ``a`` and ``b`` of one element count."""
    counts: dict[Dim, int] = {}
    count: Dim = 1
    for end in range(a, len(source) + 1):
        # A trailing 1 goes to the group of the dimension before it.
        if end > a or count not in counts:
            counts[count] = end
        if end < len(source):
            count = count * source[end]
    if b == len(target):
        return (len(source), b) if all(size == 1 for size in source[a:]) else None
    count = 1
    for end in range(b, len(target)):
        count = count * target[end]
        if count in counts and (counts[count] > a or count == 1):
            last = end + 1 == len(target) and all(size == 1 for size in source[counts[count] :])
            return (len(source) if last else counts[count]), end + 1
    return None


def _unraveled(terms: Terms, linear: Dim, shape: Shape) -> list[Dim] | None:
    """The index with this row-major number."""
    found: list[Dim] = []
    for size in reversed(shape[1:]):
        quotient = div_by_size(terms, linear, size)
        if quotient is None:
            return None
        found.append(linear + quotient * size * -1)
        linear = quotient
    return [*([linear] if shape else []), *reversed(found)]


@element_rule("slice")
def _slice(e: Elements, op: Op, index: Index) -> Term | None:
    starts = dims(op.attrs, "start_indices")
    strides = op.attrs.integers("strides") or (1,) * len(index)
    found = [s + i * k for s, i, k in zip(starts, index, strides, strict=True)]
    return e.at(op.operands[0], tuple(found))


@element_rule("concatenate")
def _concatenate(e: Elements, op: Op, index: Index) -> Term | None:
    axis = op.attrs.integer("dimension")
    start: Dim = 0
    parts: list[tuple[Dim, Dim]] = []
    for operand in op.operands:
        parts.append((start, start + operand.shape[axis]))
        start = parts[-1][1]
    out: Term | None = None
    for operand, (first, end) in zip(reversed(op.operands), reversed(parts), strict=True):
        before_end = at_most_zero(e.terms, index[axis] + end * -1 + 1)
        if before_end is False or (out is not None and e.terms.at_least(index[axis], end)):
            continue
        if out is not None and e.terms.at_most(index[axis], first + -1):
            continue
        inside = within(e, operand, index, axis, first)
        out = inside if out is None else choose(e.terms, before_end, inside, out)
    return out


def within(e: Elements, operand: Value, index: Index, axis: int, first: Dim) -> Term:
    """The element of a part that begins at ``first``, where the index is in that part.

    A variable of the part's size is followed into it, so that nothing else is seen.
    """
    place, size = index[axis] + first * -1, operand.shape[axis]
    inside = e.terms.at_least(place, 0) and e.terms.at_most(place, size + -1)
    if isinstance(place, int) or inside or not e.deep:
        return e.at(operand, (*index[:axis], place, *index[axis + 1 :]))
    name = f"part{axis}_{size_name(size)}"
    used = {used for i in index for used in e.terms.symbols_of(i)}
    while name in used:
        name += "n"
    found = e.at(operand, (*index[:axis], e.terms.variable(name, size), *index[axis + 1 :]))
    return replaced(e.terms, found, {name: place})


@element_rule("pad")
def _pad(e: Elements, op: Op, index: Index) -> Term | None:
    operand, low = op.operands[0], op.attrs.integers("low")
    if op.attrs.integers("interior"):
        return None
    inside: bool | Node = True
    for i, before, size in zip(index, low, operand.shape, strict=True):
        inside = both(e.terms, inside, at_most_zero(e.terms, i * -1 + before))
        inside = both(e.terms, inside, at_most_zero(e.terms, i + size * -1 + (1 - before)))
    place = tuple(i + -before for i, before in zip(index, low, strict=True))
    outside = _outside(e, op, index, e.at(op.operands[1], ()))
    return outside if inside is False else choose(e.terms, inside, e.at(operand, place), outside)


def _outside(e: Elements, op: Op, index: Index, value: Term) -> Term:
    """The element of padding: this value, or anything."""
    if op not in e.ranks.arbitrary:
        return value
    name = f"{PADDING}{e.ranks.arbitrary[op]}"
    node = e.terms.node("at", name, op.results[0].type, *index, e.ranks.rank)
    return e.of_type(node, op.results[0].dtype)


@element_rule("take")
def _take(e: Elements, op: Op, index: Index) -> Term | None:
    operand, numbers = op.operands
    axis, block = op.attrs.integer("dimension"), op.attrs.integer("block")
    size, place = operand.shape[axis], index[axis]
    if isinstance(size, Poly):
        return None
    which = e.integer(numbers, (div(e.terms, place, block),))
    inside = both(
        e.terms,
        negated(e.terms, at_most_zero(e.terms, which + 1)),
        at_most_zero(e.terms, which + (1 - size // block)),
    )
    source = which * block + mod(e.terms, place, block)
    zero = _outside(e, op, index, number(e.terms, operand.dtype, 0))
    if inside is False:
        return zero
    found = e.at(operand, (*index[:axis], source, *index[axis + 1 :]))
    return choose(e.terms, inside, found, zero)


def _starts(e: Elements, op: Op, first: int, shape: Shape, sizes: Shape) -> list[Dim]:
    """Computed starts, clamped so that the slice is inside."""
    out: list[Dim] = []
    for axis, (size, length) in enumerate(zip(shape, sizes, strict=True)):
        start = e.integer(op.operands[first + axis], ())
        room = size + length * -1
        start = smaller(e.terms, larger(e.terms, start, 0), room)
        out.append(start)
    return out


@element_rule("dynamic_slice")
def _dynamic_slice(e: Elements, op: Op, index: Index) -> Term | None:
    operand = op.operands[0]
    starts = _starts(e, op, 1, operand.shape, op.results[0].shape)
    return e.at(operand, tuple(s + i for s, i in zip(starts, index, strict=True)))


@element_rule("dynamic_update_slice")
def _dynamic_update_slice(e: Elements, op: Op, index: Index) -> Term | None:
    operand, update = op.operands[:2]
    starts = _starts(e, op, 2, operand.shape, update.shape)
    place = tuple(i + s * -1 for s, i in zip(starts, index, strict=True))
    inside: bool | Node = True
    for i, size in zip(place, update.shape, strict=True):
        inside = both(e.terms, inside, at_most_zero(e.terms, i * -1))
        inside = both(e.terms, inside, at_most_zero(e.terms, i + size * -1 + 1))
    if inside is False:
        return e.at(operand, index)
    return choose(e.terms, inside, e.at(update, place), e.at(operand, index))

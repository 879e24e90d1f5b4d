"""Element rules of integer and truth arithmetic, conversions, sums and products.

The terms of one sum are added in one order by two ops only where these have the same shapes and
attributes. In real arithmetic the order does not count, the type of the sum's range does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from graphgen.ir import Dim, DType, Op
from graphgen.ir.attrs import EMPTY
from graphgen.ir.dims import Poly
from graphgen.ir.dtype import f32, f64
from graphgen.passes.proof.block_places import place_atom
from graphgen.passes.proof.elements import Elements, Index, element_rule, is_truth
from graphgen.passes.proof.floats import (
    CHOOSING,
    ProofLevel,
    Rounding,
    narrowed,
    span,
    whole_number,
)
from graphgen.passes.proof.integers import (
    at_most_zero,
    both,
    choose,
    div,
    either,
    fit,
    is_zero,
    larger,
    mod,
    negated,
    smaller,
)
from graphgen.passes.proof.movement_rules import number
from graphgen.passes.proof.narrow_numbers import as_number, is_within
from graphgen.passes.proof.rebuild import flat_function
from graphgen.passes.proof.sums import in_order, integer_of_sum, summed, truth_of_sum, variable_name
from graphgen.passes.proof.terms import Node, Term
from graphgen.passes.proof.whole_numbers import as_whole, whole_sum

Combine = Callable[[Dim, Dim], Dim]
_RING: dict[str, Combine] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a + b * -1,
    "multiply": lambda a, b: a * b,
}


def _pair(e: Elements, op: Op, index: Index) -> tuple[Dim, Dim] | None:
    """Two integer operands; ``None`` for other types."""
    if not op.operands[0].dtype.is_integer:
        return None
    return e.integer(op.operands[0], index), e.integer(op.operands[1], index)


@element_rule(*_RING)
def _ring(e: Elements, op: Op, index: Index) -> Term | None:
    pair = _pair(e, op, index)
    if pair is None:
        return None
    made = _RING[op.name](*pair)
    return e.fitted(place_atom(e.terms, made) if e.deep else made, op.results[0].type)


@element_rule("negate")
def _negate(e: Elements, op: Op, index: Index) -> Term | None:
    if not op.operands[0].dtype.is_integer:
        return None
    return e.fitted(e.integer(op.operands[0], index) * -1, op.results[0].type)


@element_rule("divide", "remainder")
def _divide(e: Elements, op: Op, index: Index) -> Term | None:
    pair = _pair(e, op, index)
    if pair is None:
        return None
    a, by = pair
    if not isinstance(by, int) or by <= 0:
        return None
    down, up = div(e.terms, a, by), div(e.terms, a * -1, by) * -1
    # Toward zero: down for numbers from 0, up below.
    quotient = choose(e.terms, at_most_zero(e.terms, a * -1), down, up)
    assert isinstance(quotient, int | Poly)
    return quotient if op.name == "divide" else a + quotient * -by


@element_rule("minimum", "maximum")
def _extreme(e: Elements, op: Op, index: Index) -> Term | None:
    pair = _pair(e, op, index)
    return None if pair is None else (smaller if op.name == "minimum" else larger)(e.terms, *pair)


@element_rule("clamp")
def _clamp(e: Elements, op: Op, index: Index) -> Term | None:
    low, operand, high = op.operands
    if not operand.dtype.is_integer:
        return None
    ends = [e.integer(x, index if x.type.rank else ()) for x in (low, high)]
    return smaller(e.terms, larger(e.terms, e.integer(operand, index), ends[0]), ends[1])


@element_rule("shift_left", "shift_right_logical", "shift_right_arithmetic")
def _shift(e: Elements, op: Op, index: Index) -> Term | None:
    pair = _pair(e, op, index)
    bits = op.results[0].dtype.bits
    if pair is None:
        return None
    a, by = pair
    if not isinstance(by, int) or not 0 <= by < bits:
        return None
    if op.name == "shift_left":
        return e.fitted(a * (1 << by), op.results[0].type)
    if op.name == "shift_right_logical" and not e.terms.at_least(a, 0):
        return None
    return div(e.terms, a, 1 << by)


@element_rule("and", "or", "not")
def _logic(e: Elements, op: Op, index: Index) -> Term | None:
    parts = [e.at(operand, index) for operand in op.operands]
    if is_truth(op.operands[0].dtype):
        truths = [x for x in parts if isinstance(x, bool | Node)]
        if op.name == "not":
            return negated(e.terms, truths[0])
        return (both if op.name == "and" else either)(e.terms, truths[0], truths[1])
    if op.name == "and":
        for a, mask in (parts, parts[::-1]):
            if isinstance(mask, int) and mask >= 0 and mask & (mask + 1) == 0:
                assert isinstance(a, int | Poly)
                return mod(e.terms, a, mask + 1)
    return None


@element_rule("compare")
def _compare(e: Elements, op: Op, index: Index) -> Term | None:
    pair = _pair(e, op, index)
    direction = op.attrs.text("direction")
    if pair is None:
        return _special(e, op, index)
    gap = pair[0] + pair[1] * -1
    if direction in ("EQ", "NE"):
        same = is_zero(e.terms, gap)
        return same if direction == "EQ" else negated(e.terms, same)
    # a < b is a - b + 1 <= 0.
    value = gap if direction[0] == "L" else gap * -1
    return at_most_zero(e.terms, value + 1 if direction[1] == "T" else value)


def _special(e: Elements, op: Op, index: Index) -> bool | None:
    """A comparison that only NaN and -0, which real arithmetic has not, make another one."""
    direction = op.attrs.text("direction")
    if not e.deep or e.level is ProofLevel.EXACT or direction not in ("EQ", "NE"):
        return None
    a, b = [e.at(x, index if x.type.rank else ()) for x in op.operands]
    equal = True if a is b else False if _is_inverse(a) and _is_low(b) else None
    return equal if equal is None or direction == "EQ" else not equal


def _is_inverse(term: Term) -> bool:
    """True for a positive constant by an element."""
    if not isinstance(term, Node) or term.kind != "fn" or term.args[0] != "divide":
        return False
    above = term.args[3]
    return isinstance(above, Node) and above.kind == "const" and float(str(above.args[0])) > 0


def _is_low(term: Term) -> bool:
    """True for -inf."""
    return isinstance(term, Node) and term.kind == "const" and float(str(term.args[0])) == -inf


@element_rule("select")
def _select(e: Elements, op: Op, index: Index) -> Term | None:
    pred, yes, no = op.operands
    which = e.at(pred, index if pred.type.rank else ())
    assert isinstance(which, bool | Node)
    if isinstance(which, bool):
        return e.at(yes if which else no, index)
    return choose(e.terms, which, e.at(yes, index), e.at(no, index))


@element_rule("convert")
def _convert(e: Elements, op: Op, index: Index) -> Term | None:
    source, target = op.operands[0].dtype, op.results[0].dtype
    value = e.at(op.operands[0], index)
    if source is target:
        return value
    if target.is_float and e.is_payload(op.operands[0]):
        return _made(e, op, _kept_or_narrowed(e, as_number(e.terms, value), target))
    if source.is_float and target.is_float:
        return _made(e, op, _kept_or_narrowed(e, value, target))
    if isinstance(value, bool | Node) and is_truth(source):
        return choose(e.terms, value, number(e.terms, target, 1), number(e.terms, target, 0))
    if isinstance(value, int | Poly) and is_truth(target):
        return negated(e.terms, is_zero(e.terms, value))
    if isinstance(value, int | Poly) and target.is_integer:
        return fit(e.terms, value, target)
    if isinstance(value, int | Poly) and target.is_float:
        return _made(e, op, whole_number(e.terms, value, target, level=e.level))
    return as_whole(e.terms, value, target) if target.is_integer else None


def _kept_or_narrowed(e: Elements, term: Term, target: DType) -> Term:
    """A float in another type: of one that is requested, itself where it is within the range."""
    narrow = e.level is ProofLevel.REAL and target in e.terms.narrow
    if narrow and not is_within(e.terms, term, target):
        return e.terms.node("fn", "convert", span(target), EMPTY, term)
    return narrowed(e.terms, term, target, level=e.level)


def _made(e: Elements, op: Op, term: Term) -> Term:
    return e.made_by(term, op) if isinstance(term, Node) else term


@element_rule("dot_general")
def _dot_general(e: Elements, op: Op, index: Index) -> Term | None:
    # An integer type that does not hold the sum of payloads may overflow.
    if not all(x.dtype.is_float or e.is_payload(x) for x in (*op.operands, *op.results)):
        return None
    sides = [("lhs", op.operands[0]), ("rhs", op.operands[1])]
    contracted = op.attrs.integers("lhs_contracting_dims")
    sums = [e.summed(op, k, op.operands[0].shape[axis]) for k, axis in enumerate(contracted)]
    batch = len(op.attrs.integers("lhs_batch_dims"))
    free = iter(index[batch:])
    factors: list[Term] = []
    for side, operand in sides:
        place: dict[int, Dim] = dict(
            zip(op.attrs.integers(f"{side}_batch_dims"), index[:batch], strict=True)
        )
        place |= zip(op.attrs.integers(f"{side}_contracting_dims"), sums, strict=True)
        for axis in range(operand.type.rank):
            if axis not in place:
                place[axis] = next(free)
        factor = e.at(operand, tuple(place[axis] for axis in range(operand.type.rank)))
        factors.append(factor if operand.dtype.is_float else as_number(e.terms, factor))
    sizes = [op.operands[0].shape[axis] for axis in contracted]
    ranges = list(zip(sums, sizes, strict=True))
    if e.level is ProofLevel.EXACT:
        # The order of a sum may depend on the place of the element in the result.
        product = e.terms.node("fn", "product", None, EMPTY, *factors)
        if not e.deep:
            return _plain_sum(e, op, "add", [*index, *sums, *sizes, product])
        return _sum(e, op, "add", ranges, product, index)
    # A product is a sum of the products of elements, taken at least in f32.
    result = op.results[0].dtype
    to = e.rounding(result if result in (f32, f64) else f32)
    product = e.made_by(flat_function(e.terms, "multiply", to, EMPTY, factors), op)
    if e.deep:
        return sum_of_products(e, op, ranges, product, to)
    made = e.made_by(e.terms.node("sum", "add", to, None, *sums, *sizes, product), op)
    return _kept_or_narrowed(e, made, result)


def sum_of_products(
    e: Elements, op: Op, ranges: Sequence[tuple[Dim, Dim]], body: Term, to: Rounding
) -> Term:
    """A sum of products that are rounded to ``to``, as the op's type holds it."""
    made = _made(e, op, summed(e.terms, "add", to, _named_ranges(ranges), body))
    if not op.results[0].dtype.is_float:
        return made
    return _kept_or_narrowed(e, made, op.results[0].dtype)


def sum_of(
    e: Elements, op: Op, ranges: Sequence[tuple[Dim, Dim]], body: Term, index: Index
) -> Term:
    """A sum that the op takes in an order of its own."""
    return _sum(e, op, "add", ranges, body, index)


def _named_ranges(ranges: Sequence[tuple[Dim, Dim]]) -> list[tuple[str, Dim]]:
    """Variables by name with their sizes; those of one value are none."""
    return [(variable_name(v), size) for v, size in ranges if isinstance(v, Poly)]


def _sum(
    e: Elements,
    op: Op,
    kind: str,
    ranges: Sequence[tuple[Dim, Dim]],
    body: Term,
    index: Index = (),
) -> Term:
    """A sum, with the type that it is taken in and what decides on the order of its terms."""
    if not e.deep:
        return _plain_sum(e, op, kind, [*[v for v, _ in ranges], *[n for _, n in ranges], body])
    if e.level is not ProofLevel.EXACT:
        chosen = kind in CHOOSING and e.is_plain(op.results[0].dtype)
        to = None if chosen else e.rounding(op.results[0].dtype)
        return _made(e, op, summed(e.terms, kind, to, _named_ranges(ranges), body))
    types = tuple([x.dtype for x in op.operands])
    order = (op.name, op.attrs, *[x.shape for x in op.operands], *types)
    named = _named_ranges(ranges)
    if index:
        # A part of the body, so that variables in it are renamed with those of the body.
        body = e.terms.node("fn", "at place", None, EMPTY, body, *index)
    made = in_order(e.terms, kind, op.results[0].dtype, order, named, body)
    return _made(e, op, made)


def _plain_sum(e: Elements, op: Op, kind: str, parts: Sequence[Term]) -> Term:
    """The same, with variables named by the height of the op in its program."""
    if e.level is not ProofLevel.EXACT and kind in CHOOSING and e.is_plain(op.results[0].dtype):
        return e.made_by(e.terms.node("sum", kind, None, None, *parts), op)
    types = tuple([x.dtype for x in op.operands])
    order = (op.name, op.attrs, *[x.shape for x in op.operands], *types)
    to, how = e.rounding(op.results[0].dtype), order if e.level is ProofLevel.EXACT else None
    return e.made_by(e.terms.node("sum", kind, to, how, *parts), op)


@element_rule("reduce")
def _reduce(e: Elements, op: Op, index: Index) -> Term | None:
    operand, combined = op.operands[0], op.attrs.integers("dimensions")
    truth, kind = is_truth(operand.dtype), op.attrs.text("kind")
    whole = operand.dtype.is_integer and kind in ("add", "maximum", "minimum")
    if not operand.dtype.is_float and not ((truth or whole) and e.deep):
        return None
    sums = {axis: e.summed(op, k, operand.shape[axis]) for k, axis in enumerate(combined)}
    rest = iter(index)
    place = tuple(sums[a] if a in sums else next(rest) for a in range(operand.type.rank))
    ranges = [(v, operand.shape[axis]) for axis, v in sums.items()]
    body = e.at(operand, place)
    if operand.dtype.is_integer and kind == "add":
        assert isinstance(body, int | Poly)
        return e.fitted(whole_sum(e.terms, _named_ranges(ranges), body), op.results[0].type)
    if truth or whole:
        found = summed(e.terms, kind, None, _named_ranges(ranges), body)
        return truth_of_sum(e.terms, found) if truth else integer_of_sum(e.terms, found, body)
    return _sum(e, op, kind, ranges, body)

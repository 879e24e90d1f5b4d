"""Numbers that a caller asks to keep in narrow types: payloads with their scales, and their ranges.

A number in a narrow type is a rounded one within a range. Where a caller asks for a type, real
arithmetic leaves out its rounding and its range: a payload is what was divided by the scale, and a
product of both is the number. That a number is within the range is proved where the scale is made
of the largest magnitude, and assumed elsewhere, which the verdict states. Neither holds of a scale
that does not cover the largest magnitude, nor of a clamp to less than the range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from math import isfinite

from graphgen.errors import GraphgenError
from graphgen.ir import Dim, DType, Op, TensorType, Value
from graphgen.ir.attrs import EMPTY, Attrs
from graphgen.ir.dims import Poly, symbol, symbols
from graphgen.ir.dtype import bf16, f16, f32, lowest
from graphgen.ir.small_float import FORMATS
from graphgen.passes.proof.choices import within_choice
from graphgen.passes.proof.elements import ROUNDING, Elements, Index, payload_rule
from graphgen.passes.proof.floats import (
    ProofLevel,
    limit_of,
    range_text,
    remainder_text,
    span,
    whole_number,
)
from graphgen.passes.proof.rebuild import (
    NODE_RULES,
    cancelling,
    flat_function,
    function_term,
    replaced,
)
from graphgen.passes.proof.sums import linear, ranges_of
from graphgen.passes.proof.terms import Node, Term, Terms, atom_node, nodes_of

# A scale such as 0.007874016, for 1 / 127, is rounded.
_ROUNDED = 1 + 1e-6
# Values of the variables of a largest magnitude that are tried.
_MOST_WAYS = 24
# Widths of integers that numbers are kept in.
_WIDEST = 8


def narrow_type(dtype: DType) -> DType:
    """The type, if numbers are kept in it to save room.

    Raises:
        GraphgenError: GG0302 for a wide type, of which nothing has to be assumed, and for one
            without a sign, whose range is that of no number and its negative.
    """
    narrow = dtype.name in FORMATS or dtype in (bf16, f16)
    signed = dtype.is_number and lowest(dtype) < 0
    if signed and (narrow or (dtype.is_integer and dtype.bits <= _WIDEST)):
        return dtype
    what = "is not a type that numbers are narrowed to"
    types = "bf16, f16, or a signed float or integer of 8 bits or fewer"
    raise GraphgenError("GG0302", f"{dtype.name} {what}", help=f"name {types}")


# ---- range ---------------------------------------------------------------------------------------


def is_within(terms: Terms, term: Term, dtype: DType) -> bool:
    """True if an element is within the range of a narrow type, or that is assumed.

    It is not where its scale is of the largest magnitude and does not cover that.
    """
    if not isinstance(term, Node):
        return False
    if term.kind == "const":
        return abs(float(str(term.args[0]))) <= limit_of(dtype)
    if term.kind == "if":
        return all(is_within(terms, _term(x), dtype) for x in term.args[1:])
    if term.kind == "write":
        return all(is_within(terms, _term(x), dtype) for x in term.args[-2:])
    scaled = [s for x in factors_of(term) if (s := inverted(x)) is not None and is_measured(s)]
    if scaled:
        bound = bound_of(terms, term)
        return bound is not None and bound <= limit_of(dtype) * _ROUNDED
    terms.assumed.add(range_text(dtype))
    return True


def is_measured(scale: Node) -> bool:
    """True for a scale that is made of the largest magnitude of some numbers."""
    if scale.kind == "if":
        return any(isinstance(x, Node) and is_measured(x) for x in scale.args[1:])
    if scale.kind == "write":
        return any(isinstance(x, Node) and is_measured(x) for x in scale.args[-2:])
    if scale.kind == "sum":
        return scale.args[0] in ("maximum", "minimum")
    if scale.kind == "fn" and scale.args[0] in ("maximum", "minimum", "multiply", "abs", "divide"):
        return any(isinstance(x, Node) and is_measured(x) for x in scale.args[3:])
    return False


def bound_of(terms: Terms, term: Term) -> float | None:
    """A number that the magnitude of a product is at most; ``None`` if none is known.

    It is known of ``x / s`` with ``s`` at least ``max |x| / c``: then it is ``c``.
    """
    parts = factors_of(term)
    for place, factor in enumerate(parts):
        scale = inverted(factor)
        if scale is None:
            continue
        rest = [*parts[:place], *parts[place + 1 :]]
        for least in (scale, *(scale.args[3:] if _is_fn(scale, "maximum") else ())):
            found = _share(terms, least, rest)
            if found is not None:
                return found
    return None


def _share(terms: Terms, least: object, rest: Sequence[Term]) -> float | None:
    """``c`` with ``least = max |x| / c``, of a product with these factors, which is ``x``."""
    count, largest = 1.0, None
    for factor in factors_of(_term(least)) if isinstance(least, Node) else ():
        inside = inverted(factor)
        if isinstance(factor, Node) and factor.kind == "const":
            count /= float(str(factor.args[0])) or float("nan")
        elif inside is not None and inside.kind == "const":
            count *= float(str(inside.args[0]))
        elif largest is None and isinstance(factor, Node):
            largest = factor
        else:
            return None
    if largest is None or not isfinite(count) or count <= 0:
        return None
    product = flat_function(terms, "multiply", span(f32), EMPTY, rest)
    one = _term(rest[0]) if len(rest) == 1 else product
    return count if covers(terms, largest, one) else None


def covers(terms: Terms, largest: Node, x: Term) -> bool:
    """True if a number is the largest magnitude of some elements, of which ``x`` is one."""
    if _is_fn(largest, "abs"):
        return largest.args[3] is x
    if largest.kind != "sum" or largest.args[0] != "maximum" or not isinstance(x, Node):
        return False
    ranges, body = ranges_of(largest)
    if not _is_fn(body, "abs"):
        return False
    assert isinstance(body, Node)
    inner = _term(body.args[3])
    names = dict(ranges)
    whole = _whole_dimensions(terms, inner, names)
    for values in _values_of(terms, inner, x, names):
        inside = all(
            name in whole or (terms.at_least(value, 0) and terms.at_most(value, names[name] + -1))
            for name, value in values.items()
        )
        if inside and replaced(terms, inner, values) is x:
            return True
    return False


def _whole_dimensions(terms: Terms, inner: Term, names: dict[str, Dim]) -> set[str]:
    """The variables that run over a dimension of a value: each index of it is one of theirs."""
    return {
        name
        for node in nodes_of(terms, inner)
        if node.kind == "at" and isinstance(node.args[1], TensorType)
        for index, size in zip(node.args[2:], node.args[1].shape, strict=False)
        for name in names
        if index == symbol(name) and names[name] == size
    }


def _values_of(
    terms: Terms, inner: Term, x: Node, names: dict[str, Dim]
) -> Iterator[dict[str, Dim]]:
    """Values of variables at which an element may be ``x``: other variables, or places."""
    free = sorted(terms.symbols_of(x) - terms.symbols_of(inner) - terms.atoms.keys())
    others = [[y for y in free if terms.bounds.get(y) == terms.bounds[name]] for name in names]
    for chosen in islice(product(*others), _MOST_WAYS):
        yield {name: symbol(y) for name, y in zip(names, chosen, strict=True)}
    for mine in nodes_of(terms, inner):
        held = names.keys() & terms.symbols_of(mine)
        if mine.kind != "at" or held != names.keys():
            continue
        for other in nodes_of(terms, x):
            if other.kind == "at" and other.args[0] == mine.args[0]:
                found = _solved(mine, other, names)
                if found is not None:
                    yield found


def _solved(mine: Node, other: Node, names: dict[str, Dim]) -> dict[str, Dim] | None:
    """Values of variables at which two elements of one value have one index."""
    found: dict[str, Dim] = {}
    for here, there in zip(mine.args[2:], other.args[2:], strict=True):
        for name in names:
            parts = linear(_dim(here), name)
            if name not in found and parts is not None and abs(parts[0]) == 1:
                found[name] = (_dim(there) + parts[1] * -1) * parts[0]
                break
    held = any(names.keys() & symbols([value]) for value in found.values())
    return None if held or found.keys() != names.keys() else found


# ---- products ------------------------------------------------------------------------------------


def factors_of(term: Term) -> list[Term]:
    """The factors of a product in real arithmetic; a term itself if it is none."""
    if _is_fn(term, "multiply"):
        assert isinstance(term, Node)
        return [_term(x) for x in term.args[3:]]
    return [term]


def inverted(term: Term) -> Node | None:
    """``s`` of ``1 / s``."""
    if not _is_fn(term, "divide"):
        return None
    assert isinstance(term, Node)
    above, below = term.args[3:]
    one = isinstance(above, Node) and above.kind == "const" and float(str(above.args[0])) == 1
    return below if one and isinstance(below, Node) else None


def _is_fn(term: object, name: str) -> bool:
    return isinstance(term, Node) and term.kind == "fn" and term.args[0] == name


def is_nonzero(terms: Terms, term: Term) -> bool:
    """True for a number that is known not to be zero."""
    if not isinstance(term, Node):
        return False
    match term.kind:
        case "const":
            number = float(str(term.args[0]))
            return number != 0 and isfinite(number)
        case "at":
            return str(term.args[0]) in terms.nonzero
        case "if":
            return all(is_nonzero(terms, _term(x)) for x in term.args[1:])
        case "write":
            return all(is_nonzero(terms, _term(x)) for x in term.args[-2:])
        case _:
            least = term.args[3:] if _is_fn(term, "maximum") else ()
            return any(_is_positive(x) for x in least)


def _is_positive(term: object) -> bool:
    return isinstance(term, Node) and term.kind == "const" and float(str(term.args[0])) > 0


@cancelling
def simplified(terms: Terms, name: str, to: object, how: object, parts: list[Term]) -> Term | None:
    """A sum or product without what cancels; ``None`` if nothing does."""
    if name == "add":
        zero = terms.node("const", repr(0.0))
        kept = [x for x in parts if x is not zero]
        if len(kept) == len(parts):
            return None
        return _again(terms, name, to, how, kept, zero)
    if any(_is_infinite_number(x) for x in parts):
        return None
    zero = next((x for x in parts if _is_number(x, 0.0)), None)
    if zero is not None:
        return zero
    one = terms.node("const", repr(1.0))
    kept = _without_inverses(terms, [x for x in parts if not _is_number(x, 1.0)])
    kept = _where_not_zero(terms, kept)
    if len(kept) < len(parts):
        return _again(terms, name, to, how, kept, one)
    return _taken_within(terms, to, how, kept)


def _again(terms: Terms, name: str, to: object, how: object, parts: list[Term], none: Term) -> Term:
    if len(parts) < 2:
        return parts[0] if parts else none
    return flat_function(terms, name, to, how, parts)


def _is_number(term: Term, number: float) -> bool:
    return isinstance(term, Node) and term.kind == "const" and float(str(term.args[0])) == number


def _is_infinite_number(term: Term) -> bool:
    return (
        isinstance(term, Node) and term.kind == "const" and not isfinite(float(str(term.args[0])))
    )


def _without_inverses(terms: Terms, parts: list[Term]) -> list[Term]:
    """The factors without pairs of a number that is not zero and its inverse."""
    left = list(parts)
    for part in parts:
        scale = inverted(part)
        if scale is not None and part in left and scale in left and is_nonzero(terms, scale):
            left.remove(part)
            left.remove(scale)
    return left


def _where_not_zero(terms: Terms, parts: list[Term]) -> list[Term]:
    """The factors without ``0 if max |x| = 0 else s`` and ``1 / s``, beside the factors of ``x``.

    Where the largest magnitude is zero, so is ``x``.
    """
    for place, part in enumerate(parts):
        if (
            not isinstance(part, Node)
            or part.kind != "if"
            or not _is_number(_term(part.args[1]), 0)
        ):
            continue
        scale, largest = _term(part.args[2]), _zero_at(part.args[0])
        rest = [*parts[:place], *parts[place + 1 :]]
        inverse = next((x for x in rest if inverted(x) is scale), None)
        if largest is None or inverse is None or not is_nonzero(terms, scale):
            continue
        rest.remove(inverse)
        x = _again(terms, "multiply", span(f32), EMPTY, rest, inverse)
        if rest and covers(terms, largest, x):
            return rest
    return parts


def _zero_at(which: object) -> Node | None:
    """Return the number that a condition takes for zero."""
    inner = which.args[0] if isinstance(which, Node) and which.kind == "truth" else None
    if not _is_fn(inner, "compare"):
        return None
    assert isinstance(inner, Node)
    how = inner.args[2]
    how = how[0] if isinstance(how, tuple) else how  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(how, Attrs) or how.get("direction") != "EQ":
        return None
    a, b = inner.args[3:]
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Node) and isinstance(y, Node) and _is_number(y, 0.0):
            return x
    return None


# ---- choices and writes --------------------------------------------------------------------------


def _taken_within(terms: Terms, to: object, how: object, parts: list[Term]) -> Term | None:
    """A product of two choices, or writes, at one condition, as one of products that cancel."""
    for place, first in enumerate(parts):
        if not isinstance(first, Node) or first.kind not in ("if", "write"):
            continue
        for other in range(len(parts)):
            second = parts[other]
            if other == place or not isinstance(second, Node):
                continue
            if second.kind == first.kind and other < place:
                continue

            def product(x: list[Term]) -> Term:
                return flat_function(terms, "multiply", to, how, x)

            made = within_choice(terms, [first, second], product)
            if made is not None and _is_shorter(made, first, second):
                rest = [x for n, x in enumerate(parts) if n not in (place, other)]
                return _again(terms, "multiply", to, how, [*rest, made], made)
    return None


def _is_shorter(made: Node, first: Node, second: Node) -> bool:
    """True if both branches of a product of choices have fewer factors than these have."""
    for branch in (-2, -1):
        pair = [_term(x.args[branch]) if x.kind == first.kind else x for x in (first, second)]
        count = sum(len(factors_of(x)) for x in pair)
        both_zero = _is_number(_term(made.args[branch]), 0.0)
        if not both_zero and len(factors_of(_term(made.args[branch]))) >= count:
            return False
    return True


# ---- elements ------------------------------------------------------------------------------------


def kept_in(e: Elements, term: Term, target: DType) -> Term | None:
    """A number in a narrow type that is requested: itself; ``None`` where it may be too large."""
    if e.level is not ProofLevel.REAL or target not in e.terms.narrow:
        return None
    return term if is_within(e.terms, term, target) else None


@payload_rule(*ROUNDING, "clamp")
def unrounded(e: Elements, op: Op, index: Index) -> Term | None:
    """Return the operand of an op that rounds or clamps it only to keep it in a narrow type."""
    operand = op.operands[1 if op.name == "clamp" else 0]
    if e.level is not ProofLevel.REAL or not operand.dtype.is_float:
        return None
    kept = _kept_types(e, op.results[0])
    if not kept:
        return None
    if op.name == "clamp":
        ends = [e.at(x, index if x.type.rank else ()) for x in (op.operands[0], op.operands[2])]
        held = all(_is_range(ends, dtype) for dtype in kept)
    else:
        held = all(dtype.is_integer for dtype in kept)
    if not held:
        return None
    term = e.at(operand, index)
    return term if all(is_within(e.terms, term, dtype) for dtype in kept) else None


def _kept_types(e: Elements, value: Value, scaling: tuple[str, ...] = ()) -> list[DType]:
    """The requested types that a value is kept in; none where anything else reads it.

    The remainder of rounding to a whole number may be kept as well, scaled up: it is assumed to
    add less than a step.
    """
    found: list[DType] = []
    if value in e.returned or value in e.made.values() or value in e.ranks.sources.values():
        return found
    for user in value.users:
        to = user.results[0].dtype
        rounds = user.name in ROUNDING or (user.name == "clamp" and user.operands[1] is value)
        scales = user.name in scaling and user.operands[0] is value
        if (rounds or scales) and user.operands.count(value) == 1:
            kept = _kept_types(e, user.results[0])
        elif _leaves_over(user, value):
            kept = _kept_types(e, user.results[0], ("multiply", "divide"))
            e.terms.assumed.update(remainder_text(dtype) for dtype in kept)
        else:
            kept = [to] if user.name == "convert" and to in e.terms.narrow else []
        if not kept:
            return []
        found += kept
    return list(dict.fromkeys(found))


def _leaves_over(user: Op, value: Value) -> bool:
    """True for a number less the nearest whole one, which is the value."""
    made = value.op
    if made is None or made.name not in ROUNDING or user.name != "subtract":
        return False
    return user.operands[0] is made.operands[0] and user.operands[1] is value


def _is_range(ends: Sequence[Term], dtype: DType) -> bool:
    """True if a clamp leaves all numbers of a narrow type."""
    low, high = [
        float(str(x.args[0])) if isinstance(x, Node) and x.kind == "const" else 0.0 for x in ends
    ]
    most = limit_of(dtype) - (0.5 if dtype.is_integer else 0)
    return low <= -most and high >= most


def as_number(terms: Terms, term: Term) -> Term:
    """An element of a payload as a float: an integer among others is a number."""
    node = atom_node(terms, term)
    if isinstance(node, Node) and node.kind in ("if", "write"):
        parts = [as_number(terms, _term(x)) for x in node.args[-2:]]
        return NODE_RULES[node.kind](terms, (*node.args[:-2], *parts))
    if isinstance(term, int | Poly) and not isinstance(term, bool):
        return whole_number(terms, term, f32, level=ProofLevel.REAL)
    return term


@payload_rule("convert")
def _converted(e: Elements, op: Op, index: Index) -> Term | None:
    source = op.operands[0]
    term = e.at(source, index)
    return kept_in(e, term, op.results[0].dtype) if source.dtype.is_float else term


@payload_rule("add", "multiply", "subtract", "negate")
def _function(e: Elements, op: Op, index: Index) -> Term | None:
    parts = [as_number(e.terms, e.at(x, index)) for x in op.operands]
    return function_term(e.terms, op.name, span(f32), EMPTY, parts)


def _dim(value: object) -> Dim:
    assert isinstance(value, int | Poly)
    return value


def _term(value: object) -> Term:
    assert isinstance(value, bool | int | Poly | Node)
    return value

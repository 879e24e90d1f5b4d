"""Float terms: the type that an element is computed in, and conversions between types.

*Exact* terms keep every rounding: an op that rounds carries the type of its result, and a
conversion is the identity only where it changes no value. Terms *in real arithmetic* leave rounding
out and keep the range: bf16 has that of f32, f16 and the floats of 8 bits and fewer end sooner, f64
later.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.ir import Dim, DType, TensorType
from graphgen.ir.attrs import EMPTY
from graphgen.ir.dims import Poly
from graphgen.ir.dtype import (
    bf16,
    decode,
    encode,
    f16,
    f32,
    f64,
    float_digits,
    highest,
    holds,
    lowest,
)
from graphgen.ir.small_float import FORMATS, read_small
from graphgen.passes.proof.integers import choose
from graphgen.passes.proof.terms import Node, Term, Terms

# Elementwise ops whose result is one of the operands, up to its sign: nothing is rounded.
CHOOSING = frozenset(("abs", "clamp", "maximum", "minimum", "negate"))
# Types with both zeros, both infinities and NaN, in which these ops agree.
PLAIN = (bf16, f16, f32, f64)


class ProofLevel(Enum):
    """The extent to which rounding counts in terms.

    EXACT: wholly.
    TYPED: but for the order of sums and products, of one type.
    REAL: not at all: only the ranges of types do.
    """

    EXACT = "exact"
    TYPED = "typed"
    REAL = "real"


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a type, which stands for the type in real arithmetic.

    Attributes:
        dtype: the type; f32 for bf16.
    """

    dtype: DType

    def __str__(self) -> str:
        return f"the range of {self.dtype.name}"


# An op rounds to a type in exact terms, to a range in real arithmetic.
Rounding = DType | Range


@cache
def span(dtype: DType) -> Range:
    """The range of a type."""
    return Range(f32 if dtype is bf16 else dtype)


def in_wide_type(terms: Terms, dtype: DType) -> DType:
    """f32 for a narrow type of which real arithmetic leaves out the range."""
    return f32 if dtype in terms.narrow else dtype


def limit_of(dtype: DType) -> float:
    """The largest magnitude of which numbers have a near one in a narrow type."""
    most = float(min(-lowest(dtype), highest(dtype)))
    # Up to half a step beyond the last whole number, that is the nearest one.
    return most + 0.5 if dtype.is_integer else most


def range_text(dtype: DType) -> str:
    """The assumption that numbers are within the range of a narrow type, in words."""
    most = limit_of(dtype) - (0.5 if dtype.is_integer else 0)
    what = f"no number that is kept in {dtype.name}"
    return f"{what} is beyond its range, times its scale if it has one: {-most:g} to {most:g}"


def remainder_text(dtype: DType) -> str:
    """The assumption on what rounding leaves over and is kept beside the number, in words."""
    what = f"what rounding to whole numbers leaves over and is kept in {dtype.name}"
    return f"{what} is added back with its own scale: it is taken for zero"


def mask_text(dtype: DType) -> str:
    """The assumption that the lowest number of a type masks, in words."""
    return f"the lowest number of {dtype.name} is a mask: all others are far above it"


@cache
def rounded(dtype: DType, number: str) -> str | None:
    """A number in a float type, as text; ``None`` where it is beyond the range."""
    try:
        (found,) = decode(dtype, encode(dtype, float(number)))
    except GraphgenError:
        return None
    return repr(float(found))


@cache
def keeps(target: DType, source: DType) -> bool:
    """True if every value of a float type is one of ``target``."""
    form = FORMATS.get(source.name)
    if form is None:
        return holds(target, source)
    count = 1 << (form.exponent + form.mantissa + form.signed)
    values = {repr(value) for value in read_small(source.name, bytes(range(count)))}
    return target is source or all(rounded(target, value) == value for value in values)


@cache
def _spans(target: DType, source: DType) -> bool:
    """True if the range of a float type is within that of ``target``."""
    return keeps(span(target).dtype, span(source).dtype)


def _holds_whole(terms: Terms, value: Dim, target: DType) -> bool:
    """True for integers that a float type has exactly, whatever the sizes."""
    form = FORMATS.get(target.name)
    if form is not None and not form.signed:
        return False
    end = min(1 << float_digits(target), int(highest(target)))
    return terms.within(value, -end, end)


def whole_number(
    terms: Terms, value: Dim, target: DType, *, level: ProofLevel = ProofLevel.EXACT
) -> Term:
    """An integer as an element of a float type."""
    if isinstance(value, int) and abs(value) < 1 << float_digits(f64):
        return narrowed(terms, terms.node("const", repr(float(value))), target, level=level)
    return narrowed(terms, terms.node("fn", "float", None, EMPTY, value), target, level=level)


def fits(terms: Terms, term: Term, target: DType, *, level: ProofLevel = ProofLevel.EXACT) -> bool:
    """True if an element is known to be a value of a float type, or within its range."""
    if not isinstance(term, Node):
        return False
    key = (term, target, level)
    if key not in terms.fitting:
        terms.fitting[key] = _fits(terms, term, target, level=level)
    return terms.fitting[key]


def _fits(terms: Terms, term: Node, target: DType, *, level: ProofLevel) -> bool:
    args, real = term.args, level is ProofLevel.REAL
    within = _spans if real else keeps
    match term.kind:
        case "const":
            number = rounded(target, str(args[0]))
            finite = number not in (None, "inf", "-inf")
            return number == str(args[0]) or (real and finite)
        case "at":
            of = args[1].dtype if isinstance(args[1], TensorType) else args[1]
            return isinstance(of, DType) and within(target, of)
        case "if":
            return all(fits(terms, cast(Term, part), target, level=level) for part in args[1:])
        case "write":
            return all(fits(terms, cast(Term, part), target, level=level) for part in args[-2:])
        case "fn" | "sum" | "op":
            if isinstance(args[1], DType):
                return within(target, args[1])
            if isinstance(args[1], Range):
                return real and within(target, args[1].dtype)
            if args[0] == "float":
                value = args[3]
                assert isinstance(value, int | Poly)
                end = int(highest(target))
                return _holds_whole(terms, value, target) or (
                    real and target in PLAIN and terms.within(value, -end, end)
                )
            # Of a sum the last argument is the element that is summed.
            parts = [cast(Term, part) for part in args[-1 if term.kind == "sum" else 3 :]]
            return all(fits(terms, part, target, level=level) for part in parts)
        case _:
            return False


def narrowed(
    terms: Terms, term: Term, target: DType, *, level: ProofLevel = ProofLevel.EXACT
) -> Term:
    """A float element converted to a type: itself, where the type has it."""
    if level is ProofLevel.REAL:
        target = in_wide_type(terms, target)
    if not isinstance(term, Node) or fits(terms, term, target, level=level):
        return term
    key = (term, target, level)
    if key not in terms.converted:
        terms.converted[key] = _narrowed(terms, term, target, level=level)
    return terms.converted[key]


def _narrowed(terms: Terms, term: Node, target: DType, *, level: ProofLevel) -> Term:
    if term.kind == "if":
        which, yes, no = term.args
        assert isinstance(which, Node)
        parts = [narrowed(terms, cast(Term, x), target, level=level) for x in (yes, no)]
        return choose(terms, which, *parts)
    if term.kind == "const":
        given = str(term.args[0])
        number = rounded(target, given)
        # Numbers of f64 may be rounded twice on the way to a narrow type.
        if number is not None and (target is f32 or rounded(f32, given) == given):
            return terms.node("const", number)
    if level is not ProofLevel.REAL:
        return terms.node("fn", "convert", target, EMPTY, term)
    wider = term.args[1] if term.kind == "fn" else None
    if isinstance(wider, Range) and _spans(wider.dtype, target):
        # A number beyond the wider range is beyond the narrower one.
        return terms.node("fn", term.args[0], span(target), *term.args[2:])
    return terms.node("fn", "convert", span(target), EMPTY, term)

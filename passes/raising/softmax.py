"""Match a softmax along an axis, and the scores, masks and biases of its operand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphgen.build import Builder
from graphgen.composites.attention import softmax_with_sinks
from graphgen.ir import Value
from graphgen.ir.dims import product
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.raising.axes import UnlikeError, beneath, first_that_fits, ways_of
from graphgen.passes.raising.pattern_rule import ROW, first_operand, traced
from graphgen.passes.raising.row_order import Axis, Followed
from graphgen.pattern import Bindings, apply, match_rule, number, variables
from graphgen.pattern.see_through import literal

# A score this low has weight 0 beside any other.
HIDDEN = -1e4
# Such scores stay hidden under biases, which are smaller than this.
FAR_BELOW = -1e9
# A mask, and whether it is true where scores are hidden.
Mask = tuple[Followed, bool]


@dataclass(frozen=True, slots=True)
class Scores:
    """Operand of a softmax: ``mask(cap * tanh(dot * factor * steps) + bias)``.

    Attributes:
        dot: the product of queries and keys.
        factor: a constant factor of the scores, inside the cap.
        steps: computed factors, and divisors, of the scores: op and number.
        masks: a score is hidden where one of them says so.
        biases: the addends of the scores, each with a constant factor.
        cap: the soft cap; 0 for none.
        scaled: the scores are divided by the cap before it is applied.
    """

    dot: Followed
    factor: float = 1.0
    steps: tuple[tuple[str, Value], ...] = ()
    masks: tuple[Mask, ...] = ()
    biases: tuple[tuple[Followed, float], ...] = ()
    cap: float = 0.0
    scaled: bool = False


_X, _OTHER, _MASK = variables("x other mask")
_SOFTMAX = traced(Builder.softmax, ("x",), ((5, ROW),))
_WITH_SINKS = traced(softmax_with_sinks, ("x", "sinks"), ((5, 2, 5, 3, ROW), (6,)))
# A row less its maximum.
_SHIFTED = first_operand(first_operand(_SOFTMAX))
# The steps between the product and the softmax, in any order and number.
_STEP = (
    apply("select", _MASK, _X, number("else"))
    | apply("select", _MASK, number("then"), _X)
    | apply("tanh", _X)
    | _X * _OTHER
    | _X / _OTHER
    | _X + _OTHER
)
_ADDED_MASK = apply("select", _MASK, 0.0, number("else")) | apply(
    "select", _MASK, number("then"), 0.0
)


def weights_of(found: Followed, slots: Axis) -> tuple[Followed, Followed | None] | None:
    """Match a softmax over slots: its operand, and the scores of a slot without a value.

    That slot is one that was cut off again, or it is in the sum alone.
    """
    found = beneath(found)
    for values, _ in ways_of(found, _WITH_SINKS, slots):
        return values["x"], values["sinks"]
    cut = found.value.producer("slice")
    x = _softmax_of(found if cut is None else Followed(cut.operands[0], found.dims), slots)
    if x is None or cut is None:
        return None if x is None else (x, None)
    joined = x.value.producer("concatenate")
    if joined is None or len(joined.operands) != 2 or any(cut.attrs.dims("start_indices")):
        return None
    scores, sinks = joined.operands
    whole = tuple(product([axis.size for axis in dim]) for dim in x.dims)
    once = tuple(() if dim == (slots,) else dim for dim in x.dims)
    one = tuple(1 if dim == (slots,) else size for dim, size in zip(x.dims, whole, strict=True))
    if (scores.shape, sinks.shape) != (whole, one):
        return None
    return Followed(scores, x.dims), beneath(Followed(sinks, once))


def _softmax_of(found: Followed, slots: Axis) -> Followed | None:
    """The operand of a softmax; some subtract the maximum themselves before they call it."""
    for pattern in (_SOFTMAX, _SHIFTED):
        ways = ways_of(found, pattern, slots)
        inner = next((values["x"] for values, _ in ways), None)
        if inner is None:
            return found if pattern is _SHIFTED else None
        found = beneath(inner)
    return found


def nearly_softmax(found: Followed) -> NoMatch | None:
    """Name what keeps a quotient of exponentials from being a softmax along the summed axis."""
    found = beneath(found)
    op = found.value.op
    if op is None or len(op.results) != 1:
        return None
    ways, matcher = match_rule(op, _SOFTMAX)
    if any(True for _ in ways):
        return no_match("the softmax is not along the summed dimension", found.value, depth=4)
    best = matcher.best
    # A quotient whose dividend is an exponential.
    return no_match(best.reason, best.at, depth=best.count) if best.count >= 2 else None


def scores_of(found: Scores, tried: set[Value] | None = None) -> Scores:
    """Strip scale, cap, masks and biases from scores, outermost first (:class:`UnlikeError`).

    Args:
        found: what is left of them, and what was stripped.
        tried: values that were looked at before, which are not looked at again.
    """
    found, tried = replace(found, dot=beneath(found.dot)), set() if tried is None else tried
    value, op = found.dot.value, found.dot.value.op
    if op is None or value in tried:
        raise UnlikeError("the scores are not a product", value, 1)
    if op.name == "dot_general":
        return found
    tried.add(value)
    unlike = UnlikeError(f"{op.name} is neither a scale nor a mask of scores", value, 2)

    def stripped(way: tuple[Mapping[str, Followed], Bindings]) -> Scores:
        return scores_of(_without(found, op.name, *way), tried)

    return first_that_fits(ways_of(found.dot, _STEP), stripped, unlike)


def _without(found: Scores, step: str, values: Mapping[str, Followed], bound: Bindings) -> Scores:
    """Strip one step (:class:`UnlikeError`)."""
    at, numbers, inner = found.dot.value, bound.numbers, replace(found, dot=values["x"])
    other = values.get("other")
    if step == "select":
        return _unmasked(inner, at, _mask(values, numbers, inner))
    if step == "add" and other is not None:
        return _unbiased(inner, at, *_addends(other, set(), inner))
    if step == "tanh":
        if found.cap or found.steps or found.factor <= 0:
            raise UnlikeError("the scores are capped by no positive constant", at, 9)
        return replace(inner, cap=found.factor, factor=1.0)
    if other is None or other.axes:
        raise UnlikeError(f"{step} is not by one number", at, 1)
    constant = literal(other.value)
    if step == "multiply" and constant is not None:
        return replace(inner, factor=found.factor * constant)
    if step == "divide" and found.cap and constant == found.cap and not found.scaled:
        return replace(inner, scaled=True)
    return replace(inner, steps=(*found.steps, (step, other.value)))


def _unmasked(inner: Scores, at: Value, mask: Mask | None) -> Scores:
    if mask is None:
        raise UnlikeError("the value at masked positions is not very low", at, 3)
    if inner.cap:
        raise UnlikeError("the scores are masked before they are capped", at, 4)
    return replace(inner, masks=(*inner.masks, mask))


def _unbiased(inner: Scores, at: Value, masks: list[Mask], addends: list[Followed]) -> Scores:
    if inner.cap or (inner.steps and addends):
        raise UnlikeError("a bias is added before the scores are scaled or capped", at, 5)
    biases = tuple((bias, inner.factor) for bias in addends)
    return replace(inner, masks=(*inner.masks, *masks), biases=(*inner.biases, *biases))


def _mask(
    values: Mapping[str, Followed], numbers: Mapping[str, float], outside: Scores
) -> Mask | None:
    """A mask, and whether it hides where it is true; ``None`` where scores are not very low.

    Factors outside of the mask act on the hidden scores, too: these have to stay very low, and far
    below every bias.
    """
    hidden = numbers.get("then", numbers.get("else", 0.0)) * outside.factor
    for step, by in outside.steps:
        constant = literal(by)
        if step != "divide" or not constant:
            return None
        hidden /= constant
    low = FAR_BELOW if outside.biases else HIDDEN
    return (values["mask"], "then" in numbers) if hidden <= low else None


def _addends(
    over: Followed, seen: set[Value], outside: Scores
) -> tuple[list[Mask], list[Followed]]:
    """Take masks out of a sum that is added to the scores: the masks, and the biases.

    A value that was seen in the sum before is a bias, whatever it holds.
    """
    over, before = beneath(over), set(seen)
    ways = ways_of(over, _ADDED_MASK) if over.value not in seen else ()
    masks = [mask for way, bound in ways if (mask := _mask(way, bound.numbers, outside))]
    if masks:
        return masks[:1], []
    total = over.value.producer("add") if over.value not in seen else None
    seen.add(over.value)
    parts = (
        [_addends(Followed(value, over.dims), seen, outside) for value in total.operands]
        if total
        else []
    )
    masks = [mask for masks, _ in parts for mask in masks]
    biases = [bias for _, biases in parts for bias in biases]
    if masks and biases and not outside.biases:
        return _addends(over, before, replace(outside, biases=((over, 1.0),)))
    return (masks, biases) if masks else ([], [over])

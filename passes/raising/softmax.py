"""Match a softmax over the last dimension, and the scores, masks and biases of its operand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.raising.matchers import either_way
from graphgen.passes.raising.pattern_rule import ROW, first_operand, traced
from graphgen.pattern import OpPattern, match_rule
from graphgen.pattern.see_through import literal, one_number, plain, scalar, spread

# A score this low has weight 0 beside any other.
HIDDEN = -1e4


@dataclass(frozen=True, slots=True)
class Over:
    """A value that is broadcast over the scores.

    Attributes:
        value: the operand of the broadcast.
        at: the dimension of the scores, in the order of the softmax, of each of its dimensions.
        factor: a constant factor of a bias.
        hides: a mask is true where a score is hidden, not where it is shown.
    """

    value: Value
    at: tuple[int, ...]
    factor: float = 1.0
    hides: bool = False

    def within(self, value: Value) -> Over:
        """An operand of the same shape, without its own broadcast."""
        source, dims = spread(plain(value))
        return replace(self, value=source, at=tuple(self.at[dim] for dim in dims))


@dataclass(frozen=True, slots=True)
class Scores:
    """Operand of a softmax: ``mask(cap * tanh(dot * factor * steps) + bias)``.

    Attributes:
        dot: the product of queries and keys.
        order: the dimension of ``dot`` of each dimension of the softmax.
        factor: a constant factor of the scores, inside the cap.
        steps: computed factors and divisors of the scores: op and number.
        masks: a score is hidden where one of them says so.
        biases: the addends of the scores.
        cap: the soft cap; 0 for none.
        scaled: the scores are divided by the cap before it is applied.
    """

    dot: Value
    order: tuple[int, ...]
    factor: float = 1.0
    steps: tuple[tuple[str, Value], ...] = ()
    masks: tuple[Over, ...] = ()
    biases: tuple[Over, ...] = ()
    cap: float = 0.0
    scaled: bool = False


_SOFTMAX = traced(Builder.softmax, ("x",), ((5, ROW),))
# A row less its maximum.
_SHIFTED = first_operand(first_operand(_SOFTMAX))


def softmax_of(value: Value) -> Value | None:
    """Match a softmax along the last dimension: its operand."""
    scores = _operand(value, _SOFTMAX)
    # Some subtract the maximum themselves before they call softmax.
    return (_operand(scores, _SHIFTED) or scores) if scores is not None else None


def nearly_softmax(value: Value) -> NoMatch | None:
    """Name what keeps a quotient of exponentials from being a softmax along the last dimension."""
    op = plain(value).op
    if op is None or len(op.results) != 1:
        return None
    ways, matcher = match_rule(op, _SOFTMAX)
    if any(True for _ in ways):
        return no_match("the softmax is not along the last dimension", value, depth=4)
    best = matcher.best
    # A quotient whose dividend is an exponential.
    return no_match(best.reason, best.at, depth=best.count) if best.count >= 2 else None


def _operand(value: Value, pattern: OpPattern) -> Value | None:
    """Match a pattern along the last dimension: what the maximum is subtracted from."""
    op = plain(value).op
    last = value.type.rank - 1
    for bound in match_rule(op, pattern)[0] if op is not None else ():
        reduced = [at for inner, at in bound.ops if inner.name == "reduce"]
        if all(at is not None and last not in at for at in reduced):
            return next(inner for inner, _ in bound.ops if inner.name == "subtract").operands[0]
    return None


def scores_of(value: Value) -> Scores | NoMatch:
    """Strip scale, masks and a bias from scores, outermost first."""
    found = Scores(value, tuple(range(value.type.rank)))
    while True:
        found = replace(found, dot=plain(found.dot))
        op = found.dot.op
        if op is None or op.name == "dot_general":
            return found if op is not None else no_match("the scores are not a product", found.dot)
        if op.name not in _STEPS:
            return no_match(
                f"{op.name} is neither a scale nor a mask of scores", found.dot, depth=2
            )
        inner = _STEPS[op.name](found, op)
        if isinstance(inner, NoMatch):
            return inner
        found = inner


# Matches one op between the product and the softmax.
_StepRule = Callable[[Scores, Op], Scores | NoMatch]
_STEPS: dict[str, _StepRule] = {}


def _step(name: str) -> Callable[[_StepRule], _StepRule]:
    def register(rule: _StepRule) -> _StepRule:
        _STEPS[name] = rule
        return rule

    return register


@_step("select")
def _selected(found: Scores, op: Op) -> Scores | NoMatch:
    if found.cap:
        return no_match("the scores are masked before they are capped", op.result, depth=3)
    masked = _masked(op)
    if masked is None:
        return no_match("the value at masked positions is not very low", op.operands[2], depth=3)
    mask, shown, hides = masked
    mask = replace(_over(found, mask), hides=hides)
    return replace(found, dot=shown, masks=(*found.masks, mask))


def _masked(op: Op) -> tuple[Value, Value, bool] | None:
    """Match a choice of a very low number: the mask, the other value, and whether it hides."""
    mask, *values = op.operands
    for (shown, hidden), hides in ((values, False), (values[::-1], True)):
        low = scalar(hidden)
        if low is not None and low <= HIDDEN:
            return mask, shown, hides
    return None


@_step("add")
def _shifted(found: Scores, op: Op) -> Scores | NoMatch:
    """Strip what is added: masks, biases, or sums of them."""
    for shown, addend in either_way(op):
        if not _leads_to_product(shown):
            continue
        masks, biases = _addends(_over(found, addend))
        if found.cap or (found.steps and biases):
            return no_match(
                "a bias is added before the scores are scaled or capped", op.result, depth=5
            )
        scaled = [replace(bias, factor=found.factor) for bias in biases]
        return replace(
            found, dot=shown, masks=(*found.masks, *masks), biases=(*found.biases, *scaled)
        )
    return no_match(
        "the value added to the scores is neither a mask nor a bias", op.result, depth=6
    )


def _addends(over: Over) -> tuple[list[Over], list[Over]]:
    """Take masks out of a sum that is added to the scores: the masks, and the biases."""
    op = plain(over.value).producer("select")
    mask, shown, hides = (op and _masked(op)) or (None, None, False)
    if mask is not None and shown is not None and scalar(shown) == 0:
        return [replace(over.within(mask), hides=hides)], []
    total = over.value.producer("add")
    parts = [_addends(over.within(value)) for value in total.operands] if total else []
    masks = [mask for masks, _ in parts for mask in masks]
    return (masks, [bias for _, biases in parts for bias in biases]) if masks else ([], [over])


def _over(found: Scores, value: Value) -> Over:
    source, dims = spread(plain(value))
    return Over(source, tuple(found.order.index(dim) for dim in dims))


def _leads_to_product(value: Value) -> bool:
    """Test whether ``value`` is a product up to scale, cap, masks and layout."""
    op = plain(value).op
    through = ("multiply", "divide", "transpose", "add", "select", "tanh")
    if op is None or op.name not in through:
        return op is not None and op.name == "dot_general"
    return any(_leads_to_product(v) for v in op.operands if v.shape == op.result.shape)


@_step("multiply")
def _scaled(found: Scores, op: Op) -> Scores | NoMatch:
    for inner, number in either_way(op):
        factor = literal(number)
        if factor is not None:
            return replace(found, dot=inner, factor=found.factor * factor)
        computed = one_number(number)
        if computed is not None:
            return replace(found, dot=inner, steps=(*found.steps, ("multiply", computed)))
    return no_match("the scores are not multiplied by one number", op.result, depth=7)


@_step("divide")
def _divided(found: Scores, op: Op) -> Scores | NoMatch:
    inner, divisor = op.operands
    number = one_number(divisor)
    if number is None:
        return no_match("the scores are not divided by one number", divisor, depth=8)
    if found.cap and literal(divisor) == found.cap and not found.scaled:
        return replace(found, dot=inner, scaled=True)
    return replace(found, dot=inner, steps=(*found.steps, ("divide", number)))


@_step("tanh")
def _capped(found: Scores, op: Op) -> Scores | NoMatch:
    if found.cap or found.steps or found.factor <= 0:
        return no_match("the scores are capped by no positive constant", op.result, depth=9)
    return replace(found, dot=op.operands[0], cap=found.factor, factor=1.0)


@_step("transpose")
def _turned(found: Scores, op: Op) -> Scores | NoMatch:
    permutation = op.attrs.integers("permutation")
    order = tuple(permutation[dim] for dim in found.order)
    return replace(found, dot=op.operands[0], order=order)

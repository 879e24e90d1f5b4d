"""Match a softmax over the last dimension, and the scores, masks and biases of its operand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from graphgen.ir import Op, Value
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.raising.matchers import (
    either_way,
    literal,
    one_number,
    over_rows,
    plain,
    scalar,
    spread,
)

# A score this low has weight 0 beside any other.
HIDDEN = -1e4


@dataclass(frozen=True, slots=True)
class Over:
    """A value that is broadcast over the scores.

    Attributes:
        value: the operand of the broadcast.
        at: the dimension of the scores, in the order of the softmax, of each of its dimensions.
    """

    value: Value
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scores:
    """Operand of a softmax: ``mask(dot * factor * steps + bias)``.

    Attributes:
        dot: the product of queries and keys.
        order: the dimension of ``dot`` of each dimension of the softmax.
        factor: a constant factor of the scores.
        steps: computed factors and divisors of the scores: op and number.
        masks: a score is hidden where one of them is false.
        bias: the addend of the scores, if there is one.
    """

    dot: Value
    order: tuple[int, ...]
    factor: float = 1.0
    steps: tuple[tuple[str, Value], ...] = ()
    masks: tuple[Over, ...] = ()
    bias: Over | None = None


def softmax_of(value: Value) -> Value | None:
    """Match a softmax along the last dimension: its operand."""
    op = plain(value).producer("divide")
    if op is None:
        return None
    raised, total = op.operands
    exponential = plain(raised).producer("exponential")
    rank = raised.type.rank
    if exponential is None or not _is_reduced(total, raised, "add", rank):
        return None
    difference = exponential.operands[0].producer("subtract")
    if difference is None:
        return None
    scores, top = difference.operands
    return scores if _is_reduced(top, scores, "maximum", rank) else None


def _is_reduced(value: Value, of: Value, kind: str, rank: int) -> bool:
    """Test whether ``value`` is the sum or maximum of each row of ``of``, broadcast."""
    row = over_rows(value, rank)
    if row is None:
        return False
    row = plain(row)
    limit = row.producer("maximum")
    if limit is not None:
        # JAX clamps the maximum from below by minus infinity.
        rows = [a for a, number in either_way(limit) if scalar(number) == float("-inf")]
        row = plain(rows[0]) if rows else row
    op = row.producer("reduce")
    if op is None or op.attrs.text("kind") != kind:
        return False
    last = op.attrs.integers("dimensions") == (rank - 1,)
    return last and plain(op.operands[0]) is plain(of)


def scores_of(value: Value) -> Scores | NoMatch:
    """Strip scale, masks and a bias from scores, outermost first."""
    found = Scores(value, tuple(range(value.type.rank)))
    while True:
        found = replace(found, dot=plain(found.dot))
        op = found.dot.op
        if op is None or op.name == "dot_general":
            return found if op is not None else no_match("the scores are no product", found.dot)
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
    mask, shown, hidden = op.operands
    low = scalar(hidden)
    if low is None or low > HIDDEN:
        return no_match("what is not selected is not very low", hidden, depth=3)
    return replace(found, dot=shown, masks=(*found.masks, _over(found, mask)))


@_step("add")
def _shifted(found: Scores, op: Op) -> Scores | NoMatch:
    """Strip an added mask, or a bias."""
    sides = list(either_way(op))
    for shown, bias in sides:
        over = _over(found, bias)
        mask = _mask_of(over.value)
        if mask is not None:
            source, dims = spread(mask)
            inside = Over(source, tuple(over.at[dim] for dim in dims))
            return replace(found, dot=shown, masks=(*found.masks, inside))
    for shown, bias in sides:
        if not _leads_to_product(shown):
            continue
        if found.bias is not None:
            return no_match("more than one bias is added to the scores", op.result, depth=4)
        if found.factor != 1 or found.steps:
            return no_match("a bias is added before the scores are scaled", op.result, depth=5)
        return replace(found, dot=shown, bias=_over(found, bias))
    return no_match("what is added to the scores is neither a mask nor a bias", op.result, depth=6)


def _over(found: Scores, value: Value) -> Over:
    source, dims = spread(plain(value))
    return Over(source, tuple(found.order.index(dim) for dim in dims))


def _leads_to_product(value: Value) -> bool:
    """Test whether ``value`` is a product up to scale, masks and layout."""
    op = plain(value).op
    while op is not None and op.name in ("multiply", "divide", "transpose", "add", "select"):
        op = plain(op.operands[1 if op.name == "select" else 0]).op
    return op is not None and op.name == "dot_general"


def _mask_of(bias: Value) -> Value | None:
    """Match ``select(mask, 0, very low)``: the mask."""
    op = plain(bias).producer("select")
    if op is None:
        return None
    mask, shown, hidden = op.operands
    low = scalar(hidden)
    fits = scalar(shown) == 0 and low is not None and low <= HIDDEN
    return mask if fits else None


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
    divisor = one_number(op.operands[1])
    if divisor is None:
        return no_match("the scores are not divided by one number", op.operands[1], depth=8)
    return replace(found, dot=op.operands[0], steps=(*found.steps, ("divide", divisor)))


@_step("transpose")
def _turned(found: Scores, op: Op) -> Scores | NoMatch:
    permutation = op.attrs.integers("permutation")
    order = tuple(permutation[dim] for dim in found.order)
    return replace(found, dot=op.operands[0], order=order)

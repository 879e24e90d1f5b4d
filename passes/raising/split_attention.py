"""Raise attention over the cache and the new tokens apart, under one softmax."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.raising.attention import attention_of
from graphgen.passes.raising.attention_dims import SLOTS, Dims, dims_of
from graphgen.passes.raising.matchers import either_way
from graphgen.passes.raising.softmax import Scores, scores_of
from graphgen.pattern.see_through import plain, spread


@rule("divide")
def raise_split_attention(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``(exp(s - m) u + exp(t - m) v) / (sum exp(s - m) + sum exp(t - m))`` is attention."""
    total, divisor = plain(op.operands[0]).producer("add"), spread(plain(op.operands[1]))
    sums = plain(divisor[0]).producer("add")
    products = [plain(value).producer("dot_general") for value in total.operands] if total else []
    if sums is None or len(products) != 2 or None in products:
        return NoMatch("it is not a sum of two products over a sum of two", op.result)
    found: list[tuple[Scores, Dims]] = []
    tops: list[Value] = []
    for product, summed in zip(products, sums.operands, strict=True):
        assert product is not None
        part = _part(product, summed)
        if isinstance(part, NoMatch):
            return part
        found.append(part[:2])
        tops.append(part[2])
    limit = tops[0].producer("maximum")
    if tops[0] is not tops[1] or limit is None:
        return no_match("the parts do not subtract one maximum", op.result, depth=18)
    (first, dims), (second, other) = found
    one = dims.query == other.query and dims.result == other.result
    same = (first.factor, first.steps) == (second.factor, second.steps)
    other_terms = first.cap or second.cap or first.biases or second.biases
    if not one or not same or other_terms:
        return no_match("the parts are not of one query, scaled alike", op.result, depth=19)
    roles = {dim: role for role, dim in dims.scores.items() if role != SLOTS}
    if [dims.result[dim] for dim in divisor[1]] != [roles[dim] for dim in sorted(roles)]:
        return no_match("the sum is not that of each row of scores", op.operands[1], depth=20)
    made = attention_of(op, b, found)
    return made.after(5) if isinstance(made, NoMatch) else made


def _part(product: Op, summed: Value) -> tuple[Scores, Dims, Value] | NoMatch:
    """Match one part: its scores and layout, and the maximum that is subtracted."""
    for weights, value in enumerate(product.operands):
        raised = plain(value).producer("exponential")
        difference = raised.operands[0].producer("subtract") if raised is not None else None
        if raised is None or difference is None:
            continue
        masked, spread_top = difference.operands
        rank = masked.type.rank
        top, dims = spread(spread_top)
        if dims != tuple(range(rank - 1)) or not _is_sum(summed, raised.result):
            return no_match("a part is not summed along its slots", value, depth=2)
        if not _is_top(top, masked):
            return no_match("the value subtracted is not the largest score", spread_top, depth=3)
        scores = scores_of(masked)
        if isinstance(scores, NoMatch):
            return scores.after(3)
        found = dims_of(product, weights, range(rank), scores)
        return found.after(3) if isinstance(found, NoMatch) else (scores, found, top)
    return no_match("a part is not a product with exponentials", product.result)


def _is_sum(value: Value, of: Value) -> bool:
    """Test whether ``value`` is the sum of ``of`` along its last dimension."""
    op = plain(value).producer("reduce")
    last = (of.type.rank - 1,)
    return (
        op is not None
        and op.attrs.text("kind") == "add"
        and op.attrs.integers("dimensions") == last
        and plain(op.operands[0]) is of
    )


def _is_top(top: Value, scores: Value) -> bool:
    """Test whether one operand of the maximum ``top`` is the maximum of ``scores``."""
    limit = top.producer("maximum")
    for side, _ in either_way(limit) if limit is not None else ():
        op = plain(side).producer("reduce")
        if op is not None and op.attrs.text("kind") == "maximum":
            last = op.attrs.integers("dimensions") == (scores.type.rank - 1,)
            if last and plain(op.operands[0]) is plain(scores):
                return True
    return False

"""Merge collectives: sums of sums, slices of gathered values, exchanges that cancel.

A collective is replaced only where no other op reads it, so that it is really gone: what a program
sends never becomes more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import Function, Op, Value
from graphgen.passes.core import NoMatch, Rule, no_match, rule
from graphgen.passes.core.rule import Replacement
from graphgen.passes.sharding.collective_cost import alone, groups_of, sent, total
from graphgen.passes.sharding.mesh import Groups
from graphgen.passes.spmd.rank_constants import RankNumbers

GROUPED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SUMS = ("all_reduce", "reduce_scatter")
# Elementwise ops of two reduced values, with the kind of reduction that commutes with each.
_SAME_KIND = {"add": "add", "subtract": "add", "maximum": "maximum", "minimum": "minimum"}


@dataclass(slots=True)
class MergeContext:
    """The program that the rules rewrite.

    Attributes:
        function: the program.
        ranks: how many run it.
        numbers: what follows from the rank.
    """

    function: Function
    ranks: int
    numbers: RankNumbers = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = RankNumbers(self.function, self.ranks)

    def only(self, value: Value, reader: Op) -> bool:
        """True if ``reader`` is the only user of a value."""
        return list(value.users) == [reader] and not self.function.returns(value)

    def merged(self, b: Builder, values: Sequence[Value], *gone: Op) -> Replacement:
        """The replacement of collectives that become dead; refused if it sends more."""
        before, after = total(dict.fromkeys(gone)), total(b.made or ())
        assert after <= before, f"{after} bytes would be sent instead of {before}"
        saved = (before - after) // self.ranks
        fewer = len(set(gone)) - sum([sent(op) > 0 for op in b.made or ()])
        times = f", {fewer} collective{'s' * (fewer > 1)} less" if fewer else ""
        return Replacement(values, gain=f"{saved} bytes less a rank{times}")


def merge_rules(program: MergeContext) -> tuple[Rule, ...]:
    """The rules for one program."""
    return (
        _nothing_to_exchange(program),
        _sum_of_sums(program),
        _slice_of_gather(program),
        _slice_of_sum(program),
        _gather_of_scatter(program),
        _permute_of_permute(program),
        _exchange_and_back(program),
    )


def _nothing_to_exchange(program: MergeContext) -> Rule:
    @rule(*GROUPED, "collective_permute")
    def nothing_to_exchange(op: Op, b: Builder) -> Replacement | NoMatch:
        """``collective(x) = x`` in groups of one rank, and for identity permutations."""
        groups = groups_of(op)
        if op.name == "collective_permute":
            same = tuple((rank, rank) for rank in range(program.ranks))
            if tuple(sorted(groups)) != same:
                return no_match("a rank gets something else than its own", op.operands[0])
        elif not alone(groups):
            return no_match("ranks talk to each other", op.operands[0], depth=2)
        return program.merged(b, op.operands, op)

    return nothing_to_exchange


def _sum_of_sums(program: MergeContext) -> Rule:
    @rule(*_SAME_KIND)
    def sum_of_sums(op: Op, b: Builder) -> Replacement | NoMatch:
        """``sum(a) + sum(b) = sum(a + b)`` over the same ranks; likewise for max and min."""
        left, right = [value.op for value in op.operands]
        if left is None or right is None or left.name not in SUMS:
            return no_match("the operands are not combined over ranks", op.operands[0])
        if right.name != left.name or right.attrs != left.attrs:
            return no_match("the operands are not combined alike", op.operands[1], depth=2)
        if left.attrs.text("kind") != _SAME_KIND[op.name]:
            return no_match(
                f"{left.attrs.text('kind')} over ranks does not go with {op.name}", depth=3
            )
        for value in op.operands:
            if not program.only(value, op):
                return no_match("others read it, so it is needed by itself", value, depth=4)
        parts = (left.operands[0], right.operands[0])
        made = b.emit(op.name, parts, dict(op.attrs)).result
        found = b.emit(left.name, (made,), dict(left.attrs)).result
        return program.merged(b, [found], left, right)

    return sum_of_sums


def _slice_of_gather(program: MergeContext) -> Rule:
    @rule("dynamic_slice")
    def slice_of_gather(op: Op, b: Builder) -> Replacement | NoMatch:
        """``slice_rank(all_gather(x)) = x``."""
        gather = op.operands[0].producer("all_gather")
        if gather is None:
            return no_match("the operand is not gathered", op.operands[0])
        dim = gather.attrs.integer("dimension")
        why = program.numbers.why_not_own(op, groups_of(gather), dim)
        if why:
            return no_match(why, op.operands[0], depth=2)
        gone = [gather] if program.only(gather.result, op) else []
        return program.merged(b, gather.operands, *gone)

    return slice_of_gather


def _slice_of_sum(program: MergeContext) -> Rule:
    @rule("dynamic_slice")
    def slice_of_sum(op: Op, b: Builder) -> Replacement | NoMatch:
        """``slice_rank(all_reduce(x)) = reduce_scatter(x)``: half of the bytes."""
        whole = op.operands[0].producer("all_reduce")
        if whole is None:
            return no_match("the operand is not a sum over ranks", op.operands[0])
        groups = groups_of(whole)
        if len({len(group) for group in groups}) > 1:
            return no_match("groups differ in size", whole.result, depth=2)
        if not program.only(whole.result, op):
            return no_match("others read the whole sum", whole.result, depth=3)
        dim = _cut_dimension(op)
        if dim is None:
            return no_match("not one dimension is cut", op.operands[0], depth=4)
        why = program.numbers.why_not_own(op, groups, dim)
        if why:
            return no_match(why, op.operands[0], depth=5)
        attrs = {**whole.attrs, "dimension": dim}
        return program.merged(b, [b.emit("reduce_scatter", whole.operands, attrs).result], whole)

    return slice_of_sum


def _cut_dimension(cut: Op) -> int | None:
    """The only dimension that a dynamic slice narrows."""
    pairs = zip(cut.operands[0].shape, cut.attrs.dims("slice_sizes"), strict=True)
    cuts = [dim for dim, (whole, size) in enumerate(pairs) if whole != size]
    return cuts[0] if len(cuts) == 1 else None


def _gather_of_scatter(program: MergeContext) -> Rule:
    @rule("all_gather")
    def gather_of_scatter(op: Op, b: Builder) -> Replacement | NoMatch:
        """``all_gather(reduce_scatter(x)) = all_reduce(x)``."""
        parts = op.operands[0].producer("reduce_scatter")
        if parts is None:
            return no_match("the operand is not a part of a sum", op.operands[0])
        if any(parts.attrs[key] != op.attrs[key] for key in op.attrs):
            return no_match(
                "parts are joined otherwise than they were cut", op.operands[0], depth=2
            )
        if not program.only(parts.result, op):
            return no_match("others read the part", parts.result, depth=3)
        attrs = {key: parts.attrs[key] for key in ("kind", "replica_groups")}
        made = b.emit("all_reduce", parts.operands, attrs).result
        return program.merged(b, [made], parts, op)

    return gather_of_scatter


def _permute_of_permute(program: MergeContext) -> Rule:
    @rule("collective_permute")
    def permute_of_permute(op: Op, b: Builder) -> Replacement | NoMatch:
        """``permute(permute(x, p), q) = permute(x, q . p)``."""
        first = op.operands[0].producer("collective_permute")
        if first is None:
            return no_match("the operand was not handed on", op.operands[0])
        if not program.only(first.result, op):
            return no_match("others read it on its way", first.result, depth=2)
        pairs = _composed(groups_of(first), groups_of(op))
        if len([1 for a, b in pairs if a != b]) > sum(
            [a != b for p in (first, op) for a, b in groups_of(p)]
        ):
            return no_match("more ranks would send than do now", first.result, depth=3)
        made = b.emit("collective_permute", first.operands, {"source_target_pairs": pairs}).result
        return program.merged(b, [made], first, op)

    return permute_of_permute


def _composed(first: Groups, second: Groups) -> Groups:
    """Compose source-target pairs; a rank without a source has zeros."""
    came = {target: source for source, target in first}
    return tuple(sorted((came[via], target) for via, target in second if via in came))


def _exchange_and_back(program: MergeContext) -> Rule:
    @rule("all_to_all")
    def exchange_and_back(op: Op, b: Builder) -> Replacement | NoMatch:
        """``all_to_all(all_to_all(x)) = x`` for inverse exchanges."""
        first = op.operands[0].producer("all_to_all")
        if first is None:
            return no_match("the operand was not exchanged", op.operands[0])
        there, back = first.attrs, op.attrs
        dims = ("split_dimension", "concat_dimension")
        if groups_of(first) != groups_of(op) or [there[key] for key in dims] != [
            back[key] for key in reversed(dims)
        ]:
            return no_match(
                "the second exchange is not the first one back", op.operands[0], depth=2
            )
        gone = [first, op] if program.only(first.result, op) else [op]
        return program.merged(b, first.operands, *gone)

    return exchange_and_back

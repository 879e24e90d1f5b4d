"""Search of a function for a chain of patterns, as ``graphgen grep`` writes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphgen.analysis.pattern.conditions import Known
from graphgen.analysis.pattern.matcher import Bindings, Matcher
from graphgen.analysis.pattern.pattern_nodes import OpPattern
from graphgen.ir import Function, Op


@dataclass(frozen=True, slots=True)
class Match:
    """One match of a chain.

    Attributes:
        ops: one for each op of the chain.
        output: the output's name where the chain ends in ``return``.
    """

    ops: tuple[Op, ...]
    output: str = ""


def find(function: Function, chain: Sequence[OpPattern], known: Known) -> Iterator[Match]:
    """Every place in a function where the chain fits, in program order."""
    matcher = Matcher(known)
    for op in function.block:
        for bound in matcher.op(op, chain[0], Bindings()):
            yield from _follow(matcher, function, (op,), chain[1:], bound)


def _follow(
    matcher: Matcher,
    function: Function,
    ops: tuple[Op, ...],
    rest: Sequence[OpPattern],
    bound: Bindings,
) -> Iterator[Match]:
    """Complete a chain of which ``ops`` fit."""
    if not rest:
        yield Match(ops)
    elif rest[0].names == ("return",):
        yield from (Match(ops, name) for name, value in function.outputs if value.op is ops[-1])
    else:
        users = dict.fromkeys(user for result in ops[-1].results for user in result.users)
        for user in users:
            for more in matcher.op(user, rest[0], bound):
                yield from _follow(matcher, function, (*ops, user), rest[1:], more)

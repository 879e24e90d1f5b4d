"""The two rules that move takes: up to what the heads come from, down to what sums over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.core import NoMatch, Rule, no_match, rule
from graphgen.passes.heads.absorb import ABSORBS, Absorb
from graphgen.passes.heads.commute import COMMUTES
from graphgen.passes.heads.takes import Move, Takes


def moves(
    takes: Takes, refusals: dict[Op, NoMatch], absorbs: Mapping[str, Absorb] = ABSORBS
) -> tuple[Rule, Rule]:
    """The rules for one program.

    Args:
        takes: the program's.
        refusals: where it is written why a take does not move on.
        absorbs: what may read all heads in place of the model's.
    """

    @rule("take")
    def take_before(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """A take of what an op makes is what the op makes of takes."""
        takes.made = b.made
        move = Move.of(op)
        if move is None or not move.lays_out:
            return no_match("it takes the model's heads, or what is computed", op.operands[0])
        found = _before(op.operands[0], move, takes, b)
        if isinstance(found, NoMatch):
            refusals[op] = found
            return found
        return [found]

    @rule(*absorbs)
    def take_behind(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """What an op makes of the model's heads is taken from what it makes of all heads."""
        takes.made = b.made
        for index, value in enumerate(op.operands):
            move = _of_model(value)
            if move is not None and value.op is not None:
                found = absorbs[op.name](op, index, move, takes, b)
                if isinstance(found, NoMatch):
                    refusals[value.op] = found
                    return found
                return [found] if isinstance(found, Value) else found
        return NoMatch("it reads no heads that are laid out")

    return take_before, take_behind


def _before(value: Value, move: Move, takes: Takes, b: Builder) -> Value | NoMatch:
    if value.op is None:
        return no_match("it takes from an argument", value, depth=2)
    commute = COMMUTES.get(value.op.name)
    if commute is None:
        return no_match(f"{value.op.name} is not known to keep heads apart", value, depth=3)
    found = commute(value.op, move, takes, b)
    if isinstance(found, NoMatch):
        return found.after(3)
    takes.became(value, move, found)
    return found


def _of_model(value: Value) -> Move | None:
    """The take that ``value`` is, where that takes the model's heads out of those laid out."""
    made = value.producer("take")
    move = Move.of(made) if made is not None else None
    return None if move is None or move.lays_out else move

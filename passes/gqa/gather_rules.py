"""Rules that move head gathers: sink them to the weights, fold them into the output projection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.core import NoMatch, Rule, no_match, rule
from graphgen.passes.gqa.fold_gather import FOLD_RULES, FoldRule
from graphgen.passes.gqa.head_gather import GatherEmitter, HeadGather
from graphgen.passes.gqa.sink_gather import SINK_RULES


def gather_rules(
    emitter: GatherEmitter,
    refusals: dict[Op, NoMatch],
    fold_rules: Mapping[str, FoldRule] = FOLD_RULES,
) -> tuple[Rule, Rule]:
    """The rules for one program.

    Args:
        emitter: emits the gathers of the program.
        refusals: receives the reason per gather that cannot move.
        fold_rules: ops that may read all assigned heads instead of the model's.
    """

    @rule("take")
    def take_before(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``gather(f(x)) = f(gather(x))``."""
        emitter.made = b.made
        gather = HeadGather.of(op) if op in emitter.emitted else None
        if gather is None or not gather.assigns:
            return no_match("it takes the model's heads, or what is computed", op.operands[0])
        found = _sunk(op.operands[0], gather, emitter, b)
        if isinstance(found, NoMatch):
            refusals[op] = found
            return found
        return [found]

    @rule(*fold_rules)
    def take_behind(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``f(gather(x)) = gather(f(x))``."""
        emitter.made = b.made
        for index, value in enumerate(op.operands):
            gather = _model_gather(value, emitter)
            if gather is not None and value.op is not None:
                found = fold_rules[op.name](op, index, gather, emitter, b)
                if isinstance(found, NoMatch):
                    refusals[value.op] = found
                    return found
                return [found] if isinstance(found, Value) else found
        return NoMatch("it reads no heads that are laid out")

    return take_before, take_behind


def _sunk(value: Value, gather: HeadGather, emitter: GatherEmitter, b: Builder) -> Value | NoMatch:
    if value.op is None:
        return no_match("it takes from an argument", value, depth=2)
    sink = SINK_RULES.get(value.op.name)
    if sink is None:
        return no_match(f"{value.op.name} is not known to keep heads apart", value, depth=3)
    found = sink(value.op, gather, emitter, b)
    if isinstance(found, NoMatch):
        return found.after(3)
    emitter.rebind(value, gather, found)
    return found


def _model_gather(value: Value, emitter: GatherEmitter) -> HeadGather | None:
    """The gather of the model's heads that ``value`` is, ``None`` for other values."""
    made = value.producer("take")
    gather = HeadGather.of(made) if made in emitter.emitted else None
    return None if gather is None or gather.assigns else gather

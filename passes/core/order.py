"""Is the order of a pipeline right? Answered before the first pass runs.

Known facts of the module are tracked through the pipeline: the level each pass takes and gives, the
facts it needs, brings about and takes away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.ops import IR_STAGES
from graphgen.passes.core.invariants import FACTS, facts_of
from graphgen.passes.core.pass_ import Pass
from graphgen.passes.core.registry import all_passes


def check_order(passes: Sequence[Pass], module: Module | None = None) -> None:
    """Refuse a pipeline of which some pass cannot run where it stands.

    Args:
        passes: in order.
        module: what it starts from; without one, only what can go wrong with every module is found.

    Raises:
        GraphgenError: GG0303 naming the pass, what it needs, and where to put which pass.
    """
    state = _State() if module is None else _State.of(module)
    for number, item in enumerate(passes, 1):
        where = f"pass {number} of {len(passes)}: {item}"
        state.check_level(item, where)
        state.check_facts(item, where)
        state.advance(item)


@dataclass(slots=True)
class _State:
    """Abstract state of a module between two passes.

    Attributes:
        levels: those it may be at.
        facts: whether each holds; what is not known is missing.
        raised: the pass that brought it to its level.
        spoiled: the pass that took a fact away.
    """

    levels: frozenset[str] = field(default_factory=lambda: frozenset(IR_STAGES))
    facts: dict[str, bool] = field(default_factory=dict[str, bool])
    raised: Pass | None = None
    spoiled: dict[str, Pass] = field(default_factory=dict[str, Pass])

    @staticmethod
    def of(module: Module) -> _State:
        """Everything is known of a module that is there."""
        holding = facts_of(module)
        return _State(frozenset([module.level]), {name: name in holding for name in FACTS})

    def check_level(self, item: Pass, where: str) -> None:
        """GG0303 where the module is at no level that the pass takes."""
        if self.levels.isdisjoint(item.input_stages):
            raise GraphgenError(
                "GG0303",
                f"{item.name} takes a module at level {' or '.join(item.input_stages)}, not "
                + " or ".join(f"'{level}'" for level in sorted(self.levels)),
                where=where,
                help=self._level_help(item),
            )

    def check_facts(self, item: Pass, where: str) -> None:
        """GG0303 where a fact that the pass needs does not hold."""
        for name in item.requires:
            if not self.facts.get(name, True):
                raise GraphgenError(
                    "GG0303",
                    f"{item.name} needs '{name}': {FACTS[name].doc}",
                    where=where,
                    help=self._fact_help(item, name),
                )

    def advance(self, item: Pass) -> None:
        """Update the state by the declarations of the pass."""
        self.levels &= frozenset(item.input_stages)
        if item.output_stage:
            self.levels, self.raised = frozenset([item.output_stage]), item
        for name in item.invalidates:
            self.facts[name] = False
            self.spoiled[name] = item
        # Facts that a pass needed and did not take away still hold.
        for name in (*item.requires, *item.provides):
            if name not in item.invalidates:
                self.facts[name] = True

    def _level_help(self, item: Pass) -> str:
        if self.raised is not None:
            return _put_before(item, self.raised)
        before = [
            known.name
            for known in all_passes().values()
            if known.output_stage in item.input_stages
            and not self.levels.isdisjoint(known.input_stages)
        ]
        return _run_before(before) or f"`graphgen passes {item.name}` shows where it belongs"

    def _fact_help(self, item: Pass, name: str) -> str:
        found = [known.name for known in all_passes().values() if name in known.provides]
        spoiler = self.spoiled.get(name)
        if not found and spoiler is not None:
            return _put_before(item, spoiler)
        return _run_before(found) or "no pass brings it about: start from an earlier module"


def _put_before(item: Pass, other: Pass) -> str:
    again = item.name == other.name
    return f"{item.name} has run already" if again else f"put {item.name} before {other.name}"


def _run_before(names: Sequence[str]) -> str:
    return f"run {' or '.join(names)} before it" if names else ""

"""The one place where a pass changes a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Op, Value
from passes.core.rule import No, Rule


class Rewriter:
    """Edits functions on behalf of one pass, and counts what it does.

    Args:
        pass_name: goes into the provenance of every op made.

    Attributes:
        applications: how many rewrites have been made.
    """

    def __init__(self, pass_name: str) -> None:
        self.pass_name = pass_name
        self.applications = 0

    def before(self, function: Function, op: Op) -> Builder:
        """A builder that inserts before ``op`` and gives what it makes ``op``'s provenance."""
        return Builder(function, before=op, loc=op.loc.through(self.pass_name))

    def replace(self, function: Function, op: Op, values: Sequence[Value]) -> None:
        """Let every reader of ``op``'s results read ``values`` instead, and erase ``op``.

        Raises:
            GraphgenError: GG0304 when a value has another type than the result it replaces.
        """
        for old, new in zip(op.results, values, strict=True):
            if new.type is not old.type:
                raise GraphgenError(
                    "GG0304",
                    f"{self.pass_name}: {op.name} {old.type.text} cannot become {new.type.text}",
                    where=repr(op.loc),
                )
            function.replace_uses(old, new)
        function.block.erase(op)
        self.applications += 1

    def erase(self, function: Function, op: Op) -> None:
        """Remove an op nobody reads."""
        function.block.erase(op)
        self.applications += 1

    def apply_rules(self, function: Function, rules: Iterable[Rule]) -> None:
        """Apply rules until none fires, looking again only where something changed."""
        by_root: dict[str, list[Rule]] = {}
        for rule in rules:
            for root in rule.roots:
                by_root.setdefault(root, []).append(rule)
        work = [op for op in function.block if op.name in by_root]
        work.reverse()
        while work:
            op = work.pop()
            if op.block is None:
                continue
            again = self._try_rules(function, op, by_root[op.name])
            work.extend(found for found in reversed(again) if found.name in by_root)

    def _try_rules(self, function: Function, op: Op, rules: list[Rule]) -> list[Op]:
        """Apply the first rule that matches; the ops to look at because of it."""
        for rule in rules:
            builder = self.before(function, op)
            builder.made = []
            with builder:
                found = rule.apply(op, builder)
            if isinstance(found, No):
                assert not builder.made, f"{rule.name} made ops and then declined"
                continue
            self.replace(function, op, found)
            readers = [user for value in found for user in value.users]
            return [*builder.made, *readers]
        return []

"""The rewriter: the one place where a pass changes a graph."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from graphgen.build import Builder
from graphgen.build.source_location import source_name
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Op, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.passes.core.journal import Journal, MatchFailure, OpSnapshot, Rewrite, describe, seen
from graphgen.passes.core.relation import EQUAL, Relation
from graphgen.passes.core.rule import NoMatch, Replacement, Rule

_Pairs = tuple[tuple[Value, Value, Relation], ...]


class Rewriter:
    """Edits functions on behalf of one pass: counts, limits and records what it does.

    Args:
        pass_name: goes into the provenance of every op made.
        journal: where rewrites and match failures are recorded, ``None`` for nowhere.
        fuel: how many applications are allowed; what comes after is left undone.

    Attributes:
        applications: how many rewrites have been made.
        remarks: what the pass has to say to the user, such as what it chose and why.
    """

    def __init__(
        self, pass_name: str, journal: Journal | None = None, fuel: int | None = None
    ) -> None:
        self.pass_name = pass_name
        self.journal = journal
        self.fuel = fuel
        self.applications = 0
        self.remarks: list[str] = []
        self._joining = False
        self._joined_ops: tuple[Op, ...] = ()
        self._joined_pairs: _Pairs = ()
        self._joined_before: tuple[OpSnapshot, ...] = ()
        self._source = ""
        self._made: list[Op] = []

    @property
    def exhausted(self) -> bool:
        """True once the fuel is used up; a pass checks it before each rewrite it makes by hand."""
        return self.fuel is not None and self.applications >= self.fuel

    def remark(self, text: str) -> None:
        """Add ``text`` to the remarks, once."""
        if text not in self.remarks:
            self.remarks.append(text)

    def before(self, function: Function, op: Op) -> Builder:
        """A builder that inserts before ``op`` and gives what it makes ``op``'s provenance."""
        builder = Builder(function, before=op, loc=op.loc.through(self.pass_name))
        if self.journal is not None:
            # Ops built by hand belong to the next rewrite, listed or not.
            builder.made = self._made
        return builder

    def replace(
        self,
        function: Function,
        op: Op,
        values: Sequence[Value],
        rule: str = "",
        relation: Relation = EQUAL,
        created: Sequence[Op] = (),
        related: _Pairs = (),
        gain: str = "",
    ) -> None:
        """Let every reader of ``op``'s results read ``values`` instead, and erase ``op``.

        Args:
            function: where.
            op: is erased.
            values: one for each result.
            rule: what was done.
            relation: of each value to the result it replaces.
            created: ops made for it.
            related: other values before, values after, and how they relate.
            gain: what is better for it, in words.

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
        if self.journal is not None:
            pairs = tuple((old, new, relation) for old, new in zip(op.results, values, strict=True))
            self._record(function, op, rule, tuple(created), pairs + related, gain)
        for old, new in zip(op.results, values, strict=True):
            new.sharding = new.sharding or old.sharding
            function.replace_uses(old, new)
        function.block.erase(op)
        self.applications += not self._joining

    def erase(self, function: Function, op: Op) -> None:
        """Remove an op without readers."""
        if self.journal is not None:
            self._record(function, op, "erase", (), ())
        function.block.erase(op)
        self.applications += not self._joining

    def note(
        self,
        function: Function | None,
        rule: str,
        op: Op | None = None,
        created: Sequence[Op] = (),
        replaced: _Pairs = (),
    ) -> None:
        """Count, and record, a rewrite other than the replacement of one op by values.

        Args:
            function: where, ``None`` for the interface of the module.
            rule: what was done.
            op: where it began; by default the first op of the function.
            created: ops made for it.
            replaced: values before, values after, and how they relate.
        """
        if self.journal is not None:
            first = function.block.first if function is not None else None
            self._record(function, op or first, rule, tuple(created), replaced)
        self.applications += not self._joining

    def decline(self, function: Function, rule: str, op: Op, why: NoMatch) -> None:
        """Record that a rewrite was looked for at ``op``, and why it is not made."""
        if self.journal is not None:
            miss = MatchFailure(self.pass_name, rule, function.name, describe(op), op.loc, why)
            self.journal.misses.append(miss)

    def copied(self, copies: Mapping[Value, Value]) -> None:
        """Record the originals of the values of a rebuilt function.

        Args:
            copies: values before to values after; a copy may be on another rank, or of a part.
        """
        if self.journal is not None:
            self.journal.copies.extend(copies.items())

    @contextmanager
    def joined(self) -> Generator[None]:
        """Make the edits inside part of the next rewrite, which alone counts."""
        outer, self._joining = self._joining, True
        try:
            yield
        finally:
            self._joining = outer

    def apply_rules(self, function: Function, rules: Iterable[Rule]) -> None:
        """Apply rules until none fires, looking again only where something changed."""
        by_root: dict[str, list[Rule]] = {}
        for rule in rules:
            for root in rule.roots:
                by_root.setdefault(root, []).append(rule)
        work = [op for op in function.block if op.name in by_root]
        work.reverse()
        waiting = set(work)
        while work and not self.exhausted:
            op = work.pop()
            waiting.discard(op)
            if op.block is None:
                continue
            again = self._try_rules(function, op, by_root[op.name])
            for found in reversed(again):
                if found.name in by_root and found not in waiting:
                    work.append(found)
                    waiting.add(found)

    def _try_rules(self, function: Function, op: Op, rules: list[Rule]) -> list[Op]:
        """Apply the first rule that matches; the ops to look at because of it."""
        builder = self.before(function, op)
        made = builder.made = list[Op]()
        for rule in rules:
            with builder:
                found = rule.apply(op, builder)
            if isinstance(found, NoMatch):
                assert not made, f"{rule.name} made ops and then declined"
                self.decline(function, rule.name, op, found)
                continue
            # Those who read the old values; the new ones may have readers that saw nothing change.
            readers = [user for value in op.results for user in value.users]
            if not isinstance(found, Replacement):
                found = Replacement(found)
            if self.journal is not None:
                self._source = _source_of(rule)
            self.replace(
                function, op, found.values, rule.name, EQUAL, made, found.related, found.gain
            )
            return [*made, *readers]
        return []

    def _record(
        self,
        function: Function | None,
        op: Op | None,
        rule: str,
        created: tuple[Op, ...],
        replaced: _Pairs,
        gain: str = "",
    ) -> None:
        assert self.journal is not None
        source, self._source = self._source or _caller(), ""
        before = [op] if op is not None else []
        before += [old.op for old, _, _ in replaced if old.op is not None]
        earlier = seen(before) + self._joined_before
        made = [each for each in self._made if each.block is not None]
        self._made.clear()
        created = tuple(dict.fromkeys((*self._joined_ops, *created, *made)))
        replaced = self._joined_pairs + replaced
        if self._joining:
            self._joined_ops, self._joined_pairs = created, replaced
            self._joined_before = earlier
            return
        self._joined_ops, self._joined_pairs, self._joined_before = (), (), ()
        name = function.name if function is not None else ""
        root = describe(op) if op is not None else f"@{name}" if name else "the interface"
        where = op.loc if op is not None else UNKNOWN
        number = self.applications + 1
        entry = Rewrite(
            number,
            self.pass_name,
            rule,
            name,
            root,
            where,
            created,
            replaced,
            earlier,
            seen(created),
            source,
            gain,
        )
        self.journal.applications.append(entry)


def _source_of(rule: Rule) -> str:
    """The rule's ``file:line``."""
    code = getattr(rule.apply, "__code__", None)
    return f"{source_name(code.co_filename)}:{code.co_firstlineno}" if code is not None else ""


def _caller() -> str:
    """The line of the pass that called the rewriter."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return f"{source_name(frame.f_code.co_filename)}:{frame.f_lineno}"

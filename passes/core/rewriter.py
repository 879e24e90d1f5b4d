"""The rewriter: the one place where a pass changes a graph."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from types import CellType, CodeType, FunctionType

from graphgen.analysis.annotation_diff import lost_keys
from graphgen.build import Builder
from graphgen.build.source_location import source_name
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Op, Value
from graphgen.ir.attrs import EMPTY
from graphgen.ir.loc import UNKNOWN
from graphgen.passes.core.journal import (
    Journal,
    MatchFailure,
    OpSnapshot,
    Rewrite,
    RewriteKey,
    RewriteKeys,
    describe,
    seen,
)
from graphgen.passes.core.relation import EQUAL, Relation
from graphgen.passes.core.rule import NoMatch, Replacement, Rule

_Pairs = tuple[tuple[Value, Value, Relation], ...]


class Rewriter:
    """Edits functions on behalf of one pass: counts, limits and records what it does.

    Args:
        pass_name: goes into the provenance of every op made.
        journal: where rewrites and match failures are recorded, ``None`` for nowhere.
        fuel: how many applications are allowed; what comes after is left undone.
        only: the keys of the rewrites to make, ``None`` for all; others are left out where the pass
            uses :meth:`apply_rules` or asks :meth:`declines`.

    Attributes:
        applications: how many rewrites have been made.
        left_out: how many have been left out because of ``only``.
        remarks: what the pass has to say to the user, such as what it chose and why.
    """

    def __init__(
        self,
        pass_name: str,
        journal: Journal | None = None,
        fuel: int | None = None,
        only: Collection[RewriteKey] | None = None,
    ) -> None:
        self.pass_name = pass_name
        self.journal = journal
        self.fuel = fuel
        self.only = only
        self.applications = 0
        self.left_out = 0
        self.remarks: list[str] = []
        self._joining = False
        self._joined_ops: tuple[Op, ...] = ()
        self._joined_pairs: _Pairs = ()
        self._joined_before: tuple[OpSnapshot, ...] = ()
        # Annotation -> op -> how many of these were replaced by ops without it.
        self._lost: dict[str, Counter[str]] = {}
        self._source = ""
        self._made: list[Op] = []
        self._keys = RewriteKeys()
        self._declined: set[tuple[Op, str]] = set()
        self._limits: dict[Function, _RuleLimit] = {}

    @property
    def incomplete(self) -> bool:
        """True where rewrites may be missing: the fuel is used up, or some were left out."""
        return self.exhausted or bool(self.left_out)

    @property
    def exhausted(self) -> bool:
        """True once the fuel is used up; a pass checks it before each rewrite it makes by hand."""
        return self.fuel is not None and self.applications >= self.fuel

    def declines(self, function: Function, op: Op, rule: str) -> bool:
        """True for a rewrite that is not to be made; asked once it is certain that it applies.

        Args:
            function: where.
            op: the op it starts from.
            rule: the name that :meth:`replace`, :meth:`erase` or :meth:`note` records.
        """
        if self.only is None:
            return False
        if (op, rule) in self._declined:
            return True
        if self._keys.key(function.name, rule, describe(op), op.loc) in self.only:
            return False
        self._declined.add((op, rule))
        self.left_out += 1
        return True

    def remark(self, text: str) -> None:
        """Add ``text`` to the remarks, once."""
        if text not in self.remarks:
            self.remarks.append(text)

    def remark_lost(self) -> None:
        """Add a remark on the annotations that the pass has dropped, if there are any."""
        if self._lost:
            shown = [
                f"{key} of {', '.join([f'{count} {name}' for name, count in counts.items()])}"
                for key, counts in self._lost.items()
            ]
            self.remark(f"dropped annotations: {'; '.join(shown)}")

    def _lose(self, old: Op | Value, values: Iterable[Value], made: Iterable[Op] = ()) -> None:
        """Count the annotations of an op or an argument that what replaces it does not have."""
        new = [value.annotations if value.op is None else value.op.annotations for value in values]
        name = old.name if isinstance(old, Op) else "argument"
        for key in lost_keys(old.annotations, [*new, *[item.annotations for item in made]]):
            self._lost.setdefault(key, Counter())[name] += 1

    def before(self, function: Function, op: Op) -> Builder:
        """A builder that inserts before ``op``; new ops get the provenance of ``op``."""
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
        if op.annotations is not EMPTY:
            self._lose(op, values, created)
        if self.journal is not None:
            pairs = tuple((old, new, relation) for old, new in zip(op.results, values, strict=True))
            self._record(function, op, rule, tuple(created), pairs + related, gain)
        for old, new in zip(op.results, values, strict=True):
            if new.sharding is None:
                new.sharding = old.sharding
            function.replace_uses(old, new)
        function.block.erase(op)
        self.applications += not self._joining

    def erase(self, function: Function, op: Op) -> None:
        """Remove an op without readers."""
        if self.journal is not None:
            self._record(function, op, "erase", (), ())
        function.block.erase(op)
        self.applications += not self._joining

    def erase_unread(self, function: Function, *names: str) -> None:
        """Remove ops without readers, and then those whose only readers they were.

        Args:
            function: where.
            names: of ops to remove; none for all. Ops with effects are not spared.
        """
        for op in reversed(function.block):
            if self.exhausted:
                return
            if names and op.name not in names:
                continue
            if not function.uses(op):
                self.erase(function, op)

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

    def copied(self, copies: Mapping[Value, Value], relation: Relation = EQUAL) -> None:
        """Record the originals of the values of a rebuilt function.

        Args:
            copies: values before to values after; a copy may be on another rank, or of a part.
            relation: of each copy to its original.
        """
        for old, new in copies.items():
            # Once an op, not once a result.
            given = old.op or old
            if given.annotations and (old.op is None or old.index == 0):
                self._lose(given, [new])
        if self.journal is not None:
            self.journal.copies.extend(copies.items())
            if relation != EQUAL:
                self.journal.relations.update(dict.fromkeys(copies.values(), relation))

    @contextmanager
    def joined(self) -> Generator[None]:
        """Make the edits inside part of the next rewrite, which alone counts."""
        outer, self._joining = self._joining, True
        try:
            yield
        finally:
            self._joining = outer

    def apply_rules(self, function: Function, rules: Iterable[Rule]) -> None:
        """Apply rules until none fires, looking again only where something changed.

        Raises:
            GraphgenError: GG0306 when they still fire after 64 rewrites an op, and 1000 more.
        """
        by_root: dict[str, list[Rule]] = {}
        for rule in rules:
            for root in rule.roots:
                by_root.setdefault(root, []).append(rule)
        work = [op for op in function.block if op.name in by_root]
        work.reverse()
        waiting = set(work)
        limit = self._limits.setdefault(function, _RuleLimit(self.pass_name, function))
        limit.size = max(limit.size, function.block.size)
        while work and not self.exhausted:
            op = work.pop()
            waiting.discard(op)
            if op.block is None:
                continue
            again = self._try_rules(function, op, by_root[op.name], limit)
            for found in reversed(again):
                if found.name in by_root and found not in waiting:
                    work.append(found)
                    waiting.add(found)

    def _try_rules(
        self, function: Function, op: Op, rules: list[Rule], limit: _RuleLimit
    ) -> list[Op]:
        """Apply the first rule that matches; the ops to look at because of it."""
        builder = self.before(function, op)
        made = builder.made = list[Op]()
        for rule in rules:
            with builder:
                found = rule.apply(op, builder)
            if isinstance(found, NoMatch):
                _discard(function, made)
                self.decline(function, rule.name, op, found)
                continue
            if self.declines(function, op, rule.name):
                _discard(function, made)
                continue
            limit.spend(rule.name, op)
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
        self.journal.enter(entry, function)


class _RuleLimit:
    """Counts the rewrites of rules in one function, and refuses to go on for ever.

    Args:
        pass_name: the pass.
        function: where.

    Attributes:
        size: ops of the function when rules began, the largest number so far.
    """

    def __init__(self, pass_name: str, function: Function) -> None:
        self.pass_name = pass_name
        self.function = function
        self.size = 0
        self._spent = 0
        self._last: list[tuple[str, str]] = []

    def spend(self, rule: str, op: Op) -> None:
        """Count a rewrite; the last ones before the limit are recorded for the error."""
        self._spent += 1
        limit = 64 * self.size + 1000
        if self._spent > limit - _RECORDED:
            self._last.append((rule, describe(op)))
        if self._spent > limit:
            raise self._endless(limit)

    def _endless(self, limit: int) -> GraphgenError:
        turn = self._cause()
        names = " and ".join(dict.fromkeys(name for name, _ in turn))
        undo = (
            "undo each other" if len({name for name, _ in turn}) > 1 else "makes what it rewrites"
        )
        lines = [f"{name}: {root}" for name, root in turn]
        if self.function.block.size > 2 * self.size:
            lines.append(f"the function grew from {self.size} ops to {self.function.block.size}")
        return GraphgenError(
            "GG0306",
            f"{self.pass_name}: the rules still apply after {limit} rewrites of {self.size} ops: "
            f"{names} {undo}",
            where=f"@{self.function.name}",
            note="in turn:\n" + "\n".join(lines),
            help="let one rule decline what another makes, such as by the pass name in op.loc.via",
        )

    def _cause(self) -> list[tuple[str, str]]:
        """The shortest sequence at the end that repeats, by rules; else the last ten rewrites."""
        names = [name for name, _ in self._last]
        for length in range(1, len(names) // 2 + 1):
            if all(name == names[i - length] for i, name in enumerate(names) if i >= length):
                turn = self._last[-length:]
                first = turn.index(min(turn))
                return turn[first:] + turn[:first]
        return self._last[-10:]


# Rewrites before the limit that are recorded, to find those that repeat.
_RECORDED = 64


def _discard(function: Function, made: list[Op]) -> None:
    """Erase ops that a rule made before it declined."""
    for unread in reversed(made):
        function.block.erase(unread)
    made.clear()


def _source_of(rule: Rule) -> str:
    """``file:line`` of the rule: of the innermost function, where a factory wraps one."""
    code = rule_code(rule.apply)
    return f"{source_name(code.co_filename)}:{code.co_firstlineno}" if code is not None else ""


def rule_code(apply: object) -> CodeType | None:
    """The code of the function that decides on a rewrite.

    A wrapper, such as a factory of rules makes around functions, is passed over: a partial, a bound
    method, what ``functools.wraps`` marks, and a closure that calls one function with the
    parameters of a rule.
    """
    seen: list[object] = []
    while apply is not None and apply not in seen:
        seen.append(apply)
        apply = _wrapped(apply)
    codes = [getattr(one, "__code__", None) for one in reversed(seen)]
    return next((code for code in codes if isinstance(code, CodeType)), None)


def _wrapped(apply: object) -> object | None:
    """The function that another one wraps, if it does."""
    for name in ("func", "__wrapped__", "__func__"):
        inner = getattr(apply, name, None)
        if callable(inner):
            return inner
    if not isinstance(apply, FunctionType):
        return None if isinstance(apply, type) else vars(type(apply)).get("__call__")
    closed = [cell.cell_contents for cell in apply.__closure__ or () if _is_filled(cell)]
    held = [one for one in closed if callable(one) and _is_called_as(one, apply)]
    return held[0] if len(held) == 1 else None


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _is_called_as(inner: object, outer: FunctionType) -> bool:
    """True for a function of an op and a builder, by names and annotations."""
    code = None if isinstance(inner, type) else rule_code(inner)
    if code is None or code.co_argcount < _PARAMETERS:
        return False
    op, builder = code.co_varnames[: code.co_argcount][-_PARAMETERS:]
    own = outer.__code__.co_varnames[: outer.__code__.co_argcount][-_PARAMETERS:]
    annotated = getattr(inner, "__annotations__", {}).get(builder)
    named = (
        builder in ("b", "builder", *own[1:]) if annotated is None else "Builder" in str(annotated)
    )
    return named and op in ("op", *own[:1])


# A rule takes an op and a builder.
_PARAMETERS = 2


def _caller() -> str:
    """The line of the pass that called the rewriter."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return f"{source_name(frame.f_code.co_filename)}:{frame.f_lineno}"

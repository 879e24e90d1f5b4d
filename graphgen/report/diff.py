"""Structural diff of two programs, up to names of values and source locations.

Values of one program are numbered by how they are computed from its arguments; the other program's
values get the same numbers where the same is computed. The remaining values are visited in program
order: each op is paired with the op of the other program that is most like it, which is a
difference, and counts as equal for what follows. So a change shows where it is made and not
wherever it has an effect. The order of ops makes none, nor whether equal ones are shared, nor what
no output depends on.
"""

from __future__ import annotations

import heapq
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from graphgen.analysis.annotation_diff import (
    call_differences,
    compared,
    control_edges,
    module_differences,
    op_differences,
)
from graphgen.analysis.calls import inlined, is_opaque
from graphgen.analysis.layers import layers_of
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Op, Role, Value
from graphgen.ops.control import CONTROL, NAMING, callees
from graphgen.ops.external import has_effect
from graphgen.ops.opdef import has_trait
from graphgen.ops.traits import Trait
from graphgen.report import preparation
from graphgen.report.units import pattern
from graphgen.text.grammar import format_attr
from graphgen.text.printer import value_names


@dataclass(frozen=True, slots=True)
class OpDifference:
    """One difference in the computation.

    Attributes:
        what: in words; the first program before the slash.
        first, second: the ops that are paired; ``None`` where one has no partner.
    """

    what: str
    first: Op | None
    second: Op | None


@dataclass(slots=True)
class ProgramDifference:
    """The differences of two programs.

    Attributes:
        first, second: the programs.
        interface: differences of arguments, outputs and aliases, as text.
        changes: differences of ops, in program order.
        bodies: differences of the functions that paired control ops run.
        equal: number of ops of the second program with an equal in the first.
        pairs: op of the first program, op of the second, and whether they are equal.
        runs: the comparisons of all functions that paired control ops run.
    """

    first: Function
    second: Function
    interface: list[str] = field(default_factory=list[str])
    changes: list[OpDifference] = field(default_factory=list[OpDifference])
    bodies: list[ProgramDifference] = field(default_factory=list["ProgramDifference"])
    equal: int = 0
    pairs: list[tuple[Op, Op, bool]] = field(default_factory=list[tuple[Op, Op, bool]])
    runs: list[ProgramDifference] = field(default_factory=list["ProgramDifference"])

    @property
    def same(self) -> bool:
        """True if nothing differs."""
        return not self.interface and not self.changes


def diff_functions(
    modules: tuple[Module, Module], first: Function, second: Function
) -> ProgramDifference:
    """Compare two programs.

    Args:
        modules: of the first and the second, for what their states are.
        first: one program.
        second: the other.
    """
    calls = call_differences(modules, first, second)
    first, second = inlined(modules[0], first), inlined(modules[1], second)
    made = ProgramDifference(first, second)
    arguments = _matched(
        "argument", [v.name or "" for v in first.args], [v.name or "" for v in second.args], made
    )
    for one, other in arguments:
        before, after = first.args[one].type, second.args[other].type
        if before is not after:
            what = f"argument {one} %{first.args[one].name}: {before.text} / {after.text}"
            made.interface.append(what)
        noted = op_differences(first.args[one], second.args[other])
        noted += _sharding_difference(first.args[one], second.args[other])
        made.interface += [f"argument {one} %{first.args[one].name}: {text}" for text in noted]
    mine, theirs = ([name for name, _ in function.outputs] for function in (first, second))
    outputs = _matched("output", mine, theirs, made)
    noted = op_differences(first, second)
    made.interface += [f"@{first.name}: {text}" for text in noted]
    _aliases(modules, made, arguments, outputs)
    walk = _DiffWalk(made, arguments, _Bodies(modules))
    walk.run()
    walk.outputs(outputs)
    made.interface += walk.orders() + calls
    return made


def _matched(
    kind: str, first: Sequence[str], second: Sequence[str], made: ProgramDifference
) -> list[tuple[int, int]]:
    """Pairs of positions: by name where the names say anything, else by order."""
    places = {name: place for place, name in enumerate(second)}
    common = [name for name in first if name in places]
    if len(first) == len(second) and len(common) < len(first):
        return [(place, place) for place in range(len(first))]
    if len(first) != len(second):
        made.interface.append(f"{len(first)} {kind}s / {len(second)} {kind}s")
        if 2 * len(common) < min(len(first), len(second)):
            return [(place, place) for place in range(min(len(first), len(second)))]
        for names, others, side in ((first, set(second), "first"), (second, set(first), "second")):
            alone = [name for name in names if name not in others]
            made.interface += [f"{kind} {name} is in the {side} only" for name in alone]
    mine = {name: place for place, name in enumerate(first)}
    pairs = [(mine[name], places[name]) for name in common]
    ranks = sorted(place for _, place in pairs)
    moved = [(a, b) for (a, b), place in zip(pairs, ranks, strict=True) if place != b]
    if moved:
        one, other = moved[0]
        made.interface.append(
            f"order of {kind}s: {first[one]} is number {one} / number {other}, "
            f"and {len(moved) - 1} more"
        )
    return pairs


def _aliases(
    modules: tuple[Module, Module],
    made: ProgramDifference,
    arguments: Sequence[tuple[int, int]],
    outputs: Sequence[tuple[int, int]],
) -> None:
    """Record outputs whose alias differs."""
    back = {other: one for one, other in arguments}
    before = _kept(modules[0], made.first)
    after = _kept(modules[1], made.second)
    for one, other in outputs:
        mine, theirs = before.get(one), after.get(other)
        known = None if theirs is None else back.get(theirs, -1)
        if mine != known:
            name = made.first.outputs[one][0]
            shown = " / ".join(
                "memory of its own" if place is None else f"the memory of argument {place}"
                for place in (mine, theirs)
            )
            made.interface.append(f"output {one} {name} takes {shown}")


def _kept(module: Module, function: Function) -> dict[int, int]:
    """Output index -> index of the argument that it aliases."""
    states = {row.name for row in module.entries(Role.STATE)}
    places = {value.name: place for place, value in enumerate(function.args)}
    return {
        index: places[name]
        for index, (name, _) in enumerate(function.outputs)
        if name in states and name in places
    }


# The value number key of an op: name, attributes, result types, numbers of the operands.
_Key = tuple[object, ...]


@dataclass(slots=True)
class _Bodies:
    """Numbers functions by structure: equal functions have one number."""

    modules: tuple[Module, Module]
    numbers: dict[tuple[int, str], int] = field(default_factory=dict[tuple[int, str], int])
    kinds: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    compared: dict[tuple[tuple[int, str], tuple[int, str]], ProgramDifference] = field(
        default_factory=dict[tuple[tuple[int, str], tuple[int, str]], ProgramDifference]
    )

    def key(self, op: Op, side: int) -> tuple[object, ...]:
        """The attributes of an op, with functions as numbers."""
        if op.name not in CONTROL:
            return (op.attrs,)
        kept = [op.attrs[name] for name in op.attrs if name not in NAMING]
        return (*kept, *[self.number(side, name) for name in callees(op)])

    def number(self, side: int, name: str) -> int:
        """The number of a function of a module."""
        found = self.numbers.get((side, name))
        if found is None:
            same = (i for i, kind in enumerate(self.kinds) if self.compare(kind, (side, name)).same)
            found = next(same, len(self.kinds))
            if found == len(self.kinds):
                self.kinds.append((side, name))
            self.numbers[side, name] = found
        return found

    def compare(self, one: tuple[int, str], other: tuple[int, str]) -> ProgramDifference:
        """The differences of two functions, memoized."""
        found = self.compared.get((one, other))
        if found is None:
            modules = (self.modules[one[0]], self.modules[other[0]])
            functions = modules[0].function(one[1]), modules[1].function(other[1])
            found = self.compared[one, other] = diff_functions(modules, *functions)
        return found

    def apart(self, first: Op, second: Op) -> list[ProgramDifference]:
        """The differences of the functions that two ops of one name run."""
        pairs = zip(callees(first), callees(second), strict=False)
        found = [self.compare((0, one), (1, other)) for one, other in pairs]
        return [difference for difference in found if not difference.same]


class _DiffWalk:
    def __init__(
        self, made: ProgramDifference, arguments: Sequence[tuple[int, int]], bodies: _Bodies
    ) -> None:
        self.made = made
        self.bodies = bodies
        self.names = {**value_names(made.first), **value_names(made.second)}
        self.count = 0
        self.foreign: dict[_Key, dict[Op, int]] = {}
        self.numbers: dict[Value, int] = {}
        self.table: dict[_Key, tuple[int, ...]] = {}
        self.alike: dict[_Key, list[Op]] = {}
        self.place: dict[Op, int] = {}
        self.found: set[int] = set()
        for one, other in arguments:
            number = self.fresh()
            self.numbers[made.first.args[one]] = self.numbers[made.second.args[other]] = number
            self.found.add(number)
        for value in (*made.first.args, *made.second.args):
            if value not in self.numbers:
                self.numbers[value] = self.fresh()
        for place, op in enumerate(made.first.block):
            self.place[op] = place
            key = self.key(op)
            self.alike.setdefault(key, []).append(op)
            if key not in self.table:
                self.table[key] = tuple([self.fresh() for _ in op.results])
            self.give(op, self.table[key])
        self.open: dict[str, list[Op]] = {}
        self.paired: set[Op] = set()
        # Of several equal ops, the last that was paired.
        self.turns: dict[_Key, int] = {}

    def orders(self) -> list[str]:
        """Control dependencies that one program has and the other does not have."""
        sides = [
            {
                tuple([self.numbers.get(op.results[0], -1) for op in edge]): " before ".join(
                    [self.names[op.results[0]] for op in edge]
                )
                for edge in control_edges(function)
            }
            for function in (self.made.first, self.made.second)
        ]
        first, second = sides
        return [
            f"control dependency: {text} is in the {side} only"
            for mine, theirs, side in ((first, second, "first"), (second, first, "second"))
            for edge, text in mine.items()
            if edge not in theirs
        ]

    def fresh(self) -> int:
        self.count += 1
        return self.count

    def key(self, op: Op) -> _Key:
        types = tuple([(result.type, result.sharding) for result in op.results])
        side = 0 if op in self.place else 1
        own = self.bodies.key(op, side)
        numbers = [self.numbers[value] for value in op.operands]
        if has_trait(op, Trait.COMMUTATIVE):
            numbers.sort()
        key = (op.name, *own, compared(op.annotations), types, *numbers)
        if not is_opaque(self.bodies.modules[side], op):
            return key
        # External ops may be impure, as random numbers are: distinguished by their order.
        alike = self.foreign.setdefault((op in self.place, key), {})
        return (*key, alike.setdefault(op, len(alike)))

    def give(self, op: Op, numbers: Sequence[int]) -> None:
        self.numbers.update(zip(op.results, numbers, strict=False))
        for value in op.results[len(numbers) :]:
            self.numbers[value] = self.fresh()

    def run(self) -> None:
        """Number the second program; what has no equal is paired or left alone, first to last."""
        alive = _alive(self.made.second)
        used = [op for op in self.made.second.block if op in alive]
        order = {op: place for place, op in enumerate(used)}
        ready = [place for place, op in enumerate(order) if self.known(op)]
        ops = used
        waiting: list[int] = []
        while ready or waiting:
            if not ready:
                op = ops[heapq.heappop(waiting)]
                self.differ(op)
            else:
                place = heapq.heappop(ready)
                op = ops[place]
                if op.results[0] in self.numbers:
                    continue
                if not self.equal(op):
                    heapq.heappush(waiting, place)
                    continue
            for user in dict.fromkeys(u for result in op.results for u in result.users):
                if user in order and self.known(user) and user.results[0] not in self.numbers:
                    heapq.heappush(ready, order[user])
        self.made.changes += self.alone()
        self.made.changes.sort(key=lambda change: self.where(change, order))

    def where(self, change: OpDifference, order: dict[Op, int]) -> float:
        """The position in the first program, possibly approximate."""
        if change.first is not None and change.first in self.place:
            return self.place[change.first]
        scale = len(self.place) / max(len(order), 1)
        return order[change.second] * scale if change.second in order else 0

    def known(self, op: Op) -> bool:
        return all(value in self.numbers for value in op.operands)

    def equal(self, op: Op) -> bool:
        """Give the op the numbers of its equal in the first program, if it has one."""
        key = self.key(op)
        numbers = self.table.get(key)
        if numbers is None:
            return False
        self.made.equal += 1
        alike = self.alike.get(key, [])
        self.paired.update(alike)
        if alike:
            turn = self.turns[key] = self.turns.get(key, -1) + 1
            self.pair(alike[min(turn, len(alike) - 1)], op, equal=True)
        self.give(op, numbers)
        self.found.update(numbers)
        return True

    def pair(self, one: Op, op: Op, *, equal: bool) -> None:
        """Record two ops as the same place of the programs, and the functions that both run."""
        self.made.pairs.append((one, op, equal))
        if one.name == op.name and one.name in CONTROL:
            names = zip(callees(one), callees(op), strict=False)
            self.made.runs += [self.bodies.compare((0, a), (1, b)) for a, b in names]

    def differ(self, op: Op) -> None:
        """Pair an op that has no equal with the one that is most like it."""
        if self.equal(op):
            return
        partner = self.partner(op)
        key = self.key(op)
        if partner is None:
            self.give(op, [self.fresh() for _ in op.results])
            self.made.changes.append(OpDifference(f"nothing / {op.name}", None, op))
        else:
            self.paired.update(self.alike.get(self.key(partner), (partner,)))
            self.made.changes.append(OpDifference(self.what(partner, op), partner, op))
            self.pair(partner, op, equal=False)
            if partner.name == op.name:
                self.made.bodies += self.bodies.apart(partner, op)
            self.give(op, [self.numbers[result] for result in partner.results][: len(op.results)])
            self.found.update(self.numbers[result] for result in partner.results)
        self.table[key] = tuple([self.numbers[result] for result in op.results])

    def partner(self, op: Op) -> Op | None:
        same = [one for one in self.unpaired(op.name) if self.accepts(one, op)]
        if same:
            return max(same, key=lambda one: self.likeness(one, op))
        # Another op in the place of this one; unless one of them is only put in or taken out.
        others = [
            one
            for name in list(self.open)
            if name != op.name
            for one in self.unpaired(name)
            if _types(one) == _types(op) and self.settled(one) and self.shared(one, op)
        ]
        for one in others:
            for user in (user for result in one.results for user in result.users):
                if user.name == op.name and _types(user) == _types(op) and user not in self.paired:
                    return user
        names = {user.name for result in op.results for user in result.users}
        others = [one for one in others if one.name not in names]
        return max(others, key=lambda one: self.likeness(one, op)) if others else None

    def unpaired(self, name: str) -> list[Op]:
        """Ops of the first program without a partner, by name."""
        if not self.open:
            for op in self.place:
                self.open.setdefault(op.name, []).append(op)
        left = [op for op in self.open.get(name, ()) if op not in self.paired]
        self.open[name] = left
        return left

    def accepts(self, one: Op, op: Op) -> bool:
        if not one.operands and not op.operands:
            mine, theirs = one.results[0].type, op.results[0].type
            return (mine.dtype, mine.rank) == (theirs.dtype, theirs.rank)
        return self.shared(one, op) > 0 or (_types(one) == _types(op) and self.settled(one))

    def settled(self, one: Op) -> bool:
        """True if every operand has an equal in the second program."""
        return all(self.numbers[value] in self.found for value in one.operands)

    def shared(self, one: Op, op: Op) -> int:
        pairs = zip(one.operands, op.operands, strict=False)
        return sum(self.numbers[a] == self.numbers[b] for a, b in pairs)

    def likeness(self, one: Op, op: Op) -> tuple[object, ...]:
        return (
            _types(one) == _types(op),
            self.shared(one, op),
            one.attrs is op.attrs,
            one.loc.scope == op.loc.scope,
            -self.place[one],
        )

    def what(self, one: Op, op: Op) -> str:
        """Describe the difference between two paired ops."""
        if one.name != op.name:
            return f"{one.name} / {op.name}"
        parts = attribute_differences(one, op)
        parts += op_differences(one, op)
        for mine, theirs in zip(one.results, op.results, strict=False):
            parts += _sharding_difference(mine, theirs)
        parts += [
            f"@{item.first.name} / @{item.second.name}" for item in self.bodies.apart(one, op)
        ]
        if len(one.operands) != len(op.operands):
            parts.append(f"{len(one.operands)} operands / {len(op.operands)}")
        else:
            parts += [
                f"operand {place}: {self.value(a)} / {self.value(b)}"
                for place, (a, b) in enumerate(zip(one.operands, op.operands, strict=True))
                if self.numbers[a] != self.numbers[b]
            ]
        if _types(one) != _types(op) and not parts:
            parts.append(f"{_text(one)} / {_text(op)}")
        return f"{one.name}: " + "; ".join(parts or ["another form of the same attributes"])

    def value(self, value: Value) -> str:
        made = value.op.name if value.op else "argument"
        return f"{self.names[value]} ({made}, {value.type.text})"

    def alone(self) -> Iterator[OpDifference]:
        """Ops of the first program that the second has nothing for, dead ones left out."""
        alive = _alive(self.made.first)
        for op in self.place:
            if op not in self.paired and op in alive:
                yield OpDifference(f"{op.name} / nothing", op, None)

    def outputs(self, outputs: Sequence[tuple[int, int]]) -> None:
        """Outputs that are another value."""
        for one, other in outputs:
            name, mine = self.made.first.outputs[one]
            theirs = self.made.second.outputs[other][1]
            if self.numbers[mine] != self.numbers.get(theirs):
                what = f"output {one} {name}: {self.value(mine)} / {self.value(theirs)}"
                self.made.changes.append(OpDifference(what, mine.op, theirs.op))


def _sharding_difference(one: Value, other: Value) -> list[str]:
    """The difference of the layouts that two values are given, in words."""
    if one.sharding is other.sharding:
        return []
    return [f"sharding {one.sharding or 'none'} / {other.sharding or 'none'}"]


def _alive(function: Function) -> set[Op]:
    """The ops that an output, or an effect, depends on."""
    work = [value.op for _, value in function.outputs if value.op is not None]
    work += [op for op in function.block if has_effect(op.name, op.attrs)]
    seen = set(work)
    while work:
        for value in work.pop().operands:
            if value.op is not None and value.op not in seen:
                seen.add(value.op)
                work.append(value.op)
    return seen


def _types(op: Op) -> tuple[object, ...]:
    return tuple([result.type for result in op.results])


def _text(op: Op) -> str:
    return ", ".join([result.type.text for result in op.results])


# Characters of an attribute that are shown.
_WIDTH = 60


def attribute_differences(one: Op, other: Op) -> list[str]:
    """The attributes in which two ops of one name differ: ``axis 0 / 1``."""
    keys = [key for key in dict.fromkeys((*one.attrs, *other.attrs)) if key not in _UNSHOWN]
    found = [(key, _shown(one, key), _shown(other, key)) for key in keys]
    texts = [(key, *_around(left, right)) for key, left, right in found if left != right]
    return [f"{key} {left} / {right}" for key, left, right in texts]


_UNSHOWN = ("results", *NAMING)


def _shown(op: Op, key: str) -> str:
    value = op.attrs.get(key)
    if value is None:
        return "none"
    return str(value) if isinstance(value, str) else format_attr(value)


def _around(left: str, right: str) -> tuple[str, str]:
    """Two texts; of long ones a part with the first difference."""
    if max(len(left), len(right)) <= _WIDTH:
        return left, right
    shared = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
    start = max(shared - _WIDTH // 3, 0) if shared > _WIDTH // 2 else 0
    return _part(left, start), _part(right, start)


def _part(text: str, start: int) -> str:
    part = text[start : start + _WIDTH - 6]
    return f"{'...' if start else ''}{part}{'...' if start + len(part) < len(text) else ''}"


@dataclass(frozen=True, slots=True)
class ModuleDifference:
    """Differences of the programs of two modules.

    Attributes:
        programs: of each pair of programs.
        unpaired: names of programs without a counterpart.
        module: differences of the modules themselves, such as the number of partitions, and of the
            rows of their interfaces.
        prepared: of each pair of functions that prepare weights, or pack and unpack a state.
        bare: whether only one of the modules has such, so that they are not compared.
    """

    programs: list[ProgramDifference]
    unpaired: list[str]
    module: list[str]
    prepared: list[ProgramDifference] = field(default_factory=list[ProgramDifference])
    bare: bool = False

    @property
    def same(self) -> bool:
        """True if the modules are equal."""
        every = (*self.programs, *self.prepared)
        return not self.unpaired and not self.module and all(item.same for item in every)

    @property
    def with_bodies(self) -> list[ProgramDifference]:
        """All pairs of programs, each followed by those of its loops and conditionals.

        After them those of functions that prepare, where they differ.
        """
        shown = (*self.programs, *[item for item in self.prepared if not item.same])
        return [each for item in shown for each in with_bodies(item)]


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Changes that differ in the names of values only, such as one per layer.

    Attributes:
        changes: in program order.
        layers: names of their layers.
    """

    changes: list[OpDifference]
    layers: list[str]


def diff_modules(first: Module, second: Module, program: str | None = None) -> ModuleDifference:
    """Compare two modules, or one program of each.

    Of whole modules the rows of the interface are compared as well, and the functions that prepare
    weights, and that pack and unpack states. A program that was lowered has neither.

    Args:
        first, second: the modules.
        program: name of the only program to compare.

    Raises:
        GraphgenError: GG0705 if no program has a counterpart, GG0202 for an unknown program.
    """
    mine, theirs = _functions(first, program), _functions(second, program)
    if len(mine) == len(theirs) == 1:
        pairs, unpaired = list(zip(mine.values(), theirs.values(), strict=True)), list[str]()
    else:
        pairs = [(function, theirs[name]) for name, function in mine.items() if name in theirs]
        unpaired = [name for name in (*mine, *theirs) if not (name in mine and name in theirs)]
    if not pairs:
        raise GraphgenError(
            "GG0705",
            "the modules have no program of the same name",
            help=f"they have {', '.join(mine)} and {', '.join(theirs)}",
        )
    programs = [diff_functions((first, second), *pair) for pair in pairs]
    facts = module_differences(first, second)
    if program is not None:
        return ModuleDifference(programs, unpaired, facts)
    if _is_bare(first) or _is_bare(second):
        bare = _is_bare(first) != _is_bare(second)
        return ModuleDifference(programs, unpaired, facts, bare=bare)
    facts += preparation.interface_differences(first, second)
    both, alone = preparation.paired(first, second)
    prepared = [diff_functions((first, second), *pair) for pair in both]
    return ModuleDifference(programs, [*unpaired, *alone], facts, prepared)


def _is_bare(module: Module) -> bool:
    """True for a program alone: it has no weights, and no functions besides."""
    rows = module.interface.values()
    held = any(row.role is Role.WEIGHT or row.pack or row.unpack for row in rows)
    return not held and not preparation.weight_functions(module)


def _functions(module: Module, program: str | None) -> dict[str, Function]:
    programs = {function.name: function for function in module.programs()} or module.functions
    if program is None or (len(programs) == 1 and program not in programs):
        return programs
    return {program: module.function(program.removeprefix("@"))}


def with_bodies(found: ProgramDifference) -> Iterator[ProgramDifference]:
    """Two programs, then the functions of their loops and conditionals that differ, each once."""
    return _each_once([found], lambda item: item.bodies)


def with_runs(found: Iterable[ProgramDifference]) -> Iterator[ProgramDifference]:
    """Pairs of programs and of the functions that their paired ops run, each pair once."""
    return _each_once(found, lambda item: item.runs)


def _each_once(
    found: Iterable[ProgramDifference],
    inner: Callable[[ProgramDifference], Iterable[ProgramDifference]],
) -> Iterator[ProgramDifference]:
    seen: set[tuple[str, str]] = set()
    work = deque(found)
    while work:
        item = work.popleft()
        names = (item.first.name, item.second.name)
        if names not in seen:
            seen.add(names)
            yield item
            work += inner(item)


_NAME = re.compile(r"[%@][^\s,;:()]+")


def nameless(text: str) -> str:
    """A difference without the numbers in names; those of attributes and shapes stay."""
    return _NAME.sub(lambda found: pattern(found[0]), text)


def grouped_changes(found: ProgramDifference) -> list[ChangeGroup]:
    """The changes of a program, those that differ in the names of values only together."""
    layer_of = {
        op: name
        for function in (found.first, found.second)
        for name, ops in layers_of(function).items()
        for op in ops
    }
    groups: dict[tuple[str, str], ChangeGroup] = {}
    for change in found.changes:
        op = change.first or change.second
        layer = layer_of.get(op, "") if op is not None else ""
        scope = op.loc.scope if op is not None else ""
        key = (nameless(change.what), pattern(scope or layer))
        group = groups.setdefault(key, ChangeGroup([], []))
        group.changes.append(change)
        if layer and layer not in group.layers:
            group.layers.append(layer)
    return list(groups.values())

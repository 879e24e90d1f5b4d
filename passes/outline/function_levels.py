"""Loops and choices whose functions read values of the functions around them.

An op that runs a function of the module hands it all that it reads. Here a function is built first,
and gets an argument for each value of an outer function, or of the program, when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import Function, Loc, Value
from graphgen.ir.dtype import s32
from graphgen.passes.outline.shared_functions import SharedFunctions


@dataclass(eq=False, slots=True)
class FunctionLevel:
    """A function that is being built, or the program.

    Attributes:
        b: appends to it.
        outer: the function that runs it; ``None`` for the program.
        read: values of ``outer`` that it reads, and the arguments that have them.
    """

    b: Builder
    outer: FunctionLevel | None = None
    read: dict[Value, Value] = field(default_factory=dict[Value, Value])

    @classmethod
    def inside(cls, outer: FunctionLevel, name: str) -> FunctionLevel:
        """A function without arguments so far."""
        return cls(Builder(Function(name), loc=_loc(outer.b)), outer)

    def argument(self, value: Value) -> Value:
        """A new argument of the type of ``value``."""
        block = self.b.function.block
        return block.add_arg(value.type, f"a{len(self.b.function.args)}")

    def lift(self, value: Value, home: FunctionLevel) -> Value:
        """The value of this level that equals ``value`` of ``home``, an outer level or this one."""
        if self is home:
            return value
        assert self.outer is not None
        outer = self.outer.lift(value, home)
        if outer not in self.read:
            self.read[outer] = self.argument(outer)
        return self.read[outer]


# (level of the body, number of the turn, state) -> the new state.
_Body = Callable[[FunctionLevel, Value, Sequence[Value]], Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Loops:
    """Builds loops and choices.

    Attributes:
        shared: gets their functions.
    """

    shared: SharedFunctions

    def iterate(
        self, outer: FunctionLevel, name: str, count: int, state: Sequence[Value], build: _Body
    ) -> Sequence[Value]:
        """The state after ``count`` turns of what ``build`` builds, from number 0 on."""
        if count == 1:
            return build(outer, outer.b.literal(0, s32), state)
        with outer.b as b:
            first = b.literal(0, s32)
            level = FunctionLevel.inside(outer, name)
            number, *held = [level.argument(value) for value in (first, *state)]
            with level.b as inner:
                after = [number + inner.literal(1, s32), *build(level, number, held)]
            start = [first, *state, *level.read]
            names = {
                "condition": self._more(name, start, count, _loc(b)),
                "body": self._added(level, [*after, *level.read.values()]),
                "trip_count": count,
            }
            return b.emit("while", start, {**names}).results[1 : 1 + len(state)]

    def choice(
        self,
        outer: FunctionLevel,
        name: str,
        holds: Value,
        state: Sequence[Value],
        build: Callable[[FunctionLevel], Sequence[Value]],
    ) -> Sequence[Value]:
        """The results of ``build`` if ``holds``, else the state as it is."""
        level, other = (
            FunctionLevel.inside(outer, name),
            FunctionLevel.inside(outer, f"{name}.none"),
        )
        with level.b:
            made = build(level)
        kept = [other.argument(value) for value in state]
        branches = (self._added(level, made), self._added(other, kept))
        attrs = {"branches": branches, "takes": (len(level.read), len(kept))}
        types = tuple([value.type for value in state])
        operands = (holds, *level.read, *state)
        return outer.b.emit("conditional", operands, {**attrs, "results": types}).results

    def _added(self, level: FunctionLevel, results: Sequence[Value]) -> str:
        function = level.b.function
        function.outputs = [(f"r{i}", value) for i, value in enumerate(results)]
        return self.shared.add(function.name, function)

    def _more(self, name: str, state: Sequence[Value], count: int, loc: Loc) -> str:
        """The condition: another turn is to come."""
        function = Function(f"{name}.more")
        args = [function.block.add_arg(value.type, f"a{i}") for i, value in enumerate(state)]
        b = Builder(function, loc=loc)
        more = b.compare(args[0], b.literal(count, s32), "LT")
        function.outputs = [("r0", more)]
        return self.shared.add(function.name, function)


def _loc(b: Builder) -> Loc:
    assert b.loc is not None
    return b.loc

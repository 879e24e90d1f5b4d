"""Keys of pairs of values: two pairs with one key have one verdict.

A key has the ops of both programs from the values back to arguments and to values that both
programs share, with types and attributes. Names of weights, states and shared values are replaced
by numbers, in the order in which they are met in both programs: a verdict holds for all weights and
states, so it does not depend on their names. Layers that are alike have one key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphgen.ir import Op, Role, Value
from graphgen.passes.proof.interface_relation import ProgramSide

# Roles of values that are the same kind of variable, whatever they are called.
_VARIABLES = (Role.STATE, Role.WEIGHT)


@dataclass(frozen=True, slots=True)
class SharedValue:
    """A value of one program that stands for a variable of both.

    Attributes:
        number: of the variable.
        form: how its elements are those of the variable: types, the place of a rank's part, and
            whether only active rows are equal.
    """

    number: int
    form: tuple[object, ...]


@dataclass(slots=True)
class Cone:
    """The ops that some values of both programs are computed by.

    Attributes:
        most: ops of a program beyond which a cone is left as it is, and has no key; 0 for any.
        shared: numbers of the shared values that are read.
        ops: of the program that was added last.
    """

    most: int = 0
    shared: dict[int, None] = field(default_factory=dict[int, None])
    ops: list[Op] = field(default_factory=list[Op])
    _entries: list[object] = field(default_factory=list[object])
    _variables: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for cones that are alike up to names."""
        return tuple(self._entries)

    @property
    def whole(self) -> bool:
        """False for a cone of too many ops."""
        return not self.most or len(self.ops) <= self.most

    def add(self, side: ProgramSide, shared: Mapping[Value, SharedValue], root: Value) -> None:
        """Add all that a value of one program is computed from, if that is not too much."""
        self.ops = []
        numbers: dict[Value, int] = {}
        work = [root]
        while work:
            value = work[-1]
            if value in numbers:
                work.pop()
                continue
            known = shared.get(value)
            source = None if known is not None else side.elements.source_of(value)
            reads = [] if known is not None else [source] if source is not None else _reads(value)
            missing = [x for x in reads if x not in numbers]
            if missing:
                work.extend(reversed(missing))
                continue
            work.pop()
            if source is not None:
                numbers[value] = numbers[source]
                continue
            numbers[value] = len(self._entries)
            if known is not None:
                self.shared[known.number] = None
                entry: object = (self._variable(f"shared {known.number}"), known.form)
            elif value.op is None:
                entry = self._argument(side, value)
            else:
                self.ops.append(value.op)
                if not self.whole:
                    return
                entry = self._op(side, value.op, value, tuple([numbers[x] for x in reads]))
            self._entries.append(entry)
        self._entries.append(numbers[root])

    def _variable(self, name: str) -> int:
        return self._variables.setdefault(name, len(self._variables))

    def _argument(self, side: ProgramSide, value: Value) -> object:
        name = value.name or ""
        row = side.module.interface.get(side.elements.args.get(value, name))
        alike = row is not None and row.role in _VARIABLES
        known = self._variable(f"argument {name}") if alike else name
        return (known, value.type, side.elements.ranges.get(name))

    def _op(self, side: ProgramSide, op: Op, value: Value, operands: tuple[int, ...]) -> object:
        padded = side.elements.ranks.arbitrary.get(op)
        padding = None if padded is None else self._variable(f"padding {padded}")
        attrs = side.elements.attributes_of(op)
        return (op.name, attrs, value.type, value.index, operands, padding)


def _reads(value: Value) -> list[Value]:
    return [] if value.op is None else list(value.op.operands)

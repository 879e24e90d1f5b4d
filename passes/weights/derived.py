"""Classify the values of a program that derive from checkpoint tensors alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.ir import RANK, Function, Module, Op, Role, Value
from graphgen.ops import OPS
from graphgen.passes.core import Rewriter
from graphgen.passes.weights.materialization import only_enlarges

# Value numbers: one per distinct computation, shared by the programs of a module.
WeightNumbers = dict[tuple[object, ...], int]


class PreparedValues:
    """The values that ``lift-weights`` hoists: computed from weights, the rank and constants.

    Args:
        module: gives the roles of the arguments.
        function: one of its programs.
        numbers: shared by all programs, so that equal computations have equal numbers.
        roles: of the arguments that count as weights: checkpoint tensors, or those of adapters too.
        enlarged: count values that only enlarge a weight too, which ``lift-weights`` leaves in the
            program: the wide form of narrow numbers.

    Attributes:
        read: uses by the rest of the program, per value number of a derived weight.
    """

    def __init__(
        self,
        module: Module,
        function: Function,
        numbers: WeightNumbers,
        roles: Sequence[Role] = (Role.WEIGHT,),
        *,
        enlarged: bool = False,
    ) -> None:
        self.function = function
        self._numbers: dict[Value, int] = {}
        self._heavy: set[Value] = set()
        self._positions: dict[Op, float] = {}
        for value in function.args:
            row = module.interface.get(value.name or "")
            weight = row is not None and row.role in roles
            if weight or value.name == RANK:
                self._numbers[value] = numbers.setdefault((value.name,), len(numbers))
            if weight:
                self._heavy.add(value)
        for position, op in enumerate(function.block):
            self._positions[op] = position
            self._classify(op, numbers)
        if not enlarged:
            self._leave_enlarging()
        self.read: Mapping[int, int] = self._count_readers()

    def _classify(self, op: Op, numbers: WeightNumbers) -> None:
        known = [self._numbers.get(value, -1) for value in op.operands]
        if -1 in known or OPS[op.name].collective:
            return
        heavy = any(value in self._heavy for value in op.operands)
        for result in op.results:
            key = (op.name, op.attrs, result.index, *known)
            self._numbers[result] = numbers.setdefault(key, len(numbers))
            if heavy:
                self._heavy.add(result)

    def _leave_enlarging(self) -> None:
        """Exclude ops that only enlarge a weight: ``lift-weights`` leaves them in the program."""
        for op in reversed(self.function.block):
            value = op.results[0]
            if value in self._heavy and only_enlarges(op):
                outside = any(user.results[0] not in self._numbers for user in value.users)
                if outside or self.function.returns(value):
                    del self._numbers[value]
                    self._heavy.discard(value)

    def _count_readers(self) -> dict[int, int]:
        values = [value for _, value in self.function.outputs]
        for op in self.function.block:
            if op.results[0] not in self._numbers:
                values += op.operands
        out: dict[int, int] = {}
        for value in values:
            if value in self._heavy:
                number = self._numbers[value]
                out[number] = out.get(number, 0) + 1
        return out

    def __contains__(self, value: Value) -> bool:
        return value in self._numbers

    def number(self, value: Value) -> int:
        """The value number of a prepared value."""
        return self._numbers[value]

    def of_weights(self, value: Value) -> bool:
        """True if a value depends on weights and on no other argument of the call."""
        return value in self._heavy

    def sources(self, value: Value) -> list[str]:
        """Names of the checkpoint tensors that a prepared value derives from, in operand order."""
        found: dict[str, None] = {}
        work, seen = [value], {value}
        while work:
            current = work.pop()
            if current.op is None and current in self._heavy:
                found[current.name or ""] = None
            fresh = [v for v in (current.op.operands if current.op else ()) if v not in seen]
            seen.update(fresh)
            work.extend(reversed(fresh))
        return list(found)

    def readers(self, value: Value) -> int:
        """Uses by the rest of the program of this value, or of one with the same number."""
        return self.read.get(self._numbers[value], 0)

    def only_reader(self, value: Value) -> Op | None:
        """The only user of ``value``, with one use; ``None`` if there are more, or none."""
        if len(value.users) != 1 or self.function.returns(value):
            return None
        ((op, slots),) = value.users.items()
        return op if slots == 1 else None

    def move_before(self, anchor: Op, values: Sequence[Value], rewriter: Rewriter) -> None:
        """Hoist the prepared ops that compute ``values`` before ``anchor``."""
        limit = self._positions[anchor]
        late: set[Op] = set()
        work = [value.op for value in values]
        while work:
            op = work.pop()
            if op is not None and op not in late and self._positions[op] > limit:
                late.add(op)
                work.extend(value.op for value in op.operands)
        b = rewriter.before(self.function, anchor)
        for index, op in enumerate(sorted(late, key=self._positions.__getitem__), 1):
            b.loc = op.loc.through(rewriter.pass_name)
            made = b.emit(op.name, op.operands, dict(op.attrs))
            self._positions[made] = limit - 1 + index / (len(late) + 1)
            rewriter.replace(self.function, op, made.results, "move-weight", created=(made,))

"""Windows: the few ops that compute a value before and after a rewrite, as one small function.

A window is cut while the rewrite is recorded: the values before and after are both in the graph
then, so both sides are slices of one graph over one set of ops. Its arguments are the *boundary*:
values that either side reads and neither makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from graphgen.ir import Dim, Function, Op, Value
from graphgen.ir.clone import Cloner
from graphgen.ir.dims import symbols
from graphgen.ops import Trait, has_trait
from graphgen.passes.core.journal import Rewrite
from graphgen.passes.core.relation import Relation

Pair = tuple[Value, Value, Relation]


def _is_fact(op: Op) -> bool:
    """True for an op that carries a fact about its result, at no cost: always inside."""
    return has_trait(op, Trait.RELAYOUT) or op.name in ("constant", "iota", "slice")


@dataclass(slots=True)
class WindowCut:
    """The ops on both sides of one rewrite, grown as needed.

    Attributes:
        pairs: values before and after, and their relation.
        reads: operands of ops that the rewrite has taken out of the graph, as they were.
        inside: the ops that are part of the window, where either side reads their results.
        ops: those that are read, in program order.
        boundary: values from outside, in the order of first use.
    """

    pairs: tuple[Pair, ...]
    reads: Mapping[Op, tuple[Value, ...]]
    inside: set[Op]
    ops: list[Op] = field(default_factory=list[Op])
    boundary: list[Value] = field(default_factory=list[Value])

    @classmethod
    def of(cls, item: Rewrite, pairs: Iterable[Pair]) -> WindowCut:
        """The smallest window of a rewrite: the ops before and after it."""
        reads = {one.op: one.operands for one in (*item.after, *item.before) if not one.op.block}
        ops = {one.op for one in (*item.before, *item.after)}
        cut = cls(tuple(pairs), reads, ops)
        cut.settle()
        return cut

    def settle(self) -> None:
        """Find ops and boundary, with the facts that the boundary's producers carry."""
        while True:
            self._trace()
            facts = {v.op for v in self.boundary if v.op is not None and _is_fact(v.op)}
            if not facts:
                return
            self.inside |= facts

    def widen(self, steps: int) -> bool:
        """Take in the producers of the boundary, ``steps`` times; false where all are arguments."""
        for step in range(steps):
            made = {value.op for value in self.boundary if value.op is not None}
            if not made:
                return step > 0
            self.inside |= made
            self._trace()
        self.settle()
        return True

    @property
    def roots(self) -> list[Value]:
        """The values before and after."""
        return [value for old, new, _ in self.pairs for value in (old, new)]

    def unshared(self) -> list[Op]:
        """The ops that one side reads and the other does not, in program order."""
        sides: list[dict[Op, None]] = [{}, {}]
        for old, new, _ in self.pairs:
            for side, root in zip(sides, (old, new), strict=True):
                self._visit(root, side, {})
        return [op for op in self.ops if (op in sides[0]) != (op in sides[1])]

    def _trace(self) -> None:
        ops: dict[Op, None] = {}
        boundary: dict[Value, None] = {}
        for root in self.roots:
            self._visit(root, ops, boundary)
        self.ops, self.boundary = list(ops), list(boundary)

    def _visit(self, root: Value, ops: dict[Op, None], boundary: dict[Value, None]) -> None:
        work = [root]
        while work:
            value = work[-1]
            op = value.op
            if op is None or op not in self.inside:
                boundary.setdefault(value)
                work.pop()
            elif op in ops:
                work.pop()
            else:
                missing = [v for v in self.operands(op) if not _known(v, ops, boundary)]
                if missing:
                    work += reversed(missing)
                else:
                    ops[op] = None
                    work.pop()

    def operands(self, op: Op) -> tuple[Value, ...]:
        """Operands of ``op`` as they were when the rewrite was made."""
        return self.reads.get(op, op.operands)

    def symbols(self) -> set[str]:
        """Symbols in the types of the window."""
        types = [value.type for value in self.boundary]
        types += [result.type for op in self.ops for result in op.results]
        return {name for one in types if not one.static for name in symbols(one.shape)}

    def key(self) -> tuple[object, ...]:
        """Equal for windows that are the same up to names."""
        number: dict[Value, int] = {}
        for value in self.boundary:
            number[value] = len(number)
        arguments = tuple([(value.type, value.name == "rank") for value in self.boundary])
        body: list[object] = []
        for op in self.ops:
            reads = tuple([number[value] for value in self.operands(op)])
            body.append((op.name, op.attrs, reads, tuple([r.type for r in op.results])))
            for result in op.results:
                number[result] = len(number)
        roots = tuple([(number[old], number[new], how) for old, new, how in self.pairs])
        return (arguments, tuple(body), roots)

    def function(self, sizes: Mapping[str, Dim]) -> Function:
        """The window with its symbols bound: ``before.N`` and ``after.N`` of its boundary."""
        made = Function("window")
        cloner = Cloner(symbols=sizes, shardings=False)
        for place, value in enumerate(self.boundary):
            cloner.argument(value, made, f"{place}.{value.name or ''}")
        for op in self.ops:
            operands = [cloner.mapping[value] for value in self.operands(op)]
            made.block.append(cloner.detached(op, operands))
        for place, (old, new, _) in enumerate(self.pairs):
            made.outputs.append((f"before.{place}", cloner.mapping[old]))
            made.outputs.append((f"after.{place}", cloner.mapping[new]))
        return made


def _known(value: Value, ops: dict[Op, None], boundary: dict[Value, None]) -> bool:
    return value in boundary or (value.op is not None and value.op in ops)

"""Windows: the few ops that compute a value before and after a rewrite, as one small function.

A window is cut while the rewrite is recorded: the values before and after are both in the graph
then, so both sides are slices of one graph over one set of ops. Its arguments are the *boundary*:
values that either side reads and neither makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from graphgen.eval.element_kinds import has_floats
from graphgen.ir import RANK, Dim, Function, Literal, Op, Value
from graphgen.ir.clone import Cloner
from graphgen.ir.dims import symbols
from graphgen.ops import Trait, has_trait
from graphgen.passes.core.journal import Rewrite
from graphgen.passes.core.relation import EQUAL, Chain, Quantized, Relation

Pair = tuple[Value, Value, Relation]


# Most ops that read a value, of those that are looked at.
_READERS = 4
# Most ops of which a value is a function of others.
_DETERMINING = 1000
# Ops that choose elements, or fill with zeros.
_FACTS = ("constant", "iota", "slice", "take", "pad")


def _named_scales(relation: Relation) -> set[str]:
    """The names of values that a relation scales with."""
    if isinstance(relation, Chain):
        return {name for step in relation.steps for name in _named_scales(step)}
    if isinstance(relation, Quantized) and isinstance(relation.scale, str):
        return {relation.scale}
    return set()


def _is_fact(op: Op) -> bool:
    """True for an op that carries a fact about its result, at no cost: always inside."""
    return has_trait(op, Trait.RELAYOUT) or op.name in _FACTS


@dataclass(slots=True)
class WindowCut:
    """The ops on both sides of one rewrite, grown as needed.

    Attributes:
        pairs: values before and after, and their relation.
        reads: operands of ops that the rewrite has taken out of the graph, as they were.
        inside: the ops that are part of the window, where either side reads their results.
        ops: those that are read, in program order.
        boundary: values from outside, in the order of first use.
        scales: values after that relations scale with, by name.
        unpadded: whether elements that a ``take`` before the rewrite fills are left out.
    """

    pairs: tuple[Pair, ...]
    reads: Mapping[Op, tuple[Value, ...]]
    inside: set[Op]
    ops: list[Op] = field(default_factory=list[Op])
    boundary: list[Value] = field(default_factory=list[Value])
    scales: dict[str, Value] = field(default_factory=dict[str, Value])
    unpadded: bool = False

    @classmethod
    def of(cls, item: Rewrite, pairs: Iterable[Pair]) -> WindowCut:
        """The smallest window of a rewrite: the ops before and after it."""
        reads = {one.op: one.operands for one in (*item.after, *item.before) if not one.op.block}
        ops = {one.op for one in (*item.before, *item.after)}
        cut = cls(tuple(pairs), reads, ops)
        made = {v.name or "": v for op in (*item.created, *ops) for v in op.results}
        named = {name for _, _, how in cut.pairs for name in _named_scales(how)}
        cut.scales = {name: made[name] for name in sorted(named & made.keys())}
        cut.settle()
        return cut

    @classmethod
    def of_readers(cls, item: Rewrite, pairs: Iterable[Pair], function: Function) -> Self | None:
        """The window of what reads the values before: as it is, and with the values after.

        Returns:
            ``None`` where the function returns one, a value after is not an equal one, or there are
            too many readers.
        """
        new_of = {old: new for old, new, how in pairs if how == EQUAL}
        gone = {one.op for one in item.before} | set(item.created)
        readers = list(dict.fromkeys(op for old in new_of for op in old.users if op not in gone))
        if not 0 < len(readers) <= _READERS or any(function.returns(old) for old in new_of):
            return None
        reads = {one.op: one.operands for one in (*item.after, *item.before) if not one.op.block}
        made: list[Pair] = []
        inside = {one.op for one in (*item.before, *item.after)}
        for op in readers:
            # Its operands are in ``reads``: the graph does not see the copy.
            copy = Op(op.name, (), tuple([r.type for r in op.results]), op.attrs, op.loc, ())
            reads[copy] = tuple([new_of.get(value, value) for value in op.operands])
            made += [(a, b, EQUAL) for a, b in zip(op.results, copy.results, strict=True)]
            inside |= {op, copy}
        cut = cls(tuple(made), reads, inside)
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

    def close(self) -> bool:
        """Take in the ops through which boundary values are determined.

        Those by which one is computed from others, those of a value that depends on constants and
        the rank only, and, where floats are compared, those of integers, which choose elements:
        positions, masks, indices. Values of a closed window's boundary can be drawn independently.

        Returns:
            False where none of them does.
        """
        grown, floats = False, all(has_floats(old.dtype) for old, _, _ in self.pairs)
        while True:
            added = self._between()
            if floats:
                added |= {v.op for v in self.boundary if v.op and not has_floats(v.dtype)}
            if not added:
                return grown
            self.inside |= added
            self.settle()
            grown = True

    def determine(self) -> bool:
        """Take in the ops of boundary values that are functions of each other.

        Such a value is computed of other boundary values, as a square beside its root, or of
        nothing but the rank; where floats are compared, several are computed of the same integer
        arguments, as the cosines and sines of positions. Values of the boundary that is left are
        as good as those of a call, if each of them may have all values of its type.

        Returns:
            False where none is.
        """
        grown = False
        floats = all(has_floats(old.dtype) for old, _, _ in self.pairs)
        while added := self._determining(floats=floats):
            self.inside |= added
            self.settle()
            grown = True
        return grown

    def _determining(self, *, floats: bool) -> set[Op]:
        """The ops that compute boundary values of each other, or of the same integers."""
        known = [self._computed(value, floats=floats) for value in self.boundary]
        found: set[Op] = set()
        for place, one in enumerate(known):
            if one is None or not one[0]:
                continue
            others = [other[1] for n, other in enumerate(known) if other is not None and n != place]
            fixed, tied = not one[1], not one[1].isdisjoint(self.boundary)
            if fixed or tied or any(not one[1].isdisjoint(other) for other in others):
                found |= one[0]
        return found

    def _computed(self, value: Value, *, floats: bool) -> tuple[set[Op], set[Value]] | None:
        """The ops that compute a boundary value of others, and of integer arguments; these.

        Returns:
            ``None`` for one that depends on more.
        """
        made: set[Op] = set()
        leaves: set[Value] = set()
        others, work = {one for one in self.boundary if one is not value}, [value]
        while work:
            one = work.pop()
            if one in others or (one.op is None and floats and not has_floats(one.dtype)):
                leaves.add(one)
            elif one.op is None and one.name != RANK:
                return None
            elif one.op is not None and one.op not in made:
                made.add(one.op)
                work += self.operands(one.op)
            if len(made) > _DETERMINING:
                return None
        return made, {leaf for leaf in leaves if leaf.name != RANK}

    def _between(self) -> set[Op]:
        """The ops on paths from a boundary value to another one, or to the rank alone."""
        ends = set(self.boundary)
        # Whether an op depends on a value of the boundary, and on any argument but the rank.
        reaches: dict[Op, bool] = {}
        free: dict[Op, bool] = {}
        for value in self.boundary:
            work = [value.op] if value.op is not None else []
            while work:
                op = work[-1]
                if op in reaches:
                    work.pop()
                    continue
                operands = self.operands(op)
                unseen = [v.op for v in operands if v.op is not None and v.op not in reaches]
                if unseen:
                    work += unseen
                    continue
                reaches[op] = any(
                    v in ends or (v.op is not None and reaches[v.op]) for v in operands
                )
                free[op] = any(
                    value.name != RANK if value.op is None else free[value.op] for value in operands
                )
                work.pop()
        made = {value.op for value in self.boundary if value.op is not None}
        fixed = {op for op in made if not free[op]}
        return {op for op, found in reaches.items() if found and op not in self.inside} | fixed

    @property
    def roots(self) -> list[Value]:
        """The values before and after, and scales."""
        compared = [value for old, new, _ in self.pairs for value in (old, new)]
        return [*compared, *self.scales.values()]

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
        scales = tuple([(name, number[value]) for name, value in self.scales.items()])
        return (arguments, tuple(body), roots, scales, self.unpadded)

    def function(self, sizes: Mapping[str, Dim]) -> Function:
        """The window with its symbols bound: ``before.N`` and ``after.N`` of its boundary.

        A scale that a relation names is the output ``scale.NAME``.
        """
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
        for name, value in self.scales.items():
            made.outputs.append((f"scale.{name}", cloner.mapping[value]))
        return made


def _known(value: Value, ops: dict[Op, None], boundary: dict[Value, None]) -> bool:
    return value in boundary or (value.op is not None and value.op in ops)


def filled_by_take(value: Value) -> tuple[int, list[bool]] | None:
    """The dimension along which a ``take`` of known places makes a value, and what it fills with 0.

    Returns:
        ``None`` for any other value, and where it fills nothing.
    """
    op = value.op
    places = op.operands[1].producer("constant") if op is not None and op.name == "take" else None
    literal = places.attrs.get("value") if places is not None else None
    if op is None or not isinstance(literal, Literal):
        return None
    block = op.attrs.get("block")
    width = block if isinstance(block, int) else 1
    filled = [int(number.real) < 0 for number in literal.values() for _ in range(width)]
    return (op.attrs.integer("dimension"), filled) if any(filled) else None

"""Rewrites that are wrong alone and right with the one after them.

A pass may move a factor from one op to the next in two rewrites. The program between them is
wrong, and nothing is wrong with the pass: the second rewrite replaces the first, or all that read
it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphgen.eval import MEANING, Array, evaluate_ranks
from graphgen.ir import Function, Module, Op, Value
from graphgen.ir.clone import Cloner
from graphgen.passes.core.journal import Rewrite
from graphgen.passes.core.relation import EQUAL
from graphgen.passes.verify.compare.deviation import difference
from graphgen.passes.verify.rewrites.legal_calls import LegalArguments
from graphgen.passes.verify.rewrites.rewrite_window import WindowCut
from graphgen.passes.verify.rewrites.window_check import UNFIT
from graphgen.passes.verify.verdict import MEANING_BUDGET


@dataclass(frozen=True, slots=True)
class WrongAlone:
    """A rewrite that is wrong alone, and the function as it was before.

    Attributes:
        number: its place among the checks.
        function: where it is made.
        before: a copy of the function from before the rewrite.
        copies: value -> its copy; a value after the rewrite stands for the one before.
        readers: the ops that read the replaced values; ``None`` where the function returns one.
        made: the ops that make the values after the rewrite.
    """

    number: int
    function: Function
    before: Function
    copies: dict[Value, Value]
    readers: frozenset[Op] | None
    made: frozenset[Op]

    @classmethod
    def of(cls, number: int, item: Rewrite, function: Function) -> WrongAlone:
        """Keep the function while both sides of the rewrite are in it."""
        before = Function(function.name, function.phase, dict(function.dims))
        copies = dict(Cloner(shardings=False).function(function, before))
        copies |= {new: copies[old] for old, new, _ in item.replaced if old in copies}
        olds = [old for old, _, _ in item.replaced]
        returned = any(function.returns(old) for old in olds)
        readers = frozenset(op for old in olds for op in old.users if op not in item.created)
        made = frozenset(new.op for _, new, _ in item.replaced if new.op is not None)
        return cls(number, function, before, copies, None if returned else readers, made)

    def put_right_by(self, item: Rewrite, module: Module, calls: list[LegalArguments]) -> bool:
        """True if ``item`` replaces this rewrite, or all that read it, and what it makes is right.

        Args:
            item: the next rewrite, while both of its sides are in the function.
            module: has the functions that are called.
            calls: arguments of the function.
        """
        gone = {one.op for one in item.before}
        pairs = [(self.copies.get(old), new) for old, new, how in item.replaced if how == EQUAL]
        through = self.readers is not None and self.readers <= gone
        replaced = bool(self.made) and self.made <= gone
        if not (through or replaced) or not pairs or not calls:
            return False
        return all(
            old is not None and self._equal(old, new, item, module, legal)
            for legal in calls
            for old, new in pairs
        )

    def _equal(
        self, old: Value, new: Value, item: Rewrite, module: Module, legal: LegalArguments
    ) -> bool:
        reads = {one.op: one.operands for one in item.before if one.op.block is None}
        left = WindowCut(((old, old, EQUAL),), {}, set(self.before.block))
        right = WindowCut(((new, new, EQUAL),), reads, set(self.function.block))
        try:
            a, b = (_value(cut, module, legal) for cut in (left, right))
        except UNFIT:
            return False
        return difference("", 0, a, b).relative <= MEANING_BUDGET


def _value(cut: WindowCut, module: Module, legal: LegalArguments) -> Array:
    """The value of a window on the arguments of a call, of all ranks."""
    cut.settle()
    window = cut.function(legal.sizes)
    names = {
        arg.name or "": value.name or ""
        for arg, value in zip(window.args, cut.boundary, strict=True)
    }
    given = [{arg: one[name] for arg, name in names.items()} for one in legal.given]
    results = evaluate_ranks(window, given, MEANING, module=module)
    return np.stack([result["before.0"] for result in results])

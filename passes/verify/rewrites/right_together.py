"""Rewrites that are wrong alone and right with the one after them.

A pass may move a factor from one op to the next in two rewrites. The program between them is
wrong, and nothing is wrong with the pass: the second rewrite replaces the first, or all that read
it.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.ir import Function, Op, Value
from graphgen.ir.clone import Cloner
from graphgen.passes.core.journal import Rewrite
from graphgen.passes.core.relation import EQUAL
from graphgen.passes.verify.rewrites.rewrite_window import WindowCut


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

    def joined_with(self, item: Rewrite) -> WindowCut | None:
        """The window from before this rewrite to after ``item``, both in the whole function.

        Args:
            item: the next rewrite, while both of its sides are in the function.

        Returns:
            ``None`` unless ``item`` replaces this rewrite, or all that read it.
        """
        gone = {one.op for one in item.before}
        pairs = [(self.copies.get(old), new) for old, new, how in item.replaced if how == EQUAL]
        through = self.readers is not None and self.readers <= gone
        replaced = bool(self.made) and self.made <= gone
        if not (through or replaced) or not pairs:
            return None
        # Both sides read the arguments of the function that is rewritten.
        args = {self.copies[arg]: arg for arg in self.function.args}
        reads = {one.op: one.operands for one in item.before if one.op.block is None}
        reads |= {op: tuple([args.get(v, v) for v in op.operands]) for op in self.before.block}
        joined = [(args.get(old, old), new, EQUAL) for old, new in pairs if old is not None]
        if len(joined) < len(pairs):
            return None
        cut = WindowCut(tuple(joined), reads, {*self.before.block, *self.function.block})
        cut.settle()
        return cut

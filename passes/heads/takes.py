"""Making takes in a program: each at the earliest place there is, and each only once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from graphgen.build import Builder
from graphgen.ir import Dim, Function, Literal, Op, Value
from graphgen.ir.dims import product
from graphgen.ir.dtype import s32
from graphgen.passes.core import Rewriter


@lru_cache(maxsize=256)
def _blocks(literal: Literal) -> tuple[int, ...]:
    return tuple(map(int, literal.values()))


@dataclass(frozen=True, slots=True)
class Move:
    """What a ``take`` does, apart from which value it does it to.

    Attributes:
        blocks: for each block of the result, the operand's block or -1 for zeros.
        dim: the dimension.
        block: elements of a block.
    """

    blocks: tuple[int, ...]
    dim: int
    block: int = 1

    @staticmethod
    def of(op: Op) -> Move | None:
        """What the take ``op`` does; ``None`` where that is computed."""
        constant = op.operands[1].producer("constant")
        if constant is None:
            return None
        return Move(
            _blocks(constant.attrs.literal("value")),
            op.attrs.integer("dimension"),
            op.attrs.integer("block"),
        )

    @property
    def lays_out(self) -> bool:
        """Whether it lays heads out, with zeros or copies, rather than takes the model's back."""
        return -1 in self.blocks or len(set(self.blocks)) < len(self.blocks)

    def at(self, dim: int, block: int | None = None) -> Move:
        """The same along another dimension, or of blocks of another size."""
        return replace(self, dim=dim, block=self.block if block is None else block)

    def size_of(self, value: Value) -> int:
        """How many blocks ``value`` has."""
        size = value.shape[self.dim]
        assert isinstance(size, int)
        return size // self.block

    def shape_of(self, value: Value) -> tuple[Dim, ...]:
        """The shape of what the take of ``value`` gives."""
        shape = list(value.shape)
        shape[self.dim] = len(self.blocks) * self.block
        return tuple(shape)

    def back(self, count: int) -> Move:
        """The take that undoes this one: where each of ``count`` blocks is found first."""
        first: dict[int, int] = {}
        for place, block in enumerate(self.blocks):
            first.setdefault(block, place)
        return replace(self, blocks=tuple([first.get(block, -1) for block in range(count)]))

    def through_reshape(self, old: tuple[Dim, ...], new: tuple[Dim, ...]) -> Move | None:
        """The same on ``new`` where this is on ``old``, a reshape of it; ``None`` if it is none.

        Of several dimensions, which are then of size 1 but for the last, it is the last.
        """
        inner = product(old[self.dim + 1 :])
        if not isinstance(inner, int):
            return None
        inner *= self.block
        for dim, size in reversed([*enumerate(new)]):
            behind = product(new[dim + 1 :])
            same = product(new[:dim]) == product(old[: self.dim]) and isinstance(behind, int)
            if same and isinstance(behind, int) and inner % behind == 0:
                block = inner // behind
                if isinstance(size, int) and size * self.block == old[self.dim] * block:
                    return self.at(dim, block)
        return None


class Takes:
    """The takes of one program.

    A take stands right behind what it takes from, and what it has become there, once rules have
    moved it on, is known: whoever needs the same again gets it.

    Args:
        function: the program.
        rewriter: on whose behalf takes are made.

    Attributes:
        made: where ops that are made are listed, for the rewriter to look at; ``None`` for nowhere.
    """

    def __init__(self, function: Function, rewriter: Rewriter) -> None:
        self.function = function
        self.rewriter = rewriter
        self.made: list[Op] | None = None
        self._known: dict[tuple[Value, Move], Value] = {}
        self._constants: dict[tuple[int, ...], Value] = {}

    def take(self, value: Value, move: Move) -> Value:
        """The take of ``value``, or what it has become."""
        found = self._known.get((value, move))
        if found is not None and (found.op is None or found.op.block is not None):
            return found
        blocks = self._constant(move.blocks, value)
        b = self._builder(self._first() if value.op is None else value.op.next, value)
        made = b.take(value, blocks, move.dim, move.block)
        self._known[value, move] = made
        return made

    def became(self, value: Value, move: Move, now: Value) -> None:
        """From now on, the take of ``value`` is ``now``."""
        self._known[value, move] = now

    def _constant(self, blocks: tuple[int, ...], near: Value) -> Value:
        """The blocks' numbers, at the very front of the program."""
        found = self._constants.get(blocks)
        if found is None:
            b = self._builder(self._first(), near)
            found = self._constants[blocks] = b.literal(list(blocks), s32)
        return found

    def _first(self) -> Op | None:
        """The first op behind the constants, before which arguments are taken."""
        ours = {value.op for value in self._constants.values()}
        op = self.function.block.first
        while op is not None and op in ours:
            op = op.next
        return op

    def _builder(self, before: Op | None, near: Value) -> Builder:
        op = near.op or next(iter(near.users), None)
        where = op.loc.through(self.rewriter.pass_name) if op is not None else None
        b = Builder(self.function, before=before, loc=where)
        b.made = self.made
        return b

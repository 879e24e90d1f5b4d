"""Head gathers: ``take`` ops described as data, emitted once at the earliest point."""

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
class HeadGather:
    """The attributes of a ``take``: result block ``i`` is operand block ``blocks[i]``.

    Attributes:
        blocks: per block of the result, the block of the operand, or -1 for zeros.
        dim: the dimension.
        block: elements per block.
    """

    blocks: tuple[int, ...]
    dim: int
    block: int = 1

    @staticmethod
    def of(op: Op) -> HeadGather | None:
        """The gather that the take ``op`` is; ``None`` if its indices are not constant."""
        constant = op.operands[1].producer("constant")
        if constant is None:
            return None
        return HeadGather(
            _blocks(constant.attrs.literal("value")),
            op.attrs.integer("dimension"),
            op.attrs.integer("block"),
        )

    @property
    def assigns(self) -> bool:
        """True if it assigns heads to ranks (has zeros or copies); else it selects the model's."""
        return -1 in self.blocks or len(set(self.blocks)) < len(self.blocks)

    def at(self, dim: int, block: int | None = None) -> HeadGather:
        """The same gather along another dimension or with another block size."""
        return replace(self, dim=dim, block=self.block if block is None else block)

    def block_count(self, value: Value) -> int:
        """The number of blocks of ``value``."""
        size = value.shape[self.dim]
        assert isinstance(size, int)
        return size // self.block

    def result_shape(self, value: Value) -> tuple[Dim, ...]:
        """The shape of the gather of ``value``."""
        shape = list(value.shape)
        shape[self.dim] = len(self.blocks) * self.block
        return tuple(shape)

    def inverse(self, count: int) -> HeadGather:
        """The gather with ``inverse(gather(x)) = x`` for ``x`` of ``count`` blocks."""
        first: dict[int, int] = {}
        for place, block in enumerate(self.blocks):
            first.setdefault(block, place)
        return replace(self, blocks=tuple([first.get(block, -1) for block in range(count)]))

    def through_reshape(self, old: tuple[Dim, ...], new: tuple[Dim, ...]) -> HeadGather | None:
        """The gather ``g`` with ``g(reshape(x)) = reshape(self(x))``; ``None`` if there is none.

        Among several dimensions, all of size 1 but the last, it is along the last.

        Args:
            old: the shape that this gather applies to.
            new: the shape after the reshape.
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


class GatherEmitter:
    """Emits the gathers of one program, each once.

    A gather follows the definition of its operand. After rules moved it, its replacement is
    memoized for later requests.

    Args:
        function: the program.
        rewriter: records the rewrites.

    Attributes:
        made: collects emitted ops for the rewriter; ``None`` to collect none.
        emitted: the gathers. Another ``take``, such as one of tokens in a balanced order, stays.
    """

    def __init__(self, function: Function, rewriter: Rewriter) -> None:
        self.function = function
        self.rewriter = rewriter
        self.made: list[Op] | None = None
        self.emitted = set[Op]()
        self._known: dict[tuple[Value, HeadGather], Value] = {}
        self._constants: dict[tuple[int, ...], Value] = {}

    def emit(self, value: Value, gather: HeadGather) -> Value:
        """The gather of ``value``, or the value that replaced it."""
        found = self._known.get((value, gather))
        if found is not None and (found.op is None or found.op.block is not None):
            return found
        blocks = self._constant(gather.blocks, value)
        b = self._builder(self._first() if value.op is None else value.op.next, value)
        made = b.take(value, blocks, gather.dim, gather.block)
        self._known[value, gather] = made
        assert made.op is not None
        self.emitted.add(made.op)
        return made

    def rebind(self, value: Value, gather: HeadGather, now: Value) -> None:
        """Record that ``now`` replaces the gather of ``value``."""
        self._known[value, gather] = now

    def _constant(self, blocks: tuple[int, ...], near: Value) -> Value:
        """The constant of the block numbers, at the start of the program."""
        found = self._constants.get(blocks)
        if found is None:
            b = self._builder(self._first(), near)
            found = self._constants[blocks] = b.literal(list(blocks), s32)
        return found

    def _first(self) -> Op | None:
        """The first op after the constants: arguments are gathered before it."""
        ours = {value.op for value in self._constants.values()}
        op = self.function.block.first
        while op is not None and op in ours:
            op = op.next
        return op

    def _builder(self, before: Op | None, near: Value) -> Builder:
        op = near.op or self.function.block.first_user(near)
        where = op.loc.through(self.rewriter.pass_name) if op is not None else None
        b = Builder(self.function, before=before, loc=where)
        b.made = self.made
        return b

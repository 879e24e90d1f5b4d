"""Constant propagation per rank: integers that depend on the rank and constants alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphgen.ir import RANK, Function, Op, TensorType, Value
from graphgen.ops import OPS
from graphgen.ops.external import gives_rank
from graphgen.passes.sharding.mesh import Groups

if TYPE_CHECKING:
    from graphgen.eval import Array

# Limits on the size of tables and on the length of the computation.
_MOST_ELEMENTS, _MOST_STEPS = 4096, 40


class RankNumbers:
    """The values of a program's integers on each rank, where they are constant per rank.

    Args:
        function: the program; its argument ``%rank`` is s32[1].
        ranks: how many run it.
    """

    def __init__(self, function: Function, ranks: int) -> None:
        self.rank = function.arg(RANK)
        self.ranks = ranks
        self._known: dict[Value, list[Array] | None] = {}

    def of(self, value: Value, steps: int = _MOST_STEPS) -> list[Array] | None:
        """The value on each rank; ``None`` if unknown."""
        if value not in self._known:
            self._known[value] = self._find(value, steps)
        return self._known[value]

    def _find(self, value: Value, steps: int) -> list[Array] | None:
        import numpy as np

        from graphgen.eval import NATIVE, RULES

        op = value.op
        if value is self.rank or (op is not None and gives_rank(op)):
            shape, kind = value.type.dims, NATIVE.dtype(value.dtype)
            return [np.full(shape, number, kind) for number in range(self.ranks)]
        if op is None or not steps or len(op.results) > 1 or not _is_small(value.type):
            return None
        if op.name == "constant":
            return [NATIVE.literal(op.attrs.literal("value"))] * self.ranks
        rule = None if OPS[op.name].collective else RULES.get(op.name)
        if rule is None:
            return None
        given: list[list[Array]] = []
        for operand in op.operands:
            found = self.of(operand, steps - 1)
            if found is None:
                return None
            given.append(found)
        return [rule(NATIVE, op.attrs, [each[at] for each in given]) for at in range(self.ranks)]

    def why_not_own(self, cut: Op, groups: Groups, dim: int) -> str:
        """Why a dynamic slice does not read, on every rank, the rank's own part.

        Args:
            cut: the dynamic slice.
            groups: the rank at place i of a group has part i.
            dim: the dimension that the parts divide.

        Returns:
            The reason; empty if it does.
        """
        whole, sizes = cut.operands[0].shape, cut.attrs.dims("slice_sizes")
        if any(a != b for at, (a, b) in enumerate(zip(whole, sizes, strict=True)) if at != dim):
            return "another dimension is cut as well"
        size = sizes[dim]
        if not isinstance(size, int) or size * len(groups[0]) != whole[dim]:
            return "the slice is of another size than the part of a rank"
        starts = self.of(cut.operands[1 + dim])
        if starts is None:
            return "where the slice begins is not known"
        for group in groups:
            for place, rank in enumerate(group):
                if int(starts[rank]) != place * size:
                    return f"rank {rank} takes another part than its own"
        return ""


def _is_small(type_: TensorType) -> bool:
    size = type_.size
    return isinstance(size, int) and size <= _MOST_ELEMENTS and not type_.dtype.is_float

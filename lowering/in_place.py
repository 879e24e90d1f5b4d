"""Replacement of an op in place, with new ops at its position."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from graphgen.build import Builder
from graphgen.ir import Function, Op, Value


class OpsAfter:
    """Builder in a ``with`` block, whose ops are placed after a given op at its end.

    Args:
        function: has the op.
        op: the anchor.
    """

    def __init__(self, function: Function, op: Op) -> None:
        self.function = function
        self.op = op
        self.last = function.block.last

    def __enter__(self) -> Builder:
        return Builder(self.function)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        anchor, fresh = self.op, self.last.next if self.last is not None else None
        while fresh is not None:
            following = fresh.next
            self.function.block.move_after(fresh, anchor)
            anchor, fresh = fresh, following


def replace_op(function: Function, op: Op, values: Sequence[Value]) -> None:
    """Take an op out of its function, with ``values`` for its results."""
    new = dict(zip(op.results, values, strict=True))
    for user in {user for result in op.results for user in result.users}:
        user.set_operands(tuple([new.get(value, value) for value in user.operands]))
    function.outputs = [(name, new.get(value, value)) for name, value in function.outputs]
    function.block.erase(op)

"""Replacement of an op in place, with new ops at its position."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from graphgen.build import Builder
from graphgen.ir import Function, Op, Value


@contextmanager
def ops_after(function: Function, op: Op) -> Generator[Builder]:
    """Builder of a ``with`` block; at its end the new ops are moved after ``op``.

    They have its location.

    Args:
        function: has the op.
        op: the anchor.
    """
    last = function.block.last
    yield Builder(function, loc=op.loc)
    anchor, fresh = op, last.next if last is not None else None
    while fresh is not None:
        following = fresh.next
        function.block.move_after(fresh, anchor)
        anchor, fresh = fresh, following


def replace_op(function: Function, op: Op, values: Sequence[Value]) -> None:
    """Take an op out of its function, with ``values`` for its results."""
    for result, value in zip(op.results, values, strict=True):
        function.replace_uses(result, value)
    function.block.erase(op)

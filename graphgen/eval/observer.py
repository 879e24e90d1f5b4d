"""Observers of an evaluation: see every op with its arrays, and may replace its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from graphgen.eval.arithmetic import Array
from graphgen.ir import Function, Op

# For each value, an array for each rank that runs.
Columns = Sequence[Sequence[Array]]


class Observer(Protocol):
    """Watches one evaluation; ranks are numbered from 0, and an op may run on some of them.

    Columns hold, for each operand or result, one array for each rank in ``ranks``.
    """

    def enter(self, function: Function, ranks: Sequence[int]) -> None:
        """Before a program, a called function, or a condition, body or branch runs."""
        ...

    def made(self, op: Op, ranks: Sequence[int], given: Columns, results: Columns) -> Columns:
        """After an op has run, those of called functions, loop bodies and branches included.

        Args:
            op: the op.
            ranks: the numbers of the ranks that ran it.
            given: its operands.
            results: its results; not to be changed in place.

        Returns:
            The results that the evaluation goes on with: ``results``, or others of the same shapes
            and element types.
        """
        ...

    def branch(self, op: Op, number: int, ranks: Sequence[int]) -> None:
        """Before ``ranks`` run branch ``number`` of a ``conditional``."""
        ...

    def loop(self, op: Op, turns: Sequence[int]) -> None:
        """After a ``while`` has ended: the turns it made on each rank that ran it."""
        ...


class ObserverChain:
    """Several observers of one evaluation: each is given the results that the one before it gave.

    Args:
        observers: in order.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def enter(self, function: Function, ranks: Sequence[int]) -> None:
        """See :class:`Observer`."""
        for observer in self._observers:
            observer.enter(function, ranks)

    def made(self, op: Op, ranks: Sequence[int], given: Columns, results: Columns) -> Columns:
        """See :class:`Observer`."""
        for observer in self._observers:
            results = observer.made(op, ranks, given, results)
        return results

    def branch(self, op: Op, number: int, ranks: Sequence[int]) -> None:
        """See :class:`Observer`."""
        for observer in self._observers:
            observer.branch(op, number, ranks)

    def loop(self, op: Op, turns: Sequence[int]) -> None:
        """See :class:`Observer`."""
        for observer in self._observers:
            observer.loop(op, turns)

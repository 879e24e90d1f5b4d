"""NumPy rules of control flow: calls, loops and conditionals, rank by rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from graphgen.errors import GraphgenError
from graphgen.eval.arithmetic import Array
from graphgen.eval.observer import Columns, Observer
from graphgen.ir import Op
from graphgen.ops.control import callees, chosen_branch

# Turns after which a loop is taken for one that does not end, unless it says how many it makes.
MOST_TRIPS = 100_000


class RunBody(Protocol):
    """Runs a function of the module on some of the ranks."""

    def __call__(
        self, op: Op, name: str, given: Columns, ranks: Sequence[int]
    ) -> list[list[Array]]:
        """The outputs of the function called ``name``; ``op`` is who runs it."""
        ...


def run_control(
    op: Op,
    given: Columns,
    ranks: Sequence[int],
    body: RunBody,
    observer: Observer | None = None,
) -> list[list[Array]]:
    """The results of an op that runs other functions.

    Args:
        op: a call, a loop or a choice.
        given: its operands.
        ranks: the numbers of the ranks that run it.
        body: runs a function.
        observer: sees the turns of loops and the branches taken.

    Raises:
        GraphgenError: GG0404 a loop that makes too many turns.
    """
    if op.name == "call":
        return body(op, callees(op)[0], given, ranks)
    run = _while if op.name == "while" else _conditional
    return run(op, given, ranks, body, observer)


def _while(
    op: Op, given: Columns, ranks: Sequence[int], body: RunBody, observer: Observer | None
) -> list[list[Array]]:
    """Each rank goes on for as long as its own condition holds."""
    condition, step = callees(op)
    state = [list(column) for column in given]
    active = list(range(len(ranks)))
    turns = [0] * len(ranks)
    trips = 0
    while True:
        (goes,) = body(op, condition, _of(state, active), [ranks[i] for i in active])
        active = [i for i, yes in zip(active, goes, strict=True) if bool(yes)]
        if not active:
            if observer is not None:
                observer.loop(op, turns)
            return state
        if trips >= max(MOST_TRIPS, op.attrs.integer("trip_count")):
            raise GraphgenError(
                "GG0404",
                f"while: @{condition} still holds after {trips} turns",
                where=repr(op.loc),
                help="run it with XLA, which has no bound: graphgen run --on cpu",
            )
        made = body(op, step, _of(state, active), [ranks[i] for i in active])
        _put(state, active, made)
        trips += 1
        for place in active:
            turns[place] = trips


def _conditional(
    op: Op, given: Columns, ranks: Sequence[int], body: RunBody, observer: Observer | None
) -> list[list[Array]]:
    """Run a branch on each rank; ranks that choose the same branch run together."""
    branches, takes = callees(op), op.attrs.integers("takes")
    chosen = [
        chosen_branch(bool(which) if which.dtype == bool else int(which), len(branches))
        for which in given[0]
    ]
    results: list[list[Array]] = [list(given[0]) for _ in op.results]
    for number, name in enumerate(branches):
        active = [i for i, choice in enumerate(chosen) if choice == number]
        start = 1 + sum(takes[:number])
        if active:
            operands = _of(given[start : start + takes[number]], active)
            who = [ranks[i] for i in active]
            if observer is not None:
                observer.branch(op, number, who)
            _put(results, active, body(op, name, operands, who))
    return results


def _of(columns: Columns, places: Sequence[int]) -> list[list[Array]]:
    return [[column[place] for place in places] for column in columns]


def _put(columns: Sequence[list[Array]], places: Sequence[int], made: Columns) -> None:
    for column, arrays in zip(columns, made, strict=True):
        for place, array in zip(places, arrays, strict=True):
            column[place] = array

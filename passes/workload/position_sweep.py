"""Calls at every position of small programs, in every row; at boundary positions of larger ones.

Scripts of situations leave most positions of a decode program out, and a fault at one of those
shows nowhere else. A program of at most 16 positions is called at each of them in each row of a
call. A larger one is called at the ends and around powers of two, in any row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import count

from graphgen.exec.decode_steps import STEPS
from graphgen.ir import VERIFY_TREE
from graphgen.passes.workload.call_plan import CallPlan, CallWriter, Span, TokenIds
from graphgen.passes.workload.program_shapes import LONG, ProgramShape

# Most positions of a program that is called at each of them.
EXHAUSTIVE = 16
# Numbers around which positions of larger programs are tried: sizes of blocks and tiles.
_EDGES = (16, 32, 64, 128, 256, 512, 1024, 2048)
# Of long programs: where integers of 8 and 16 bits end.
_ENDS = (2**8, 2**15, 2**16)
# Phases whose tokens are not at consecutive positions, or are so by what the program chooses.
_NOT_SWEPT = (VERIFY_TREE, STEPS)


def planned_positions(slots: int) -> tuple[int, ...]:
    """The positions at which a program that attends to ``slots`` of them is called, in order."""
    if slots <= EXHAUSTIVE:
        return tuple(range(slots))
    if slots > LONG:
        # Faults at small positions are found in a small program.
        chosen = {0, slots - 1} | {end + off for end in _ENDS for off in (-1, 0)}
    else:
        chosen = {edge + off for edge in _EDGES for off in (-1, 0, 1)}
        chosen |= {0, 1, slots - 2, slots - 1}
    return tuple(sorted(position for position in chosen if position < slots))


def is_swept(phase: str) -> bool:
    """True for programs whose calls say at which positions their tokens are."""
    return phase not in _NOT_SWEPT


def wanted_places(slots: int, rows: int) -> set[tuple[int, int]]:
    """Positions and rows that a program is called at, in a small one all pairs.

    Of a larger one each position has any row: the pairs are in turn.
    """
    positions = planned_positions(slots)
    if slots <= EXHAUSTIVE:
        return {(position, row) for position in positions for row in range(rows)}
    return {(position, number % rows) for number, position in enumerate(positions)}


def missed_places(
    slots: int, rows: int, seen: Collection[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Of the places that a program is called at those that were not seen, in order.

    Args:
        slots: positions that the program attends to.
        rows: of its calls.
        seen: the position and the row of each token of its calls.
    """
    wanted = wanted_places(slots, rows)
    if slots <= EXHAUSTIVE:
        return sorted(wanted.difference(seen))
    known = {position for position, _ in seen}
    return sorted(place for place in wanted if place[0] not in known)


def largest(sizes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sizes of one program, slots and rows, of which no other one has as many of both."""
    every = set(sizes)
    return sorted(
        one
        for one in every
        if not any(o != one and o[0] >= one[0] and o[1] >= one[1] for o in every)
    )


def sweep(writer: CallWriter, shapes: Sequence[ProgramShape]) -> None:
    """Calls of programs with the same token everywhere, and at all places that no call reached.

    Args:
        writer: with the calls so far.
        shapes: the programs; only calls in float64 are added.
    """
    long = writer.sizes.slots > LONG
    for shape in shapes:
        if is_swept(shape.phase):
            # These are for small programs: a long cache takes time.
            if not long and (shape.rows > 1 or shape.active > 1):
                _the_same_token(writer, shape)
            if not long and shape.active > 1 and shape.phase == "prefill":
                _prompts_of_each_length(writer, shape)
            _missing_places(writer, shape)


def positions_of(shape: ProgramShape) -> int:
    """Number of positions that the tokens of a program can be at."""
    return min(shape.active, shape.attended) if shape.whole else shape.attended


def _the_same_token(writer: CallWriter, shape: ProgramShape) -> None:
    """Every token the same: all choose the same experts, and all scores tie."""
    length = min(shape.active, shape.attended)
    spans = [Span(0, length)] * shape.rows
    _call(writer, shape, spans, "the same token in every place", "one")


def _prompts_of_each_length(writer: CallWriter, shape: ProgramShape) -> None:
    """Prompts of the lengths that no call has, as many in a call as it has rows."""
    most = min(shape.active, shape.attended)
    had = {
        row[1].count
        for plan in writer.plans
        if plan.shape == shape
        for row in plan.rows
        if row is not None
    }
    # The positions of ends are one less than lengths.
    lengths = [end + 1 for end in planned_positions(most) if end + 1 not in had]
    for first in range(0, len(lengths), shape.rows):
        part = lengths[first : first + shape.rows]
        spans = [Span(0, length, left=row % 2 == 1) for row, length in enumerate(part)]
        _call(writer, shape, spans, "prompts of other lengths")


def _missing_places(writer: CallWriter, shape: ProgramShape) -> None:
    """Tokens at the places of a program that no call has reached."""
    slots = positions_of(shape)
    if writer.sizes.rings and slots > EXHAUSTIVE:
        # Rows of a ring go on where they are: it takes as many calls as there are positions.
        return
    seen: set[tuple[int, int]] = set()
    for plan in writer.plans:
        if plan.shape == shape:
            seen |= plan.places
    # Rows of a ring take one turn to begin again, and one through all of their positions.
    for turn in range(2 * slots):
        missed = missed_places(slots, shape.rows, seen)
        if not missed:
            return
        spans = [_next(writer, shape, row, missed) for row in range(shape.rows)]
        ids: TokenIds = ("ends", "outside")[turn] if turn < 2 else "random"
        seen |= _call(writer, shape, spans, "positions that no other call has", ids)


def _next(
    writer: CallWriter, shape: ProgramShape, row: int, missed: Sequence[tuple[int, int]]
) -> Span | None:
    """The tokens of one row of the next call; ``None`` where it has been everywhere."""
    own = [position for position, index in missed if index == row]
    slots = positions_of(shape)
    if writer.sizes.rings:
        held = writer.lengths.get(_of_cache(writer, shape, row))
        start = own[0] if held is None and own else held or 0
        start = start if start < slots else 0
    elif not own:
        return None
    else:
        # Rows are at different positions, unless one call takes them through many.
        start = own[row * len(own) // shape.rows if shape.active == 1 else 0]
        start = 0 if shape.whole else start
    return Span(start, min(shape.active, slots - start))


def _of_cache(writer: CallWriter, shape: ProgramShape, row: int) -> int:
    """The row of the cache that is row ``row`` of the calls of a sweep."""
    if shape.in_place:
        return row
    return (shape.rows - 1 - row) % writer.sizes.rows


def _call(
    writer: CallWriter,
    shape: ProgramShape,
    spans: Sequence[Span | None],
    situation: str,
    ids: TokenIds = "random",
) -> set[tuple[int, int]]:
    """Append a call; the places of its tokens."""
    rows: list[tuple[int, Span] | None] = [None] * shape.rows
    for row, span in zip(count(), spans):
        if span is not None:
            span = Span(0, span.count) if shape.whole else span
            rows[row] = (_of_cache(writer, shape, row), span)
    # A program that no other call runs has one in its own types as well.
    plan = CallPlan(situation, shape, tuple(rows), ids, exact=bool(writer.used[shape]))
    writer.append(plan)
    return plan.places

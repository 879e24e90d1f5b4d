"""The short script: every program once, and the situations that most rewrites show in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from graphgen.ir import Op, TensorType
from graphgen.ops import Trait, has_trait
from graphgen.passes.core.journal import Journal, Rewrite
from graphgen.passes.workload.call_plan import CallPlan, CallWriter, Span
from graphgen.passes.workload.program_shapes import ProgramShape, ServingSizes

# The calls that a module is taken through: a few; those of adversarial situations and of all
# positions, which ``auto`` takes as well; for a quick look, a few or those of adversarial
# situations alone, by what the passes touch; or those with large numbers, of a model with long
# caches beside a small one that goes through the others.
Script = Literal["short", "adversarial", "auto", "quick", "long"]

# Ops on parts of arrays, which may be states, whatever their element type; and control flow.
_PARTS = (Trait.ALIGNED, Trait.PARTIAL_READ, Trait.CONTROL)


def choose_script(journal: Journal) -> Literal["short", "adversarial"]:
    """Choose a script that exposes possible faults of a pipeline's rewrites.

    The short one, if no rewrite of a program touches integers or predicates (token ids, positions,
    lengths, row ids, masks, indices), parts of arrays, control flow, or copies a program whole. The
    remaining rewrites compute on floats, elementwise, in reductions and in products, and any call
    shows their faults; programs of weights are run before the first call.
    """
    touched = any(_touches_places(rewrite) for rewrite in journal.applications)
    return "adversarial" if touched or journal.copies else "short"


def _touches_places(rewrite: Rewrite) -> bool:
    if rewrite.function.startswith("weights."):
        return False
    return any(_of_places(op, types) for op, types in rewrite.touched)


def _of_places(op: Op, types: Iterable[TensorType]) -> bool:
    """True for an op on places in arrays, or on values that name places."""
    return (
        op.name == "sort"
        or any(has_trait(op, trait) for trait in _PARTS)
        or any(not type_.dtype.is_float for type_ in types)
    )


# Rows of a ragged call differ by this number of tokens.
_STEP = 3


def short_script(sizes: ServingSizes) -> tuple[CallPlan, ...]:
    """A ragged prompt with both paddings, three decode steps, and every other program once.

    Of the decode steps one leaves a row idle, and the third leaves the first bucket.
    """
    writer = CallWriter(sizes)
    prompts, steps = writer.prompts, writer.steps
    for shape in prompts[:1]:
        ragged_prompt(writer, shape, steps[0].attended if steps else shape.attended)
    if not prompts and steps:
        # The initial caches hold the prompts.
        counts = ragged_counts(sizes.rows, steps[0].attended)
        writer.lengths |= dict(enumerate(counts))
    for number in range(3 if steps else 0):
        _step(writer, steps, idle=number == 1)
    call_the_rest(writer)
    return tuple(writer.plans)


def ragged_prompt(writer: CallWriter, shape: ProgramShape, bucket: int) -> None:
    """New sequences of different lengths, odd rows padded on the left."""
    counts = ragged_counts(shape.rows, min(bucket, shape.attended))
    spans = {
        row: Span(0, min(count, shape.active), left=row % 2 == 1)
        for row, count in enumerate(counts)
    }
    writer.add("prompts of different lengths, odd rows padded on the left", shape, spans)


def ragged_counts(rows: int, bucket: int) -> list[int]:
    """Lengths such that two steps stay in a bucket and the third leaves it, at least 1."""
    return [max(bucket - 2 - _STEP * row, 1) for row in range(rows)]


def _step(writer: CallWriter, steps: Sequence[ProgramShape], *, idle: bool) -> None:
    """One token of every row, or of all but the last, in the smallest bucket with room."""
    longest = max(writer.lengths.values(), default=0)
    roomy = [shape for shape in steps if shape.attended > longest] or [*steps[-1:]]
    size = min(shape.attended for shape in roomy)
    shape = writer.least_used([each for each in roomy if each.attended == size])
    if shape is None:
        return
    rows = range(shape.rows - 1 if idle and shape.rows > 1 else shape.rows)
    spans = {row: span for row in rows if (span := writer.next_span(row, shape)) is not None}
    if spans:
        writer.add("the next token of each row", shape, spans)


def call_the_rest(writer: CallWriter) -> None:
    """One call of each program that no other call reached, at the end of its slots."""
    for shape in writer.sizes.shapes:
        if not writer.used[shape] and shape.steps == 1:
            spans = end_spans(writer, shape)
            writer.add("the last slots, rows of different lengths", shape, spans)
    _several_steps(writer)


def _several_steps(writer: CallWriter) -> None:
    """A launch of each program of several steps.

    A row may end in it, before all of its steps: afterwards it only begins again.
    """
    launched: set[int] = set()
    for shape in writer.launches:
        spans: dict[int, Span] = {}
        rows = range(shape.rows) if shape.in_place else range(writer.sizes.rows)
        for place, row in enumerate(rows[: shape.rows]):
            last = max(shape.attended - shape.steps - place, 0)
            held = writer.lengths.get(row, last)
            start = 0 if row in launched else min(held, last)
            if writer.may_start(row, start):
                spans[row] = Span(start, 1)
        if spans:
            writer.add(f"{shape.steps} steps in one launch", shape, spans)
            launched |= spans.keys()


def end_spans(writer: CallWriter, shape: ProgramShape) -> dict[int, Span]:
    """Tokens up to the last slot of a program, for as many rows as it has, each shorter."""
    spans: dict[int, Span] = {}
    turn = 0 if shape.in_place else len(writer.plans)
    for place in range(shape.rows):
        row = (place + turn) % writer.sizes.rows
        end = max(shape.attended - _STEP * place, 1)
        start = max(end - shape.active, 0) if shape.active < shape.attended else 0
        if not writer.may_start(row, start):
            held = writer.lengths.get(row, 0)
            start = held if held < shape.attended else 0
            end = min(start + shape.active, shape.attended)
        spans[row] = Span(start, end - start, left=place % 2 == 1)
    return spans

"""The adversarial script: the situations of serving in which wrong programs differ.

Each function plans the calls of one kind of situation, as far as the programs and the cache have
room for it. Initial caches are random: what they hold is a prefix, or must not matter.
"""

from __future__ import annotations

from itertools import pairwise

from graphgen.passes.workload.call_plan import CallPlan, CallWriter, Span, TokenIds
from graphgen.passes.workload.position_sweep import sweep
from graphgen.passes.workload.program_shapes import ProgramShape, ServingSizes
from graphgen.passes.workload.short_script import call_the_rest


def adversarial_script(sizes: ServingSizes, *, swept: bool = True) -> tuple[CallPlan, ...]:
    """Calls of every program in the situations that rewrites are most often wrong in.

    Args:
        sizes: of the programs and the cache.
        swept: whether programs are called at all of their positions as well.
    """
    writer = CallWriter(sizes)
    # Positions that no prompt reaches come first, while rows can begin on any prefix.
    last_slot(writer)
    around_the_window(writer)
    prompts_on_a_prefix(writer)
    bucket_edges(writer)
    whole_prompts(writer)
    next_tokens(writer)
    equal_rows(writer)
    several_tokens(writer)
    call_the_rest(writer)
    if swept:
        sweep(writer, sizes.largest)
    return tuple(writer.plans)


def long_script(sizes: ServingSizes) -> tuple[CallPlan, ...]:
    """Calls with large numbers: positions at the ends of integer types, ids outside of all of them.

    For long caches, over which each call takes time; a small model has calls with small numbers.
    The first calls, up to one of each program, are made in all arithmetics.

    Args:
        sizes: of the programs and the cache.
    """
    writer = CallWriter(sizes)
    prompts_on_a_prefix(writer)
    several_tokens(writer)
    sweep(writer, sizes.largest)
    call_the_rest(writer)
    return tuple(writer.plans)


def last_slot(writer: CallWriter) -> None:
    """A decode step into the last slot of the last bucket."""
    buckets = _buckets(writer)
    if buckets:
        what = "the last slot of the last bucket"
        _step(writer, buckets[-1], buckets[-1] - 1, what, "outside")


def around_the_window(writer: CallWriter) -> None:
    """Tokens on both sides of twice the window, where a ring of that size begins a third time."""
    window = writer.sizes.window
    for position in (2 * window - 1, 2 * window) if window else ():
        bucket = next((size for size in _buckets(writer) if size > position), 0)
        if bucket:
            _step(writer, bucket, position, f"position {position} with a window of {window}")


def bucket_edges(writer: CallWriter) -> None:
    """Decode steps into the last slot of each bucket but the last, and into the one after it."""
    for bucket, above in pairwise(_buckets(writer)):
        _step(writer, bucket, bucket - 1, f"the last slot of bucket {bucket}")
        _step(writer, above, bucket, f"the first slot after bucket {bucket}")


def _buckets(writer: CallWriter) -> list[int]:
    return sorted({shape.attended for shape in writer.steps})


def _step(
    writer: CallWriter, bucket: int, position: int, situation: str, ids: TokenIds = "random"
) -> None:
    """A decode step with one row at a position, others at half of it, at 0, and idle."""
    shape = writer.least_used([each for each in writer.steps if each.attended == bucket])
    assert shape is not None
    first = _reach(writer, position)
    if first is None:
        return
    spans = {first: Span(position, 1)}
    others = [row for row in _rows(writer, shape) if row != first]
    for row, start in zip(others[: shape.rows - 1], (position // 2, 0), strict=False):
        held = writer.lengths.get(row)
        if writer.sizes.rings and held is not None and held < bucket:
            spans[row] = Span(held, 1)
        elif not writer.sizes.rings:
            spans[row] = Span(start, 1)
    writer.add(situation, shape, spans, ids)


def _reach(writer: CallWriter, position: int) -> int | None:
    """A row that can go on at a position, after a prompt where it takes one."""
    rows = range(writer.sizes.rows)
    able = [row for row in rows if writer.may_start(row, position)]
    # A row that was used goes on, so that others can still begin on a prefix.
    able.sort(key=lambda row: (writer.lengths.get(row) != position, row not in writer.lengths))
    if able:
        # Without rings every row is able: take them in turn.
        return able[len(writer.plans) % len(able)] if not writer.sizes.rings else able[0]
    prompts = [each for each in writer.prompts if each.active >= position]
    prompt = writer.least_used(prompts)
    if prompt is None:
        return None
    row = _rows(writer, prompt)[0]
    writer.add(f"a prompt of {position} tokens", prompt, {row: Span(0, position)})
    return row


def prompts_on_a_prefix(writer: CallWriter) -> None:
    """A prompt whose first tokens the cache holds, up to the last slot, beside an idle row.

    In the largest program, and in each that attends to more slots than it takes tokens.
    """
    chosen = [shape for shape in writer.prompts if shape.attended > shape.active]
    for shape in chosen or writer.prompts[-1:]:
        count = min(shape.active, max(shape.attended // 2, 1))
        start = shape.attended - count
        first = _reach(writer, start)
        if first is None:
            continue
        spans = {first: Span(start, count)}
        for row in [row for row in _rows(writer, shape) if row != first][: shape.rows - 2]:
            held = writer.lengths.get(row, 1) if writer.sizes.rings else 1
            room = min(shape.active, shape.attended - held, 2)
            if room > 0:
                spans[row] = Span(held, room, left=True)
                break
        idle = ", beside an idle row" if len(spans) < shape.rows else ""
        writer.add(f"a prompt that goes on after a prefix{idle}", shape, spans, "outside")


def whole_prompts(writer: CallWriter) -> None:
    """New sequences in rows that were used: as long as the bucket, one longer than a smaller one.

    Beside them stands a prompt of one token padded on the left.
    """
    widths = sorted({shape.active for shape in writer.prompts})
    for number, width in enumerate(widths):
        shape = writer.least_used([shape for shape in writer.prompts if shape.active == width])
        assert shape is not None
        spans = [Span(0, min(width, shape.attended)), Span(0, 1, left=True)]
        if number:
            spans.append(Span(0, widths[number - 1] + 1))
        elif width > 3:  # half of three is one token, which there is
            spans.append(Span(0, width // 2, left=True))
        again = "in rows used again, " if writer.lengths else ""
        what = f"new sequences {again}one as long as its bucket"
        rows = _rows(writer, shape)
        for first in range(0, len(spans), len(rows)):
            part = spans[first : first + len(rows)]
            ids: TokenIds = "random" if first else "ends"
            one = "" if part[0].count == width else ", one shorter"
            writer.add(what + one, shape, dict(zip(rows, part, strict=False)), ids)


def next_tokens(writer: CallWriter) -> None:
    """All rows go on from very different lengths; then one alone, with ids outside of the range."""
    for situation, alone in (
        ("all rows go on from very different lengths", False),
        ("one row alone, token ids outside of the vocabulary", True),
    ):
        longest = max(writer.lengths.values(), default=0)
        shape = writer.least_used(writer.steps, longest + 1) or writer.least_used(writer.steps[-1:])
        if shape is None:
            return
        rows = _rows(writer, shape)
        spans = {row: span for row in rows if (span := writer.next_span(row, shape)) is not None}
        if alone:
            spans = dict([*spans.items()][-1:])
        if not spans:
            return
        writer.add(situation, shape, spans, "outside" if alone else "ends")


def equal_rows(writer: CallWriter) -> None:
    """Two sequences of the same tokens at the same positions."""
    shapes = [shape for shape in (*writer.prompts, *writer.steps) if shape.rows > 1]
    shape = writer.least_used([shape for shape in shapes if shape.active > 1] or shapes)
    if shape is not None:
        count = max(shape.active // 2, 1)
        rows = _rows(writer, shape)[:2]
        spans = {row: Span(0, count) for row in rows}
        writer.add("two sequences of the same tokens", shape, spans, equal=True)


def several_tokens(writer: CallWriter) -> None:
    """Decode steps of several tokens: all of them, then all but one taken back and given again."""
    for shape in writer.verifying:
        rows = _rows(writer, shape)
        spans: dict[int, Span] = {}
        for row in rows:
            room = shape.attended - 2 * shape.active
            start = next((at for at in (room, 0) if at >= 0 and writer.may_start(row, at)), None)
            held = writer.lengths.get(row, shape.attended)
            if held + 2 * shape.active <= shape.attended:
                start = held
            if start is not None:
                spans[row] = Span(start, shape.active)
        if not spans:
            continue
        writer.add("several tokens a row", shape, spans)
        if all(span.end + 1 <= shape.attended for span in spans.values()):
            back = {row: Span(span.start + 1, shape.active) for row, span in spans.items()}
            writer.add("all but one token taken back, and others given", shape, back)


def _rows(writer: CallWriter, shape: ProgramShape) -> list[int]:
    """Rows of the cache for a call: all of them in turn, unless the program has them in place."""
    count = writer.sizes.rows
    if shape.in_place:
        return [*range(count)]
    turn = len(writer.plans)
    return [(turn + place) % count for place in range(min(shape.rows, count))]

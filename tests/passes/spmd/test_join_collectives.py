"""Small collectives become one where none waits for another, and what reads them waits instead."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.passes.spmd.merge_collectives import MergeCollectives
from graphgen.text import parse
from tests.passes.sharding.test_merge_collectives import (
    ALL,
    HEAD,
    body,
    equal_on_all_ranks,
    merged,
    names,
)

SMALL = f"""
    arg %x : f32[4]
    arg %z : f32[2,3]
    %a = all_reduce(%x) kind=add {ALL} : f32[4]
    %b = all_gather(%z) dimension=1 {ALL} : f32[2,12]
    %c = negate(%x) : f32[4]
    %d = all_reduce(%c) kind=add {ALL} : f32[4]
    %e = all_gather(%c) dimension=0 {ALL} : f32[16]
    %g = exponential(%a) : f32[4]
    %h = all_reduce(%g) kind=add {ALL} : f32[4]
    return a = %a
    return b = %b
    return d = %d
    return e = %e
    return h = %h
"""


def test_small_ones_are_one_where_none_waits_for_another():
    made, journal = merged(SMALL, MergeCollectives())
    # What the third sum adds up comes from the first.
    assert names(made).count("all_reduce") == 2
    assert names(made).count("all_gather") == 1
    assert [item.gain for item in journal.of_pass("merge-collectives")] == [
        "0 bytes less a rank, 1 collective less"
    ] * 2
    equal_on_all_ranks(parse(body(SMALL)), parse(HEAD + "  " + made + "\n}\n"), 1)
    # Each of the sums is 16 bytes, the gathered 96 and 64.
    for small, gathers, sums in ((31, 2, 3), (32, 2, 2), (160, 1, 2)):
        made, _ = merged(SMALL, MergeCollectives(small=small))
        assert names(made).count("all_gather") == gathers
        assert names(made).count("all_reduce") == sums


READ_BETWEEN = f"""
    arg %x : f32[4]
    arg %y : f32[4]
    arg %cache : f32[4]
    arg %at : s32[]
    %a = all_reduce(%x) kind=add {ALL} : f32[4]
    %c = multiply(%a, %cache) : f32[4]
    %one = constant() value=f32[1](1.0) : f32[1]
    %new = dynamic_update_slice(%cache, %one, %at) : f32[4]
    %d = exponential(%y) : f32[4]
    %b = all_reduce(%d) kind=add {ALL} : f32[4]
    %e = add(%b, %c) : f32[4]
    return e = %e
    return new = %new
"""


def test_sums_are_one_though_the_first_is_read_before_the_second():
    made, _ = merged(READ_BETWEEN, MergeCollectives())
    # What reads the first sum waits, and so does what overwrites a value that it reads.
    ops = names(made)
    assert ops.index("exponential") < ops.index("all_reduce") < ops.index("multiply")
    assert ops.index("multiply") < ops.index("dynamic_update_slice")
    assert ops.count("all_reduce") == 1
    equal_on_all_ranks(parse(body(READ_BETWEEN)), parse(HEAD + "  " + made + "\n}\n"), 1)


@pytest.mark.parametrize(
    "between",
    [
        f"%o = all_reduce(%y) kind=maximum {ALL} : f32[4]",
        '%p = hlo.opaque() opcode="partition-id" results=[u32[]] : u32[]',
    ],
)
def test_what_waits_passes_no_other_collective_and_nothing_with_effects(between: str):
    lines = READ_BETWEEN.replace("%d = exp", f"{between}\n%d = exp")
    if "%o" in between:
        lines = lines.replace("return e", "return o = %o\nreturn e")
    made, _ = merged(lines, MergeCollectives())
    assert names(made).count("all_reduce") == 2 + ("%o" in between)


def test_a_negative_size_is_refused():
    with pytest.raises(GraphgenError, match="small=-1 is below 0"):
        merged(SMALL, MergeCollectives(small=-1))

"""How often loops turn, and what they are counted as."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.analysis.liveness import peak_memory
from graphgen.analysis.loops import ops_run, trip_count
from graphgen.analysis.overview import overview
from graphgen.analysis.work import total_of
from graphgen.ir import Module
from graphgen.lowering.cost.roofline import roofline
from graphgen.targets import accelerator
from graphgen.text import parse

TEXT = (Path(__file__).parents[2] / "data" / "control.gg").read_text()
# The same, where it begins with a constant.
FIXED = TEXT.replace("  %n, %y = while(%i", "  %c = constant() value=s32[](2) : s32[]\n"
                     "  %n, %y = while(%c")  # fmt: skip


def turns(text: str) -> int | None:
    module = parse(text)
    (op,) = [op for op in module.function("f").block if op.name == "while"]
    return trip_count(module, op)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (TEXT, None),
        (TEXT.replace("body=step", "body=step trip_count=7"), 7),
        (FIXED, 3),
        (FIXED.replace("value=s32[](2)", "value=s32[](5)"), 0),
        (FIXED.replace("value=s32[](1)", "value=s32[](2)"), 2),
        # A loop that does not end, and one that turns by what it computes.
        (FIXED.replace("direction=LT", "direction=GT").replace("](2)", "](9)"), None),
        (FIXED.replace("%j = add(%i, %c)", "%j = custom_call(%i) target=\"f\" results=[s32[]]"),
         None),
    ],
)  # fmt: skip
def test_turns(text: str, count: int | None):
    assert turns(text) == count


def test_counters_are_run_so_far():
    module = parse(FIXED)
    loop = list(module.function("f").block)[1]
    assert (trip_count(module, loop, 3), trip_count(module, loop, 2)) == (3, None)


def test_a_loop_counts_its_turns_and_a_choice_its_largest_branch():
    module = parse(FIXED)
    counts: dict[str, int] = {}
    for op, times in ops_run(module, module.function("f").block):
        counts[op.name] = counts.get(op.name, 0) + times
    # Four conditions, three bodies, the branch that reads more.
    assert counts == {"constant": 1 + 4 + 3, "compare": 4, "add": 6, "multiply": 1}
    assert total_of(ops_run(module, module.function("f").block)).flops == 4 + 3 + 3 * 4 + 4
    seen = overview(module, module.function("f"))
    assert seen.work.flops == sum(seen.flops.values()) == 23
    assert [(body.op, body.name, body.trip_count) for body in seen.bodies] == [
        ("while condition", "below", 3),
        ("while body", "step", 3),
        ("conditional branch 0", "less", None),
        ("conditional branch 1", "more", None),
    ]


def test_the_roofline_of_a_loop_is_that_of_its_turns():
    def cost(text: str) -> int:
        module: Module = parse(text)
        return roofline(module, module.function("f"), accelerator("trn2")).total.flops

    longer = FIXED.replace("value=s32[](5)", "value=s32[](105)")
    assert cost(FIXED) == 23
    assert cost(longer) - cost(FIXED) == 100 * (1 + 1 + 4)


def test_what_lives_in_a_body_comes_on_top():
    module = parse(FIXED)
    assert peak_memory(module, module.function("step")).bytes == 4 + 16
    # While the choice is made: what the loop left, the result, and what the branch makes.
    assert peak_memory(module, module.function("f")).bytes == (4 + 16) + 16 + 16

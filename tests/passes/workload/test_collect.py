"""Coverage of runs: programs, sizes of symbols, branches, turns of loops, ranges, predicates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphgen.exec.session import ProgramCall, Runner, Workload
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.passes.workload.coverage import Coverage, ElementRange
from graphgen.passes.workload.coverage_collect import collect, uncovered_changes
from graphgen.passes.workload.coverage_input import input_coverage
from graphgen.passes.workload.coverage_recorder import CoverageRecorder
from graphgen.text import parse

CONTROL = (Path(__file__).parents[2] / "data" / "control.gg").read_text()
X = np.array([1, 2, 3, 4], np.float32)


def coverage_of(module: Module, workload: Workload) -> Coverage:
    recorder = CoverageRecorder()
    Runner(module, workload, observer=recorder).outcomes()
    return collect(module, workload, recorder, input_coverage(module, workload))


def run_loop(*starts: int) -> Coverage:
    """Coverage of ``control.gg`` called once from each start of its loop, which ends at 5."""
    calls = [ProgramCall("main", {}, {"i": np.array(start, np.int32), "x": X}) for start in starts]
    return coverage_of(parse(CONTROL), Workload({}, tuple(calls)))


def run_lines(x: np.ndarray, *lines: str) -> Coverage:
    """Coverage of a program of one input f32[n]."""
    kind = f"f32[{len(x)}]"
    body = "\n".join(f"  {line}" for line in (f"arg %x : {kind}", *lines, "return y = %y"))
    head = f"module @m level=logical {{\n  input %x : {kind}\n  output %y : {kind}\n}}\n"
    module = parse(f"{head}\nfunc @f phase=main {{\n{body}\n}}\n")
    calls = (ProgramCall("main", {}, {"x": x.astype(np.float32)}),)
    return coverage_of(module, Workload({}, calls))


def holes(coverage: Coverage) -> list[str]:
    return [hole.text for hole in coverage.holes() if hole.blocking]


@pytest.mark.parametrize(
    ("starts", "turns", "taken", "missing"),
    [
        ((0, 7), (0, 5), (0, 1), []),
        ((4,), (1, 1), (1,), ["branch 0 (@less) of the conditional in @f"]),
        (
            (9,),
            (0, 0),
            (1,),
            [
                "body @step of the loop in @f, which makes 0 turns",
                "branch 0 (@less) of the conditional in @f",
            ],
        ),
    ],
    ids=["all", "branch-never-taken", "no-turns"],
)
def test_branches_and_turns(
    starts: tuple[int, ...], turns: tuple[int, int], taken: tuple[int, ...], missing: list[str]
):
    coverage = run_loop(*starts)
    loop, choice = coverage.controls
    assert (loop.op, loop.runs, loop.executed) == ("while", ("below", "step"), len(starts))
    assert (loop.trip_counts, loop.taken) == (turns, ())
    assert (choice.op, choice.trip_counts, choice.taken) == ("conditional", None, taken)
    assert holes(coverage) == missing
    assert coverage.complete == (not missing)


def test_functions_are_reached_through_calls_loops_and_branches():
    assert run_loop(4).functions == {"below": True, "step": True, "less": False, "more": True}
    text = CONTROL.replace("func @f phase=main", "func @g").replace(
        "return z = %z\n", "return z = %z\n", 1
    )
    call = (
        "func @f phase=main {\n  arg %i : s32[]\n  arg %x : f32[4]\n"
        "  %n, %y, %z = call(%i, %x) to_apply=g results=[s32[],f32[4],f32[4]]"
        " : s32[], f32[4], f32[4]\n  return n = %n\n  return y = %y\n  return z = %z\n}\n"
    )
    module = parse(text + "\n" + call)
    given = ProgramCall("main", {}, {"i": np.array(9, np.int32), "x": X})
    coverage = coverage_of(module, Workload({}, (given,)))
    assert coverage.functions == {
        "below": True,
        "step": False,
        "less": False,
        "more": True,
        "g": True,
    }
    # The loop and the choice are in the program, which the call is copied into.
    assert [each.function for each in coverage.controls] == ["f", "f"]


TWO_PROGRAMS = """\
module @m level=logical {
  input %x : f32[B]
  output %y : f32[B]
}

func @prefill phase=prefill {
  arg %x : f32[B]
  %y = negate(%x) : f32[B]
  return y = %y
}

func @decode phase=decode dims={B=3} {
  arg %x : f32[3]
  %y = negate(%x) : f32[3]
  return y = %y
}
"""


def call_of(rows: int, phase: str = "prefill") -> ProgramCall:
    return ProgramCall(phase, {"B": rows}, {"x": np.arange(rows, dtype=np.float32)})


def test_sizes_of_symbols_and_programs_that_were_not_run():
    module = parse(TWO_PROGRAMS)
    coverage = coverage_of(module, Workload({}, (call_of(2), call_of(5), call_of(2))))
    prefill, decode = coverage.programs
    assert (prefill.calls, prefill.sizes, prefill.dims) == (3, {"B": (2, 5)}, {})
    assert (decode.calls, decode.sizes, decode.dims) == (0, {}, {"B": 3})
    assert holes(coverage) == ["@decode (decode, B=3)"]
    assert coverage.not_run() == ["decode"]


def test_a_function_that_nothing_refers_to_does_not_count():
    unused = "func @left {\n  arg %x : f32[3]\n  %y = abs(%x) : f32[3]\n  return y = %y\n}\n"
    module, before = parse(f"{TWO_PROGRAMS}\n{unused}"), parse(TWO_PROGRAMS)
    coverage = coverage_of(module, Workload({}, (call_of(2), call_of(3, "decode"))))
    assert (coverage.functions, coverage.unused, coverage.complete) == ({}, ("left",), True)
    assert [hole.text for hole in coverage.holes()] == ["@left, which nothing refers to"]
    assert uncovered_changes(before, module, coverage) == ()


def test_changes_of_what_was_not_run():
    module = parse(TWO_PROGRAMS)
    coverage = coverage_of(module, Workload({}, (call_of(2),)))
    changed = parse(TWO_PROGRAMS.replace("negate(%x) : f32[3]", "abs(%x) : f32[3]"))
    assert uncovered_changes(module, changed, coverage) == ("decode",)
    assert uncovered_changes(module, clone_module(module), coverage) == ()
    other = parse(TWO_PROGRAMS.replace("negate(%x) : f32[B]", "abs(%x) : f32[B]"))
    assert uncovered_changes(module, other, coverage) == ()


def test_ranges_of_results_by_kind_of_op():
    coverage = run_lines(
        np.array([-2.0, 0.0, 4.0, 1e5]),
        "%a = sqrt(%x) : f32[4]",
        "%b = divide(%x, %x) : f32[4]",
        "%h = convert(%x) dtype=f16 : f16[4]",
        "%z = subtract(%x, %x) : f32[4]",
        "%e = exponential(%x) : f32[4]",
        "%y = add(%a, %z) : f32[4]",
    )
    found = {each.op: each for each in coverage.ranges}
    assert found["sqrt"] == ElementRange("f", "sqrt", 1, 0.0, 1e5**0.5, True, False, 0, 0)
    assert (found["divide"].low, found["divide"].high, found["divide"].nan) == (1, 1, True)
    # 1e5 has no f16, although in float64 it stays what it is.
    assert (found["convert"].high, found["convert"].beyond) == (1e5, 1)
    assert (found["subtract"].zero, found["add"].zero) == (1, 0)
    assert found["exponential"].infinite
    assert found["exponential"].high == np.exp(4.0)


def test_a_predicate_that_is_the_same_for_every_element_is_a_hole_that_does_not_block():
    coverage = run_lines(
        np.array([1.0, 2.0, 3.0, 4.0]),
        "%n = negate(%x) : f32[4]",
        "%p = compare(%x, %n) direction=GT : pred[4]  # model.py:7 block",
        "%q = compare(%x, %n) direction=EQ : pred[4]",
        "%c = select(%p, %x, %n) : f32[4]  # model.py:8 block",
        "%i = convert(%x) dtype=s8 : s8[4]",
        "%f = convert(%i) dtype=f32 : f32[4]",
        "%y = clamp(%n, %c, %f) : f32[4]",
    )
    assert coverage.complete
    assert [(hole.kind, hole.text, hole.where) for hole in coverage.holes()] == [
        ("predicate", "compare in @f is true for every element", "model.py:7 block"),
        ("predicate", "compare in @f is false for every element", ""),
        ("predicate", "select in @f is true for every element", "model.py:8 block"),
        ("predicate", "convert in @f is inside for every element", ""),
        ("predicate", "clamp in @f is inside for every element", ""),
    ]


def test_saturation():
    coverage = run_lines(
        np.array([-300.0, 1.0, 2.0, 200.0]),
        "%i = convert(%x) dtype=s8 : s8[4]",
        "%y = convert(%i) dtype=f32 : f32[4]",
    )
    (one,) = coverage.predicates
    assert one.outcomes == {"below": True, "inside": True, "above": True}
    assert not one.constant

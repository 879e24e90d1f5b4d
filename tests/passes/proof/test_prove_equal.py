"""Proofs of equality: pairs of programs in text, and every planted bug."""

from __future__ import annotations

import pytest

from graphgen.ir import Function, symbol
from graphgen.ir.clone import clone_module
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.prove_equal import Assumptions, prove_equal, prove_values
from graphgen.passes.validate.blame import apply_pass
from graphgen.text import parse
from tests.oracles.planted_bugs import BUGS, NO_BUGS, Bug, Planted, model
from tests.oracles.planted_bugs_on_ranks import RANK_BUGS
from tests.oracles.planted_bugs_quantized import QUANTIZED_BUGS

PLANTED = (*BUGS, *QUANTIZED_BUGS, *RANK_BUGS)


def program(arg: str, ops: str, output: str) -> Function:
    """A program of one argument ``%x``; ``;`` separates its ops."""
    lines = "\n  ".join(line.strip() for line in ops.split(";"))
    text = f"""module @m level=logical {{
  input %x : {arg}
  output %y : {output}
}}

func @f phase=main {{
  arg %x : {arg}
  {lines}
  return y = %y
}}
"""
    return parse(text).function("f")


def number(value: int) -> str:
    """The ops of ``%c``, s32[B] of one number."""
    return (
        f"%k = constant() value=s32[]({value}) : s32[];"
        "%c = broadcast_in_dim(%k) shape=[B] dimensions=[] : s32[B]"
    )


def counted(kind: str, size: int) -> str:
    """The ops of ``%a``, twice the place of each element."""
    return (
        f"%i = iota() dtype={kind} shape=[{size}] dimension=0 : {kind}[{size}];"
        f"%a = add(%i, %i) : {kind}[{size}]"
    )


# Argument, result, two programs, and the result of the proof.
EQUAL = {
    "a slice of merged dimensions": (
        *("f32[B,6,4]", "f32[B,8]"),
        "%a = reshape(%x) shape=[B,24] : f32[B,24];"
        "%y = slice(%a) start_indices=[0,4] limit_indices=[B,12] : f32[B,8]",
        "%a = slice(%x) start_indices=[0,1,0] limit_indices=[B,3,4] : f32[B,2,4];"
        "%y = reshape(%a) shape=[B,8] : f32[B,8]",
    ),
    "two transposes": (
        *("f32[B,S,4]", "f32[B,S,4]"),
        "%a = transpose(%x) permutation=[2,0,1] : f32[4,B,S];"
        "%y = transpose(%a) permutation=[1,2,0] : f32[B,S,4]",
        "%y = reshape(%x) shape=[B,S,4] : f32[B,S,4]",
    ),
    "symbolic dimensions merged and split again": (
        *("f32[B,S,4]", "f32[B,S,2,2]"),
        "%a = reshape(%x) shape=[B*S,4] : f32[B*S,4];"
        "%y = reshape(%a) shape=[B,S,2,2] : f32[B,S,2,2]",
        "%y = reshape(%x) shape=[B,S,2,2] : f32[B,S,2,2]",
    ),
    "slices joined again": (
        *("f32[B,6]", "f32[B,6]"),
        "%a = slice(%x) start_indices=[0,0] limit_indices=[B,2] : f32[B,2];"
        "%b = slice(%x) start_indices=[0,2] limit_indices=[B,6] : f32[B,4];"
        "%y = concatenate(%a, %b) dimension=1 : f32[B,6]",
        "%y = reshape(%x) shape=[B,6] : f32[B,6]",
    ),
    "the remainder from the quotient": (
        *("s32[B]", "s32[B]"),
        f"{number(4)}; %q = divide(%x, %c) : s32[B]; %p = multiply(%q, %c) : s32[B];"
        "%y = subtract(%x, %p) : s32[B]",
        f"{number(4)}; %y = remainder(%x, %c) : s32[B]",
    ),
    "sums that wrap around": (
        *("s32[B]", "s32[B]"),
        f"{number(7)}; %a = add(%x, %c) : s32[B]; %y = subtract(%a, %c) : s32[B]",
        "%y = reshape(%x) shape=[B] : s32[B]",
    ),
    "whole numbers that a narrower float holds": (
        *("s32[B]", "s32[100]"),
        f"{counted('f32', 100)}; %b = convert(%a) dtype=bf16 : bf16[100];"
        "%y = convert(%b) dtype=s32 : s32[100]",
        counted("s32", 100).replace("%a", "%y"),
    ),
    "the order of conditions": (
        *("s32[B]", "pred[B]"),
        f"{number(3)}; %a = compare(%x, %c) direction=LT : pred[B];"
        "%b = compare(%x, %c) direction=GT : pred[B]; %y = or(%a, %b) : pred[B]",
        f"{number(3)}; %y = compare(%x, %c) direction=NE : pred[B]",
    ),
}
DIFFERENT = {
    "another slice": (
        *("f32[B,6]", "f32[B,2]"),
        "%y = slice(%x) start_indices=[0,2] limit_indices=[B,4] : f32[B,2]",
        "%y = slice(%x) start_indices=[0,3] limit_indices=[B,5] : f32[B,2]",
    ),
    "a mask instead of the remainder of negative numbers": (
        *("s32[B]", "s32[B]"),
        f"{number(3)}; %y = and(%x, %c) : s32[B]",
        f"{number(4)}; %y = remainder(%x, %c) : s32[B]",
    ),
    "less instead of at most": (
        *("s32[B]", "pred[B]"),
        f"{number(3)}; %y = compare(%x, %c) direction=LT : pred[B]",
        f"{number(3)}; %y = compare(%x, %c) direction=LE : pred[B]",
    ),
    "a number that wraps around in 8 bits": (
        *("s32[B]", "s32[B]"),
        "%a = convert(%x) dtype=u8 : u8[B]; %y = convert(%a) dtype=s32 : s32[B]",
        "%y = reshape(%x) shape=[B] : s32[B]",
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_programs_are_proved(name: str):
    arg, output, left, right = EQUAL[name]
    assert str(prove_equal(program(arg, left, output), program(arg, right, output))) == "proved"


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_programs_are_refuted_with_sizes(name: str):
    arg, output, left, right = DIFFERENT[name]
    found = prove_equal(program(arg, left, output), program(arg, right, output))
    assert (found.status, found.output) == (Status.REFUTED, "y")
    assert found.counterexample["B"] >= 1


def test_facts_about_arguments_decide():
    arg, output, left, right = DIFFERENT["a mask instead of the remainder of negative numbers"]
    pair = program(arg, left, output), program(arg, right, output)
    assert prove_equal(*pair, Assumptions(ranges={"x": (0, symbol("M") + -1)})).status == "proved"


def test_without_the_solver_a_question_for_it_is_undecided():
    arg, output, left, right = DIFFERENT["less instead of at most"]
    pair = program(arg, left, output), program(arg, right, output)
    found = prove_equal(*pair, Assumptions(steps=0))
    assert (found.status, found.why) == (Status.UNDECIDED, "needs z3: pip install z3-solver")


@pytest.mark.parametrize("bug", PLANTED, ids=[bug.name for bug in PLANTED])
@pytest.mark.one_in(10)
def test_no_planted_bug_is_proved_and_without_it_the_pass_is(bug: Bug):
    before = model(bug.after, bug.element, bug.windowed)
    for harmless in (True, False):
        after = clone_module(before)
        apply_pass(after, Planted(bug, harmless=harmless))
        found = prove_equal(before.function(bug.program), after.function(bug.program))
        assert (found.status is Status.PROVED) == harmless
        assert harmless or (found.status is Status.REAL) == (bug.name in MEANING_KEPT), found


# Bugs of rounding that are proved in real arithmetic: conversions to bf16 are all that differs.
MEANING_KEPT = ("narrowed", "narrow-product", "scale-rounded")


@pytest.mark.parametrize("bug", NO_BUGS, ids=[bug.name for bug in NO_BUGS])
def test_another_program_of_the_same_meaning_is_never_refuted(bug: Bug):
    after = clone_module(model(bug.after, bug.element))
    apply_pass(after, Planted(bug))
    before = model(bug.after, bug.element).function(bug.program)
    assert prove_equal(before, after.function(bug.program)).status is not Status.REFUTED


def test_values_of_one_function_are_compared_in_pairs():
    both = program(
        "s32[B]",
        f"{number(4)}; %a = add(%x, %c) : s32[B]; %b = add(%c, %x) : s32[B];"
        "%y = subtract(%a, %b) : s32[B]",
        "s32[B]",
    )
    made = {result.name: result for op in both.block for result in op.results}
    assert prove_values(both, [(made["a"], made["b"])]) is Status.PROVED
    assert prove_values(both, [(made["a"], made["y"])]) is Status.UNDECIDED

"""Softmaxes whose parts have their own maxima, as those of a ring, and joins that are wrong."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import Array
from graphgen.passes.proof.equal_terms import equal_terms
from graphgen.passes.proof.exponentials import (
    equal_on_each_rank,
    in_equal_parts,
    shifts_of,
    without_shifts,
)
from graphgen.passes.proof.refinement import prove_refinement
from graphgen.passes.proof.refinement_result import RefinementProof
from graphgen.passes.proof.terms import Node, Term, Terms
from graphgen.text import parse
from tests.passes.proof.rule_cases import Case
from tests.passes.proof.rule_checks import TermValues, elements, program

SOFTMAX = """\
%m = reduce(%x) dimensions=[0] kind={kind} : f32[]
%s = broadcast_in_dim(%{shift}) shape=[6] : f32[6]
%d = subtract(%{score}, %s) : f32[6]
%e = exponential(%d) : f32[6]
%w = multiply(%e, %z) : f32[6]
%n = reduce(%w) dimensions=[0] kind=add : f32[]
%t = reduce(%e) dimensions=[0] kind=add : f32[]
%y = divide(%n, %t) : f32[]"""
MASKED = """\
%c = constant() value=f32[]({low}) : f32[]
%l = broadcast_in_dim(%c) shape=[6] : f32[6]
%x = select(%p, %q, %l) : f32[6]
"""


def softmax(kind: str = "maximum", shift: str = "m", score: str = "x") -> Case:
    """The mean of z with the weights of a softmax of x."""
    text = SOFTMAX.format(kind=kind, shift=shift, score=score)
    return Case("x:f32[6] z:f32[6] o:f32[]", text)


def masked(low: str) -> Case:
    args = "p:pred[6] q:f32[6] z:f32[6]"
    return Case(args, MASKED.format(low=low) + softmax().lines)


def element(case: Case) -> tuple[Terms, Term]:
    """The element that a program gives, in real arithmetic."""
    module, _ = program(case)
    function, terms = module.function("f"), Terms()
    e = elements(terms, function, 1, {}).in_real_arithmetic()
    return terms, e.at(function.outputs[0][1], ())


INSIDE = {"a softmax": softmax(), "one with a mask": masked("-100.0")}
# Where something else is subtracted, numbers may overflow, or all vanish.
OUTSIDE = {
    "the smallest": softmax(kind="minimum"),
    "the sum": softmax(kind="add"),
    "any number": softmax(shift="o"),
    "the largest of others": softmax(score="z"),
    "infinite scores": masked("-inf"),
}


def given(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    found = {name: rng.standard_normal(6) for name in "xzq"}
    # Some number is in the softmax.
    kept = np.array([1, *rng.integers(0, 2, 5)], np.bool_)
    return {**found, "o": np.array(rng.standard_normal()), "p": kept}


def values(terms: Terms, term: Term) -> list[float]:
    return [float(TermValues(terms, given(seed)).of(term, {})) for seed in range(10)]


@pytest.mark.parametrize("what", [*INSIDE, *OUTSIDE])
def test_a_term_without_shifts_has_the_same_value(what: str) -> None:
    terms, term = element((INSIDE | OUTSIDE)[what])
    made = without_shifts(terms, term)
    assert values(terms, made) == pytest.approx(values(terms, term))
    assert bool(shifts_of(terms, term)) == (what in INSIDE)
    # Nothing is left of the maximum where it cancels.
    assert ("maximum" in str(made)) == ("maximum" in str(term) and what in OUTSIDE)


@pytest.mark.parametrize("parts", [1, 2, 3, 6])
def test_the_sums_of_parts_have_the_same_value(parts: int) -> None:
    terms, term = element(softmax())
    made = in_equal_parts(terms, term, 6, parts)
    assert values(terms, made) == pytest.approx(values(terms, term))
    sums = [node for node in str(made).split("sum(add") if node]
    assert len(sums) >= parts or parts == 6


def test_sums_over_other_sizes_stay() -> None:
    terms, term = element(softmax())
    assert in_equal_parts(terms, term, 4, 2) is term


def test_the_maximum_of_two_is_taken_apart_where_both_are_taken() -> None:
    """The other one may be so large that nothing is left of one alone."""
    terms = Terms()
    _, whole = element(softmax())
    assert isinstance(whole, Node)
    to = whole.args[1]
    a, b = (terms.node("at", name, None) for name in "ab")
    largest = terms.node("fn", "maximum", None, "any order", a, b)

    def power(x: Node) -> Node:
        difference = terms.node("fn", "subtract", to, None, x, largest)
        return terms.node("fn", "exponential", to, None, difference)

    both = terms.node("fn", "add", to, None, power(a), power(b))
    assert shifts_of(terms, both) == {(a, largest), (b, largest)}
    assert not shifts_of(terms, power(a))
    assert not equal_on_each_rank(terms, a, power(a), 17, equal_terms)


MODEL = """\
module @m level=target {
  input %x : f32[8]
  input %z : f32[8]
  output %y : f32[]
}

func @f phase=decode {
  arg %x : f32[8]
  arg %z : f32[8]
  %m = reduce(%x) dimensions=[0] kind=maximum : f32[]
  %s = broadcast_in_dim(%m) shape=[8] : f32[8]
  %d = subtract(%x, %s) : f32[8]
  %e = exponential(%d) : f32[8]
  %w = multiply(%e, %z) : f32[8]
  %n = reduce(%w) dimensions=[0] kind=add : f32[]
  %t = reduce(%e) dimensions=[0] kind=add : f32[]
  %y = divide(%n, %t) : f32[]
  return y = %y
}
"""
PART = """\
  %m{0} = reduce(%x{0}) dimensions=[0] kind=maximum : f32[]
  %s{0} = broadcast_in_dim(%m{0}) shape=[4] : f32[4]
  %d{0} = subtract(%x{0}, %s{0}) : f32[4]
  %e{0} = exponential(%d{0}) : f32[4]
  %w{0} = multiply(%e{0}, %z{0}) : f32[4]
  %n{0} = reduce(%w{0}) dimensions=[0] kind=add : f32[]
  %t{0} = reduce(%e{0}) dimensions=[0] kind=add : f32[]
"""
RING = (
    """\
module @m level=target mesh=tp:2 {
  input %x : f32[8]
  input %z : f32[8]
  output %y : f32[]
}

func @f phase=decode {
  arg %rank : s32[1]
  arg %x : f32[8]
  arg %z : f32[8]
  %r = reshape(%rank) shape=[] : s32[]
  %four = constant() value=s32[](4) : s32[]
  %at = multiply(%r, %four) : s32[]
  %x1 = dynamic_slice(%x, %at) slice_sizes=[4] : f32[4]
  %z1 = dynamic_slice(%z, %at) slice_sizes=[4] : f32[4]
  %x2 = collective_permute(%x1) source_target_pairs=[[0,1],[1,0]] : f32[4]
  %z2 = collective_permute(%z1) source_target_pairs=[[0,1],[1,0]] : f32[4]
"""
    + PART.format(1)
    + PART.format(2)
    + """\
  %m = maximum(%m1, %m2) : f32[]
  %f1 = subtract(%m1, %m) : f32[]
  %f2 = subtract(%m2, %m) : f32[]
  %g1 = exponential(%f1) : f32[]
  %g2 = exponential(%f2) : f32[]
  %a1 = multiply(%n1, %g1) : f32[]
  %a2 = multiply(%n2, %g2) : f32[]
  %b1 = multiply(%t1, %g1) : f32[]
  %b2 = multiply(%t2, %g2) : f32[]
  %a = add(%a1, %a2) : f32[]
  %b = add(%b1, %b2) : f32[]
  %y = divide(%a, %b) : f32[]
  return y = %y
}
"""
)
# What of the program is changed, and to what. Of some only the range of numbers is another one.
WRONG: dict[str, tuple[tuple[str, str], ...]] = {
    "a part that is left out": (("%a = add(%a1, %a2)", "%a = add(%a1, %a1)"),),
    "its part of the sum of weights left out": (("%b = add(%b1, %b2)", "%b = add(%b1, %b1)"),),
    "the maximum of the other part carried": (
        ("%f1 = subtract(%m1, %m)", "%f1 = subtract(%m2, %m)"),
    ),
    "the new maximum less the old one": (("%f1 = subtract(%m1, %m)", "%f1 = subtract(%m, %m1)"),),
    "one sum alone is multiplied": (("%a1 = multiply(%n1, %g1)", "%a1 = multiply(%n1, %n1)"),),
    "factors exchanged": (
        ("%a1 = multiply(%n1, %g1)", "%a1 = multiply(%n1, %g2)"),
        ("%a2 = multiply(%n2, %g2)", "%a2 = multiply(%n2, %g1)"),
    ),
    "weights that are not multiplied": (("%b2 = multiply(%t2, %g2)", "%b2 = multiply(%t2, %t2)"),),
    "its own part twice": (("[[0,1],[1,0]]", "[[0,0],[1,1]]"),),
    "values of its own part": (("%z2 = collective_permute(%z1)", "%z2 = slice(%z1)"),),
    "an offset of another size": (("value=s32[](4)", "value=s32[](3)"),),
    "the smallest of a part": (("dimensions=[0] kind=maximum", "dimensions=[0] kind=minimum"),),
    "the smaller maximum": (("%m = maximum(%m1, %m2)", "%m = minimum(%m1, %m2)"),),
    "the maximum of one part": (("%m = maximum(%m1, %m2)", "%m = maximum(%m1, %m1)"),),
    "nothing subtracted": (("%e1 = exponential(%d1)", "%e1 = exponential(%x1)"),),
}


def proof_of(text: str) -> RefinementProof:
    return prove_refinement(parse(MODEL, "case"), parse(text, "case"))


def test_a_softmax_of_a_ring_is_proved() -> None:
    found = proof_of(RING)
    assert found.complete
    assert "exponentials on each rank" in found.rules


@pytest.mark.parametrize("what", WRONG)
def test_a_softmax_that_is_joined_wrongly_is_not_proved(what: str) -> None:
    text = RING
    for old, new in WRONG[what]:
        assert old in text
        text = text.replace(old, new)
    text = text.replace(
        "slice(%z1) source_target_pairs=[[0,1],[1,0]]",
        "slice(%z1) start_indices=[0] limit_indices=[4]",
    )
    assert not proof_of(text).complete

"""The first place of the largest element over parts, as ranks choose a token together."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from graphgen.ir.dims import Poly
from graphgen.passes.proof.elements import RULES
from graphgen.passes.proof.first_places import first_of_parts
from graphgen.passes.proof.integers import at_most_zero, choose, is_zero
from graphgen.passes.proof.refinement import prove_refinement
from graphgen.passes.proof.sums import summed, without_padding
from graphgen.passes.proof.terms import Node, Term, Terms
from graphgen.text import parse
from tests.passes.proof.rule_cases import Case
from tests.passes.proof.rule_checks import TermValues, check, compared, elements, program

# The largest of each part of x with its place in the whole, and the first of the largest of these.
CHOICE = """\
%low = reduce(%x) dimensions=[1] kind=maximum : f32[{parts}]
%i = iota() shape=[{parts},{size}] dimension=1 dtype=s32 : s32[{parts},{size}]
%sv, %si = sort(%x, %i) dimension=1 descending=true : f32[{parts},{size}], s32[{parts},{size}]
%first = slice(%si) start_indices=[0,{shown}] limit_indices=[{parts},{end}] : s32[{parts},1]
%flat = reshape(%first) shape=[{parts}] : s32[{parts}]
%p = iota() shape=[{parts}] dimension=0 dtype=s32 : s32[{parts}]
%c = constant() value=s32[]({step}) : s32[]
%w = broadcast_in_dim(%c) shape=[{parts}] : s32[{parts}]
%o = multiply(%p, %w) : s32[{parts}]
%g = add(%flat, %o) : s32[{parts}]
%lv, %gv = sort(%low, %g) dimension=0 descending={down} : f32[{parts}], s32[{parts}]
%y = slice(%gv) start_indices=[{place}] limit_indices=[{stop}] : s32[1]"""


def choice(
    parts: int = 3,
    size: int = 4,
    *,
    step: int = 0,
    shown: int = 0,
    place: int = 0,
    down: str = "true",
) -> Case:
    """Choose among ``parts`` times ``size`` elements; numbers are few, so that many are equal."""
    text = CHOICE.format(
        parts=parts,
        size=size,
        step=step or size,
        shown=shown,
        end=shown + 1,
        place=place,
        stop=place + 1,
        down=down,
    )
    return Case(f"x:f32[{parts},{size}]", text)


# Within the conditions, on their boundary (one part, one element), and outside.
CASES = [
    *[choice(3, 4), choice(2, 3), choice(5, 2), choice(2, 1), choice(1, 4)],
    *[choice(step=1), choice(step=5), choice(shown=1), choice(place=1), choice(down="false")],
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_first_of_parts_is_what_numpy_computes(case: Case) -> None:
    assert not check(RULES["slice"], case)


def places(case: Case) -> tuple[Terms, Term]:
    """The element that a program chooses, in real arithmetic."""
    module, _ = program(case)
    function = module.function("f")
    terms = Terms()
    e = elements(terms, function, 1, {}).in_real_arithmetic()
    return terms, e.at(function.outputs[0][1], (0,))


def test_the_rule_is_used_at_the_first_place_alone() -> None:
    terms, _ = places(choice())
    assert "the first of parts in order" in terms.rules
    for case in (choice(place=1), choice(down="false"), choice(shown=1)):
        terms, _ = places(case)
        assert "the first of parts in order" not in terms.rules


def keyed(terms: Terms, kind: str, *, name: str = "x") -> Node:
    """The largest element of part r."""
    r, j = terms.variable("r", 3), terms.variable("j", 4)
    body = terms.node("at", name, None, r, j)
    found = summed(terms, kind, None, [("j", 4)], body)
    assert isinstance(found, Node)
    return found


def test_another_order_inside_a_part_is_none() -> None:
    """The inner place has to be the first of the same elements as the key, all of them."""
    terms = Terms()
    r, k = terms.variable("r", 3), terms.variable("k", 4)
    own = terms.node("at", "x", None, r, k)
    other = terms.node("at", "z", None, r, k)
    short = terms.variable("k3", 3)
    few = terms.node("at", "x", None, r, short)

    def moved(*order: object) -> Term:
        return terms.atom(terms.node("sort", *order), 0, 3) + r * 4

    over = (r, 3)
    key = keyed(terms, "maximum")
    assert first_of_parts(terms, over, key, moved(True, k, 4, own, k, 0)) is not None
    for wrong in (
        moved(True, k, 4, other, k, 0),
        moved(False, k, 4, own, k, 0),
        moved(True, k, 4, own, k, 1),
        moved(True, k, 4, own, k * 2, 0),
        moved(True, short, 3, few, short, 0),
        r * 4,
    ):
        assert first_of_parts(terms, over, key, wrong) is None
    least = keyed(terms, "minimum")
    assert first_of_parts(terms, over, least, moved(True, k, 4, own, k, 0)) is None


def test_a_wrong_place_is_refused() -> None:
    """The comparison with NumPy tells the parts taken in another order from those in theirs."""
    module, ranges = program(choice())
    terms, found = places(choice())
    assert not compared(terms, found, module, choice(), ranges)
    assert isinstance(found, Poly)
    assert compared(terms, found * -1 + 11, module, choice(), ranges)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_elements_without_padding_are_in_the_same_order(count: int) -> None:
    """Padding at the end is left out at each place before it, and at no other."""
    for place in range(5):
        terms = Terms()
        v = terms.variable("v", 5)
        kept = at_most_zero(terms, v + (1 - count))
        key = choose(terms, kept, terms.node("at", "x", None, v), terms.node("const", repr(-inf)))
        found = without_padding(terms, (v, 5), key, v, place)
        assert (found[1] == count) == (place < count)
        before = terms.node("sort", True, v, 5, key, v, place)
        after = terms.node("sort", True, found[0], found[1], found[2], found[3], place)
        for seed in range(20):
            rng = np.random.default_rng(seed)
            # Few numbers, so that some are equal, and some as low as padding.
            values = TermValues(terms, {"x": rng.choice([-inf, -1.0, 2.0], 5)})
            if count > 1:
                assert values.of(before, {}) == values.of(after, {})
            elif place < count:
                # One element alone is at place 0.
                assert (found[0], found[3], values.of(before, {})) == (0, 0, 0)


def test_other_numbers_than_padding_at_the_end_stay() -> None:
    terms = Terms()
    v = terms.variable("v", 5)
    x, low = terms.node("at", "x", None, v), terms.node("const", repr(-inf))
    least = terms.node("const", repr(-3.4028234663852886e38))
    first, even = at_most_zero(terms, v + -2), is_zero(terms, v + -2)
    last = at_most_zero(terms, v * -1 + 3)
    for key in (
        choose(terms, first, x, least),
        choose(terms, even, x, low),
        choose(terms, last, x, low),
        choose(terms, first, low, x),
    ):
        assert without_padding(terms, (v, 5), key, v, 0) == (v, 5, key, v)


MODEL = """\
module @m level=target {
  input %x : f32[8]
  output %y : s32[1]
}

func @f phase=decode {
  arg %x : f32[8]
  %i = iota() shape=[8] dimension=0 dtype=s32 : s32[8]
  %v, %s = sort(%x, %i) dimension=0 descending=true : f32[8], s32[8]
  %y = slice(%s) start_indices=[0] limit_indices=[1] : s32[1]
  return y = %y
}
"""
RANKS = """\
module @m level=target mesh=tp:2 {
  input %x : f32[8]
  output %y : s32[1]
}

func @f phase=decode {
  arg %rank : s32[1]
  arg %x : f32[8]
  %r = reshape(%rank) shape=[] : s32[]
  %four = constant() value=s32[](4) : s32[]
  %at = multiply(%r, %four) : s32[]
  %part = dynamic_slice(%x, %at) slice_sizes=[4] : f32[4]
  %i = iota() shape=[4] dimension=0 dtype=s32 : s32[4]
  %v, %s = sort(%part, %i) dimension=0 descending=true : f32[4], s32[4]
  %best = slice(%v) start_indices=[0] limit_indices=[1] : f32[1]
  %own = slice(%s) start_indices=[0] limit_indices=[1] : s32[1]
  %start = broadcast_in_dim(%at) shape=[1] : s32[1]
  %place = add(%own, %start) : s32[1]
  %all = all_gather(%best) dimension=0 replica_groups=[[0,1]] : f32[2]
  %places = all_gather(%place) dimension=0 replica_groups=[[0,1]] : s32[2]
  %w, %t = sort(%all, %places) dimension=0 descending=true : f32[2], s32[2]
  %y = slice(%t) start_indices=[0] limit_indices=[1] : s32[1]
  return y = %y
}
"""


def proved(text: str) -> bool:
    return prove_refinement(parse(MODEL, "case"), parse(text, "case")).complete


def test_a_token_that_ranks_choose_together_is_proved() -> None:
    assert proved(RANKS)


TURNED = "%{0}r = reverse(%{0}) dimensions=[0] : {1}[2]\n  "
# What is changed, by what, in the program of each rank.
WRONG: dict[str, tuple[tuple[str, str], ...]] = {
    "the place without its part": (("%place = add(%own, %start)", "%place = add(%own, %own)"),),
    "an offset of another size": (("value=s32[](4)", "value=s32[](3)"),),
    "an offset after the slice": (
        ("%start = broadcast_in_dim(%at)", "%start = broadcast_in_dim(%four)"),
    ),
    "of equal ones the last rank": (
        (
            "%w, %t = sort(%all, %places)",
            TURNED.format("all", "f32")
            + TURNED.format("places", "s32")
            + "%w, %t = sort(%allr, %placesr)",
        ),
    ),
    "of equal ones the last in a part": (
        (
            "%v, %s = sort(%part, %i)",
            "%pr = reverse(%part) dimensions=[0] : f32[4]\n"
            "  %ir = reverse(%i) dimensions=[0] : s32[4]\n  %v, %s = sort(%pr, %ir)",
        ),
    ),
    "the smallest part": (
        (
            "sort(%all, %places) dimension=0 descending=true",
            "sort(%all, %places) dimension=0 descending=false",
        ),
    ),
    "places of the other rank": (
        (
            "%w, %t = sort(%all, %places)",
            TURNED.format("places", "s32") + "%w, %t = sort(%all, %placesr)",
        ),
    ),
    "the second": (
        (
            "%y = slice(%t) start_indices=[0] limit_indices=[1]",
            "%y = slice(%t) start_indices=[1] limit_indices=[2]",
        ),
    ),
    "a part that is not looked at": (
        (
            "%best = slice(%v) start_indices=[0] limit_indices=[1]",
            "%best = slice(%part) start_indices=[0] limit_indices=[1]",
        ),
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_token_that_is_chosen_wrongly_is_not_proved(what: str) -> None:
    text = RANKS
    for old, new in WRONG[what]:
        assert old in text
        text = text.replace(old, new)
    assert not proved(text)


# ---- the order of ordered parts ------------------------------------------------------------------

ORDER = """\
%i = iota() shape=[{parts},{size}] dimension=1 dtype=s32 : s32[{parts},{size}]
%sv, %si = sort(%x, %i) dimension=1 descending={inner} : f32[{parts},{size}], s32[{parts},{size}]
%p = iota() shape=[{parts},{size}] dimension={across} dtype=s32 : s32[{parts},{size}]
%c = constant() value=s32[]({step}) : s32[]
%w = broadcast_in_dim(%c) shape=[{parts},{size}] : s32[{parts},{size}]
%o = multiply(%p, %w) : s32[{parts},{size}]
%g = add(%si, %o) : s32[{parts},{size}]
%fv = reshape(%{key}) shape=[{all}] : f32[{all}]
%fg = reshape(%g) shape=[{all}] : s32[{all}]
%lv, %y = sort(%fv, %fg) dimension=0 descending={outer} : f32[{all}], s32[{all}]"""


def ordered(
    parts: int = 2,
    size: int = 3,
    *,
    step: int = 0,
    across: int = 0,
    key: str = "sv",
    inner: str = "true",
    outer: str = "true",
) -> Case:
    """Order ``parts`` times ``size`` elements, those of each part first."""
    sizes = {"parts": parts, "size": size, "all": parts * size, "step": step or size}
    text = ORDER.format(**sizes, across=across, key=key, inner=inner, outer=outer)
    return Case(f"x:f32[{parts},{size}]", text)


# Within the conditions, on their boundary, and outside.
INSIDE = [ordered(2, 3), ordered(3, 2), ordered(2, 2), ordered(2, 4, step=1)]
INSIDE += [ordered(inner="false", outer="false")]
OUTSIDE = [ordered(1, 4), ordered(4, 1), ordered(inner="false"), ordered(outer="false")]
# What is moved, or the key, depends on the place in the order of a part.
OUTSIDE += [ordered(across=1, step=7), ordered(key="x")]


@pytest.mark.parametrize("case", [*INSIDE, *OUTSIDE], ids=str)
def test_the_order_of_ordered_parts_is_what_numpy_computes(case: Case) -> None:
    assert not check(RULES["sort"], case)


def test_the_rule_of_ordered_parts_is_used_within_its_conditions() -> None:
    for cases, used in ((INSIDE, True), (OUTSIDE, False)):
        for case in cases:
            module, _ = program(case)
            function, terms = module.function("f"), Terms()
            e = elements(terms, function, 1, {}).in_real_arithmetic()
            e.at(function.outputs[0][1], (terms.variable("i", function.outputs[0][1].shape[0]),))
            assert ("the order of parts in order" in terms.rules) == used, case


BEST = """\
module @m level=target {
  input %x : f32[8]
  output %y : s32[3]
}

func @f phase=decode {
  arg %x : f32[8]
  %i = iota() shape=[8] dimension=0 dtype=s32 : s32[8]
  %v, %s = sort(%x, %i) dimension=0 descending=true : f32[8], s32[8]
  %y = slice(%s) start_indices=[0] limit_indices=[3] : s32[3]
  return y = %y
}
"""
BEST_OF_RANKS = """\
module @m level=target mesh=tp:2 {
  input %x : f32[8]
  output %y : s32[3]
}

func @f phase=decode {
  arg %rank : s32[1]
  arg %x : f32[8]
  %r = reshape(%rank) shape=[] : s32[]
  %four = constant() value=s32[](4) : s32[]
  %at = multiply(%r, %four) : s32[]
  %part = dynamic_slice(%x, %at) slice_sizes=[4] : f32[4]
  %i = iota() shape=[4] dimension=0 dtype=s32 : s32[4]
  %v, %s = sort(%part, %i) dimension=0 descending=true : f32[4], s32[4]
  %start = broadcast_in_dim(%at) shape=[4] : s32[4]
  %place = add(%s, %start) : s32[4]
  %all = all_gather(%v) dimension=0 replica_groups=[[0,1]] : f32[8]
  %places = all_gather(%place) dimension=0 replica_groups=[[0,1]] : s32[8]
  %w, %t = sort(%all, %places) dimension=0 descending=true : f32[8], s32[8]
  %y = slice(%t) start_indices=[0] limit_indices=[3] : s32[3]
  return y = %y
}
"""
MANY_TURNED = "%{0}r = reverse(%{0}) dimensions=[0] : {1}[8]\n  "
WRONG_ORDERS: dict[str, tuple[str, str]] = {
    "places without their part": ("%place = add(%s, %start)", "%place = add(%s, %i)"),
    "places in the part as it was": ("%place = add(%s, %start)", "%place = add(%i, %start)"),
    "keys that are not in order": ("all_gather(%v)", "all_gather(%part)"),
    "an offset of another size": ("value=s32[](4)", "value=s32[](2)"),
    "of equal ones the last rank": (
        "%w, %t = sort(%all, %places)",
        MANY_TURNED.format("all", "f32")
        + MANY_TURNED.format("places", "s32")
        + "%w, %t = sort(%allr, %placesr)",
    ),
    "parts in ascending order": (
        "%v, %s = sort(%part, %i) dimension=0 descending=true",
        "%v, %s = sort(%part, %i) dimension=0 descending=false",
    ),
    "the lowest": (
        "sort(%all, %places) dimension=0 descending=true",
        "sort(%all, %places) dimension=0 descending=false",
    ),
    "all but the best": (
        "slice(%t) start_indices=[0] limit_indices=[3]",
        "slice(%t) start_indices=[1] limit_indices=[4]",
    ),
}


def best_proved(text: str) -> bool:
    return prove_refinement(parse(BEST, "case"), parse(text, "case")).complete


def test_the_best_of_all_ranks_are_proved() -> None:
    assert best_proved(BEST_OF_RANKS)


@pytest.mark.parametrize("what", WRONG_ORDERS)
def test_the_best_in_another_order_are_not_proved(what: str) -> None:
    old, new = WRONG_ORDERS[what]
    assert old in BEST_OF_RANKS
    assert not best_proved(BEST_OF_RANKS.replace(old, new))

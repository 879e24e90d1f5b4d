"""Terms that are equal by other means than their normal form: by parts, and multiplied out."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose

import pytest

from graphgen.ir import Dim
from graphgen.ir.attrs import EMPTY
from graphgen.ir.dims import Poly, symbol
from graphgen.passes.proof.equal_terms import equal_terms
from graphgen.passes.proof.integers import at_most_zero, choose, div, is_zero
from graphgen.passes.proof.products import Expansion, TooManyProductsError
from graphgen.passes.proof.rebuild import flat_function
from graphgen.passes.proof.refinement import kept_where
from graphgen.passes.proof.split_sums import in_parts, parted
from graphgen.passes.proof.sums import summed, variable_name, zero_of
from graphgen.passes.proof.terms import Node, Term, Terms, TooManySteps, size_name
from tests.passes.proof.normal_form_checks import SIZES, TO, Drawn

DRAWS = 150


def element(terms: Terms, name: str, *index: Dim) -> Node:
    return terms.node("at", name, None, *index)


def product(terms: Terms, *factors: Term) -> Term:
    return flat_function(terms, "multiply", TO, EMPTY, factors)


def total(terms: Terms, body: Term, *variables: tuple[Dim, int]) -> Term:
    ranges: list[tuple[str, Dim]] = [
        (variable_name(v), size) for v, size in variables if isinstance(v, Poly)
    ]
    return summed(terms, "add", TO, ranges, body)


def runs(terms: Terms, head: Dim, *pieces: tuple[int, Dim]) -> Dim:
    """A table: up to each place an integer, then -1."""
    out: Term = -1
    for end, value in reversed(pieces):
        out = choose(terms, at_most_zero(terms, head + -end), value, out)
    assert isinstance(out, int | Poly)
    return out


def heads_of_ranks(terms: Terms, *pieces: tuple[int, int]) -> Term:
    """Eight heads of width 4, each the head of the model that a table says, or padding."""
    v = terms.variable("v", 32)
    head = div(terms, v, 4)
    table = runs(terms, head, *[(end, head + shift) for end, shift in pieces])
    place = table * 4 + v + head * -4
    kept = at_most_zero(terms, table * -1)
    weight = choose(terms, kept, element(terms, "w", place), zero_of(terms))
    group = div(terms, table, 3)
    return total(terms, product(terms, element(terms, "x", group, place), weight), (v, 32))


@pytest.mark.parametrize(
    ("pieces", "same"),
    [
        (((2, 0), (3, -8), (6, -1)), True),
        (((2, 0), (3, -8), (5, -1)), False),
        (((2, 0), (3, -1), (6, -1)), False),
        (((2, 0), (3, -8), (6, -2)), False),
    ],
    ids=["padded", "one is missing", "one is there twice", "shifted"],
)
def test_padded_heads_are_the_heads_of_the_model(
    pieces: Sequence[tuple[int, int]], same: bool
) -> None:
    terms = Terms()
    j = terms.variable("j", 24)
    x = element(terms, "x", div(terms, j, 12), j)
    whole = total(terms, product(terms, x, element(terms, "w", j)), (j, 24))
    made = heads_of_ranks(terms, *pieces)
    assert made is not whole
    assert equal_terms(terms, whole, made) == same
    assert equal_terms(terms, made, whole) == same


def matrices(terms: Terms, *, first: bool, turned: bool = False) -> Term:
    """A product of three matrices, one of the two products first."""
    i, j = terms.variable("i", 3), terms.variable("j", 5)
    a = element(terms, "a", i)
    b = element(terms, "b", *((j, i) if turned else (i, j)))
    c = element(terms, "c", j)
    if first:
        inner = total(terms, product(terms, a, b), (i, 3))
        return total(terms, product(terms, inner, c), (j, 5))
    inner = total(terms, product(terms, b, c), (j, 5))
    return total(terms, product(terms, a, inner), (i, 3))


@pytest.mark.parametrize("turned", [False, True])
def test_a_product_of_three_matrices_is_taken_in_any_order(turned: bool) -> None:
    terms = Terms()
    made = [matrices(terms, first=True), matrices(terms, first=False, turned=turned)]
    assert made[0] is not made[1]
    assert equal_terms(terms, made[0], made[1]) != turned


@pytest.mark.parametrize(("end", "same"), [(4, True), (3, False), (5, False)])
def test_a_contraction_over_joined_parts_is_the_sum_of_both(end: int, same: bool) -> None:
    terms = Terms()
    v, j, k = terms.variable("v", 7), terms.variable("j", 4), terms.variable("k", 3)
    first = at_most_zero(terms, v + (1 - end))
    pairs = [
        choose(terms, first, element(terms, f"{x}1", v), element(terms, f"{x}2", v + -4))
        for x in "ab"
    ]
    made = total(terms, product(terms, *pairs), (v, 7))
    ones = product(terms, element(terms, "a1", j), element(terms, "b1", j))
    twos = product(terms, element(terms, "a2", k), element(terms, "b2", k))
    parts = [total(terms, ones, (j, 4)), total(terms, twos, (k, 3))]
    both = flat_function(terms, "add", TO, EMPTY, parts)
    assert equal_terms(terms, made, both) == same


@pytest.mark.parametrize("factor", ["inf", "nan", "2.0"])
def test_what_is_infinite_is_not_multiplied_out(factor: str) -> None:
    """The sum of x - x is zero, and infinite times zero is not."""
    terms = Terms()
    parts = [element(terms, "x"), element(terms, "y")]
    many = terms.node("const", factor)
    made = product(terms, many, flat_function(terms, "add", TO, EMPTY, parts))
    other = flat_function(terms, "add", TO, EMPTY, [product(terms, many, x) for x in parts])
    assert equal_terms(terms, made, other) == (factor == "2.0")


def test_a_comparison_takes_no_more_steps_than_it_is_given() -> None:
    terms = Terms()
    made = [matrices(terms, first=True), matrices(terms, first=False)]
    terms.limit = terms.steps + 5
    with pytest.raises(TooManySteps):
        equal_terms(terms, made[0], made[1])


def test_only_what_no_choice_keeps_is_padding() -> None:
    """Padding within a part of several is not known to be left out of the others."""
    terms = Terms()
    i = terms.variable("i", 8)
    low, lower = at_most_zero(terms, i + -3), at_most_zero(terms, i + -2)
    kept = choose(terms, lower, element(terms, "x", i), element(terms, "padding of s", i))
    assert kept_where(terms, kept) is lower
    assert kept_where(terms, choose(terms, low, kept, element(terms, "y", i))) is True


# ---- terms drawn at random -----------------------------------------------------------------------


def test_terms_that_are_found_equal_have_one_value() -> None:
    """Of terms that are equal, or not, by the change of one of their factors."""
    equal = 0
    for number in range(DRAWS):
        d = Drawn(number)
        inner, outer = d.random.sample([*SIZES], 2)
        ranges = [(inner, SIZES[inner])], [(outer, SIZES[outer])]
        a, b, c = d.real(1), d.real(1), d.real(1)
        changed = d.random.choice((c, c, d.real(1)))
        left = summed(d.terms, "add", TO, [*ranges[0]], product(d.terms, a, b))
        left = summed(d.terms, "add", TO, [*ranges[1]], product(d.terms, left, c))
        right = product(d.terms, a, b, changed)
        right = summed(d.terms, "add", TO, [*ranges[1]], right)
        right = summed(d.terms, "add", TO, [*ranges[0]], right)
        if equal_terms(d.terms, left, right):
            equal += 1
            wrong = d.differ(left, lambda at, d=d, right=right: d.of(right, at), left, right)
            assert not wrong, wrong
    assert equal > DRAWS // 10


def test_the_parts_of_a_sum_are_the_sum() -> None:
    parts = 0
    for number in range(DRAWS):
        d = Drawn(number)
        name = d.random.choice([*SIZES])
        first = at_most_zero(d.terms, symbol(name) + -d.random.randrange(SIZES[name]))
        body = choose(d.terms, first, d.real(1), d.real(1))
        made = summed(d.terms, "add", TO, [(name, SIZES[name])], body)
        if not isinstance(made, Node) or made.kind != "sum" or not parted(d.terms, made):
            continue
        parts += 1
        step = min(step for _, step in parted(d.terms, made))
        found = in_parts(d.terms, made, step)
        wrong = d.differ(
            made, lambda at, d=d, found=found: sum(d.of(x, at) for x in found), made, *found
        )
        assert not wrong, wrong
    assert parts > DRAWS // 10


def test_a_sum_of_products_is_what_is_multiplied_out() -> None:
    several = 0
    for number in range(DRAWS):
        d = Drawn(number)
        term = d.real(3)
        try:
            found = Expansion(d.terms, TO, "d0").products(term)
        except TooManyProductsError:
            continue
        several += len(found) > 1
        again = [
            summed(d.terms, "add", TO, list(x.ranges), product(d.terms, *x.factors)) for x in found
        ]
        for at in d.places(term, *again):
            assert isclose(d.of(term, at), sum(d.of(x, at) for x in again), abs_tol=1e-9), term
    assert several > DRAWS // 10


def test_names_of_sizes_are_those_of_equal_sizes_alone():
    """A variable has one range, which its name has to tell, also when a size is made anew."""
    names = {size_name(size) for size in (3, symbol("B"), symbol("B") + 1, symbol("S") * 2)}
    assert len(names) == 4
    assert size_name(symbol("B") + 1) == size_name(symbol("B") * 1 + 1)
    assert size_name(symbol("B")) == "pdf7e70e50215"


def in_groups(terms: Terms, by: int) -> Term:
    """The sum of 24 products, of which each ``by`` have a scale."""
    k = terms.variable("k", 24)
    parts = [element(terms, name, k) for name in "xw"]
    return total(terms, product(terms, *parts, element(terms, "s", div(terms, k, by))), (k, 24))


@pytest.mark.parametrize("scaled", [False, True], ids=["scale of each", "scale of a sum"])
@pytest.mark.parametrize(
    ("by", "group", "same"),
    [(8, "r", True), (8, "2 - r", False), (4, "r", False), (8, "0", False)],
    ids=["groups", "another group", "smaller groups", "one group"],
)
def test_sums_of_ranks_with_a_scale_a_group_are_one_sum(
    by: int, group: str, same: bool, scaled: bool
) -> None:
    terms = Terms()
    r, j = terms.variable("r", 3), terms.variable("j", 8)
    scale = element(terms, "s", {"r": r, "2 - r": r * -1 + 2, "0": 0}[group])
    parts = [element(terms, name, r * 8 + j) for name in "xw"]
    if scaled:
        inner = total(terms, product(terms, *parts), (j, 8))
        made = total(terms, product(terms, scale, inner), (r, 3))
    else:
        made = total(terms, product(terms, *parts, scale), (r, 3), (j, 8))
    whole = in_groups(terms, by)
    assert (whole is made or equal_terms(terms, whole, made)) == same


@pytest.mark.parametrize(("width", "step", "same"), [(2, 4, True), (4, 2, False), (2, 2, False)])
def test_variables_that_occur_in_quotients_alone_are_one(width: int, step: int, same: bool) -> None:
    """``(8 * r + j) div width`` is ``r * (8 / width) + j div width``."""
    terms = Terms()
    k, r, j = terms.variable("k", 24), terms.variable("r", 3), terms.variable("j", 8)
    whole = total(terms, element(terms, "x", div(terms, k, 2)), (k, 24))
    place = div(terms, j, width) + r * step
    made = total(terms, element(terms, "x", place), (r, 3), (j, 8))
    assert (made is whole) == same


@pytest.mark.parametrize(("by", "same"), [(3, True), (2, False)])
def test_a_sum_of_which_a_condition_leaves_a_block_is_that_block(by: int, same: bool) -> None:
    """Adapters: of all rows of all adapters those of one count."""
    terms = Terms()
    v, n, j = terms.variable("v", 6), terms.variable("n", 2), terms.variable("j", 3)
    here = is_zero(terms, n + div(terms, v, by) * -1)
    made = total(terms, choose(terms, here, element(terms, "a", v), zero_of(terms)), (v, 6))
    block = total(terms, element(terms, "a", n * 3 + j), (j, 3))
    assert (made is block) == same
    # A number beyond all blocks leaves nothing.
    none = is_zero(terms, div(terms, v, by) + -7)
    assert total(terms, choose(terms, none, element(terms, "a", v), zero_of(terms)), (v, 6)) is (
        zero_of(terms)
    )


def test_sums_of_blocks_and_of_joined_variables_have_the_value_of_the_sum() -> None:
    for number in range(DRAWS):
        d = Drawn(number)
        name, size = d.random.choice((("b", 4), ("d", 4)))
        by, other = d.random.choice((1, 2, 3, 4)), d.integer(0)
        here = is_zero(d.terms, div(d.terms, symbol(name), by) + other * d.random.choice((-1, 1)))
        body = choose(d.terms, here, d.real(1), zero_of(d.terms))
        made = total(d.terms, body, (symbol(name), size))

        def wanted(at: dict[str, int], d: Drawn = d, body: Term = body, name: str = name) -> float:
            return sum(float(d.of(body, {**at, name: n})) for n in range(4))

        wrong = d.differ(made, wanted, body)
        assert not wrong, wrong

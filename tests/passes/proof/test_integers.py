"""Integer terms of proofs: ranges, wrapping, quotients and truth values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.ir import Dim
from graphgen.ir.dims import Poly, bind, symbol, symbols
from graphgen.ir.dtype import dtype
from graphgen.passes.proof.integers import (
    at_most_zero,
    both,
    choose,
    div,
    div_by_size,
    either,
    fit,
    is_zero,
    larger,
    mod,
    negated,
    range_of,
    smaller,
)
from graphgen.passes.proof.terms import Node, Terms

KINDS = {"s8": np.int8, "s16": np.int16, "s32": np.int32, "u8": np.uint8, "u16": np.uint16}


@pytest.mark.parametrize("kind", KINDS)
def test_ranges_and_wrapping_are_those_of_numpy(kind: str):
    limits = np.iinfo(KINDS[kind])
    assert range_of(dtype(kind)) == (limits.min, limits.max)
    numbers = [limits.min - 1, limits.min, -1, 0, limits.max, limits.max + 1, 3 * limits.max]
    fitting = [fit(Terms(), number, dtype(kind)) for number in numbers]
    assert fitting == np.array(numbers).astype(KINDS[kind]).tolist()


def test_a_variable_that_fits_stays_and_one_that_may_not_becomes_an_atom():
    terms = Terms()
    small, large = terms.variable("i", 128), terms.variable("j", 129)
    assert fit(terms, small, dtype("s8")) == small
    assert fit(terms, large, dtype("s8")) != large
    assert fit(terms, large, dtype("u8")) == large


@pytest.mark.parametrize("by", [1, 2, 3, 5])
@pytest.mark.parametrize("value", range(-7, 8))
def test_quotients_and_rests_round_down(value: int, by: int):
    assert (div(Terms(), value, by), mod(Terms(), value, by)) == (value // by, value % by)
    assert div_by_size(Terms(), value, by) == value // by


@pytest.mark.parametrize("extreme", [smaller, larger])
def test_a_limit_of_a_limit_is_one_limit_and_that_of_a_multiple_is_not(
    extreme: Callable[[Terms, Dim, Dim], Dim],
):
    terms = Terms()
    count = terms.variable("i", 100)
    inner, outer = (50, 20) if extreme is smaller else (20, 50)
    limited = extreme(terms, count, inner)
    assert extreme(terms, limited, outer) == extreme(terms, count, outer)
    assert extreme(terms, limited * 2, outer) != extreme(terms, count, outer)


def value_of(terms: Terms, term: Dim, known: dict[str, Dim]) -> int:
    """A term of index variables and quotients as a number."""
    for name in symbols([term]):
        if name not in known:
            kind, rest, by = (terms.atoms[name].kind, *terms.atoms[name].args)
            assert kind == "div"
            assert isinstance(rest, int | Poly)
            assert isinstance(by, int)
            known[name] = value_of(terms, rest, known) // by
    found = bind(term, known)
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("by", [1, 2, 3, 4])
@pytest.mark.parametrize("factor", [-4, -3, -1, 1, 2, 3, 5])
def test_quotients_of_variables_have_their_values_and_lie_within_their_bounds(factor: int, by: int):
    for start in (-5, 0, 1):
        terms = Terms()
        value = terms.variable("i", 6) * factor + start
        quotient, rest = div(terms, value, by), mod(terms, value, by)
        low, high = terms.lowest(quotient), terms.highest(quotient)
        for i in range(6):
            number = factor * i + start
            assert value_of(terms, quotient, {"i": i}) == number // by
            assert value_of(terms, rest, {"i": i}) == number % by
            assert low is None or (isinstance(low, int) and low <= number // by)
            assert high is None or (isinstance(high, int) and high >= number // by)


def test_bounds_of_a_quotient_are_those_of_its_ends():
    terms = Terms()
    i = terms.variable("i", 6)
    found = div(terms, i, 4)
    assert (terms.lowest(found), terms.highest(found)) == (0, 1)
    assert div(terms, i, 6) == 0
    assert div(terms, i * 4 + 3, 4) == i
    assert div(terms, terms.variable("j", 4) + i * 4, 4) == i
    size = symbol("N")
    assert terms.highest(div(terms, terms.variable("k", size), 2)) == size + -1


@pytest.mark.parametrize("kind", ["s8", "u8"])
def test_variables_wrap_as_numbers_do(kind: str):
    terms = Terms()
    found = fit(terms, terms.variable("i", 600) + -200, dtype(kind))
    numbers = [value_of(terms, found, {"i": i}) for i in range(600)]
    assert numbers == (np.arange(600) - 200).astype(KINDS[kind]).tolist()


def test_quotients_by_sizes_are_found_where_the_rest_is_smaller():
    terms, heads, size = Terms(), symbol("H"), symbol("D")
    i, j = terms.variable("i", heads), terms.variable("j", size)
    assert div_by_size(terms, i * size + j, size) == i
    assert div_by_size(terms, i * size + size + j, size) == i + 1
    assert div_by_size(terms, i * size + i, size) is None
    assert div_by_size(terms, i * size + j + -1, size) is None
    assert div_by_size(terms, i * size, size * 2) is None
    assert div_by_size(terms, i * size * heads, size * heads) == i


def test_comparisons_are_decided_where_the_bounds_say_so():
    terms = Terms()
    i = terms.variable("i", 4)
    assert at_most_zero(terms, i + -3) is True
    assert at_most_zero(terms, i + 1) is False
    undecided = at_most_zero(terms, i + -2)
    assert not isinstance(undecided, bool)
    assert is_zero(terms, i + -4) is False
    assert is_zero(terms, i + 1) is False
    assert is_zero(terms, 0) is True
    assert is_zero(terms, i + -1) is is_zero(terms, i * -1 + 1)
    # not (i - 2 <= 0) is 3 - i <= 0, and twice negated is what it was.
    other = negated(terms, undecided)
    assert other is at_most_zero(terms, i * -1 + 3)
    assert negated(terms, other) is undecided
    equal = is_zero(terms, i + -1)
    assert negated(terms, negated(terms, equal)) is equal


def test_logic_of_known_and_unknown_truth_values():
    terms = Terms()
    i = terms.variable("i", 4)
    a, b = at_most_zero(terms, i + -2), is_zero(terms, i + -1)
    assert both(terms, a, True) is both(terms, True, a) is a
    assert both(terms, a, False) is both(terms, False, a) is False
    assert either(terms, a, False) is either(terms, False, a) is a
    assert either(terms, a, True) is either(terms, True, a) is True
    assert both(terms, a, a) is a
    assert both(terms, a, b) is both(terms, b, a)
    assert both(terms, both(terms, a, b), a) is both(terms, a, b)


# ---- simplified truth values ---------------------------------------------------------------------

# (kind, parts): a comparison of "x" or "y" with a number, or a connective of formulas.
Formula = tuple[str, tuple["Formula | int", ...]]
comparisons = st.tuples(st.sampled_from(["x", "y", "gap"]), st.tuples(st.integers(-2, 2)))
formulas = st.recursive(
    comparisons,
    lambda inner: (
        st.tuples(st.just("not"), st.tuples(inner))
        | st.tuples(st.sampled_from(["and", "or"]), st.tuples(inner, inner))
        | st.tuples(st.just("if"), st.tuples(inner, inner, inner))
    ),
    max_leaves=8,
)


def term_of(terms: Terms, formula: Formula, known: Mapping[str, Dim]) -> bool | Node:
    """A formula as a term, simplified on the way."""
    kind, parts = formula
    if kind in known:
        (limit,) = parts
        assert isinstance(limit, int)
        return at_most_zero(terms, known[kind] + -limit)
    truths = [term_of(terms, part, known) for part in parts if not isinstance(part, int)]
    if kind == "not":
        return negated(terms, truths[0])
    if kind == "if":
        found = choose(terms, *truths)
        assert isinstance(found, bool | Node)
        return found
    return (both if kind == "and" else either)(terms, *truths)


def meaning_of(formula: Formula, known: Mapping[str, int]) -> bool:
    """A formula where its numbers are known."""
    kind, parts = formula
    if kind in known:
        (limit,) = parts
        assert isinstance(limit, int)
        return known[kind] <= limit
    truths = [meaning_of(part, known) for part in parts if not isinstance(part, int)]
    if kind == "not":
        return not truths[0]
    if kind == "if":
        return truths[1] if truths[0] else truths[2]
    return all(truths) if kind == "and" else any(truths)


def truth_of(terms: Terms, term: object, known: Mapping[str, int]) -> bool:
    """A term where its variables are known."""
    if isinstance(term, bool):
        return term
    assert isinstance(term, Node)
    if term.kind == "le0":
        return int_of(terms, term.args[0], known) <= 0
    truths = [truth_of(terms, part, known) for part in term.args]
    if term.kind == "if":
        return truths[1] if truths[0] else truths[2]
    return not truths[0] if term.kind == "not" else all(truths)


def int_of(terms: Terms, term: object, known: Mapping[str, int]) -> int:
    """An integer where its variables are known; its atoms are choices."""
    assert isinstance(term, int | Poly)
    values = dict(known)
    for name in symbols([term]):
        if name not in values:
            which, yes, no = terms.atoms[name].args
            values[name] = int_of(terms, yes if truth_of(terms, which, known) else no, known)
    found = bind(term, dict[str, Dim](values))
    assert isinstance(found, int)
    return found


@given(formulas)
def test_simplified_truth_values_mean_the_same(formula: Formula):
    terms = Terms()
    x, y = (terms.variable(name, 7) + -3 for name in ("x", "y"))
    gap = choose(terms, at_most_zero(terms, x), y, -1)
    assert isinstance(gap, int | Poly)
    term = term_of(terms, formula, {"x": x, "y": y, "gap": gap})
    for i in range(7):
        for j in range(7):
            given_to = {"x": i - 3, "y": j - 3, "gap": j - 3 if i <= 3 else -1}
            assert truth_of(terms, term, {"x": i, "y": j}) == meaning_of(formula, given_to)


def test_a_choice_of_what_is_missing_is_decided_by_the_facts_beside_it():
    terms = Terms()
    i, n = terms.variable("i", 8), terms.variable("n", 9)
    held = at_most_zero(terms, i + n * -1 + 1)
    slot = choose(terms, held, i, -1)
    assert isinstance(slot, int | Poly)
    causal = at_most_zero(terms, slot + -5)
    assert both(terms, causal, held) is both(terms, held, at_most_zero(terms, i + -5))
    assert both(terms, held, negated(terms, held)) is False

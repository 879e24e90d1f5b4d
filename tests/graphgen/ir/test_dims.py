"""Dimensions are polynomials: their arithmetic is that of the numbers their symbols stand for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Poly, bind, parse_dim, symbol
from graphgen.ir.dims import product, symbols

NAMES = "BSCRM"
SMALL = st.integers(-7, 7)
BINDINGS = st.fixed_dictionaries({name: st.integers(0, 9) for name in NAMES})
# A dimension as a recipe, so that it can be made twice in different ways.
Recipe = int | str | tuple[str, "Recipe", "Recipe"]
RECIPES: st.SearchStrategy[Recipe] = st.recursive(
    SMALL | st.sampled_from(NAMES),
    lambda inner: st.tuples(st.sampled_from("+-*"), inner, inner),
    max_leaves=8,
)


def make(recipe: Recipe, leaf: Callable[[str], Dim]) -> Dim:
    """The recipe's value, where ``leaf`` says what a symbol is."""
    if isinstance(recipe, int):
        return recipe
    if isinstance(recipe, str):
        return leaf(recipe)
    sign, left, right = recipe
    a, b = make(left, leaf), make(right, leaf)
    return a + b if sign == "+" else a - b if sign == "-" else a * b


@given(RECIPES, BINDINGS)
def test_arithmetic_agrees_with_numbers(recipe: Recipe, values: dict[str, int]):
    assert bind(make(recipe, symbol), values) == make(recipe, values.__getitem__)


@given(RECIPES, BINDINGS, st.sets(st.sampled_from(NAMES)))
def test_binding_some_symbols_and_then_the_rest(
    recipe: Recipe, values: dict[str, int], first: set[str]
):
    dim = make(recipe, symbol)
    some = bind(dim, {name: values[name] for name in first})
    assert not symbols([some]) & first
    assert bind(some, values) == bind(dim, values)


@given(RECIPES)
def test_text_is_read_back_as_the_same_object(recipe: Recipe):
    dim = make(recipe, symbol)
    read = parse_dim(str(dim))
    assert read is dim if isinstance(dim, Poly) else read == dim


@given(RECIPES, RECIPES, BINDINGS)
def test_equal_polynomials_are_one_object(left: Recipe, right: Recipe, values: dict[str, int]):
    a, b = make(left, symbol), make(right, symbol)
    for one, other in ((a + b, b + a), (a * b, b * a), ((a + b) * b, a * b + b * b)):
        assert one is other or (isinstance(one, int) and one == other)
    assert a - a == 0
    if a == b:
        assert bind(a, values) == bind(b, values)


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (symbol("B"), "B"),
        (1 + symbol("S"), "S+1"),
        (symbol("S") * symbol("B") * 2 + 1, "2*B*S+1"),
        (symbol("C") - symbol("S"), "C-S"),
        (symbol("S") - symbol("C"), "-C+S"),
        (symbol("B") * symbol("B"), "B*B"),
        (3 - symbol("B"), "-B+3"),
        (symbol("B") * 0, "0"),
    ],
)
def test_printed_form(dim: Dim, text: str):
    assert str(dim) == text


def test_a_symbol_that_cancels_leaves_a_number():
    assert symbol("B") + 3 - symbol("B") == 3
    assert type(symbol("B") - symbol("B")) is int


def test_binding_to_another_symbol():
    assert bind(symbol("B") * symbol("S"), {"S": symbol("C") + 1}) is parse_dim("B*C+B")


def test_product_and_symbols():
    shape = (symbol("B"), 4, symbol("S") + 1)
    assert product(shape) is parse_dim("4*B*S+4*B")
    assert product(()) == 1
    assert symbols(shape) == {"B", "S"}


@pytest.mark.parametrize(
    "text", ["", "B+", "*B", "B**2", "2B", "B S", "B/2", "-", "1.5", "²", "+B"]
)
def test_what_is_no_dimension_is_refused(text: str):
    with pytest.raises(GraphgenError) as caught:
        parse_dim(text)
    assert caught.value.code == "GG0102"


@pytest.mark.parametrize("name", ["", "2B", "B-S", "_x", "B S"])
def test_what_is_no_symbol_is_refused(name: str):
    with pytest.raises(GraphgenError, match=f"'{name}' is not a symbol name") as caught:
        symbol(name)
    assert caught.value.code == "GG0102"

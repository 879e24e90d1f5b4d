"""Normal forms of conditions, sums and sorts in real arithmetic, and their limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.composites.error_function import error_function
from graphgen.eval import evaluate
from graphgen.ir import Dim, Function, Value, tensor
from graphgen.ir.attrs import EMPTY
from graphgen.ir.dims import Poly
from graphgen.ir.dtype import f32, s32, u32
from graphgen.passes.proof.congruence import congruent_values
from graphgen.passes.proof.elements import Elements
from graphgen.passes.proof.floats import span
from graphgen.passes.proof.integers import at_most_zero, choose, div
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.prove_equal import prove_values
from graphgen.passes.proof.rebuild import flat_function
from graphgen.passes.proof.sums import summed, variable_name, zero_of
from graphgen.passes.proof.terms import Node, Term, Terms

SPAN = span(f32)


def truth(terms: Terms, term: bool | Node, values: dict[str, int]) -> bool:
    """A condition on integers for some values of its variables."""
    if isinstance(term, bool):
        return term
    assert term.kind == "le0"
    value = term.args[0]
    assert isinstance(value, int | Poly)
    return number(terms, value, values) <= 0


def number(terms: Terms, value: Dim, values: dict[str, int]) -> int:
    if isinstance(value, int):
        return value
    total = 0
    for monomial, coefficient in value.terms:
        for name in monomial:
            node = terms.atoms.get(name)
            if node is None:
                coefficient *= values[name]
            else:
                inside, by = node.args
                assert isinstance(inside, int | Poly)
                assert isinstance(by, int)
                coefficient *= number(terms, inside, values) // by
        total += coefficient
    return total


@pytest.mark.parametrize("by", [2, 3, 8])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("limit", range(-4, 5))
def test_a_quotient_is_compared_as_its_dividend_is(by: int, sign: int, limit: int) -> None:
    terms = Terms()
    i, k = terms.variable("i", 17), terms.variable("k", 3)
    value = div(terms, i, by) * sign + k * 2 + limit
    found = at_most_zero(terms, value)
    for a in range(17):
        for b in range(3):
            assert truth(terms, found, {"i": a, "k": b}) == ((a // by) * sign + b * 2 + limit <= 0)


def element(terms: Terms, name: str, *index: Dim) -> Node:
    return terms.node("at", name, f32, *index)


def product(terms: Terms, *factors: Term) -> Term:
    return flat_function(terms, "multiply", SPAN, EMPTY, factors)


def total(terms: Terms, body: Term, *variables: tuple[Dim, int]) -> Term:
    ranges: list[tuple[str, Dim]] = [(variable_name(v), size) for v, size in variables]
    return summed(terms, "add", SPAN, ranges, body)


@pytest.mark.parametrize(("heads", "same"), [(5, True), (6, False), (4, False)])
def test_padded_heads_of_ranks_are_the_heads_of_the_model(heads: int, same: bool) -> None:
    """Two ranks have three heads of eight each, of which the last one may be padding."""
    terms = Terms()
    rank, k = terms.variable("rank", 2), terms.variable("k", 24)
    head = div(terms, k, 8) + rank * 3
    kept = at_most_zero(terms, head + (1 - heads))
    x = element(terms, "x", k + rank * 24)
    weight = choose(terms, kept, element(terms, "w", k + rank * 24), zero_of(terms))
    parts = total(terms, product(terms, x, weight), (rank, 2), (k, 24))
    j = terms.variable("j", 40)
    whole = total(terms, product(terms, element(terms, "x", j), element(terms, "w", j)), (j, 40))
    assert (parts is whole) == same


@pytest.mark.parametrize("factor", ["inf", "-inf", "nan", "2.0"])
def test_only_a_number_times_zero_is_zero(factor: str) -> None:
    terms = Terms()
    k = terms.variable("k", 9)
    kept = at_most_zero(terms, k + -3)
    assert isinstance(kept, Node)
    weight = choose(terms, kept, element(terms, "w", k), zero_of(terms))
    made = total(terms, product(terms, weight, terms.node("const", factor)), (k, 9))
    j = terms.variable("j", 4)
    only = product(terms, element(terms, "w", j), terms.node("const", factor))
    assert (made is total(terms, only, (j, 4))) == (factor == "2.0")


def test_a_factor_that_is_zero_for_a_whole_sum_leaves_the_others() -> None:
    """What is not read where no adapter is chosen may be infinite."""
    terms = Terms()
    i, k = terms.variable("i", 4), terms.variable("k", 9)
    chosen = at_most_zero(terms, i + -2)
    weight = choose(terms, chosen, element(terms, "w", i, k), zero_of(terms))
    other = choose(terms, chosen, element(terms, "x", i, k), zero_of(terms))
    near = element(terms, "x", i, k)
    made = [total(terms, product(terms, weight, x), (k, 9)) for x in (other, near)]
    assert made[0] is not made[1]


def function_of(size: int, build: Callable[[Builder, Value], Sequence[Value]]) -> Function:
    function = Function("f")
    x = function.block.add_arg(tensor(f32, (size,)), "x")
    with Builder(function) as b:
        made = build(b, x)
    function.outputs = [(f"r{n}", value) for n, value in enumerate(made)]
    return function


def status_of(function: Function) -> Status:
    (_, a), (_, b) = function.outputs
    return prove_values(function, [(a, b)])


def test_the_error_function_is_its_formula_but_for_rounding() -> None:
    pair = function_of(8, lambda b, x: (b.op("erf", x), error_function(b, x)))
    assert status_of(pair) is Status.REAL
    other = function_of(8, lambda b, x: (b.op("erf", x), error_function(b, x * 1.0001)))
    assert status_of(other) is Status.UNDECIDED


def test_the_formula_of_the_error_function_has_its_value() -> None:
    at = np.concatenate([np.linspace(-9, 9, 20001), [0.46875, -0.46875, 6.0, 0.0]])
    at = at.astype(np.float32)
    formula = function_of(len(at), lambda b, x: [error_function(b, x)])
    found = evaluate(formula, {"x": at})["r0"]
    expected = np.array([math.erf(float(x)) for x in at])
    # Some steps of f32 each round once.
    assert np.max(np.abs(np.asarray(found, np.float64) - expected)) < 4e-7


def top_k(b: Builder, x: Value) -> tuple[Value, Value]:
    results = b.emit(
        "custom_call",
        [x],
        {
            "target": "AwsNeuronTopK",
            "results": (tensor(f32, (1, 2)), tensor(u32, (1, 2))),
        },
    ).results
    return results[0], results[1]


@pytest.mark.parametrize("padded", [False, True])
def test_the_kernel_of_top_k_gives_places_second(padded: bool) -> None:
    """Its second result are the places of a sort, whether or not -inf is added at the end."""
    function = Function("f")
    x = function.block.add_arg(tensor(f32, (1, 12)), "x")
    with Builder(function) as b:
        low = b.literal(-math.inf, f32)
        wide = b.pad(x, low, [0, 0], [0, 4]) if padded else x
        values, places = top_k(b, wide)
        iota = b.iota(s32, (1, 12), 1)
        results = b.emit("sort", [x, iota], {"dimension": 1, "descending": True}).results
    terms = Terms()
    elements = Elements(terms, {x: "x"}, deep=True).in_real_arithmetic()
    index = (0, terms.variable("i", 2))
    assert elements.at(values, index) is elements.at(results[0], index)
    assert elements.at(places, index) == elements.at(results[1], index)
    assert elements.at(places, index) != elements.at(values, index)


def test_values_that_are_computed_alike_are_one() -> None:
    def build(b: Builder, x: Value) -> Sequence[Value]:
        return [b.unary("negate", x) + x, b.unary("negate", x) + x, x + b.unary("abs", x)]

    function = function_of(4, build)
    found = congruent_values(function)
    first, second, third = [value for _, value in function.outputs]
    assert found[second] is first
    assert third not in found

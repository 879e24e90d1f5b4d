"""Every rule of the prover is right by itself: none without a check, and wrong ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getmembers, isfunction
from types import ModuleType

import pytest

from graphgen.ir import Op, attrs_of
from graphgen.ir.dims import Poly
from graphgen.passes.proof import (
    block_places,
    choices,
    distinct_tables,
    equal_terms,
    exponentials,
    first_places,
    integers,
    narrow_numbers,
    products,
    prove_equal,
    rebuild,
    split_sums,
    sums,
    whole_numbers,
)
from graphgen.passes.proof.elements import RULES, Elements, Index, Rule
from graphgen.passes.proof.integers import choose, div, mod
from graphgen.passes.proof.rebuild import NODE_RULES
from graphgen.passes.proof.solver import Solver, has_solver
from graphgen.passes.proof.terms import Node, Term, Terms
from tests.passes.proof.normal_form_checks import ARGUMENTS, NORMAL_FORMS, Drawn, check_node
from tests.passes.proof.rule_cases import CASES
from tests.passes.proof.rule_checks import check

DRAWS = 100
# Functions that make no term of another: names, parts and texts of terms.
PARTS = {
    *("integers.range_of", "integers.conjuncts", "sums.variable_name", "sums.ranges_of"),
    *("sums.size_name", "sums.polynomials", "sums.zero_of", "sums.truth_of_sum"),
    "sums.is_infinite",
    *("split_sums.common_step", "split_sums.is_irregular", "split_sums.parted"),
    *("split_sums.total_range", "products.condition_ends"),
    *("rebuild.node_rule", "rebuild.cancelling", "narrow_numbers.narrow_type"),
    *("narrow_numbers.factors_of", "narrow_numbers.inverted", "narrow_numbers.is_measured"),
    *("sums.linear", "sums.sum_names"),
}
# Functions whose checks are in test_equal_terms, in those of sums, in test_block_places, in
# test_expert_buffers, in test_narrow_numbers, in test_distinct_tables, in test_first_places
# and in test_exponentials.
COMPARED = {
    *("split_sums.in_parts", "equal_terms.equal_terms", "sums.merged", "sums.only_block"),
    *("block_places.place_atom", "block_places.place_of", "block_places.end_of"),
    *("block_places.owner_of", "block_places.written_in_block"),
    *("block_places.written_in_buffer", "block_places.some_value"),
    *("choices.cases_of", "choices.equal_in_cases", "choices.within_choice"),
    *("narrow_numbers.as_number", "narrow_numbers.bound_of", "narrow_numbers.covers"),
    *("narrow_numbers.is_nonzero", "narrow_numbers.is_within", "narrow_numbers.kept_in"),
    *("narrow_numbers.simplified", "narrow_numbers.unrounded", "distinct_tables.in_images"),
    *("exponentials.equal_on_each_rank", "exponentials.in_equal_parts"),
    *("exponentials.shifts_of", "exponentials.without_shifts"),
    *("first_places.first_of_parts", "first_places.order_of_parts", "sums.without_padding"),
}


@pytest.mark.parametrize("name", sorted(RULES))
def test_the_rule_of_an_op_gives_what_numpy_computes(name: str) -> None:
    assert prove_equal
    assert name in CASES, f"the rule of {name} has no cases: add some to rule_cases"
    wrong = [found for case in CASES[name] if (found := check(RULES[name], case))]
    assert not wrong, wrong
    assert any(not case.outside for case in CASES[name])


def test_no_case_is_of_an_op_without_a_rule() -> None:
    assert CASES.keys() <= RULES.keys()


@pytest.mark.parametrize("kind", sorted(NODE_RULES))
def test_the_rule_of_a_node_keeps_its_value(kind: str) -> None:
    assert kind in ARGUMENTS, f"no nodes of kind {kind} are drawn in normal_form_checks"
    wrong = [found for n in range(DRAWS) if (found := check_node(kind, Drawn(n)))]
    assert not wrong, wrong[0]


@pytest.mark.parametrize("name", NORMAL_FORMS)
def test_a_normal_form_keeps_the_value_of_terms(name: str) -> None:
    wrong = [found for n in range(DRAWS) if (found := NORMAL_FORMS[name](Drawn(n)))]
    assert not wrong, wrong[0]


@pytest.mark.parametrize(
    "module",
    [
        *(block_places, integers, rebuild, sums, split_sums, products, equal_terms),
        *(whole_numbers, narrow_numbers, choices, distinct_tables, first_places, exponentials),
    ],
    ids=lambda m: m.__name__[-8:],
)
def test_no_normal_form_is_without_a_check(module: ModuleType) -> None:
    short = module.__name__.rpartition(".")[2]
    own = {
        f"{short}.{name}"
        for name, function in getmembers(module, isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    missing = own - NORMAL_FORMS.keys() - PARTS - COMPARED
    assert not missing, f"no check in normal_form_checks: {missing}"


@pytest.mark.skipif(not has_solver(), reason="z3 is not installed")
@pytest.mark.parametrize("number", range(30))
def test_z3_finds_no_integers_at_which_a_quotient_or_limit_differs(number: int) -> None:
    d = Drawn(number)
    value, other, by = d.integer(1), d.integer(1), d.random.randint(1, 6)
    terms = d.terms
    pairs: list[tuple[Term, Term]] = [
        (div(terms, value, by), terms.atom(terms.node("div", value, by))),
        (mod(terms, value, by), value + terms.atom(terms.node("div", value, by)) * -by),
        (integers.at_most_zero(terms, value), terms.node("le0", value)),
        (integers.is_zero(terms, value), terms.node("eq0", value)),
        (integers.smaller(terms, value, other), terms.atom(terms.node("min", value, other))),
    ]
    for made, raw in pairs:
        found = Solver(terms).find(made, raw, 500)
        # A question that takes too long has no answer, and refutes nothing.
        assert not isinstance(found, dict), (made, raw, found)


# ---- wrong rules ---------------------------------------------------------------------------------


def with_attr(name: str, **more: object) -> Rule:
    """The rule of an op as if it had other attributes."""

    def rule(e: Elements, op: Op, index: Index) -> Term | None:
        kept = op.attrs
        op.attrs = attrs_of({**kept, **more})  # pyright: ignore[reportArgumentType]
        try:
            return RULES[name](e, op, index)
        finally:
            op.attrs = kept

    return rule


def inverse_transpose(e: Elements, op: Op, index: Index) -> Term | None:
    """The permutation taken the other way around."""
    return e.at(op.operands[0], tuple(index[p] for p in op.attrs.integers("permutation")))


def rounding_down(e: Elements, op: Op, index: Index) -> Term | None:
    """A quotient rounded down, where HLO's goes toward zero."""
    by = e.integer(op.operands[1], index)
    if not isinstance(by, int) or by <= 0:
        return None
    return div(e.terms, e.integer(op.operands[0], index), by)


def of_any_sign(e: Elements, op: Op, index: Index) -> Term | None:
    """A logical shift of a number that may be negative."""
    by = e.integer(op.operands[1], index)
    if not isinstance(by, int) or not 0 <= by < op.results[0].dtype.bits:
        return None
    return div(e.terms, e.integer(op.operands[0], index), 1 << by)


def without_wrapping(e: Elements, op: Op, index: Index) -> Term | None:
    """A sum of integers that does not wrap around."""
    if not op.operands[0].dtype.is_integer:
        return None
    return e.integer(op.operands[0], index) + e.integer(op.operands[1], index)


def without_clamping(e: Elements, op: Op, index: Index) -> Term | None:
    """A slice whose start is taken as it is."""
    starts = [e.integer(start, ()) for start in op.operands[1:]]
    return e.at(op.operands[0], tuple(s + i for s, i in zip(starts, index, strict=True)))


def of_the_other_half(e: Elements, op: Op, index: Index) -> Term | None:
    """The other branch."""
    pred, yes, no = op.operands
    which = e.at(pred, index)
    assert isinstance(which, bool | Node)
    return choose(e.terms, which, e.at(no, index), e.at(yes, index))


def shifted(e: Elements, op: Op, index: Index) -> Term | None:
    """The element before the one that is asked for, in a ring."""
    size = op.results[0].shape[0]
    assert isinstance(size, int)
    return RULES[op.name](e, op, (mod(e.terms, index[0] + -1, size), *index[1:]))


WRONG: dict[str, tuple[str, Rule]] = {
    "an inverse permutation": ("transpose", inverse_transpose),
    "a quotient rounded down": ("divide", rounding_down),
    "a logical shift of negative numbers": ("shift_right_logical", of_any_sign),
    "a sum that does not wrap": ("add", without_wrapping),
    "a slice out of bounds": ("dynamic_slice", without_clamping),
    "branches exchanged": ("select", of_the_other_half),
    "strides left out": ("slice", with_attr("slice", strides=())),
    "padding inside not seen": ("pad", with_attr("pad", interior=())),
    "a scatter that adds taken for one that assigns": (
        "scatter",
        with_attr("scatter", kind="assign"),
    ),
    "a kernel read backward": ("convolution", with_attr("convolution", window_reversal=())),
    "an order that descends": ("sort", with_attr("sort", descending=False)),
    "a maximum taken for a sum": ("reduce", with_attr("reduce", kind="add")),
    "groups in another order": ("all_gather", with_attr("all_gather", replica_groups=((0, 1),))),
    "a neighbor": ("iota", shifted),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_rule_of_an_op_is_refused(what: str) -> None:
    name, rule = WRONG[what]

    def judged() -> bool:
        for case in CASES[name]:
            try:
                if check(rule, case):
                    return True
            except AssertionError:
                # An index out of bounds.
                return True
        return False

    assert judged()


def _toward_zero(terms: Terms, args: tuple[object, ...]) -> Term:
    value, by = args
    assert isinstance(value, int | Poly)
    assert isinstance(by, int)
    return div(terms, value * -1, by) * -1


def _below_zero(terms: Terms, args: tuple[object, ...]) -> Term:
    (value,) = args
    assert isinstance(value, int | Poly)
    return integers.at_most_zero(terms, value + 1)


def _first_of_two(terms: Terms, args: tuple[object, ...]) -> Term:
    assert isinstance(args[0], bool | int | Poly | Node)
    return args[0]


def _without_repeats(terms: Terms, args: tuple[object, ...]) -> Term:
    """A sum that takes an element once that does not depend on a variable."""
    body = args[-1]
    assert isinstance(body, int | Poly | Node)
    held = terms.symbols_of(body)
    ranges: list[tuple[str, int | Poly]] = [(n, s) for n, s in (("a", 3), ("b", 4)) if n in held]
    return sums.summed(terms, "add", args[1], ranges, body)


WRONG_NODES: dict[str, tuple[str, Callable[[Terms, tuple[object, ...]], Term]]] = {
    "a quotient rounded up": ("div", _toward_zero),
    "below zero": ("le0", _below_zero),
    "the first of two": ("min", _first_of_two),
    "one of many": ("sum", _without_repeats),
    "half of both": ("and", _first_of_two),
}


@pytest.mark.parametrize("what", WRONG_NODES)
def test_a_wrong_rule_of_a_node_is_refused(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, rule = WRONG_NODES[what]
    monkeypatch.setitem(NODE_RULES, kind, rule)
    assert any(check_node(kind, Drawn(n)) for n in range(DRAWS))


def test_a_wrong_normal_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integers, "mod", lambda terms, value, by: value)  # pyright: ignore
    assert any(NORMAL_FORMS["integers.mod"](Drawn(n)) for n in range(DRAWS))

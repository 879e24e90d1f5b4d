"""Tables without equal elements, and paged caches, whose blocks such a table names."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest

from graphgen.ir import Dim, Literal, Module, Op, attrs_of, tensor
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import f32, s32
from graphgen.models import build
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import parse
from graphgen.passes.proof.distinct_tables import in_images
from graphgen.passes.proof.indexing_rules import written
from graphgen.passes.proof.integers import both, div, is_zero
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.refinement import prove_refinement
from graphgen.passes.proof.terms import ABSENT, Node, Term, Terms
from tests.matrix.axes import config_of
from tests.passes.proof.rule_checks import TermValues

TABLE = tensor(s32, (2, 2))
PROVED = (Status.PROVED, Status.REAL)
FREE = "block_table has no element twice, and none below 0"


def entry(terms: Terms, *index: Dim, name: str = "t") -> Dim:
    return terms.atom(terms.node("at", name, TABLE, *index), 0, 4)


def test_elements_are_equal_where_their_places_are() -> None:
    terms = Terms(distinct=frozenset("t"))
    i, j, k = (terms.variable(name, 2) for name in "ijk")
    found = is_zero(terms, entry(terms, i, j) + entry(terms, k, j * -1 + 1) * -1)
    same = is_zero(terms, entry(terms, i, j) + entry(terms, k, 1) * -1)
    for table in permutations(range(5), 4):
        array = np.array(table).reshape(2, 2)
        values = TermValues(terms, {"t": array})
        for a, b, c in product(range(2), repeat=3):
            at = {"i": a, "j": b, "k": c}
            assert bool(values.of(found, at)) == (array[a, b] == array[c, 1 - b])
            assert bool(values.of(same, at)) == (array[a, b] == array[c, 1])


@pytest.mark.parametrize(
    "other",
    [
        # Another table, the sum, twice an element, and one beside it.
        lambda terms: entry(terms, 0, 1, name="u") * -1,
        lambda terms: entry(terms, 0, 1),
        lambda terms: entry(terms, 0, 1) * -2,
        lambda terms: entry(terms, 0, 1) * -1 + 1,
        lambda terms: terms.atom(terms.node(ABSENT, "u", TABLE)) * -1,
    ],
)
def test_other_integers_may_be_equal_to_elements(other: Callable[[Terms], Dim]) -> None:
    terms = Terms(distinct=frozenset("t"))
    assert isinstance(is_zero(terms, entry(terms, 0, 0) + other(terms)), Node)


def test_tables_may_have_equal_elements_where_nothing_says_that_they_have_not() -> None:
    terms = Terms()
    assert isinstance(is_zero(terms, entry(terms, 0, 0) + entry(terms, 0, 1) * -1), Node)


@pytest.mark.parametrize("by", [2, 3])
@pytest.mark.parametrize("shift", [-1, 0, 1, 2])
@pytest.mark.parametrize("quotient", [0, 1, 5])
def test_a_quotient_and_its_rest_are_one_number(by: int, shift: int, quotient: int) -> None:
    """Also with a rest that no quotient leaves: below 0, or the divisor."""
    terms = Terms()
    x, r = terms.variable("x", 7), terms.variable("r", by)
    within = is_zero(terms, div(terms, x, by) + -quotient)
    rest = is_zero(terms, x + div(terms, x, by) * -by + r * -1 + -shift)
    found = both(terms, within, rest)
    values = TermValues(terms, {})
    for a, b in product(range(7), range(by)):
        holds = a // by == quotient and a % by == b + shift
        assert bool(values.of(found, {"x": a, "r": b})) == holds
    joined = isinstance(found, Node) and found.kind == "eq0"
    assert joined == (shift == 0 and quotient <= 6 // by)


def paged(terms: Terms, place: Dim) -> Term:
    """An element of blocks that hold x [2,2]: block t[i, j] holds x[i, j], others 0."""
    v, p = terms.variable("v", 4), place
    i = div(terms, v, 2)
    here = is_zero(terms, entry(terms, i, v + i * -2) + p * -1)
    new = terms.node("at", "x", tensor(f32, (2, 2)), i, v + i * -2)
    return written(terms, [("v", 4)], here, new, terms.node("const", repr(0.0)))


def test_an_index_is_a_place_that_a_table_names_or_none() -> None:
    terms = Terms(distinct=frozenset("t"))
    p = terms.variable("p", 5)
    a, b = paged(terms, p), terms.node("const", repr(0.0))
    same: Callable[[Term, Term], bool] = lambda x, y: x is y  # noqa: E731
    one, other = in_images(terms, a, b, same)
    assert isinstance(one, Node)
    assert one.kind == "at"
    assert other is b
    # Where no block is named they have to be equal, too.
    wrong = terms.node("const", repr(1.0))
    assert in_images(terms, a, wrong, same) == (a, wrong)
    # Each element that is named is found.
    for table in permutations(range(5), 4):
        given = {"t": np.array(table).reshape(2, 2), "x": np.arange(4.0).reshape(2, 2)}
        values = TermValues(terms, given)
        names = sorted(terms.symbols_of(one) & terms.bounds.keys())
        for i, j in product(range(2), repeat=2):
            at = dict(zip(names, (i, j), strict=True))
            assert values.of(one, at) == values.of(a, {"p": int(given["t"][i, j])})


# ---- whole compilations --------------------------------------------------------------------------


@cache
def model() -> Module:
    return build(config_of("llama"), f32, mini=True)


@cache
def compiled(options: str) -> Module:
    module = clone_module(model())
    run_pipeline(module, parse(f"small{{context=[8,16],tokens=[4],tp=2,target=cpu,{options}}}"))
    return module


def of_one_program(module: Module, phase: str = "decode") -> Module:
    """A copy with the first program of a phase alone."""
    out = clone_module(module)
    _, *others = sorted(out.programs(), key=lambda f: f.phase != phase)
    for function in others:
        del out.functions[function.name]
    return out


def test_a_paged_cache_is_proved_for_tables_with_a_block_for_each_place() -> None:
    found = prove_refinement(model(), compiled("page_cache=3"))
    assert found.complete
    assert FREE in found.assumptions


def test_with_fewer_blocks_than_places_nothing_is_assumed() -> None:
    """No such table would exist: all would follow from it."""
    found = prove_refinement(model(), of_one_program(compiled("page_cache=3,cache_blocks=5")))
    assert not any(claim.output == "logits" for claim in found.having(*PROVED))
    assert FREE not in found.assumptions


def exchanged(op: Op) -> None:
    op.set_operands(op.operands[::-1])


def of_two(op: Op) -> None:
    literal = op.attrs.literal("value")
    op.attrs = attrs_of({**op.attrs, "value": Literal.of(literal.dtype, 2)})


def of_next(op: Op) -> None:
    op.attrs = attrs_of({**op.attrs, "dimension": 1 - op.attrs.integer("dimension")})


def is_page(op: Op) -> bool:
    """The slots of a block, as a number."""
    return op.name == "constant" and op.attrs.literal("value").values() == [3]


def joins_places(op: Op) -> bool:
    """Rows and pages, or blocks and slots, of an index."""
    return op.name == "concatenate" and op.result.dtype is s32


def is_slot(op: Op) -> bool:
    return op.name == "iota"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "which", "change"),
    [
        ("decode", is_page, of_two),
        ("decode", joins_places, exchanged),
        ("prefill", joins_places, exchanged),
        ("pack.", is_slot, of_next),
    ],
)
def test_a_wrong_paged_cache_is_not_proved(
    function: str, which: Callable[[Op], bool], change: Callable[[Op], None]
) -> None:
    module = of_one_program(compiled("page_cache=3"), function)
    for body in [f for name, f in module.functions.items() if name.startswith(function)]:
        for op in [op for op in body.block if which(op)][:1]:
            change(op)
    found = prove_refinement(model(), module)
    assert not any("cache" in claim.output for claim in found.having(*PROVED))


@pytest.mark.slow
def test_a_block_of_another_row_is_not_proved() -> None:
    module = of_one_program(compiled("page_cache=3"))
    for body in module.programs():
        table = body.arg("block_table")
        assert table is not None
        for op in body.block:
            if op.name == "slice" and op.operands[0] is table:
                first, last = (op.attrs.dims(x) for x in ("start_indices", "limit_indices"))
                moved = {
                    "start_indices": (first[0], first[1] + 1),
                    "limit_indices": (last[0], last[1] + 1),
                }
                op.attrs = attrs_of({**op.attrs, **moved})
    found = prove_refinement(model(), module)
    assert not any(claim.output == "logits" for claim in found.having(*PROVED))

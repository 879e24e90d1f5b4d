"""Tokens in blocks of experts: what is known of their places holds for every choice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.composites.experts import ExpertCall
from graphgen.eval import Array, evaluate
from graphgen.ir import Function, Value, attrs_of, tensor
from graphgen.ir.clone import clone_function
from graphgen.ir.dims import Poly
from graphgen.ir.dtype import f32, s32
from graphgen.passes.experts.expert_choices import entries_of
from graphgen.passes.experts.token_blocks import block_count, sorted_blocks
from graphgen.passes.proof.block_places import place_of
from graphgen.passes.proof.elements import Elements, Ranks
from graphgen.passes.proof.prove_equal import deep_recursion
from graphgen.passes.proof.sums import variable_name
from graphgen.passes.proof.terms import Terms
from tests.passes.proof.rule_checks import TermValues

# Tokens, choices, experts, places of a block: with prefix sums of one level.
SIZES = ((3, 2, 2, 2), (4, 1, 3, 2), (2, 2, 3, 3), (3, 2, 3, 2))


@cache
def laid_out(tokens: int, chosen: int, experts: int, block: int) -> Function:
    """The expert and the row that each choice finds at its place in the blocks."""
    f = Function("f")
    indices = f.block.add_arg(tensor(s32, (tokens, chosen)), "indices")
    x = f.block.add_arg(tensor(f32, (tokens, 1)), "x")
    weights = f.block.add_arg(tensor(f32, (tokens, chosen)), "weights")
    names = ("gate", "up", "down")
    matrices = [f.block.add_arg(tensor(f32, (experts, 1, 1)), name) for name in names]
    with Builder(f) as b:
        call = ExpertCall(
            x, indices, weights, *matrices, attrs=attrs_of({"modulate": "output", "capacity": 0})
        )
        blocks = sorted_blocks(b, call, block)
        flat = b.reshape(blocks.places, (tokens * chosen,))
        of_block = b.binary("divide", flat, b.full(block, flat.type))
        count = block_count(tokens * chosen, experts, block)
        rows = b.reshape(blocks.rows, (count * block, 1))
        f.outputs = [
            ("owner", entries_of(b, blocks.experts, of_block)),
            ("row", entries_of(b, rows, flat)),
            ("place", flat),
        ]
    return f


def choices(tokens: int, chosen: int, experts: int) -> Iterator[Array]:
    """Every choice of experts."""
    for values in product(range(experts), repeat=tokens * chosen):
        yield np.array(values, np.int32).reshape(tokens, chosen)


def given(indices: Array, experts: int) -> dict[str, Array]:
    tokens = indices.shape[0]
    matrices = {name: np.zeros((experts, 1, 1), np.float32) for name in ("gate", "up", "down")}
    rows = np.arange(1, tokens + 1, dtype=np.float32).reshape(tokens, 1)
    return {"indices": indices, "x": rows, "weights": np.ones(indices.shape, np.float32)} | matrices


def elements(f: Function, experts: int) -> tuple[Elements, Terms]:
    terms = Terms()
    names = {arg: arg.name or "" for arg in f.args}
    ranges = {"indices": (0, experts - 1)}
    e = Elements(terms, names, expand=True, ranges=ranges, ranks=Ranks(), deep=True)
    return e.in_real_arithmetic(), terms


def finds_its_own(f: Function, experts: int) -> bool:
    """Whether the term of each choice is its expert, and the row its token's."""
    e, terms = elements(f, experts)
    tokens, chosen = f.args[0].shape
    assert isinstance(tokens, int)
    assert isinstance(chosen, int)
    t, k = terms.variable("t", tokens), terms.variable("k", chosen)
    at = t * chosen + k
    outputs = dict(f.outputs)
    with deep_recursion():
        owner, row = e.at(outputs["owner"], (at,)), e.at(outputs["row"], (at, 0))
    return owner == e.at(f.args[0], (t, k)) and row is e.at(f.args[1], (t, 0))


def is_right(f: Function, sizes: tuple[int, int, int, int]) -> bool:
    """Whether NumPy finds them for every choice."""
    tokens, chosen, experts, _ = sizes
    for indices in choices(tokens, chosen, experts):
        found = evaluate(f, given(indices, experts))
        rows = np.repeat(np.arange(1, tokens + 1), chosen)
        if (found["owner"] != indices.ravel()).any() or (found["row"][:, 0] != rows).any():
            return False
    return True


@pytest.mark.parametrize("sizes", SIZES)
def test_a_choice_finds_its_token_and_expert(sizes: tuple[int, int, int, int]) -> None:
    f = laid_out(*sizes)
    assert finds_its_own(f, sizes[2])
    assert is_right(f, sizes)


@pytest.mark.parametrize("sizes", SIZES)
def test_the_highest_place_is_one_that_some_choice_needs(sizes: tuple[int, int, int, int]) -> None:
    tokens, chosen, experts, block = sizes
    f = laid_out(*sizes)
    e, terms = elements(f, experts)
    place = e.at(dict(f.outputs)["place"], (terms.variable("i", tokens * chosen),))
    assert isinstance(place, int | Poly)
    known = place_of(terms, variable_name(place))
    assert known is not None
    needed = 0
    for indices in choices(tokens, chosen, experts):
        held = given(indices, experts)
        found = evaluate(f, held)["place"]
        values = TermValues(terms, held)
        assert [values.of(place, {"i": i}) for i in range(found.size)] == found.tolist()
        needed = max(needed, int(found.max()))
    # An odd number of choices may leave no choice for the last place.
    assert needed <= known.highest < block_count(tokens * chosen, experts, block) * block
    assert known.highest - needed < block


def variants(f: Function) -> Iterator[Function]:
    """The function with one comparison, one number or one count of its ops changed."""
    for number, op in enumerate(f.ops):
        changed: list[dict[str, object]] = []
        if op.name == "compare":
            turn = {"LE": "LT", "LT": "LE", "EQ": "LE", "GE": "GT"}
            changed = [{"direction": turn[op.attrs.text("direction")]}]
        elif op.name == "iota" and op.results[0].type.rank > 1:
            changed = [{"dimension": 0 if op.attrs.integer("dimension") else 1}]
        for attrs in changed:
            copy = clone_function(f)
            other = list(copy.ops)[number]
            other.attrs = attrs_of({**other.attrs, **attrs})  # pyright: ignore[reportArgumentType]
            yield copy
        if op.name in ("add", "subtract") and op.results[0].dtype is s32:
            copy = clone_function(f)
            other = list(copy.ops)[number]
            _replace(copy, other.results[0], other.operands[0])
            yield copy


def _replace(f: Function, value: Value, by: Value) -> None:
    for op in f.ops:
        op.set_operands(tuple([by if x is value else x for x in op.operands]))
    f.outputs = [(name, by if x is value else x) for name, x in f.outputs]


def test_a_wrong_layout_is_not_proved() -> None:
    sizes = (3, 2, 3, 2)
    wrong = 0
    for changed in variants(laid_out(*sizes)):
        right = is_right(changed, sizes)
        assert right or not finds_its_own(changed, sizes[2])
        wrong += not right
    assert wrong > 8

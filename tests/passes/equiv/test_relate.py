"""Relations between values, as text and in numbers."""

# Tables of relations read best with one a line.
# ruff: noqa: E501

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.ir import Literal, dtype, sharding
from graphgen.passes.core.relation import (
    EQUAL,
    Chain,
    DontCare,
    Partial,
    Quantized,
    Relation,
    Sharded,
    Take,
)
from graphgen.passes.equiv.relate import RankGrid, apply, meet
from graphgen.passes.equiv.relation_text import parse_relation

TP = RankGrid({"tp": 2})
GRID = RankGrid({"dp": 2, "tp": 3})


def array(*shape: int) -> Array:
    return np.arange(1, np.prod(shape) + 1, dtype=np.float64).reshape(shape)


def mask(*items: int) -> Literal:
    return Literal.of(dtype("pred"), [bool(item) for item in items])


def test_take_copies_drops_and_makes_zeros():
    (part,) = apply(Take(1, (2, 0, -1)), array(2, 3), RankGrid({}))
    np.testing.assert_array_equal(part, [[3, 1, 0], [6, 4, 0]])


def test_shards_are_numbered_with_the_last_axis_fastest():
    parts = apply(Sharded(sharding(("tp", "dp"))), array(3, 2), GRID)
    assert [part.tolist() for part in parts] == [[[1]], [[3]], [[5]], [[2]], [[4]], [[6]]]


def test_two_axes_cut_one_dimension_the_first_of_them_outside():
    parts = apply(Sharded(sharding((("tp", "dp"),))), array(6), GRID)
    assert [part.tolist() for part in parts] == [[1], [3], [5], [2], [4], [6]]


RELATIONS: list[Relation] = [
    EQUAL,
    Take(0, (5, 4, 3, 2, 1, 0, 0, -1)),
    Take(1, (0, 1)),
    Take(0, ()),
    Sharded(sharding(("tp", None))),
    Sharded(sharding(("tp", "dp"))),
    Sharded(sharding((None, "dp"), ("tp",))),
    Partial("tp"),
    Quantized(0.25),
    Quantized(Literal.of(dtype("f64"), [0.5, 2.0, 4.0, 0.125]), (1,)),
    DontCare(mask(0, 1, 0, 0)),
    Chain((Take(1, (3, 3, 1, 0)), Sharded(sharding((None, "dp"))))),
    Chain((Sharded(sharding(("tp", None))), Take(0, (1, 0, -1)))),
    Chain((Take(0, (0, 0, 1, 1, 5, 5)), DontCare(mask(1, 0, 0, 0)), Quantized(3.0))),
    Sharded(sharding((("dp", "tp"), None))),
    Sharded(sharding((("tp", "dp"), None))),
    Sharded(sharding((None, "dp"), ("tp",), "maximum")),
]


@pytest.mark.parametrize("relation", RELATIONS, ids=repr)
def test_what_is_applied_is_met(relation: Relation):
    whole = array(6, 4)
    left, right = meet(relation, whole, apply(relation, whole, GRID), GRID)
    np.testing.assert_allclose(left, right, rtol=1e-15)


@given(index=st.integers(0, 23), relation=st.sampled_from(RELATIONS))
def test_a_change_is_met_unless_it_does_not_matter(index: int, relation: Relation):
    parts = [part.copy() for part in apply(relation, array(6, 4), GRID)]
    flat = parts[4].reshape(-1)
    if not flat.size:
        return
    flat[index % flat.size] += 1
    parts[4] = flat.reshape(parts[4].shape)
    left, right = meet(relation, array(6, 4), parts, GRID)
    hidden = relation == RELATIONS[10] and index % 4 == 1
    hidden |= relation == RELATIONS[13] and index % flat.size % 4 == 0
    assert np.allclose(left, right) == hidden


def test_a_sum_is_met_however_it_is_split():
    whole = array(2, 2)
    parts = [whole * 0.25, whole * 0.75]
    left, right = meet(Partial("tp"), whole, parts, TP)
    np.testing.assert_array_equal(left, right)


def test_a_scale_may_be_a_value_of_the_program():
    mesh = RankGrid({}, scales=lambda name: np.array([1.0, 2.0]) if name == "s" else array(1))
    left, right = meet(Quantized("s", (0,)), array(2, 3), [array(2, 3)], mesh)
    np.testing.assert_array_equal(left, array(2, 3))
    np.testing.assert_array_equal(right, [[1, 2, 3], [8, 10, 12]])


@pytest.mark.parametrize(
    ("relation", "mesh", "expected"),
    [
        (Take(3, (0,)), TP, "a tensor [2, 3] has no dimension 3"),
        (Take(0, (2,)), TP, "take: the map goes beyond the 2 of dim 0"),
        (Sharded(sharding((None, "tp"))), TP, "3 of dim 1 do not divide over 2 ranks"),
        (Sharded(sharding(("tp",))), TP, "the layout {tp} is not one of a tensor [2, 3]"),
        (Partial("ep"), TP, "no mesh axis 'ep'"),
        (Partial("@"), GRID, "no mesh axis '@'"),
        (Quantized("s"), TP, "there is not a value 's' to scale with"),
        (Quantized(2.0, (0,)), TP, "a scale [] needs 0 dims, [0] are given"),
    ],
)
def test_relations_that_do_not_fit(relation: Relation, mesh: RankGrid, expected: str):
    with pytest.raises(GraphgenError) as caught:
        apply(relation, array(2, 3), mesh)
    assert (caught.value.code, caught.value.what) == ("GG0302", expected)


def loaded(file: str, name: str) -> Array:
    assert (file, name) == ("case.npz", "m")
    return np.array([0, 1])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y=equal", EQUAL),
        ("y=take{dim=1,map=[0, 0,-1]}", Take(1, (0, 0, -1))),
        ("y=shard{-,tp}", Sharded(sharding((None, "tp")))),
        ("y = shard{ @, - +tp}", Sharded(sharding(("@", None), ("tp",)))),
        ("y=partial{tp}", Partial("tp")),
        ("y=quantized{scale=0.5}", Quantized(0.5)),
        ("y=quantized{scale=w.scale,dims=[0]}", Quantized("w.scale", (0,))),
        ("y=quantized{dims=[1],scale=[1,2]}", Quantized(Literal.of(dtype("f64"), [1.0, 2.0]), (1,))),
        ("y=dont_care{mask=[0,1]}", DontCare(mask(0, 1), "[0,1]")),
        ("y=dont_care{mask=[[0],[1]]}", DontCare(Literal.of(dtype("pred"), [[False], [True]]), "[[0],[1]]")),
        ("y=dont_care{mask=case.npz:m}", DontCare(mask(0, 1), "case.npz:m")),
        ("y=take{dim=0,map=[]}|shard{tp}", Chain((Take(0, ()), Sharded(sharding(("tp",)))))),
    ],
)  # fmt: skip
def test_relations_as_text(text: str, expected: Relation):
    assert parse_relation(text, loaded) == ("y", expected)


@pytest.mark.parametrize(
    "text",
    [
        "y",
        "=equal",
        "y=",
        "y=eqal",
        "y=equal{1}",
        "y=take{dim=1}",
        "y=take{dim=x,map=[1]}",
        "y=take{dim=1,map=[1.5]}",
        "y=take{dim=1,map=[1],more=2}",
        "y=shard{}",
        "y=partial{a,b}",
        "y=quantized{scale=[a]}",
        "y=quantized{dims=[0]}",
        "y=dont_care{mask=0.5}",
        "y=equal|",
    ],
)
def test_relations_that_cannot_be_read(text: str):
    with pytest.raises(GraphgenError) as caught:
        parse_relation(text, loaded)
    assert caught.value.code == "GG0302"
    assert caught.value.what.startswith("cannot read the relation '")

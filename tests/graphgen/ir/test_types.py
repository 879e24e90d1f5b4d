"""Tensor types, shardings and attribute sets: one object for each, with a text that reads back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, Literal, attrs_of, dtype, replicated, sharding, symbol, tensor
from graphgen.ir.dtype import DTYPES, bf16, f32, s32
from graphgen.ir.sharding import parse_sharding
from graphgen.text.grammar import parse_type

B, S = symbol("B"), symbol("S")
DIMS = st.one_of(st.integers(0, 5), st.sampled_from([B, S, B * S + 1]))


@given(st.sampled_from(sorted(DTYPES)), st.lists(DIMS, max_size=4))
def test_types_are_one_object_and_read_back(name: str, shape: list[object]):
    made = tensor(dtype(name), shape)  # pyright: ignore[reportArgumentType]
    assert tensor(dtype(name), tuple(shape)) is made  # pyright: ignore[reportArgumentType]
    assert parse_type(made.text) is made
    assert made.rank == len(shape)
    assert made.static == all(isinstance(dim, int) for dim in shape)


def test_type_facts():
    made = tensor(bf16, (B, 4, 8))
    assert made.text == "bf16[B,4,8]"
    assert made.text_name == "bf16.Bx4x8"
    assert made.size is B * 32
    bound = made.bind({"B": 3})
    assert bound is tensor(bf16, (3, 4, 8))
    assert bound.dims == (3, 4, 8)
    assert bound.nbytes == 3 * 4 * 8 * 2
    assert tensor(f32).size == 1


def test_sizes_of_a_symbolic_type_are_refused():
    with pytest.raises(GraphgenError) as caught:
        _ = tensor(f32, (B, 4)).dims
    assert caught.value.code == "GG0106"
    assert caught.value.what == "f32[B,4] has unbound symbols"


@pytest.mark.parametrize("size", [-1, 2.5, "3", None])
def test_what_is_no_size_is_refused(size: object):
    with pytest.raises(GraphgenError) as caught:
        tensor(f32, (4, size))  # pyright: ignore[reportArgumentType]
    assert caught.value.code == "GG0102"


AXES = st.lists(st.sampled_from(["tp", "ep", None]), max_size=4).filter(
    lambda dims: len(list(filter(None, dims))) == len(set(filter(None, dims)))
)


@given(AXES, st.booleans())
def test_shardings_are_one_object_and_read_back(dims: list[str | None], partial: bool):
    owed = ("dp",) if partial else ()
    made = sharding(dims, owed)
    assert sharding(tuple(dims), owed) is made
    assert parse_sharding(made.text) is made
    assert made.replicated == (not partial and not any(dims))
    assert made.axes == tuple(filter(None, dims))


def test_sharding_texts():
    assert sharding((None, "tp")).text == "{-,tp}"
    assert sharding((None, None), ("tp",)).text == "{-,-+tp}"
    assert replicated(0).text == "{}"
    assert parse_sharding("{+tp}") is sharding((), ("tp",))
    assert sharding((("dp", "tp"), None)).text == "{dp*tp,-}"
    assert parse_sharding("{dp*tp,-}") is sharding((("dp", "tp"), ()))
    assert sharding((None,), ("tp", "dp"), "maximum").text == "{->dp>tp}"
    assert parse_sharding("{-<tp}") is sharding((None,), ("tp",), "minimum")
    # Nothing owed is of no kind.
    assert sharding((None,), (), "minimum") is replicated(1)


@pytest.mark.parametrize(
    "text", ["", "tp", "{-,tp", "-,tp}", "{tp,tp}", "{tp+tp}", "{tp*tp}", "{-+a>b}", "{a*}", "{,}"]
)
def test_what_is_no_sharding_is_refused(text: str):
    with pytest.raises(GraphgenError) as caught:
        parse_sharding(text)
    assert caught.value.code == "GG0104"


def test_attributes_that_python_calls_equal_are_different_sets():
    one, real, true = (attrs_of({"x": value}) for value in (1, 1.0, True))
    assert len({one, real, true}) == 3
    assert one is not real
    assert real is not true
    assert type(real["x"]) is float
    assert type(true["x"]) is bool
    assert attrs_of({"x": 1}) is one


def test_tuples_that_python_calls_equal_are_different_sets():
    assert attrs_of({"x": (0, 1)}) is not attrs_of({"x": (False, True)})
    assert all(type(item) is int for item in attrs_of({"x": (0, 1)}).integers("x"))


def test_attribute_sets_are_mappings_with_typed_access():
    literal = Literal.of(f32, 0.5)
    attrs = attrs_of(
        {"n": 3, "x": 0.5, "s": "add", "d": B, "ds": (B, 4), "g": ((0, 1),), "t": s32, "l": literal}
    )
    assert dict(attrs) == {key: attrs[key] for key in attrs}
    assert len(attrs) == 8
    assert attrs.integer("n") == 3
    assert attrs.number("x") == 0.5
    assert attrs.text("s") == "add"
    assert attrs.dim("d") is B
    assert attrs.dims("ds") == (B, 4)
    assert attrs.integers("ds") == (4,)
    assert attrs.groups("g") == ((0, 1),)
    assert attrs.element("t") is s32
    assert attrs.literal("l") is literal
    assert isinstance(attrs, Attrs)


def test_a_negative_zero_is_another_attribute():
    assert attrs_of({"x": 0.0}) is not attrs_of({"x": -0.0})

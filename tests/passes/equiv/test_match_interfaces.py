"""Which value goes with which, when names alone do not tell."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.passes.equiv.match_interfaces import Values, pair_values
from graphgen.text.grammar import parse_type


def values(text: str) -> Values:
    pairs = (item.split(":") for item in text.split())
    return [(name, parse_type(type_)) for name, type_ in pairs]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("x:f32[2] y:f32[3]", "y:f32[3] x:f32[2]", {"x": "x", "y": "y"}),
        ("x:f32[2] y:f32[3]", "a:f32[3] b:f32[2]", {"a": "y", "b": "x"}),
        ("x:f32[2] y:f32[2] z:s32[]", "z:s32[] a:f32[2] b:f32[2]", {"z": "z", "a": "x", "b": "y"}),
        ("x:f32[2] y:f32[2]", "a:f32[2] x:f32[2]", {"x": "x", "a": "y"}),
        # The right does not look at everything.
        ("x:f32[2] y:f32[3]", "y:f32[3]", {"y": "y"}),
    ],
)
def test_names_first_then_order_within_a_type(left: str, right: str, expected: dict[str, str]):
    assert pair_values(values(left), values(right), "inputs", (), spare=True) == expected


def test_a_related_value_may_be_of_another_type():
    left, right = values("x:f32[4] w:f32[8,4]"), values("x:f32[4] w:f32[4,4]")
    assert pair_values(left, right, "inputs", ["w"]) == {"x": "x", "w": "w"}
    renamed = values("x:f32[4] part:f32[4,4]")
    assert pair_values(left, renamed, "inputs", ["part"]) == {"x": "x", "part": "w"}


@pytest.mark.parametrize(
    ("left", "right", "what", "note"),
    [
        (
            "x:f32[2]",
            "x:f32[3]",
            "x is f32[2] in one module and f32[3] in the other",
            "",
        ),
        (
            "x:f32[2] y:f32[2]",
            "a:f32[2]",
            "the modules differ in outputs",
            "only in the first: x f32[2], y f32[2]\nonly in the second: a f32[2]",
        ),
        (
            "x:f32[2]",
            "x:f32[2] z:s32[]",
            "the modules differ in outputs",
            "only in the first: none\nonly in the second: z s32[]",
        ),
    ],
)
def test_what_has_no_counterpart_is_named(left: str, right: str, what: str, note: str):
    with pytest.raises(GraphgenError) as caught:
        pair_values(values(left), values(right), "outputs", ())
    assert (caught.value.code, caught.value.what, caught.value.note) == ("GG0205", what, note)

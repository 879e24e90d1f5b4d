"""Typed fields: each type reads values and texts, describes itself, and names what is wrong."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.config.fields import (
    MismatchError,
    ValueType,
    boolean,
    fields_of,
    integer,
    list_of,
    number,
    one_of,
    option,
    optional,
    parse_field,
    path,
    read_field,
    text,
    type_of,
    unknown_name,
    words,
)
from graphgen.errors import GraphgenError, did_you_mean


class Level(enum.Enum):
    """An enumeration whose members count as their values."""

    LOW = "low"


ROWS: list[tuple[ValueType[Any], list[tuple[object, object]], list[object], str]] = [
    # type, (value, normal form), other values, noun
    (integer(), [(3, 3), (-1, -1)], [True, 1.0, "1", None, 1 << 63], "an integer"),
    (integer(1), [(1, 1)], [0, -3], "an integer >= 1"),
    (integer(0, 8), [(0, 0), (8, 8)], [9], "an integer in [0, 8]"),
    (integer(floats=True), [(16.0, 16)], [16.5, math.inf, math.nan], "an integer"),
    (number(), [(3, 3.0), (0.5, 0.5)], [True, math.nan, math.inf, "1", 10**400], "a number"),
    (number(0, 1), [(0, 0.0), (1, 1.0)], [-0.1, 1.1], "a number in [0, 1]"),
    (number(0, open_low=True), [(0.1, 0.1)], [0], "a number > 0"),
    (number(infinite=True), [(math.inf, math.inf)], [math.nan], "a number"),
    (boolean(), [(True, True)], [1, "true", None], "true or false"),
    (text(), [("", ""), ("a", "a")], [1, None, "\ud800"], "a string"),
    (text(1, 2), [("ab", "ab")], ["", "abc"], "a string of 1 to 2 characters"),
    (words("low", "high"), [("low", "low"), (Level.LOW, "low")], ["mid", 1, None], "low or high"),
    (words(1, 2), [(1, 1)], [True, 3], "1 or 2"),
    (
        list_of(integer(1)),
        [([1, 2], (1, 2)), ((), ())],
        ["12", [0], 1],
        "a list, each an integer >= 1",
    ),
    (
        list_of(text(), "a list of strings", least=1, most=2),
        [(["a"], ("a",))],
        [[], ["a"] * 3],
        "a list of strings",
    ),
    (optional(integer()), [(None, None), (3, 3)], ["none"], "an integer, or None"),
    (one_of(integer(), text()), [(1, 1), ("a", "a")], [None, 1.5], "an integer, or a string"),
    (path(), [("a/b", Path("a/b")), (Path("c"), Path("c"))], [1, None], "a path"),
]


@pytest.mark.parametrize(("kind", "right", "wrong", "noun"), ROWS, ids=[row[3] for row in ROWS])
def test_types_read_their_values_and_refuse_others(
    kind: ValueType[Any], right: list[tuple[object, object]], wrong: list[object], noun: str
):
    assert kind.noun == noun
    for value, normal in right:
        found = kind.read(value)
        assert found == normal
        assert type(found) is type(normal)
    for value in wrong:
        with pytest.raises(MismatchError, match=r"expected "):
            kind.read(value)


TEXTS: list[tuple[ValueType[Any], list[tuple[str, object]], list[str]]] = [
    (integer(1), [("3", 3)], ["0", "3.0", "x", "", "٣"]),
    (number(), [("3", 3.0), ("-1e3", -1000.0)], ["nan", "inf", "x", "1_0"]),
    (boolean(), [("true", True), ("false", False)], ["True", "1", ""]),
    (words("a", 2), [("a", "a"), ("2", 2)], ["b", ""]),
    (list_of(integer()), [("[1, 2]", (1, 2)), ("[]", ())], ["1,2", "[1", "[x]"]),
    (list_of(text()), [("[w:{tp,-},b]", ("w:{tp,-}", "b"))], ["a"]),
    (optional(text()), [("none", None), ("a", "a")], []),
    (one_of(integer(), words("auto")), [("4", 4), ("auto", "auto")], ["off"]),
]


@pytest.mark.parametrize(
    ("kind", "right", "wrong"), TEXTS, ids=lambda each: getattr(each, "code", "")
)
def test_types_read_texts(kind: ValueType[Any], right: list[tuple[str, object]], wrong: list[str]):
    assert [kind.parse(written) for written, _ in right] == [value for _, value in right]
    for written in wrong:
        with pytest.raises(MismatchError):
            kind.parse(written)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
# JSON Schema takes 1.0 for an integer, and strings for paths.
DESCRIBED = [row[0] for row in ROWS if "path" not in row[3] and "infinite" not in row[3]]


@given(st.sampled_from(DESCRIBED), JSON)
def test_a_value_that_is_read_fits_the_schema(kind: ValueType[Any], value: object):
    try:
        kind.read(value)
    except MismatchError:
        return
    if not isinstance(value, float) or math.isfinite(value):
        jsonschema_rs.validate(dict(kind.schema), value)


def test_errors_name_the_place_in_the_value():
    with pytest.raises(MismatchError) as caught:
        list_of(list_of(integer(1))).read([[1], [2, 0]])
    assert caught.value.path == (1, 1)
    assert (caught.value.reason, caught.value.bound) == ("low", 1)


def test_words_of_plugins_are_asked_for_each_time():
    known = ["cpu"]
    kind = words(lambda: known)
    assert kind.choices == ("cpu",)
    known.append("other")
    assert kind.read("other") == "other"
    assert kind.noun == "cpu or other"


@dataclass(frozen=True)
class Options:
    """Options, half of them typed by their annotations."""

    degree: int = option(integer(1), 1, "ranks.", flag=None)
    mode: str = option(words("fast", "exact"), "fast")
    sizes: tuple[int, ...] = (128,)
    name: str | None = None
    form: Literal["a", "b"] = "a"


def test_fields_of_a_dataclass():
    found = fields_of(Options)
    assert {name: item.type.code for name, item in found.items()} == {
        "degree": "int",
        "mode": "fast | exact",
        "sizes": "[int]",
        "name": "str | none",
        "form": "a | b",
    }
    assert (found["degree"].doc, found["degree"].extra) == ("ranks.", {"flag": None})
    assert not found["sizes"].required


def test_one_text_for_values_that_do_not_fit():
    found = fields_of(Options)
    with pytest.raises(GraphgenError) as caught:
        parse_field("shard", found["mode"], "exakt", "GG0302")
    assert (
        str(caught.value).splitlines()[0].endswith("shard: mode is 'exakt', expected fast or exact")
    )
    assert caught.value.help == "did you mean exact?"
    with pytest.raises(GraphgenError, match="shard: degree is 0, expected an integer >= 1"):
        read_field("shard", found["degree"], 0, "GG0705")


def test_unknown_names_come_with_the_nearest():
    assert did_you_mean("tile-atention", ["tile-attention", "shard"]) == (
        "did you mean tile-attention?"
    )
    assert (
        unknown_name("shard", "option", "degre", ["degree"], "GG0302").help
        == "did you mean degree?"
    )
    assert unknown_name("shard", "option", "xyz", ["tp"], "GG0302").help == "it has tp"


def test_annotations_state_types():
    assert type_of(int | tuple[str, ...]).code == "int | [str]"
    assert type_of(float | None).noun == "a number, or None"

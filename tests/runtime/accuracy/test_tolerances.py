"""Tolerance maps: AWS's defaults, every spelling, every mistake."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.accuracy.tolerances import (
    AWS_TOLERANCES,
    default_tolerances,
    parse_tolerance_map,
    tolerance_map,
)


def test_the_defaults_are_awss():
    assert AWS_TOLERANCES.to_json() == {
        "5": [1e-5, 0.01],
        "50": [1e-5, 0.02],
        "1000": [1e-5, 0.03],
        "all": [1e-5, 0.05],
    }
    assert default_tolerances("bf16") is AWS_TOLERANCES
    assert [one.rtol for one in default_tolerances("f32").entries] == pytest.approx(
        [1e-4, 2e-4, 3e-4, 5e-4]
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"all": [1e-5, 0.05], "5": [1e-05, 0.01]}',
        "{5: (1e-5, 0.01), None: (1e-5, 0.05)}",
        "{'5': (1e-5, 0.01), 'all': [1e-5, 0.05]}",
    ],
)
def test_json_and_awss_spelling_mean_the_same(text: str):
    assert parse_tolerance_map(text).to_json() == {"5": [1e-5, 0.01], "all": [1e-5, 0.05]}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "neither JSON nor"),
        ("[1]", "is a list, not a map"),
        ("{}", "it is empty"),
        ("{0: (1, 1)}", "the key 0 is neither"),
        ("{'five': (1, 1)}", "the key 'five' is neither"),
        ("{True: (1, 1)}", "the key True is neither"),
        ("{5: 0.1}", "not (atol, rtol)"),
        ("{5: (0.1,)}", "not (atol, rtol)"),
        ("{5: (0.1, -1)}", "not (atol, rtol)"),
        ("{5: (0.1, 1e999)}", "not (atol, rtol)"),
        ("{5: ('0.1', 1)}", "not (atol, rtol)"),
        ("{5: (0, 1), '5': (0, 2)}", "gives 5 twice"),
        ("{None: (0, 1), 'all': (0, 2)}", "gives all twice"),
    ],
)
def test_mistakes_are_named(text: str, what: str):
    with pytest.raises(GraphgenError) as caught:
        parse_tolerance_map(text)
    assert caught.value.code == "GG0705"
    assert what in caught.value.what
    assert "an example" in caught.value.help


def test_entries_are_sorted_by_k():
    given = tolerance_map({None: (0, 0), 1000: (0, 0), "7": (0, 0)})
    assert [one.top_k for one in given.entries] == [7, 1000, None]

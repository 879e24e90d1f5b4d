"""Errors as people and programs read them."""

from __future__ import annotations

import pytest

from graphgen.errors import CODES, GraphgenError


def test_an_error_says_what_where_and_what_next():
    error = GraphgenError("GG0105", "add: no", where="m.py:3", note="add(%x)\n    ^^", help="try")
    assert str(error) == (
        "error[GG0105]: add: no\n  --> m.py:3\n   |  add(%x)\n   |      ^^\n  help: try"
    )
    assert error.to_json() == {
        "code": "GG0105",
        "what": "add: no",
        "where": "m.py:3",
        "note": "add(%x)\n    ^^",
        "help": "try",
    }
    assert str(GraphgenError("GG0105", "no")) == "error[GG0105]: no"


def test_codes_are_numbered_and_declared():
    assert list(CODES) == sorted(CODES)
    with pytest.raises(AssertionError, match="undeclared error code GG9999"):
        GraphgenError("GG9999", "no")

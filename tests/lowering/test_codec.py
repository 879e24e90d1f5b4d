"""Codec tables: rows indexed by either side, one row a name."""

from __future__ import annotations

import pytest

from graphgen.lowering.codec import OpCodec, by_name, by_op

ROWS: list[OpCodec[str, str, str]] = [
    OpCodec("transpose", "transpose", ("permutation",)),
    OpCodec("take", ""),
    OpCodec("", "copy"),
    OpCodec("", "bitcast"),
]


def test_rows_are_found_from_either_side() -> None:
    assert sorted(by_op(ROWS)) == ["take", "transpose"]
    assert sorted(by_name(ROWS)) == ["bitcast", "copy", "transpose"]
    assert by_op(ROWS)["transpose"] is by_name(ROWS)["transpose"]


def test_two_rows_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two rows for 'transpose'"):
        by_op([*ROWS, OpCodec("transpose", "permute")])
    with pytest.raises(ValueError, match="two rows for 'copy'"):
        by_name([*ROWS, OpCodec("negate", "copy")])

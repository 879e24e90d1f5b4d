"""Ops that hand on what they are given, and those that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import evaluate, evaluate_ranks
from graphgen.text import parse

TEXT = """\
module @m level=logical {{
  input %x : f32[2]
  input %n : s32[2]
  output %y : f32[2]
}}

func @f phase=main {{
  arg %x : f32[2]
  arg %n : s32[2]
  {op}
  return y = %y
  return z = %z
}}
"""
BOTH = "results=[f32[2],s32[2]] : f32[2], s32[2]"
GIVEN = {"x": np.array([1, -2], np.float32), "n": np.array([3, 4], np.int32)}


def test_a_barrier_hands_on_each_of_its_operands():
    op = f'%y, %z = hlo.opaque(%x, %n) opcode="opt-barrier" form="(xx)->(xx)" {BOTH}'
    found = evaluate(parse(TEXT.format(op=op)).function("f"), GIVEN)
    assert (found["y"].tolist(), found["z"].tolist()) == ([1, -2], [3, 4])


def test_a_dependency_hands_on_what_waits():
    op = (
        '%u = hlo.opaque(%n) opcode="after-all" results=[token[]] : token[]\n'
        '  %y = hlo.opaque(%x, %u) opcode="add-dependency" results=[f32[2]] : f32[2]\n'
        "  %z = negate(%n) : s32[2]"
    )
    found = evaluate(parse(TEXT.format(op=op)).function("f"), GIVEN)
    assert (found["y"].tolist(), found["z"].tolist()) == ([1, -2], [-3, -4])


def test_what_does_more_than_hand_on_is_refused():
    op = f'%y, %z = hlo.opaque(%x, %n) opcode="topk" form="(xx)->(xx)" {BOTH}'
    with pytest.raises(GraphgenError, match=r"hlo\.opaque .* has no evaluation rule") as caught:
        evaluate(parse(TEXT.format(op=op)).function("f"), GIVEN)
    assert caught.value.code == "GG0403"


@pytest.mark.parametrize("opcode", ["partition-id", "replica-id"])
def test_each_rank_has_its_number(opcode: str):
    op = (
        f'%r = hlo.opaque() opcode="{opcode}" results=[u32[]] : u32[]\n'
        "  %y = convert(%r) dtype=f32 : f32[]\n"
        "  %z = negate(%n) : s32[2]"
    )
    function = parse(TEXT.format(op=op).replace("output %y : f32[2]", "output %y : f32[]"))
    found = evaluate_ranks(function.function("f"), [GIVEN] * 3)
    assert [one["y"].item() for one in found] == [0, 1, 2]
    assert [one["z"].tolist() for one in found] == [[-3, -4]] * 3


UPDATED = """\
module @m level=logical {
}

func @f {
  arg %cache : f32[2,3,1,1]
  arg %new : f32[1,1,1,1]
  arg %rows : s32[1]
  arg %slots : s32[1,1]
  %one = kv_update(%cache, %new, %rows, %slots) : f32[2,3,1,1]
  READ
  %two = kv_update(%one, %new, %rows, %slots) : f32[2,3,1,1]
  return y = %two
}
"""


@pytest.mark.parametrize(
    ("read", "donated", "in_place"),
    [
        ("", ("cache",), True),
        ("", (), False),
        # Another op reads what the second update would overwrite: that one is made in a copy.
        ("%sum = add(%one, %one) : f32[2,3,1,1]", ("cache",), False),
        ("%sum = add(%cache, %cache) : f32[2,3,1,1]", ("cache",), False),
    ],
)
def test_donated_caches_are_updated_in_place_where_nothing_else_reads_them(
    read: str, donated: tuple[str, ...], *, in_place: bool
):
    function = parse(UPDATED.replace("READ", read)).function("f")
    cache = np.zeros((2, 3, 1, 1), np.float32)
    given = {
        "cache": cache,
        "new": np.ones((1, 1, 1, 1), np.float32),
        "rows": np.ones(1, np.int32),
        "slots": np.full((1, 1), 2, np.int32),
    }
    (made,) = evaluate_ranks(function, [given], donated=donated)
    assert (made["y"] is cache) == in_place
    assert made["y"].ravel().tolist() == [0, 0, 0, 0, 0, 1]
    if "cache, %cache" in read or not donated:
        assert not cache.any()

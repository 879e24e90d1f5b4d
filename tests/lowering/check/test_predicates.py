"""Conditions of rules about single ops."""

from __future__ import annotations

import pytest

from graphgen.lowering.check.predicates import PREDICATES, Request
from graphgen.text import parse


@pytest.mark.parametrize(
    ("pairs", "wanted"),
    [
        ("[[0,1],[1,2],[2,3],[3,0]]", False),
        ("[[0,1],[1,0],[2,3],[3,2]]", False),
        ("[[0,1],[1,2],[2,3]]", True),
        ("[[0,1],[1,0],[2,2],[3,3]]", True),
    ],
)
def test_pairs_are_rings_of_one_length(pairs: str, wanted: bool):
    module = parse(
        "module @m level=target mesh=tp:4 {\n}\n\nfunc @f phase=decode {\n  arg %x : f32[2]\n"
        f"  %y = collective_permute(%x) source_target_pairs={pairs} : f32[2]\n"
        "  return y = %y\n}\n"
    )
    (op,) = module.function("f").ops
    assert PREDICATES["pairs_not_ring"](op, None, Request("trn2", 2)) is wanted

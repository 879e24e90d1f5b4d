"""Factors that the dimensions of a reshape share: by hand, dimension by dimension."""

from __future__ import annotations

import pytest

from graphgen.ops import OPS, make_attrs
from graphgen.text import parse
from tests.oracles import small_modules as programs

# Shapes before and after; for each dimension its factors, each a letter with its size.
SHARED = [
    ("2,3,2", "12", "a2 b3 c2", "a2.b3.c2"),
    ("12", "2,3,2", "a2.b3.c2", "a2 b3 c2"),
    # Runs with as many elements are divided alone: what 4 and 6 have in common stays in theirs.
    ("2,3,2,5", "6,10", "a2 b3 c2 d5", "a2.b3 c2.d5"),
    ("6,10", "2,3,2,5", "a2.b3 c2.d5", "a2 b3 c2 d5"),
    ("4,6,5", "2,2,3,10", "a2.b2 c3.d2 e5", "a2 b2 c3 d2.e5"),
    # Beyond the first factor that is not common nothing is shared.
    ("3,4", "4,3", "- -", "- -"),
    ("6,2", "4,3", "a2 -", "a2 -"),
    ("1,8", "8", "- a8", "a8"),
    ("3,1,4", "3,4", "a3 - b4", "a3 b4"),
    # Dimensions of unknown size end a run: those before them are divided without them.
    ("2,3,B", "6,B", "a2 b3 cB", "a2.b3 cB"),
    ("6,B", "2,3,B", "a2.b3 cB", "a2 b3 cB"),
    ("2,3,2,B", "12,B", "a2 b3 c2 dB", "a2.b3.c2 dB"),
    ("B,2,3", "B,6", "aB b2 c3", "aB b2.c3"),
    ("B,4", "4*B", "- -", "-"),
]


@pytest.mark.parametrize(("old", "new", "operand", "result"), SHARED)
def test_what_dimensions_of_a_reshape_share(old: str, new: str, operand: str, result: str):
    shape = parse(programs.function(f"arg %x : f32[{old}]", f"arg %y : f32[{new}]"))
    x, y = (value.type for value in shape.function("f").args)
    rule = OPS["reshape"].factor_rule
    assert rule is not None
    found = rule([x], [y], make_attrs("reshape", {"shape": y.shape}))
    names = [f"{chr(ord('a') + number)}{size}" for number, size in enumerate(found.sizes)]

    def text(dims: tuple[tuple[int, ...], ...]) -> str:
        return " ".join(".".join(names[number] for number in dim) or "-" for dim in dims)

    assert (text(found.operands[0]), text(found.results[0])) == (operand, result)

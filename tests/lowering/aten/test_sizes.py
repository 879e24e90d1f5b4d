"""Sizes of torch as sizes of the IR."""

from __future__ import annotations

import pytest
import sympy

from graphgen.errors import GraphgenError
from graphgen.ir.dims import parse_dim
from graphgen.lowering.aten.sizes import dim_of

S0, S1 = sympy.symbols("s0 s1")


@pytest.mark.parametrize(
    ("size", "text"),
    [(3 * S0 * S1 + 2, "3*B*s1+2"), (S0**2 - S0, "B*B-B"), (sympy.Integer(4), "4")],
)
def test_sums_of_products_are_read(size: sympy.Expr, text: str):
    assert dim_of(size, {"s0": "B"}) == parse_dim(text)


@pytest.mark.parametrize("size", [S0 / 2, S0 / S1, sympy.Max(S0, S1), sympy.Float(1.5)])
def test_what_is_no_sum_of_products_is_refused(size: sympy.Expr):
    with pytest.raises(GraphgenError) as caught:
        dim_of(size, {})
    assert caught.value.code == "GG0102"

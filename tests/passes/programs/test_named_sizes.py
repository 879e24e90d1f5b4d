"""Sizes by name: what is read, and what is refused."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.passes.programs.bucket_sizes import named_sizes


def test_sizes_are_read_by_name_with_any_spaces():
    assert named_sizes(()) == {}
    assert named_sizes(("N=8", " T_1 = 16 ", "_a=1")) == {"N": 8, "T_1": 16, "_a": 1}


@pytest.mark.parametrize(
    "text", ["N", "N=", "=8", "N=0", "N=-1", "N=1.5", "1N=8", "N=8,T=4", "N N=8"]
)
def test_other_texts_are_refused(text: str):
    with pytest.raises(GraphgenError, match="is not a symbol and a size") as refused:
        named_sizes(("M=2", text))
    assert refused.value.code == "GG0302"


def test_a_symbol_has_one_size():
    with pytest.raises(GraphgenError, match=r"dims=\[N=8,T=4,N=8\]: N is given twice"):
        named_sizes(("N=8", "T=4", "N=8"))

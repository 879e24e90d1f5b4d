"""Exchanges of two ranks need the rank, which a program may have as an input, or have not."""

from __future__ import annotations

import pytest

from graphgen.ir import Function
from graphgen.passes.core import Rewriter
from graphgen.passes.core.journal import Journal
from graphgen.passes.legalize.neuron_all_to_all import exchange_of_two
from graphgen.text import parse


def exchanging(*arguments: str, groups: str = "[[0,1]]") -> tuple[Function, Journal]:
    """An exchange after the rule, and what the rule says."""
    lines = "".join(f"  arg {each}\n" for each in ("%x : f32[8]", *arguments))
    module = parse(
        f"module @m level=sharded mesh=tp:4 {{\n}}\n\nfunc @f {{\n{lines}"
        f"  %y = all_to_all(%x) split_dimension=0 concat_dimension=0 replica_groups={groups} "
        ": f32[8]\n  return y = %y\n}\n"
    )
    journal = Journal()
    Rewriter("legalize", journal).apply_rules(module.function("f"), [exchange_of_two])
    return module.function("f"), journal


def test_the_rank_becomes_an_input_where_it_is_none():
    for arguments in ((), ("%rank : s32[1]",)):
        function, journal = exchanging(*arguments)
        assert "all_to_all" not in [op.name for op in function.block]
        assert [value.name for value in function.args] == ["x", "rank"]
        assert journal.misses == []


@pytest.mark.parametrize(
    ("arguments", "groups", "reason", "condition"),
    [
        ((), "[[0,1,2,3]]", "4 ranks exchange parts", 1),
        (("%rank : f32[2]",), "[[0,1]]", "the input called rank is something else", 2),
    ],
)
def test_what_stays_says_why(arguments: tuple[str, ...], groups: str, reason: str, condition: int):
    function, journal = exchanging(*arguments, groups=groups)
    assert [op.name for op in function.block] == ["all_to_all"]
    miss = journal.nearest("exchange-of-two")
    assert miss is not None
    assert (miss.why.reason, miss.why.depth) == (reason, condition)

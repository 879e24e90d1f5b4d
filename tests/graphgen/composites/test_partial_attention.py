"""Parts of attention, combined in any order, are the attention over all slots."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.composites.attention import attention_with
from graphgen.composites.partial_attention import (
    PartialAttention,
    combined,
    finished,
    no_slots,
    partial_attention,
    without_sinks,
)
from graphgen.eval import MEANING, NATIVE, evaluate
from graphgen.ir import Value
from graphgen.ir.dtype import bf16
from graphgen.ops.attention import attention_terms
from tests.graphgen.composites.attention_cases import CASES, AttentionCase


def parts_of(
    b: Builder, case: AttentionCase, args: list[Value], ends: list[int]
) -> list[PartialAttention]:
    """One part for the slots between each two of ``ends``."""
    own = list(without_sinks(args))
    terms = attention_terms(own)
    slots = {1: 1, 2: 1, 3: own[3].type.rank - 1}
    slots |= {at: own[at].type.rank - 1 for at in (terms.distance, terms.bias) if at is not None}
    return [
        partial_attention(
            b,
            [
                b.slice_dim(value, slots[i], start, end) if i in slots else value
                for i, value in enumerate(own)
            ],
            case.attrs,
        )
        for start, end in pairwise(ends)
    ]


@pytest.mark.parametrize("name", CASES)
def test_parts_are_combined_to_the_attention(name: str) -> None:
    """For parts of several sizes in two orders, with rows that read nothing in some or all."""
    case = CASES[name]
    given = case.arrays(3)
    wanted = evaluate(case.whole(), given, MEANING)["y"]
    for ends in ([0, 11], [0, 1, 5, 11], [0, 4, 8, 11]):
        function, b, args = case.function()
        terms = attention_terms(args)
        sinks = None if terms.sinks is None else args[terms.sinks]
        with b:
            parts = parts_of(b, case, args, ends)
            empty = no_slots(b, *[arg.type for arg in args[:3]])
            forth = reduce(lambda one, other: combined(b, one, other), parts, empty)
            back = reduce(lambda one, other: combined(b, other, one), reversed(parts))
            function.outputs = [
                ("forth", finished(b, forth, args[0].dtype, sinks)),
                ("back", finished(b, back, args[0].dtype, sinks)),
            ]
        found = evaluate(function, given, MEANING)
        np.testing.assert_allclose(found["forth"], wanted, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found["back"], wanted, rtol=1e-9, atol=1e-9)
        native = evaluate(function, given, NATIVE)["forth"]
        np.testing.assert_allclose(native, wanted, rtol=1e-4, atol=1e-5)


def test_a_softmax_in_16_bits_has_its_sums_in_f32() -> None:
    """As near as the softmax of all slots in 16 bits, of 700 slots that all weigh the same."""
    case = AttentionCase(rows=1, active=1, attended=700, heads=2, kv_heads=1)
    given = case.arrays(0)
    given["a0"] *= 0
    given["a3"] |= True
    exact = evaluate(case.whole(), given, MEANING)["y"]
    function, b, args = case.function()
    with b:
        part = partial_attention(b, args, case.attrs, bf16)
        function.outputs = [
            ("part", finished(b, part, args[0].dtype)),
            ("total", part.total),
            ("whole", attention_with(b, args, case.attrs, bf16)),
        ]
    found = evaluate(function, given, NATIVE)
    assert found["total"].max() == 700
    assert np.abs(found["part"] - exact).max() <= np.abs(found["whole"] - exact).max() + 1e-6

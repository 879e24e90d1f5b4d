"""The decomposition of a composite is raised to it again: pattern and definition are one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from graphgen.build import Builder
from graphgen.composites import DECOMPOSITIONS
from graphgen.ir import Function, Module, Value, dtype, tensor
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import parse as pipeline

ROWS, TOKENS, SLOTS, HEADS, SIZE, WIDTH = 2, 3, 5, 4, 8, 6
ROW, X = (WIDTH,), (ROWS, TOKENS, WIDTH)
QUERY, KEYS = (ROWS, TOKENS, HEADS, SIZE), (ROWS, SLOTS, 2, SIZE)
QUERIES, ONE, WIDE = (ROWS, SLOTS, HEADS, SIZE), (ROWS, SLOTS, 1, SIZE), (ROWS, SLOTS, 2, 6)
SINKS = (HEADS,)
# Operands that are not split into heads: their types.
GIVEN = {
    "mask": ("pred", (ROWS, TOKENS, SLOTS)),
    "mask per head": ("pred", (ROWS, HEADS, TOKENS, SLOTS)),
    "bias": ("f32", (ROWS, HEADS, TOKENS, SLOTS)),
}

CASES: dict[str, tuple[str, Sequence[tuple[int, ...] | str], dict[str, Any]]] = {
    "rms_norm": ("rms_norm", (X, ROW), {"epsilon": 0.125}),
    "layer_norm": ("layer_norm", (X, ROW, ROW), {"epsilon": 0.125}),
    "silu": ("silu", (X,), {}),
    "gelu, erf": ("gelu", (X,), {"approximate": "none"}),
    "gelu, tanh": ("gelu", (X,), {"approximate": "tanh"}),
    "gelu, sigmoid": ("gelu", (X,), {"approximate": "sigmoid"}),
    **{
        f"rope of {pairs}, {count} of {SIZE} elements": (
            "rope",
            (QUERY, *[(ROWS, TOKENS, count // 2)] * 2),
            {"pairs": pairs},
        )
        for pairs in ("halves", "neighbors")
        for count in (SIZE, 4)
    },
    **{
        f"attention{of}": ("attention", (QUERY, *operands), {"scale": 0.25, **attrs})
        for of, operands, attrs in (
            ("", (KEYS, KEYS, "mask"), {}),
            (" of a head of keys each", (QUERIES, QUERIES, "mask"), {}),
            (" of one head of keys", (ONE, ONE, "mask"), {}),
            (" of wide values", (KEYS, WIDE, "mask"), {}),
            (" with a cap", (KEYS, KEYS, "mask"), {"softcap": 8.0}),
            (" with a mask per head", (KEYS, KEYS, "mask per head"), {}),
            (" with a bias", (KEYS, KEYS, "mask", "bias"), {}),
            (" with sinks", (KEYS, KEYS, "mask", SINKS), {}),
            (" with all", (KEYS, WIDE, "mask per head", "bias", SINKS), {"softcap": 8.0}),
        )
    },
}


def operand(b: Builder, function: Function, given: tuple[int, ...] | str, name: str) -> Value:
    """An argument; heads are split off its features, which tells that they are heads."""
    if isinstance(given, str):
        kind, shape = GIVEN[given]
        return function.block.add_arg(tensor(dtype(kind), shape), name)
    whole = given if len(given) != 4 else (*given[:2], given[2] * given[3])
    return b.reshape(function.block.add_arg(tensor(dtype("f32"), whole), name), given)


def built(name: str, make: Callable[[Builder, Sequence[Value]], Value]) -> list[tuple[Any, ...]]:
    """The composites of this name after import, as their operand types and attributes."""
    module, function = Module("m"), Function("main")
    module.add(function)
    shapes = CASES[name][1]
    with Builder(function, module) as b:
        operands = [operand(b, function, shape, f"a{i}") for i, shape in enumerate(shapes)]
        function.outputs = [("y", make(b, operands))]
    run_pipeline(module, pipeline("imported"))
    return [
        ([value.type.text for value in op.operands], {**op.attrs})
        for op in function.ops
        if op.name == CASES[name][0]
    ]


@pytest.mark.parametrize("name", CASES)
def test_what_a_decomposition_computes_is_raised_to_its_composite(name: str):
    composite, _, attrs = CASES[name]

    def made(b: Builder, operands: Sequence[Value]) -> Value:
        return b.emit(composite, operands, attrs).result

    def decomposed(b: Builder, operands: Sequence[Value]) -> Value:
        op = b.emit(composite, operands, attrs)
        return DECOMPOSITIONS[composite](b, operands, op.attrs)[0]

    (found,) = built(name, decomposed)
    assert [found] == built(name, made)


@pytest.mark.parametrize("options", [{}, {"window": 2}, {"chunk": 2}], ids=str)
def test_a_mask_may_be_computed(options: dict[str, int]):
    module, function = Module("m"), Function("main")
    module.add(function)
    s32 = dtype("s32")
    with Builder(function, module) as b:
        q, k, v = (
            operand(b, function, shape, f"a{i}") for i, shape in enumerate((QUERY, KEYS, KEYS))
        )
        positions = function.block.add_arg(tensor(s32, (ROWS, TOKENS)), "positions")
        held = function.block.add_arg(tensor(s32, (ROWS, SLOTS)), "held")
        mask = b.attention_mask(positions, held, **options)
        op = b.attention(q, k, v, mask, 0.25).op
        assert op is not None
        assert mask.op is not None
        seen = DECOMPOSITIONS["attention_mask"](b, (positions, held), mask.op.attrs)
        made = DECOMPOSITIONS["attention"](b, (q, k, v, *seen), op.attrs)
        function.outputs = [("y", made[0])]
    run_pipeline(module, pipeline("imported"))
    (found,) = [op for op in function.ops if op.name == "attention"]
    assert [value.type.text for value in found.operands[3:]] == ["pred[2,3,5]"]
    assert found.operands[3].producer("and") is not None

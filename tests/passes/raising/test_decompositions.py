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
MASKS = (ROWS, TOKENS, SLOTS), (ROWS, HEADS, TOKENS, SLOTS)

CASES: dict[str, tuple[str, Sequence[tuple[int, ...]], dict[str, Any]]] = {
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
    "attention": ("attention", (QUERY, KEYS, KEYS, MASKS[0]), {"scale": 0.25}),
    "attention with a cap": (
        "attention",
        (QUERY, KEYS, KEYS, MASKS[0]),
        {"scale": 0.25, "softcap": 8.0},
    ),
    "attention with a mask per head": ("attention", (QUERY, KEYS, KEYS, MASKS[1]), {"scale": 0.25}),
}


def operand(b: Builder, function: Function, shape: tuple[int, ...], name: str) -> Value:
    """An argument; heads are split off its features, which tells that they are heads."""
    mask = shape in MASKS
    whole = shape if mask or len(shape) != 4 else (*shape[:2], shape[2] * shape[3])
    kind = dtype("pred" if mask else "f32")
    return b.reshape(function.block.add_arg(tensor(kind, whole), name), shape)


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

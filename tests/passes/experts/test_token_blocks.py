"""Layouts of tokens in blocks."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.composites.experts import ExpertCall
from graphgen.eval import evaluate
from graphgen.ir import Function, Value, attrs_of, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.passes.experts.token_blocks import block_count, placed_tokens, sorted_blocks
from tests.passes.experts.mixtures import KINDS, choices


def laid_out(indices: np.ndarray, experts: int, block: int) -> dict[str, np.ndarray]:
    """Experts, live blocks and tokens of the places for these choices [T,K]."""
    tokens, chosen = indices.shape
    function = Function("f")
    with Builder(function) as b:

        def arg(name: str, *shape: int, integers: bool = False) -> Value:
            return function.block.add_arg(tensor(s32 if integers else f32, shape), name)

        x, given = arg("x", tokens, 2), arg("indices", tokens, chosen, integers=True)
        weights, gate, down = arg("w", tokens, chosen), arg("g", experts, 3, 2), arg("d", 1, 2, 3)
        attrs = attrs_of({"modulate": "output", "capacity": 0})
        call = ExpertCall(x, given, weights, gate, gate, down, attrs=attrs)
        blocks = sorted_blocks(b, call, block)
        count = block_count(tokens * chosen, experts, block) * block
        placed = placed_tokens(b, blocks.places, blocks.kept, count, choices=False)
        function.outputs = [("experts", blocks.experts), ("live", blocks.live), ("tokens", placed)]
    return evaluate(
        function,
        {
            **{name: np.zeros(shape) for name, shape in _shapes(tokens, chosen, experts).items()},
            "indices": indices.astype(np.int32),
        },
    )


def _shapes(tokens: int, chosen: int, experts: int) -> dict[str, tuple[int, ...]]:
    return {"x": (tokens, 2), "w": (tokens, chosen), "g": (experts, 3, 2), "d": (1, 2, 3)}


def test_blockwise_layout_of_six_tokens_and_three_experts():
    """NxD Inference's example: block_to_expert and token_position_to_id for blocks of two."""
    found = laid_out(np.array([[0], [1], [0], [2], [0], [1]]), 3, 2)
    assert found["experts"].tolist() == [0, 0, 1, 2]
    assert found["tokens"].tolist() == [0, 2, 4, -1, 1, 5, 3, -1]
    assert found["live"].all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [1, 2, 5, 64])
@pytest.mark.parametrize("tokens", [1, 11])
def test_each_choice_has_a_place_in_a_block_of_its_expert(kind: str, block: int, tokens: int):
    indices = choices(kind, tokens, 2, 5)
    found = laid_out(indices, 5, block)
    pairs = [
        (expert, token)
        for expert, row in zip(found["experts"], found["tokens"].reshape(-1, block), strict=True)
        for token in row
        if token >= 0
    ]
    wanted = [(e, t) for t, row in enumerate(indices) for e in row if 0 <= e < 5]
    # Expert after expert, tokens in order, and all of them.
    assert pairs == sorted(wanted)
    filled = (found["tokens"].reshape(-1, block) >= 0).any(axis=1)
    assert found["live"].tolist() == filled.tolist()


@pytest.mark.parametrize("experts", [1, 2, 3, 7])
@pytest.mark.parametrize("block", [1, 2, 3, 8])
def test_the_blocks_are_enough_for_any_routing(experts: int, block: int):
    for pairs in range(1, 30):
        # The worst: a token in each expert, and what is left in one.
        used = min(experts, pairs)
        worst = used - 1 + -(-(pairs - (used - 1)) // block)
        # Or every expert with one token more than its full blocks.
        spread = pairs - used
        worst = max(worst, used + spread // block)
        assert worst <= block_count(pairs, experts, block) <= pairs

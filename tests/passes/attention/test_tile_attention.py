"""Attention in tiles means what attention means, for every kind of mask, term and size."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, NATIVE, Array, evaluate
from graphgen.ir import Function, Module
from graphgen.ir.dtype import f32, s32
from graphgen.passes.attention.tile_attention import block_of
from graphgen.passes.attention.tile_costs import MOST_SCORES, AttentionShape, tile_costs
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.pipelines import default
from graphgen.targets import find_target
from graphgen.text import print_module
from tests.graphgen.composites.attention_cases import CASES

TARGETS = ("cpu", "trn2")
NO_LIMITS: Mapping[str, int] = MappingProxyType({})
# All of the tokens; short last blocks; a slot at a time.
BLOCKS = ("3x4", "2x3", "2x11", "1x1")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_tiles_of_given_masks(name: str, target: str):
    case = CASES[name]
    given = case.arrays(5)
    wanted = evaluate(case.whole(), given, MEANING)["y"]
    for block in BLOCKS:
        module = Module("m", "canonical")
        module.add(case.whole())
        run_pipeline(module, parse_pipeline(f"tile-attention{{block={block},target={target}}}"))
        function = module.function("f")
        left = [op for f in module.functions.values() for op in f.ops if op.name == "attention"]
        assert bool(left) == (case.active == 1 and block == "2x11")
        found = evaluate(function, given, MEANING, module=module)["y"]
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
        native = evaluate(function, given, NATIVE, module=module)["y"]
        np.testing.assert_allclose(native, wanted, rtol=1e-4, atol=1e-5)


def prompt(
    tokens: int,
    slots: int,
    phase: str = "prefill",
    rows: int = 1,
    width: int = 8,
    limits: Mapping[str, int] = NO_LIMITS,
) -> Module:
    """An attention with the masks of a language model, over keys and values that it is given."""
    module = Module("m", "canonical")
    function = module.add(Function(phase, phase=phase))
    with Builder(function, module=module) as b:
        q, k, v = [
            b.input(name, f32, (rows, size, heads, width))
            for name, size, heads in (("q", tokens, 4), ("k", slots, 2), ("v", slots, 2))
        ]
        positions, lengths = b.input("positions", s32, (rows, tokens)), b.input("n", s32, (rows,))
        mask = b.attention_mask(positions, b.key_positions(lengths, slots), **limits)
        b.output("y", b.attention(q, k, v, mask, 0.3))
    return module


def values_of(function: Function, positions: Array) -> dict[str, Array]:
    """Random queries, keys and values, of a call with these positions."""
    random = np.random.default_rng(0)
    given: dict[str, Array] = {
        name: random.standard_normal(value.type.dims).astype(np.float32)
        for name, value in zip("qkv", function.args, strict=False)
    }
    return {**given, "positions": positions, "n": (positions.max(1) + 1).astype(np.int32)}


def test_a_long_prompt_has_tiles_and_says_what_they_cost():
    module = prompt(1024, 1024)
    (report,) = run_pipeline(module, parse_pipeline("tile-attention"))
    (remark,) = report.remarks
    assert remark.startswith("@prefill: 1024 tokens, 1024 slots: tiles of ")
    assert " of scores at once); whole (" in remark


@pytest.mark.parametrize(
    ("tokens", "slots", "target"),
    [(64, 64, "cpu"), (1, 4096, "cpu"), (1, 4096, "trn2"), (1024, 1024, "trn2")],
)
def test_a_short_one_has_none(tokens: int, slots: int, target: str):
    module = prompt(tokens, slots, "decode")
    before = print_module(module)
    run_pipeline(module, parse_pipeline(f"tile-attention{{target={target}}}"))
    assert print_module(module) == before


def test_the_kernel_is_kept_as_long_as_it_costs_less():
    for tokens in (256, 2048):
        module = prompt(tokens, tokens, width=64)
        before = print_module(module)
        (report,) = run_pipeline(module, parse_pipeline("tile-attention{kernels=true}"))
        if tokens == 256:
            assert print_module(module) == before
            assert report.remarks == ()
        else:
            (remark,) = report.remarks
            assert remark.startswith("@prefill: 2048 tokens, 2048 slots: tiles of ")
            assert "; the kernel" in remark


def test_what_the_kernel_cannot_compute_costs_what_the_whole_does():
    """Slopes of positions are added to the scores."""
    said: list[str] = []
    for kernels in ("true", "false"):
        module = Module("m", "canonical")
        module.add(replace(CASES["linear biases"], active=512, attended=512).whole())
        text = f"tile-attention{{kernels={kernels}}}"
        (report,) = run_pipeline(module, parse_pipeline(text))
        said += report.remarks
    assert said[0] == said[1]
    assert "the kernel" not in said[0]


def test_the_pipeline_says_whether_a_kernel_follows():
    def of(config: CompileConfig) -> str:
        (found,) = [str(each) for each in default(config) if each.name == "tile-attention"]
        return found

    assert of(CompileConfig(kernels="on")) == "tile-attention{kernels=true}"
    assert "kernels" not in of(CompileConfig(kernels="off"))
    # Softmax of 16 bits is ops of its own, before kernels are selected.
    assert "kernels" not in of(CompileConfig(kernels="on", softmax_dtype="bf16"))
    assert "kernels" not in of(CompileConfig(kernels="on", target="trn2"))


def test_an_accelerator_has_few_tiles_of_few_bytes():
    """A prompt of 64 k tokens: its scores would take 68.7 GB."""
    module = prompt(65536, 65536)
    (report,) = run_pipeline(module, parse_pipeline("tile-attention{target=trn2},dce"))[:1]
    (remark,) = report.remarks
    assert remark == (
        "@prefill: 65536 tokens, 65536 slots: tiles of 256x65536 (268.44 MB of scores at once); "
        "whole (68.72 GB of scores at once)"
    )
    scores = [op for op in module.function("prefill").ops if op.results[0].type.rank == 5]
    products = [op for op in scores if op.name == "dot_general"]
    # Two products for each of 16 * 16 tiles.
    assert len(products) == 2 * 256
    assert max(op.result.type.nbytes for op in scores) == 4 * 4 * 4096**2


@pytest.mark.parametrize("phase", ["prefill", "chunk"])
def test_prompts_that_go_on_with_a_sequence_read_the_slots_ahead(phase: str):
    """Rows begin at their first slot, with padding at either end, and after seven held tokens."""
    module = prompt(12, 12, phase, rows=3)
    function = module.function(phase)
    positions = np.array(
        [[*range(9), -1, -1, -1], [-1, -1, *range(10)], [*range(7, 12), *[-1] * 7]], np.int32
    )
    given = values_of(function, positions)
    wanted = evaluate(function, given, MEANING)["y"]
    run_pipeline(module, parse_pipeline("tile-attention{block=4x5,target=trn2}"))
    assert sum(op.name == "dot_general" for op in module.function(phase).ops) == 2 * 9
    found = evaluate(module.function(phase), given, MEANING)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("block", "limit"), [("4", "window"), ("8x3", "chunk"), ("16x4", "window")]
)
def test_tiles_of_a_window_are_of_the_slots_that_it_has(block: str, limit: str):
    """Wherever a sequence goes on, and padding on the left or on the right."""
    module = prompt(16, 40, rows=2, limits={limit: 5})
    positions = np.stack([np.r_[[-1] * 3, 7:20], np.r_[24:36, [-1] * 4]]).astype(np.int32)
    given = values_of(module.function("prefill"), positions)
    wanted = evaluate(module.function("prefill"), given, MEANING)["y"]
    run_pipeline(module, parse_pipeline(f"tile-attention{{block={block},target=trn2}},cse,dce"))
    function = module.function("prefill")
    found = evaluate(function, given, MEANING)["y"]
    held = positions >= 0
    np.testing.assert_allclose(found[held], wanted[held], rtol=1e-9, atol=1e-9)
    # Of each block of T tokens there are products with T + 5 - 1 slots, not with 40.
    tokens = int(block.partition("x")[0])
    scores = [op for op in function.ops if op.name == "dot_general"][::2]
    assert sum(op.result.type.dims[-1] for op in scores) == (16 // tokens) * (tokens + 4)


def test_an_accelerator_reads_half_of_the_slots_or_all():
    """Where a block of tokens and its window are most of the slots, nothing is gained."""
    for slots, tiled in ((1024, False), (4096, True)):
        module = prompt(1024, slots, limits={"window": 128})
        run_pipeline(module, parse_pipeline("tile-attention{target=trn2},dce"))
        names = [op.name for op in module.function("prefill").ops]
        assert ("attention" not in names) == tiled


@pytest.mark.parametrize("block", ["0", "4x", "x4", "tiles", "4x-1", ""])
def test_what_is_no_size_of_a_tile(block: str):
    with pytest.raises(GraphgenError, match=re.escape(f"block={block} is neither")) as caught:
        block_of(block)
    assert caught.value.code == "GG0302"


def test_layers_share_the_functions_of_their_loops():
    case = CASES["plain"]
    module = Module("m", "canonical")
    function, b, args = case.function()
    made = [b.emit("attention", args, dict(case.attrs)).result for _ in range(3)]
    function.outputs = [(f"y{i}", value) for i, value in enumerate(made)]
    module.add(function)
    run_pipeline(module, parse_pipeline("tile-attention{block=2x3}"))
    assert list(module.functions) == [
        *(f"attention.{name}.1" for name in ("tile", "tile.none", "slots.more", "slots")),
        *("attention.tokens.more.1", "attention.tokens.1", "f"),
    ]


@pytest.mark.parametrize("target", ["inf2", "trn2"])
def test_scores_of_an_accelerator_grow_with_heads_rows_and_slots(target: str):
    """Fewer heads a rank, fewer rows or fewer slots do not need more bytes at once."""

    def bytes_of(heads: int, rows: int, slots: int) -> int:
        shape = AttentionShape(rows, slots, slots, heads, 256, 0, causal=True)
        return tile_costs(shape, find_target(target))[0].bytes

    for slots in (512, 2048, 4096, 8192, 16384):
        found = [bytes_of(heads, 1, slots) for heads in (1, 2, 3, 4, 6, 8, 16, 64)]
        assert max(found) <= MOST_SCORES
        # Sizes are multiples of 128.
        assert all(few <= 1.07 * many for few, many in itertools.pairwise(found))
    for slots in (512, 2048, 4096, 8192):
        found = [bytes_of(heads, 4, slots) for heads in (1, 2, 4, 8, 16, 64)]
        assert max(found) <= MOST_SCORES
        assert all(few <= 1.25 * many for few, many in itertools.pairwise(found))
    for heads in (1, 8, 64):
        found = [bytes_of(heads, 1, slots) for slots in (512, 1024, 2048, 4096, 8192, 16384)]
        assert all(few <= 1.25 * many for few, many in itertools.pairwise(found))

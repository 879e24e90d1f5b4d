"""Attention of models in tiles: the same numbers, and no value over all tokens and slots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from unittest import mock

import pytest

from graphgen.build import Builder
from graphgen.composites import partial_attention
from graphgen.composites.partial_attention import PartialAttention
from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import TILES_OFF
from graphgen.ir import Module, TensorType, Value, dtype
from graphgen.models import build, known_shape
from graphgen.passes.attention.tile_attention import TileAttention
from graphgen.passes.attention.tile_sizes import TILED
from graphgen.passes.core import Pass, parse_pipeline, run_pipeline
from graphgen.passes.pipelines import phases
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload

# Sizes of no other dimension: tokens of a prompt, slots, and tokens of a chunk.
PROMPT, SLOTS, CHUNK = 13, 29, 11
SIZES = CompileConfig(
    batch=(3,), context=(PROMPT,), tokens=(SLOTS,), chunk=(CHUNK,), attention_block=TILES_OFF
)
# Those of programs, and of each of two stripes of slots.
PAIRS = (
    *((PROMPT, PROMPT), (CHUNK, SLOTS), (PROMPT, SLOTS)),
    *((PROMPT, (PROMPT + 1) // 2), (CHUNK, (SLOTS + 1) // 2)),
)
# A model and options for each mask, term and kind of cache that there is.
MODELS: Mapping[str, tuple[str, dict[str, object]]] = {
    "grouped heads": ("smollm2-135m", {}),
    "linear biases": ("bloom-560m", {}),
    "windows and bounded scores": ("gemma-2-2b", {}),
    "sinks and windows": ("gpt-oss-20b", {}),
    "sinks and rings": ("gpt-oss-20b", {"roll_window_cache": True}),
    "chunks": ("llama-4-scout", {}),
    "rings of chunks": ("llama-4-scout", {"roll_window_cache": True}),
    "latent vectors": ("deepseek-v3", {"latent_attention": "absorb"}),
    "keys of latent vectors": ("deepseek-v3", {"latent_attention": "expand"}),
    "narrow caches": ("smollm2-135m", {"kv_cache_quant": True}),
    "scales of keys": (
        "smollm2-135m",
        {"kv_cache_quant": True, "kv_cache_dtype": "int8"},
    ),
    "pages": ("smollm2-135m", {"page_cache": 4}),
    "ranks": ("smollm2-135m", {"tp": 3}),
    "slots over ranks": ("smollm2-135m", {"tp": 4, "flash_decoding": True}),
}


def before_tiles(name: str) -> tuple[Module, list[Pass]]:
    """A mini twin as it is before its attention is tiled, and the passes that follow."""
    shape, options = MODELS[name]
    module = build(known_shape(shape), dtype("f32"), mini=True)
    passes = [item for phase in phases(SIZES.updated(options)) for item in phase.passes]
    at = next(i for i, item in enumerate(passes) if isinstance(item, TileAttention))
    run_pipeline(module, passes[:at])
    return module, passes[at + 1 :]


def types(module: Module) -> Iterator[TensorType]:
    """Those of all values of all programs, and of what these run."""
    for function in module.functions.values():
        for op in function.ops:
            yield from (value.type for value in op.results)


def wide(module: Module) -> set[str]:
    """The types with a dimension of all tokens and another one of all slots."""
    found: set[str] = set()
    for kind in types(module):
        sizes = list(kind.dims)
        for tokens, slots in PAIRS:
            rest = list(sizes)
            if tokens in rest:
                rest.remove(tokens)
                if slots in rest:
                    found.add(kind.text)
    return found


# In `make test`: one of each kind of mask.
QUICK = (
    *(("linear biases", "cpu"), ("narrow caches", "cpu"), ("rings of chunks", "cpu")),
    *(("grouped heads", "trn2"), ("latent vectors", "trn2")),
)
CELLS = [
    pytest.param(*cell, marks=() if cell in QUICK else pytest.mark.slow)
    for cell in product(MODELS, ("cpu", "trn2"))
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "target"), CELLS)
def test_a_model_in_tiles_computes_the_same(name: str, target: str):
    module, rest = before_tiles(name)
    tiles = TileAttention("4x5", target)
    (verdict,) = validate(module, [tiles], make_workload(module, seed=1))
    assert verdict.means_the_same, str(verdict)
    assert verdict.within_budget, str(verdict)
    run_pipeline(module, [tiles, *rest, *parse_pipeline("dce")])
    assert not any(op.name in TILED for f in module.functions.values() for op in f.ops)
    assert wide(module) == set()


def test_without_tiles_there_are_values_of_all_tokens_and_slots():
    module, rest = before_tiles("grouped heads")
    run_pipeline(module, rest)
    scores = {f"f32[3,2,{PROMPT},3,{PROMPT}]", f"f32[3,2,{CHUNK},3,{SLOTS}]"}
    assert wide(module) >= {*scores, f"pred[3,{CHUNK},{SLOTS}]"}


def test_a_sum_that_is_not_rescaled_is_found_and_blamed():
    def forgotten(b: Builder, part: PartialAttention, maximum: Value) -> PartialAttention:
        return PartialAttention(maximum, part.total, real(b, part, maximum).out)

    module, _ = before_tiles("grouped heads")
    real = partial_attention.rescaled
    with mock.patch.object(partial_attention, "rescaled", forgotten):
        (verdict,) = validate(module, [TileAttention("4x5")], make_workload(module, seed=1))
    assert verdict.state == "WRONG"
    assert verdict.guilty is not None
    assert verdict.guilty.rule == "tiles"

"""Wide twins: large numbers in every family, and tensors small enough for NumPy."""

from __future__ import annotations

import pytest

from graphgen.ir import Module, Role, dtype
from graphgen.models import SHAPES, build, known_shape
from graphgen.models.gptj import GptjConfig
from graphgen.models.registry import FAMILIES
from graphgen.models.twins import TWINS, twin_buckets
from tests.graphgen.cli.conftest import done, graphgen

FIRST = {str(config["model_type"]): name for name, config in reversed(list(SHAPES.items()))}


def wide(name: str) -> Module:
    return build(known_shape(name), dtype("f32"), twin="wide")


def sizes(module: Module, name: str) -> list[int]:
    (shape,) = {row.logical.shape for row in module.entries(Role.STATE) if name in row.name}
    return [size for size in shape if isinstance(size, int)]


@pytest.mark.parametrize("name", FIRST.values())
def test_numbers_are_large_and_tensors_are_not(name: str):
    module = wide(name)
    logits = module.interface["logits"].logical.shape[-1]
    assert isinstance(logits, int)
    assert logits > 2**16
    assert logits % 2
    weights = [row.logical for row in module.entries(Role.WEIGHT)]
    assert sum(type_.nbytes for type_ in weights) < 80e6
    heads, width = sizes(module, "latent_cache" if "deepseek" in name else "k_cache")
    assert (heads, heads & (heads - 1)) in ((6, 4), (3, 2), (1, 0))
    assert width <= 16
    tables = [row.logical.dims[0] for row in module.entries(Role.WEIGHT) if row.logical.rank == 2]
    most = twin_buckets("wide").max_len
    positions = [rows for rows in tables if 2**15 < rows < logits]
    assert (len(positions) == 1) == (name in ("gpt2", "opt-125m"))
    assert all(rows >= most for rows in positions)


@pytest.mark.parametrize("rotated", [16, 64])
def test_heads_are_rotated_whole_where_those_of_the_model_are(rotated: int):
    full = GptjConfig(n_embd=1024, n_head=16, rotary_dim=rotated)
    for twin in (full.mini(), full.wide()):
        size = twin.n_embd // twin.n_head
        assert twin.rotary_dim == (size if rotated == 64 else size // 2)


def test_every_family_has_one():
    assert set(FIRST) == set(FAMILIES)


def test_positions_of_a_wide_twin_need_more_than_16_bits():
    assert [twin_buckets(twin).max_len > 2**15 for twin in TWINS] == [False, True]


def test_windows_are_wrapped_by_a_prompt():
    for name in ("mistral-7b", "gemma-3-1b"):
        masks = [op for f in wide(name).programs() for op in f.ops if op.name == "attention_mask"]
        windows = {op.attrs.integer("window") for op in masks}
        assert max(windows) * 2 < min(twin_buckets("wide").context)


def test_the_command_builds_either_twin():
    wide_text = done("build", "llama-3.1-8b", "--twin", "wide").stdout
    assert "weight %model.embed_tokens.weight : bf16[65601,48]" in wide_text
    mini = done("build", "llama-3.1-8b", "--twin", "mini").stdout
    assert mini == done("build", "llama-3.1-8b", "--mini").stdout
    refused = graphgen("build", "llama-3.1-8b", "--mini", "--twin", "wide")
    assert refused.exit_code == 2
    assert "--mini is --twin mini" in refused.stderr

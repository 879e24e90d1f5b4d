"""Adapters that fit a core: exact bytes, and the tables of AWS's guide as they are printed."""

from __future__ import annotations

import json
from dataclasses import replace
from math import floor
from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.lowering.plan.adapter_capacity import adapter_capacity, guide_counts
from graphgen.lowering.plan.measure import estimate, measure
from graphgen.models import known_shape
from tests.graphgen.cli.conftest import done, error, facts

GB, MB = 1_000_000_000, 1_000_000
# The guide's sizes of an adapter of rank 16, and the numbers of all seven projections.
SIZES = {"8b": (170 * MB, 41_943_040), "70b": (830 * MB, 207_093_760)}


@pytest.mark.parametrize(
    ("model", "rank", "printed", "count"),
    [("8b", 16, 23, 23.53), ("8b", 32, 12, 11.76), ("70b", 16, 4, 4.82), ("70b", 32, 2, 2.41)],
)
def test_the_guides_table_with_one_factor_on_every_core(
    model: str, rank: int, printed: int, count: float
):
    """23.53 is printed 23, 4.82 4 and 2.41 2: cut off; 11.76 is printed 12: rounded."""
    size, _ = SIZES[model]
    whole, _ = guide_counts(size * rank // 16, 2 * GB, 32)
    assert round(whole, 2) == count
    assert printed == (round(whole) if (model, rank) == ("8b", 32) else floor(whole))


@pytest.mark.parametrize(
    ("model", "rank", "printed", "count"),
    [
        ("8b", 16, 376, 376.47),
        ("8b", 32, 188, 188.24),
        ("70b", 16, 77, 77.11),
        ("70b", 32, 38, 38.55),
    ],
)
def test_the_guides_table_with_both_factors_divided(
    model: str, rank: int, printed: int, count: float
):
    """All of it cut off: 38.55 is printed 38."""
    size, _ = SIZES[model]
    _, divided = guide_counts(size * rank // 16, 2 * GB, 32)
    assert (round(divided, 2), floor(divided)) == (count, printed)


@pytest.mark.parametrize("model", SIZES)
def test_the_guides_sizes_are_those_of_f32(model: str):
    """In two digits; it says BF16, whose files have half of that."""
    size, parameters = SIZES[model]
    assert round(4 * parameters / (10 * MB)) * 10 * MB == size
    assert abs(2 * parameters - size) > 80 * MB


def test_exact_counts_of_f32_differ_from_the_printed_ones():
    """167,772,160 bytes instead of 170 MB: 381 instead of 376."""
    whole, divided = guide_counts(4 * SIZES["8b"][1], 2 * GB, 32)
    assert (round(whole, 2), round(divided, 2)) == (23.84, 381.47)


@pytest.mark.parametrize(("name", "key"), [("llama-3.1-8b", "8b"), ("llama-3.1-70b", "70b")])
def test_numbers_of_an_adapter(name: str, key: str):
    """r (in + out) of q, k, v, o, gate, up and down in each layer."""
    config = known_shape(name)
    sizes = {key: value for key, value in config.items() if isinstance(value, int)}
    hidden, wide, layers = (
        sizes[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers")
    )
    group = hidden * sizes["num_key_value_heads"] // sizes["num_attention_heads"]
    each = 2 * 2 * hidden + 2 * (hidden + group) + 3 * (hidden + wide)
    assert 16 * layers * each == SIZES[key][1]


def small(tmp_path: Path) -> Path:
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "vocab_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path / "config.json"


def test_bytes_of_a_core_are_those_of_its_programs(tmp_path: Path):
    """At tp 2 a column-parallel projection divides B, a row-parallel one A and the rank of B."""
    config = json.loads(small(tmp_path).read_text())
    demand = CompileConfig(dtype="bf16", max_loras=3, max_lora_rank=4, target="trn1")
    for tp in (1, 2):
        use = measure(config, demand.serving(batch=1, max_len=16), tp)
        columns = 64 + 64 // tp, 64 + 32 // tp, 64 + 32 // tp, 64 + 96 // tp, 64 + 96 // tp
        rows = (64 + 64) // tp, (96 + 64) // tp
        held = adapter_capacity(use, 4, 3, GB, tp)
        assert held.core_bytes == 2 * 2 * 4 * sum((*columns, *rows))
        assert held.parameters == 2 * 4 * (128 + 96 + 96 + 160 + 160 + 128 + 160)
        assert held.fits == GB // held.core_bytes


@pytest.mark.parametrize(("tp", "copies", "fits"), [(8, 1, 190), (32, 4, 709)])
def test_a_core_has_its_share_of_both_factors(tp: int, copies: int, fits: int):
    """The guide's 1 / TP; of 32 ranks those that share a key-value head have its B each."""
    sizes = CompileConfig(dtype="bf16", max_loras=1, max_lora_rank=16, target="trn1")
    demand = replace(sizes, rules=("adapters:tp",)).serving(batch=1, max_len=128)
    use = estimate(known_shape("llama-3.1-8b"), demand, tp)
    held = adapter_capacity(use, 16, 1, 2 * GB, tp)
    # B of k_proj and v_proj: 32 layers, 8 heads of 128 features, r = 16.
    of_heads = 2 * 32 * 2 * 8 * 128 * 16
    assert held.core_bytes == (2 * SIZES["8b"][1] + (copies - 1) * of_heads) // tp
    assert held.fits == fits


def test_the_command(tmp_path: Path):
    path = small(tmp_path)
    sizes = ("--seq", 16, "--tp", 1, "--target", "trn1")
    told = facts("plan", path, *sizes, "--lora-rank", 4, "--max-loras", 3, "--lora-reserve", 10**6)
    held, use = told["adapters"], told["chosen"]["use"]
    assert (held["rank"], held["slots"]) == (4, 3)
    assert held["core_bytes_each"] == 2 * held["parameters"]
    assert held["fits"] == 10**6 // held["core_bytes_each"]
    assert held["guide"]["f32_bytes"] == 4 * held["parameters"]
    assert use["adapters"] == 3 * held["core_bytes_each"]
    shown = done("plan", path, *sizes, "--lora-rank", 4, "--lora-reserve", 10**6).stdout
    assert "adapters of rank 4" in shown
    assert "AWS's guide counts" in shown
    assert "--lora-reserve has no meaning" in error("plan", path, *sizes, "--lora-reserve", 10)
    assert "--max-loras has no meaning" in error("plan", path, *sizes, "--max-loras", 2)

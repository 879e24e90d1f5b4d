"""Model families: configurations, known sizes, rotary frequencies, and what gets built."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig as TheirConfig
from transformers import LlamaForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role, bind, dtype, symbol, tensor
from graphgen.ir.dtype import bf16, f32, s32
from graphgen.models import SHAPES, build, known_shape, read_llama, read_model_config
from graphgen.nn import RopeConfig, inverse_frequencies
from graphgen.ops import verify

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def with_(**changes: object) -> dict[str, Any]:
    """The small configuration with some keys changed; ``...`` takes one out."""
    return {key: value for key, value in {**SMALL, **changes}.items() if value is not ...}


REFUSED: dict[str, dict[str, object]] = {
    "another activation": with_(hidden_act="prelu"),
    "another rope": with_(rope_scaling={"rope_type": "longrope", "factor": 4.0}),
    "another rope, old spelling": with_(rope_scaling={"type": "dynamic", "factor": 4.0}),
    "partial rotation": with_(partial_rotary_factor=0.5),
    "partial rotation, new spelling": with_(rope_parameters={"partial_rotary_factor": 0.5}),
    "a key nobody knows": with_(sliding_window=4096),
    "two keys nobody knows": with_(qk_norm=True, logit_scale=0.5),
    "a rope key nobody knows": with_(rope_scaling={**LLAMA3, "mystery_factor": 2.0}),
    "a rope key that engines read in two ways": with_(rope_scaling={**LLAMA3, "attn_factor": 2.0}),
    "a rope key of no rope": with_(rope_parameters={"rope_type": "default", "mrope": [1, 2]}),
    "ropes that disagree": with_(rope_scaling=LLAMA3, rope_parameters={"rope_theta": 5.0}),
    "KV heads that do not divide": with_(num_key_value_heads=3),
    "more KV heads than heads": with_(num_key_value_heads=8),
    "heads that do not divide": with_(hidden_size=30),
    "heads of no size": with_(num_attention_heads=64, num_key_value_heads=64),
    "an odd head size": with_(head_dim=7),
    "no heads": with_(num_attention_heads=0),
    "a missing size": with_(hidden_size=...),
    "another missing size": with_(vocab_size=...),
    "a size that is null": with_(intermediate_size=None),
    "a size that is text": with_(num_hidden_layers="2"),
    "a size with a fraction": with_(vocab_size=64.5),
    "a size that is true": with_(num_hidden_layers=True),
    "a negative epsilon": with_(rms_norm_eps=-1e-5),
    "a switch that is a number": with_(attention_bias=1),
    "a rope that is text": with_(rope_scaling="llama3"),
    "a rope without its factor": with_(rope_scaling={"rope_type": "linear"}),
    "a rope with an empty band": with_(rope_scaling={**LLAMA3, "high_freq_factor": 0.5}),
    "a rope without its length": with_(
        rope_scaling={k: v for k, v in LLAMA3.items() if not k.startswith("original")}
    ),
    "no rope base": with_(rope_theta=0),
    "another architecture": with_(model_type="mamba", architectures=["MambaForCausalLM"]),
    "no architecture": with_(model_type=...),
}


def test_what_is_not_supported_is_refused_by_name(golden: Callable[[str, str], None]):
    shown: list[str] = []
    for name, config in REFUSED.items():
        with pytest.raises(GraphgenError) as caught:
            read_model_config(config)
        assert caught.value.code in ("GG0501", "GG0502", "GG0503")
        shown.append(f"## {name}\n{caught.value}")
    golden("graphgen/config_errors.txt", "\n\n".join(shown))


@pytest.mark.parametrize(
    "harmless",
    [
        {"hidden_act": "swish"},
        {"sliding_window": None},
        {"use_sliding_window": False},
        {"some_list": []},
        {"torch_dtype": "bfloat16", "use_cache": True, "bos_token_id": 1, "eos_token_id": [2, 3]},
        {"_name_or_path": "x", "transformers_version": "4.40", "transformers.js_config": {"a": 1}},
        {"rope_scaling": None, "rope_parameters": None},
        {"rope_scaling": {"type": "default"}},
        {"partial_rotary_factor": 1.0},
        {"rope_parameters": {"rope_type": "default", "factor": 4.0, "attention_factor": 2.0}},
        {"neuron": {"num_cores": 2, "auto_cast_type": "bf16"}},
        {"unsloth_fixed": True, "gradient_checkpointing": True, "forced_eos_token_id": 2},
    ],
)
def test_what_changes_nothing_is_read_past(harmless: dict[str, object]):
    assert read_model_config(with_(**harmless)) == read_model_config(SMALL)


def test_defaults_are_those_of_transformers():
    ours = read_llama({key: SMALL[key] for key in SMALL if key != "num_key_value_heads"})
    sizes = {key: SMALL[key] for key in SMALL if key not in ("num_key_value_heads", "model_type")}
    theirs = TheirConfig(**sizes)
    assert ours.num_key_value_heads == theirs.num_key_value_heads == 4
    assert ours.head_dim == theirs.head_dim == 8
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    assert ours.rope.theta == theirs.to_dict()["rope_parameters"]["rope_theta"]
    assert [ours.tie_word_embeddings, ours.attention_bias, ours.mlp_bias] == [False] * 3


@pytest.mark.parametrize("rope", [None, {"rope_type": "linear", "factor": 4.0}, LLAMA3], ids=str)
def test_a_config_that_transformers_writes_is_read(rope: dict[str, Any] | None):
    sizes = {key: value for key, value in SMALL.items() if key != "model_type"}
    parameters: Any = {"rope_theta": 500000.0, **(rope or {"rope_type": "default"})}
    theirs = TheirConfig(
        **sizes, rope_parameters=parameters, attention_bias=True, max_position_embeddings=65536
    )
    ours = read_model_config(json.loads(theirs.to_json_string(use_diff=False)))
    older = with_(
        rope_theta=500000.0, rope_scaling=rope, attention_bias=True, max_position_embeddings=65536
    )
    assert ours == read_model_config(older)


@pytest.mark.parametrize("config", [*SHAPES.values(), with_(head_dim=12, mlp_bias=True)])
def test_a_configuration_is_written_and_read_back(config: Mapping[str, object]):
    read = read_model_config(config)
    again = json.loads(json.dumps(read.to_hf()))
    assert read_model_config(again) == read


@pytest.mark.parametrize("config", [*SHAPES.values(), with_(head_dim=12, mlp_bias=True)])
@pytest.mark.one_in(5)
def test_a_module_has_the_configuration_that_it_was_built_from(config: Mapping[str, object]):
    written = json.loads(json.dumps(read_model_config(config).to_hf()))
    assert json.loads(build(config, f32, phases=("decode",)).meta["config"]) == written


def parameters(module: Module) -> int:
    return sum(math.prod(row.logical.dims) for row in module.entries(Role.WEIGHT))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("llama-3.1-8b", 8.03e9),
        ("llama-3.1-70b", 70.55e9),
        ("llama-3.1-405b", 405.85e9),
        ("llama-3.2-1b", 1.2358e9),
        ("smollm2-135m", 134.5e6),
        ("mistral-7b", 7.2417e9),
        ("qwen2-7b", 7.6156e9),
        ("qwen3-8b", 8.1907e9),
        ("gemma-3-1b", 999.9e6),
        ("gpt2", 124.44e6),
        ("gpt2-medium", 354.82e6),
        ("gpt2-large", 774.03e6),
        ("gpt2-xl", 1.5576e9),
        ("opt-125m", 125.24e6),
        ("opt-13b", 12.853e9),
        ("opt-30b", 29.97e9),
        ("gpt-j-6b", 6.0509e9),
        ("gpt-neox-20b", 20.5546e9),
        ("bloom-560m", 559.2e6),
        ("bloom-7b1", 7.069e9),
        ("bloom-176b", 176.25e9),
        ("olmo-2-7b", 7.2989e9),
        ("olmo-2-32b", 32.234e9),
        ("phi-3-mini", 3.8211e9),
        ("phi-4", 14.6595e9),
        ("gemma-2-2b", 2.6143e9),
        ("gemma-2-9b", 9.2417e9),
        ("gemma-2-27b", 27.227e9),
        ("stablelm-2-1.6b", 1.6445e9),
        ("stablelm-2-12b", 12.143e9),
        ("falcon-7b", 6.9217e9),
        ("falcon-40b", 41.303e9),
        ("falcon-rw-1b", 1.3116e9),
    ],
)
def test_known_models_have_their_known_sizes(name: str, count: float):
    module = build(known_shape(name), bf16, phases=("decode",))
    assert parameters(module) == pytest.approx(count, rel=1e-3)


def test_names_of_known_models():
    assert known_shape("Llama-3.1-8B") is known_shape("llama-3.1-8b")
    with pytest.raises(GraphgenError) as caught:
        known_shape("llama-3.1-7b")
    assert caught.value.code == "GG0504"
    assert caught.value.help == "did you mean llama-3.1-70b or llama-3.1-8b?"
    with pytest.raises(GraphgenError) as caught:
        known_shape("zzz")
    assert caught.value.help == "graphgen models lists the known names, such as llama-3.1-8b"


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(
    "changes",
    [{}, {"factor": 32.0, "original_max_position_embeddings": 4096}, {"high_freq_factor": 8.0}],
    ids=str,
)
def test_llama3_frequencies_are_those_of_transformers(head_dim: int, changes: dict[str, float]):
    rope: Any = {**LLAMA3, "rope_theta": 500000.0, **changes}
    theirs = TheirConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        rope_parameters=rope,
        max_position_embeddings=131072,
    )
    wanted, scale = ROPE_INIT_FUNCTIONS["llama3"](theirs, torch.device("cpu"))
    ours = read_llama(with_(hidden_size=4 * head_dim, rope_parameters=rope)).rope_frequencies()
    assert scale == 1.0
    np.testing.assert_allclose(ours.values(), wanted.numpy(), rtol=1e-6)


def test_linear_and_default_frequencies_are_those_of_transformers():
    theirs = TheirConfig(
        hidden_size=256,
        num_attention_heads=4,
        rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
    )
    wanted, _ = ROPE_INIT_FUNCTIONS["linear"](theirs, torch.device("cpu"))
    ours = inverse_frequencies(RopeConfig(10000.0, "linear", 4.0), 64)
    np.testing.assert_allclose(ours.values(), wanted.numpy(), rtol=1e-6)
    plain = inverse_frequencies(RopeConfig(10000.0), 64)
    np.testing.assert_allclose(np.array(plain.values()) / 4, wanted.numpy(), rtol=1e-6)


@cache
def their_tensors(config: str) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor transformers would save, without making any."""
    given = json.loads(config)
    with torch.device("meta"):
        model = LlamaForCausalLM(TheirConfig(**given))
    tied = {"lm_head.weight"} if given["tie_word_embeddings"] else set()
    return {k: tuple(v.shape) for k, v in model.state_dict().items() if k not in tied}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("head_dim", [None, 12])
def test_weights_are_those_of_the_checkpoint(tied: bool, bias: bool, head_dim: int | None):
    config = with_(
        tie_word_embeddings=tied, attention_bias=bias, mlp_bias=bias, head_dim=head_dim or 8
    )
    module = build(config, f32)
    verify(module)
    ours = {row.name: row.logical.dims for row in module.entries(Role.WEIGHT)}
    theirs = {key: value for key, value in config.items() if key != "model_type"}
    assert ours == their_tensors(json.dumps(theirs))


def test_what_a_module_takes_and_gives():
    module = build(SMALL, bf16)
    b, r, s, m = (symbol(name) for name in "BRSM")
    inputs = {row.name: row.logical for row in module.entries(Role.INPUT)}
    assert inputs == {
        "tokens": tensor(s32, (b, s)),
        "positions": tensor(s32, (b, s)),
        "lengths": tensor(s32, (b,)),
        "seq_ids": tensor(s32, (b,)),
    }
    states = {row.name: row.logical for row in module.entries(Role.STATE)}
    assert states == {
        f"model.layers.{layer}.self_attn.{x}_cache": tensor(bf16, (r, m, 2, 8))
        for layer in range(2)
        for x in "kv"
    }
    (logits,) = module.entries(Role.OUTPUT)
    assert (logits.name, logits.logical) == ("logits", tensor(f32, (b, 64)))
    prefill, decode = module.programs()
    assert (prefill.phase, prefill.dims) == ("prefill", {})
    assert (decode.phase, decode.dims) == ("decode", {"S": 1})
    for function in (prefill, decode):
        assert [name for name, _ in function.outputs] == [*states, "logits"]
        assert {v.name for v in function.args} == set(module.interface) - {"logits"}
    assert bind(inputs["tokens"].shape[1], decode.dims) == 1
    assert module.meta["dtype"] == "bf16"


def test_phases_may_be_left_out():
    assert [f.name for f in build(SMALL, f32, phases=("decode",)).programs()] == ["decode"]


def test_ops_know_their_layer_and_line():
    module = build(SMALL, f32)
    scopes = {op.loc.scope for op in module.function("decode").ops}
    assert "model.layers.1.self_attn.q_proj" in scopes
    assert {op.loc.file for op in module.function("decode").ops} <= {
        "graphgen/models/family_module.py",
        "graphgen/models/decoder.py",
        "graphgen/nn/activations.py",
        "graphgen/nn/attention.py",
        "graphgen/nn/linear.py",
        "graphgen/nn/norm.py",
    }
    assert all(op.loc.line > 0 for op in module.function("decode").ops)


LLAMAS = [name for name, config in SHAPES.items() if config["model_type"] == "llama"]


@pytest.mark.parametrize("name", LLAMAS)
def test_the_mini_twin_decides_like_the_model(name: str):
    full = read_llama(known_shape(name))
    mini = full.mini()
    group = full.num_attention_heads // full.num_key_value_heads
    assert mini.num_attention_heads // mini.num_key_value_heads == group
    assert mini.num_key_value_heads == mini.num_hidden_layers == 2
    square = full.head_dim * full.num_attention_heads == full.hidden_size
    assert (mini.head_dim * mini.num_attention_heads == mini.hidden_size) == square
    kept = ("rope", "rms_norm_eps", "tie_word_embeddings", "attention_bias", "mlp_bias")
    assert all(getattr(mini, key) == getattr(full, key) for key in kept)
    assert mini.vocab_size % 2 == 1
    assert parameters(build(known_shape(name), f32, mini=True)) < 2_000_000


def test_the_mini_twin_of_a_model_with_its_own_head_size():
    mini = read_llama(with_(head_dim=12)).mini()
    assert mini.head_dim * mini.num_attention_heads != mini.hidden_size


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
def test_models_are_well_formed_in_every_type(kind: str):
    verify(build(SMALL, dtype(kind)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention_factor": 1.25},
        {"mscale": 0.7, "mscale_all_dim": 0.5},
        {"beta_fast": 8.0, "beta_slow": 0.5, "truncate": False},
        {"original_max_position_embeddings": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("head_dim", [16, 64])
def test_yarn_frequencies_are_those_of_transformers(head_dim: int, changes: dict[str, Any]):
    rope: dict[str, Any] = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
        **changes,
    }
    rope = {key: value for key, value in rope.items() if value is not None}
    sizes: dict[str, Any] = {"hidden_size": 4 * head_dim, "max_position_embeddings": 32768}
    theirs = TheirConfig(**sizes, num_attention_heads=4, rope_parameters=dict(rope))
    wanted, factor = ROPE_INIT_FUNCTIONS["yarn"](theirs, torch.device("cpu"))
    ours = read_llama(with_(**sizes, rope_parameters=rope))
    np.testing.assert_allclose(ours.rope_frequencies().values(), wanted.numpy(), rtol=1e-5)
    assert ours.rope.attention_factor == pytest.approx(factor)
    assert read_llama(ours.to_hf()).rope == ours.rope

"""GGUF checkpoints: weights, configuration and identity, compared with transformers and gguf."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.gguf_architectures import ARCHITECTURES
from graphgen.runtime.checkpoint.gguf_checkpoint import GgufCheckpoint
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES, TensorInfo
from tests.oracles.small_gguf import (
    HEAD_DIM,
    HIDDEN,
    Value,
    small_metadata,
    write_gguf,
    write_small_model,
)
from tests.oracles.smollm2 import reference_model, smollm2_path


@pytest.fixture(scope="module")
def smollm2() -> GgufCheckpoint:
    return GgufCheckpoint(smollm2_path())


@pytest.mark.slow
def test_every_weight_is_bit_identical_to_transformers(smollm2: GgufCheckpoint):
    wanted = reference_model().state_dict()
    infos = smollm2.tensors()
    assert wanted.keys() - infos.keys() == {"lm_head.weight"}  # tied
    assert infos.keys() <= wanted.keys()
    for name, info in infos.items():
        got = smollm2.read(name)
        assert got.dtype == np.float32
        assert got.shape == info.shape == tuple(wanted[name].shape)
        assert got.tobytes() == wanted[name].numpy().tobytes(), name
    config = reference_model().config.to_dict()
    assert config["rope_parameters"]["rope_theta"] == smollm2.config["rope_theta"]
    same = smollm2.config.keys() & config.keys() - {"architectures", "rms_norm_eps"}
    assert len(same) >= 14
    assert {key: smollm2.config[key] for key in same} == {key: config[key] for key in same}
    assert smollm2.config["rms_norm_eps"] == pytest.approx(config["rms_norm_eps"], rel=1e-7)


def test_smollm2_config_is_the_published_one(smollm2: GgufCheckpoint):
    # config.json of HuggingFaceTB/SmolLM2-135M-Instruct, where it says what the model computes.
    assert dict(smollm2.config) == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "rms_norm_eps": 1e-05,
        "rope_theta": 100000,
        "rope_scaling": None,
        "max_position_embeddings": 8192,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def test_smollm2_tensors(smollm2: GgufCheckpoint):
    infos = smollm2.tensors()
    assert len(infos) == 272
    assert sum(math.prod(info.shape) for info in infos.values()) == 134_515_008
    name = "model.layers.29.self_attn.k_proj.weight"
    assert infos[name] == TensorInfo(name, (192, 576), "f32")
    with pytest.raises(GraphgenError) as caught:
        smollm2.read("lm_head.weight")
    assert caught.value.code == "GG0602"
    assert caught.value.what == "there is no tensor 'lm_head.weight'"


@pytest.mark.parametrize(("bias", "tied"), [(False, True), (True, False)])
def test_small_model_reads_back_in_hugging_face_layout(tmp_path: Path, bias: bool, tied: bool):
    path = tmp_path / "small.gguf"
    weights = write_small_model(path, bias=bias, tied=tied)
    checkpoint = GgufCheckpoint(path)
    infos = checkpoint.tensors()
    assert infos.keys() == weights.keys()
    assert {name: (infos[name].shape, infos[name].dtype) for name in infos} == {
        name: (weight.shape, "f32") for name, weight in weights.items()
    }
    for name, weight in weights.items():
        np.testing.assert_array_equal(checkpoint.read(name), weight, err_msg=name)
    assert checkpoint.config["tie_word_embeddings"] is tied
    assert checkpoint.config["attention_bias"] is bias


def test_stored_types(tmp_path: Path):
    values = np.random.default_rng(3).standard_normal((6, 64), np.float32)
    quantised = {
        name: gguf.quants.quantize(values, kind)
        for name, kind in [("q8", GGMLQuantizationType.Q8_0), ("q4", GGMLQuantizationType.Q4_1)]
    }
    bf16 = values.astype(ml_dtypes.bfloat16)
    tensors = {
        "f16": values.astype(np.float16),
        "f64": values.astype(np.float64),
        "s8": np.arange(-4, 4, dtype=np.int8),
        "s32": np.arange(4, dtype=np.int32).reshape(2, 2),
        "bf16": bf16.view(np.uint8),
        **quantised,
    }
    kinds = {
        "bf16": GGMLQuantizationType.BF16,
        "q8": GGMLQuantizationType.Q8_0,
        "q4": GGMLQuantizationType.Q4_1,
    }
    path = write_gguf(tmp_path / "types.gguf", small_metadata(), tensors, kinds=kinds)
    checkpoint = GgufCheckpoint(path)
    wanted = {
        **tensors,
        "bf16": bf16,
        "q8": gguf.quants.dequantize(quantised["q8"], GGMLQuantizationType.Q8_0),
        "q4": gguf.quants.dequantize(quantised["q4"], GGMLQuantizationType.Q4_1),
    }
    dtypes = {name: info.dtype for name, info in checkpoint.tensors().items()}
    assert dtypes == {**{name: name for name in tensors}, "q8": "f32", "q4": "f32"}
    for name, array in wanted.items():
        got = checkpoint.read(name)
        assert got.dtype == NUMPY_DTYPES[dtypes[name]]
        assert got.shape == checkpoint.tensors()[name].shape == array.shape
        assert got.tobytes() == array.tobytes(), name


def test_names_without_a_translation_are_kept():
    llama = ARCHITECTURES["llama"][-1]
    assert llama.hf_name("blk.12.ffn_up.bias") == "model.layers.12.mlp.up_proj.bias"
    assert llama.hf_name("output.weight") == "lm_head.weight"
    for name in ("blk.0.ffn_gate_exps.weight", "blk.01.attn_q.weight", "attn_q.weight", "x"):
        assert llama.hf_name(name) == name


def test_fingerprint_follows_the_contents_not_the_path(tmp_path: Path):
    first, copy, changed = (tmp_path / name for name in ("a.gguf", "b.gguf", "c.gguf"))
    write_small_model(first)
    shutil.copy(first, copy)
    fingerprint = GgufCheckpoint(first).fingerprint()
    assert len(fingerprint) == 64
    assert GgufCheckpoint(copy).fingerprint() == fingerprint
    data = bytearray(first.read_bytes())
    data[-4] ^= 1
    changed.write_bytes(data)
    assert GgufCheckpoint(changed).fingerprint() != fingerprint
    write_small_model(changed, {"llama.context_length": 65})
    assert GgufCheckpoint(changed).fingerprint() != fingerprint


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, None),
        ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}, None),
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.5},
            {"rope_type": "linear", "factor": 2.5},
        ),
        ({"llama.rope.scale_linear": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"llama.rope.scale_linear": 1.0}, None),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 16.0,
                "llama.rope.scaling.original_context_length": 4096,
                "llama.rope.scaling.yarn_beta_fast": 24.0,
                "llama.rope.scaling.finetuned": True,
            },
            {
                "rope_type": "yarn",
                "factor": 16.0,
                "original_max_position_embeddings": 4096,
                "beta_fast": 24.0,
            },
        ),
    ],
)
def test_rope_scaling(tmp_path: Path, changes: dict[str, Value], wanted: dict[str, object] | None):
    path = tmp_path / "small.gguf"
    write_small_model(path, changes)
    assert GgufCheckpoint(path).config["rope_scaling"] == wanted


@pytest.mark.parametrize(
    ("factor", "theta", "high"), [(8.0, 500000.0, 4.0), (32.0, 10000.0, 4.0), (16.0, 5e5, 1.0)]
)
def test_llama3_rope_factors_are_recognised(
    tmp_path: Path, factor: float, theta: float, high: float
):
    """The last one is Llama 4 Scout's, which blends nothing."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    parameters = {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": high,
        "original_max_position_embeddings": 8192,
    }
    config = LlamaConfig(
        hidden_size=128, num_attention_heads=1, head_dim=128, rope_parameters=parameters
    )
    scaled = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")[0].numpy()
    plain = theta ** -(np.arange(0, 128, 2) / 128)
    factors = (plain / scaled).astype(np.float32)
    assert factors.min() == pytest.approx(1)
    assert factors.max() == pytest.approx(factor)
    assert len(np.unique(factors.round(3))) > (3 if high > 1 else 1)
    path = tmp_path / "llama3.gguf"
    changes: dict[str, Value] = {"llama.attention.key_length": 128, "llama.rope.freq_base": theta}
    write_small_model(path, changes, more={"rope_freqs.weight": factors})
    checkpoint = GgufCheckpoint(path)
    scaling = checkpoint.config["rope_scaling"]
    assert isinstance(scaling, dict)
    assert scaling.pop("factor") == pytest.approx(factor)
    assert scaling == {
        key: value for key, value in parameters.items() if key not in ("rope_theta", "factor")
    }
    assert "rope_freqs.weight" not in checkpoint.tensors()


def test_rope_factors_of_one_are_no_scaling(tmp_path: Path):
    path = tmp_path / "small.gguf"
    ones = np.ones(HEAD_DIM // 2, np.float32)
    write_small_model(path, more={"rope_freqs.weight": ones})
    assert GgufCheckpoint(path).config["rope_scaling"] is None


@pytest.mark.parametrize(
    ("factors", "changes", "why"),
    [
        (np.arange(1, 5, dtype=np.float32), {}, "its values are not those of a Llama 3 model"),
        (np.full(4, np.nan, np.float32), {}, "its values are not finite numbers above 0"),
        (np.ones(3, np.float32), {}, "it is F32 of shape (3,)"),
        (np.ones(4, np.float16), {}, "it is F16 of shape (4,)"),
        (
            np.ones(4, np.float32),
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0},
            "scaling of type 'linear' is stated beside it",
        ),
    ],
)
def test_other_rope_factors_are_refused(
    tmp_path: Path, factors: np.ndarray, changes: dict[str, Value], why: str
):
    path = tmp_path / "small.gguf"
    write_small_model(path, changes, more={"rope_freqs.weight": factors})
    with pytest.raises(GraphgenError) as caught:
        GgufCheckpoint(path)
    assert str(caught.value).replace(str(tmp_path), "DIR") == (
        "error[GG0502]: the GGUF tensor 'rope_freqs.weight' scales rotary embeddings in a way "
        f"that cannot be translated: {why}\n"
        "  --> DIR/small.gguf\n"
        "  help: use the model's safetensors checkpoint instead"
    )


@pytest.mark.parametrize(
    ("changes", "code", "what"),
    [
        (
            {"llama.attention.head_count": None},
            "GG0601",
            "GGUF metadata 'llama.attention.head_count' is missing",
        ),
        (
            {"llama.attention.head_count_kv": [2, 1]},
            "GG0601",
            "GGUF metadata 'llama.attention.head_count_kv' is an array of 2 values, not an integer",
        ),
        (
            {"llama.block_count": 0},
            "GG0503",
            "GGUF metadata 'llama.block_count' is 0; it must be at least 1",
        ),
        (
            {"llama.rope.freq_base": math.nan},
            "GG0503",
            "GGUF metadata 'llama.rope.freq_base' is nan; it must be a finite number above 0",
        ),
        (
            {"llama.attention.head_count": 3},
            "GG0503",
            "GGUF metadata 'llama.embedding_length' is 32, no multiple of the 3 attention heads",
        ),
        (
            {"llama.rope.dimension_count": 4},
            "GG0502",
            "GGUF metadata 'llama.rope.dimension_count' is 4: it must be the head size, 8",
        ),
        (
            {"llama.attention.causal": False},
            "GG0502",
            "GGUF metadata 'llama.attention.causal' is False: this kind of model is not supported",
        ),
        (
            {"llama.expert_count": 8},
            "GG0601",
            "GGUF metadata 'llama.expert_used_count' is missing",
        ),
        (
            {"llama.logit_scale": 0.5},
            "GG0502",
            "GGUF metadata 'llama.logit_scale' is 0.5: this setting is not known, "
            "and it may change what the model computes",
        ),
        (
            {"llama.rope.scaling.type": "longrope"},
            "GG0502",
            "GGUF metadata 'llama.rope.scaling.type' is 'longrope': supported: none, linear, yarn",
        ),
        (
            {"llama.rope.scaling.attn_factor": 1.5},
            "GG0502",
            "GGUF metadata 'llama.rope.scaling.attn_factor' is 1.5: only 1.0 is supported",
        ),
        (
            {"general.type": "adapter"},
            "GG0502",
            "GGUF metadata 'general.type' is 'adapter': only whole models can be read",
        ),
    ],
)
def test_configurations_that_are_refused(
    tmp_path: Path, changes: dict[str, Value | None], code: str, what: str
):
    path = tmp_path / "small.gguf"
    write_small_model(path, changes)
    with pytest.raises(GraphgenError) as caught:
        GgufCheckpoint(path)
    assert str(caught.value) == f"error[{code}]: {what}\n  --> {path}"


def test_harmless_keys_are_accepted(tmp_path: Path):
    path = tmp_path / "small.gguf"
    changes: dict[str, Value | None] = {
        "llama.attention.head_count_kv": None,
        "llama.expert_count": 0,
        "llama.attention.causal": True,
        "llama.vocab_size": 330,
        "llama.tensor_data_layout": "Meta AI original pth",
        "split.count": 1,
    }
    path = write_gguf(
        path, {k: v for k, v in {**small_metadata(), **changes}.items() if v is not None}, {}
    )
    assert GgufCheckpoint(path).config["num_key_value_heads"] == 4


def test_other_architectures_are_refused(tmp_path: Path):
    path = write_gguf(tmp_path / "gemma.gguf", {}, {}, architecture="gemma")
    with pytest.raises(GraphgenError) as caught:
        GgufCheckpoint(path)
    assert str(caught.value) == (
        "error[GG0501]: the GGUF file holds architecture 'gemma'; "
        "supported: bloom, chatglm, dbrx, deepseek2, falcon, gemma2, gemma3, glm4, gpt-oss, gpt2, "
        "gptneox, granite, granitemoe, llama, llama4, olmo2, phi3, qwen2, qwen2moe, qwen3, "
        "qwen3moe, smollm3, stablelm\n"
        f"  --> {path}\n"
        "  help: use the model's safetensors checkpoint instead"
    )


def test_rows_that_the_heads_cannot_share(tmp_path: Path):
    path = tmp_path / "small.gguf"
    metadata = {**small_metadata(), "llama.attention.key_length": 8}
    odd = np.zeros((12, HIDDEN), np.float32)
    write_gguf(path, metadata, {"blk.0.attn_q.weight": odd, "blk.0.attn_v.weight": odd})
    checkpoint = GgufCheckpoint(path)
    np.testing.assert_array_equal(checkpoint.read("model.layers.0.self_attn.v_proj.weight"), odd)
    with pytest.raises(GraphgenError) as caught:
        checkpoint.read("model.layers.0.self_attn.q_proj.weight")
    assert str(caught.value) == (
        "error[GG0601]: tensor 'blk.0.attn_q.weight' has 12 rows, which 4 heads of even size "
        f"cannot share\n  --> {path}"
    )

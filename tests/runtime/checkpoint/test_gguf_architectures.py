"""GGUF files of every architecture: the tensors and the logits of the model they were made of."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.models import FAMILIES
from graphgen.models.gemma3 import read_gemma3
from graphgen.runtime.checkpoint.gguf_architectures import ARCHITECTURES
from graphgen.runtime.checkpoint.gguf_checkpoint import GgufCheckpoint
from graphgen.runtime.checkpoint.interfaces import Array
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from tests.oracles.families import ORACLES
from tests.oracles.family_oracle import ALL_AT_ONCE, THETA, YARN
from tests.oracles.gguf_converter import Converter
from tests.oracles.gguf_models import CONVERTERS, write_model
from tests.oracles.gguf_newer_models import write_latent
from tests.oracles.sessions import open_session
from tests.oracles.stored_names import stored_tensors

# What llama.cpp's converter has no word for is left out: GPT-2 with other activations or scales,
# BLOOM with another residual, GPT-NeoX without parallel bias, windows of Qwen and Mistral. Gemma 3
# has six layers here, since every sixth reads all positions.
SIX: dict[str, Any] = {"num_hidden_layers": 7, "layer_types": None, "sliding_window_pattern": 6}
GEMMA: dict[str, Any] = {**SIX, "query_pre_attn_scalar": 12}
# Nor has it one for the bounds of GPT-OSS's gating, for layers of SmolLM3 without positions other
# than every fourth one, for Falcon's base, and for DeepSeek's two scales where they differ.
_SCALED = {**YARN, "mscale": 0.7, "mscale_all_dim": 0.7}
LLAMA4: dict[str, Any] = {
    "num_hidden_layers": 5,
    "no_rope_layer_interval": 4,
    "attention_chunk_size": 8192,
    "floor_scale": 8192,
    "attn_scale": 0.1,
}
NEWER: list[tuple[str, str, dict[str, Any]]] = [
    ("mixtral", "plain", {}),
    ("qwen2_moe", "plain", {}),
    ("qwen3_moe", "weights that sum to 1", {}),
    ("gpt_oss", "plain", {"swiglu_limit": 7.0}),
    ("gpt_oss", "no biases, tied", {"swiglu_limit": 7.0, "rope_parameters": THETA}),
    ("dbrx", "plain", {}),
    ("granitemoe", "plain", {}),
    ("llama4_text", "plain", LLAMA4),
    ("llama4_text", "dense layers", {**LLAMA4, "use_qk_norm": True}),
    ("deepseek_v2", "queries of hidden states", {"rope_parameters": _SCALED}),
    ("deepseek_v2", "some groups", {}),
    ("deepseek_v3", "plain", {}),
    ("deepseek_v3", "no groups", {}),
    ("phi3", "a window", {}),
    ("phi3", ALL_AT_ONCE, {}),
    ("granite", "plain", {}),
    ("granite", "the scores alone", {}),
    ("smollm3", "plain", {"num_hidden_layers": 5, "no_rope_layer_interval": 4}),
    ("glm", "no biases, tied", {"head_dim": 8}),
    ("glm4", "plain", {}),
    ("falcon", "plain", {}),
    ("falcon", "groups, one norm", {}),
    ("falcon", ALL_AT_ONCE, {"rope_parameters": {**THETA, "rope_theta": 10000.0}}),
]
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("llama", "plain", {}),
    ("llama", "linear positions", {}),
    ("llama", "tied", {}),
    ("llama", "biases", {}),
    ("llama", "its own head size", {}),
    ("mistral", "plain", {}),
    ("qwen2", "plain", {}),
    ("qwen2", "plain", {"tie_word_embeddings": True}),
    ("qwen3", "plain", {}),
    ("qwen3", "square", {}),
    ("qwen3", "biases", {}),
    ("gemma3_text", "plain", GEMMA),
    ("olmo2", "plain", {}),
    ("olmo2", "plain", {"tie_word_embeddings": True}),
    ("gemma2", "plain", {"query_pre_attn_scalar": 12}),
    ("stablelm", "biases", {"layer_norm_eps": 1e-5}),
    ("stablelm", "in parallel", {}),
    ("stablelm", "in parallel", {"qk_layernorm": True, "tie_word_embeddings": False}),
    ("gpt2", "plain", {}),
    ("gpt2", "odd heads", {}),
    ("gpt2", "not tied", {}),
    ("bloom", "plain", {}),
    ("bloom", "no power of two", {}),
    ("bloom", "not tied", {}),
    ("gpt_neox", "plain", {}),
    ("gpt_neox", "one after the other", {"hidden_act": "gelu"}),
    *NEWER,
]
LENGTHS = (5, 1, 20)


def made(family: str, variant: str, changes: dict[str, Any]) -> PreTrainedModel:
    changes = dict(changes)
    types = changes.pop("layer_types", "as it is")
    pattern = changes.pop("sliding_window_pattern", 0)
    if types is None:
        layers = range(1, changes["num_hidden_layers"] + 1)
        kinds = [f"{'sliding' if n % pattern else 'full'}_attention" for n in layers]
        changes["layer_types"] = kinds
    return ORACLES[family].model(variant, initializer_range=0.1, **changes)


def assert_near(ours: Array, theirs: Array, error: float, name: str) -> None:
    wide = [array.astype(np.float64) for array in (ours, theirs)]
    np.testing.assert_allclose(*wide, rtol=0, atol=error, err_msg=name)


def logits_of(model: PreTrainedModel, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


@pytest.mark.parametrize(("family", "variant", "changes"), CASES)
@pytest.mark.one_in(4)
def test_tensors_and_logits_are_the_models(
    family: str, variant: str, changes: dict[str, Any], tmp_path: Path
):
    model = made(family, variant, changes)
    (path,) = write_model(model, tmp_path / "model.gguf")
    checkpoint = open_checkpoint(path)
    wanted = stored_tensors(model)
    if model.config.tie_word_embeddings:
        del wanted["lm_head.weight"]
    infos = checkpoint.tensors()
    assert infos.keys() == wanted.keys()
    # Gemma's weights have been rounded together with the 1.
    near = 2**-23 if family in ("gemma2", "gemma3_text") else 0.0
    for name, array in wanted.items():
        assert infos[name].shape == array.shape
        assert_near(checkpoint.read(name), array, near, name)
    session = open_session(path, CompileConfig(dtype="f32").serving(batch=len(LENGTHS), max_len=32))
    random = np.random.default_rng(3)
    texts = [random.integers(0, 61, size + 1).tolist() for size in LENGTHS]
    theirs = [logits_of(model, text) for text in texts]
    ours = [session.prefill([text[:-1] for text in texts])]
    ours.append(session.decode([text[-1] for text in texts]))
    for step, found in enumerate(ours):
        expected = np.stack([t[n - 1 + step] for t, n in zip(theirs, LENGTHS, strict=True)])
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


# What transformers reads of GGUF itself.
READ = ("llama", "qwen2", "qwen3", "gpt2", "bloom", "gemma3_text")


@pytest.mark.parametrize("family", READ)
def test_transformers_reads_the_same_from_the_file(family: str, tmp_path: Path):
    """So the files these tests write are what others write."""
    # Of these it does not read the setting: Qwen3's heads are of 128, GPT-2 has 1024 positions.
    published = {"gpt2": {"n_positions": 1024}, "qwen3": {"head_dim": 128}}
    changes = {"gemma3_text": GEMMA, **published}.get(family, {})
    write_model(made(family, "plain", changes), tmp_path / "model.gguf")
    read = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf")
    checkpoint = open_checkpoint(tmp_path / "model.gguf")
    names = checkpoint.tensors().keys()
    theirs = {name: tensor.numpy() for name, tensor in read.state_dict().items()}
    assert names <= theirs.keys()
    for name in names:
        assert_near(checkpoint.read(name), theirs[name], 2**-23, name)


def test_every_architecture_is_tried():
    archs = {gguf.MODEL_ARCH_NAMES[converter.arch] for converter in CONVERTERS.values()}
    assert archs == ARCHITECTURES.keys()
    # llama.cpp writes no files of opt and gptj.
    assert FAMILIES.keys() - CONVERTERS.keys() == {"opt", "gptj"}


@pytest.mark.parametrize(
    ("key", "kinds"),
    [
        (None, "sssssfs"),
        (3, "ssfssfs"),
        ([1, 0, 0, 1, 1, 1, 0], "sffsssf"),
    ],
)
def test_gemma_layers_are_what_the_file_says(key: Any, kinds: str, tmp_path: Path):
    (path,) = write_model(made("gemma3_text", "plain", GEMMA), tmp_path / "model.gguf")
    add = {} if key is None else {"gemma3.attention.sliding_window_pattern": key}
    config = rewritten(path, add).config
    read = read_gemma3(config)
    windows = [read.attention(layer).window for layer in range(7)]
    assert windows == [4 if kind == "s" else 0 for kind in kinds]
    assert config["rope_local_base_freq"] == 10000.0
    assert config["query_pre_attn_scalar"] == 12
    local = rewritten(path, {"gemma3.rope.freq_base_swa": 5000.0}).config
    assert local["rope_local_base_freq"] == 5000.0


def test_deepseeks_older_files_have_one_projection_of_keys_and_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """And name the sizes of heads, where newer ones name those of latents."""

    def settings(writer: gguf.GGUFWriter, config: Any) -> None:
        write_latent(writer, config)
        writer.add_head_count_kv(config.num_attention_heads)
        writer.add_key_length(config.qk_nope_head_dim + config.qk_rope_head_dim)
        writer.add_value_length(config.v_head_dim)

    model = made("deepseek_v2", "plain", {})
    (newer,) = write_model(model, tmp_path / "newer.gguf")
    older = Converter(gguf.MODEL_ARCH.DEEPSEEK2, settings)
    monkeypatch.setitem(CONVERTERS, "deepseek_v2", older)
    (path,) = write_model(model, tmp_path / "older.gguf")
    found, wanted = GgufCheckpoint(path), GgufCheckpoint(newer)
    assert found.config == wanted.config
    assert found.tensors().keys() == wanted.tensors().keys()
    for name in found.tensors():
        np.testing.assert_array_equal(found.read(name), wanted.read(name))


def rewritten(path: Path, add: dict[str, Any]) -> GgufCheckpoint:
    """The file with other settings as well."""
    reader = gguf.GGUFReader(path)
    other = path.with_name("other.gguf")
    arch = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(other, arch)
    for name, value in reader.fields.items():
        if name.startswith(f"{arch}.") and name not in add:
            writer.add_key_value(name, value.contents(), value.types[0])
    for name, value in add.items():
        if isinstance(value, list):
            writer.add_array(name, [bool(one) for one in value])
        else:
            kind = gguf.GGUFValueType.get_type(value)
            writer.add_key_value(name, value, kind)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufCheckpoint(other)


@pytest.mark.parametrize(
    ("family", "add", "what"),
    [
        ("qwen2", {"qwen2.attention.sliding_window": 4}, "this kind of model is not supported"),
        ("gemma3_text", {"gemma3.final_logit_softcapping": 30.0}, "this setting is not known"),
        ("bloom", {"bloom.feed_forward_length": 96}, "it must be four times the width, 128"),
        ("bloom", {"bloom.attention.head_count_kv": 2}, "it must be the number of heads, 4"),
        ("gpt2", {"gpt2.attention.causal": False}, "this kind of model is not supported"),
        ("gpt_neox", {"gptneox.rope.scaling.factor": 2.0}, "this setting is not known"),
        ("deepseek_v2", {"deepseek2.expert_gating_func": 3}, r"supported: 1 \(softmax\), 2"),
        ("llama4_text", {"llama4.attention.sliding_window": 64}, "layers have chunks of 8192"),
        ("granite", {"granite.rope.scaling.finetuned": False}, "without rotary positions"),
        ("dbrx", {"dbrx.attention.layer_norm_epsilon": 0.5}, "it must be 1e-05"),
        ("qwen3_moe", {"qwen3moe.expert_weights_scale": 2.0}, "this setting is not known"),
        ("gpt_oss", {"gpt-oss.rope.scaling.attn_factor": 2.0}, "only 1.0 is supported"),
    ],
)
def test_settings_that_are_refused(family: str, add: dict[str, Any], what: str, tmp_path: Path):
    model = made(family, "plain", GEMMA if family == "gemma3_text" else {})
    (path,) = write_model(model, tmp_path / "model.gguf")
    with pytest.raises(GraphgenError, match=what) as caught:
        rewritten(path, add)
    assert caught.value.code == "GG0502"


@pytest.mark.parametrize(
    ("add", "what"),
    [
        (
            {"phi3.feed_forward_length": 40},
            "tensor 'blk.0.ffn_up.weight' has 96 rows; mlp.gate_proj, mlp.up_proj have 80",
        ),
        (
            {"phi3.rope.scaling.type": "longrope"},
            "tensor 'rope_factors_short.weight' is missing, which scales rotary embeddings",
        ),
    ],
)
def test_tensors_that_do_not_fit_the_settings(add: dict[str, Any], what: str, tmp_path: Path):
    (path,) = write_model(made("phi3", "plain", {}), tmp_path / "model.gguf")
    with pytest.raises(GraphgenError) as caught:
        rewritten(path, add)
    assert (caught.value.code, caught.value.what) == ("GG0601", what)


@pytest.fixture
def split(tmp_path: Path) -> list[Path]:
    return write_model(made("qwen2", "plain", {}), tmp_path / "model.gguf", parts=3)


@pytest.mark.parametrize("given", [0, 2, "folder"])
def test_a_model_in_parts(given: int | str, split: list[Path], tmp_path: Path):
    assert [path.name for path in split] == [f"model-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    checkpoint = open_checkpoint(tmp_path if given == "folder" else split[int(given)])
    assert checkpoint.path == split[0]
    wanted = {n: t.numpy() for n, t in made("qwen2", "plain", {}).state_dict().items()}
    assert checkpoint.tensors().keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(checkpoint.read(name), array)


def test_the_identity_is_that_of_all_parts(split: list[Path], tmp_path: Path):
    before = open_checkpoint(split[0]).fingerprint()
    assert open_checkpoint(split[1]).fingerprint() == before
    data = bytearray(split[2].read_bytes())
    data[-1] ^= 1
    split[2].write_bytes(data)
    assert open_checkpoint(split[0]).fingerprint() != before


def test_a_part_is_missing(split: list[Path]):
    split[1].unlink()
    with pytest.raises(GraphgenError) as caught:
        open_checkpoint(split[0])
    assert str(caught.value) == (
        "error[GG0601]: 1 of the 3 files of the model are not there\n"
        f"  --> {split[0]}\n"
        "   |  missing: model-00002-of-00003.gguf\n"
        "  help: copy or download what is missing into the folder"
    )


def test_parts_that_do_not_belong_together(split: list[Path], tmp_path: Path):
    first, second, third = split
    kept = second.read_bytes()
    shutil.copy(third, second)
    with pytest.raises(GraphgenError, match="part 2 of 3, by what it says of itself part 3 of 3"):
        open_checkpoint(first)
    second.write_bytes(kept)
    alone = tmp_path / "alone" / "model.gguf"
    alone.parent.mkdir()
    shutil.copy(second, alone)
    with pytest.raises(GraphgenError, match="part 2 of 3, but is not called NAME-00001-of-00003"):
        open_checkpoint(alone)
    other = tmp_path / "other"
    other.mkdir()
    theirs = write_model(
        made("qwen2", "plain", {"num_hidden_layers": 3}), other / "model.gguf", parts=3
    )
    shutil.copy(theirs[2], third)
    with pytest.raises(GraphgenError, match=r"is in another part too|declares \d+"):
        open_checkpoint(first)


def test_converted_names_are_ours(tmp_path: Path):
    """The table of the gguf package and ours agree on every tensor of every family."""
    for family in filter(FAMILIES.__contains__, CONVERTERS):
        model = made(family, "plain", GEMMA if family == "gemma3_text" else {})
        (path,) = write_model(model, tmp_path / f"{family}.gguf")
        checkpoint = GgufCheckpoint(path)
        assert checkpoint.config["model_type"] == family.replace("mistral", "llama")
        assert checkpoint.tensors().keys() <= stored_tensors(model).keys()


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_layers_of_qwen_have_no_window(family: str, tmp_path: Path):
    (path,) = write_model(made(family, "plain", {}), tmp_path / "model.gguf")
    assert GgufCheckpoint(path).config["use_sliding_window"] is False

"""Programs in the shape of the listings of NxD Inference's guide and reference, run to their end.

Each uses the calls of one listing, in words of its own, on small random checkpoints; what it
generates is compared with transformers. ``tests/runtime/aws/test_listings.py`` runs the listings
themselves, where the documents are at hand.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from graphgen.ir import Role
from graphgen.runtime.aws.nxdi import (
    FusedSpecNeuronConfig,
    HuggingFaceGenerationAdapter,
    LlamaInferenceConfig,
    LlamaNeuronConfig,
    LoraServingConfig,
    NeuronConfig,
    NeuronLlamaForCausalLM,
    OnDeviceSamplingConfig,
    get_generate_outputs,
    load_pretrained_config,
)
from tests.oracles.eagle import write_eagle
from tests.oracles.families import ORACLES, save, save_as, save_tokenizer
from tests.oracles.lora_adapters import merged, random_factors, save_adapter
from tests.oracles.medusa import random_heads, save_heads

pytestmark = pytest.mark.slow

SIZES: Mapping[str, Any] = {
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "eos_token_id": None,
}
PROMPTS = ["the cat sat on", "the mat"]
NEW = 8


def checkpoint(folder: Path, form: str = "safetensors single", **changes: Any) -> Path:
    """A random Llama with a tokenizer and settings of generation."""
    save_as(ORACLES["llama"].model(**SIZES, **changes), folder, form)
    save_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, pad_token="!", eos_token="!")
    tokenizer.save_pretrained(folder)
    GenerationConfig(pad_token_id=tokenizer.pad_token_id).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(checkpoint(tmp_path_factory.mktemp("models") / "Llama-mini"))


@pytest.fixture(scope="module")
def draft_model_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "Llama-draft"
    return str(checkpoint(folder, num_hidden_layers=1))


def wanted(path: str, prompts: list[str], **changed: Any) -> list[list[int]]:
    """The best tokens of transformers, a prompt at a time."""
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    if changed:
        model.load_state_dict(changed["state"])
    tokenizer = AutoTokenizer.from_pretrained(path)
    found: list[list[int]] = []
    for prompt in prompts:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False
        )
        found.append(made[0, ids.shape[1] :].tolist())
    return found


def answered(model: Any, path: str, prompts: list[str], **arguments: Any) -> list[list[int]]:
    """New tokens by the adapter."""
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    inputs = tokenizer(prompts, padding=True, return_tensors="pt")
    outputs: Any = HuggingFaceGenerationAdapter(model).generate(
        inputs.input_ids,
        attention_mask=inputs.attention_mask,
        **{"max_new_tokens": NEW, "do_sample": False, **arguments},
    )
    return outputs[:, inputs.input_ids.shape[1] :].tolist()


def settings(path: str, **given: Any) -> GenerationConfig:
    made = GenerationConfig.from_pretrained(path)
    made.max_new_tokens = NEW
    made.update(**given)
    return made


F32: Mapping[str, Any] = {"torch_dtype": torch.float32}
# One listing each: an attribute that leaves the best tokens as they are.
ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "logical cores": {"logical_nc_config": 2},
    "sequence parallelism": {"sequence_parallel_enabled": True, "tp_degree": 2},
    "two prompts": {"batch_size": 2},
    "sampling in the programs": {
        "on_device_sampling_config": OnDeviceSamplingConfig(global_topk=256)
    },
    "dynamic sampling": {"on_device_sampling_config": OnDeviceSamplingConfig(dynamic=True)},
    "joined projections": {"fused_qkv": True},
    "automatic buckets": {"enable_bucketing": True, "seq_len": 256},
    "buckets": {
        "enable_bucketing": True,
        "seq_len": 256,
        "max_context_length": 64,
        "context_encoding_buckets": [16, 32, 64],
        "token_generation_buckets": [256],
    },
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_keeps_the_best_tokens(name: str, model_path: str):
    neuron_config = NeuronConfig(**F32, **ATTRIBUTES[name])
    config = LlamaInferenceConfig(neuron_config, load_config=load_pretrained_config(model_path))
    model = NeuronLlamaForCausalLM(model_path, config).to_cpu()
    prompts = PROMPTS[: ATTRIBUTES[name].get("batch_size", 1)]
    assert answered(model, model_path, prompts) == wanted(model_path, prompts)


def test_a_quantized_cache_keeps_most_tokens(model_path: str):
    """Caches have a byte a number; logits of the reference's own tokens are near its logits."""
    neuron_config = NeuronConfig(kv_cache_quant=True, **F32)
    config = LlamaInferenceConfig(neuron_config, load_config=load_pretrained_config(model_path))
    model: Any = NeuronLlamaForCausalLM(model_path, config).to_cpu()
    caches = model.running().session.module.entries(Role.STATE)
    # The CPU keeps the bits of 8-bit floats as integers.
    assert {row.physical.text for row in caches} == {"u8[1,128,2,8]"}
    assert all("f8e4m3" in row.pack for row in caches)
    (prompt,) = AutoTokenizer.from_pretrained(model_path)(PROMPTS[:1]).input_ids
    text = [*prompt, *wanted(model_path, PROMPTS[:1])[0]]
    reference: Any = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    with torch.no_grad():
        exact = reference(torch.tensor([text])).logits[0, len(prompt) :].numpy()
    model.reset()
    model(input_ids=torch.tensor([prompt]))
    steps = [model(input_ids=torch.tensor([[token]])).logits for token in text[len(prompt) :]]
    found = np.stack([np.asarray(logits).reshape(-1) for logits in steps])
    errors = np.linalg.norm(found - exact, axis=-1) / np.linalg.norm(exact, axis=-1)
    # A number of three bits behind the first one is off by up to 1/16. Caches in f32: 1e-6.
    assert 1e-3 < errors.min() <= errors.max() < 0.2
    assert (found.argmax(axis=-1) == exact.argmax(axis=-1)).mean() >= 0.75


def test_a_model_is_configured_compiled_and_loaded(model_path: str, tmp_path: Path):
    neuron_config = LlamaNeuronConfig(**F32)
    config = LlamaInferenceConfig(neuron_config, load_config=load_pretrained_config(model_path))
    model = NeuronLlamaForCausalLM(model_path, config)
    model.compile(str(tmp_path / "compiled"))
    loaded = NeuronLlamaForCausalLM(str(tmp_path / "compiled"))
    loaded.load(str(tmp_path / "compiled"))
    assert answered(loaded, model_path, PROMPTS[:1]) == wanted(model_path, PROMPTS[:1])


def test_texts_are_generated_up_to_the_longest_sequence(model_path: str):
    neuron_config = NeuronConfig(batch_size=2, seq_len=32, **F32)
    config = LlamaInferenceConfig(neuron_config, load_config=load_pretrained_config(model_path))
    model = NeuronLlamaForCausalLM(model_path, config).to_cpu()
    tokenizer = AutoTokenizer.from_pretrained(model_path, padding_side="left")
    generation_model: Any = HuggingFaceGenerationAdapter(model)
    inputs = tokenizer(PROMPTS, padding=True, return_tensors="pt")
    outputs = generation_model.generate(
        inputs.input_ids,
        generation_config=GenerationConfig.from_pretrained(model_path),
        attention_mask=inputs.attention_mask,
        max_length=model.neuron_config.max_length,
    )
    assert outputs.shape == (2, 32)
    texts = tokenizer.batch_decode(
        outputs, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    assert all(text.startswith(prompt) for text, prompt in zip(texts, PROMPTS, strict=True))


def test_rows_have_settings_of_their_own(model_path: str):
    device = OnDeviceSamplingConfig(dynamic=True, do_sample=True)
    neuron_config = NeuronConfig(batch_size=2, on_device_sampling_config=device, **F32)
    config = LlamaInferenceConfig(neuron_config, load_config=load_pretrained_config(model_path))
    model: Any = NeuronLlamaForCausalLM(model_path, config).to_cpu()
    ids = torch.tensor([[5, 6, 7], [5, 6, 7]])
    sampling_params = torch.tensor([[50, 0.5, 0.75], [1, 1.0, 1.0]])
    reference: Any = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    with torch.no_grad():
        order = reference(ids[:1]).logits[0, -1].argsort(descending=True).tolist()
    for _ in range(3):
        model.reset()
        out = model(input_ids=ids, sampling_params=sampling_params)
        first, second = out.tokens.flatten().tolist()
        assert order.index(first) < 50
        assert second == order[0]


def test_tokens_are_drawn_from_the_best_five(model_path: str):
    device = OnDeviceSamplingConfig(top_k=5)
    neuron_config = NeuronConfig(on_device_sampling_config=device, **F32)
    config = LlamaInferenceConfig(neuron_config, load_config=load_pretrained_config(model_path))
    model: Any = NeuronLlamaForCausalLM(model_path, config).to_cpu()
    ids = torch.tensor([[5, 6, 7]])
    reference: Any = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    with torch.no_grad():
        best = reference(ids).logits[0, -1].topk(5).indices.tolist()
    for _ in range(5):
        model.reset()
        assert model(input_ids=ids).tokens.item() in best


def test_weights_are_quantized_saved_compiled_and_loaded(model_path: str, tmp_path: Path):
    neuron_config = NeuronConfig(
        quantized=True,
        quantized_checkpoints_path=str(tmp_path / "quantized"),
        quantization_dtype="int8",
        quantization_type="per_tensor_symmetric",
        **F32,
    )
    config = LlamaInferenceConfig(neuron_config, load_config=load_pretrained_config(model_path))
    NeuronLlamaForCausalLM.save_quantized_state_dict(model_path, config)
    model = NeuronLlamaForCausalLM(model_path, config)
    model.compile(str(tmp_path / "compiled"))
    model.load(str(tmp_path / "compiled"))
    stored = load_file(tmp_path / "quantized" / "model.safetensors")
    plain = load_file(f"{model_path}/model.safetensors")
    state = {name: value.clone() for name, value in plain.items()}
    for name, value in stored.items():
        if name.endswith(".scale"):
            continue
        full = name if name in plain else f"model.{name}"
        scale = stored.get(name.removesuffix("weight") + "scale")
        state[full] = value.float() * scale if scale is not None else value.float()
    state["lm_head.weight"] = state.get("lm_head.weight", state["model.embed_tokens.weight"])
    best = wanted(model_path, PROMPTS[:1], state=state)
    assert answered(model, model_path, PROMPTS[:1]) == best


def test_a_draft_of_its_own_folder_proposes(model_path: str, draft_model_path: str, tmp_path: Path):
    neuron_config = NeuronConfig(speculation_length=5, trace_tokengen_model=False, **F32)
    config = LlamaInferenceConfig(neuron_config, load_config=load_pretrained_config(model_path))
    model = NeuronLlamaForCausalLM(model_path, config)
    draft_neuron_config = copy.deepcopy(neuron_config)
    draft_neuron_config.speculation_length = 0
    draft_neuron_config.trace_tokengen_model = True
    draft_config = LlamaInferenceConfig(
        draft_neuron_config, load_config=load_pretrained_config(draft_model_path)
    )
    draft_model = NeuronLlamaForCausalLM(draft_model_path, draft_config)
    for each, name in ((model, "target"), (draft_model, "draft")):
        each.compile(str(tmp_path / name))
        each.load(str(tmp_path / name))
    tokenizer = AutoTokenizer.from_pretrained(
        model_path, padding_side=model.neuron_config.padding_side
    )
    outputs, texts = get_generate_outputs(
        model,
        PROMPTS[:1],
        tokenizer,
        is_hf=False,
        draft_model=draft_model,
        generation_config=settings(model_path),
    )
    assert isinstance(outputs, torch.Tensor)
    assert outputs[0, -NEW:].tolist() == wanted(model_path, PROMPTS[:1])[0]
    assert texts[0].startswith(PROMPTS[0])


def test_heads_of_medusa_propose_by_a_tree_of_a_file(model_path: str, tmp_path: Path):
    folder = tmp_path / "medusa"
    model: Any = AutoModelForCausalLM.from_pretrained(model_path)
    save(model, folder)
    save_tokenizer(folder)
    width, words = int(model.config.hidden_size), int(model.config.vocab_size)
    save_heads(folder, random_heads(width, words, 4))
    (tmp_path / "tree.json").write_text(json.dumps([[0], [1], [0, 0], [0, 0, 0], [0, 0, 0, 0]]))
    medusa_tree = json.loads((tmp_path / "tree.json").read_text())
    neuron_config = NeuronConfig(
        is_medusa=True,
        medusa_speculation_length=64,
        num_medusa_heads=4,
        medusa_tree=medusa_tree,
        **F32,
    )
    config = LlamaInferenceConfig(neuron_config, load_config=load_pretrained_config(folder))
    made = NeuronLlamaForCausalLM(str(folder), config).to_cpu()
    best = wanted(model_path, PROMPTS[:1])
    assert answered(made, model_path, PROMPTS[:1], assistant_model=made) == best


def head_of(folder: Path) -> torch.Tensor:
    """The head of a checkpoint in parts, by its index."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    with safe_open(folder / index["weight_map"]["lm_head.weight"], framework="pt") as file:
        return file.get_tensor("lm_head.weight")


def eagle_draft(target: Path, folder: Path) -> Path:
    """A random draft of EAGLE for a target, without a head."""
    config = json.loads((target / "config.json").read_text())
    named = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    write_eagle(folder, vocab_size=300, **{name: config[name] for name in named})
    return folder


@pytest.fixture(scope="module")
def target_in_parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "Meta-Llama-mini"
    return checkpoint(folder, "safetensors sharded", tie_word_embeddings=False)


def test_a_head_is_copied_into_a_draft(target_in_parts: Path, tmp_path: Path):
    draft = eagle_draft(target_in_parts, tmp_path / "draft")
    file = os.path.join(draft, "model.safetensors")
    tensors = load_file(file)
    assert "lm_head.weight" not in tensors
    tensors["lm_head.weight"] = head_of(target_in_parts).type(torch.float16)
    save_file(tensors, file)
    model = fused_eagle(str(target_in_parts), str(draft)).to_cpu()
    best = wanted(str(target_in_parts), PROMPTS[:1])
    assert answered(model, str(target_in_parts), PROMPTS[:1]) == best


def fused_eagle(model_path: str, draft_model_path: str, **given: Any) -> NeuronLlamaForCausalLM:
    """A target with the draft of EAGLE in its configuration."""
    neuron_config = NeuronConfig(
        batch_size=1,
        enable_eagle_speculation=True,
        enable_fused_speculation=True,
        max_context_length=64,
        max_length=64,
        seq_len=64,
        speculation_length=5,
        tp_degree=2,
        trace_tokengen_model=False,
        **F32,
        **given,
    )
    config = NeuronLlamaForCausalLM.get_config_cls()(
        neuron_config, load_config=load_pretrained_config(model_path)
    )
    draft_neuron_config = copy.deepcopy(neuron_config)
    draft_neuron_config.trace_tokengen_model = True
    draft_neuron_config.enable_fused_speculation = False
    draft_neuron_config.is_eagle_draft = True
    draft_neuron_config.sequence_parallel_enabled = False
    config.fused_spec_config = FusedSpecNeuronConfig(
        NeuronLlamaForCausalLM._model_cls,
        draft_config=NeuronLlamaForCausalLM.get_config_cls()(
            draft_neuron_config, load_config=load_pretrained_config(draft_model_path)
        ),
        draft_model_path=draft_model_path,
    )
    return NeuronLlamaForCausalLM(model_path, config)


def test_an_eagle_draft_with_settings_of_sampling(target_in_parts: Path, tmp_path: Path):
    draft = eagle_draft(target_in_parts, tmp_path / "draft")
    device = OnDeviceSamplingConfig(temperature=0.7, top_k=50, top_p=1.0)
    path = str(target_in_parts)
    model = fused_eagle(path, str(draft), on_device_sampling_config=device)
    model.compile(str(tmp_path / "compiled"))
    model.load(str(tmp_path / "compiled"))
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side=model.neuron_config.padding_side)
    given = settings(path, pad_token_id=tokenizer.eos_token_id)
    outputs, _ = get_generate_outputs(
        model, PROMPTS[:1], tokenizer, is_hf=False, draft_model=None, generation_config=given
    )
    assert isinstance(outputs, torch.Tensor)
    assert outputs[0, -NEW:].tolist() == wanted(path, PROMPTS[:1])[0]


def test_an_adapter_is_chosen_by_its_id(model_path: str, tmp_path: Path):
    base: Any = AutoModelForCausalLM.from_pretrained(model_path)
    factors = random_factors(base, ["q_proj", "v_proj"], size=1.0)
    save_adapter(tmp_path / "adapter", base, factors)
    lora_config = LoraServingConfig(max_loras=1, lora_ckpt_paths={"a": str(tmp_path / "adapter")})
    neuron_config = NeuronConfig(lora_config=lora_config, **F32)
    config = LlamaInferenceConfig(neuron_config, load_config=load_pretrained_config(model_path))
    model = NeuronLlamaForCausalLM(model_path, config).to_cpu()
    plain = answered(model, model_path, PROMPTS[:1], adapter_ids=[None])
    assert plain == wanted(model_path, PROMPTS[:1])
    reference: Any = merged(base, factors, 2.0)
    ids = AutoTokenizer.from_pretrained(model_path)(PROMPTS[0], return_tensors="pt").input_ids
    best = reference.generate(ids, max_new_tokens=NEW, do_sample=False, pad_token_id=0)
    made = answered(model, model_path, PROMPTS[:1], adapter_ids=["a"])
    assert made == best[:, ids.shape[1] :].tolist()
    assert made != plain

"""Programs in the shape of the listings of transformers-neuronx's guide, run to their end.

Each uses the calls of one listing, in words of its own, on small random checkpoints; what it
samples is compared with transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.generation.streamers import BaseStreamer

from graphgen.ir import Role
from graphgen.lowering.pyhlo import compile_py_func
from graphgen.runtime.aws.tnx import (
    GQA,
    BloomForSampling,
    GenerationConfig,
    GPT2ForSamplingWithContextBroadcasting,
    HuggingFaceGenerationModelAdapter,
    LlamaForSampling,
    MistralForSampling,
    NeuronAutoModelForCausalLM,
    NeuronConfig,
    QuantizationConfig,
    SpeculativeGenerator,
    StoppingCriteria,
    StoppingCriteriaList,
)
from tests.oracles.families import ORACLES, save, save_tokenizer

pytestmark = pytest.mark.slow

LENGTH = 24
TEXT = "the cat sat on"
PAD = 7


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Checkpoints of families, and of ungrouped heads, with tokenizers and no ends of sequences."""
    home, found = tmp_path_factory.mktemp("models"), dict[str, str]()
    changes: dict[str, dict[str, Any]] = {
        "gpt2": {"n_positions": 4096},
        "bloom": {},
        "llama": {"max_position_embeddings": 512, "num_attention_heads": 8},
        "mistral": {"max_position_embeddings": 512},
    }
    changes["llama"]["num_key_value_heads"] = 4
    changes["multi-head"] = {"num_attention_heads": 4, "num_key_value_heads": 4}
    for family, given in changes.items():
        oracle = ORACLES["llama" if family == "multi-head" else family]
        model = oracle.model(vocab_size=300, eos_token_id=None, **given)
        save(model, home / family)
        save_tokenizer(home / family)
        AutoTokenizer.from_pretrained(home / family, pad_token="!").save_pretrained(home / family)
        found[family] = str(home / family)
    return found


def prompt_of(path: str, text: str = TEXT) -> torch.Tensor:
    return AutoTokenizer.from_pretrained(path)(text, return_tensors="pt").input_ids


def wanted(path: str, ids: torch.Tensor, length: int = LENGTH) -> list[list[int]]:
    """The best tokens of transformers."""
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    made = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_length=length,
        do_sample=False,
        pad_token_id=PAD,
    )
    return made.tolist()


def best(model: Any, ids: torch.Tensor, length: int = LENGTH, **options: Any) -> list[list[int]]:
    """The model's own best tokens."""
    with torch.inference_mode():
        return model.sample(ids, sequence_length=length, top_k=1, **options).tolist()


class Head:
    """The product of hidden states [H,S,B] and a vocabulary [H,V], in PyHLO."""

    hidden, tokens, batch, words = 8, 3, 2, 5

    def lm_head(self, scribe: Any) -> Any:
        dtype, columns = scribe.f32, self.tokens * self.batch
        states = dtype[self.hidden, self.tokens, self.batch].Parameter(parameter_number=0)
        weight = dtype[self.hidden, self.words].Parameter(parameter_number=1)
        flat = dtype[self.hidden, columns].Reshape(states)
        dims = {"lhs_contracting_dimensions": [0], "rhs_contracting_dimensions": [0]}
        logits = dtype[self.words, columns].Dot(weight, flat, dot_dimension_numbers=dims)
        return dtype[self.words, self.tokens, self.batch].Reshape(logits)


def test_a_head_in_pyhlo_is_a_product():
    compiled = compile_py_func(Head().lm_head)
    assert compiled.module_proto.SerializeToString()
    random = np.random.default_rng(0)
    given = [random.standard_normal(shape).astype(np.float32) for shape in ((8, 3, 2), (8, 5))]
    names = [value.name or "" for value in compiled.program.args]
    (made,) = compiled.module.evaluate(dict(zip(names, given, strict=True))).values()
    product = np.einsum("hv,htb->vtb", given[1], given[0])
    np.testing.assert_allclose(np.asarray(made), product, rtol=1e-5, atol=1e-5)


def test_a_decoder_samples(folders: dict[str, str]):
    model = NeuronAutoModelForCausalLM.from_pretrained(
        folders["gpt2"],
        batch_size=1,
        n_positions=128,
        tp_degree=2,
        amp="f32",
        context_length_estimate=64,
    )
    model.to_neuron()
    ids = prompt_of(folders["gpt2"])
    assert best(model, ids) == wanted(folders["gpt2"], ids)


@pytest.mark.parametrize(
    ("family", "kind"), [("bloom", BloomForSampling), ("llama", LlamaForSampling)]
)
def test_the_automatic_class_is_the_class_of_the_family(
    family: str, kind: Any, folders: dict[str, str]
):
    found = [
        each.from_pretrained(folders[family], n_positions=64)
        for each in (NeuronAutoModelForCausalLM, kind)
    ]
    ids = prompt_of(folders[family])
    for model in found:
        assert type(model) is kind
        model.to_neuron()
        assert best(model, ids) == wanted(folders[family], ids)


@pytest.mark.parametrize(("family", "tp"), [("gpt2", 2), ("llama", 4)])
def test_the_adapter_generates_with_a_temperature(family: str, tp: int, folders: dict[str, str]):
    path = folders[family]
    kinds: dict[str, Any] = {
        "gpt2": GPT2ForSamplingWithContextBroadcasting,
        "llama": LlamaForSampling,
    }
    compiled = kinds[family].from_pretrained(path, tp_degree=tp, n_positions=64)
    compiled.to_neuron()
    model: Any = HuggingFaceGenerationModelAdapter(AutoConfig.from_pretrained(path), compiled)
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    inputs = tokenizer(TEXT, return_tensors="pt", padding=True)
    reference: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    drawn: list[list[list[int]]] = []
    for each in (model, reference):
        torch.manual_seed(3)
        with torch.inference_mode():
            if each is model:
                model.reset_generation()
            made = each.generate(
                input_ids=inputs.input_ids,
                attention_mask=inputs.attention_mask,
                do_sample=True,
                max_length=LENGTH,
                temperature=0.7,
                pad_token_id=PAD,
            )
        drawn.append(made.tolist())
    assert drawn[0] == drawn[1]


def test_weights_are_stored_in_8_bits(folders: dict[str, str]):
    path = folders["gpt2"]
    neuron_config = NeuronConfig(quant=QuantizationConfig(quant_dtype="s8", dequant_dtype="bf16"))
    model: Any = GPT2ForSamplingWithContextBroadcasting.from_pretrained(
        path, amp="bf16", n_positions=64, neuron_config=neuron_config
    )
    model.to_neuron()
    ids = prompt_of(path)
    with torch.inference_mode():
        made = model.sample(ids, sequence_length=LENGTH, start_ids=None)
    assert made.shape == (1, LENGTH)
    assert {"s8"} <= {str(row.physical.dtype) for row in model.session.module.interface.values()}


def test_a_prompt_is_encoded_in_parallel(folders: dict[str, str]):
    path = folders["gpt2"]
    model: Any = GPT2ForSamplingWithContextBroadcasting.from_pretrained(
        path, context_length_estimate=256, n_positions=512
    )
    model.to_neuron()
    ids = prompt_of(path, "the cat saw that the mat, " * 12)
    assert 64 < ids.shape[1] <= 256
    assert model.session.table.buckets("prefill") == [256]
    assert best(model, ids, ids.shape[1] + 8) == wanted(path, ids, ids.shape[1] + 8)


def test_one_prompt_has_five_answers(folders: dict[str, str]):
    path = folders["gpt2"]
    model = GPT2ForSamplingWithContextBroadcasting.from_pretrained(
        path, prompt_batch_size=1, batch_size=5, context_length_estimate=256, n_positions=512
    )
    model.to_neuron()
    ids = prompt_of(path)
    with torch.inference_mode():
        made: Any = model.sample(ids, sequence_length=40)
    assert made.shape == (5, 40)
    assert len({tuple(row) for row in made.tolist()}) > 1
    assert best(model, ids) == wanted(path, ids) * 5


def test_compiled_programs_are_saved_and_loaded(folders: dict[str, str], tmp_path: Path):
    path = folders["gpt2"]
    model = GPT2ForSamplingWithContextBroadcasting.from_pretrained(path, n_positions=64)
    model.to_neuron()
    model.save(str(tmp_path / "compiled"))
    model = GPT2ForSamplingWithContextBroadcasting.from_pretrained(path, n_positions=64)
    model.load(str(tmp_path / "compiled"))
    model.to_neuron()
    assert not model.compiled
    ids = prompt_of(path)
    assert best(model, ids) == wanted(path, ids)


def test_a_folder_has_the_weights_of_each_rank(folders: dict[str, str], tmp_path: Path):
    options: dict[str, Any] = {"batch_size": 1, "tp_degree": 4, "n_positions": 64}
    options["neuron_config"] = NeuronConfig(on_device_embedding=True)
    model = LlamaForSampling.from_pretrained(folders["llama"], **options)
    model.to_neuron()
    model.save(str(tmp_path / "artifacts"), sharded_weights=True)
    del model
    presharded = LlamaForSampling.from_pretrained(str(tmp_path / "artifacts"), **options)
    presharded.load(str(tmp_path / "artifacts"))
    presharded.to_neuron()
    assert not presharded.compiled
    ids = prompt_of(folders["llama"])
    assert best(presharded, ids) == wanted(folders["llama"], ids)


def test_a_strategy_of_heads(folders: dict[str, str]):
    path = folders["mistral"]
    neuron_config = NeuronConfig(group_query_attention=GQA.SHARD_OVER_HEADS)
    model = MistralForSampling.from_pretrained(
        path, amp="f32", n_positions=64, neuron_config=neuron_config
    )
    model.to_neuron()
    ids = prompt_of(path)
    assert best(model, ids, start_ids=None) == wanted(path, ids)


def test_programs_draw(folders: dict[str, str]):
    path = folders["llama"]
    generation = GenerationConfig(
        max_length=64, top_k=10, top_p=0.9, top_p_min_tokens=1, temperature=0.9, do_sample=True
    )
    model: Any = LlamaForSampling.from_pretrained(
        path,
        batch_size=1,
        tp_degree=4,
        n_positions=64,
        neuron_config=NeuronConfig(on_device_generation=generation),
    )
    model.to_neuron()
    ids = prompt_of(path)
    with torch.inference_mode():
        made = model.sample(ids, sequence_length=LENGTH, top_k=10)
    reference: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with torch.no_grad():
        ranked = reference(made[:, :-1]).logits[:, ids.shape[1] - 1 :].topk(10).indices
    assert (ranked == made[:, ids.shape[1] :, None]).any(-1).all()


def test_sequences_have_settings_that_change(folders: dict[str, str]):
    path, rows = folders["llama"], 2
    generation = GenerationConfig(
        max_length=64,
        dynamic=True,
        per_batch_line=True,
        do_sample=True,
        top_k=[1] * rows,
        top_p=[1.0] * rows,
        top_p_min_tokens=[1] * rows,
        temperature=[1.0] * rows,
        global_top_k=256,
    )
    model: Any = LlamaForSampling.from_pretrained(
        path,
        batch_size=rows,
        tp_degree=4,
        n_positions=64,
        neuron_config=NeuronConfig(on_device_generation=generation),
    )
    model.to_neuron()
    ids = torch.cat([prompt_of(path), prompt_of(path).flip(1)])
    first = model.sample(ids, sequence_length=LENGTH).tolist()
    assert first == wanted(path, ids)
    generation.top_k, generation.top_p = [1, 20], [1.0, 0.9]
    generation.top_p_min_tokens, generation.temperature = [1, 1], [1.0, 0.9]
    model.update_generation_config(generation)
    second = model.sample(ids, sequence_length=LENGTH).tolist()
    assert second[0] == first[0]
    assert second[1] != first[1]


class Numbered(BaseStreamer):
    """Keeps the tokens of each step."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        self.ended = False

    def put(self, value: Any) -> None:
        self.steps.append(value.flatten().tolist())

    def end(self) -> None:
        self.ended = True


@pytest.fixture(scope="module")
def mistral(folders: dict[str, str]) -> Any:
    model = MistralForSampling.from_pretrained(folders["mistral"], amp="f32", n_positions=64)
    model.to_neuron()
    return model


def test_a_streamer_of_ones_own(mistral: Any, folders: dict[str, str]):
    ids, streamer = prompt_of(folders["mistral"]), Numbered()
    made = best(mistral, ids, start_ids=None, streamer=streamer)
    assert [token for step in streamer.steps for token in step] == made[0][ids.shape[1] :]
    assert streamer.ended


def test_a_limit_ends_a_streamed_answer(mistral: Any, folders: dict[str, str]):
    """A number of calls stands for the time of the guide, which no test may depend on."""

    class Limit(StoppingCriteria):
        def __init__(self, most: int) -> None:
            self.most, self.calls = most, 0

        def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> bool:
            self.calls += 1
            return self.calls >= self.most

    ids, streamer = prompt_of(folders["mistral"]), Numbered()
    rules = StoppingCriteriaList([Limit(3)])
    made = best(mistral, ids, stopping_criteria_list=rules, streamer=streamer)
    assert len(made[0]) == ids.shape[1] + 3
    assert len(streamer.steps) == 3


def test_a_draft_proposes(folders: dict[str, str]):
    path = folders["llama"]
    options: dict[str, Any] = {"n_positions": 64, "batch_size": 1, "tp_degree": 4, "amp": "f32"}
    draft = LlamaForSampling.from_pretrained(path, **options)
    draft.to_neuron()
    target = LlamaForSampling.from_pretrained(path, **options)
    target.enable_speculative_decoder(4)
    target.to_neuron()
    ids = prompt_of(path)
    generator = SpeculativeGenerator(draft, target, 4)
    drawn = generator.sample(input_ids=ids, sequence_length=30)
    assert drawn.shape == (1, 30)
    greedy = generator.sample(input_ids=ids, sequence_length=30, top_k=1)
    assert greedy.tolist() == wanted(path, ids, 30)


@pytest.mark.parametrize(
    "given", [{"fuse_qkv": True}, {"attention_layout": "BSH"}, {"shard_over_sequence": True}]
)
def test_an_attribute_keeps_the_best_tokens(given: dict[str, Any], folders: dict[str, str]):
    path = folders["llama"]
    model = LlamaForSampling.from_pretrained(
        path, n_positions=64, tp_degree=8, neuron_config=NeuronConfig(**given)
    )
    model.to_neuron()
    ids = prompt_of(path)
    assert best(model, ids) == wanted(path, ids)


def slots(model: Any) -> set[tuple[int, ...]]:
    """Shapes of a rank's caches."""
    return {row.physical.dims for row in model.session.module.entries(Role.STATE)}


FLASH: dict[str, Any] = {"n_positions": 64, "batch_size": 1, "tp_degree": 8, "amp": "f32"}


@pytest.mark.parametrize(("family", "group"), [("llama", 2), ("multi-head", 1)])
def test_flash_decoding_needs_no_grouped_heads(family: str, group: int, folders: dict[str, str]):
    path = folders[family]
    config = AutoConfig.from_pretrained(path)
    assert config.num_attention_heads == group * config.num_key_value_heads
    given = NeuronConfig(shard_over_sequence=True)
    model = LlamaForSampling.from_pretrained(path, neuron_config=given, **FLASH)
    model.to_neuron()
    ids = prompt_of(path)
    assert best(model, ids) == wanted(path, ids)
    # Two ranks share a head, and each has half of its 64 positions.
    assert {dims[1:3] for dims in slots(model)} == {(32, 1)}


def test_a_draft_proposes_beside_flash_decoding(folders: dict[str, str]):
    path = folders["llama"]
    given = NeuronConfig(shard_over_sequence=True)
    draft = LlamaForSampling.from_pretrained(path, neuron_config=given, **FLASH)
    draft.to_neuron()
    target = LlamaForSampling.from_pretrained(path, neuron_config=given, **FLASH)
    target.enable_speculative_decoder(4)
    target.to_neuron()
    assert {dims[1:3] for dims in slots(target)} == {(32, 1)}
    ids = prompt_of(path)
    made = SpeculativeGenerator(draft, target, 4).sample(ids, sequence_length=30, top_k=1)
    assert made.tolist() == wanted(path, ids, 30)


def test_a_decoder_has_lists_of_buckets(folders: dict[str, str]):
    path = folders["gpt2"]
    prompts, positions = [1024, 1280, 1536, 1792, 2048], [128, 256, 512, 1024, 2048, 3072]
    model: Any = NeuronAutoModelForCausalLM.from_pretrained(
        path,
        batch_size=1,
        n_positions=positions,
        tp_degree=2,
        amp="f32",
        context_length_estimate=prompts,
    )
    model.to_neuron()
    assert model.session.table.buckets("prefill") == prompts
    assert model.session.table.buckets("decode") == positions
    ids = prompt_of(path)
    assert best(model, ids) == wanted(path, ids)

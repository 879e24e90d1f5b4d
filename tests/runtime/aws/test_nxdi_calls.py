"""NxD Inference's features, with the calls and the names that its documents teach."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.nxdi import (
    FusedSpecNeuronConfig,
    HuggingFaceGenerationAdapter,
    LlamaInferenceConfig,
    LlamaNeuronConfig,
    NeuronConfig,
    NeuronLlamaForCausalLM,
    OnDeviceSamplingConfig,
    get_generate_outputs,
    load_pretrained_config,
)
from tests.oracles.applications import open_reference
from tests.oracles.families import ORACLES, save, save_tokenizer

PROMPTS = ["the cat sat on", "that"]
NEW = 6


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small random Llama with a tokenizer and generation settings."""
    folder = tmp_path_factory.mktemp("models") / "Llama-mini"
    save(
        ORACLES["llama"].model(vocab_size=300, max_position_embeddings=512, eos_token_id=None),
        folder,
    )
    save_tokenizer(folder)
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="!", eos_token="!"
    )
    tokenizer.save_pretrained(folder)
    GenerationConfig(pad_token_id=tokenizer.pad_token_id).save_pretrained(folder)
    return str(folder)


def settings_of(model_path: str) -> GenerationConfig:
    """The checkpoint's settings, for a few tokens."""
    generation_config = GenerationConfig.from_pretrained(model_path)
    generation_config.max_new_tokens = NEW
    return generation_config


def configured(model_path: str, **options: Any) -> Any:
    """An application that is not compiled; ``options`` are attributes of its NeuronConfig."""
    given = {"batch_size": 2, "seq_len": 64, "torch_dtype": torch.float32, **options}
    config = LlamaInferenceConfig(
        LlamaNeuronConfig(**given), load_config=load_pretrained_config(model_path)
    )
    return NeuronLlamaForCausalLM(model_path, config)


def loaded(model_path: str, compiled_model_path: Path, **options: Any) -> Any:
    """An application, compiled into a folder and loaded from it."""
    model = configured(model_path, **options)
    model.compile(str(compiled_model_path))
    model.load(str(compiled_model_path))
    return model


@pytest.fixture(scope="module")
def model(model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A loaded application that returns logits."""
    return loaded(model_path, tmp_path_factory.mktemp("compiled") / "llama", max_context_length=32)


@pytest.fixture(scope="module")
def answers(model_path: str) -> list[str]:
    """The texts that transformers' own model generates."""
    tokenizer: Any = AutoTokenizer.from_pretrained(model_path)
    _, texts = get_generate_outputs(
        open_reference(Path(model_path)),
        PROMPTS,
        tokenizer,
        is_hf=True,
        generation_config=settings_of(model_path),
    )
    return texts


@pytest.mark.parametrize("side", ["right", "left"])
def test_generate_with_the_adapter(model: Any, model_path: str, side: str, answers: list[str]):
    tokenizer: Any = AutoTokenizer.from_pretrained(model_path, padding_side=side)
    generation_config = settings_of(model_path)
    generation_model: Any = HuggingFaceGenerationAdapter(model)
    inputs = tokenizer(PROMPTS, padding=True, return_tensors="pt")
    outputs = generation_model.generate(
        inputs.input_ids,
        generation_config=generation_config,
        attention_mask=inputs.attention_mask,
    )
    assert outputs.shape == (2, inputs.input_ids.shape[1] + NEW)
    texts = tokenizer.batch_decode(
        outputs, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    assert texts == answers


def test_generate_up_to_the_models_length(model: Any, model_path: str):
    tokenizer: Any = AutoTokenizer.from_pretrained(model_path)
    inputs = tokenizer(["the cat", "the cat"], return_tensors="pt")
    outputs: Any = HuggingFaceGenerationAdapter(model).generate(
        inputs.input_ids,
        generation_config=GenerationConfig.from_pretrained(model_path),
        attention_mask=inputs.attention_mask,
        max_length=model.neuron_config.max_length,
    )
    assert outputs.shape == (2, 64)


def test_get_generate_outputs(model: Any, model_path: str, answers: list[str]):
    tokenizer: Any = AutoTokenizer.from_pretrained(
        model_path, padding_side=model.neuron_config.padding_side
    )
    outputs, texts = get_generate_outputs(
        model,
        PROMPTS,
        tokenizer,
        is_hf=False,
        draft_model=None,
        generation_config=settings_of(model_path),
    )
    assert isinstance(outputs, torch.Tensor)
    assert texts == answers


def test_switches_of_neuron_devices_with_explicit_buckets(
    model_path: str, tmp_path: Path, answers: list[str], capsys: pytest.CaptureFixture[str]
):
    model = loaded(
        model_path,
        tmp_path / "compiled",
        fused_qkv=True,
        sequence_parallel_enabled=True,
        logical_nc_config=2,
        enable_bucketing=True,
        context_encoding_buckets=[8, 32],
        token_generation_buckets=[64],
    )
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    for name in ("fused_qkv", "logical_nc_config"):
        assert sum(name in note for note in notes) == 1, notes
    settings = model.compile_config()
    assert (settings.context, settings.tokens) == ((8, 32), (64,))
    _, texts = get_generate_outputs(
        model,
        PROMPTS,
        AutoTokenizer.from_pretrained(model_path),
        generation_config=settings_of(model_path),
    )
    assert texts == answers
    assert settings.rules == model.compile_config("trn2").rules == ("prefill:sequence:tp",)


def test_automatic_buckets(model_path: str):
    settings = configured(
        model_path, seq_len=512, max_context_length=256, enable_bucketing=True
    ).compile_config()
    assert (settings.context, settings.tokens) == ((128, 256), (128, 256, 512))


@pytest.fixture(scope="module")
def dynamic(model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A loaded application that draws tokens by settings of each call."""
    device = OnDeviceSamplingConfig(dynamic=True, do_sample=True)
    return loaded(
        model_path,
        tmp_path_factory.mktemp("sampling") / "llama",
        on_device_sampling_config=device,
    )


def inputs_of(prompts: list[list[int]]) -> dict[str, torch.Tensor]:
    """Prompts, padded on the right, as ``forward`` takes them."""
    width = max(map(len, prompts))
    ids = torch.tensor([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts])
    mask = torch.tensor([[1] * len(p) + [0] * (width - len(p)) for p in prompts])
    positions = torch.arange(width).repeat(len(prompts), 1) * mask + (1 - mask)
    return {"input_ids": ids, "attention_mask": mask, "position_ids": positions}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("tensor", [[[50, 0.5, 0.75], [5, 1.0, 1.0]], [[1, 1.0, 1.0]] * 2])
def test_sampling_params_of_forward(model: Any, dynamic: Any, tensor: list[list[float]]):
    sampling_params = torch.tensor(tensor)
    inputs = inputs_of([[5, 6, 7], [11, 12]])
    model.reset()
    logits = model.forward(**inputs, seq_ids=torch.tensor([0, 1])).logits[:, 0]
    drawn: list[list[int]] = []
    for _ in range(3):
        dynamic.reset()
        out = dynamic.forward(
            **inputs, seq_ids=torch.tensor([0, 1]), sampling_params=sampling_params
        )
        assert out.logits is None
        drawn.append(out.tokens.flatten().tolist())
    for row, (top_k, _, _) in enumerate(tensor):
        best = logits[row].topk(int(top_k)).indices.tolist()
        assert {tokens[row] for tokens in drawn} <= set(best)


def test_tokens_chosen_by_the_programs(model_path: str, tmp_path: Path, answers: list[str]):
    greedy = loaded(
        model_path,
        tmp_path / "greedy",
        on_device_sampling_config=OnDeviceSamplingConfig(global_topk=256),
    )
    _, texts = get_generate_outputs(
        greedy,
        PROMPTS,
        AutoTokenizer.from_pretrained(model_path),
        generation_config=settings_of(model_path),
    )
    assert texts == answers


def test_top_k_of_the_configuration(model: Any, model_path: str, tmp_path: Path):
    device = OnDeviceSamplingConfig(top_k=5, do_sample=True)
    sampled = loaded(model_path, tmp_path / "top_k", on_device_sampling_config=device)
    inputs = inputs_of([[5, 6, 7], [11, 12]])
    model.reset()
    best = model.forward(**inputs).logits[:, 0].topk(5).indices
    for _ in range(5):
        sampled.reset()
        tokens = sampled.forward(**inputs).tokens.reshape(2, 1)
        assert (best == tokens).any(dim=1).all()


def test_top_k_of_a_call(model: Any, dynamic: Any):
    """It counts for its call alone, and replaces that of the configuration, which is 1."""
    inputs = inputs_of([[5, 6, 7], [11, 12]])
    model.reset()
    best = model.forward(**inputs).logits[:, 0].topk(5).indices
    drawn: dict[int, set[int]] = {1: set(), 5: set()}
    for top_k in (5, 1) * 12:
        dynamic.reset()
        sampling_params = torch.tensor([[top_k, 1.0, 5.0]] * 2)
        tokens = dynamic.forward(**inputs, sampling_params=sampling_params).tokens.reshape(2, 1)
        assert (best[:, :top_k] == tokens).any(dim=1).all()
        drawn[top_k].add(int(tokens[0]))
    assert len(drawn[5]) > 1 == len(drawn[1])


def test_a_target_and_its_draft_as_documented(model: Any, model_path: str, tmp_path: Path):
    given = {"speculation_length": 5, "torch_dtype": torch.float32, "seq_len": 64}
    neuron_config = NeuronConfig(batch_size=2, **given)
    load_config = load_pretrained_config(model_path)
    config = LlamaInferenceConfig(neuron_config, load_config=load_config)
    target = NeuronLlamaForCausalLM(model_path, config)
    draft_neuron_config = copy.deepcopy(neuron_config)
    draft_neuron_config.speculation_length = 0
    draft_config = LlamaInferenceConfig(draft_neuron_config, load_config=load_config)
    draft = NeuronLlamaForCausalLM(model_path, draft_config)
    for application, name in ((target, "target"), (draft, "draft")):
        application.compile(str(tmp_path / name))
        application.load(str(tmp_path / name))
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    settings = settings_of(model_path)
    made = get_generate_outputs(
        target, PROMPTS, tokenizer, draft_model=draft, generation_config=settings
    )
    plain = get_generate_outputs(model, PROMPTS, tokenizer, generation_config=settings)
    assert made[1] == plain[1]


def with_a_draft(model_path: str) -> None:
    """A target that verifies five tokens at a time, and its draft."""
    neuron_config = NeuronConfig(speculation_length=5, trace_tokengen_model=False)
    load_config = load_pretrained_config(model_path)
    config = LlamaInferenceConfig(neuron_config, load_config=load_config)
    draft_neuron_config = copy.deepcopy(neuron_config)
    draft_neuron_config.speculation_length = 0
    draft_neuron_config.trace_tokengen_model = True
    LlamaInferenceConfig(draft_neuron_config, load_config=load_config)
    NeuronLlamaForCausalLM(model_path, config).compile_config()


def with_medusa(model_path: str) -> None:
    """Four heads that propose a tree of tokens."""
    only(
        model_path,
        is_medusa=True,
        medusa_speculation_length=64,
        num_medusa_heads=4,
        medusa_tree=[[0], [0, 0]],
    )


def with_eagle(model_path: str) -> None:
    """A draft that reads the target's hidden states, in one program with the target."""
    neuron_config = NeuronConfig(
        enable_eagle_speculation=True,
        enable_fused_speculation=True,
        on_device_sampling_config=OnDeviceSamplingConfig(temperature=0.7, top_k=50, top_p=1.0),
        speculation_length=5,
        trace_tokengen_model=False,
    )
    kind = NeuronLlamaForCausalLM.get_config_cls()
    config = kind(neuron_config, load_config=load_pretrained_config(model_path))
    draft = copy.deepcopy(neuron_config)
    draft.trace_tokengen_model = True
    draft.enable_fused_speculation = False
    draft.is_eagle_draft = True
    config.fused_spec_config = FusedSpecNeuronConfig(
        NeuronLlamaForCausalLM._model_cls,
        draft_config=kind(draft, load_config=load_pretrained_config(model_path)),
        draft_model_path=model_path,
    )
    NeuronLlamaForCausalLM(model_path, config).compile_config()


def only(model_path: str, **options: Any) -> None:
    """Attributes alone."""
    configured(model_path, **options).compile_config()


def test_the_documented_target_of_a_draft_is_taken(model_path: str):
    with_a_draft(model_path)


def test_the_documented_heads_of_medusa_are_taken(model_path: str):
    with_medusa(model_path)


def test_the_documented_target_of_an_eagle_draft_is_taken(model_path: str):
    with_eagle(model_path)


@pytest.mark.parametrize(
    ("program", "feature"),
    [
        (lambda path: only(path, padded_hidden_size=64), "a padded hidden size"),
    ],
)
def test_features_to_come_are_refused_by_name(
    model_path: str, program: Callable[[str], None], feature: str
):
    with pytest.raises(GraphgenError, match=feature) as error:
        program(model_path)
    assert error.value.code == "GG0904"
    assert error.value.help

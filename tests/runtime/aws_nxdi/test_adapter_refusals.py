"""Modes, settings and inputs that the adapter refuses, each by name."""

from __future__ import annotations

import importlib
import re
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.hf_adapter import (
    REFUSED,
    HuggingFaceGenerationAdapter,
    refuse_unbuilt_modes,
)
from graphgen.runtime.aws_nxdi.model_classes import NeuronLlamaForCausalLM
from tests.oracles.applications import open_application, write_checkpoint
from tests.runtime.aws_nxdi.conftest import Checkpoint

# Fields of GenerationConfig that generate follows, in transformers' code or in ours.
FOLLOWED = {
    "num_beams",
    "early_stopping",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "min_new_tokens",
    "max_time",
    "stop_strings",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "top_h",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "repetition_penalty",
    "encoder_repetition_penalty",
    "no_repeat_ngram_size",
    "bad_words_ids",
    "renormalize_logits",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
    "sequence_bias",
    "watermarking_config",
    "num_return_sequences",
    "output_scores",
    "output_logits",
    "return_dict_in_generate",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "encoder_no_repeat_ngram_size",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
    "prompt_lookup_num_tokens",
    "max_matching_ngram_size",
}
# Fields that change nothing in transformers either, unless a refused one is set too.
PARTS = {
    "assistant_lookbehind",
    "target_lookbehind",
    "assistant_ensemble_weight",
    "speculation_type",
    "disable_compile",
    "decoder_start_token_id",
    "transformers_version",
}
IDS = torch.tensor([[5, 6, 7]])


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An adapter for two rows of 128 positions."""
    folder = write_checkpoint(tmp_path_factory.mktemp("llama"))
    return HuggingFaceGenerationAdapter(open_application(folder, batch_size=2))


def test_every_setting_of_transformers_is_followed_or_refused():
    fields = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    refused = {name for row in REFUSED for name in row.names}
    assert fields - refused - FOLLOWED - PARTS == set()
    assert refused & (FOLLOWED | PARTS) == set()


@pytest.mark.parametrize(
    ("options", "feature"),
    [
        ({"num_beams": 4, "num_beam_groups": 2}, "group beam search"),
        ({"num_beams": 4, "force_words_ids": [[5]]}, "constrained beam search"),
        ({"penalty_alpha": 0.6, "top_k": 4}, "contrastive search"),
        ({"assistant_early_exit": 3}, "assisted decoding"),
        ({"use_mtp": True}, "multi-token"),
        ({"dola_layers": "low"}, "DoLa"),
        ({"guidance_scale": 1.5}, "guidance"),
        ({"use_cache": False}, "without a cache"),
        ({"cache_implementation": "static"}, "cache"),
        ({"prefill_chunk_size": 4}, "chunks"),
        ({"output_attentions": True, "return_dict_in_generate": True}, "attention"),
        ({"output_hidden_states": True, "return_dict_in_generate": True}, "hidden states"),
        ({"token_healing": True}, "healing"),
        ({"inputs_embeds": torch.zeros(1, 3, 32)}, "embeddings"),
        ({"position_ids": torch.arange(3)[None]}, "positions"),
        ({"custom_generate": "some/where"}, "loop"),
    ],
)
def test_modes_that_are_not_built_are_refused_by_name(
    adapter: Any, options: dict[str, Any], feature: str
):
    with pytest.raises(GraphgenError, match=feature) as caught:
        adapter.generate(IDS, max_new_tokens=2, **options)
    assert caught.value.code == "GG0904"
    assert caught.value.help


def test_settings_of_a_generation_config_are_refused_too(adapter: Any):
    config = GenerationConfig(dola_layers="low", max_new_tokens=2)
    with pytest.raises(GraphgenError, match="dola_layers of generate: DoLa decoding is not built"):
        adapter.generate(IDS, generation_config=config)


def test_settings_that_request_nothing_pass():
    refuse_unbuilt_modes(
        {"num_beams": 1, "penalty_alpha": 0.0, "use_cache": True, "is_assistant": None}
    )


def test_continuous_batching_of_transformers_is_refused(adapter: Any):
    for method in ("generate_batch", "init_continuous_batching"):
        with pytest.raises(GraphgenError, match="continuous batching"):
            getattr(adapter, method)([[5, 6]])
    with pytest.raises(GraphgenError, match="continuous batching"):
        adapter.continuous_batching_context_manager()


def test_misspelled_arguments_are_refused_by_transformers(adapter: Any):
    with pytest.raises(ValueError, match="max_new_token"):
        adapter.generate(IDS, max_new_token=2, max_length=9)


@pytest.mark.parametrize(
    ("ids", "options", "code", "says"),
    [
        ((3, 4), {}, "GG0705", "3 sequences, but the programs were compiled for 2"),
        ((1, 4), {"max_length": 200}, "GG0701", "a prompt of 4 tokens and 196 new ones"),
        ((1, 4), {"attention_mask": torch.ones(1, 5).long()}, "GG0402", "is [1, 5], input_ids"),
        ((2, 4), {"attention_mask": torch.eye(2, 4).long() * torch.tensor([[1], [0]])},
         "GG0702", "prompt 2 has no token"),
        ((1, 4), {"do_sample": True, "sampling_params": torch.ones(2, 2)}, "GG0705", "not (1, 3)"),
        ((1, 4), {"do_sample": True, "sampling_params": torch.tensor([[1.5, 1.0, 1.0]])},
         "GG0705", "expected -1 or an integer"),
        ((1, 4), {"sampling_params": torch.tensor([[9.0, 1.0, 1.0]])}, "GG0903", "do_sample=False"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit_are_refused(
    adapter: Any,
    ids: tuple[int, int],
    options: dict[str, Any],
    code: str,
    says: str,
):
    inputs = torch.full(ids, 5)
    limit = {} if "max_length" in options else {"max_new_tokens": 2}
    with pytest.raises(GraphgenError, match=re.escape(says)) as caught:
        adapter.generate(inputs, **{"pad_token_id": 3, **limit, **options})
    assert caught.value.code == code


def test_the_cache_is_used_to_its_last_position(adapter: Any):
    prompt = torch.full((1, 100), 5)
    full = adapter.generate(prompt, max_new_tokens=29, eos_token_id=None, pad_token_id=3)
    assert full.shape == (1, 129)
    with pytest.raises(GraphgenError, match="30 new ones exceed 128 positions") as caught:
        adapter.generate(prompt, max_new_tokens=30, eos_token_id=None, pad_token_id=3)
    assert "max_new_tokens=29" in caught.value.help


@pytest.mark.parametrize(
    ("sizes", "length", "asked"),
    [
        ({}, 80, "NeuronConfig(seq_len=80)"),
        ({"max_length": 32}, 60, "NeuronConfig(max_length=60)"),
        ({"max_length": 32}, 80, "NeuronConfig(seq_len=80, max_length=80)"),
    ],
)
def test_too_long_answers_name_the_attributes_to_raise(
    llama: Checkpoint, sizes: dict[str, int], length: int, asked: str
):
    options: dict[str, Any] = dict(sizes)
    made = NeuronLlamaForCausalLM(llama.path, llama.config(**options)).to_cpu()
    with pytest.raises(GraphgenError) as caught:
        HuggingFaceGenerationAdapter(made).generate(IDS, max_length=length, eos_token_id=None)
    assert caught.value.help.endswith(f"or compile with {asked}")


def test_a_prompt_that_is_too_long_names_attributes_and_no_flag(llama: Checkpoint):
    made = NeuronLlamaForCausalLM(llama.path, llama.config(max_context_length=8)).to_cpu()
    ids = torch.arange(10, 30)[None]
    adapter: Any = HuggingFaceGenerationAdapter(made)
    for call in (made.forward, partial(adapter.generate, max_new_tokens=3)):
        with pytest.raises(GraphgenError, match="longer than the largest bucket, 8") as caught:
            call(ids)
        assert "e.g. max_context_length=64, and a bucket" in caught.value.help
        assert "context_encoding_buckets is given" in caught.value.help
        assert "--" not in caught.value.help


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ({"num_beams": 0}, "num_beams of generate is 0, expected an integer >= 1"),
        ({"num_beams": -1}, "num_beams of generate is -1, expected an integer >= 1"),
        ({"num_beams": "2"}, "num_beams of generate is '2', expected an integer >= 1"),
        ({"num_beams": 2.0}, "num_beams of generate is 2.0, expected an integer >= 1"),
        ({"num_return_sequences": "2"}, "num_return_sequences of generate is '2'"),
        ({"max_new_tokens": "3"}, "max_new_tokens of generate is '3', expected an integer"),
        ({"min_new_tokens": "1"}, "min_new_tokens of generate is '1', expected an integer"),
        ({"no_repeat_ngram_size": "2"}, "no_repeat_ngram_size of generate is '2'"),
        ({"prompt_lookup_num_tokens": "2"}, "prompt_lookup_num_tokens of generate is '2'"),
        ({"top_p": "x", "do_sample": True}, "top_p of generate is 'x', expected a number"),
        ({"min_p": "0.1", "do_sample": True}, "min_p of generate is '0.1', expected a number"),
        ({"eos_token_id": ["a"]}, "eos_token_id of generate is ['a'], expected an integer or"),
        ({"pad_token_id": "a"}, "pad_token_id of generate is 'a', expected an integer"),
    ],
)
def test_numbers_of_another_kind_are_refused_by_name(
    adapter: Any, setting: dict[str, Any], wanted: str
):
    options = {"max_new_tokens": 2, **setting}
    with pytest.raises(GraphgenError, match=re.escape(wanted)) as caught:
        adapter.generate(IDS, **options)
    assert caught.value.code == "GG0705"
    config = GenerationConfig(max_new_tokens=2)
    vars(config).update(setting)
    with pytest.raises(GraphgenError, match=re.escape(wanted)):
        adapter.generate(IDS, config)


def test_numbers_of_other_libraries_are_numbers(adapter: Any):
    plain = {"max_new_tokens": 2, "no_repeat_ngram_size": 2, "eos_token_id": [3]}
    same = {
        "max_new_tokens": np.int64(2),
        "no_repeat_ngram_size": 2,
        "eos_token_id": torch.tensor([3]),
        "repetition_penalty": np.float64(1),
    }
    assert torch.equal(adapter.generate(IDS, **plain), adapter.generate(IDS, **same))


def test_another_object_is_no_application():
    with pytest.raises(GraphgenError, match="got a dict, which has no forward"):
        HuggingFaceGenerationAdapter({})  # pyright: ignore[reportArgumentType]


def test_a_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch):
    name = "graphgen.runtime.aws_nxdi.hf_adapter"
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, name)
    with pytest.raises(GraphgenError, match="needs torch and transformers") as caught:
        importlib.import_module(name)
    assert caught.value.help == "pip install torch transformers"


def test_torch_has_its_threads_and_the_model_its_numbers_again(
    adapter: Any,
):
    random, threads = adapter.neuron_model.random, torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        adapter.generate(IDS, max_new_tokens=2)
        with pytest.raises(ZeroDivisionError):
            adapter.generate(IDS, max_new_tokens=2, prefix_allowed_tokens_fn=lambda *_: 1 // 0)
        assert torch.get_num_threads() == 2
        assert adapter.neuron_model.random is random
    finally:
        torch.set_num_threads(threads)

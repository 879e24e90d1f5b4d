"""Features of vLLM over our programs: proposals, logprobs of prompts, replicas, AWS's names."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.artifact import open_artifact
from graphgen.runtime.aws_config.served_options import ServedFlags, served_options
from graphgen.runtime.engine import open_engine
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.progress import Silent
from tests.oracles.families import ORACLES, save, save_tokenizer
from tests.runtime.vllm_plugin.test_vllm import (
    ENGINE,
    GREEDY,
    LENGTH,
    NEW,
    VOCABULARY,
    prompts,
    served,
    wanted,
)
from tests.runtime.vllm_plugin.test_vllm import folder as folder
from tests.runtime.vllm_plugin.vllm_environment import answers, needs_vllm, output, run_program

pytestmark = [pytest.mark.slow, needs_vllm]
LOOKUP = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}
LOOKUP |= {"prompt_lookup_max": 3}
# All requests are there before the first step.
AT_ONCE = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


def repeating(count: int) -> list[list[int]]:
    """Texts that repeat a few tokens."""
    rng = np.random.default_rng(count)
    parts = [rng.integers(0, VOCABULARY, 6).tolist() * 6 for _ in range(count)]
    return [part[: rng.integers(8, 34)] for part in parts]


@pytest.mark.parametrize(
    ("speculative", "changes", "least"),
    [
        (LOOKUP, {"tensor_parallel_size": 2}, 1),
        # Prompts in parts beside proposals, and requests that lose their blocks.
        (LOOKUP, {"max_num_batched_tokens": 16, "num_gpu_blocks_override": 9}, 1),
        (LOOKUP, {"pipeline_parallel_size": 2}, 1),
        # The draft is the model, and all that it proposes fits: three of four tokens.
        ({"method": "draft_model", "num_speculative_tokens": 3}, {}, 12 * 8),
    ],
)
def test_proposals_do_not_change_greedy_tokens(
    speculative: dict[str, Any], changes: dict[str, Any], least: int, folder: Path, tmp_path: Path
):
    texts = repeating(12)
    asked = [{"prompt": text, "sampling": GREEDY} for text in texts]
    if speculative["method"] == "draft_model":
        speculative = {**speculative, "model": str(folder)}
    engine = {"model": str(folder), **ENGINE, "disable_log_stats": False, **changes}
    found = output(tmp_path, {**engine, "speculative_config": speculative}, asked)
    assert [one["tokens"] for one in found["answers"]] == wanted(folder, texts)
    assert found["accepted"] >= least


def test_cached_beginnings_are_the_drafts_too(folder: Path, tmp_path: Path):
    """Blocks that the second round takes over hold the keys of the model and of its draft."""
    texts = [[*range(40), last] for last in range(6)]
    asked = [{"prompt": text, "sampling": GREEDY} for text in texts]
    draft = {"method": "draft_model", "model": str(folder), "num_speculative_tokens": 3}
    engine = {"model": str(folder), **ENGINE, "disable_log_stats": False}
    found = output(tmp_path, {**engine, "speculative_config": draft}, asked, rounds=2)
    assert [one["tokens"] for one in found["answers"]] == wanted(folder, texts)
    assert [one["cached"] for one in found["answers"]] == [32] * 6
    # The draft is the model, so that all that it proposes fits: three of four tokens.
    assert found["accepted"] >= 2 * 6 * 8


def test_beginnings_of_one_step_are_processed_in_order(folder: Path, tmp_path: Path):
    """A request goes on from blocks that another one fills in the same step."""
    texts = [list(range(33))] * 3 + [list(range(40))]
    asked = [{"prompt": text, "sampling": GREEDY} for text in texts]
    found = answers(tmp_path, {"model": str(folder), **ENGINE}, asked, variables=AT_ONCE)
    assert [one["cached"] for one in found] == [0, 32, 32, 32]
    assert [one["tokens"] for one in found] == wanted(folder, texts)


def logprobs_of(folder: Path, text: Sequence[int]) -> torch.Tensor:
    """f32 [S,V] of transformers."""
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        return model(torch.tensor([text])).logits[0].log_softmax(-1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        # Three parts of a prompt, and by the programs that verify.
        {
            "max_num_batched_tokens": 16,
            "additional_config": {"prompt_logprobs_tokens": 8},
            "speculative_config": LOOKUP,
        },
    ],
)
def test_logprobs_of_prompts_are_those_of_transformers(
    changes: dict[str, Any], folder: Path, tmp_path: Path
):
    texts = [*prompts(5), list(range(40))]
    asked = [{"prompt": text, "sampling": {**GREEDY, "prompt_logprobs": 2}} for text in texts]
    asked[0]["sampling"] = GREEDY
    found = answers(tmp_path, {"model": str(folder), **ENGINE, **changes}, asked)
    assert [one["tokens"] for one in found] == wanted(folder, texts)
    assert found[0]["prompt"] == []
    for text, one in zip(texts[1:], found[1:], strict=True):
        rows, scores = one["prompt"], logprobs_of(folder, text)
        assert (len(rows), rows[0]) == (len(text), {})
        for place, row in enumerate(rows[1:]):
            token = text[place + 1]
            best = scores[place].topk(2).indices.tolist()
            assert row.keys() == {str(number) for number in {*best, token}}
            for name, (logprob, _) in row.items():
                assert logprob == pytest.approx(float(scores[place, int(name)]), abs=1e-4)
            rank = int((scores[place] > scores[place, token]).sum()) + 1
            assert row[str(token)][1] == rank


@pytest.mark.parametrize("speculative", [None, LOOKUP])
def test_parameters_of_requests(speculative: dict[str, Any] | None, folder: Path, tmp_path: Path):
    text = repeating(1)[0]
    (greedy,) = wanted(folder, [text])
    drawn = {"temperature": 1.0, "max_tokens": NEW, "ignore_eos": True, "seed": 5}
    asked: list[dict[str, Any]] = [
        {**drawn, "n": 3},
        {**GREEDY, "stop_token_ids": [greedy[4]], "min_tokens": 2},
        {**GREEDY, "allowed_token_ids": [3, 4]},
        {**GREEDY, "bad_words": []},
        {**GREEDY, "repetition_penalty": 1.5, "presence_penalty": 0.5},
        {**drawn, "top_k": 5, "top_p": 0.9},
        {**drawn, "top_k": 5, "top_p": 0.9},
        {**GREEDY, "logprobs": 2},
    ]
    requests = [{"prompt": text, "sampling": one} for one in asked]
    requests.append(
        {"prompt": text, "sampling": {"temperature": 0, "max_tokens": NEW}, "choice": ["the cat"]}
    )
    engine = {"model": str(folder), **ENGINE, "speculative_config": speculative}
    found = answers(tmp_path, engine, requests)
    assert len({tuple(tokens) for tokens in found[0]["all"]}) == 3
    end = next(place for place, token in enumerate(greedy) if place > 1 and token == greedy[4])
    assert found[1]["tokens"] == greedy[: end + 1]
    assert set(found[2]["tokens"]) <= {3, 4}
    assert found[3]["tokens"] == found[7]["tokens"] == greedy
    assert found[4]["tokens"] != greedy
    assert found[5]["tokens"] == found[6]["tokens"]
    rows = found[7]["logprobs"]
    assert all(str(token) in row for token, row in zip(greedy, rows, strict=True))
    assert found[8]["text"] == "the cat"


def test_configurations_are_refused_by_name(folder: Path, tmp_path: Path):
    medusa = {"method": "medusa", "model": str(folder), "num_speculative_tokens": 2}
    override = {"override_neuron_config": ["quantized"]}
    adapters = {"enable_lora": True, "max_lora_rank": 8}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"speculative_config": medusa}, "does not have this speculative_config"),
        ({"nnodes": 2, "tensor_parallel_size": 2}, "does not have --nnodes"),
        ({"runner": "pooling"}, "does not have a pooling model"),
        ({"enable_prompt_embeds": True}, "does not have --enable-prompt-embeds"),
        ({"hf_overrides": {"num_hidden_layers": 1}}, "does not have --hf-overrides"),
        ({"quantization": "fp8", "dtype": "bfloat16"}, "does not have --quantization"),
        ({"kv_cache_dtype": "fp8"}, "does not have --kv-cache-dtype"),
        ({"cpu_offload_gb": 1}, "does not have --cpu-offload-gb"),
        ({"kv_offloading_size": 1}, "does not have --kv-offloading-size"),
        ({"load_format": "dummy"}, "does not have this --load-format"),
        ({"additional_config": {"overide_neuron_config": {}}}, "did you mean override_neuron"),
        ({"additional_config": override}, "should be an object of attributes"),
        ({"revision": "v2"}, "does not have --revision"),
        ({"hf_config_path": str(folder)}, "does not have --hf-config-path"),
        ({**adapters, "lora_target_modules": ["q_proj"]}, "does not have --lora-target-modules"),
        ({**adapters, "lora_dtype": "float16"}, "does not have --lora-dtype"),
        ({"profiler_config": {"profiler": "torch", "torch_profiler_dir": "/tmp"}}, "--profiler"),
        ({"enable_sleep_mode": True}, "Sleep mode is not supported on current platform"),
    ]
    path = tmp_path / "outcomes.json"
    engine = {"model": str(folder), "dtype": "float32", "max_model_len": 64}
    changes = [*(change for change, _ in refused), {"data_parallel_size": 2}]
    changes += [{"pipeline_parallel_size": 2}, {}]
    task = json.dumps({"engine": engine, "changes": changes})
    run_program(tmp_path, "refused_program.py", [str(path)], task)
    outcomes = json.loads(path.read_text(encoding="utf-8"))
    assert outcomes[-3:] == [""] * 3
    for (_, text), outcome in zip(refused, outcomes, strict=False):
        assert text in outcome


def test_a_share_of_memory_and_experts_of_each_rank(tmp_path: Path):
    """The artifact has the blocks that the share holds beside the weights."""
    model = ORACLES["qwen3_moe"].model(
        vocab_size=VOCABULARY, initializer_range=0.2, max_position_embeddings=128, num_experts=6
    )
    source, artifact = tmp_path / "moe", tmp_path / "compiled"
    save(model, source)
    save_tokenizer(source)
    sizes = model.config
    heads = sizes.num_key_value_heads * sizes.head_dim
    block = 4 * 2 * sizes.num_hidden_layers * ENGINE["block_size"] * heads
    weights = 4 * sum(one.numel() for one in model.parameters())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    engine = {"model": str(source), **ENGINE}
    engine["gpu_memory_utilization"] = (weights + 7.5 * block) / memory
    engine |= {"tensor_parallel_size": 2, "enable_expert_parallel": True}
    texts = prompts(12)
    asked = [{"prompt": text, "sampling": GREEDY} for text in texts]
    variables = {"NEURON_COMPILED_ARTIFACTS": str(artifact)}
    found = answers(tmp_path, engine, asked, variables=variables)
    assert [one["tokens"] for one in found] == wanted(source, texts)
    settings = open_artifact(artifact).model.settings
    assert (settings.moe_ep_degree, settings.cache_blocks) == (2, 7)


def test_weights_and_caches_in_eight_bits_are_those_of_our_server(folder: Path, tmp_path: Path):
    override = {"quantized": True, "quantization_type": "per_channel_symmetric"}
    override |= {"quantization_dtype": "int8", "kv_cache_quant": True}
    flags = ServedFlags(1, LENGTH, CompileConfig.of(dtype="f32"), json.dumps(override))
    options = served_options(str(folder), flags)
    ours, _ = open_engine(str(folder), options, lambda _: [[0]], 1, Silent())
    texts, expected = prompts(12), list[list[int]]()
    for text in texts:
        done, _ = generate(ours.session, [text], GenerationRequest(NEW))
        expected.append(list(done[0].tokens))
    assert expected != wanted(folder, texts)
    engine = {**ENGINE, "additional_config": {"override_neuron_config": override}}
    asked = [{"prompt": text, "sampling": GREEDY} for text in texts]
    found = answers(tmp_path, {"model": str(folder), **engine}, asked)
    assert [one["tokens"] for one in found] == expected


def penalized(model: Any, text: Sequence[int], settings: Mapping[str, float]) -> list[int]:
    """Greedy tokens of transformers, with penalties as vLLM defines them."""
    tokens = list(text)
    for _ in range(NEW):
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0, -1]
        seen = torch.bincount(torch.tensor(tokens), minlength=VOCABULARY) > 0
        new = torch.tensor(tokens[len(text) :], dtype=torch.int64)
        counts = torch.bincount(new, minlength=VOCABULARY)
        factor = settings.get("repetition_penalty", 1.0)
        lower = torch.where(logits > 0, logits / factor, logits * factor)
        logits = torch.where(seen, lower, logits)
        logits = logits - settings.get("frequency_penalty", 0.0) * counts
        logits = logits - settings.get("presence_penalty", 0.0) * (counts > 0)
        tokens.append(int(logits.argmax()))
    return tokens[len(text) :]


def test_penalties_are_of_the_text_so_far(folder: Path, tmp_path: Path):
    """Also where a request has lost its blocks and begins again."""
    model = LlamaForCausalLM.from_pretrained(folder)
    names = ("repetition_penalty", "frequency_penalty", "presence_penalty")
    settings = [{name: value} for name in names for value in (1.3, 1.9)]
    text = repeating(1)[0]
    asked = [{"prompt": text, "sampling": {**GREEDY, **one}} for one in settings]
    engine = {"model": str(folder), **ENGINE, "num_gpu_blocks_override": 9}
    found = [one["tokens"] for one in answers(tmp_path, engine, asked)]
    assert found == [penalized(model, text, one) for one in settings]
    assert len({tuple(one) for one in found}) > 1


def test_requests_without_a_seed_follow_that_of_the_engine(folder: Path, tmp_path: Path):
    sampling = {"temperature": 1.0, "max_tokens": NEW, "ignore_eos": True}
    asked = [{"prompt": text, "sampling": sampling} for text in prompts(2)]
    engine = {"model": str(folder), **ENGINE}
    first, again, other = (
        [one["tokens"] for one in answers(tmp_path, {**engine, "seed": seed}, asked)]
        for seed in (3, 3, 4)
    )
    assert first == again
    assert first[0] != other[0]


def test_artifacts_are_started_from_and_never_deleted(folder: Path, tmp_path: Path):
    """AWS's plugin empties the folder of its programs before it compiles."""
    texts = prompts(3)
    asked = [{"prompt": text, "sampling": GREEDY} for text in texts]
    artifact = tmp_path / "compiled"
    variables = {"NEURON_COMPILED_ARTIFACTS": str(artifact)}
    engine = {"model": str(folder), **ENGINE}
    times: list[dict[str, int]] = []
    for _ in range(2):
        found = answers(tmp_path, engine, asked, variables=variables)
        assert [one["tokens"] for one in found] == wanted(folder, texts)
        times.append({file.name: file.stat().st_mtime_ns for file in artifact.iterdir()})
    assert times[0] == times[1]
    # Another configuration is refused, and the folder stays.
    with pytest.raises(AssertionError, match="GG0"):
        answers(tmp_path, {**engine, "tensor_parallel_size": 2}, asked, variables=variables)
    assert {file.name: file.stat().st_mtime_ns for file in artifact.iterdir()} == times[0]


def test_replicas_have_programs_of_their_own(folder: Path, tmp_path: Path):
    """Both start from one artifact, which one of them writes."""
    import httpx2 as httpx
    import openai

    texts = prompts(16)
    artifact = tmp_path / "compiled"
    variables = {"NEURON_COMPILED_ARTIFACTS": str(artifact)}
    with served(folder, tmp_path, "--data-parallel-size", "2", **variables) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

        def ask(text: list[int]) -> list[int]:
            extra = {"ignore_eos": True, "return_token_ids": True}
            made = client.completions.create(
                model="mini", prompt=text, max_tokens=NEW, temperature=0, extra_body=extra
            )
            return made.choices[0].model_dump()["token_ids"]

        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(ask, texts))
        metrics = httpx.get(f"{url}/metrics").text
    assert found == wanted(folder, texts)
    answered = re.findall(r'^vllm:generation_tokens_total{engine="(\d)".*} (.*)$', metrics, re.M)
    assert {number for number, count in answered if float(count)} == {"0", "1"}
    assert (artifact / "manifest.json").exists()

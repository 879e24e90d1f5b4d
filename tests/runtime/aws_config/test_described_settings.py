"""A compilation as a ``neuron_config.json``, and what follows from that again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.models import known_shape
from graphgen.runtime.aws_config.compile_settings import compile_settings
from graphgen.runtime.aws_config.described_settings import described_settings
from graphgen.runtime.aws_config.inference_config import InferenceConfig
from graphgen.runtime.aws_config.neuron_config import LoraServingConfig, NeuronConfig
from graphgen.targets import accelerator

ADAPTERS = LoraServingConfig(max_loras=2, max_lora_rank=4, target_modules=["q_proj", "v_proj"])


def settings_of(**attributes: object) -> CompileConfig:
    config = NeuronConfig(tp_degree=2, seq_len=256, torch_dtype="bfloat16", **attributes)
    return compile_settings(config, "trn2")


@pytest.mark.parametrize("attributes", [{}, {"lora_config": ADAPTERS}])
def test_what_is_written_asks_for_the_same_programs(attributes: dict[str, object]):
    settings = settings_of(**attributes)
    text = described_settings(known_shape("qwen2-7b"), settings, accelerator("trn2"))
    read = InferenceConfig.from_json_string(text).neuron_config
    assert compile_settings(read, "trn2") == settings


def test_what_no_attribute_expresses_is_not_written():
    settings = replace(settings_of(), heads="CONVERT_TO_MHA")
    assert not described_settings(known_shape("qwen2-7b"), settings, accelerator("trn2"))

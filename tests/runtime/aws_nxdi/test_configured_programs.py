"""Programs and options that a ``neuron_config.json`` requests of the compile driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.neuronx_cc.command_line import OptionLayer
from graphgen.lowering.neuronx_cc.program_plan import plan_programs
from graphgen.models import known_shape
from graphgen.runtime.aws_config.inference_config import InferenceConfig
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.configured_programs import configured_programs

SMALL = {
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 256,
}


def test_attributes_and_family_are_layers_of_the_command_line(tmp_path: Path):
    config = NeuronConfig(
        tp_degree=2,
        seq_len=256,
        max_context_length=128,
        cc_pipeline_tiling_factor=4,
        scratchpad_page_size=1024,
        speculation_length=4,
    )
    InferenceConfig(config, **{**known_shape("qwen2-7b"), **SMALL}).save(tmp_path)
    made = configured_programs(
        tmp_path / "neuron_config.json", "trn2", 1, [OptionLayer("--flags", "-O3")]
    )
    assert made.options.device.lnc == 1
    programs = {item.name: item for item in plan_programs(made.module, made.options)}
    assert {item.sub_model for item in programs.values()} == {
        "context_encoding_model",
        "token_generation_model",
        "speculation_model",
    }
    prefill = programs["prefill.b1.s128"]
    decode = programs["decode.b1.c256"]
    origins = {item.text: item.origin for item in decode.command.options}
    assert origins["--hbm-scratchpad-page-size=1024"] == "scratchpad_page_size"
    assert origins["-O3"] == "--flags"
    assert origins["--lnc=1"] == "logical cores"
    # AWS's rule about programs of a token replaces the attribute, and shows it.
    tiling = {
        name: next(i for i in item.command.options if "tiling-factor" in i.option.name)
        for name, item in programs.items()
    }
    assert tiling[prefill.name].text == "--cc-pipeline-tiling-factor=4"
    assert tiling[decode.name].text == "--cc-pipeline-tiling-factor=1"
    assert tiling[decode.name].replaced[-1] == (
        "--cc-pipeline-tiling-factor=4",
        "cc_pipeline_tiling_factor",
    )
    # NxD Inference's class of Qwen2 drops these.
    dropped = [item.option for item in decode.differences]
    assert dropped == ["--lnc=1", "--hbm-scratchpad-page-size=1024"]
    assert not [item for item in programs.values() if item.errors]


def test_a_configuration_of_no_model_is_refused(tmp_path: Path):
    file = tmp_path / "neuron_config.json"
    file.write_text('{"model_type": "abacus", "neuron_config": {}}')
    with pytest.raises(GraphgenError, match="'abacus'") as caught:
        configured_programs(file, "trn2", 0, [])
    assert caught.value.code == "GG0501"

"""Bounds of stages of a deep model, against those of its own programs divided by the pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from graphgen.analysis.stage_chain import STAGES, stage_arguments, stage_modules
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.lowering.cost.roofline import roofline
from graphgen.lowering.plan.measure import core_bytes, layer_period, logical_module
from graphgen.lowering.plan.node_plan import stage_bounds
from graphgen.lowering.plan.short_bounds import short_model
from graphgen.models import known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.targets import accelerator

TRN2 = accelerator("trn2")
DEMAND = CompileConfig(
    dtype="bf16", batch=(1,), context=(64,), tokens=(64,), slots=64, tp=2, target="trn2"
)
PHASES = ("prefill", "decode")
LLAMA = {
    **known_shape("llama-3.2-1b"),
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 1000,
    "num_hidden_layers": 9,
}
GEMMA = {
    **known_shape("gemma-3-1b"),
    "hidden_size": 256,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "num_hidden_layers": 26,
}
DEEPSEEK = {
    **known_shape("deepseek-v3"),
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "n_routed_experts": 16,
    "vocab_size": 1000,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 13,
}


def check_stages(config: Mapping[str, object], stages: int, memory: float = 1e-9) -> None:
    """Every stage has the layers, seconds and bytes of the whole model's."""
    period = layer_period(config)
    short = short_model(config, TRN2, DEMAND, PHASES, period)
    layers = config["num_hidden_layers"]
    assert isinstance(layers, int)
    assert 0 < short.layers < layers
    found = stage_bounds(short, TRN2, layers, stages)
    module = logical_module(config, DEMAND, PHASES)
    run_pipeline(module, default(replace(DEMAND, pp_degree=stages)))
    assert module.meta[STAGES] == str(len(found))
    for bound, names in zip(found, stage_arguments(module), strict=True):
        numbers = {int(part) for name in names for part in name.split(".") if part.isdigit()}
        assert numbers <= {*range(bound.first, bound.last + 1)}
    for number, (bound, part) in enumerate(zip(found, stage_modules(module), strict=True)):
        assert bound.programs["decode"].core_bytes == pytest.approx(core_bytes(part), rel=memory)
        for program in part.programs():
            line, mine = roofline(part, program, TRN2), bound.programs[program.phase]
            assert mine.seconds == pytest.approx(line.seconds, rel=1e-9)
            assert mine.link_bytes == line.total.link_bytes
            edges = [v.type.nbytes for name, v in program.outputs if name == f"stage.edge{number}"]
            assert bound.edges[program.phase] == sum(edges)


@pytest.mark.parametrize("stages", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_stages_of_equal_layers(stages: int):
    check_stages(LLAMA, stages)


@pytest.mark.slow
@pytest.mark.parametrize("stages", [2, 3, 5])
def test_stages_of_layers_in_periods(stages: int):
    # What layers share is made in the first of them, so that the worst moment is another.
    check_stages(GEMMA, stages, memory=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("stages", [2, 5])
def test_stages_of_layers_with_and_without_experts(stages: int):
    check_stages(DEEPSEEK, stages, memory=1e-3)


def test_more_stages_than_layers():
    short = short_model(LLAMA, TRN2, DEMAND, PHASES, 1)
    with pytest.raises(GraphgenError, match="can be cut at 10 places"):
        stage_bounds(short, TRN2, 9, 16)

"""Where an op stands in the StableHLO of its program, those of functions it calls included."""

from __future__ import annotations

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir.dtype import bf16
from graphgen.lowering.stablehlo import emit_stablehlo, stablehlo_lines
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import parse


@pytest.mark.parametrize("pipeline", ["default", "default{tp=2}", "default,outline-layers"])
def test_every_op_stands_where_it_is_said_to(pipeline: str):
    module = build(known_shape("llama-3.1-8b"), bf16, mini=True)
    run_pipeline(module, parse(pipeline, CompileConfig(batch=(1,), context=(8,), tokens=(8,))))
    for program in module.programs():
        text = emit_stablehlo(module, program)
        lines = text.splitlines()
        places = stablehlo_lines(module, program)
        assert len(places) >= program.block.size
        assert sum(" loc(#loc" in line for line in lines) >= len(places)
        for op, (number, told) in places.items():
            first, *_ = told.splitlines()
            assert lines[number - 1].strip().startswith(first.removesuffix("{")), op

"""Texts of ops from templates are those that the dialect writes."""

from __future__ import annotations

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import dtype
from graphgen.lowering.stablehlo.dialect import emit_op
from graphgen.lowering.stablehlo.op_texts import OpTexts
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.text.printer import value_names


@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-v3"])
def test_every_op_of_a_model_is_written_as_the_dialect_writes_it(model: str):
    module = build(known_shape(model), dtype("bf16"), phases=("decode",), mini=True)
    run_pipeline(module, default(CompileConfig(tp=2)))
    for function in module.functions.values():
        names = value_names(function)
        texts = OpTexts(function, names)
        for op in function.block:
            out = ", ".join([names[value] for value in op.results])
            assert texts.text(op) == emit_op(op, out, [names[value] for value in op.operands])

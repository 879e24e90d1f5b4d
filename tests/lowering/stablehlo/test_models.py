"""Whole models as StableHLO: jaxlib's parser and verifier accept every program."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib.mlir import ir as mlir  # pyright: ignore[reportPrivateImportUsage]

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module, dtype
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from tests.oracles.minis import MINI_RANKS


def lowered(name: str, kind: str, tp: int, buckets: CompileConfig, *, mini: bool) -> Module:
    phases = ("prefill", "decode") if mini else ("decode",)
    module = build(known_shape(name), dtype(kind), mini=mini, phases=phases)
    run_pipeline(module, default(replace(buckets, tp=tp)))
    return module


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
@pytest.mark.parametrize(("name", "tp"), MINI_RANKS)
@pytest.mark.one_in(25)
def test_mini_models_are_accepted(name: str, tp: int, kind: str):
    # With batch 1 rows are gathered from the cache, with batch 2 it is read in place.
    buckets = CompileConfig(batch=(1, 2), context=(8,), tokens=(16,))
    module = lowered(name, kind, tp, buckets, mini=True)
    programs = [f.name for f in module.programs()]
    assert programs == ["prefill.b1.s8", "prefill.b2.s8", "decode.b1.c16", "decode.b2.c16"]
    with jax_mlir.make_ir_context():
        for function in module.functions.values():
            assert mlir.Module.parse(emit_stablehlo(module, function)).operation.verify()


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b"])
@pytest.mark.one_in(4)
def test_full_size_models_are_accepted(name: str):
    module = lowered(name, "bf16", 8, CompileConfig(tokens=(4096,)), mini=False)
    (function,) = module.programs()
    text = emit_stablehlo(module, function)
    with jax_mlir.make_ir_context():
        parsed = mlir.Module.parse(text)
        assert parsed.operation.verify()
    head = text.partition("\n")[0]
    assert head == "module @llama attributes {mhlo.num_replicas = 8 : i32} {"
    layers = known_shape(name)["num_hidden_layers"]
    assert isinstance(layers, int)
    # And one for the rows of the embedding, which lie over the ranks.
    assert text.count('"stablehlo.all_reduce"') == 2 * layers + 1
    # A key and a value cache a layer, each written once and given back in place.
    assert text.count('"stablehlo.scatter"') == text.count("tf.aliasing_output") == 2 * layers

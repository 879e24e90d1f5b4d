"""Caches of 16-bit floats as integers: the same bits, under functions that go there and back."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.eval import evaluate, numpy_dtype
from graphgen.ir import Module, Role, dtype
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.pipelines import default
from graphgen.text import parse, print_module


def model(kind: str, *, tp: int = 1) -> Module:
    module = build(known_shape("llama-3.1-8b"), dtype(kind), mini=True)
    text = "canonicalize,specialize{batch=[2],context=[4],tokens=[4]}"
    text += f",shard{{tp={tp}}},pad-to-mesh,partition" if tp > 1 else ""
    run_pipeline(module, parse_pipeline(text))
    return module


def test_wide_caches_are_left_alone():
    module = model("f32")
    before = print_module(module)
    run_pipeline(module, parse_pipeline("cache-as-bits"))
    assert print_module(module) == before


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("tp", [1, 2])
def test_every_cache_becomes_bits(kind: str, tp: int):
    module = model(kind, tp=tp)
    run_pipeline(module, parse_pipeline("cache-as-bits"))
    rows = module.entries(Role.STATE)
    assert {row.logical.text for row in rows} == {f"{kind}[2,4,2,8]"}
    assert {row.physical.text for row in rows} == {f"u16[2,4,{2 // tp},8]"}
    for function in module.programs():
        for op in function.ops:
            # Rows are moved as integers; everything is computed in floats.
            if op.name in ("kv_update", "cache_read"):
                assert op.results[0].dtype.name == "u16"
            elif op.name == "attention":
                assert {value.dtype.name for value in op.operands[:3]} == {kind}


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("tp", [1, 2])
def test_packing_and_unpacking_is_the_identity(kind: str, tp: int):
    module = model(kind, tp=tp)
    run_pipeline(module, parse_pipeline("cache-as-bits"))
    row = module.entries(Role.STATE)[0]
    random = np.random.default_rng(0)
    whole = random.standard_normal(row.logical.dims).astype(numpy_dtype(dtype(kind)))
    parts = [
        evaluate(module.function(row.pack), {"whole": whole, "rank": np.array([rank], np.int32)})
        for rank in range(tp)
    ]
    stacked = np.stack([part["part"] for part in parts])
    assert stacked.dtype == np.uint16
    assert stacked.shape[1:] == row.physical.dims
    back = evaluate(module.function(row.unpack), {"parts": stacked})["whole"]
    np.testing.assert_array_equal(back.view(np.uint16), whole.view(np.uint16))


def test_another_op_reads_and_makes_floats():
    text = """\
module @m level=canonical {
  state %k : bf16[2,8,1,4]
}

func @f phase=decode {
  arg %k : bf16[2,8,1,4]
  %n = negate(%k) : bf16[2,8,1,4]
  return k = %n
}
"""
    before, after = parse(text), parse(text)
    run_pipeline(after, parse_pipeline("cache-as-bits"))
    assert after.interface["k"].physical.text == "u16[2,8,1,4]"
    cache = (
        np.random.default_rng(0).standard_normal((2, 8, 1, 4)).astype(numpy_dtype(dtype("bf16")))
    )
    expected = evaluate(before.function("f"), {"k": cache})["k"]
    found = evaluate(after.function("f"), {"k": cache.view(np.uint16)})["k"]
    np.testing.assert_array_equal(found, expected.view(np.uint16))


def test_small_caches_that_ranks_exchange_become_bits():
    """Of a mini so small that all of a cache is sent rather than some of its slots."""
    config = CompileConfig(
        dtype="bf16", tp=4, cp_degree=4, kv_cache_quant=True, context=(8,), tokens=(8,)
    )
    module = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True, layers=1)
    run_pipeline(module, default(config))
    assert {row.physical.dtype.name for row in module.entries(Role.STATE)} == {"u8"}


def test_a_cache_may_be_written_into_itself():
    text = """\
module @m level=canonical {
  input %ids : s32[2]
  input %at : s32[2,8]
  state %k : bf16[2,8,1,4]
}

func @f phase=decode {
  arg %k : bf16[2,8,1,4]
  arg %ids : s32[2]
  arg %at : s32[2,8]
  %n = kv_update(%k, %k, %ids, %at) : bf16[2,8,1,4]
  return k = %n
}
"""
    module = parse(text)
    run_pipeline(module, parse_pipeline("cache-as-bits"))
    (update,) = (op for op in module.function("f").ops if op.name == "kv_update")
    assert update.result.type.text == "u16[2,8,1,4]"


def test_a_state_handed_back_unchanged():
    text = """\
module @m level=canonical {
  state %k : bf16[2,8,1,4]
}

func @f phase=decode {
  arg %k : bf16[2,8,1,4]
  return k = %k
}
"""
    module = parse(text)
    run_pipeline(module, parse_pipeline("cache-as-bits"))
    assert module.function("f").args[0].type.text == "u16[2,8,1,4]"

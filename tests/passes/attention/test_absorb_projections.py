"""absorb-latent-projections: the same numbers in both forms, chosen by cost, weights kept once."""

from __future__ import annotations

from typing import Any

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module, Op, Role, dtype
from graphgen.models import build, known_shape
from graphgen.passes.attention.absorb_latent_projections import AbsorbLatentProjections
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import phases
from graphgen.passes.validate import validate
from graphgen.passes.validate.blame import apply_pass
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse

SMALL = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))
# Of these the prompt expands.
LONGER = CompileConfig(batch=(2,), context=(64,), tokens=(64,))


def before(config: CompileConfig, element: str = "f32", **form: Any) -> Module:
    """DeepSeek as the pass gets it."""
    module = build(known_shape("deepseek-v3"), dtype(element), **form)
    for phase in phases(config):
        if phase.name == "fuse":
            break
        run_pipeline(module, list(phase.passes))
    return module


def attentions(module: Module) -> dict[str, list[Op]]:
    """Of each program, by its name."""
    return {f.name: [op for op in f.ops if op.name == "attention"] for f in module.programs()}


def absorbed(op: Op) -> bool:
    return op.operands[1].shape[2] == 1


@pytest.mark.parametrize(
    ("options", "element"),
    [
        ({}, "f32"),
        ({}, "bf16"),
        ({"tp": 2}, "f32"),
        ({"quantization": "quantize-weights"}, "bf16"),
        ({"quantization": "quantize-weights{scheme=group,dtype=int4,group_size=8}"}, "f32"),
        ({"quantization": "quantize-weights{scheme=per_tensor_symmetric}", "tp": 2}, "f32"),
        ({"kv_cache_quant": True, "kv_cache_dtype": "int8"}, "f32"),
        ({"page_cache": 4}, "f32"),
        ({"attention_dtype": "f16"}, "bf16"),
    ],
    ids=str,
)
@pytest.mark.parametrize(("form", "buckets"), [("absorb", SMALL), ("auto", LONGER)])
@pytest.mark.one_in(4)
def test_both_forms_compute_the_same(
    options: dict[str, object], element: str, form: str, buckets: CompileConfig
):
    module = before(buckets.updated(options), element, mini=True)
    item = AbsorbLatentProjections(form)
    (verdict,) = validate(module, [item], make_workload(module, seed=2))
    assert verdict.means_the_same
    assert verdict.within_budget
    run_pipeline(module, [item])
    for name, ops in attentions(module).items():
        assert {absorbed(op) for op in ops} == {form == "absorb" or name.startswith("decode")}


@pytest.mark.parametrize(("target", "prompt"), [("cpu", 512), ("trn2", 4096)])
def test_decode_absorbs_and_a_long_prompt_does_not(target: str, prompt: int):
    config = CompileConfig(context=(prompt,), tokens=(prompt,), target=target)
    module = before(config, "bf16", layers=1)
    run_pipeline(module, [AbsorbLatentProjections(target=target)])
    forms = {name.split(".")[0]: absorbed(ops[0]) for name, ops in attentions(module).items()}
    assert forms == {"prefill": False, "decode": True}


@pytest.mark.parametrize("form", ["auto", "expand"])
def test_weights_are_kept_once(form: str):
    module = build(known_shape("deepseek-v3"), dtype("f32"), mini=True)
    config = CompileConfig(context=(128,), tokens=(128,), latent_attention=form)
    for phase in phases(config):
        run_pipeline(module, list(phase.passes))
        if phase.name == "weights":
            break
    kept = [row.physical for row in module.entries(Role.PARAM) if "0.self_attn.kv_b" in row.name]
    # Four heads of keys and values of 8 elements of a latent vector of 16.
    assert sum(type_.nbytes for type_ in kept) == 4 * 4 * (8 + 8) * 16


TEXT = """\
module @m level=canonical {{
  input %q : f32[1,1,2,3]
  input %c : f32[1,4,1,3]
  input %mask : pred[1,1,4]
  weight %k : f32[4,2]
  output %y : f32[1,1,2,2]
}}

func @f phase=decode {{
  arg %q : f32[1,1,2,3]
  arg %c : f32[1,4,1,3]
  arg %mask : pred[1,1,4]
  arg %k : f32[4,2]
  %0 = slice(%c) start_indices=[0,0,0,0] limit_indices=[1,4,1,2] : f32[1,4,1,2]
  %1 = reshape(%0) shape=[1,4,2] : f32[1,4,2]
  %2 = slice(%c) start_indices=[0,0,0,2] limit_indices=[1,4,1,3] : f32[1,4,1,1]
  %3 = broadcast_in_dim(%2) shape=[1,4,2,1] dimensions=[0,1,2,3] : f32[1,4,2,1]
  %e = {vector} : f32[1,4,2]
  %4 = dot_general(%1, %k) lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : f32[1,4,4]
  %5 = reshape(%4) shape=[1,4,2,2] : f32[1,4,2,2]
  %6 = concatenate({parts}) dimension=3 : f32[1,4,2,3]
  %7 = dot_general(%e, %k) lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : f32[1,4,4]
  %8 = {values} : f32[1,4,2,2]
  %y = attention(%q, %6, %8, %mask) scale=0.5 : f32[1,1,2,2]
  return y = %y
}}
"""
PLAIN = {
    "vector": "negate(%1)",
    "parts": "%5, %3",
    "values": "reshape(%7) shape=[1,4,2,2]",
}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "keys and values are made of two vectors"),
        ({"parts": "%3, %5"}, "the heads share no part of a key"),
        ({"values": "negate(%5)"}, "it is not split into heads"),
    ],
)
def test_why_not(changes: dict[str, str], why: str):
    module = parse(TEXT.format(**{**PLAIN, **changes}))
    journal = Journal()
    assert apply_pass(module, AbsorbLatentProjections("absorb"), journal).applications == 0
    assert [miss.why.reason for miss in journal.misses] == [why]


def test_the_form_that_was_not_taken_says_its_cost():
    module = before(SMALL, mini=True)
    journal = Journal()
    apply_pass(module, AbsorbLatentProjections(), journal)
    assert any("is slower than absorb" in miss.why.reason for miss in journal.misses)
    journal = Journal()
    apply_pass(before(SMALL, mini=True), AbsorbLatentProjections("expand"), journal)
    assert {miss.why.reason for miss in journal.misses} == {"form=expand is set"}

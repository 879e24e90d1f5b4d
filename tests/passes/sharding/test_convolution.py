"""Convolutions on several ranks: by features from one product to the next, and by batch."""

from __future__ import annotations

import pytest

from graphgen.eval import MEANING
from graphgen.exec.session import Outcome, Runner
from graphgen.ir import Module
from graphgen.passes.core import run_pipeline
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse

# Two convolutions with a depthwise one between, as in speech encoders and state space models.
LAYERS = """
module @m level=logical {
  input %x : f32[2,9,4]
  weight %up : f32[3,4,8]
  weight %mix : f32[3,1,8]
  weight %down : f32[8,4,3]
  output %y : f32[2,4,4]
}

func @main phase=decode {
  arg %x : f32[2,9,4]
  arg %up : f32[3,4,8]
  arg %mix : f32[3,1,8]
  arg %down : f32[8,4,3]
  %a = convolution(%x, %up) dim_labels="b0f_0io->b0f" low=[1] high=[1] dtype=f32 : f32[2,9,8]
  %b = convolution(%a, %mix) dim_labels="b0f_0io->bf0" low=[2] feature_group_count=8 dtype=f32 \
: f32[2,8,9]
  %c = silu(%b) : f32[2,8,9]
  %y = convolution(%c, %down) dim_labels="bf0_io0->b0f" window_strides=[2] dtype=f32 : f32[2,4,4]
  return y = %y
}
""".replace("\\\n", "")


def outcomes(module: Module) -> list[Outcome]:
    return Runner(module, make_workload(module, 3), arithmetic=MEANING).outcomes()


def divided(passes: str) -> Module:
    module = parse(LAYERS)
    wanted = outcomes(module)
    run_pipeline(module, pipeline(passes))
    found = compare(wanted, outcomes(module))
    assert found.relative <= 1e-9
    return module


def shapes(module: Module, op: str) -> list[str]:
    return [o.operands[1].type.text for o in module.programs()[0].ops if o.name == op]


@pytest.mark.parametrize("tp", [2, 4])
def test_features_are_divided_from_one_convolution_to_the_next(tp: int):
    module = divided(f"canonicalize,shard{{tp={tp}}},partition,cse,dce")
    kernels = shapes(module, "convolution")
    part = 8 // tp
    assert kernels == [f"f32[3,4,{part}]", f"f32[3,1,{part}]", f"f32[{part},4,3]"]
    names = [op.name for op in module.programs()[0].ops]
    assert names.count("all_reduce") == 1
    assert "all_gather" not in names


def test_the_groups_of_a_rank_are_its_own():
    module = divided("canonicalize,shard{tp=4},partition,cse,dce")
    counts = [
        op.attrs.integer("feature_group_count")
        for op in module.programs()[0].ops
        if op.name == "convolution"
    ]
    assert counts == [1, 2, 1]


def test_a_batch_is_divided():
    rules = "x:{tp,-,-},y:{tp,-,-},up:{-,-,-},mix:{-,-,-},down:{-,-,-}"
    module = divided(f"canonicalize,shard{{tp=2,rules=[{rules}]}},partition,cse,dce")
    inputs = [o.operands[0].type.text for o in module.programs()[0].ops if o.name == "convolution"]
    assert inputs == ["f32[1,9,4]", "f32[1,9,8]", "f32[1,8,9]"]


def test_by_default_for_a_target():
    module = divided("default{tp=2}")
    assert shapes(module, "convolution")

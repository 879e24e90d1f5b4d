"""The sharding of values: what modules state, in HLO's words, Shardy's and ours."""

from __future__ import annotations

import pytest

from graphgen.ir import Function, Module
from graphgen.ir.dtype import f32
from graphgen.lowering.open import Source, open_source
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.inspect.value_layouts import value_layouts
from graphgen.passes.pipelines import parse
from graphgen.text import parse as parse_module

HLO = """HloModule m, num_partitions=4
ENTRY main {
  a = f32[4,4] parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  b = f32[4,4] parameter(1), sharding={devices=[4,1]0,2,1,3}
  t = (f32[4,4], f32[4,4]) tuple(a, b), sharding={{devices=[2,2]<=[4]}, {replicated}}
  c = f32[4,4] add(a, b), sharding={manual}
  ROOT d = f32[4,4] add(c, c)
}
"""
SHARDY = r"""HloModule m
ENTRY main {
  a = f32[4,4] parameter(0),
    frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"x\", \"y\"}, {}]>"}
  ROOT b = f32[4,4] negate(a), frontend_attributes={
    xla.sdy.sharding="#sdy.sharding_per_value<[<@mesh, [{\"x\", ?}, {\"y\"}]>]>"}
}
"""


def layouts(text: str) -> dict[str, str]:
    module = open_source(Source("m", text.encode()))
    (function,) = module.programs()
    return {value.name or "": text for value, text in value_layouts(module, function).items()}


def test_hlo_shardings_stay_as_they_are_written():
    assert layouts(HLO) == {
        "a": "{devices=[2,1,2]<=[4] last_tile_dim_replicate}",
        "b": "{devices=[4,1]0,2,1,3}",
        "c": "{manual}",
    }


def test_shardy_is_told_by_axes():
    assert layouts(SHARDY) == {"a": "{x*y,-}", "b": "{x*?,y}"}


def mini(pipeline: str) -> tuple[Module, Function]:
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    run_pipeline(module, parse(pipeline))
    return module, next(f for f in module.programs() if f.name.startswith("decode"))


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_program_of_one_rank_has_the_layouts_that_the_partitioner_gave_it(ranks: int):
    module, function = mini(f"default{{context=[8],tokens=[8],tp={ranks}}}")
    found = value_layouts(module, function)
    sums = [
        (found[op.operands[0]], found[op.results[0]])
        for op in function.block
        if op.name in ("all_reduce", "all_gather")
    ]
    # The embedding of a row that is on one rank, two sums a layer, the parts of the logits.
    assert sums == [
        ("by rank", "{-,-,-}"),
        *[("{-,-,-+tp}", "{-,-,-}")] * 4,
        ("{-,tp}", "{-,-}"),
    ]
    caches = [value for value in function.args if "_cache" in (value.name or "")]
    assert {found[value] for value in caches} == {"{-,-,tp,-}"}
    kept = {name: found[value] for name, value in function.outputs}
    assert {kept[value.name or ""] for value in caches} == {"{-,-,tp,-}"}
    inside = [found[op.results[0]] for op in function.block if op.loc.scope.endswith("self_attn")]
    assert "by rank" not in inside


def test_a_program_before_the_partitioner_has_its_plan():
    steps = "canonicalize,specialize{context=[8],tokens=[8]},heads{tp=2},shard{tp=2}"
    module, function = mini(steps)
    # The vocabulary does not divide, so there is no plan, and only what the interface states.
    assert {value.op for value in value_layouts(module, function)} == {None}
    module, function = mini(f"{steps},pad-to-mesh")
    found = value_layouts(module, function)
    made = {op.name: found[op.results[0]] for op in function.block if op.results[0] in found}
    assert made["attention"] == "{-,-,tp,-}"


ONE_RANK = """module @m level=sharded mesh=dp:2,tp:2 {
  input %x : f32[4,8]
  state %cache : f32[4,1,8] sharding={dp,tp,-}
  output %y : f32[4,8]
}

func @main phase=main {
  arg %x : f32[4,8]
  arg %cache : f32[4,1,8]
  %flat = reshape(%cache) shape=[4,8] : f32[4,8]
  %both = add(%x, %flat) : f32[4,8]
  %sum = reduce(%both) dimensions=[0] kind=add : f32[8]
  %over = all_reduce(%sum) kind=add replica_groups=[[0,2],[1,3]] : f32[8]
  %all = all_gather(%flat) dimension=1 replica_groups=[[0,1],[2,3]] : f32[4,16]
  %odd = all_reduce(%over) kind=add replica_groups=[[0,3],[1,2]] : f32[8]
  return y = %both
}
"""


def test_axes_of_a_mesh_of_two_are_told_apart():
    module = parse_module(ONE_RANK)
    found = value_layouts(module, module.function("main"))
    named = {value.name: text for value, text in found.items()}
    assert named == {
        "x": "{-,-}",
        "cache": "{dp,tp,-}",
        "flat": "{dp,tp}",
        "both": "{dp,tp}",
        "sum": "{tp+dp}",
        "over": "{tp}",
        "all": "{dp,-}",
        "odd": "by rank",
    }

"""Why values lie as they do: rules, ops they follow from, and moves that cost what is sent."""

from __future__ import annotations

import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.spmd.explain_sharding import ExplainSharding, ShardingReason, grouped
from tests.oracles.layouts import sent

SIZES = "canonicalize,specialize{batch=[2],context=[8],tokens=[8]}"


def explained(pipeline: str) -> tuple[Module, list[ShardingReason]]:
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    run_pipeline(module, parse_pipeline(SIZES))
    watcher = ExplainSharding()
    run_pipeline(module, parse_pipeline(pipeline), instruments=[watcher])
    return module, watcher.shown()


def test_every_value_has_a_reason_and_every_byte_is_told():
    whole = build(known_shape("llama-3.1-8b"), f32, mini=True)
    run_pipeline(whole, parse_pipeline(f"{SIZES},shard{{tp=2}},pad-to-mesh"))
    module, reasons = explained("shard{tp=2},pad-to-mesh,partition")
    for function in whole.programs():
        ours = [item for item in reasons if item.function == function.name]
        values = sum(len(op.results) for op in function.block) + len(function.args)
        assert len({item.value for item in ours}) == values
        told = sum(item.sent for item in ours)
        assert told == sent(module, module.function(function.name), 0) // 2 > 0


def test_who_decided():
    _, reasons = explained(
        "shard{tp=2,rules=[*.0.mlp.down_proj.weight:{-,-}]},pad-to-mesh,partition"
    )
    by = {(item.function.split(".")[0], item.at, item.value): item for item in reasons}
    layer = "%model.layers.{}.mlp.down_proj.weight"
    assert by["decode", "weight", layer.format(0)].why == "*.0.mlp.down_proj.weight:{-,-}"
    assert by["decode", "weight", layer.format(1)].why == "intermediate:tp"
    decided = {
        item.at.split(" ")[0]: item.decided
        for item in reasons
        if "layers.1.mlp" in item.at and item.decided != "moved"
    }
    assert decided["silu"] == decided["dot_general"] == "follows"
    moves = [item for item in reasons if item.decided == "moved" and "layers.1.mlp" in item.at]
    assert {item.why for item in moves} == {"all-reduce for add"}
    assert [item.sharding for item in moves] == ["{-,-,-+tp} -> {-,-,-}"] * 2


def test_what_the_module_says_itself():
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    run_pipeline(module, parse_pipeline(f"{SIZES},shard{{tp=2}}"))
    watcher = ExplainSharding()
    run_pipeline(module, parse_pipeline("pad-to-mesh,partition"), instruments=[watcher])
    found = {item.decided for item in watcher.shown() if item.value.endswith("q_proj.weight")}
    assert found == {"stated"}


def test_layers_that_are_alike_are_one_row():
    _, reasons = explained("shard{tp=2},pad-to-mesh,partition")
    rows = grouped(reasons)
    assert sum(count for _, count in rows) == len(reasons)
    assert len(rows) < len(reasons) * 2 // 3


def test_nothing_to_explain():
    with pytest.raises(GraphgenError) as caught:
        explained("shard{tp=2}")
    assert caught.value.what == "nothing was partitioned, so no value has a sharding to explain"

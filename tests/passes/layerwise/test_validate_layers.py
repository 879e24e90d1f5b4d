"""Layer-by-layer validation: planted bugs are named with their layer, and work is not repeated."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role, dtype
from graphgen.models import build
from graphgen.models.named_shapes import SHAPES
from graphgen.passes.core import Pass, parse_pipeline
from graphgen.passes.layerwise.segment_run import SegmentRunner, calls_without_weights
from graphgen.passes.layerwise.streamed_array import MemoryMeter
from graphgen.passes.layerwise.validate_layers import validate_layers
from graphgen.passes.layerwise.weight_sources import RandomWeights
from graphgen.passes.pipelines import parse
from graphgen.passes.validate import Verdict
from graphgen.passes.workload.make_workload import workload_for
from graphgen.text import print_module
from tests.graphgen.cli.conftest import done, graphgen, process
from tests.oracles.planted_bugs import BUGS, CONFIG, Bug, Planted
from tests.oracles.wrong_rewrites import LAST_TIES

BUCKETS = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))
PLUGIN = str(Path(__file__).parents[2] / "oracles" / "planted_bugs_plugin.py")
FOUR = {**CONFIG.to_hf(), "num_hidden_layers": 4}
BY_NAME = {bug.name: bug for bug in BUGS}


@cache
def four_layers(element: str = "f32") -> Module:
    """A mini Llama of four layers."""
    return build(FOUR, dtype(element))


def bug_in(name: str, layer: int) -> Bug:
    """A planted bug, in another layer."""
    bug = BY_NAME[name]
    return replace(bug, scope=re.sub(r"layers\.\d+", f"layers.{layer}", bug.scope))


def check(
    module: Module, passes: list[Pass], tile: int = 1 << 20
) -> tuple[list[Verdict], SegmentRunner]:
    """Validate with random weights in tiles of ``tile`` elements, of which none are kept."""
    meter = MemoryMeter()
    source = RandomWeights(0, meter, tile, kept=0)
    runner = SegmentRunner(calls_without_weights(module, 0), source, meter)
    return validate_layers(module, passes, runner), runner


def names(found: Verdict) -> dict[str, list[str]]:
    """The layers of a verdict: run, and wrong."""
    assert found.layers is not None
    return {"run": found.layers.run, "wrong": [item.label for item in found.layers.wrong]}


def test_rounding_bug_in_one_layer_is_found_and_named() -> None:
    (found,), runner = check(four_layers(), [Planted(bug_in("narrowed", 2))])
    assert found.means_the_same
    assert not found.within_budget
    # The others are rebuilt as they were.
    assert names(found) == {"run": ["model.layers.2"], "wrong": ["model.layers.2"]}
    assert found.guilty is not None
    assert found.guilty.function == "decode"
    assert found.guilty.loc.scope == "model.layers.2.mlp.down_proj"
    assert found.first is not None
    assert found.first.name == "the output of model.layers.2"
    assert "model.layers.1" not in runner.runs[6:]


def test_wrong_meaning_in_one_layer_is_found_and_named() -> None:
    (found,), _ = check(four_layers(), [Planted(bug_in("eps", 3))])
    assert not found.means_the_same
    assert names(found)["wrong"] == ["model.layers.3"]
    assert found.guilty is not None
    assert found.guilty.loc.scope == "model.layers.3.input_layernorm"


def test_layers_that_a_pass_leaves_alone_are_not_run() -> None:
    found, runner = check(four_layers(), parse_pipeline("canonicalize,cse,dce"))
    # Only the recording: the embedding and the four layers.
    assert len(runner.runs) == 5
    assert [verdict.ok for verdict in found] == [True] * 3
    last = found[-1].layers
    assert last is not None
    assert len(last.unchanged) == 6


def test_layers_with_the_same_text_are_run_once() -> None:
    found, _ = check(four_layers("bf16"), parse("default", BUCKETS))
    assert all(verdict.ok for verdict in found)
    fused = next(verdict for verdict in found if verdict.pass_text == "fuse-projections")
    assert fused.layers is not None
    alike = {item.label: item.same_as for item in fused.layers.changed if item.same_as}
    assert fused.layers.run == ["model.layers.0"]
    assert alike == {f"model.layers.{n}": "model.layers.0" for n in (1, 2, 3)}
    assert fused.layers.unchanged == ("embedding", "head")


@pytest.mark.slow
def test_no_array_is_as_large_as_a_weight() -> None:
    wide = {"intermediate_size": 1024, "vocab_size": 4096, "hidden_size": 256}
    wide["num_hidden_layers"] = 1
    module = build({**CONFIG.to_hf(), **wide}, dtype("bf16"))
    pipeline = parse("canonicalize,quantize-weights,default", BUCKETS)
    found, runner = check(module, pipeline, tile=4096)
    assert [verdict.pass_text for verdict in found if not verdict.ok] == []
    largest = max(row.logical.nbytes for row in module.entries(Role.WEIGHT))
    # What is left is activations: those of the fused projections are the largest.
    assert runner.meter.largest < largest / 2


@pytest.mark.parametrize(
    ("shape", "pipeline"),
    [
        ("llama-3.1-8b", "default{tp=2,target=trn2}"),
        # Its residual stream stays a sum over the ranks from layer to layer.
        ("gpt-neox-20b", "default{tp=2}"),
        ("mistral-7b", "default{roll_window_cache=true,outline=true}"),
    ],
    ids=["heads on two ranks", "addends on two ranks", "rolled and outlined"],
)
@pytest.mark.one_in(4)
def test_passes_that_change_the_interface_are_right(shape: str, pipeline: str) -> None:
    module = build(SHAPES[shape], dtype("bf16"), mini=True)
    found, _ = check(module, parse(pipeline, BUCKETS))
    assert {verdict.pass_text: verdict.state for verdict in found if not verdict.ok} == {}


def test_module_without_layers_is_refused() -> None:
    module = build(SHAPES["llama-3.1-8b"], dtype("f32"), mini=True)
    for function in module.functions.values():
        for op in function.block:
            op.loc = type(op.loc)(op.loc.file, op.loc.line, "", ())
    with pytest.raises(GraphgenError, match="has no layers"):
        check(module, [])


def test_command_names_the_layer(tmp_path: Path) -> None:
    path = tmp_path / "four.gg"
    path.write_text(print_module(four_layers()), encoding="utf-8")
    planted = f"validate {path} --layerwise -p planted{{bug=narrowed,layer=2}} --plugin {PLUGIN}"
    ran = process(*planted.split())
    assert ran.returncode == 1
    assert "model.layers.2.mlp.down_proj" in ran.stdout
    assert "layers: model.layers.2" in ran.stdout
    assert "GB of weights" in ran.stderr


def test_command_prints_json_of_a_model_with_fewer_layers(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(FOUR), encoding="utf-8")
    ran = done("validate", str(path), "--layers", "1", "--layerwise", "--json")
    found = json.loads(ran.stdout)["passes"]
    assert all(item["ok"] for item in found)
    lifted = next(item for item in found if item["pass"] == "lift-weights")
    assert lifted["layers"]["run"] == ["model.layers.0"]
    assert lifted["layers"]["unchanged"] == ["embedding", "head"]


def test_options_that_mean_nothing_layer_by_layer_are_refused() -> None:
    numpy_only = graphgen("validate", "llama-3.1-8b", "--layerwise", "--on", "cpu")
    assert (numpy_only.exit_code, "--layerwise" in numpy_only.stderr) == (2, True)
    no_model = graphgen("validate", "some.gg", "--layers", "2")
    assert (no_model.exit_code, "a module file" in no_model.stderr) == (2, True)


def test_a_rewrite_that_is_wrong_alone_is_found_layer_by_layer():
    module = build(SHAPES["mixtral-8x7b"], dtype("f32"), mini=True)
    runner = SegmentRunner(calls_without_weights(module, 0), RandomWeights(0))
    plain = validate_layers(module, [LAST_TIES], runner)
    assert [verdict.state for verdict in plain] == ["ok"]
    whole = workload_for(module, [LAST_TIES], 0)
    (found,) = validate_layers(module, [LAST_TIES], runner, alone=whole)
    assert found.state == "WRONG rewrite"
    assert found.guilty is not None
    assert found.guilty.number == 1

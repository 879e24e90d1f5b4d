"""pipeline-stages: programs as chains of calls, in numbers, and where they are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphgen.analysis.stage_chain import divide_states, edge_name, stage_modules, stage_name
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import HELD_ROLES, Function, Module, Op, Role, Value, dtype, entry, tensor
from graphgen.ir.dtype import f32
from graphgen.models import SHAPES, build, known_shape
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.pipelines import default
from graphgen.passes.sharding.pipeline_stages import balanced_cuts
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse, print_module

FAMILIES = {name.partition("-")[0]: name for name in reversed(list(SHAPES))}


def divided(name: str, stages: int, **options: Any) -> Module:
    module = build(known_shape(name), dtype("f32"), mini=True)
    config = CompileConfig(batch=(2,), context=(8,), tokens=(8,), pp_degree=stages, **options)
    run_pipeline(module, default(config))
    verify(module)
    return module


@pytest.mark.parametrize("name", FAMILIES.values())
@pytest.mark.one_in(9)
def test_every_stage_has_its_own_weights_and_states(name: str):
    module = divided(name, 2)
    text = print_module(module)
    assert print_module(parse(text)) == text
    parts = stage_modules(module)
    held = [
        {row.name for row in part.interface.values() if row.role in (*HELD_ROLES, Role.STATE)}
        for part in parts
    ]
    states = {row.name for row in module.entries(Role.STATE)}
    assert held[0] | held[1] >= states
    assert not held[0] & held[1] & states
    # A tied embedding is read at both ends; nothing else is held twice.
    assert all("embed" in each or "wte" in each for each in held[0] & held[1])
    for program in module.programs():
        assert [op.name for op in program.ops] == ["call", "call"]
        first, second = (module.function(stage_name(program.name, n)) for n in range(2))
        assert edge_name(0) in [name for name, _ in first.outputs]
        assert second.arg(edge_name(0)) is not None


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("llama-3.1-8b", {"tp": 2}),
        ("gemma-3-1b", {"page_cache": 4}),
        ("gpt2", {"quantization": "quantize-weights{dtype=int8}"}),
        ("mixtral-8x7b", {"tp": 2, "moe_ep_degree": 2}),
    ],
)
@pytest.mark.one_in(4)
def test_validate_finds_the_same_numbers(name: str, options: dict[str, Any]):
    module = build(known_shape(name), dtype("f32"), mini=True)
    config = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16), pp_degree=2, **options)
    verdicts = validate(module, default(config), make_workload(module))
    assert [(v.pass_text, v.state) for v in verdicts if not v.ok] == []
    assert verdicts[-1].pass_text == "pipeline-stages"


def test_cuts_balance_the_slowest_stage():
    costs = [1, 5, 1, 1, 1, 6, 1]
    assert balanced_cuts(costs, range(7), 2) == [3]
    assert balanced_cuts(costs, range(7), 3) == [1, 4]
    # Where a program cannot be cut, the stages are the best that are left.
    assert balanced_cuts(costs, [0, 1], 2) == [1]
    assert balanced_cuts(costs, [0, 1, 6], 3) == [0, 1]
    with pytest.raises(GraphgenError, match="4 stages, and the programs can be cut at 2 places"):
        balanced_cuts(costs, [0, 1, 6], 4)


def test_layers_that_compute_more_are_in_smaller_stages():
    """The head of a mini is as much as a layer: stages of three layers and head are not halves."""
    module = divided("llama-3.1-8b", 2)
    scopes = [
        {op.loc.scope.partition(".self")[0] for op in function.ops if "layers" in op.loc.scope}
        for part in stage_modules(module)
        for function in part.programs()[:1]
    ]
    assert scopes[0]
    assert scopes[0] | scopes[1] > scopes[0]


def test_programs_without_layers_are_refused():
    module = Module("m", "target")
    function = module.add(Function("decode", phase="decode"))
    type_ = tensor(f32, (4,))
    module.interface["x"] = entry(Role.INPUT, "x", type_)
    module.interface["y"] = entry(Role.OUTPUT, "y", type_)
    op = Op("negate", (function.block.add_arg(type_, "x"),), (type_,))
    function.block.append(op)
    function.outputs = [("y", op.result)]
    with pytest.raises(GraphgenError, match="@m has no layers to divide"):
        run_pipeline(module, parse_pipeline("pipeline-stages"))
    with pytest.raises(GraphgenError, match="stages=1 must be 2 or more"):
        run_pipeline(module, parse_pipeline("pipeline-stages{stages=1}"))


def test_programs_of_states_are_divided_by_their_homes():
    type_ = tensor(f32, (2, 3))
    module = Module("copy", "target")
    function = module.add(Function("copy", phase="main"))

    def state(name: str) -> Value:
        module.interface[name] = entry(Role.STATE, name, type_)
        return function.block.add_arg(type_, name)

    made = {name: Op("negate", (state(name),), (type_,)) for name in ("k", "v", "other")}
    for op in made.values():
        function.block.append(op)
    function.outputs = [(name, op.result) for name, op in made.items()]
    divide_states(module, [{"v"}, {"k"}])
    parts = stage_modules(module)
    assert [[name for name, _ in part.function("copy").outputs] for part in parts] == [
        ["v", "other"],
        ["k"],
    ]
    array = np.ones((2, 3), np.float32)
    assert float(np.asarray(parts[1].function("copy").evaluate({"k": array})["k"]).max()) == -1

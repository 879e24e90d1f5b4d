"""Slices compute what the whole computes, from the values at the cut."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.analysis.layers import layers_of
from graphgen.errors import GraphgenError
from graphgen.eval import Array, evaluate
from graphgen.ir import Function, Module, Role
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.inspect.slice import ops_below, ops_called, ops_of_layer, sliced
from graphgen.text import parse, print_module
from graphgen.text.printer import value_names
from tests.oracles.sample import any_array

SMALL = """\
module @m level=target {
  input %x : f32[4]
  input %w : f32[4]
  state %cache : f32[4]
  output %y : f32[4]
}

func @f phase=main {
  arg %x : f32[4]
  arg %w : f32[4]
  arg %cache : f32[4]
  %k = constant() value=f32[4](1.0,2.0,3.0,4.0) : f32[4]
  %a = multiply(%x, %k) : f32[4]
  %0 = exponential(%a) : f32[4]
  %c = add(%0, %cache) : f32[4]
  %d = subtract(%c, %a) : f32[4]
  return y = %d
  return cache = %c
}
"""


@pytest.fixture(scope="module")
def model() -> Module:
    module = build(known_shape("llama-3.1-8b"), f32, mini=True, phases=("decode",))
    run_pipeline(
        module,
        parse_pipeline("specialize{batch=[2],context=[8],tokens=[8],slots=8},legalize,cse,dce"),
    )
    return module


def numbers(function: Function) -> dict[str, Array]:
    random = np.random.default_rng(3)
    return {value.name or "": any_array(random, value.type) for value in function.args}


def everything(module: Module) -> dict[str, Array]:
    """Every value of the program under its printed name."""
    (function,) = clone_module(module).programs()
    named = [(name, value) for value, name in value_names(function).items() if value.op is not None]
    function.outputs = [(f"v{i}", value) for i, (_, value) in enumerate(named)]
    found = evaluate(function, numbers(function))
    return {name[1:]: found[f"v{i}"] for i, (name, _) in enumerate(named)}


def check(module: Module, part: Module) -> Function:
    """The slice gives the values of the whole."""
    verify(part)
    assert print_module(parse(print_module(part))) == print_module(part)
    (source,), (function,) = module.programs(), part.programs()
    values = {**numbers(source), **everything(module)}
    given = {v.name or "": values[(v.name or "").removeprefix("value.")] for v in function.args}
    handed = {name: values[printed] for name, printed in printed_outputs(module)}
    for name, array in evaluate(function, given).items():
        expected = handed.get(name)
        if expected is None:
            expected = values[name.removeprefix("value.").removesuffix(".out")]
        np.testing.assert_array_equal(array, expected)
    return function


def printed_outputs(module: Module) -> list[tuple[str, str]]:
    (function,) = module.programs()
    names = value_names(function)
    return [(name, names[value][1:]) for name, value in function.outputs]


def names(function: Function) -> tuple[list[str | None], list[str]]:
    return [value.name for value in function.args], [name for name, _ in function.outputs]


def test_one_op():
    module = parse(SMALL)
    (function,) = module.programs()
    part = check(module, sliced(module, function, ops_called(function, ["%c"])))
    assert names(part) == (["cache", "value.0"], ["cache"])
    assert [op.name for op in part.block] == ["add"]


def test_constants_come_along():
    module = parse(SMALL)
    (function,) = module.programs()
    part = check(module, sliced(module, function, ops_called(function, ["a"])))
    assert names(part) == (["x"], ["a"])
    assert [op.name for op in part.block] == ["constant", "multiply"]


def test_some_steps_upwards():
    module = parse(SMALL)
    (function,) = module.programs()
    part = check(module, sliced(module, function, ops_called(function, ["d"], depth=1)))
    assert [op.name for op in part.block] == ["constant", "multiply", "add", "subtract"]
    assert names(part) == (["x", "cache", "value.0"], ["y", "cache", "a"])


def test_what_an_output_needs():
    module = parse(SMALL)
    (function,) = module.programs()
    for wanted in ("cache", "1"):
        made = sliced(module, function, ops_below(function, wanted), "cache")
        part = check(module, made)
        assert names(part) == (["x", "cache"], ["cache"])
        assert made.interface["cache"].role is Role.STATE


def test_a_state_that_is_not_kept_is_an_input():
    module = parse(SMALL)
    (function,) = module.programs()
    made = sliced(module, function, ops_below(function, "y"), "y")
    check(module, made)
    assert made.interface["cache"].role is Role.INPUT


@pytest.mark.parametrize("layer", ["1", "model.layers.1"])
def test_a_layer_of_a_model(model: Module, layer: str):
    (function,) = model.programs()
    part = check(model, sliced(model, function, ops_of_layer(function, layer)))
    inputs, outputs = names(part)
    assert "model.layers.1.mlp.up_proj.weight" in inputs
    assert not any("layers.0" in (name or "") for name in inputs)
    assert {"model.layers.1.self_attn.k_cache", "model.layers.1.self_attn.v_cache"} < set(outputs)


def test_a_layer_has_its_own_ops_and_the_constants_they_read(model: Module):
    (function,) = model.programs()
    for ops in layers_of(function).values():
        (part,) = sliced(model, function, set(ops)).programs()
        more = [op.name for op in part.block]
        for op in ops:
            more.remove(op.name)
        assert set(more) <= {"constant", "iota", "broadcast_in_dim", "convert", "reshape"}
        # A spread constant is not an input: random numbers in its place would mean nothing.
        assert not any((value.name or "").startswith("broadcast") for value in part.args)


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        (lambda f: ops_called(f, ["%nope"]), "%nope is not made in @f"),
        (lambda f: ops_called(f, ["x"]), "x is an argument in @f"),
        (lambda f: ops_of_layer(f, "3"), "@f has no layer '3'"),
        (lambda f: ops_below(f, "z"), "@f has no output 'z'"),
        (lambda f: ops_below(f, "2"), "@f has no output '2'"),
    ],
)
def test_what_is_not_there(wanted: object, what: str):
    (function,) = parse(SMALL).programs()
    assert callable(wanted)
    with pytest.raises(GraphgenError) as caught:
        wanted(function)
    assert (caught.value.code, caught.value.what) == ("GG0202", what)

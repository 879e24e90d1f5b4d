"""Sorting and choosing the largest: several operands, ties, readers, and Neuron's kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from graphgen.build import Builder
from graphgen.eval import Array, evaluate
from graphgen.ir import Function, Module, tensor
from graphgen.ir.dtype import bf16, f32, s32
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from graphgen.passes.core import run_pipeline
from graphgen.passes.legalize.legalize import Legalize
from graphgen.text import parse, print_module
from tests.oracles import xla_hlo

pytestmark = pytest.mark.usefixtures("optimized_code")

TIES = [[3.0, 1.0, 3.0, -2.0, 1.0, 3.0, 0.0], [-1.0, -1.0, 5.0, -1.0, 7.0, 5.0, -9.0]]


def largest(k: int, dtype: str = "f32") -> Module:
    text = f"""\
module @m level=logical {{
}}

func @f {{
  arg %x : {dtype}[2,7]
  %v, %i = top_k(%x) k={k} : {dtype}[2,{k}], s32[2,{k}]
  return v = %v
  return i = %i
}}
"""
    module = parse(text)
    assert print_module(module) == text
    return module


def ordered(descending: bool) -> Module:
    module = Module("m", "target")
    function = module.add(Function("f"))
    keys = function.block.add_arg(tensor(s32, (2, 7)), "keys")
    other = function.block.add_arg(tensor(bf16, (2, 7)), "other")
    made = Builder(function).sort([keys, other], 1, descending=descending)
    function.outputs = [("a", made[0]), ("b", made[1])]
    return module


GIVEN: dict[str, Array] = {
    "keys": np.array(TIES, np.int32),
    "other": np.arange(14).reshape(2, 7).astype(jax.numpy.bfloat16),
}


@pytest.mark.parametrize("descending", [False, True])
def test_the_others_move_along_and_equal_ones_stay_in_order(descending: bool):
    module = ordered(descending)
    function = module.function("f")
    ours = evaluate(function, GIVEN)
    key = -GIVEN["keys"] if descending else GIVEN["keys"]
    by_jax = lax.sort((jnp.asarray(key), jnp.asarray(GIVEN["other"])), dimension=1, num_keys=1)
    np.testing.assert_array_equal(ours["b"], by_jax[1])
    (by_stablehlo,) = compile_program(module, function).run_numpy([GIVEN])
    (by_hlo,) = xla_hlo.run(emit_hlo(module, function), [list(GIVEN.values())])
    for index, (name, array) in enumerate(ours.items()):
        np.testing.assert_array_equal(by_stablehlo[name], array)
        np.testing.assert_array_equal(by_hlo[index], array)


@pytest.mark.parametrize("descending", [False, True])
def test_a_sort_is_read_back(descending: bool):
    module = ordered(descending)
    function = module.function("f")
    wanted = evaluate(function, GIVEN)
    for read in (
        read_stablehlo(emit_stablehlo(module, function)),
        read_hlo(emit_hlo(module, function)),
    ):
        again = read.programs()[0]
        assert [op.name for op in again.ops] == ["sort"]
        names = [value.name or "" for value in again.args]
        found = evaluate(again, dict(zip(names, GIVEN.values(), strict=True)))
        for one, other in zip(found.values(), wanted.values(), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("k", [0, 1, 3, 7])
def test_the_largest_are_those_of_jax(k: int):
    x = np.array(TIES, np.float32)
    ours = evaluate(largest(k).function("f"), {"x": x})
    values, places = lax.top_k(x, k)
    np.testing.assert_array_equal(ours["v"], values)
    np.testing.assert_array_equal(ours["i"], places)
    assert ours["i"].dtype == np.int32
    lowered = largest(k)
    run_pipeline(lowered, [Legalize()])
    (by_xla,) = compile_program(lowered, lowered.function("f")).run_numpy([{"x": x}])
    np.testing.assert_array_equal(by_xla["v"], values)
    np.testing.assert_array_equal(by_xla["i"], places)


def test_what_jax_chooses_is_read_as_one_op():
    text = jax.jit(lambda x: lax.top_k(x, 2)).lower(np.zeros((2, 7), np.float32)).as_text()
    function = read_stablehlo(text).programs()[0]
    assert [op.name for op in function.ops] == ["top_k"]


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_neuron_has_a_kernel_for_floats(target: str):
    module = largest(3)
    run_pipeline(module, [Legalize(target=target)])
    function = module.function("f")
    names = [op.name for op in function.ops]
    assert names == ["constant", "pad", "custom_call", "convert"]
    assert function.block.first is not None
    x = np.array(TIES, np.float32)
    found = evaluate(function, {"x": x})
    np.testing.assert_array_equal(found["i"], lax.top_k(x, 3)[1])
    assert 'custom_call_target="AwsNeuronTopK"' in xla_hlo.parsed(emit_hlo(module, function))


def test_integers_are_sorted_on_neuron():
    module = largest(3, "s32")
    run_pipeline(module, [Legalize(target="trn1")])
    assert "sort" in [op.name for op in module.function("f").ops]


def test_the_order_of_zeros_and_of_what_is_no_number():
    module = Module("m", "target")
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(f32, (5,)), "x")
    function.outputs = [("y", Builder(function).sort([x], 0)[0])]
    given = np.array([np.nan, 0.0, np.inf, -0.0, -np.inf], np.float32)
    found = evaluate(function, {"x": given})["y"]
    np.testing.assert_array_equal(found, [-np.inf, -0.0, 0.0, np.inf, np.nan])
    assert list(np.signbit(found[1:3])) == [True, False]
